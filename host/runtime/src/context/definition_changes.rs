//! Counts the changes of CustomResourceDefinitions by group, and wakes the tasks that wait for one.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;

/// The counts by group.
type Counts = Arc<HashMap<String, u64>>;

/// Number of changes of each group's definitions.
#[derive(Default)]
pub struct DefinitionChanges(watch::Sender<Counts>);

/// Waits for changes of definitions.
pub struct ChangesReceiver(watch::Receiver<Counts>);

impl DefinitionChanges {
    /// Counts a change of a group's definition.
    pub fn record(&self, group: &str) {
        self.0.send_modify(|changes| {
            *Arc::make_mut(changes).entry(group.to_owned()).or_default() += 1;
        });
    }

    /// Subscribes to later changes.
    pub fn subscribe(&self) -> ChangesReceiver {
        ChangesReceiver(self.0.subscribe())
    }
}

impl ChangesReceiver {
    /// Waits until a definition of a group changes.
    pub async fn changed(&mut self, group: &str) {
        self.changed_since(group, self.count(group)).await;
    }

    /// Number of changes of a group's definitions.
    pub fn count(&self, group: &str) -> u64 {
        count(&self.0.borrow(), group)
    }

    /// Waits until the count of a group's changes differs from `before`.
    pub async fn changed_since(&mut self, group: &str, before: u64) {
        let is_other = |changes: &Counts| count(changes, group) != before;
        if self.0.wait_for(is_other).await.is_err() {
            // The host is ending.
            std::future::pending::<()>().await;
        }
    }
}

fn count(changes: &HashMap<String, u64>, group: &str) -> u64 {
    changes.get(group).copied().unwrap_or_default()
}
