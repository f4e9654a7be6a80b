//! Decides how to delete an object that is to be recreated, and which successor fields only its predecessor forbids.

use serde_json::{Map, Value};

use crate::kubernetes::key::Kind;
use crate::ownership::{ANNOTATIONS, OWNER_LABEL};
use crate::plugin::contract::Propagation;

/// Controllers that adopt pods, or ReplicaSets, that match their selector and have no controller.
const ADOPTING: [(&str, &str); 5] = [
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("apps", "ReplicaSet"),
    ("", "ReplicationController"),
];

/// Decides about the dependents of a live object whose successor is `body`, if the plugin does not. The successor adopts
/// them only if its selector is unchanged; else they go first, so that it does not meet them. The pods of a Job have its
/// uid among their labels.
pub fn propagation(kind: &Kind, live: &Value, body: &Map<String, Value>) -> Propagation {
    let is = |(group, name): &(&str, &str)| *group == kind.group && *name == kind.kind;
    if ("batch", "Job") == (&*kind.group, &*kind.kind) {
        return Propagation::Foreground;
    }
    if !ADOPTING.iter().any(is) {
        return Propagation::Background;
    }
    let selector = body.get("spec").map(|spec| &spec["selector"]);
    // A ReplicationController without a selector has the labels of its template.
    if selector.is_some_and(|selector| *selector == live["spec"]["selector"]) {
        Propagation::Orphan
    } else {
        Propagation::Foreground
    }
}

/// Allocated members of a Service: its successor cannot have the same values while the predecessor exists.
const ALLOCATED: [&str; 4] = ["clusterIP", "clusterIPs", "healthCheckNodePort", "loadBalancerIP"];

/// The successor without the values that its predecessor holds until it is gone, for a dry run of its creation.
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

/// Metadata members that change with each write, or record the owner.
const NOT_CONTENT: [&str; 5] = [
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "uid",
];

/// Reports whether two states of an object have the same content. The status is ignored, and so are members that change
/// with each write or record the owner.
pub fn has_same_content(one: &Value, other: &Value) -> bool {
    content(one) == content(other)
}

fn content(object: &Value) -> Value {
    let mut content = object.clone();
    if let Some(members) = content.as_object_mut() {
        members.remove("status");
    }
    if let Some(metadata) = content["metadata"].as_object_mut() {
        metadata.retain(|name, _| !NOT_CONTENT.contains(&name.as_str()));
        for map in ["annotations", "labels"] {
            let Some(Value::Object(members)) = metadata.get_mut(map) else {
                continue;
            };
            members.retain(|name, _| name != OWNER_LABEL && !ANNOTATIONS.contains(&name.as_str()));
            if members.is_empty() {
                metadata.remove(map);
            }
        }
    }
    content
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::diff::canonical::DESIRED_ANNOTATION;
    use crate::ownership::PROPAGATION_ANNOTATION;

    fn body(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn dependents_stay_where_the_successor_selects_them() {
        let selector = |app: &str| json!({"spec": {"selector": {"matchLabels": {"app": app}}}});
        let decide = |group: &str, kind: &str, new: &str| {
            propagation(&Kind::new(group, "v1", kind), &selector("a"), &body(selector(new)))
        };
        for kind in ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"] {
            assert_eq!(decide("apps", kind, "a"), Propagation::Orphan, "{kind}");
            assert_eq!(decide("apps", kind, "b"), Propagation::Foreground, "{kind}");
        }
        assert_eq!(decide("batch", "Job", "a"), Propagation::Foreground);
        assert_eq!(decide("", "Service", "a"), Propagation::Background);
        assert_eq!(decide("x.dev", "StatefulSet", "a"), Propagation::Background);
    }

    #[test]
    fn content_is_all_but_the_status_and_whose_an_object_is() {
        let object = |change: &dyn Fn(&mut Value)| {
            let mut object = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "p", "labels": {"a": "b"}, "annotations": {DESIRED_ANNOTATION: "1"}, "resourceVersion": "7"},
                "spec": {"containers": [{"name": "a", "image": "a:1"}]},
            });
            change(&mut object);
            object
        };
        let before = object(&|_| {});
        let same: [&dyn Fn(&mut Value); 4] = [
            &|it| it["status"] = json!({"phase": "Running"}),
            &|it| it["metadata"]["resourceVersion"] = json!("8"),
            &|it| it["metadata"]["annotations"] = json!({DESIRED_ANNOTATION: "2", PROPAGATION_ANNOTATION: "Orphan"}),
            &|it| it["metadata"]["ownerReferences"] = json!([{"uid": "u2"}]),
        ];
        for change in same {
            assert!(has_same_content(&before, &object(change)), "{}", object(change));
        }
        let other: [&dyn Fn(&mut Value); 3] = [
            &|it| it["spec"]["containers"][0]["image"] = json!("a:2"),
            &|it| it["metadata"]["labels"]["a"] = json!("c"),
            &|it| it["metadata"]["annotations"]["x"] = json!("y"),
        ];
        for change in other {
            assert!(!has_same_content(&before, &object(change)), "{}", object(change));
        }
    }

    #[test]
    fn successor_is_tried_without_its_predecessors_addresses() {
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
