//! Helpers of these tests: they create, change, wait and count.

mod leaving;
mod owned;
mod refused;
mod sharing;
mod trouble;

use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use pilothouse_testkit::cluster::Mark;
use pilothouse_testkit::requests::Request;
use serde_json::{Value, json};

use crate::stage::{Stage, unhurried};

async fn stage() -> Stage {
    Stage::with(&["sharer"], unhurried()).await
}

fn of_kind(kind: &str, name: &str, contributes: &[Value]) -> Value {
    json!({
        "apiVersion": "sharing.test.dev/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"},
        "spec": {"contributes": contributes},
    })
}

fn share(name: &str, contributes: &[Value]) -> Value {
    of_kind("Share", name, contributes)
}

/// A Share that owns the target with these data, and contributes.
fn owner(own: &Value, contributes: &[Value]) -> Value {
    let mut owner = share("owner", contributes);
    let mut target = entry("", "");
    target["data"] = own.clone();
    owner["spec"]["owns"] = json!([target]);
    owner
}

fn entry(key: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "target"}, "data": {key: value}})
}

fn config_map(data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "target", "namespace": "default"},
        "data": data,
    })
}

fn service(ports: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "target", "namespace": "default"},
        "spec": {"ports": ports},
    })
}

fn port(port: u64, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "target"},
        "spec": {"ports": [{"name": name, "port": port}]},
    })
}

async fn api(stage: &Stage, kind: &str) -> Api<DynamicObject> {
    let (group, version) = match kind {
        "Share" | "Loan" => ("sharing.test.dev", "v1"),
        _ => ("", "v1"),
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(stage.cluster.client().await.unwrap(), "default", &resource)
}

/// Edits an object of the namespace `default` as this field manager.
async fn edit(stage: &Stage, kind: &str, name: &str, manager: &str, patch: &Value) {
    let params = PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    let patched = api(stage, kind).await.patch(name, &params, &Patch::Merge(patch)).await;
    patched.unwrap();
}

async fn delete(stage: &Stage, kind: &str, name: &str) {
    api(stage, kind)
        .await
        .delete(name, &DeleteParams::default())
        .await
        .unwrap();
}

/// The data of the ConfigMap that all contribute to.
fn data(stage: &Stage) -> Value {
    stage
        .find("ConfigMap", "target")
        .map_or(Value::Null, |target| target["data"].clone())
}

fn ports(stage: &Stage) -> Vec<u64> {
    let service = stage.find("Service", "target").unwrap();
    let ports = service["spec"]["ports"].as_array().unwrap().iter();
    let mut ports: Vec<_> = ports.map(|port| port["port"].as_u64().unwrap()).collect();
    ports.sort_unstable();
    ports
}

async fn until_data(stage: &Stage, wanted: &Value) {
    let seen = stage.until(|stage| (data(stage) == *wanted).then_some(())).await;
    assert!(
        seen.is_some(),
        "{} and not {wanted}\n{}",
        data(stage),
        stage.lines(&[]).join("\n")
    );
}

/// The reason and the message of a primary's condition while that is False, as `REASON: MESSAGE`.
fn problem(stage: &Stage, kind: &str, name: &str) -> Option<String> {
    let condition = stage.reconciled(kind, name)?;
    let text = |member: &str| condition[member].as_str().unwrap_or_default();
    (condition["status"] == "False").then(|| format!("{}: {}", text("reason"), text("message")))
}

/// Waits until a primary's condition says all these words.
async fn until_told(stage: &Stage, kind: &str, name: &str, words: &[&str]) {
    let told = |stage: &Stage| {
        let message = problem(stage, kind, name)?;
        words.iter().all(|word| message.contains(word)).then_some(())
    };
    let seen = stage.until(told).await;
    assert!(seen.is_some(), "{:?} and not {words:?}", stage.reconciled(kind, name));
}

async fn until_reconciled(stage: &Stage, kind: &str, names: impl IntoIterator<Item = String>) {
    for name in names {
        let seen = stage
            .until(|stage| stage.is_reconciled(kind, &name).then_some(()))
            .await;
        assert!(seen.is_some(), "{kind} {name}: {:?}", stage.reconciled(kind, &name));
    }
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("share-{number}"))
}

/// The host's writes of the objects that are contributed to.
fn writes(stage: &Stage, mark: Mark) -> Vec<Request> {
    let mut writes = stage.host_writes_since(mark);
    writes.retain(|request| request.name == "target");
    writes
}
