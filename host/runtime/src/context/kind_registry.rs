//! Tracks the kinds that lanes need: how the cluster serves them, whether their watches fail, and the plugins to which
//! a missing kind was reported. `lane_registry` decides what that means for the lanes.

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
    /// The last failure of each kind's watch, so that a message is logged when the cause changes and not at each
    /// attempt.
    trouble: Mutex<HashMap<Arc<Kind>, WatchError>>,
    /// Plugins to which a missing kind was reported, by kind.
    waiting: Mutex<HashMap<Arc<Kind>, BTreeSet<Arc<str>>>>,
    /// Notified whenever the state of a kind changes.
    settled: Notify,
}

impl KindRegistry {
    /// Served kinds, for lanes.
    pub fn served(&self) -> Arc<ServedKinds> {
        self.served.clone()
    }

    /// Returns `true` if discovery found that the cluster does not serve the kind.
    pub fn is_missing(&self, kind: &Kind) -> bool {
        self.served.is_missing(kind)
    }

    /// Returns `true` if the cluster serves a kind, as far as known.
    pub fn is_served(&self, kind: &Kind) -> bool {
        self.served.get(kind).is_some()
    }

    /// Served kinds of a resource, one for each version.
    pub fn of_resource(&self, plural: &str, group: &str) -> Vec<Kind> {
        self.served.of_resource(plural, group)
    }

    /// Records how the cluster serves a kind. Returns the plugins to which it was reported missing.
    pub fn set_served(&self, served: &ServedKind) -> BTreeSet<Arc<str>> {
        self.served.set(&served.kind, Some(served.clone()));
        self.waiting.lock().remove(&served.kind).unwrap_or_default()
    }

    /// Records that the cluster does not serve a kind. Returns `true` if that is new.
    pub fn set_missing(&self, kind: &Kind) -> bool {
        self.served.set(kind, None)
    }

    /// Forgets a kind that no lane needs any more.
    pub fn forget(&self, kind: &Kind) {
        self.served.forget(kind);
        self.trouble.lock().remove(kind);
        self.waiting.lock().remove(kind);
    }

    /// Records that a missing kind is reported to a plugin. Returns `true` if it was not before.
    pub fn mark_reported_missing(&self, kind: &Arc<Kind>, plugin: &Arc<str>) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.entry(kind.clone()).or_default().insert(plugin.clone())
    }

    /// Records a failure of a kind's watch, and logs it once. Returns `true` if it is new.
    pub fn record_watch_failure(&self, kind: &Arc<Kind>, trouble: &WatchError) -> bool {
        let before = self.trouble.lock().insert(kind.clone(), trouble.clone());
        let is_news = before.as_ref() != Some(trouble);
        if is_news && trouble.is_about_connection() {
            // The client logs one line for all watches.
            tracing::debug!(%kind, trouble = &trouble.message, "the watch failed; retrying with back-off");
        } else if is_news {
            tracing::warn!(%kind, trouble = &trouble.message, "the watch failed; retrying with back-off");
        }
        is_news
    }

    /// Records that the watch of a kind is open again.
    pub fn record_watch_recovery(&self, kind: &Arc<Kind>) {
        if let Some(trouble) = self.trouble.lock().remove(kind) {
            if trouble.is_about_connection() {
                tracing::debug!(%kind, "the watch has recovered");
            } else {
                tracing::info!(%kind, "the watch has recovered");
            }
        }
    }

    /// Message of the failure of a kind's watch, if it concerns the kind and not the connection to the server.
    pub fn trouble(&self, kind: &Kind) -> Option<String> {
        let trouble = self.trouble.lock();
        let trouble = trouble.get(kind).filter(|trouble| !trouble.is_about_connection());
        trouble.map(|trouble| trouble.message.clone())
    }

    /// Returns `true` if the watch of a kind fails, which was logged.
    pub fn has_trouble(&self, kind: &Kind) -> bool {
        self.trouble.lock().contains_key(kind)
    }

    /// Returns `true` if the server does not let the host see a kind. With `long`, for a failure that has lasted, any
    /// failure of the kind itself counts, but not one of the connection to the server.
    pub fn is_refused(&self, kind: &Kind, long: bool) -> bool {
        let trouble = self.trouble.lock();
        let is_refusal = |trouble: &WatchError| {
            trouble.kind == WatchErrorKind::Forbidden || (long && !trouble.is_about_connection())
        };
        trouble.get(kind).is_some_and(is_refusal)
    }

    /// Returns `true` if the host may not list or watch a kind that lanes need.
    pub fn is_forbidden(&self, lanes: &[Arc<Lane>]) -> bool {
        let trouble = self.trouble.lock();
        let kinds = lanes.iter().flat_map(|lane| lane.kinds());
        let troubles = kinds.into_iter().filter_map(|(kind, _)| trouble.get(&kind));
        troubles
            .into_iter()
            .any(|trouble| trouble.kind == WatchErrorKind::Forbidden)
    }

    /// Resolves when the state of any kind changes after this call.
    pub fn settled(&self) -> Notified<'_> {
        self.settled.notified()
    }

    /// Notifies the tasks that wait for a change of any kind.
    pub fn notify_settled(&self) {
        self.settled.notify_waiters();
    }

    /// Returns `true` if the cache holds what a lane needs of a kind, or the lane works without.
    pub fn has(&self, lane: &Lane, kind: &Kind, optional: bool, is_listed: impl FnOnce(&CacheNeed) -> bool) -> bool {
        // The rights to see leftovers of an earlier version may have been removed with it.
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
