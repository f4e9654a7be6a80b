//! Joins the parts that the running host shares. Each field's type keeps its own state; nothing is decided here.

pub mod competing_plugins;
pub mod definition_changes;
pub mod kind_registry;
pub mod lane_registry;
pub mod too_deep;
pub mod unstarted;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use pilothouse_cluster::Client;
use pilothouse_cluster::write::openapi::Schemas;
use pilothouse_core::replicas::shards::{Divisions, ShardHolders};
use pilothouse_metrics::Metrics;

use crate::context::competing_plugins::KnownPlugins;
use crate::context::definition_changes::DefinitionChanges;
use crate::context::kind_registry::KindRegistry;
use crate::context::too_deep::TooDeepReporter;
use crate::context::unstarted::UnstartedPlugins;
use crate::election::leadership::Leadership;
use crate::lanes::cached_namespaces::CachedNamespaces;
use crate::lanes::lane::Lane;
use crate::process::blocking::Blocking;
use crate::process::clock::WallClock;
use crate::process::contact::ServerContact;
use crate::process::resume_slots::ResumeSlots;
use crate::process::room::Room;
use crate::queue::Capacity;
use crate::state::SharedState;
use crate::telemetry::failure_log::FailureLog;
use crate::telemetry::recording::Recordings;
use crate::telemetry::traces::Traces;
use crate::telemetry::usage::UsageBook;

/// Share of one of the replicas that divide the work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaShare {
    /// Number of shards that it holds.
    pub held: usize,
    /// Number of all shards.
    pub of: usize,
    /// Its identity in Leases.
    pub identity: String,
    /// Identities of all living replicas, including this one, according to their Leases.
    pub replicas: Vec<String>,
}

/// Parts that every component of the running host shares.
pub struct HostContext {
    /// The cache, the lanes, the dependencies, the claims and the queue, behind one lock.
    pub state: SharedState,
    /// Served and missing kinds.
    pub kinds: KindRegistry,
    /// Leadership of this replica, which decides whether it writes.
    pub leadership: Leadership,
    /// Time of the last response of the API server.
    pub contact: Arc<ServerContact>,
    /// Namespaces that the cache holds.
    pub cached: Arc<CachedNamespaces>,
    /// Share of this replica, if the work is divided.
    pub shards: Mutex<Option<ReplicaShare>>,
    /// Holder of each shard, if the work is divided.
    pub holders: Mutex<Arc<ShardHolders>>,
    /// Number of primaries of each divided controller, at all replicas together.
    pub divided_objects: Mutex<BTreeMap<String, u64>>,
    /// Controllers of plugins that are finishing, whose objects are cleaned up.
    pub finishing: Mutex<Divisions>,
    /// Wall clock.
    pub clock: WallClock,
    /// Runs blocking work, such as calls of guests.
    pub blocking: Blocking,
    /// Known plugins of the cluster.
    pub plugins: KnownPlugins,
    /// Plugins that this replica cannot start.
    pub unstarted: UnstartedPlugins,
    /// Counts of changes of CustomResourceDefinitions.
    pub definitions: DefinitionChanges,
    /// Schemas, by which values are merged.
    pub schemas: Schemas,
    /// Slots of primaries that continue after waiting for their claims.
    pub resume_slots: ResumeSlots,
    /// Reporter of objects that nest too deep for the plugins that read them.
    pub too_deep: TooDeepReporter,
    /// Set while webhooks are configured and not served yet.
    pub waits_for_webhooks: AtomicBool,
    /// Metric handles.
    pub metrics: Metrics,
    /// Memory limits of calls and their answers.
    pub room: Room,
    /// Resource usage of each plugin.
    pub usage: UsageBook,
    /// Log of failed reconciles.
    pub failure_log: FailureLog,
    /// The traces of reconciles.
    pub traces: Traces,
    /// Recordings of calls that clients have requested.
    pub recordings: Recordings,
    /// Number of internal errors that the host has recovered from: waits that nothing would have ended, panics of
    /// watches.
    internal_errors: AtomicU64,
}

impl HostContext {
    /// Makes the parts of a host that has not started.
    pub fn new(
        client: Client,
        clock: WallClock,
        blocking: Blocking,
        capacity: Capacity,
        leadership: Leadership,
        metrics: Metrics,
        traces: Traces,
    ) -> Self {
        Self {
            state: SharedState::new(capacity),
            kinds: KindRegistry::default(),
            leadership,
            contact: Arc::default(),
            cached: Arc::default(),
            shards: Mutex::new(None),
            holders: Mutex::default(),
            divided_objects: Mutex::default(),
            finishing: Mutex::default(),
            clock,
            blocking,
            plugins: KnownPlugins::default(),
            unstarted: UnstartedPlugins::default(),
            definitions: DefinitionChanges::default(),
            schemas: Schemas::new(client),
            resume_slots: ResumeSlots::default(),
            too_deep: TooDeepReporter::default(),
            waits_for_webhooks: AtomicBool::new(false),
            metrics,
            room: Room::default(),
            usage: UsageBook::default(),
            failure_log: FailureLog::default(),
            traces,
            recordings: Recordings::default(),
            internal_errors: AtomicU64::new(0),
        }
    }

    /// Number of primaries of a controller at all replicas, if they divide its work.
    pub fn divided_objects(&self, lane: &Lane) -> Option<u64> {
        lane.cached_namespaces()?;
        Some(
            self.divided_objects
                .lock()
                .get(&lane.title())
                .copied()
                .unwrap_or_default(),
        )
    }

    /// Division of the work of each controller.
    pub fn divisions(&self) -> Divisions {
        let mut divisions = self.state.divisions();
        divisions.extend(self.finishing.lock().clone());
        divisions
    }

    /// Counts an internal error that the host has recovered from; the log names it.
    pub fn count_internal_error(&self) {
        self.internal_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of internal errors.
    pub fn internal_errors(&self) -> u64 {
        self.internal_errors.load(Ordering::Relaxed)
    }
}
