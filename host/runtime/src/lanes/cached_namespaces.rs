//! Owns which namespaces the cache of this replica is to hold, where replicas divide the work.

use std::sync::Arc;

use parking_lot::RwLock;
use pilothouse_core::replicas::shards::{Division, Divisions, HashRanges};
use tokio::sync::watch;

/// What the cache is to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CachedPart {
    /// All namespaces.
    #[default]
    All,
    /// These, for the controllers that are divided by namespace. A controller that is not in the plan yet is divided as it
    /// will be.
    Namespaces(HashRanges, Arc<Divisions>),
}

/// What the cache is to hold, for all lanes.
#[derive(Debug)]
pub struct CachedNamespaces {
    part: RwLock<CachedPart>,
    /// How many changes were told of.
    changes: watch::Sender<u64>,
    /// How many of them had been told of when they were taken in last.
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
    /// The cache is to hold another part. Says whether that is news.
    pub fn set(&self, part: CachedPart) -> bool {
        let is_news = *self.part.read() != part;
        if is_news {
            *self.part.write() = part;
        }
        is_news
    }

    /// Those who follow are told of the last change.
    pub fn tell(&self) {
        self.changes.send_modify(|told| *told += 1);
    }

    /// Takes the last change in, by what is given. Only one may follow.
    pub fn take_in(&self, take_in: impl FnOnce()) {
        let told = *self.changes.borrow();
        take_in();
        self.taken_in.send_replace(told);
    }

    /// Waits until the last change has been taken in.
    pub async fn is_taken_in(&self) {
        let told = *self.changes.borrow();
        let mut taken_in = self.taken_in.subscribe();
        // The sender is here.
        let _ = taken_in.wait_for(|taken_in| *taken_in >= told).await;
    }

    /// Follows the changes.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The namespaces that a controller needs; none: all. `division` is what it will have, if the plan does not say. Where
    /// nothing is divided, neither is asked for.
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
