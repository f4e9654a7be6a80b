//! Measures what the cache takes for each object, against the JSON that it is made of, and what a look costs.
//!
//! `cargo run --release -p pilothouse-cluster --example cache-memory [OBJECTS]`: Deployments of real size, which differ
//! as those of a cluster do; every second one has a controller of ours and was applied by us. What is counted are the
//! bytes asked of the allocator: what it rounds them up to is not in it, nor are the lists by which it finds free memory.

use std::alloc::System;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use cap::Cap;
use pilothouse_cluster::cache::codec::ObjectCodec;
use pilothouse_cluster::cache::store::{IndexValues, Store};
use pilothouse_core::kubernetes::path::Projection;
use pilothouse_core::reads::reach::Reach;
use pilothouse_core::{Kind, Name};
use serde_json::value::RawValue;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Objects, where none are asked for.
const OBJECTS: usize = 10_000;

fn main() {
    let objects = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(OBJECTS);
    let texts: Vec<Box<RawValue>> = (0..objects).map(|index| raw(&deployment(index))).collect();
    let stripped: usize = (0..objects).map(|index| stripped_bytes(deployment(index))).sum();
    let each = |bytes: usize| bytes / objects;
    println!("{objects} Deployments, {} bytes of stripped JSON each", each(stripped));
    for (form, projection) in [("whole", Projection::whole()), ("metadata only", Projection::default())] {
        let kind = Arc::new(Kind::new("apps", "v1", "Deployment"));
        let before = ALLOCATOR.allocated();
        let codec = Arc::new(ObjectCodec::new(kind.clone(), projection));
        let mut store = Store::default();
        let source = store.open(codec.clone(), Reach::all(), true).remove(0);
        let begun = Instant::now();
        let first: Vec<&RawValue> = texts.iter().take(500).map(|text| &**text).collect();
        codec.learn(&first);
        drop(first);
        store.begin_list(&source);
        for text in &texts {
            let object = codec.read(text).expect("it is an object");
            store.upsert(&source, object, &IndexValues::default());
        }
        store.end_list(&source);
        let read = begun.elapsed() / u32::try_from(objects).unwrap_or(u32::MAX);
        let taken = ALLOCATOR.allocated() - before;
        let names: Vec<Name> = store.iter(&kind, None).map(|object| object.name.clone()).collect();
        let begun = Instant::now();
        let shown: usize = names
            .iter()
            .filter_map(|name| store.get(&kind, name))
            .map(|object| object.text().len())
            .sum();
        let looked = begun.elapsed() / u32::try_from(objects).unwrap_or(u32::MAX);
        let packed: usize = store.iter(&kind, None).map(|object| object.packed_bytes()).sum();
        #[allow(clippy::cast_precision_loss, reason = "a ratio of two digits")]
        let ratio = taken as f64 / stripped as f64;
        println!(
            "{form}: {} bytes each, {ratio:.3} of the stripped JSON ({} shown, {} compressed); read in {read:?}, looked at in {looked:?}",
            each(taken),
            each(shown),
            each(packed),
        );
    }
}

fn raw(object: &Value) -> Box<RawValue> {
    RawValue::from_string(object.to_string()).expect("a value is JSON")
}

fn stripped_bytes(mut object: Value) -> usize {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object.to_string().len()
}

/// A digest, so that what differs between objects does not compress because it is counted up.
fn noise(index: usize, salt: u64) -> String {
    let mut state = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mut text = String::new();
    for _ in 0..4 {
        state = (state ^ (state >> 30))
            .wrapping_mul(0xbf58_476d_1ce4_e5b9)
            .wrapping_add(salt);
        state ^= state >> 27;
        write!(text, "{state:016x}").expect("writing to a String cannot fail");
    }
    text
}

fn uid(index: usize, salt: u64) -> String {
    let text = noise(index, salt);
    format!(
        "{}-{}-4{}-a{}-{}",
        &text[..8],
        &text[8..12],
        &text[12..15],
        &text[15..18],
        &text[18..30]
    )
}

/// A Deployment as an API server gives it: two containers with probes, environment and resources, and a status.
fn deployment(index: usize) -> Value {
    let (name, team) = (
        format!(
            "{}-{}",
            ["web", "api", "worker", "cache"][index % 4],
            &noise(index, 1)[..6]
        ),
        index % 37,
    );
    let namespace = format!("team-{team}");
    let image = |role: &str| {
        format!(
            "registry.example.com/team-{team}/{role}:1.{}.{}@sha256:{}",
            index % 9,
            index % 31,
            noise(index % 500, 2)
        )
    };
    let probe = |path: &str, delay: usize| {
        json!({"httpGet": {"path": path, "port": "http", "scheme": "HTTP"}, "initialDelaySeconds": delay, "timeoutSeconds": 1,
               "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3})
    };
    let container = |role: &str| {
        json!({
            "name": role, "image": image(role), "imagePullPolicy": "IfNotPresent",
            "args": ["--listen=:8080", format!("--shard={}", index % 16), "--log-format=json"],
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}, {"name": "metrics", "containerPort": 9090, "protocol": "TCP"}],
            "env": [
                {"name": "DATABASE_HOST", "value": format!("postgres.{namespace}.svc.cluster.local")},
                {"name": "DATABASE_PASSWORD", "valueFrom": {"secretKeyRef": {"name": format!("{name}-database"), "key": "password"}}},
                {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
                {"name": "CACHE_TTL", "value": format!("{}s", index % 600)},
            ],
            "resources": {"limits": {"cpu": "1", "memory": format!("{}Mi", 128 + index % 8 * 64)}, "requests": {"cpu": "100m", "memory": "128Mi"}},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/app", "readOnly": true}, {"name": "scratch", "mountPath": "/tmp"}],
            "livenessProbe": probe("/healthz", 10), "readinessProbe": probe("/readyz", 3),
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true, "runAsNonRoot": true},
        })
    };
    let labels = json!({"app.kubernetes.io/name": name, "app.kubernetes.io/instance": format!("{name}-prod"), "app.kubernetes.io/part-of": format!("shop-{team}"),
                        "app.kubernetes.io/managed-by": "pilothouse", "app.kubernetes.io/version": format!("1.{}.{}", index % 9, index % 31)});
    let created = format!(
        "2026-0{}-1{}T0{}:{:02}:{:02}Z",
        1 + index % 9,
        index % 10,
        index % 8,
        index % 60,
        index / 7 % 60
    );
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": name, "namespace": namespace, "uid": uid(index, 3), "resourceVersion": (1_000_000 + index * 7).to_string(),
            "generation": 1 + index % 5, "creationTimestamp": created, "labels": labels,
            "annotations": {"deployment.kubernetes.io/revision": (1 + index % 5).to_string(), "example.com/owner": format!("team-{team}@example.com")},
        },
        "spec": {
            "replicas": 1 + index % 4, "selector": {"matchLabels": {"app.kubernetes.io/name": name}}, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
            "template": {
                "metadata": {"labels": labels, "annotations": {"checksum/config": noise(index, 4)}},
                "spec": {
                    "containers": [container("app"), container("proxy")],
                    "volumes": [{"name": "config", "configMap": {"name": format!("{name}-config"), "defaultMode": 420}}, {"name": "scratch", "emptyDir": {}}],
                    "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "serviceAccountName": name,
                    "securityContext": {"fsGroup": 1000}, "schedulerName": "default-scheduler",
                    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
                                                   "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}}}],
                },
            },
        },
        "status": {
            "observedGeneration": 1 + index % 5, "replicas": 1 + index % 4, "updatedReplicas": 1 + index % 4, "readyReplicas": 1 + index % 4, "availableReplicas": 1 + index % 4,
            "conditions": [
                {"type": "Available", "status": "True", "lastUpdateTime": created, "lastTransitionTime": created, "reason": "MinimumReplicasAvailable", "message": "Deployment has minimum availability."},
                {"type": "Progressing", "status": "True", "lastUpdateTime": created, "lastTransitionTime": created, "reason": "NewReplicaSetAvailable",
                 "message": format!("ReplicaSet \"{name}-{}\" has successfully progressed.", &noise(index, 5)[..10])},
            ],
        },
    });
    if index.is_multiple_of(2) {
        let owner = uid(index, 6);
        object["metadata"]["annotations"]["pilothouse.dev/desired"] = json!(noise(index, 7));
        object["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "example.com/v1", "kind": "App", "name": name, "uid": owner, "controller": true}]);
        let fields = json!({
            "f:metadata": {"f:labels": {"f:app.kubernetes.io/name": {}}, "f:ownerReferences": {format!("k:{{\"uid\":\"{owner}\"}}"): {}}},
            "f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"app\"}": {".": {}, "f:image": {}, "f:args": {}}}}}},
        });
        object["metadata"]["managedFields"] = json!([{"manager": "pilothouse/app", "operation": "Apply", "apiVersion": "apps/v1",
                                                      "fieldsType": "FieldsV1", "fieldsV1": fields}]);
    }
    object
}
