//! Holds the namespaces that this replica caches when replicas divide the work.

use std::sync::Arc;

use parking_lot::RwLock;
use pilothouse_core::replicas::shards::{Division, Divisions, HashRanges};
use tokio::sync::watch;

/// Part of the cluster that the cache holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CachedPart {
    /// All namespaces.
    #[default]
    All,
    /// Namespaces of these ranges, for controllers that are divided by namespace. A controller that is not in the plan
    /// yet is divided as it will be planned.
    Namespaces(HashRanges, Arc<Divisions>),
}

/// Part of the cluster that the cache holds, for all lanes, with a hand-shake between the setter and one follower.
#[derive(Debug)]
pub struct CachedNamespaces {
    part: RwLock<CachedPart>,
    /// Number of changes announced.
    changes: watch::Sender<u64>,
    /// Value of `changes` when the follower last took the changes in.
    taken_in: watch::Sender<u64>,
}

impl Default for CachedNamespaces {
    fn default() -> Self {
        Self {
            part: RwLock::default(),
            changes: watch::Sender::new(0),
            taken_in: watch::Sender::new(0),
        }
    }
}

impl CachedNamespaces {
    /// Sets the part that is cached. Returns `true` if it differs from before.
    pub fn set(&self, part: CachedPart) -> bool {
        let is_news = *self.part.read() != part;
        if is_news {
            *self.part.write() = part;
        }
        is_news
    }

    /// Announces a change to the follower.
    pub fn announce(&self) {
        self.changes.send_modify(|told| *told += 1);
    }

    /// Runs `take_in` for the last change and records it as taken in. Only one task may follow.
    pub fn take_in(&self, take_in: impl FnOnce()) {
        let told = *self.changes.borrow();
        take_in();
        self.taken_in.send_replace(told);
    }

    /// Waits until the last announced change has been taken in.
    pub async fn wait_until_taken_in(&self) {
        let told = *self.changes.borrow();
        let mut taken_in = self.taken_in.subscribe();
        // The sender is owned by `self`, so this cannot fail.
        let _ = taken_in.wait_for(|taken_in| *taken_in >= told).await;
    }

    /// Subscribes to the announced changes.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns the namespaces that a controller needs; `None`: all. `division` is used for a controller that is not in
    /// the plan. Neither closure is called if nothing is divided.
    pub fn of(&self, controller: impl FnOnce() -> String, division: impl FnOnce() -> Division) -> Option<HashRanges> {
        match &*self.part.read() {
            CachedPart::All => None,
            CachedPart::Namespaces(namespaces, divisions) => {
                let division = divisions.get(&controller()).copied().unwrap_or_else(division);
                (division == Division::Namespaces).then(|| namespaces.clone())
            }
        }
    }
}
