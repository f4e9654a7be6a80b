//! Builds bodies that do not touch the fields around a conflicting field, so that the rest of an object converges.

use serde_json::{Map, Value};

use crate::contribution::{assemble, held};
use crate::kubernetes::fields::{FieldSet, FieldSetElement, ItemIndex, Likeness};

/// Bodies in which our fields around a location have their live values, and are left out if we do not hold them yet: an
/// apply gives up none of our fields. The first body changes as little as possible; the last one still applies
/// everything that is not below the same member of `spec`.
pub fn around(
    body: &Map<String, Value>,
    live: &Value,
    ours: &FieldSet,
    location: &[FieldSetElement],
) -> Vec<Map<String, Value>> {
    let own = Value::Object(assemble(&held(ours, live)));
    let whole = Value::Object(body.clone());
    let mut bodies: Vec<Map<String, Value>> = Vec::new();
    for end in (2..location.len()).rev() {
        let substituted = substituted(Some(&whole), Some(&own), &location[..end]);
        if let Some(Value::Object(substituted)) = substituted
            && substituted != *body
            && bodies.last() != Some(&substituted)
        {
            bodies.push(substituted);
        }
    }
    bodies
}

/// A value in which another value's part replaces the one at a location.
fn substituted(value: Option<&Value>, other: Option<&Value>, location: &[FieldSetElement]) -> Option<Value> {
    let Some((first, rest)) = location.split_first() else {
        return other.cloned();
    };
    match (first, value) {
        (FieldSetElement::Field(name), Some(Value::Object(members))) => {
            let mut members = members.clone();
            let below = other.and_then(|other| other.get(name));
            match substituted(members.get(name), below, rest) {
                Some(below) => _ = members.insert(name.clone(), below),
                None => _ = members.remove(name),
            }
            Some(Value::Object(members))
        }
        (FieldSetElement::Key(_) | FieldSetElement::Item(_), Some(Value::Array(items))) => {
            let position = |list: Option<&Value>| {
                let mut index = ItemIndex::new(list);
                let exact = index.find(first, Likeness::Exact);
                exact.or_else(|| index.find(first, Likeness::Given))
            };
            let mut items = items.clone();
            let here = position(value);
            let below = position(other).and_then(|position| other?.get(position));
            match (here, substituted(here.map(|here| &items[here]), below, rest)) {
                (Some(here), Some(item)) => items[here] = item,
                (Some(here), None) => _ = items.remove(here),
                (None, Some(item)) => items.push(item),
                (None, None) => {}
            }
            Some(Value::Array(items))
        }
        _ => other.cloned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn our_fields_around_a_location_keep_their_live_values() {
        let container =
            |image: &str, cpu: &str| json!({"name": "web", "image": image, "resources": {"requests": {"cpu": cpu}}});
        let spec = |image: &str, cpu: &str| json!({"spec": {"size": 1, "containers": [container(image, cpu)]}});
        let body = spec("web:2", "2");
        let mut live = spec("web:1", "100m");
        live["spec"]["containers"][0]["resources"]["limits"] = json!({"cpu": "1"});
        let ours: FieldSet = serde_json::from_value(json!({"f:spec": {"f:size": {}, "f:containers": {
            "k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {}, "f:resources": {"f:requests": {"f:cpu": {}}}}}}}))
        .unwrap();
        let location = ["spec", "containers"].map(|name| FieldSetElement::Field(name.to_owned()));
        let item = FieldSetElement::Key(json!({"name": "web"}));
        let below = ["resources", "limits", "cpu"].map(|name| FieldSetElement::Field(name.to_owned()));
        let location: Vec<_> = location.into_iter().chain([item]).chain(below).collect();
        let bodies = around(body.as_object().unwrap(), &live, &ours, &location);
        let bodies: Vec<_> = bodies.into_iter().map(Value::Object).collect();
        assert_eq!(bodies, [spec("web:2", "100m"), spec("web:1", "100m")]);
    }

    #[test]
    fn an_item_that_we_do_not_hold_yet_is_left_out() {
        let spec = |ports: Value| json!({"spec": {"selector": {"a": "2"}, "ports": ports}});
        let (a, b) = (json!({"port": 80, "name": "a"}), json!({"port": 82, "name": "b"}));
        let body = spec(json!([a, b]));
        let live = spec(json!([
            {"port": 80, "protocol": "TCP", "name": "a"}, {"port": 81, "protocol": "TCP", "name": "b"}
        ]));
        let ours: FieldSet = serde_json::from_value(json!({"f:spec": {"f:selector": {"f:a": {}}, "f:ports": {
            "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:name": {}}}}}))
        .unwrap();
        let ports = ["spec", "ports"].map(|name| FieldSetElement::Field(name.to_owned()));
        let theirs = FieldSetElement::Key(json!({"port": 81, "protocol": "TCP"}));
        let name = FieldSetElement::Field("name".to_owned());
        let location: Vec<_> = ports.into_iter().chain([theirs, name]).collect();
        let bodies = around(body.as_object().unwrap(), &live, &ours, &location);
        let last = Value::Object(bodies.last().unwrap().clone());
        assert_eq!(last["spec"]["ports"].as_array().unwrap().len(), 1, "{last}");
        assert_eq!(last["spec"]["ports"][0]["port"], 80);
        assert_eq!(last["spec"]["selector"], json!({"a": "2"}));
    }
}
