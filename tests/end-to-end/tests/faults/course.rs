//! Story under every fault: objects are created, changed, edited by hand and deleted, and with them the objects that
//! three plugins own, share and finalize.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use pilothouse_end_to_end::stage::{Stage, app_service, unhurried};
use pilothouse_simulator::{Fault, Rule};
use pilothouse_testkit::cluster::Mark;
use pilothouse_testkit::requests::TEST_ACCOUNT;
use serde_json::{Value, json};

use crate::outcome::{Births, Outcome};

/// The longest back-off of an object, and a little more.
const LONGEST_BACKOFF: Duration = Duration::from_mins(6);

/// Time limit of a wait, by the clock of the test: back-off reaches five minutes, and a silent watch is abandoned after
/// three. Where every second page of a list expires, a list of many pages takes many attempts, 30 seconds apart: within
/// one hour about one run of fifty did not finish.
const WITHIN: Duration = Duration::from_hours(6);

/// Interval between two polls, by the same clock: each takes its time, and back-off means many.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Longer than any story.
const NEVER: Duration = Duration::from_hours(10_000);

const PLUGINS: [&str; 3] = ["app-service", "sharer", "wisher"];

/// The ConfigMap of somebody else that has entries of several.
const SHARED: &str = "target";

/// A cluster, a host, and how far the story is.
pub struct Course {
    stage: Stage,
    births: Births,
    begun: Mark,
    death: Arc<Death>,
    /// Set if the host has been started again after its death.
    is_anew: bool,
}

/// Death of the host: before the write of this number.
#[derive(Default)]
struct Death {
    at: Option<usize>,
    writes: AtomicUsize,
    has_come: AtomicBool,
}

impl Death {
    /// Returns `true` if a write is made by a host that is dead.
    fn stops_write(&self) -> bool {
        let number = self.writes.fetch_add(1, Ordering::SeqCst);
        let stops = self.at.is_some_and(|at| number >= at);
        self.has_come.fetch_or(stops, Ordering::SeqCst);
        stops
    }
}

/// Plays the story under these faults of the host until it is over.
pub async fn play(rules: Vec<Rule>) -> Outcome {
    Course::begin(rules, None).await.play().await
}

/// Plays the story with a host that is killed before its write of this number, and started again; none where it has not
/// made so many writes.
pub async fn play_killed(before: usize) -> Option<Outcome> {
    let course = Course::begin(Vec::new(), Some(before)).await;
    let death = course.death.clone();
    let outcome = course.play().await;
    death.has_come.load(Ordering::SeqCst).then_some(outcome)
}

impl Course {
    async fn begin(rules: Vec<Rule>, at: Option<usize>) -> Self {
        let stage = Stage::empty(unhurried());
        let faults = stage.simulator().faults();
        for rule in rules {
            faults.add(rule.when(|asked| asked.user_agent != TEST_ACCOUNT));
        }
        let death = Arc::new(Death { at, ..Death::default() });
        let asked_of = death.clone();
        let stopped = Rule::new(Fault::Delay(NEVER)).writes();
        faults.add(stopped.when(move |asked| asked.user_agent != TEST_ACCOUNT && asked_of.stops_write()));
        let births = Births::follow(&stage).await;
        let mut course = Self {
            begun: stage.mark(),
            stage,
            births,
            death,
            is_anew: false,
        };
        course.start().await;
        course
    }

    async fn start(&mut self) {
        let specs = PLUGINS.map(|name| self.stage.host.spec(name).unwrap());
        self.stage.start(specs.into()).await;
    }

    async fn play(mut self) -> Outcome {
        self.is_made().await;
        self.is_changed().await;
        self.goes().await;
        self.stage.simulator().faults().clear();
        // Whoever failed last, while there were faults, is tried again after a back-off of up to five minutes.
        tokio::time::sleep(LONGEST_BACKOFF).await;
        self.until("it is calm", |stage| stage.host.handle().unwrap().is_idle())
            .await;
        let mark = self.stage.mark();
        for _ in 0..2 {
            self.stage.host.handle().unwrap().resync();
            self.stage.host.settled().await.unwrap();
        }
        self.stage.minute().await;
        let writes_when_calm = self.stage.host_writes_since(mark);
        let outcome = Outcome {
            writes: crate::outcome::writes(&self.stage, self.begun),
            objects: crate::outcome::objects(&self.stage),
            births: self.births.end(),
            writes_when_calm,
            log: self.stage.lines(&[]).join("\n"),
        };
        self.stage.stop().await;
        outcome
    }

    async fn is_made(&mut self) {
        let target = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": SHARED, "namespace": "default"},
            "data": {"mine": "by hand"},
        });
        self.stage.create(&target).await;
        self.until("the definitions are served", |stage| {
            let all = stage.all("CustomResourceDefinition");
            let served = all.iter().filter(|definition| {
                let conditions = definition["status"]["conditions"].as_array();
                let mut conditions = conditions.into_iter().flatten();
                conditions.any(|it| it["type"] == "Established" && it["status"] == "True")
            });
            served.count() == 4
        })
        .await;
        self.stage.create(&app_service("web")).await;
        self.stage.create(&share("one", "a")).await;
        self.stage.create(&share("two", "b")).await;
        let promised = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "promised"},
            "data": {"text": "as promised"}});
        let promise = json!({
            "apiVersion": "wishes.test.dev/v1", "kind": "Promise",
            "metadata": {"name": "promise", "namespace": "default"}, "spec": {"owns": [{"object": promised}]},
        });
        self.stage.create(&promise).await;
        self.until("all is made", |stage| {
            all_are_well(stage)
                && stage.find("Service", "web").is_some()
                && shared(stage, SHARED) == json!({"mine": "by hand", "a": "one", "b": "two"})
                && shared(stage, "board") == json!({"own": "a", "a": "one", "b": "two"})
                && stage.find("ConfigMap", "promised").is_some()
        })
        .await;
    }

    /// Changes one child, prunes one, edits one by hand, and shares another field.
    async fn is_changed(&mut self) {
        self.patch("AppService", "web", &json!({"spec": {"size": 2, "ports": null}}))
            .await;
        self.patch("Share", "one", &json!({"spec": share("one", "c")["spec"]}))
            .await;
        self.patch("ConfigMap", "promised", &json!({"data": {"text": "by hand"}}))
            .await;
        self.until("all is changed", |stage| {
            let promised = stage.find("ConfigMap", "promised");
            all_are_well(stage)
                && stage
                    .find("Deployment", "web")
                    .is_some_and(|it| it["spec"]["replicas"] == 2)
                && stage.find("Service", "web").is_none()
                && shared(stage, SHARED) == json!({"mine": "by hand", "c": "one", "b": "two"})
                && shared(stage, "board") == json!({"own": "c", "c": "one", "b": "two"})
                && promised.is_some_and(|it| it["data"]["text"] == "as promised")
        })
        .await;
    }

    async fn goes(&mut self) {
        for (kind, name) in [("Promise", "promise"), ("Share", "two")] {
            let api = self.api(kind).await;
            let _ = api.delete(name, &DeleteParams::default()).await.unwrap();
        }
        self.until("what is deleted goes with all that it had", |stage| {
            stage.find("Promise", "promise").is_none()
                && stage.find("ConfigMap", "promised").is_none()
                && shared(stage, SHARED) == json!({"mine": "by hand", "c": "one"})
                && shared(stage, "board") == json!({"own": "c", "c": "one"})
                && all_are_well(stage)
        })
        .await;
    }

    async fn api(&self, kind: &str) -> Api<DynamicObject> {
        let (group, version) = match kind {
            "AppService" => ("kosmos.io", "v1"),
            "Share" => ("sharing.test.dev", "v1"),
            "Promise" => ("wishes.test.dev", "v1"),
            _ => ("", "v1"),
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.stage.cluster.client().await.unwrap(), "default", &resource)
    }

    async fn patch(&self, kind: &str, name: &str, patch: &Value) {
        let api = self.api(kind).await;
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// Waits until a condition holds; a host that is killed meanwhile is started again.
    async fn until(&mut self, what: &str, holds: impl Fn(&Stage) -> bool) {
        let begun = tokio::time::Instant::now();
        while !holds(&self.stage) {
            if !self.is_anew && self.death.has_come.load(Ordering::SeqCst) {
                self.is_anew = true;
                self.stage.host.kill().await;
                self.stage.simulator().faults().clear();
                self.start().await;
            }
            assert!(
                begun.elapsed() < WITHIN,
                "it does not come that {what}: {:?} {:#?}\n{}",
                self.stage.host.handle().unwrap().depths(),
                crate::outcome::objects(&self.stage),
                self.stage.lines(&[]).join("\n")
            );
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}

/// A Share with an entry in what is somebody else's, and in the board, which the first one owns.
fn share(name: &str, key: &str) -> Value {
    let config_map = |map: &str, data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": map}, "data": data});
    let contributes = [SHARED, "board"].map(|map| config_map(map, json!({key: name})));
    let board = (name == "one").then(|| config_map("board", json!({"own": key})));
    json!({
        "apiVersion": "sharing.test.dev/v1", "kind": "Share", "metadata": {"name": name, "namespace": "default"},
        "spec": {"contributes": contributes, "owns": board.as_slice()},
    })
}

fn shared(stage: &Stage, map: &str) -> Value {
    stage
        .find("ConfigMap", map)
        .map_or(Value::Null, |map| map["data"].clone())
}

/// Returns `true` if every primary's status says so of its present generation.
fn all_are_well(stage: &Stage) -> bool {
    let primaries = ["AppService", "Share", "Promise"].map(|kind| stage.all(kind));
    primaries.iter().flatten().all(|primary| {
        let conditions = primary["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|it| {
            it["type"] == "Reconciled"
                && it["status"] == "True"
                && it["observedGeneration"] == primary["metadata"]["generation"]
        })
    })
}
