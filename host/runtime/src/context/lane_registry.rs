//! Opens and closes lanes as plugins come and go, and as the cluster serves their kinds or does not.

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
    /// Puts a lane in its place. One that is new is closed until all its kinds are listed; one that replaces another goes
    /// on where that one was, and has every primary of both reconciled, each after what of it is under way. What it needs has
    /// to be watched already ([`crate::watches::informers::Informers::add`]): the cache then has the facts by which it decides.
    pub fn register_lane(&self, lane: &Arc<Lane>) {
        self.metrics.plugins().enter_controller(&lane.plugin, &lane.controller);
        let (replaced, opened) = self.state.put_lane(lane);
        if let Some(opened) = &opened {
            self.too_deep.lane_opens(&opened.lane, &opened.too_deep);
        }
        self.open_if_synced(lane);
        if let Some(replaced) = replaced.filter(|replaced| replaced.namespaces != lane.namespaces) {
            self.state.competing_plugin_left(&replaced.plugin);
        }
    }

    /// Forgets a lane that is closed and of which nothing runs.
    pub fn remove_lane(&self, id: LaneId) {
        if let Some(lane) = self.state.remove_lane(id) {
            self.state.competing_plugin_left(&lane.plugin);
        }
    }

    /// Opens a lane, if it has been put in its place and all its kinds are listed, or closes it if it cannot go on.
    pub fn open_if_synced(&self, lane: &Lane) {
        self.settle(|lanes| lanes.get(lane.id).cloned().into_iter().collect());
    }

    /// More is known of a kind, or less: opens the lanes whose kinds have all been listed, and closes those that need a
    /// kind which is not served any more.
    pub fn settle_lanes_of(&self, kind: &Kind) {
        self.settle(|lanes| lanes.of_kind(kind).cloned().collect());
        self.kinds.tell_settled();
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
                    self.too_deep.lane_opens(&opened.lane, &opened.too_deep);
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

    /// The cluster serves a kind, in this way from now on.
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

    /// The cluster does not serve a kind (any more). Those who cannot do without it are closed before what the cache had
    /// of it goes, so that nobody takes its objects for deleted one by one.
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

    /// Nobody needs a kind any more.
    pub fn forget_kind(&self, kind: &Kind) {
        self.metrics.watches().leave(&kind.title());
        self.state.forget_kind(kind);
        self.kinds.forget(kind);
    }

    /// The kinds that lanes wait for, for people; empty when all are served and listed.
    pub fn missing(&self, lanes: &[Arc<Lane>]) -> String {
        let waiting = lanes.iter().flat_map(|lane| {
            let kinds = lane.kinds().filter(|(kind, optional)| {
                let is_listed = |need: &_| self.state.has_listed_need(kind, need);
                !self.kinds.has(lane, kind, *optional, is_listed)
            });
            kinds.map(|(kind, _)| kind.to_string())
        });
        let waiting: BTreeSet<String> = waiting.collect();
        waiting.into_iter().collect::<Vec<_>>().join(", ")
    }

    /// A kind was there while lanes needed it, and is not any more.
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
            if needs && self.kinds.is_new_to(kind, &lane.plugin) {
                tracing::warn!(
                    plugin = &*lane.plugin,
                    "waiting: the cluster does not serve {kind}; install what brings it (--install-crds does so for the CRDs of the plugins)"
                );
            }
        }
    }
}

/// What a warning is about that says that a kind is gone.
fn about_kind(kind: &Kind) -> String {
    format!("kind {kind}")
}
