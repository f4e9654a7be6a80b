//! Joins what every part of the running host needs. Each field is of a type that owns its state; nothing is decided here.

pub mod competing_plugins;
pub mod definition_changes;
pub mod kind_registry;
pub mod lane_registry;
pub mod too_deep;
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
use crate::telemetry::recording::Recordings;
use crate::telemetry::traces::Traces;
use crate::telemetry::usage::UsageBook;

/// The part of one of the replicas that divide the work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaShare {
    /// How many shards it holds.
    pub held: usize,
    /// How many there are.
    pub of: usize,
    /// Its identity in Leases.
    pub identity: String,
    /// The identities of all replicas that live, by their Leases; this one is among them.
    pub replicas: Vec<String>,
}

/// What every part of the running host needs.
pub struct HostContext {
    /// The cache, the lanes, the dependencies, the claims and the queue, behind one lock.
    pub state: SharedState,
    /// What is known of the kinds that lanes need.
    pub kinds: KindRegistry,
    /// Whether this replica is the one that writes.
    pub leadership: Leadership,
    /// When the API server was last heard of.
    pub contact: Arc<ServerContact>,
    /// The namespaces that the cache is to hold.
    pub cached: Arc<CachedNamespaces>,
    /// This replica's part, where the work is divided.
    pub shards: Mutex<Option<ReplicaShare>>,
    /// Which replica holds which shard, where the work is divided.
    pub holders: Mutex<Arc<ShardHolders>>,
    /// How many primaries each controller has whose work is divided, at all replicas together.
    pub divided_objects: Mutex<BTreeMap<String, u64>>,
    /// The controllers of plugins that end, whose objects are cleaned up.
    pub finishing: Mutex<Divisions>,
    /// The time of day.
    pub clock: WallClock,
    /// Where the calls of guests run.
    pub blocking: Blocking,
    /// The plugins that there are.
    pub plugins: KnownPlugins,
    /// How often the definitions of each group have changed.
    pub definitions: DefinitionChanges,
    /// How values are merged.
    pub schemas: Schemas,
    /// The primaries that wait for what becomes of their claims.
    pub resume_slots: ResumeSlots,
    /// Objects that nest too deep for the plugins that read them, to be told of.
    pub too_deep: TooDeepReporter,
    /// Whether webhooks are to be served, and are not yet.
    pub waits_for_webhooks: AtomicBool,
    /// What is counted of it.
    pub metrics: Metrics,
    /// The memory of calls and of their answers.
    pub room: Room,
    /// What each plugin has used.
    pub usage: UsageBook,
    /// The traces of reconciles.
    pub traces: Traces,
    /// The recordings of calls that somebody has asked for.
    pub recordings: Recordings,
    /// Mistakes of the host that it has noticed and got over: waits that nothing would have ended, panics of watches.
    mistakes: AtomicU64,
}

impl HostContext {
    /// A host that has not begun.
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
            definitions: DefinitionChanges::default(),
            schemas: Schemas::new(client),
            resume_slots: ResumeSlots::default(),
            too_deep: TooDeepReporter::default(),
            waits_for_webhooks: AtomicBool::new(false),
            metrics,
            room: Room::default(),
            usage: UsageBook::default(),
            traces,
            recordings: Recordings::default(),
            mistakes: AtomicU64::new(0),
        }
    }

    /// How many primaries a controller has at all replicas, if they divide its work.
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

    /// How the work of each controller can be divided among replicas.
    pub fn divisions(&self) -> Divisions {
        let mut divisions = self.state.divisions();
        divisions.extend(self.finishing.lock().clone());
        divisions
    }

    /// The host has noticed a mistake of its own and got over it; the log names it.
    pub fn count_mistake(&self) {
        self.mistakes.fetch_add(1, Ordering::Relaxed);
    }

    /// How many mistakes of its own the host has noticed.
    pub fn mistakes(&self) -> u64 {
        self.mistakes.load(Ordering::Relaxed)
    }
}
