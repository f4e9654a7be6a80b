//! Admission: runs after ownership is known and before an object is checked and stored. It has the default plugins of a
//! real server as far as operators meet them, then the webhooks.

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::objects::Call;
use crate::state::State;
use crate::webhooks;

/// Validating admission: nothing but the webhooks judges here.
pub(crate) use crate::webhooks::validate;

/// Path at which pods find the token of their service account.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Time that a pod stays on a node that is not ready or unreachable.
const TOLERATION_SECONDS: i64 = 300;

/// Mutating admission; `old` is None when the object is created.
pub(crate) fn mutate(state: &mut State, call: &Call, object: &mut Value, old: Option<&Value>) -> Result<(), Failure> {
    if call.resource.is_builtin("", "pods") && object["metadata"]["uid"].is_null() {
        service_account(state, object)?;
        priority_and_tolerations(&mut object["spec"]);
    }
    if call.resource.is_builtin("", "nodes") && old.is_none() {
        taint(&mut object["spec"]);
    }
    if let Some(rewrite) = &call.rewrite {
        rewrite.apply(object);
    }
    webhooks::mutate(state, call, object, old)
}

/// Taints a new node: it takes no pods until its kubelet is found ready.
fn taint(spec: &mut Value) {
    let mut taints = spec["taints"].as_array().cloned().unwrap_or_default();
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    if !taints
        .iter()
        .any(|known| known["key"] == taint["key"] && known["effect"] == taint["effect"])
    {
        taints.push(taint);
    }
    spec["taints"] = Value::Array(taints);
}

/// Pods run as a service account that is there, and mount its token.
fn service_account(state: &mut State, pod: &mut Value) -> Result<(), Failure> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let namespace = text(&pod["metadata"]["namespace"]);
    let given = text(&pod["spec"]["serviceAccountName"]);
    let name = if given.is_empty() { "default".to_owned() } else { given };
    let Some(account) = state.get("", "serviceaccounts", &namespace, &name).cloned() else {
        let cause = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        return Err(Failure::forbidden("", "pods", &text(&pod["metadata"]["name"]), &cause));
    };
    let spec = &mut pod["spec"];
    spec["serviceAccountName"] = json!(name);
    spec["serviceAccount"] = json!(name);
    let mounts = spec["automountServiceAccountToken"]
        .as_bool()
        .or(account["automountServiceAccountToken"].as_bool())
        .unwrap_or(true);
    if mounts {
        mount_token(state, spec);
    }
    Ok(())
}

fn mount_token(state: &mut State, spec: &mut Value) {
    let volume = format!("kube-api-access-{}", state.random.suffix(5));
    for containers in ["initContainers", "containers"] {
        for container in spec
            .get_mut(containers)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            let mut mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
            if mounts.iter().any(|mount| mount["mountPath"] == TOKEN_PATH) {
                continue;
            }
            mounts.push(json!({"name": volume, "readOnly": true, "mountPath": TOKEN_PATH}));
            container["volumeMounts"] = Value::Array(mounts);
        }
    }
    let mut volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    volumes.push(json!({"name": volume, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
        ]}},
    ]}}));
    spec["volumes"] = Value::Array(volumes);
}

fn priority_and_tolerations(spec: &mut Value) {
    if spec["priority"].is_null() {
        spec["priority"] = json!(0);
    }
    if spec["preemptionPolicy"].is_null() {
        spec["preemptionPolicy"] = json!("PreemptLowerPriority");
    }
    let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = |found: &Value| {
            (found["key"] == key || found["key"].is_null())
                && (found["effect"] == "NoExecute" || found["effect"].is_null())
        };
        if !tolerations.iter().any(tolerated) {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS,
            }));
        }
    }
    spec["tolerations"] = Value::Array(tolerations);
}
