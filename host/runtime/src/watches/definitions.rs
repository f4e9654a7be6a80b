//! Reacts to changes of a CustomResourceDefinition: writes that the old one rejected or changed are sent again, the
//! merge types of the kind are read again, and a kind that appears or disappears is noticed at once. Without the right
//! to watch definitions, all of this waits for the next start, for a watch to end, or for a rejection to expire.

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

/// Delay of the second reaction: API servers apply a change of a definition a moment after it is observed, so it is
/// handled twice.
const SETTLED: Duration = Duration::from_secs(10);

/// Follows the definitions of the cluster for ever.
pub async fn follow(client: Client, host: Arc<HostContext>) {
    let (sender, mut news) = mpsc::unbounded_channel();
    let mut told = false;
    let follow = definitions::follow(client, move |news| {
        // The receiver may be gone.
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

/// Splits the name of a definition into resource name and group.
fn split(name: &str) -> (&str, &str) {
    name.split_once('.').unwrap_or((name, ""))
}

impl HostContext {
    /// Forgets what was rejected or dropped by the old definition of a kind.
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
        self.state.notify_all();
    }

    /// Wakes the tasks that wait for a change of the group's definitions: its kinds may be served differently.
    fn recheck(&self, name: &str) {
        let (_, group) = split(name);
        self.definitions.record(group);
    }
}
