//! Owns the consequences of a change of a CustomResourceDefinition: writes that the old one refused or changed are sent
//! again, the host looks up again how values of the kind are merged, and a kind that appears or disappears is noticed at
//! once. Without the right to watch definitions, all of this waits for the next start, for a watch to end, or for a refusal
//! to expire.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::Client;
use pilothouse_cluster::watch::definitions;
use pilothouse_cluster::watch::definitions::DefinitionEvent;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::context::HostContext;
use crate::lanes::health::about_status;

/// API servers take a change of a definition in a moment after it is seen: so it is acted on twice, at once and after so long.
const SETTLED: Duration = Duration::from_secs(10);

/// Follows the definitions of the cluster for ever.
pub async fn follow(client: Client, host: Arc<HostContext>) {
    let (sender, mut news) = mpsc::unbounded_channel();
    let mut told = false;
    let follow = definitions::follow(client, move |news| {
        // Whoever has gone needs no news.
        let _ = sender.send(news);
    });
    tokio::pin!(follow);
    let mut later: BTreeMap<Instant, String> = BTreeMap::new();
    loop {
        let due = later.first_key_value().map(|(due, _)| *due);
        tokio::select! {
            () = &mut follow => unreachable!("definitions are followed for ever"),
            Some(news) = news.recv() => match news {
                DefinitionEvent::Listed => {}
                DefinitionEvent::Changed(name) => {
                    host.definition_changed(&name);
                    later.insert(Instant::now() + SETTLED, name);
                }
                DefinitionEvent::Touched(name) | DefinitionEvent::Gone(name) => host.recheck(&name),
                DefinitionEvent::Forbidden(problem) => if !std::mem::replace(&mut told, true) {
                    tracing::warn!(
                        problem,
                        "changes of CustomResourceDefinitions are not seen, so what one refuses is not sent again before \
                         hours have passed; let the host list and watch customresourcedefinitions"
                    );
                }
            },
            () = sleep_until(due), if due.is_some() => {
                if let Some((_, name)) = later.pop_first() {
                    host.definition_changed(&name);
                }
            }
        }
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// The resource's name and the group of a definition's name.
fn split(name: &str) -> (&str, &str) {
    name.split_once('.').unwrap_or((name, ""))
}

impl HostContext {
    /// A definition is another than it was: what was refused or dropped by it may be taken now.
    fn definition_changed(&self, name: &str) {
        let (plural, group) = split(name);
        for kind in self.kinds.of_resource(plural, group) {
            self.schemas.forget(&kind);
            if self.state.definition_changed(&kind) {
                tracing::info!(%kind, "the CRD of the kind has changed; sending refused objects again");
            }
            let lanes = self.state.lanes();
            for lane in lanes.of_kind(&kind).filter(|lane| *lane.grants.primary() == kind) {
                lane.health.clear(&about_status(&kind));
            }
        }
        self.recheck(name);
        self.state.tell_all();
    }

    /// The kinds of a definition's group may be served otherwise than they were.
    fn recheck(&self, name: &str) {
        let (_, group) = split(name);
        self.definitions.note(group);
    }
}
