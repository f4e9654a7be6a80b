//! Decides how an object goes whose successor is about to be made, and what of the successor its predecessor alone forbids.

use serde_json::{Map, Value};

use crate::key::Kind;

/// The fate of the dependents of an object that is deleted to be made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependents {
    /// The successor adopts them: they stay.
    Stay,
    /// They go before the object is gone, so that the successor does not meet them.
    GoFirst,
    /// They go after the object.
    GoAfter,
}

/// Controllers that adopt pods, or ReplicaSets, that match their selector and have no controller.
const ADOPTING: [(&str, &str); 5] = [
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("apps", "ReplicaSet"),
    ("", "ReplicationController"),
];

/// Decides about the dependents of a live object whose successor is `body`. Only a selector that stays as it is makes the
/// successor adopt them; the pods of a Job have its uid among their labels.
pub fn dependents(kind: &Kind, live: &Value, body: &Map<String, Value>) -> Dependents {
    let is = |(group, name): &(&str, &str)| *group == kind.group && *name == kind.kind;
    if ("batch", "Job") == (&*kind.group, &*kind.kind) {
        return Dependents::GoFirst;
    }
    if !ADOPTING.iter().any(is) {
        return Dependents::GoAfter;
    }
    let selector = body.get("spec").map(|spec| &spec["selector"]);
    // A ReplicationController without a selector has the labels of its template.
    if selector.is_some_and(|selector| *selector == live["spec"]["selector"]) {
        Dependents::Stay
    } else {
        Dependents::GoFirst
    }
}

/// Allocated members of a Service: while the predecessor exists, its successor cannot have the same.
const ALLOCATED: [&str; 4] = ["clusterIP", "clusterIPs", "healthCheckNodePort", "loadBalancerIP"];

/// The successor without what its predecessor holds and frees when it goes, for a dry run of its creation.
pub fn without_held(kind: &Kind, live: &Value, body: &Map<String, Value>) -> Map<String, Value> {
    let mut body = body.clone();
    if ("", "Service") != (&*kind.group, &*kind.kind) {
        return body;
    }
    let Some(Value::Object(spec)) = body.get_mut("spec") else {
        return body;
    };
    spec.retain(|name, value| !ALLOCATED.contains(&name.as_str()) || live["spec"][name] != *value);
    let held: Vec<&Value> = live["spec"]["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|port| &port["nodePort"])
        .collect();
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Value::Object(port) = port {
            port.retain(|name, value| name != "nodePort" || !held.contains(&&*value));
        }
    }
    body
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn body(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn dependents_stay_where_the_successor_selects_them() {
        let selector = |app: &str| json!({"spec": {"selector": {"matchLabels": {"app": app}}}});
        let decide = |group: &str, kind: &str, new: &str| {
            dependents(&Kind::new(group, "v1", kind), &selector("a"), &body(selector(new)))
        };
        for kind in ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"] {
            assert_eq!(decide("apps", kind, "a"), Dependents::Stay, "{kind}");
            assert_eq!(decide("apps", kind, "b"), Dependents::GoFirst, "{kind}");
        }
        assert_eq!(decide("batch", "Job", "a"), Dependents::GoFirst);
        assert_eq!(decide("", "Service", "a"), Dependents::GoAfter);
        assert_eq!(decide("x.dev", "StatefulSet", "a"), Dependents::GoAfter);
    }

    #[test]
    fn a_successor_is_tried_without_the_addresses_of_its_predecessor() {
        let live = json!({"spec": {"clusterIP": "10.0.0.7", "ports": [{"port": 80, "nodePort": 30001}]}});
        let desired = body(json!({"spec": {"clusterIP": "10.0.0.7", "type": "NodePort",
            "ports": [{"port": 80, "nodePort": 30001}, {"port": 81, "nodePort": 30002}]}}));
        let tried = without_held(&Kind::new("", "v1", "Service"), &live, &desired);
        assert_eq!(
            Value::Object(tried),
            json!({"spec": {"type": "NodePort",
            "ports": [{"port": 80}, {"port": 81, "nodePort": 30002}]}})
        );
    }
}
