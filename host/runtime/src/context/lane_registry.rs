//! Opens and closes lanes as plugins start and end, and as their kinds become served or missing.

use std::collections::BTreeSet;
use std::sync::Arc;

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_core::Kind;

use crate::context::HostContext;
use crate::lanes::lane::Lane;
use crate::lanes::primary::LaneId;
use crate::lanes::snapshot::Lanes;
use crate::state::{LaneChange, LaneObstacle};

impl HostContext {
    /// Registers a lane. A new one is closed until all its kinds are listed; one that replaces an open lane is open at
    /// once, and every primary of both is queued, after a running reconcile of it. Its kinds have to be watched already
    /// ([`crate::watches::informers::Informers::add`]): the cache then has the facts by which it decides.
    pub fn register_lane(&self, lane: &Arc<Lane>) {
        self.metrics.plugins().enter_controller(&lane.plugin, &lane.controller);
        let (replaced, opened) = self.state.put_lane(lane);
        if let Some(opened) = &opened {
            self.too_deep.open_lane(&opened.lane, &opened.too_deep);
        }
        self.open_if_synced(lane);
        if let Some(replaced) = replaced.filter(|replaced| replaced.namespaces != lane.namespaces) {
            self.state.competing_plugin_left(&replaced.plugin);
        }
    }

    /// Forgets a closed lane without running jobs.
    pub fn remove_lane(&self, id: LaneId) {
        if let Some(lane) = self.state.remove_lane(id) {
            self.state.competing_plugin_left(&lane.plugin);
        }
    }

    /// Opens a registered lane if all its kinds are listed, or closes it if it cannot run.
    pub fn open_if_synced(&self, lane: &Lane) {
        self.settle(|lanes| lanes.get(lane.id).cloned().into_iter().collect());
    }

    /// Opens the lanes whose kinds have all been listed, and closes those that need a kind that is no longer served,
    /// after the state of a kind has changed.
    pub fn settle_lanes_of(&self, kind: &Kind) {
        self.settle(|lanes| lanes.of_kind(kind).cloned().collect());
        self.kinds.notify_settled();
    }

    fn settle(&self, select: impl Fn(&Lanes) -> Vec<Arc<Lane>>) {
        for change in self.state.settle_lanes(select, &self.kinds) {
            match change {
                LaneChange::Opened(opened) => {
                    tracing::info!(
                        lane = opened.lane.title(),
                        objects = opened.objects,
                        "plugin ready: all kinds of the controller are served and listed"
                    );
                    self.too_deep.open_lane(&opened.lane, &opened.too_deep);
                }
                LaneChange::Closed(lane, LaneObstacle::NotServed(kind)) => tracing::warn!(
                    lane = lane.title(), %kind, "the controller stops: the cluster does not serve the kind any more"
                ),
                LaneChange::Closed(lane, LaneObstacle::NotGranted) => tracing::warn!(
                    lane = lane.title(),
                    "the controller stops: the account of its plugin lacks rights; the condition Granted of the Plugin lists them"
                ),
            }
        }
    }

    /// Records how the cluster serves a kind.
    pub fn kind_is_served(&self, served: &ServedKind) {
        let waiting = self.kinds.set_served(served);
        self.schemas.forget(&served.kind);
        for plugin in waiting {
            tracing::info!(plugin = &*plugin, kind = %served.kind, "the missing kind is served now");
        }
        for lane in self.state.lanes().of_kind(&served.kind) {
            lane.health.clear(&about_kind(&served.kind));
        }
        self.settle_lanes_of(&served.kind);
    }

    /// Records that the cluster does not, or no longer, serve a kind. Lanes that need it are closed before its cached
    /// objects are dropped, so that they are not treated as deleted one by one.
    pub fn kind_is_missing(&self, kind: &Arc<Kind>) {
        self.report_waiting_lanes(kind);
        if self.kinds.is_served(kind) {
            self.report_lost_kind(kind);
        }
        if !self.kinds.set_missing(kind) {
            return;
        }
        self.settle_lanes_of(kind);
        self.state.kind_is_missing(kind);
    }

    /// Forgets a kind that no lane needs any more.
    pub fn forget_kind(&self, kind: &Kind) {
        self.metrics.watches().leave(&kind.title());
        self.state.forget_kind(kind);
        self.kinds.forget(kind);
    }

    /// Message that lists the kinds that lanes wait for; empty if all are served and listed, but for optional ones.
    pub fn missing(&self, lanes: &[Arc<Lane>]) -> String {
        let waiting = lanes.iter().filter(|lane| !lane.lacks_primary()).flat_map(|lane| {
            let kinds = lane.kinds().filter(|(kind, optional)| {
                let is_listed = |need: &_| self.state.has_listed_need(kind, need);
                !self.kinds.has(lane, kind, *optional, is_listed)
            });
            kinds.map(|(kind, _)| kind.to_string())
        });
        let waiting: BTreeSet<String> = waiting.collect();
        waiting.into_iter().collect::<Vec<_>>().join(", ")
    }

    /// Reports a kind that was removed while lanes needed it.
    fn report_lost_kind(&self, kind: &Arc<Kind>) {
        let warning = format!(
            "the cluster does not serve {kind} any more: its CustomResourceDefinition was deleted, or its version, while the \
             host ran, and its objects are not seen; install the definition again if that was not meant"
        );
        for lane in self.state.lanes().of_kind(kind) {
            if lane.health.warn(&about_kind(kind), &warning) {
                tracing::warn!(plugin = &*lane.plugin, %kind, "{warning}");
            }
        }
    }

    fn report_waiting_lanes(&self, kind: &Arc<Kind>) {
        for lane in self.state.lanes().of_kind(kind) {
            let needs = lane.kinds().any(|(needed, optional)| needed == **kind && !optional);
            if !needs || !self.kinds.mark_reported_missing(kind, &lane.plugin) {
                continue;
            }
            if lane.is_optional {
                tracing::info!(lane = lane.title(), %kind, "the controller begins once the cluster serves the kind");
            } else {
                tracing::warn!(
                    plugin = &*lane.plugin,
                    "waiting: the cluster does not serve {kind}; install what brings it (--install-crds does so for the CRDs of the plugins)"
                );
            }
        }
    }
}

/// Subject of the warning about a removed kind.
fn about_kind(kind: &Kind) -> String {
    format!("kind {kind}")
}
