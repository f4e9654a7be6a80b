//! Lists and watches against a simulated cluster, with what goes wrong on the way: what the store has in the end, which
//! changes were told, and what was asked for.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use pilothouse_cluster::cache::codec::ObjectCodec;
use pilothouse_cluster::cache::store::{IndexValues, ObjectChange, Store, WatchSource};
use pilothouse_cluster::discovery::Discovery;
use pilothouse_cluster::error::WatchError;
use pilothouse_cluster::object::CachedObject;
use pilothouse_cluster::watch::reflector::{Detail, Reflector, Sink};
use pilothouse_core::kubernetes::path::{FieldPath, Projection};
use pilothouse_core::plugin::manifest::Touch;
use pilothouse_core::reads::query::CheckedQuery;
use pilothouse_core::reads::reach::Reach;
use pilothouse_core::replicas::shards::HashRanges;
use pilothouse_core::{Kind, Name};
use pilothouse_simulator::{Controllers, Fault, Options, Rule, Simulator};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Time limit of a wait, by the test's clock.
const WITHIN: Duration = Duration::from_mins(20);

/// Store that records its reports: `+`, `~` and `-` with the object's name.
#[derive(Default)]
struct Cache {
    store: Mutex<Store>,
    told: Mutex<Vec<String>>,
    trouble: Mutex<Vec<String>>,
    /// An object that makes the sink panic.
    panics_at: Mutex<Option<String>>,
}

impl Cache {
    fn note(&self, changes: &[ObjectChange]) {
        let told = changes.iter().map(|change| {
            let mark = match (&change.old, &change.new) {
                (None, _) => '+',
                (Some(_), None) => '-',
                (Some(_), Some(_)) => '~',
            };
            format!("{mark}{}", change.name().name)
        });
        self.told.lock().extend(told);
    }
}

impl Sink for Cache {
    fn list_begins(&self, source: &WatchSource) {
        self.store.lock().begin_list(source);
    }

    fn observed(&self, source: &WatchSource, object: CachedObject) {
        let panics_at = self.panics_at.lock().clone();
        assert_ne!(panics_at.as_deref(), Some(&*object.name.name), "as it was told to");
        let changes = self.store.lock().upsert(source, object, &IndexValues::default());
        self.note(&changes);
    }

    fn deleted(&self, source: &WatchSource, name: &Name) {
        let change = self.store.lock().remove(source, name);
        self.note(change.as_slice());
    }

    fn list_ends(&self, source: &WatchSource, _: &str) {
        let changes = self.store.lock().end_list(source);
        self.note(&changes);
    }

    fn works(&self, _: &Arc<Kind>) {}

    fn trouble(&self, _: &Arc<Kind>, trouble: WatchError) {
        self.trouble.lock().push(trouble.message);
    }

    fn unreadable(&self, source: &WatchSource, name: Option<&Name>, problem: &str) {
        if let Some(name) = name {
            self.store.lock().keep(source, name);
        }
        self.told.lock().push(format!("unreadable: {problem}"));
    }

    fn panicked(&self, _: &Arc<Kind>, panic: &str) {
        self.trouble.lock().push(format!("panicked: {panic}"));
    }
}

/// A cluster, and a watch on one of its kinds.
struct Bench {
    simulator: Simulator,
    cache: Arc<Cache>,
    kind: Arc<Kind>,
    watches: Vec<JoinHandle<()>>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.watches.iter().for_each(JoinHandle::abort);
    }
}

fn config_maps() -> Arc<Kind> {
    Arc::new(Kind::new("", "v1", "ConfigMap"))
}

impl Bench {
    fn new() -> Self {
        // Namespaces get no ConfigMaps of their own.
        let controllers = Controllers {
            namespace: false,
            ..Controllers::default()
        };
        Self {
            simulator: Simulator::new(Options {
                controllers,
                ..Options::default()
            }),
            cache: Arc::default(),
            kind: config_maps(),
            watches: Vec::new(),
        }
    }

    fn client(&self) -> Client {
        Client::new(self.simulator.service(), "default")
    }

    /// Watches the kind and waits until it is listed.
    async fn watch(&mut self, paths: &[&str], reach: Reach) {
        self.watch_with(self.client(), paths, reach).await;
    }

    /// Watches by another client.
    async fn watch_with(&mut self, client: Client, paths: &[&str], reach: Reach) {
        let paths: Vec<_> = paths.iter().map(|path| FieldPath::parse(path).unwrap()).collect();
        let projection = Projection::new(&paths);
        let detail = if projection.is_metadata_only() {
            Detail::Metadata
        } else {
            Detail::Whole
        };
        let discovery = Arc::new(Discovery::new(self.client()));
        let served = discovery.find(&self.kind, Instant::now()).await.unwrap().unwrap();
        let codec = Arc::new(ObjectCodec::new(self.kind.clone(), projection));
        let sources = self
            .cache
            .store
            .lock()
            .open(codec.clone(), reach, served.facts.namespaced);
        for source in sources {
            let watch = Reflector {
                client: client.clone(),
                discovery: discovery.clone(),
                served: served.clone(),
                source,
                detail,
                codec: codec.clone(),
                sink: self.cache.clone(),
                metrics: pilothouse_metrics::WatchMetrics::default(),
            };
            self.watches.push(tokio::spawn(watch.follow()));
        }
        self.until(|cache| cache.store.lock().is_synced(&self.kind)).await;
    }

    async fn watching() -> Self {
        let mut bench = Self::new();
        bench.config_map("default", "a", "1").await;
        bench.config_map("default", "b", "1").await;
        bench.watch(&[".data"], Reach::all()).await;
        assert_eq!(bench.told(), ["+a", "+b"]);
        bench
    }

    async fn until(&self, holds: impl Fn(&Cache) -> bool) {
        let wait = async {
            while !holds(&self.cache) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let in_time = tokio::time::timeout(WITHIN, wait).await;
        assert!(
            in_time.is_ok(),
            "told {:?}; trouble {:?}",
            self.cache.told.lock(),
            self.cache.trouble.lock()
        );
    }

    /// Waits for the expected count of changes, and then for unexpected ones.
    async fn tells(&self, expected: &[&str]) {
        self.until(|cache| cache.told.lock().len() >= expected.len()).await;
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(self.told(), expected, "trouble: {:?}", self.cache.trouble.lock());
    }

    /// Returns the reports since the last call.
    fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.cache.told.lock())
    }

    fn names(&self) -> Vec<String> {
        let store = self.cache.store.lock();
        store
            .iter(&self.kind, None)
            .map(|object| object.name.to_string())
            .collect()
    }

    async fn send(&self, method: &str, path: &str, body: Value) {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(Body::from(body.to_string().into_bytes()))
            .unwrap();
        let response = self.client().send(request).await.unwrap();
        assert!(response.status().is_success(), "{method} {path}: {}", response.status());
    }

    async fn config_map(&self, namespace: &str, name: &str, value: &str) {
        let object = json!({"metadata": {"name": name, "labels": {"tier": value}}, "data": {"value": value}});
        self.send("POST", &format!("/api/v1/namespaces/{namespace}/configmaps"), object)
            .await;
    }

    async fn change(&self, name: &str, value: &str) {
        let object = json!({"metadata": {"name": name, "labels": {"tier": value}}, "data": {"value": value}});
        self.send("PUT", &format!("/api/v1/namespaces/default/configmaps/{name}"), object)
            .await;
    }

    async fn patch(&self, name: &str, patch: Value) {
        let request = http::Request::builder()
            .method("PATCH")
            .uri(format!("/api/v1/namespaces/default/configmaps/{name}"))
            .header("content-type", "application/merge-patch+json")
            .body(Body::from(patch.to_string().into_bytes()))
            .unwrap();
        assert!(self.client().send(request).await.unwrap().status().is_success());
    }

    async fn delete(&self, name: &str) {
        self.send(
            "DELETE",
            &format!("/api/v1/namespaces/default/configmaps/{name}"),
            json!({}),
        )
        .await;
    }

    /// Returns the requests for the watched resource: verbs with the namespace.
    fn asked(&self) -> Vec<String> {
        let log = self.simulator.requests().all();
        log.into_iter()
            .filter(|record| record.verb == "list" || record.verb == "watch")
            .map(|record| format!("{} {}", record.verb, record.namespace.unwrap_or_default()))
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn what_happens_is_told_once_over_many_renewals_of_the_watch() {
    let bench = Bench::watching().await;
    bench.change("a", "2").await;
    bench.tells(&["~a"]).await;
    bench.delete("b").await;
    bench.config_map("default", "b", "3").await;
    bench.tells(&["-b", "+b"]).await;
    let asked = bench.asked();
    assert_eq!(
        asked.iter().filter(|asked| asked.starts_with("list")).count(),
        1,
        "{asked:?}"
    );
    assert!(bench.cache.trouble.lock().is_empty());
}

/// Uses a server that cannot divide lists and sends all of it. Objects of another replica are not decoded, so their
/// errors are not reported here either.
#[tokio::test(start_paused = true)]
async fn objects_of_another_shard_are_dropped_before_decoding() {
    let object = |name: &str, namespace: &str, managed_fields: Value| {
        json!({
            "metadata": {
                "name": name, "namespace": namespace, "uid": name, "resourceVersion": "2", "managedFields": managed_fields,
            },
        })
    };
    let page = json!({
        "kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"},
        "items": [object("a", "mine", json!([])), object("b", "theirs", json!(5)), object("c", "mine", json!(5))],
    });
    let server = tower::service_fn(move |request: http::Request<Body>| {
        let page = page.to_string();
        async move {
            if request.uri().query().unwrap_or_default().contains("watch=true") {
                std::future::pending::<()>().await;
            }
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(page.into_bytes())))
        }
    });
    let mut bench = Bench::new();
    let reach = Reach::all().within_hashes(HashRanges::of_namespace("mine"));
    bench
        .watch_with(Client::new(server, "default"), &[".data"], reach)
        .await;
    let told = bench.told();
    let unreadable = told.iter().filter(|told| told.starts_with("unreadable")).count();
    assert!(told.contains(&"+a".to_owned()), "{told:?}");
    assert_eq!((unreadable, told.len()), (1, 2), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn after_410_the_list_tells_what_was_missed_and_nothing_else() {
    let bench = Bench::watching().await;
    bench
        .simulator
        .faults()
        .add(Rule::new(Fault::Refuse).verbs(&["watch"]).times(3));
    bench.simulator.cut_watches("", "configmaps");
    bench.delete("a").await;
    bench.config_map("default", "c", "1").await;
    // Made and deleted, and changed back and forth: nobody has to know.
    bench.config_map("default", "brief", "1").await;
    bench.delete("brief").await;
    bench.simulator.compact();
    bench.tells(&["+c", "-a"]).await;
    assert_eq!(bench.names(), ["default/b", "default/c"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_expires_between_its_pages_is_made_anew() {
    let mut bench = Bench::new();
    for index in 0..1200 {
        bench.config_map("default", &format!("c{index:04}"), "1").await;
    }
    let expired = Fault::Status {
        code: 410,
        retry_after: None,
    };
    let rule = Rule::new(expired)
        .when(|asked| asked.verb == "list" && asked.continued)
        .skip(1)
        .times(2);
    bench.simulator.faults().add(rule);
    bench.watch(&[], Reach::all()).await;
    assert_eq!(bench.told().len(), 1200, "each once");
    assert_eq!(bench.names().len(), 1200);
    assert_eq!(bench.simulator.faults().injected(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_cut_after_each_event_misses_nothing() {
    let bench = Bench::watching().await;
    bench.simulator.faults().add(Rule::new(Fault::CutWatch { after: 1 }));
    bench.simulator.cut_watches("", "configmaps");
    for value in ["2", "3", "4"] {
        bench.change("a", value).await;
    }
    bench.delete("b").await;
    bench.tells(&["~a", "~a", "~a", "-b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_says_nothing_any_more_is_noticed_and_made_anew() {
    let bench = Bench::watching().await;
    bench
        .simulator
        .faults()
        .add(Rule::new(Fault::SilentWatch).verbs(&["watch"]).times(1));
    bench.simulator.cut_watches("", "configmaps");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let begun = Instant::now();
    bench.change("a", "2").await;
    bench.until(|cache| !cache.told.lock().is_empty()).await;
    assert!(begun.elapsed() < Duration::from_secs(200), "{:?}", begun.elapsed());
    assert!(bench.cache.trouble.lock()[0].contains("no answer within 150 s"));
    bench.tells(&["~a"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_with_bookmarks_is_left_alone() {
    let bench = Bench::watching().await;
    tokio::time::sleep(Duration::from_secs(280)).await;
    assert_eq!(bench.asked(), ["list ", "watch "]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_lags_behind_takes_nothing_back() {
    let bench = Bench::watching().await;
    bench.config_map("default", "new", "1").await;
    bench.change("a", "2").await;
    bench.tells(&["+new", "~a"]).await;
    bench
        .simulator
        .faults()
        .add(Rule::new(Fault::Stale { changes: 2 }).verbs(&["list"]).times(3));
    bench.simulator.faults().add(Rule::new(Fault::GoneOnWatch).times(1));
    bench.simulator.cut_watches("", "configmaps");
    bench.change("b", "2").await;
    bench.tells(&["~b"]).await;
    assert!(
        bench
            .cache
            .trouble
            .lock()
            .iter()
            .any(|trouble| trouble.contains("lags behind"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_went_back_for_good_is_followed_in_the_end() {
    let bench = Bench::watching().await;
    bench.config_map("default", "new", "1").await;
    bench.tells(&["+new"]).await;
    bench
        .simulator
        .faults()
        .add(Rule::new(Fault::Stale { changes: 1 }).verbs(&["list"]));
    bench.simulator.faults().add(Rule::new(Fault::GoneOnWatch).times(1));
    bench.simulator.cut_watches("", "configmaps");
    bench
        .until(|cache| cache.told.lock().contains(&"-new".to_owned()))
        .await;
}

#[tokio::test(start_paused = true)]
async fn labels_and_namespaces_are_asked_of_the_server() {
    let mut bench = Bench::new();
    for namespace in ["one", "two", "three"] {
        bench
            .send("POST", "/api/v1/namespaces", json!({"metadata": {"name": namespace}}))
            .await;
        bench.config_map(namespace, "red", "red").await;
        bench.config_map(namespace, "blue", "blue").await;
    }
    let touch: Touch = serde_json::from_value(json!({
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "access": ["read"],
        "labelSelector": "tier=red", "namespaces": ["one", "two"],
    }))
    .unwrap();
    bench.watch(&[], Reach::of(&touch)).await;
    assert_eq!(bench.names(), ["one/red", "two/red"]);
    let mut asked = bench.asked();
    asked.sort();
    asked.dedup();
    assert_eq!(asked, ["list one", "list two", "watch one", "watch two"]);
}

#[tokio::test(start_paused = true)]
async fn what_leaves_the_selection_goes_and_comes_back_with_it() {
    let mut bench = Bench::new();
    bench.config_map("default", "a", "red").await;
    let touch: Touch = serde_json::from_value(json!({
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "access": ["read"], "labelSelector": "tier=red",
    }))
    .unwrap();
    bench.watch(&[], Reach::of(&touch)).await;
    bench.told();
    bench.change("a", "blue").await;
    bench.change("a", "green").await;
    bench.tells(&["-a"]).await;
    bench.change("a", "red").await;
    bench.tells(&["+a"]).await;
}

#[tokio::test(start_paused = true)]
async fn of_a_kind_nobody_looks_into_only_the_metadata_comes() {
    let mut bench = Bench::new();
    bench.config_map("default", "a", "red").await;
    bench.watch(&[], Reach::all()).await;
    assert_eq!(bench.told(), ["+a"]);
    let text = {
        let store = bench.cache.store.lock();
        let object = store.get(&bench.kind, &Name::new(Some("default"), "a")).unwrap();
        object.value()
    };
    assert_eq!(text["kind"], "ConfigMap", "not PartialObjectMetadata");
    assert_eq!(text["metadata"]["labels"]["tier"], "red");
    assert!(text.get("data").is_none());
    bench.change("a", "blue").await;
    bench.tells(&["~a"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_its_kind_is_not_served_any_more() {
    let mut bench = Bench::new();
    let definition = json!({
        "metadata": {"name": "things.test.dev"},
        "spec": {
            "group": "test.dev", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                          "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    bench.send("POST", definitions, definition).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.kind = Arc::new(Kind::new("test.dev", "v1", "Thing"));
    bench
        .send(
            "POST",
            "/apis/test.dev/v1/namespaces/default/things",
            json!({"apiVersion": "test.dev/v1", "kind": "Thing", "metadata": {"name": "x"}}),
        )
        .await;
    bench.watch(&["."], Reach::all()).await;
    assert_eq!(bench.told(), ["+x"]);
    bench
        .send("DELETE", &format!("{definitions}/things.test.dev"), json!({}))
        .await;
    let watch = bench.watches.remove(0);
    tokio::time::timeout(WITHIN, watch).await.expect("it ends").unwrap();
    assert_eq!(bench.told(), ["-x"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_cannot_be_read_is_told_and_the_next_ones_come() {
    let mut bench = Bench::new();
    let client = tower::service_fn(async |request: http::Request<Body>| {
        let metadata = |name| json!({"name": name, "uid": name, "resourceVersion": "2"});
        let answer = if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
            let odd = json!({"type": "MODIFIED", "object": {"metadata": {"name": "odd", "managedFields": "none"}}});
            let nameless = json!({"type": "MODIFIED", "object": {"metadata": {}}});
            let good = json!({"type": "ADDED", "object": {"metadata": metadata("good")}});
            format!("{odd}\n{nameless}\n{good}\n")
        } else {
            json!({"metadata": {"resourceVersion": "1"}, "items": []}).to_string()
        };
        Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(answer.into_bytes())))
    });
    bench
        .watch_with(Client::new(client, "default"), &[], Reach::all())
        .await;
    bench
        .until(|cache| cache.told.lock().iter().any(|told| told == "+good"))
        .await;
    let told = bench.told();
    assert!(told[0].contains("v1 ConfigMap odd cannot be read"), "{told:?}");
    assert!(told[1].contains("missing field `name`"), "{told:?}");
}

/// Count of lists that a client with growing back-off may make in an hour.
const LISTS_IN_AN_HOUR: usize = 160;

fn lists(bench: &Bench) -> usize {
    bench.asked().iter().filter(|asked| asked.starts_with("list")).count()
}

#[tokio::test(start_paused = true)]
async fn host_resources_are_relisted_when_a_silent_watch_is_doubted() {
    let bench = Bench::watching().await;
    bench.simulator.faults().add(Rule::new(Fault::GoneOnWatch));
    bench.simulator.cut_watches("", "configmaps");
    tokio::time::sleep(Duration::from_hours(1)).await;
    let lists = lists(&bench);
    assert!((60..LISTS_IN_AN_HOUR).contains(&lists), "{lists} lists in an hour");
}

#[tokio::test(start_paused = true)]
async fn a_panicking_sink_is_reported_and_relisted_with_backoff() {
    let bench = Bench::watching().await;
    *bench.cache.panics_at.lock() = Some("c".to_owned());
    bench.config_map("default", "c", "1").await;
    bench.config_map("default", "d", "1").await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    let trouble = bench.cache.trouble.lock().clone();
    assert!(
        trouble.iter().all(|it| it.contains("as it was told to")),
        "{:?}",
        trouble.first()
    );
    let lists = lists(&bench);
    assert!((60..LISTS_IN_AN_HOUR).contains(&lists), "{lists} lists in an hour");
    *bench.cache.panics_at.lock() = None;
    bench.tells(&["+c", "+d"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_of_any_depth_is_cached_and_so_are_its_neighbours() {
    const LEVELS: usize = 9_999;
    let mut bench = Bench::new();
    let deep = format!("{}1{}", r#"{"a":"#.repeat(LEVELS), "}".repeat(LEVELS));
    let object = |name: &str, version: u32, data: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"default","uid":"{name}","resourceVersion":"{version}",
            "labels":{{"tier":"red"}},"managedFields":[{{"manager":"pilothouse/p","operation":"Apply","fieldsV1":{data}}}]}},
            "data":{data}}}"#
        )
        .replace('\n', "")
    };
    let list = format!(
        r#"{{"metadata":{{"resourceVersion":"3"}},"items":[{},{}]}}"#,
        object("deep", 2, &deep),
        object("flat", 3, r#"{"a":{}}"#)
    );
    let event = format!(r#"{{"type":"ADDED","object":{}}}"#, object("later", 4, &deep));
    let client = tower::service_fn(move |request: http::Request<Body>| {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let answer = if is_watch { format!("{event}\n") } else { list.clone() };
        async move { Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(answer.into_bytes()))) }
    });
    bench
        .watch_with(Client::new(client, "default"), &["."], Reach::all())
        .await;
    bench.until(|cache| cache.told.lock().len() == 3).await;
    assert_eq!(bench.told(), ["+deep", "+flat", "+later"]);
    let mut store = bench.cache.store.lock();
    let too_deep = ["deep", "flat", "later"].map(|name| {
        let object = store.get(&bench.kind, &Name::new(Some("default"), name)).unwrap();
        // Nobody who reads it panics, and what is shallow of it is there.
        assert_eq!(object.value()["metadata"]["labels"]["tier"], "red");
        object.is_too_deep()
    });
    assert_eq!(too_deep, [true, false, true]);
    let query = CheckedQuery {
        fields: vec![(FieldPath::parse(".data.a.a.a.b").unwrap(), "x".to_owned())],
        ..CheckedQuery::default()
    };
    let draft = store.draft_index(&bench.kind, &query).unwrap();
    store.add_index(&bench.kind, draft.build());
    assert_eq!(store.candidates(&bench.kind, &query).found(&query).count(), 0);
}

/// The most memory, in bytes, that one answer to a list took, and how many there were.
#[derive(Default)]
struct Answers(Mutex<Vec<usize>>);

#[tokio::test(start_paused = true)]
async fn page_size_adapts_to_the_size_of_objects() {
    const LARGE: usize = 80;
    const SMALL: usize = 1200;
    const MIB: usize = 1024 * 1024;
    let mut bench = Bench::new();
    for index in 0..LARGE {
        bench
            .config_map("default", &format!("large-{index:02}"), &"x".repeat(60))
            .await;
        let patch = json!({"data": {"large": "x".repeat(MIB - 64)}});
        bench.patch(&format!("large-{index:02}"), patch).await;
    }
    for index in 0..SMALL {
        bench.config_map("default", &format!("small-{index:04}"), "1").await;
    }
    let answers = Arc::new(Answers::default());
    let (client, noted) = (bench.client(), answers.clone());
    let measured = tower::service_fn(move |request: http::Request<Body>| {
        let (client, noted) = (client.clone(), noted.clone());
        async move {
            let is_list = request.uri().query().is_some_and(|query| query.contains("limit="));
            let response = client.send(request).await.map_err(|error| error.to_string())?;
            if !is_list {
                return Ok(response);
            }
            let (parts, body) = response.into_parts();
            let bytes = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
            noted.0.lock().push(bytes.len());
            Ok::<_, String>(http::Response::from_parts(parts, Body::from(bytes.to_vec())))
        }
    });
    bench
        .watch_with(Client::new(measured, "default"), &[], Reach::all())
        .await;
    assert_eq!(bench.names().len(), LARGE + SMALL);
    let answers = answers.0.lock();
    // The first shows how large they are; it is broken off while it comes.
    let (first, rest) = answers.split_first().unwrap();
    assert!(*first < 64 * MIB, "{first}");
    assert!(rest.iter().all(|bytes| *bytes <= 16 * MIB), "{rest:?}");
    assert!(rest.len() < LARGE / 4 + SMALL / 500 + 12, "{} pages", rest.len());
}
