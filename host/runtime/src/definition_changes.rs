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
        let count = |changes: &HashMap<String, u64>| changes.get(group).copied().unwrap_or_default();
        let before = count(&self.0.borrow_and_update());
        let is_other = |changes: &Counts| count(changes) != before;
        if self.0.wait_for(is_other).await.is_err() {
            // The host ends.
            std::future::pending::<()>().await;
        }
    }
}
