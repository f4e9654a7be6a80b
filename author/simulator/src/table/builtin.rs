//! Table columns of built-in kinds.

use std::time::SystemTime;

use serde_json::{Value, json};

use super::{age, text};
use crate::kinds::Storage;
use crate::objects::scale::selector_text;

type Columns = &'static [(&'static str, &'static str, i64)];

const DEPLOYMENT: Columns = &[
    ("Ready", "string", 0),
    ("Up-to-date", "string", 0),
    ("Available", "string", 0),
    ("Age", "string", 0),
    ("Containers", "string", 1),
    ("Images", "string", 1),
    ("Selector", "string", 1),
];
const REPLICA_SET: Columns = &[
    ("Desired", "integer", 0),
    ("Current", "integer", 0),
    ("Ready", "integer", 0),
    ("Age", "string", 0),
    ("Containers", "string", 1),
    ("Images", "string", 1),
    ("Selector", "string", 1),
];
const POD: Columns = &[
    ("Ready", "string", 0),
    ("Status", "string", 0),
    ("Restarts", "string", 0),
    ("Age", "string", 0),
    ("IP", "string", 1),
    ("Node", "string", 1),
];
const SERVICE: Columns = &[
    ("Type", "string", 0),
    ("Cluster-IP", "string", 0),
    ("External-IP", "string", 0),
    ("Port(s)", "string", 0),
    ("Age", "string", 0),
    ("Selector", "string", 1),
];
const INGRESS: Columns = &[
    ("Class", "string", 0),
    ("Hosts", "string", 0),
    ("Address", "string", 0),
    ("Ports", "string", 0),
    ("Age", "string", 0),
];
const EVENT: Columns = &[
    ("Last Seen", "string", 0),
    ("Type", "string", 0),
    ("Reason", "string", 0),
    ("Object", "string", 0),
    ("Message", "string", 0),
];
const DATA: Columns = &[("Data", "string", 0), ("Age", "string", 0)];
const SECRET: Columns = &[("Type", "string", 0), ("Data", "integer", 0), ("Age", "string", 0)];
const STATUS: Columns = &[("Status", "string", 0), ("Age", "string", 0)];
const LEASE: Columns = &[("Holder", "string", 0), ("Age", "string", 0)];
const CREATED: Columns = &[("Created At", "date", 0)];
const NODE: Columns = &[
    ("Status", "string", 0),
    ("Roles", "string", 0),
    ("Age", "string", 0),
    ("Version", "string", 0),
];
const ROLE_BINDING: Columns = &[("Role", "string", 0), ("Age", "string", 0)];
const AGE: Columns = &[("Age", "string", 0)];

fn of(storage: &Storage) -> Columns {
    match (storage.group.as_str(), storage.plural.as_str()) {
        ("apps", "deployments") => DEPLOYMENT,
        ("apps", "replicasets") => REPLICA_SET,
        ("", "pods") => POD,
        ("", "services") => SERVICE,
        ("networking.k8s.io", "ingresses") => INGRESS,
        ("", "events") => EVENT,
        ("", "configmaps") => DATA,
        ("", "secrets") => SECRET,
        ("", "namespaces") => STATUS,
        ("", "nodes") => NODE,
        ("coordination.k8s.io", "leases") => LEASE,
        ("apiextensions.k8s.io", _) | ("rbac.authorization.k8s.io", "roles" | "clusterroles") => CREATED,
        ("rbac.authorization.k8s.io", _) => ROLE_BINDING,
        _ => AGE,
    }
}

/// Names, types and priorities after the first column, which is always the name.
pub(super) fn columns(storage: &Storage) -> impl Iterator<Item = (&'static str, &'static str, i64)> {
    of(storage).iter().copied()
}

fn count(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn joined<'a>(values: impl Iterator<Item = &'a Value>) -> Value {
    json!(values.map(text).collect::<Vec<_>>().join(","))
}

fn or_none(joined: Value) -> Value {
    if joined == "" { json!("<none>") } else { joined }
}

/// One cell for each of the columns.
pub(super) fn cells(storage: &Storage, object: &Value, now: SystemTime) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let age_cell = json!(age(&object["metadata"]["creationTimestamp"], now));
    let containers = list(&spec["template"]["spec"]["containers"]);
    let of_template = || {
        vec![
            joined(containers.iter().map(|container| &container["name"])),
            joined(containers.iter().map(|container| &container["image"])),
            json!(selector_text(&spec["selector"])),
        ]
    };
    match (storage.group.as_str(), storage.plural.as_str()) {
        ("apps", "deployments") => {
            let ready = format!("{}/{}", count(&status["readyReplicas"]), count(&spec["replicas"]));
            let mut cells = vec![
                json!(ready),
                json!(count(&status["updatedReplicas"])),
                json!(count(&status["availableReplicas"])),
                age_cell,
            ];
            cells.extend(of_template());
            cells
        }
        ("apps", "replicasets") => {
            let mut cells = vec![
                json!(count(&spec["replicas"])),
                json!(count(&status["replicas"])),
                json!(count(&status["readyReplicas"])),
                age_cell,
            ];
            cells.extend(of_template());
            cells
        }
        ("", "pods") => pod(object, age_cell),
        ("", "services") => service(spec, status, age_cell),
        ("networking.k8s.io", "ingresses") => ingress(spec, status, age_cell),
        ("", "events") => event(object, now),
        ("", "configmaps") => {
            let entries = ["data", "binaryData"]
                .iter()
                .map(|name| object[*name].as_object().map_or(0, serde_json::Map::len));
            vec![json!(entries.sum::<usize>().to_string()), age_cell]
        }
        ("", "secrets") => {
            let entries = object["data"].as_object().map_or(0, serde_json::Map::len);
            vec![object["type"].clone(), json!(entries), age_cell]
        }
        ("", "namespaces") => vec![status["phase"].clone(), age_cell],
        ("", "nodes") => node(status, age_cell),
        ("coordination.k8s.io", "leases") => vec![json!(spec["holderIdentity"].as_str().unwrap_or_default()), age_cell],
        ("apiextensions.k8s.io", _) | ("rbac.authorization.k8s.io", "roles" | "clusterroles") => {
            vec![object["metadata"]["creationTimestamp"].clone()]
        }
        ("rbac.authorization.k8s.io", _) => {
            let role = &object["roleRef"];
            vec![
                json!(format!("{}/{}", text(&role["kind"]), text(&role["name"]))),
                age_cell,
            ]
        }
        _ => vec![age_cell],
    }
}

fn pod(object: &Value, age_cell: Value) -> Vec<Value> {
    let status = &object["status"];
    let states = list(&status["containerStatuses"]);
    let ready = states.iter().filter(|state| state["ready"] == true).count();
    let restarts: i64 = states.iter().map(|state| count(&state["restartCount"])).sum();
    let phase = if object["metadata"]["deletionTimestamp"].is_string() {
        json!("Terminating")
    } else {
        status["phase"].clone()
    };
    let total = list(&object["spec"]["containers"]).len();
    let or_none = |value: &Value| value.as_str().map_or(json!("<none>"), |text| json!(text));
    vec![
        json!(format!("{ready}/{total}")),
        phase,
        json!(restarts.to_string()),
        age_cell,
        or_none(&status["podIP"]),
        or_none(&object["spec"]["nodeName"]),
    ]
}

fn service(spec: &Value, status: &Value, age_cell: Value) -> Vec<Value> {
    let ports = list(&spec["ports"]).iter().map(|port| {
        let protocol = text(&port["protocol"]);
        match count(&port["nodePort"]) {
            0 => format!("{}/{protocol}", port["port"]),
            node => format!("{}:{node}/{protocol}", port["port"]),
        }
    });
    let ports = ports.collect::<Vec<_>>().join(",");
    let balancers = list(&status["loadBalancer"]["ingress"]);
    let external = match spec["type"].as_str() {
        Some("ExternalName") => spec["externalName"].clone(),
        Some("LoadBalancer") if balancers.is_empty() => json!("<pending>"),
        Some("LoadBalancer") => joined(balancers.iter().map(|entry| {
            if entry["ip"].is_string() {
                &entry["ip"]
            } else {
                &entry["hostname"]
            }
        })),
        _ => or_none(joined(list(&spec["externalIPs"]).iter())),
    };
    let address = spec["clusterIP"].as_str().map_or(json!("<none>"), |text| json!(text));
    vec![
        spec["type"].clone(),
        address,
        external,
        or_none(json!(ports)),
        age_cell,
        or_none(json!(selector_text(&spec["selector"]))),
    ]
}

fn ingress(spec: &Value, status: &Value, age_cell: Value) -> Vec<Value> {
    let class = spec["ingressClassName"].as_str().unwrap_or("<none>");
    let hosts = joined(
        list(&spec["rules"])
            .iter()
            .map(|rule| &rule["host"])
            .filter(|host| host.is_string()),
    );
    let hosts = if hosts == "" { json!("*") } else { hosts };
    let ports = if list(&spec["tls"]).is_empty() { "80" } else { "80, 443" };
    let address = joined(
        list(&status["loadBalancer"]["ingress"])
            .iter()
            .map(|entry| &entry["ip"]),
    );
    vec![json!(class), hosts, address, json!(ports), age_cell]
}

fn event(object: &Value, now: SystemTime) -> Vec<Value> {
    let seen = ["lastTimestamp", "eventTime", "firstTimestamp"]
        .iter()
        .map(|name| &object[*name]);
    let seen = seen
        .chain([&object["metadata"]["creationTimestamp"]])
        .find(|time| time.is_string())
        .unwrap_or(&Value::Null);
    let about = &object["involvedObject"];
    let about = format!("{}/{}", text(&about["kind"]).to_lowercase(), text(&about["name"]));
    vec![
        json!(age(seen, now)),
        object["type"].clone(),
        object["reason"].clone(),
        json!(about),
        json!(object["message"].as_str().unwrap_or_default().trim()),
    ]
}

fn node(status: &Value, age_cell: Value) -> Vec<Value> {
    let ready = list(&status["conditions"])
        .iter()
        .any(|found| found["type"] == "Ready" && found["status"] == "True");
    let version = status["nodeInfo"]["kubeletVersion"].clone();
    vec![
        json!(if ready { "Ready" } else { "NotReady" }),
        json!("<none>"),
        age_cell,
        version,
    ]
}
