//! Makes lanes, objects and a shared state for unit tests from plain values. No request is made and no guest is called.

use std::sync::Arc;

use parking_lot::Mutex;
use pilothouse_cluster::Client;
use pilothouse_cluster::cache::codec::ObjectCodec;
use pilothouse_cluster::cache::store::WatchSource;
use pilothouse_cluster::connect::{ClusterTarget, connect};
use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::object::CachedObject;
use pilothouse_cluster::write::FieldManagerClient;
use pilothouse_cluster::write::events::EventRecorder;
use pilothouse_core::answer::KindFacts;
use pilothouse_core::kubernetes::path::Projection;
use pilothouse_core::plugin::grants::Grants;
use pilothouse_core::plugin::manifest::{Controller, Filter};
use pilothouse_core::reads::reach::Reach;
use pilothouse_core::rights::AdmissionExports;
use pilothouse_core::{Kind, Limits, Name};
use pilothouse_metrics::Metrics;
use pilothouse_sandbox::PluginComponent;
use serde_json::{Value, json};

use crate::context::HostContext;
use crate::election::leadership::Leadership;
use crate::lanes::access::LaneAccess;
use crate::lanes::lane::{Lane, RunMode, calls_of_a_plugin};
use crate::lanes::primary::{LaneId, PrimaryRef};
use crate::lanes::served_kinds::ServedKinds;
use crate::process::blocking::Blocking;
use crate::process::clock::WallClock;
use crate::queue::{Capacity, Job, JobResult, ReconcileResult};
use crate::telemetry::traces::Traces;
use crate::watches::informers::Informers;

/// Client of a cluster that is never reached.
async fn client() -> Client {
    let folder = tempfile::tempdir().expect("there is room for a kubeconfig");
    let path = folder.path().join("kubeconfig");
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "users": [{"name": "c", "user": {}}],
    });
    std::fs::write(&path, kubeconfig.to_string()).expect("there is room for a kubeconfig");
    let target = ClusterTarget {
        kubeconfig: Some(path),
        context: None,
    };
    connect(&target, "test").await.expect("no request is needed for it")
}

/// A host whose test plays the cluster.
pub struct TestHost {
    pub context: Arc<HostContext>,
    client: Client,
    /// Codecs of the listed kinds.
    codecs: Mutex<Vec<Arc<ObjectCodec>>>,
}

impl TestHost {
    pub async fn new() -> Self {
        let client = client().await;
        let capacity = Capacity {
            workers: 100,
            per_plugin: 100,
        };
        let clock = WallClock::starting_at(1_767_323_045_000);
        let context = HostContext::new(
            client.clone(),
            clock.clone(),
            Blocking::Threads,
            capacity,
            Leadership::without_election(),
            Metrics::default(),
            Traces::new(None, &clock),
        );
        Self {
            context: Arc::new(context),
            client,
            codecs: Mutex::default(),
        }
    }

    /// Informers of this host. Their tasks make no request before the test awaits something.
    pub fn informers(&self) -> Informers {
        Informers::new(self.client.clone(), self.context.clone())
    }

    /// A lane of a plugin, with a controller as the manifest has it.
    pub fn lane(&self, plugin: &str, controller: Value) -> Lane {
        let id = self.context.state.reserve_lane();
        lane(&self.client, &self.context.kinds.served(), id, plugin, controller)
    }

    /// Registers a lane. The cache learns its facts, as when its informers are added.
    pub fn put(&self, lane: Lane) -> Arc<Lane> {
        let lane = Arc::new(lane);
        for codec in self.codecs.lock().iter() {
            self.context.state.learn_facts(&lane, codec);
        }
        self.context.register_lane(&lane);
        lane
    }

    /// Serves a kind and lists these objects, whole.
    pub fn list(&self, kind: &Kind, objects: &[Value]) -> WatchSource {
        let codec = Arc::new(ObjectCodec::new(Arc::new(kind.clone()), Projection::whole()));
        for lane in self.context.state.lanes().of_kind(kind) {
            codec.ask(&lane.fact_keys(kind));
        }
        self.codecs.lock().push(codec.clone());
        self.list_with(&codec, objects)
    }

    /// Serves a kind and lists these objects as a codec keeps them.
    pub fn list_with(&self, codec: &Arc<ObjectCodec>, objects: &[Value]) -> WatchSource {
        self.serve(codec.kind());
        let mut sources = self.context.state.watches_begin(codec, &Reach::all(), true);
        let source = sources.remove(0);
        self.context.state.list_begins(&source);
        for object in objects {
            self.context.state.observed(&source, read(codec, object));
        }
        self.context.state.list_ends(&source, "1000");
        self.context.settle_lanes_of(&source.kind);
        source
    }

    pub fn relist(&self, source: &WatchSource, objects: &[Value]) {
        self.context.state.list_begins(source);
        for object in objects {
            self.see(source, object);
        }
        self.context.state.list_ends(source, "1000");
        self.context.settle_lanes_of(&source.kind);
    }

    /// Serves a kind.
    pub fn serve(&self, kind: &Kind) {
        self.context.kind_is_served(&served(kind));
    }

    /// Shows an object by a watch.
    pub fn see(&self, source: &WatchSource, text: &Value) {
        self.context.state.observed(source, object(&source.kind, text));
    }

    /// Runs all queued objects without effect. Returns them as `lane number/name`.
    pub fn run_all(&self) -> Vec<String> {
        let mut ran = Vec::new();
        while let Some((job, lane)) = self.context.state.take_job() {
            ran.push(format!("{}/{}", job.lane.0, job.name.name));
            self.end(&lane, &job);
        }
        ran.sort();
        ran
    }

    /// Ends a job.
    pub fn end(&self, lane: &Lane, job: &Job) {
        let ended = JobResult::unchanged(ReconcileResult::Done { again: None });
        self.context.state.finish(lane, job, &ended, &self.context.clock);
    }
}

/// Makes a served kind.
pub fn served(kind: &Kind) -> ServedKind {
    ServedKind {
        short_names: Vec::new(),
        kind: Arc::new(kind.clone()),
        plural: format!("{}s", kind.kind.to_lowercase()),
        facts: KindFacts {
            namespaced: true,
            has_status: true,
        },
    }
}

/// A lane of a plugin, with a controller as the manifest has it.
fn lane(client: &Client, served: &Arc<ServedKinds>, id: LaneId, plugin: &str, controller: Value) -> Lane {
    let controller: Controller = serde_json::from_value(controller).expect("the test's controller is one");
    Lane {
        id,
        plugin: plugin.into(),
        controller: controller.name.clone(),
        grants: Grants::new(&controller),
        former: Arc::new([]),
        is_former: false,
        is_optional: controller.optional,
        filter: Filter::default(),
        finalizer: controller.finalizer.clone(),
        former_finalizers: Arc::new([]),
        mode: RunMode::Active,
        former_managers: Vec::new(),
        namespaces: Vec::new(),
        prunes_unselected: false,
        asked: AdmissionExports::default(),
        admission: None,
        converted: Arc::new([]),
        brings_crd: true,
        failure_reason: None,
        asks_for_schema: false,
        component: PluginComponent::without_code(plugin),
        config: "{}".to_owned(),
        limits: Limits::default(),
        concurrency: None,
        calls: calls_of_a_plugin(),
        writer: FieldManagerClient::new(client.clone(), Lane::manager_of(plugin).into()),
        contributor: FieldManagerClient::new(client.clone(), Lane::contributor_of(plugin).into()),
        recorder: Arc::new(EventRecorder::new(client.clone(), plugin, "test")),
        health: Arc::default(),
        served: served.clone(),
        access: Arc::new(LaneAccess::Unlimited),
        cached: Arc::default(),
    }
}

/// The kind of the tests' primaries.
pub fn primary_kind() -> Kind {
    Kind::new("x.dev", "v1", "Primary")
}

/// The kind of the tests' children.
pub fn child_kind() -> Kind {
    Kind::new("", "v1", "Child")
}

/// A controller of primaries that touches children in these ways, and reads `.data` of them.
pub fn controller(access: &[&str]) -> Value {
    let mut controller = json!({
        "name": "c",
        "kind": {"group": "x.dev", "version": "v1", "kind": "Primary"},
        "fields": [".spec"],
    });
    if !access.is_empty() {
        controller["touches"] = json!([{
            "kind": {"group": "", "version": "v1", "kind": "Child"},
            "access": access,
            "fields": [".data"],
        }]);
    }
    controller
}

/// An object of namespace `a` with its name as uid.
pub fn text(name: &str, version: u32, more: &Value) -> Value {
    let mut object = json!({"metadata": {
        "name": name, "namespace": "a", "uid": format!("uid-{name}"), "resourceVersion": version.to_string()}});
    merge(&mut object, more);
    object
}

/// An object that a plugin applied for a primary of namespace `a`, bound by a label.
pub fn child(name: &str, version: u32, plugin: &str, owner: &str, fields: &Value) -> Value {
    text(
        name,
        version,
        &json!({"metadata": {
            "labels": {"pilothouse.dev/owner": format!("uid-{owner}")},
            "annotations": {"pilothouse.dev/owner-name": format!("x.dev/Primary/a/{owner}")},
            "managedFields": [applied(&Lane::manager_of(plugin), fields)],
        }}),
    )
}

/// An Apply entry of managedFields.
pub fn applied(manager: &str, fields: &Value) -> Value {
    json!({"manager": manager, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (name, value) in more {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

/// An object as cached, whole.
pub fn object(kind: &Kind, text: &Value) -> CachedObject {
    CachedObject::read(&text.to_string(), kind, &Projection::whole()).expect("the test's object is one")
}

/// An object as a codec keeps it.
pub fn read(codec: &ObjectCodec, text: &Value) -> CachedObject {
    let text = serde_json::value::to_raw_value(text).expect("JSON has a text");
    codec.read(&text).expect("the test's object is one")
}

/// A name in namespace `a`.
pub fn name(name: &str) -> Name {
    Name::new(Some("a"), name)
}

/// A primary in namespace `a`.
pub fn primary(lane: &Lane, object: &str) -> PrimaryRef {
    PrimaryRef::new(lane.id, name(object))
}
