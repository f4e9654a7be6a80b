//! Owns what a change of a CustomResourceDefinition does to the objects that are stored: which versions come and go, and
//! which objects would lose something. Rules (`x-kubernetes-validations`) and patterns are not evaluated.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::schema_pruning::prune_to_schema;

/// How a definition differs from the one in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrdChange {
    /// Versions that it has in addition.
    pub added: Vec<String>,
    /// Versions that it does not have any more.
    pub dropped: Vec<String>,
    /// Those of them in which objects are, or were, stored.
    pub dropped_stored: Vec<String>,
    /// Versions with another schema.
    pub changed: Vec<String>,
    /// The version in which objects are stored, if it is another: before and after.
    pub storage: Option<(String, String)>,
}

impl CrdChange {
    /// Compares a definition in the cluster with the one that is to take its place.
    pub fn between(live: &Value, wanted: &Value) -> Self {
        let (before, after) = (versions(live), versions(wanted));
        let added = after.iter().filter(|name| !before.contains(name));
        let dropped: Vec<String> = before.iter().filter(|name| !after.contains(name)).cloned().collect();
        let stored = live["status"]["storedVersions"].as_array().into_iter().flatten();
        let stored: BTreeSet<&str> = stored.filter_map(Value::as_str).collect();
        let changed = before.iter().filter(|name| {
            let (one, other) = (schema(live, name), schema(wanted, name));
            other.is_some_and(|other| !one.is_some_and(|one| has_all(one, other) && has_all(other, one)))
        });
        let storage = (storage(live), storage(wanted));
        Self {
            added: added.cloned().collect(),
            changed: changed.cloned().collect(),
            dropped_stored: dropped
                .iter()
                .filter(|name| stored.contains(name.as_str()))
                .cloned()
                .collect(),
            dropped,
            storage: match storage {
                (Some(before), Some(after)) if before != after => Some((before.to_owned(), after.to_owned())),
                _ => None,
            },
        }
    }

    /// Whether the two say the same.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// A version that both definitions serve, in which the objects can be compared: the one that is stored, if it is among them.
pub fn common_version(live: &Value, wanted: &Value) -> Option<String> {
    let served = |crd: &Value, name: &str| {
        let mut versions = crd["spec"]["versions"].as_array().into_iter().flatten();
        versions.any(|version| version["name"] == name && version["served"] == true)
    };
    let candidates = storage(live).map(str::to_owned).into_iter().chain(versions(live));
    let mut candidates = candidates.filter(|name| served(live, name) && served(wanted, name));
    candidates.next()
}

/// What an object has in a version that the wanted definition does not take, and the one in the cluster does, as paths.
pub fn losses(live: &Value, wanted: &Value, version: &str, object: &Value) -> BTreeSet<String> {
    let untaken = |crd: &Value| {
        let mut content = object.clone();
        if let Some(members) = content.as_object_mut() {
            // Every kind has these, whatever its schema says.
            for member in ["apiVersion", "kind", "metadata"] {
                members.remove(member);
            }
        }
        prune_to_schema(schema(crd, version).unwrap_or(&Value::Null), &mut content, "")
    };
    let before = untaken(live);
    untaken(wanted).difference(&before).cloned().collect()
}

fn versions(crd: &Value) -> Vec<String> {
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    versions
        .filter_map(|version| version["name"].as_str().map(str::to_owned))
        .collect()
}

fn storage(crd: &Value) -> Option<&str> {
    let mut versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    versions.find(|version| version["storage"] == true)?["name"].as_str()
}

fn schema<'a>(crd: &'a Value, version: &str) -> Option<&'a Value> {
    let mut versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    let version = versions.find(|it| it["name"] == version)?;
    version["schema"].get("openAPIV3Schema")
}

/// Whether a value has all that another one has; what the API server adds by itself is no difference.
fn has_all(value: &Value, other: &Value) -> bool {
    match (value, other) {
        (Value::Object(value), Value::Object(other)) => other
            .iter()
            .all(|(name, other)| value.get(name).is_some_and(|value| has_all(value, other))),
        (value, other) => value == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn crd(versions: &[(&str, Value)], storage: &str) -> Value {
        let version = |(name, spec): &(&str, Value)| {
            json!({
                "name": name, "served": true, "storage": *name == storage,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            })
        };
        let versions: Vec<Value> = versions.iter().map(version).collect();
        json!({"spec": {"versions": versions}, "status": {"storedVersions": [storage]}})
    }

    fn spec(properties: &Value) -> Value {
        json!({"type": "object", "properties": properties})
    }

    #[test]
    fn versions_that_go_are_told_apart_by_whether_objects_are_stored_in_them() {
        let plain = || spec(&json!({"size": {"type": "integer"}}));
        let live = crd(&[("v1alpha1", plain()), ("v1", plain())], "v1");
        let wanted = crd(
            &[("v1", spec(&json!({"size": {"type": "string"}}))), ("v2", plain())],
            "v2",
        );
        let change = CrdChange::between(&live, &wanted);
        assert_eq!(
            (change.added, change.dropped),
            (vec!["v2".to_owned()], vec!["v1alpha1".to_owned()])
        );
        assert_eq!((change.dropped_stored, change.changed), (vec![], vec!["v1".to_owned()]));
        assert_eq!(change.storage, Some(("v1".to_owned(), "v2".to_owned())));
        let wanted = crd(&[("v2", plain())], "v2");
        assert_eq!(CrdChange::between(&live, &wanted).dropped_stored, ["v1"]);
        assert!(CrdChange::between(&live, &live).is_none());
        assert_eq!(common_version(&live, &wanted), None);
        assert_eq!(common_version(&live, &live).as_deref(), Some("v1"));
    }

    #[test]
    fn an_object_loses_what_the_new_schema_does_not_take() {
        let before = json!({
            "size": {"type": "integer"}, "mode": {"type": "string"}, "note": {"type": "string"}, "kept": {"type": "string"},
        });
        let after = json!({
            "size": {"type": "integer", "maximum": 5}, "mode": {"type": "string", "enum": ["a"]},
            "kept": {"type": "string"}, "more": {"type": "string"},
        });
        let live = crd(&[("v1", spec(&before))], "v1");
        let wanted = crd(&[("v1", spec(&after))], "v1");
        let object = |spec: Value| json!({"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "a"}, "spec": spec});
        let lost = |spec: Value| {
            losses(&live, &wanted, "v1", &object(spec))
                .into_iter()
                .collect::<Vec<_>>()
        };
        assert_eq!(lost(json!({"size": 5, "mode": "a", "kept": "k"})), Vec::<String>::new());
        assert_eq!(
            lost(json!({"size": 6, "mode": "b", "note": "n", "old": 1})),
            [".spec.mode", ".spec.note", ".spec.size"],
            "what was not taken before is no loss"
        );
    }

    #[test]
    fn a_new_required_field_is_a_loss_unless_it_has_a_default() {
        let live = crd(&[("v1", spec(&json!({})))], "v1");
        let mut strict = spec(&json!({"size": {"type": "integer"}}));
        strict["required"] = json!(["size"]);
        let object = json!({"spec": {}});
        let wanted = crd(&[("v1", strict.clone())], "v1");
        assert_eq!(
            losses(&live, &wanted, "v1", &object).into_iter().collect::<Vec<_>>(),
            [".spec"]
        );
        strict["properties"]["size"]["default"] = json!(1);
        let wanted = crd(&[("v1", strict)], "v1");
        assert!(losses(&live, &wanted, "v1", &object).is_empty());
    }
}
