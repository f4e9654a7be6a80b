//! Owns what is known of the kinds that lanes need: how the cluster serves them, whether their watches fail, and to which
//! plugins a missing kind was reported. `lane_registry` decides what that means for the lanes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use pilothouse_cluster::cache::store::Store;
use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::error::{WatchError, WatchErrorKind};
use pilothouse_core::Kind;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::lanes::cache_need::CacheNeed;
use crate::lanes::lane::Lane;
use crate::lanes::served_kinds::ServedKinds;
use crate::state::{KindsOfLane, LaneObstacle};

/// The kinds that lanes need.
#[derive(Default)]
pub struct KindRegistry {
    served: Arc<ServedKinds>,
    /// The last trouble of each kind's watch, so that a message comes when the cause changes and not at each try.
    trouble: Mutex<HashMap<Arc<Kind>, WatchError>>,
    /// Who was told that a kind is not served: the plugins' names by kind.
    waiting: Mutex<HashMap<Arc<Kind>, BTreeSet<Arc<str>>>>,
    /// Told whenever more is known of a kind, or less.
    settled: Notify,
}

impl KindRegistry {
    /// How the cluster serves the kinds, for lanes.
    pub fn served(&self) -> Arc<ServedKinds> {
        self.served.clone()
    }

    /// Whether the cluster was asked and does not serve the kind.
    pub fn is_missing(&self, kind: &Kind) -> bool {
        self.served.is_missing(kind)
    }

    /// Whether the cluster serves a kind, as far as is known.
    pub fn is_served(&self, kind: &Kind) -> bool {
        self.served.get(kind).is_some()
    }

    /// The kinds of a resource that are served, each version for itself.
    pub fn of_resource(&self, plural: &str, group: &str) -> Vec<Kind> {
        self.served.of_resource(plural, group)
    }

    /// The cluster serves a kind, in this way from now on. Says which plugins were told that it is missing.
    pub fn set_served(&self, served: &ServedKind) -> BTreeSet<Arc<str>> {
        self.served.set(&served.kind, Some(served.clone()));
        self.waiting.lock().remove(&served.kind).unwrap_or_default()
    }

    /// The cluster does not serve a kind. Says whether that is news.
    pub fn set_missing(&self, kind: &Kind) -> bool {
        self.served.set(kind, None)
    }

    /// Nobody needs a kind any more.
    pub fn forget(&self, kind: &Kind) {
        self.served.forget(kind);
        self.trouble.lock().remove(kind);
        self.waiting.lock().remove(kind);
    }

    /// Whether a plugin was not told before that a kind is missing.
    pub fn is_new_to(&self, kind: &Arc<Kind>, plugin: &Arc<str>) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.entry(kind.clone()).or_default().insert(plugin.clone())
    }

    /// The watch of a kind has trouble, which the log tells of once. Says whether that is news.
    pub fn has_new_trouble(&self, kind: &Arc<Kind>, trouble: &WatchError) -> bool {
        let before = self.trouble.lock().insert(kind.clone(), trouble.clone());
        let is_news = before.as_ref() != Some(trouble);
        if is_news && trouble.is_about_connection() {
            // The client's log has a line for all watches.
            tracing::debug!(%kind, trouble = &trouble.message, "the watch failed; retrying with back-off");
        } else if is_news {
            tracing::warn!(%kind, trouble = &trouble.message, "the watch failed; retrying with back-off");
        }
        is_news
    }

    /// The watch of a kind is open: what trouble it had is over.
    pub fn trouble_ends(&self, kind: &Arc<Kind>) {
        if let Some(trouble) = self.trouble.lock().remove(kind) {
            if trouble.is_about_connection() {
                tracing::debug!(%kind, "the watch has recovered");
            } else {
                tracing::info!(%kind, "the watch has recovered");
            }
        }
    }

    /// The trouble of a kind's watch, in words, if it is about the kind and not about the connection to the server.
    pub fn trouble(&self, kind: &Kind) -> Option<String> {
        let trouble = self.trouble.lock();
        let trouble = trouble.get(kind).filter(|trouble| !trouble.is_about_connection());
        trouble.map(|trouble| trouble.message.clone())
    }

    /// Whether the watch of a kind has trouble, which the log has told of.
    pub fn has_trouble(&self, kind: &Kind) -> bool {
        self.trouble.lock().contains_key(kind)
    }

    /// Whether the server does not let the host see a kind. If trouble has lasted for `long`, any trouble counts that is the
    /// kind's own, and not that of the connection to the server.
    pub fn is_refused(&self, kind: &Kind, long: bool) -> bool {
        let trouble = self.trouble.lock();
        let is_refusal = |trouble: &WatchError| {
            trouble.kind == WatchErrorKind::Forbidden || (long && !trouble.is_about_connection())
        };
        trouble.get(kind).is_some_and(is_refusal)
    }

    /// Whether the server does not let the host list or watch a kind that lanes need.
    pub fn is_forbidden(&self, lanes: &[Arc<Lane>]) -> bool {
        let trouble = self.trouble.lock();
        let kinds = lanes.iter().flat_map(|lane| lane.kinds());
        let troubles = kinds.into_iter().filter_map(|(kind, _)| trouble.get(&kind));
        troubles
            .into_iter()
            .any(|trouble| trouble.kind == WatchErrorKind::Forbidden)
    }

    /// Ends when more is known of a kind, or less, than when this was called.
    pub fn settled(&self) -> Notified<'_> {
        self.settled.notified()
    }

    /// More is known of a kind, or less.
    pub fn tell_settled(&self) {
        self.settled.notify_waiters();
    }

    /// Whether the cache has of a kind what a lane needs, or the lane can do without.
    pub fn has(&self, lane: &Lane, kind: &Kind, optional: bool, is_listed: impl FnOnce(&CacheNeed) -> bool) -> bool {
        // The rights to see what an earlier version made may have gone with that version.
        if lane.is_only_former(kind) && self.has_trouble(kind) {
            return true;
        }
        if !self.is_served(kind) {
            return optional && self.is_missing(kind);
        }
        is_listed(&lane.need(kind))
    }
}

impl KindsOfLane for KindRegistry {
    fn are_ready(&self, lane: &Lane, store: &Store) -> bool {
        let is_listed = |kind: &Kind, need: &CacheNeed| store.has(kind, &need.projection, &need.reach);
        let mut kinds = lane.kinds();
        lane.access.is_granted()
            && kinds.all(|(kind, optional)| self.has(lane, &kind, optional, |need| is_listed(&kind, need)))
    }

    fn obstacle(&self, lane: &Lane) -> Option<LaneObstacle> {
        let mut kinds = lane.kinds();
        let missing = kinds.find(|(kind, optional)| !optional && self.is_missing(kind));
        let missing = missing.map(|(kind, _)| LaneObstacle::NotServed(kind));
        missing.or_else(|| (!lane.access.is_granted()).then_some(LaneObstacle::NotGranted))
    }
}
