//! Owns what a change of a CustomResourceDefinition means: what was refused or dropped by the old one is sent again, how
//! values of its kind are merged is asked again, and a kind that goes or comes is noticed at once. Without the right to watch
//! definitions, all of that waits for the next start, for a watch to end, or for the time after which a refusal counts no
//! more.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::Client;
use pilothouse_cluster::definitions::{self, DefinitionEvent};
use pilothouse_core::Kind;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::contribute;
use crate::hub::{HostState, Hub};
use crate::route::enqueue_all;

/// API servers take a change of a definition in a moment after it is seen: so it is acted on twice, at once and after so long.
const SETTLED: Duration = Duration::from_secs(10);

/// How often the definitions of each group have changed.
pub type Changes = watch::Sender<Arc<HashMap<String, u64>>>;

/// Follows the definitions of the cluster for ever.
pub async fn follow(client: Client, hub: Arc<Hub>) {
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
                    hub.definition_changed(&name);
                    later.insert(Instant::now() + SETTLED, name);
                }
                DefinitionEvent::Touched(name) | DefinitionEvent::Gone(name) => hub.recheck(&name),
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
                    hub.definition_changed(&name);
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

impl Hub {
    /// A definition is another than it was: what was refused or dropped by it may be taken now.
    fn definition_changed(&self, name: &str) {
        let (plural, group) = split(name);
        for kind in self.served.of_resource(plural, group) {
            self.schemas.forget(&kind);
            let mut state = self.state.write();
            let lanes = state.lanes.clone();
            if forget_refusals(&mut state, &kind) {
                tracing::info!(%kind, "the CRD of the kind has changed; sending refused objects again");
                for lane in lanes.of_kind(&kind) {
                    enqueue_all(&mut state, lane);
                }
            }
            drop(state);
            for lane in lanes.of_kind(&kind).filter(|lane| *lane.grants.primary() == kind) {
                lane.health.clear(&crate::plugins::reporting::about_status(&kind));
            }
        }
        self.recheck(name);
        self.work.notify_one();
        self.claims.notify_one();
    }

    /// The kinds of a definition's group may be served otherwise than they were.
    fn recheck(&self, name: &str) {
        let (_, group) = split(name);
        self.definitions.send_modify(|changes| {
            *Arc::make_mut(changes).entry(group.to_owned()).or_default() += 1;
        });
    }
}

/// Forgets what was refused or not kept of a kind. Says whether anything was refused.
fn forget_refusals(state: &mut HostState, kind: &Kind) -> bool {
    state.unpersisted.retain(|key, _| *key.kind != *kind);
    let refused = state.refusals.forget_kind(kind);
    let contributed = contribute::forget_refusals(state, kind);
    refused || contributed
}

/// Waits until a definition of a group changes.
pub async fn changed(changes: &mut watch::Receiver<Arc<HashMap<String, u64>>>, group: &str) {
    let count = |changes: &HashMap<String, u64>| changes.get(group).copied().unwrap_or_default();
    let before = count(&changes.borrow_and_update());
    let is_other = |changes: &Arc<HashMap<String, u64>>| count(changes) != before;
    if changes.wait_for(is_other).await.is_err() {
        // The host ends.
        std::future::pending::<()>().await;
    }
}
