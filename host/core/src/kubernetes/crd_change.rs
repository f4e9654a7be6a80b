//! Describes a change of a CustomResourceDefinition: added and dropped versions, changed schemas, and the schemas
//! between which stored objects move. Validating objects against a schema is not done here.

use std::collections::BTreeSet;

use serde_json::Value;

/// The difference between a definition and the one in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrdChange {
    /// Versions that are new.
    pub added: Vec<String>,
    /// Versions that no longer exist.
    pub dropped: Vec<String>,
    /// Dropped versions in which objects are, or were, stored.
    pub dropped_stored: Vec<String>,
    /// Versions with another schema.
    pub changed: Vec<String>,
    /// Versions that are no longer served.
    pub unserved: Vec<String>,
    /// The storage version before and after, if it changes.
    pub storage: Option<(String, String)>,
}

impl CrdChange {
    /// Compares a definition in the cluster with the one that is to replace it.
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
        let unserved = before
            .iter()
            .filter(|name| after.contains(name) && is_served(live, name) && !is_served(wanted, name));
        let storage = (storage(live), storage(wanted));
        Self {
            added: added.cloned().collect(),
            changed: changed.cloned().collect(),
            dropped_stored: dropped
                .iter()
                .filter(|name| stored.contains(name.as_str()))
                .cloned()
                .collect(),
            unserved: unserved.cloned().collect(),
            dropped,
            storage: match storage {
                (Some(before), Some(after)) if before != after => Some((before.to_owned(), after.to_owned())),
                _ => None,
            },
        }
    }

    /// Reports whether nothing changes.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The versions between which stored objects move when the wanted definition replaces the live one: from the version in
/// which they can be read now, to the same version and, where no webhook converts objects, to the new storage version.
pub fn moves(live: &Value, wanted: &Value) -> Option<(String, Vec<String>)> {
    let from = common_version(live, wanted)?;
    let mut to = vec![from.clone()];
    if wanted["spec"]["conversion"]["strategy"] != "Webhook" {
        to.extend(storage(wanted).filter(|name| *name != from).map(str::to_owned));
    }
    Some((from, to))
}

/// A version that both definitions serve, in which objects can be compared; the storage version if it is among them.
fn common_version(live: &Value, wanted: &Value) -> Option<String> {
    let candidates = storage(live).map(str::to_owned).into_iter().chain(versions(live));
    let mut candidates = candidates.filter(|name| is_served(live, name) && is_served(wanted, name));
    candidates.next()
}

fn is_served(crd: &Value, name: &str) -> bool {
    let mut versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    versions.any(|version| version["name"] == name && version["served"] == true)
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

/// Reports whether a value contains another one. Additions of the API server are no difference.
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
    fn dropped_versions_are_split_by_stored_objects() {
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
        let mut unserved = live.clone();
        unserved["spec"]["versions"][0]["served"] = json!(false);
        let change = CrdChange::between(&live, &unserved);
        assert_eq!((change.unserved, change.dropped), (vec!["v1alpha1".to_owned()], vec![]));
    }

    #[test]
    fn stored_objects_move_to_new_storage_version_without_a_webhook() {
        let plain = || spec(&json!({"size": {"type": "integer"}}));
        let live = crd(&[("v1", plain())], "v1");
        let same = crd(&[("v1", plain()), ("v2", plain())], "v1");
        let mut other = crd(&[("v1", plain()), ("v2", plain())], "v2");
        let moved = |wanted: &Value| moves(&live, wanted).unwrap();
        assert_eq!(moved(&same), ("v1".to_owned(), vec!["v1".to_owned()]));
        assert_eq!(moved(&other), ("v1".to_owned(), vec!["v1".to_owned(), "v2".to_owned()]));
        other["spec"]["conversion"] = json!({"strategy": "Webhook"});
        assert_eq!(moved(&other), ("v1".to_owned(), vec!["v1".to_owned()]));
        assert_eq!(moves(&live, &crd(&[("v2", plain())], "v2")), None);
    }
}
