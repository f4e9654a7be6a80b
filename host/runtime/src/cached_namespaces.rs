//! Owns which namespaces the cache of this replica is to hold, where replicas divide the work.

use std::sync::Arc;

use parking_lot::RwLock;
use pilothouse_core::shards::{Division, Divisions, HashRanges};
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
    changes: watch::Sender<()>,
}

impl Default for CachedNamespaces {
    fn default() -> Self {
        Self {
            part: RwLock::default(),
            changes: watch::Sender::new(()),
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
        self.changes.send_replace(());
    }

    /// Follows the changes.
    pub fn follow(&self) -> watch::Receiver<()> {
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
