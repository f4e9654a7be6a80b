//! Watches kinds: each once for all lanes, as long as a lane needs it, in the form that satisfies all of them.
//!
//! A lane that needs more than what is watched has the kind listed again; the others keep using the cache. When a lane
//! that needed more is removed, cached objects are trimmed in place. `lane_registry` opens and closes lanes
//! accordingly.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pilothouse_cluster::Client;
use pilothouse_cluster::cache::codec::ObjectCodec;
use pilothouse_cluster::discovery::{Discovery, ServedKind};
use pilothouse_cluster::error::{RequestError, WatchError};
use pilothouse_cluster::watch::reflector::{Detail, Reflector, Sink as _};
use pilothouse_core::Kind;
use pilothouse_core::reads::reach::Reach;
use pilothouse_core::status::backoff;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::context::HostContext;
use crate::lanes::cache_need::CacheNeed;
use crate::lanes::lane::Lane;

/// Bounds of the wait between two lookups of a kind that is not served.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// Duration after which watches count as stable, so that the wait after their end is the first one again.
const WELL_AFTER: Duration = Duration::from_mins(2);
/// Waits before a kind is looked up again, after a definition of its group has changed.
const RECHECKS: [Duration; 3] = [Duration::ZERO, Duration::from_secs(2), Duration::from_secs(8)];

/// Watches of all kinds. They end on drop.
pub struct Informers {
    client: Client,
    discovery: Arc<Discovery>,
    host: Arc<HostContext>,
    kinds: Mutex<HashMap<Kind, Informer>>,
}

/// A watched kind.
struct Informer {
    /// A lane and its replacement have the same number, and may have different needs.
    lanes: Vec<(Arc<Lane>, CacheNeed)>,
    /// Union of the lanes' needs.
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
    /// Makes informers without any watch.
    pub fn new(client: Client, host: Arc<HostContext>) -> Self {
        Self {
            discovery: Arc::new(Discovery::new(client.clone())),
            client,
            host,
            kinds: Mutex::default(),
        }
    }

    /// Watches the kinds of a lane, before the lane is registered. After that it opens when all of them are listed.
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
                self.host.metrics.watches().enter(&kind.title());
                kinds.insert(kind, watched);
                continue;
            };
            watched.lanes.push((lane.clone(), need.clone()));
            self.host.state.learn_facts(lane, &watched.codec);
            if !watched.need.covers(&need) {
                let union = watched.need.clone().union(&need);
                watched.codec.trim_to(union.projection.clone());
                self.restart(watched, union);
            }
        }
        drop(kinds);
        self.host.open_if_synced(lane);
    }

    /// Ends the watches that only this lane needed. The lane has to be closed already.
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

    /// Returns how the cluster serves a kind now, watched or not.
    pub async fn find(&self, kind: &Kind) -> Result<Option<ServedKind>, RequestError> {
        self.discovery.find(&Arc::new(kind.clone()), Instant::now()).await
    }

    /// A kind in a version that the cluster serves, if there is one.
    pub async fn served_version(&self, kind: &Kind) -> Result<Option<Kind>, RequestError> {
        self.discovery.find_version(kind).await
    }

    /// Lists each kind again of which lanes need another part, after the cached namespaces have changed. Cached objects
    /// stay until the list is complete.
    pub fn refresh(&self) {
        let mut kinds = self.kinds.lock();
        let mut lanes: Vec<Arc<Lane>> = Vec::new();
        for (kind, watched) in kinds.iter_mut() {
            for (lane, need) in &mut watched.lanes {
                *need = lane.need(kind);
                lanes.push(lane.clone());
            }
            let needs = watched.lanes.iter().map(|(_, need)| need.clone());
            let Some(need) = needs.reduce(|one, other| one.union(&other)) else {
                continue;
            };
            if need.reach != watched.need.reach {
                // The watches begin a little later; the cached namespaces may have grown again by then.
                self.host.state.watches_narrow(kind, &need.reach);
                self.restart(watched, need);
            }
        }
        drop(kinds);
        // Objects that another lane needs whole are cached already.
        for lane in lanes {
            self.host.open_if_synced(&lane);
        }
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

/// Seed of the jitter, so that watches that ended together are reopened at different times.
fn seed(kind: &Kind) -> u64 {
    let mut hasher = DefaultHasher::new();
    kind.hash(&mut hasher);
    hasher.finish()
}

/// Need of a lane for each kind; a kind that it reconciles and touches is listed once.
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

/// Lists and watches of one kind.
struct InformerTask {
    client: Client,
    discovery: Arc<Discovery>,
    host: Arc<HostContext>,
    codec: Arc<ObjectCodec>,
    reach: Reach,
    detail: Detail,
}

impl InformerTask {
    /// Follows the kind for ever: by lists and watches while it is served, by lookups while it is not.
    async fn run(self, mut since: Instant) {
        // Number of times in a row that the watches have ended soon.
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
                    metrics: self.host.metrics.watches().clone(),
                };
                follows.spawn(watch.follow());
            }
            // A reflector has seen that the kind is served differently, or its definition was deleted.
            tokio::select! {
                _ = follows.join_next() => {}
                () = self.wait_until_unserved(&served.kind.group) => {}
            }
            // The other watches end with it: nothing is observed until they begin again.
            drop(follows);
            if begun.elapsed() >= WELL_AFTER {
                ends = 0;
            }
            ends += 1;
            tokio::time::sleep(backoff::delay(ends, seed(self.codec.kind())).min(LONGEST_WAIT)).await;
            since = Instant::now();
        }
    }

    /// Waits until a definition of the kind's group changes, and the kind is then not served. Other changes of how it
    /// is served are noticed when its watch ends.
    async fn wait_until_unserved(&self, group: &str) {
        let mut changes = self.host.definitions.subscribe();
        loop {
            changes.changed(group).await;
            // A server takes a moment to apply a definition.
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

#[cfg(test)]
mod tests {
    use pilothouse_cluster::cache::decoding::NoDecoding;
    use serde_json::{Value, json};
    use tokio::task::Id;

    use super::*;
    use crate::test_support::*;

    /// Need of a watched kind, and its task.
    fn watched(informers: &Informers, kind: &Kind) -> Option<(CacheNeed, Id)> {
        let kinds = informers.kinds.lock();
        let watched = kinds.get(kind)?;
        assert_eq!(
            watched.codec.layout().projection(),
            &watched.need.projection,
            "objects are trimmed to what is needed"
        );
        Some((watched.need.clone(), watched.task.id()))
    }

    fn codec(informers: &Informers, kind: &Kind) -> Arc<ObjectCodec> {
        informers.kinds.lock()[kind].codec.clone()
    }

    /// A lane that reads these fields of children.
    fn reader(host: &TestHost, plugin: &str, fields: &Value, more: &Value) -> Arc<Lane> {
        let mut controller = controller(&["read"]);
        let touch = &mut controller["touches"][0];
        touch["fields"] = fields.clone();
        for (name, value) in more.as_object().into_iter().flatten() {
            touch[name] = value.clone();
        }
        Arc::new(host.lane(plugin, controller))
    }

    #[tokio::test(start_paused = true)]
    async fn each_kind_is_watched_once_for_as_long_as_a_lane_needs_it() {
        let host = TestHost::new().await;
        let informers = host.informers();
        let one = reader(&host, "one", &json!([".data"]), &Value::Null);
        let other = reader(&host, "other", &json!([".data"]), &Value::Null);
        informers.add(&one);
        let first = watched(&informers, &child_kind()).unwrap();
        assert_eq!(first.0, one.need(&child_kind()));
        informers.add(&other);
        assert_eq!(watched(&informers, &child_kind()).unwrap(), first);
        informers.remove(&one);
        assert_eq!(watched(&informers, &child_kind()).unwrap(), first);

        host.list_with(&codec(&informers, &child_kind()), &[text("c", 1, &json!({}))]);
        let task = informers.kinds.lock()[&child_kind()].task.clone();
        informers.remove(&other);
        assert_eq!(watched(&informers, &child_kind()), None);
        assert_eq!(watched(&informers, &primary_kind()), None);
        assert!(host.context.state.get(&child_kind(), &name("c")).is_none());
        assert!(!host.context.kinds.is_served(&child_kind()));
        tokio::task::yield_now().await;
        assert!(task.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_and_its_successor_of_the_same_number_are_told_apart() {
        let host = TestHost::new().await;
        let informers = host.informers();
        let old = reader(&host, "plugin", &json!([".data"]), &Value::Null);
        let mut new = Lane::clone(&reader(&host, "plugin", &json!([".status"]), &Value::Null));
        new.id = old.id;
        let new = Arc::new(new);
        informers.add(&old);
        informers.add(&new);
        informers.remove(&old);
        assert_eq!(watched(&informers, &child_kind()).unwrap().0, new.need(&child_kind()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_is_listed_again_when_a_lane_needs_more_of_it() {
        let host = TestHost::new().await;
        let informers = host.informers();
        let none = Value::Null;
        let in_a = json!({"scope": "Any", "namespaces": ["a"]});
        let lanes = [
            reader(&host, "names", &json!([]), &in_a),
            reader(&host, "data", &json!([".data"]), &in_a),
            reader(&host, "more", &json!([".data", ".status"]), &in_a),
            reader(&host, "all", &json!([".data"]), &none),
        ];
        let mut tasks = Vec::new();
        let mut union = lanes[0].need(&child_kind());
        for lane in &lanes {
            informers.add(lane);
            union = union.union(&lane.need(&child_kind()));
            let (need, task) = watched(&informers, &child_kind()).unwrap();
            assert_eq!(need, union);
            assert!(!tasks.contains(&task), "{} has it listed again", lane.plugin);
            tasks.push(task);
        }
        let less = reader(&host, "less", &json!([".status"]), &in_a);
        informers.add(&less);
        assert_eq!(watched(&informers, &child_kind()).unwrap(), (union, tasks[3]));
    }

    #[tokio::test(start_paused = true)]
    async fn what_no_lane_sees_any_more_is_trimmed_without_a_list() {
        let host = TestHost::new().await;
        let informers = host.informers();
        let less = reader(&host, "less", &json!([".data"]), &Value::Null);
        let more = reader(&host, "more", &json!([".data", ".status"]), &Value::Null);
        informers.add(&less);
        informers.add(&more);
        let object = text("c", 1, &json!({"data": "kept", "status": "dropped"}));
        host.list_with(&codec(&informers, &child_kind()), &[object]);
        let shown = || host.context.state.get(&child_kind(), &name("c")).unwrap().value();
        assert_eq!([&shown()["data"], &shown()["status"]], ["kept", "dropped"]);

        let (_, task) = watched(&informers, &child_kind()).unwrap();
        informers.remove(&more);
        assert_eq!(
            watched(&informers, &child_kind()).unwrap(),
            (less.need(&child_kind()), task)
        );
        assert_eq!([&shown()["data"], &shown()["status"]], [&json!("kept"), &Value::Null]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_of_more_than_is_needed_is_replaced() {
        let host = TestHost::new().await;
        let informers = host.informers();
        let names = json!({"scope": "Any", "namespaces": ["a"]});
        let metadata = reader(&host, "metadata", &json!([]), &names);
        let data = reader(&host, "data", &json!([".data"]), &names);
        let everywhere = reader(&host, "everywhere", &json!([".data"]), &json!({"scope": "Any"}));
        for lane in [&metadata, &data, &everywhere] {
            informers.add(lane);
        }
        let (_, widest) = watched(&informers, &child_kind()).unwrap();
        informers.remove(&everywhere);
        let (need, narrower) = watched(&informers, &child_kind()).unwrap();
        assert_eq!(need, data.need(&child_kind()));
        assert_ne!(narrower, widest, "fewer namespaces are watched");
        informers.remove(&data);
        let (need, narrowest) = watched(&informers, &child_kind()).unwrap();
        assert_eq!(need, metadata.need(&child_kind()));
        assert_ne!(narrowest, narrower, "only metadata is asked for");
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_a_lane_reconciles_and_touches_is_needed_as_both() {
        let host = TestHost::new().await;
        let mut controller = controller(&["read"]);
        controller["touches"][0]["kind"] = controller["kind"].clone();
        controller["touches"][0]["names"] = json!(["other"]);
        let lane = host.lane("plugin", controller);
        let needs = needs(&lane);
        assert_eq!(needs.len(), 1);
        let need = &needs[&primary_kind()];
        let shown: Vec<_> = [".spec", ".data", ".status"]
            .into_iter()
            .map(|path| pilothouse_core::kubernetes::path::FieldPath::parse(path).unwrap())
            .collect();
        assert!(
            need.projection
                .covers(&pilothouse_core::kubernetes::path::Projection::new(&shown))
        );
        assert_eq!(need.reach, Reach::all());
    }

    #[tokio::test(start_paused = true)]
    async fn facts_of_the_first_lane_of_a_kind_are_cached() {
        let host = TestHost::new().await;
        let informers = host.informers();
        let mut lane = host.lane("plugin", controller(&[]));
        lane.filter.annotation = Some("on".to_owned());
        informers.add(&Arc::new(lane));
        let annotated = text("p", 1, &json!({"metadata": {"annotations": {"on": ""}}}));
        host.list_with(&codec(&informers, &primary_kind()), &[annotated]);
        let object = host.context.state.get(&primary_kind(), &name("p")).unwrap();
        let _guard = NoDecoding::begin();
        assert!(object.has_annotation("on"));
    }

    /// A lane with a filter comes while a kind is cached for another lane.
    #[tokio::test(start_paused = true)]
    async fn facts_of_a_new_lane_are_added_to_cached_objects() {
        let host = TestHost::new().await;
        let informers = host.informers();
        informers.add(&host.put(host.lane("one", controller(&[]))));
        let codec = codec(&informers, &primary_kind());
        let annotated = |name: &str, version| text(name, version, &json!({"metadata": {"annotations": {"on": ""}}}));
        let source = host.list_with(&codec, &[annotated("cached", 1), annotated("changes", 1)]);
        let on_its_way = read(&codec, &annotated("on-its-way", 2));
        let changes = read(&codec, &annotated("changes", 3));

        let mut lane = host.lane("other", controller(&[]));
        lane.filter.annotation = Some("on".to_owned());
        let lane = Arc::new(lane);
        informers.add(&lane);
        let state = &host.context.state;
        state.observed(&source, on_its_way);
        state.observed(&source, changes);
        host.context.register_lane(&lane);
        state.observed(&source, read(&codec, &annotated("later", 4)));

        let names = ["cached", "changes", "later", "on-its-way"].map(name);
        let objects = names.map(|name| state.get(&primary_kind(), &name).unwrap());
        let _guard = NoDecoding::begin();
        assert!(objects.iter().all(|object| object.has_annotation("on")));
        assert_eq!(state.count(&lane).0, 4);
    }
}
