//! Finds what a plugin has taken over from the primary: parts of an object that stand in the primary as they are, such as a pod
//! template. Where the CRD takes the type of one of Kubernetes' own kinds, it cannot state all that the API server asks of it.

use std::collections::HashSet;

use serde_json::Value;

/// Members of an object that identify it, beside its content.
const IDENTITY: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

/// An object without the parts that stand in the primary as they are; none if there are none.
pub(super) fn without_taken_over(object: &Value, primary: &Value) -> Option<Value> {
    let mut parts = HashSet::new();
    for (name, value) in primary.as_object().into_iter().flatten() {
        if !IDENTITY.contains(&name.as_str()) {
            collect(value, &mut parts);
        }
    }
    let mut rest = object.clone();
    let mut removed = false;
    for (name, value) in rest.as_object_mut().into_iter().flatten() {
        if !IDENTITY.contains(&name.as_str()) {
            removed |= remove(value, &parts);
        }
    }
    removed.then_some(rest)
}

/// The text of a value that has parts: a scalar may be equal by chance.
fn text_of_part(value: &Value) -> Option<String> {
    let has_parts = match value {
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    has_parts.then(|| value.to_string())
}

fn collect(value: &Value, parts: &mut HashSet<String>) {
    parts.extend(text_of_part(value));
    match value {
        Value::Object(members) => members.values().for_each(|member| collect(member, parts)),
        Value::Array(items) => items.iter().for_each(|item| collect(item, parts)),
        _ => {}
    }
}

fn remove(value: &mut Value, parts: &HashSet<String>) -> bool {
    let is_part = |value: &Value| text_of_part(value).is_some_and(|text| parts.contains(&text));
    let mut removed = false;
    match value {
        Value::Object(members) => {
            let before = members.len();
            members.retain(|_, member| !is_part(member));
            removed |= members.len() < before;
            for member in members.values_mut() {
                removed |= remove(member, parts);
            }
        }
        Value::Array(items) => {
            let before = items.len();
            items.retain(|item| !is_part(item));
            removed |= items.len() < before;
            for item in items {
                removed |= remove(item, parts);
            }
        }
        _ => {}
    }
    removed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parts_of_the_primary_go_wherever_they_stand_and_scalars_stay() {
        let container = json!({"name": "web", "ports": [{"containerPort": 0}]});
        let primary = json!({
            "metadata": {"labels": {"a": "b"}},
            "spec": {"replicas": 3, "cpu": "one", "template": {"spec": {"containers": [container]}}, "empty": {}},
        });
        let with_more = json!({"containers": [container, {"name": "own"}]});
        let without = json!({"containers": [{"name": "own"}]});
        for (object, rest) in [
            (
                json!({"spec": {"template": {"spec": with_more}}}),
                Some(json!({"spec": {"template": {"spec": without}}})),
            ),
            (
                json!({"spec": {"template": primary["spec"]["template"], "replicas": 3}}),
                Some(json!({"spec": {"replicas": 3}})),
            ),
            (
                json!({"spec": {"containers": [{"name": "own", "ports": container["ports"]}]}}),
                Some(json!({"spec": {"containers": [{"name": "own"}]}})),
            ),
            (
                json!({"spec": {"replicas": 3, "limits": {"cpu": "one"}, "x": {}}}),
                None,
            ),
            (json!({"metadata": {"labels": {"a": "b"}}}), None),
        ] {
            assert_eq!(without_taken_over(&object, &primary), rest, "{object}");
        }
    }
}
