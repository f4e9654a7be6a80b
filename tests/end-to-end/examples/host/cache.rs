//! Measures the cache's memory for each object, beside the object's own JSON without managedFields: Deployments of real
//! size, kept whole and with their metadata only.

use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use pilothouse_cluster::cache::codec::ObjectCodec;
use pilothouse_cluster::cache::store::{IndexValues, Store};
use pilothouse_core::Kind;
use pilothouse_core::kubernetes::path::Projection;
use pilothouse_core::reads::reach::Reach;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::Outcome;
use crate::figures::{heading, line, number};
use crate::steered::memory;

const DEPLOYMENTS: usize = 10_000;

/// Objects that the cache learns from what repeats.
const PAGE: usize = 50;

/// Kept part of each object.
const KEPT: [(&str, &str, &str); 2] = [
    ("whole", "kept whole: bytes for each object", "aim 0.6"),
    ("metadata", "metadata only: bytes for each object", "aim 0.1"),
];

/// Measures and prints. Each is measured in a process of its own, because memory that one has given back would be used by
/// the next.
pub fn measure() -> Outcome<()> {
    let stripped: usize = (0..DEPLOYMENTS).map(|index| deployment(index).to_string().len()).sum();
    let json = number(stripped) / number(DEPLOYMENTS);
    heading(&format!(
        "the cache with {DEPLOYMENTS} Deployments of {json:.0} bytes of JSON without managedFields"
    ));
    for (kept, what, aim) in KEPT {
        let output = Command::new(std::env::current_exe()?)
            .args([ALONE, kept])
            .stderr(Stdio::inherit())
            .output()?;
        let bytes: f64 = String::from_utf8(output.stdout)?.trim().parse()?;
        line(what, &format!("{bytes:.0} = {:.2} of the JSON", bytes / json), aim);
    }
    Ok(())
}

/// The argument of a process that measures one thing and prints it: bytes of memory for each object.
pub const ALONE: &str = "cached";

/// Measures in this process.
pub fn alone(kept: &str) -> Outcome<()> {
    let projection = match kept {
        "whole" => Projection::whole(),
        _ => Projection::default(),
    };
    let press = Arc::new(ObjectCodec::new(
        Arc::new(Kind::new("apps", "v1", "Deployment")),
        projection,
    ));
    let mut store = Store::default();
    let source = store
        .open(press.clone(), Reach::all(), true)
        .pop()
        .ok_or("there is one list of everything")?;
    // As the first page of a list does.
    let page = (0..PAGE).map(as_served).collect::<Outcome<Vec<_>>>()?;
    press.learn(&page.iter().map(|object| &**object).collect::<Vec<_>>());
    drop(page);
    let before = memory(std::process::id())?;
    store.begin_list(&source);
    for index in 0..DEPLOYMENTS {
        store.upsert(&source, press.read(&as_served(index)?)?, &IndexValues::default());
    }
    store.end_list(&source);
    let after = memory(std::process::id())?;
    println!("{}", (after - before) * 1024.0 / number(DEPLOYMENTS));
    Ok(())
}

/// Returns an object as a server sends it, with managedFields.
fn as_served(index: usize) -> Outcome<Box<RawValue>> {
    let mut object = deployment(index);
    let fields = json!({"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {
        "f:progressDeadlineSeconds": {}, "f:replicas": {}, "f:revisionHistoryLimit": {}, "f:selector": {},
        "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:env": {}, "f:image": {}}}}}}});
    object["metadata"]["managedFields"] = json!([
        {"manager": "helm", "operation": "Update", "apiVersion": "apps/v1", "time": "2026-01-01T00:00:00Z",
         "fieldsType": "FieldsV1", "fieldsV1": fields},
        {"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "apps/v1",
         "fieldsType": "FieldsV1", "subresource": "status", "fieldsV1": {"f:status": {"f:conditions": {}}}},
    ]);
    Ok(to_raw_value(&object)?)
}

/// A Deployment as charts write them: two containers with variables, probes, volumes, and the status of one that runs.
fn deployment(index: usize) -> Value {
    let team = index % 40;
    // What is the object's own and does not compress: a digest, as images and checksums have it.
    let digest = |seed: usize| {
        let mut text = String::new();
        let mut state = (index as u64) << 8 | seed as u64;
        for _ in 0..4 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            write!(text, "{:016x}", state ^ (state >> 29)).expect("writing to a String cannot fail");
        }
        text
    };
    let name = format!("service-{index}");
    let labels = json!({
        "app.kubernetes.io/name": name, "app.kubernetes.io/instance": name, "app.kubernetes.io/part-of": format!("team-{team}"),
        "app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "service-1.14.2",
    });
    let variables: Vec<_> = (0..12)
        .map(|number| json!({"name": format!("SETTING_{number}"), "value": format!("https://{name}.team-{team}.svc:{number}/api")}))
        .collect();
    let container = |container: &str, seed| {
        json!({
            "name": container, "image": format!("registry.example.dev/team-{team}/{container}@sha256:{}", digest(seed)),
            "imagePullPolicy": "IfNotPresent", "env": variables,
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10,
                "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3},
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10,
                "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "volumeMounts": [{"name": "config", "mountPath": "/etc/service", "readOnly": true}],
        })
    };
    let replicas = 1 + index % 5;
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": name, "namespace": format!("team-{team}"), "uid": format!("{}", digest(1)), "generation": 1 + index % 9,
            "resourceVersion": format!("{}", 1_000_000 + index), "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels,
            "annotations": {"deployment.kubernetes.io/revision": format!("{}", 1 + index % 30),
                "meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": format!("team-{team}")},
        },
        "spec": {
            "replicas": replicas, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
            "selector": {"matchLabels": {"app.kubernetes.io/name": name, "app.kubernetes.io/instance": name}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": {
                "metadata": {"labels": labels, "annotations": {"checksum/config": digest(2)}},
                "spec": {
                    "containers": [container("main", 3), container("sidecar", 4)],
                    "volumes": [{"name": "config", "configMap": {"name": name, "defaultMode": 420}}],
                    "serviceAccountName": name, "serviceAccount": name, "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
                    "schedulerName": "default-scheduler", "securityContext": {"runAsNonRoot": true},
                    "terminationGracePeriodSeconds": 30,
                },
            },
        },
        "status": {
            "observedGeneration": 1 + index % 9, "replicas": replicas, "updatedReplicas": replicas,
            "readyReplicas": replicas, "availableReplicas": replicas,
            "conditions": [
                {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable",
                 "message": "Deployment has minimum availability.", "lastUpdateTime": "2026-01-01T00:00:00Z",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable",
                 "message": format!("ReplicaSet \"{name}-{}\" has successfully progressed.", &digest(5)[..10]),
                 "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ],
        },
    })
}
