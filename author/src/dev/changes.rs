//! Compares two versions of an object: the fields that changed, with both values, and the field managers that wrote
//! them. Values of Secrets are not shown, and fields that the server sets by itself are ignored. Without I/O.

use std::collections::BTreeSet;

use pilothouse_core::diff::canonical::DESIRED_ANNOTATION;
use pilothouse_core::text::printable::shorten;
use pilothouse_testkit::diff::{HIDDEN, SECRET_MEMBERS, is_secret};
use serde_json::{Map, Value};

/// The most fields of one object that are named.
const MAX_FIELDS: usize = 4;

/// The longest value that is shown, in bytes.
const MAX_VALUE: usize = 60;

/// Members of `metadata` that the server writes, or that the host needs for itself.
const METADATA: [&str; 5] = [
    "creationTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "uid",
];

/// Members of a status that only hold times and versions.
const STATUS: [&str; 5] = [
    "lastHeartbeatTime",
    "lastProbeTime",
    "lastTransitionTime",
    "lastUpdateTime",
    "observedGeneration",
];

/// Members that identify the items of a list, if each item has another value there.
const KEYS: [&str; 2] = ["name", "type"];

/// Part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// All but the status: the desired state.
    Desired,
    /// The status alone.
    Status,
}

/// Describes the change and its authors: `changed by kubectl: .spec.size: 1 becomes 2`. None if the part is the same.
pub fn between(before: &Value, now: &Value, part: Part) -> Option<String> {
    let mut changes = Vec::new();
    for name in names(before.as_object(), now.as_object()) {
        let is_status = name == "status";
        if is_status == (part == Part::Status) && !matches!(name, "apiVersion" | "kind") {
            compare(&before[name], &now[name], &format!(".{name}"), &mut changes);
        }
    }
    let is_secret = is_secret(now);
    let more = changes.len().saturating_sub(MAX_FIELDS);
    let mut fields: Vec<String> = changes
        .into_iter()
        .take(MAX_FIELDS)
        .map(|change| change.in_words(is_secret))
        .collect();
    if fields.is_empty() {
        return None;
    }
    if more > 0 {
        fields.push(format!(
            "and {more} more {}",
            if more == 1 { "field" } else { "fields" }
        ));
    }
    let by = writers(before, now, part);
    let by = if by.is_empty() {
        String::new()
    } else {
        format!(" by {}", by.join(", "))
    };
    Some(format!("changed{by}: {}", fields.join("; ")))
}

/// One field that has changed.
struct FieldChange<'a> {
    path: String,
    before: &'a Value,
    now: &'a Value,
}

impl FieldChange<'_> {
    fn in_words(self, is_secret: bool) -> String {
        let Self { path, before, now } = self;
        let is_hidden = is_secret && SECRET_MEMBERS.iter().any(|member| path[1..].starts_with(member));
        let shown = |value: &Value| match value {
            Value::Null => "nothing".to_owned(),
            _ if is_hidden => HIDDEN.to_owned(),
            value => shorten(value.to_string(), MAX_VALUE),
        };
        format!("{path}: {} becomes {}", shown(before), shown(now))
    }
}

fn compare<'a>(before: &'a Value, now: &'a Value, path: &str, changes: &mut Vec<FieldChange<'a>>) {
    match (before, now) {
        (Value::Object(old), Value::Object(new)) => {
            for name in names(Some(old), Some(new)) {
                let is_left_out = match path {
                    ".metadata" => METADATA.contains(&name),
                    ".metadata.annotations" => name == DESIRED_ANNOTATION,
                    path => path.starts_with(".status") && STATUS.contains(&name),
                };
                if !is_left_out {
                    compare(&before[name], &now[name], &member(path, name), changes);
                }
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            if let Some(key) = KEYS
                .into_iter()
                .find(|key| tells_apart(old, key) && tells_apart(new, key))
            {
                let item = |list: &'a [Value], value: &Value| list.iter().find(|item| &item[key] == value);
                let values: BTreeSet<&str> = old.iter().chain(new).filter_map(|item| item[key].as_str()).collect();
                for value in values {
                    let wanted = Value::from(value);
                    let (one, other) = (item(old, &wanted), item(new, &wanted));
                    let path = format!("{path}[{key}={value}]");
                    compare(
                        one.unwrap_or(&Value::Null),
                        other.unwrap_or(&Value::Null),
                        &path,
                        changes,
                    );
                }
            } else if old.len() == new.len() {
                for (index, (old, new)) in old.iter().zip(new).enumerate() {
                    compare(old, new, &format!("{path}[{index}]"), changes);
                }
            } else {
                changes.push(FieldChange {
                    path: path.to_owned(),
                    before,
                    now,
                });
            }
        }
        (before, now) if before == now => {}
        (before, now) => changes.push(FieldChange {
            path: path.to_owned(),
            before,
            now,
        }),
    }
}

fn names<'a>(one: Option<&'a Map<String, Value>>, other: Option<&'a Map<String, Value>>) -> BTreeSet<&'a str> {
    let members = one.into_iter().chain(other).flat_map(Map::keys);
    members.map(String::as_str).collect()
}

/// Reports whether each item has a different text in this member.
fn tells_apart(items: &[Value], key: &str) -> bool {
    let values: BTreeSet<&str> = items.iter().filter_map(|item| item[key].as_str()).collect();
    values.len() == items.len()
}

fn member(path: &str, name: &str) -> String {
    if name.contains(['.', '/', '[']) {
        format!("{path}[{name:?}]")
    } else {
        format!("{path}.{name}")
    }
}

/// Returns the managers that have written since: those whose entry is new or has another time. Entries have times in
/// whole seconds, so if none differs, the last writers are returned.
fn writers(before: &Value, now: &Value, part: Part) -> Vec<String> {
    let entries = |object: &Value| -> Vec<(Value, String)> {
        let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
        let is_meant = |entry: &&Value| match part {
            Part::Desired => entry["subresource"] != "status",
            Part::Status => entry["fieldsV1"].get("f:status").is_some(),
        };
        let of = |entry: &Value| {
            let who = serde_json::json!([entry["manager"], entry["operation"], entry["subresource"]]);
            (who, entry["time"].as_str().unwrap_or_default().to_owned())
        };
        entries.filter(is_meant).map(of).collect()
    };
    let (known, present) = (entries(before), entries(now));
    let mut wrote: Vec<&(Value, String)> = present.iter().filter(|entry| !known.contains(entry)).collect();
    if wrote.is_empty() {
        let last = present.iter().map(|(_, time)| time).max();
        wrote = present.iter().filter(|(_, time)| Some(time) == last).collect();
    }
    let names: BTreeSet<&str> = wrote.iter().filter_map(|(who, _)| who[0].as_str()).collect();
    names.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, time: &str) -> Value {
        json!({"manager": manager, "operation": "Apply", "time": time, "fieldsV1": {"f:spec": {}}})
    }

    #[test]
    fn fields_are_named_with_both_values_and_who_wrote_them() {
        let before = json!({
            "kind": "Deployment",
            "metadata": {"resourceVersion": "1", "generation": 1, "annotations": {DESIRED_ANNOTATION: "a", "a/b": "c"},
                         "managedFields": [entry("pilothouse/web", "1"), entry("kubectl", "0")]},
            "spec": {"replicas": 1, "paused": true, "containers": [{"name": "web", "image": "web:1"}, {"name": "log"}]},
            "status": {"readyReplicas": 1}
        });
        let now = json!({
            "kind": "Deployment",
            "metadata": {"resourceVersion": "2", "generation": 2, "annotations": {DESIRED_ANNOTATION: "b", "a/b": "d"},
                         "managedFields": [entry("pilothouse/web", "2"), entry("kubectl", "0")]},
            "spec": {"replicas": 2, "containers": [{"name": "web", "image": "web:2"}]},
            "status": {"readyReplicas": 2}
        });
        assert_eq!(
            between(&before, &now, Part::Desired).unwrap(),
            "changed by pilothouse/web: .metadata.annotations[\"a/b\"]: \"c\" becomes \"d\"; \
             .spec.containers[name=log]: {\"name\":\"log\"} becomes nothing; \
             .spec.containers[name=web].image: \"web:1\" becomes \"web:2\"; .spec.paused: true becomes nothing; \
             and 1 more field"
        );
        assert_eq!(between(&now, &now, Part::Desired), None);
    }

    #[test]
    fn a_status_is_a_part_of_its_own_in_which_times_do_not_count() {
        let object = |ready: &str, time: &str| {
            json!({
                "metadata": {"managedFields": [
                    entry("kubectl", "9"),
                    {"manager": "pilothouse/web", "subresource": "status", "time": time, "fieldsV1": {"f:status": {}}}]},
                "spec": {"size": 1},
                "status": {"observedGeneration": time,
                           "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": time}]}
            })
        };
        let (before, now) = (object("False", "1"), object("True", "2"));
        assert_eq!(between(&before, &now, Part::Desired), None);
        assert_eq!(
            between(&before, &now, Part::Status).unwrap(),
            "changed by pilothouse/web: .status.conditions[type=Ready].status: \"False\" becomes \"True\""
        );
        assert_eq!(between(&before, &object("False", "3"), Part::Status), None);
    }

    #[test]
    fn values_of_secrets_are_hidden_and_long_ones_are_shortened() {
        let secret = |value: &str| json!({"apiVersion": "v1", "kind": "Secret", "data": {"key": value}, "type": value});
        assert_eq!(
            between(&secret("old"), &secret("new"), Part::Desired).unwrap(),
            "changed: .data.key: *** becomes ***; .type: \"old\" becomes \"new\""
        );
        let long = |value: &str| json!({"kind": "ConfigMap", "data": {"key": value.repeat(1000)}});
        let said = between(&long("a"), &long("b"), Part::Desired).unwrap();
        assert!(said.len() < 200, "{said}");
    }

    #[test]
    fn managed_fields_of_the_same_second_name_the_last_writers() {
        let object = |size: u8| {
            json!({"spec": {"size": size},
                   "metadata": {"managedFields": [entry("a", "5"), entry("b", "4")]}})
        };
        assert_eq!(
            between(&object(1), &object(2), Part::Desired).unwrap(),
            "changed by a: .spec.size: 1 becomes 2"
        );
    }
}
