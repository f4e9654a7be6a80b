//! Counts the changes of CustomResourceDefinitions by group, and wakes those who wait for one.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;

/// The counts by group.
type Counts = Arc<HashMap<String, u64>>;

/// How often the definitions of each group have changed.
#[derive(Default)]
pub struct DefinitionChanges(watch::Sender<Counts>);

/// Waits for changes of definitions.
pub struct ChangesReceiver(watch::Receiver<Counts>);

impl DefinitionChanges {
    /// A definition of a group has changed.
    pub fn note(&self, group: &str) {
        self.0.send_modify(|changes| {
            *Arc::make_mut(changes).entry(group.to_owned()).or_default() += 1;
        });
    }

    /// A receiver of the changes after this one.
    pub fn subscribe(&self) -> ChangesReceiver {
        ChangesReceiver(self.0.subscribe())
    }
}

impl ChangesReceiver {
    /// Waits until a definition of a group changes.
    pub async fn changed(&mut self, group: &str) {
        self.changed_since(group, self.count(group)).await;
    }

    /// How often the definitions of a group have changed.
    pub fn count(&self, group: &str) -> u64 {
        count(&self.0.borrow(), group)
    }

    /// Waits until the definitions of a group have changed another number of times than this.
    pub async fn changed_since(&mut self, group: &str, before: u64) {
        let is_other = |changes: &Counts| count(changes, group) != before;
        if self.0.wait_for(is_other).await.is_err() {
            // The host ends.
            std::future::pending::<()>().await;
        }
    }
}

fn count(changes: &HashMap<String, u64>, group: &str) -> u64 {
    changes.get(group).copied().unwrap_or_default()
}
