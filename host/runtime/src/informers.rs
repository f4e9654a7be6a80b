//! Owns which kinds are watched, and how: each kind once for all lanes, for as long as a lane needs it, in the form that
//! is enough for all of them.
//!
//! A lane that needs more than what is watched has the kind listed again; the others go on with what is known. When one
//! that needed more goes, what is cached is trimmed where it lies. How lanes open and close by it is `lane_registry`'s
//! matter.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pilothouse_cluster::Client;
use pilothouse_cluster::codec::ObjectCodec;
use pilothouse_cluster::discovery::{Discovery, ServedKind};
use pilothouse_cluster::error::{RequestError, WatchError};
use pilothouse_cluster::reflector::{Detail, Reflector, Sink as _};
use pilothouse_core::reach::Reach;
use pilothouse_core::{Kind, backoff};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::cache_need::CacheNeed;
use crate::context::HostContext;
use crate::lane::Lane;

/// The waits between two looks for a kind that is not served.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// Watches that have lasted so long are well, and the wait after their end is the first one again.
const WELL_AFTER: Duration = Duration::from_mins(2);
/// The waits before it is asked whether a kind is served otherwise, after a definition of its group has changed.
const RECHECKS: [Duration; 3] = [Duration::ZERO, Duration::from_secs(2), Duration::from_secs(8)];

/// The watches of all kinds. They end with the value.
pub struct Informers {
    client: Client,
    discovery: Arc<Discovery>,
    host: Arc<HostContext>,
    kinds: Mutex<HashMap<Kind, Informer>>,
}

/// One kind that is watched.
struct Informer {
    /// A lane and the one that is to replace it have the same number, and may need different things.
    lanes: Vec<(Arc<Lane>, CacheNeed)>,
    /// What the lanes need together.
    need: CacheNeed,
    codec: Arc<ObjectCodec>,
    task: AbortHandle,
}

impl Drop for Informer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Informers {
    /// Nothing is watched yet.
    pub fn new(client: Client, host: Arc<HostContext>) -> Self {
        Self {
            discovery: Arc::new(Discovery::new(client.clone())),
            client,
            host,
            kinds: Mutex::default(),
        }
    }

    /// Watches what a lane needs. The lane opens, if it has been put there, once all of that is listed.
    pub fn add(&self, lane: &Arc<Lane>) {
        let asked = Instant::now();
        let mut kinds = self.kinds.lock();
        for (kind, need) in needs(lane) {
            let Some(watched) = kinds.get_mut(&kind) else {
                let codec = Arc::new(ObjectCodec::new(Arc::new(kind.clone()), need.projection.clone()));
                codec.ask(&lane.fact_keys(&kind));
                let watched = Informer {
                    task: self.start(&codec, &need, asked),
                    lanes: vec![(lane.clone(), need.clone())],
                    need,
                    codec,
                };
                kinds.insert(kind, watched);
                continue;
            };
            watched.lanes.push((lane.clone(), need.clone()));
            self.host.state.learn_facts_of(lane, &watched.codec);
            if !watched.need.covers(&need) {
                let union = watched.need.clone().union(&need);
                watched.codec.trim_to(union.projection.clone());
                self.restart(watched, union);
            }
        }
        drop(kinds);
        self.host.open_if_synced(lane);
    }

    /// Ends what only this lane needed. The lane is to be closed already.
    pub fn remove(&self, lane: &Arc<Lane>) {
        let mut kinds = self.kinds.lock();
        for (kind, _) in needs(lane) {
            let Some(watched) = kinds.get_mut(&kind) else {
                continue;
            };
            watched.lanes.retain(|(other, _)| !Arc::ptr_eq(other, lane));
            let needs = watched.lanes.iter().map(|(_, need)| need.clone());
            let Some(need) = needs.reduce(|one, other| one.union(&other)) else {
                kinds.remove(&kind);
                self.host.forget_kind(&kind);
                continue;
            };
            if need.projection != watched.need.projection {
                watched.codec.trim_to(need.projection.clone());
                self.host.state.trim(&watched.codec);
            }
            if need.reach != watched.need.reach || need.detail() != watched.need.detail() {
                self.restart(watched, need);
            } else {
                watched.need = need;
            }
        }
    }

    /// How the cluster serves a kind now, watched or not.
    pub async fn find(&self, kind: &Kind) -> Result<Option<ServedKind>, RequestError> {
        self.discovery.find(&Arc::new(kind.clone()), Instant::now()).await
    }

    /// A kind in a version that the cluster serves, if there is one.
    pub async fn served_version(&self, kind: &Kind) -> Result<Option<Kind>, RequestError> {
        self.discovery.find_version(kind).await
    }

    fn restart(&self, watched: &mut Informer, need: CacheNeed) {
        watched.task.abort();
        watched.task = self.start(&watched.codec, &need, Instant::now());
        watched.need = need;
    }

    fn start(&self, codec: &Arc<ObjectCodec>, need: &CacheNeed, asked: Instant) -> AbortHandle {
        let following = InformerTask {
            client: self.client.clone(),
            discovery: self.discovery.clone(),
            host: self.host.clone(),
            codec: codec.clone(),
            reach: need.reach.clone(),
            detail: need.detail(),
        };
        tokio::spawn(following.run(asked)).abort_handle()
    }
}

/// So that the watches of kinds that ended together come back apart.
fn seed(kind: &Kind) -> u64 {
    let mut hasher = DefaultHasher::new();
    kind.hash(&mut hasher);
    hasher.finish()
}

/// What a lane needs of each kind; a kind that it reconciles and touches is named once.
fn needs(lane: &Lane) -> HashMap<Kind, CacheNeed> {
    let kinds: BTreeSet<Kind> = lane.kinds().map(|(kind, _)| kind).collect();
    kinds
        .into_iter()
        .map(|kind| {
            let need = lane.need(&kind);
            (kind, need)
        })
        .collect()
}

/// The lists and watches of one kind.
struct InformerTask {
    client: Client,
    discovery: Arc<Discovery>,
    host: Arc<HostContext>,
    codec: Arc<ObjectCodec>,
    reach: Reach,
    detail: Detail,
}

impl InformerTask {
    /// Follows the kind for ever: while it is served, by lists and watches; while it is not, by asking again.
    async fn run(self, mut since: Instant) {
        // How often in a row the watches have ended soon.
        let mut ends = 0;
        loop {
            let served = self.find(since).await;
            let begun = Instant::now();
            let namespaced = served.facts.namespaced;
            let sources = self.host.state.watches_begin(&self.codec, &self.reach, namespaced);
            self.host.kind_is_served(&served);
            let mut follows = JoinSet::new();
            for source in sources {
                let watch = Reflector {
                    client: self.client.clone(),
                    discovery: self.discovery.clone(),
                    served: served.clone(),
                    source,
                    detail: self.detail,
                    codec: self.codec.clone(),
                    sink: self.host.clone(),
                };
                follows.spawn(watch.follow());
            }
            // One of them has seen that the kind is not served as it was, or its definition is gone.
            tokio::select! {
                _ = follows.join_next() => {}
                () = self.is_unserved(&served.kind.group) => {}
            }
            // The others end with it: until they begin again nothing is seen.
            drop(follows);
            if begun.elapsed() >= WELL_AFTER {
                ends = 0;
            }
            ends += 1;
            tokio::time::sleep(backoff::delay(ends, seed(self.codec.kind())).min(LONGEST_WAIT)).await;
            since = Instant::now();
        }
    }

    /// Waits until a definition of the kind's group changes, and the kind is not served after that. How else it may be served
    /// is seen when its watch ends.
    async fn is_unserved(&self, group: &str) {
        let mut changes = self.host.definitions.subscribe();
        loop {
            changes.changed(group).await;
            // A server takes a moment to do what the definition says.
            for wait in RECHECKS {
                tokio::time::sleep(wait).await;
                let found = self.discovery.find(self.codec.kind(), Instant::now()).await;
                if matches!(found, Ok(None)) {
                    return;
                }
            }
        }
    }

    async fn find(&self, mut since: Instant) -> ServedKind {
        let kind = self.codec.kind();
        let mut changes = self.host.definitions.subscribe();
        let mut wait = FIRST_WAIT;
        loop {
            match self.discovery.find(kind, since).await {
                Ok(Some(served)) => return served,
                Ok(None) => self.host.kind_is_missing(kind),
                Err(error) => self.host.trouble(kind, WatchError::from(&error)),
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(LONGEST_WAIT),
                () = changes.changed(&kind.group) => wait = FIRST_WAIT,
            }
            since = Instant::now();
        }
    }
}
