//! Finds the fields that a desired object leaves to other managers: those that it yields and that another one sets.
//!
//! A field is given up by an apply without it, which keeps the value only while another manager holds the field. So only what another
//! one holds is left out, leaf by leaf; of a list that is merged item by item, nothing.

use serde_json::{Map, Value};

use crate::kubernetes::fields::FieldSet;
use crate::kubernetes::path::FieldPath;

/// A field that is left to another manager: the names of the members that lead to it.
pub type Location = Vec<String>;

/// The fields of other managers than `own` in an object's managedFields. A status is nobody's but its controller's.
pub fn others(managed: &[Value], own: &str) -> Vec<FieldSet> {
    let others = managed
        .iter()
        .filter(|entry| entry["manager"] != own && entry["subresource"] != "status");
    others
        .filter_map(|entry| serde_json::from_value(entry["fieldsV1"].clone()).ok())
        .collect()
}

/// The fields of a body that are left to others.
pub fn yielded(
    yields: &[FieldPath],
    body: &Map<String, Value>,
    ours: Option<&FieldSet>,
    others: &[FieldSet],
) -> Vec<Location> {
    let mut walk = Walk {
        location: Vec::new(),
        found: Vec::new(),
    };
    for path in yields {
        let names: Option<Vec<&str>> = path.names().collect();
        let Some((first, rest)) = names.as_ref().and_then(|names| names.split_first()) else {
            continue;
        };
        if let Some(value) = body.get(*first) {
            let others = below(others.iter(), first);
            walk.member(first, rest, value, ours.and_then(|ours| ours.below(first)), &others);
        }
    }
    walk.found
}

fn below<'a>(sets: impl Iterator<Item = &'a FieldSet>, name: &str) -> Vec<&'a FieldSet> {
    sets.filter_map(|set| set.below(name)).collect()
}

struct Walk<'a> {
    location: Vec<&'a str>,
    found: Vec<Location>,
}

impl<'a> Walk<'a> {
    /// Walks from a member along the rest of a path, and then to all leaves.
    fn member(
        &mut self,
        name: &'a str,
        rest: &[&'a str],
        value: &'a Value,
        ours: Option<&FieldSet>,
        others: &[&FieldSet],
    ) {
        if others.is_empty() {
            return;
        }
        self.location.push(name);
        // A set without members is that of a value that is held whole, or of a map that was emptied: ours tells.
        let is_merged = ours.is_some_and(|ours| !ours.is_leaf_set());
        if !is_merged && others.iter().any(|set| set.is_leaf_set()) {
            let path = self.location.iter().chain(rest);
            self.found.push(path.map(|name| (*name).to_owned()).collect());
        } else if let Value::Object(members) = value {
            let is_next = |name: &str| rest.first().is_none_or(|next| *next == name);
            for (name, value) in members.iter().filter(|(name, _)| is_next(name)) {
                let others = below(others.iter().copied(), name);
                let ours = ours.and_then(|ours| ours.below(name));
                self.member(name, rest.get(1..).unwrap_or_default(), value, ours, &others);
            }
        }
        self.location.pop();
    }
}

/// Removes fields from a body, and objects that become empty by that.
pub fn without(body: &Map<String, Value>, fields: &[Location]) -> Map<String, Value> {
    let mut body = body.clone();
    for field in fields {
        cut(&mut body, field);
    }
    body
}

fn cut(members: &mut Map<String, Value>, field: &[String]) {
    match field {
        [] => {}
        [last] => _ = members.remove(last),
        [first, rest @ ..] => {
            let Some(Value::Object(below)) = members.get_mut(first) else {
                return;
            };
            cut(below, rest);
            if below.is_empty() {
                members.remove(first);
            }
        }
    }
}

/// The path of a field for messages, such as `.spec.replicas`.
pub fn display(field: &Location) -> String {
    format!(".{}", field.join("."))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(fields: Value) -> FieldSet {
        serde_json::from_value(fields).unwrap()
    }

    fn yielded_of(yields: &[&str], ours: Value, others: &[Value]) -> Vec<String> {
        let body = json!({
            "metadata": {"labels": {"a": "1", "b": "2"}},
            "spec": {"replicas": 2, "selector": {"app": "x"}, "ports": [{"port": 80}], "paused": false},
        });
        let yields: Vec<FieldPath> = yields.iter().map(|path| FieldPath::parse(path).unwrap()).collect();
        let others: Vec<FieldSet> = others.iter().cloned().map(set).collect();
        let found = yielded(&yields, body.as_object().unwrap(), Some(&set(ours)), &others);
        found.iter().map(display).collect()
    }

    #[test]
    fn a_field_is_yielded_once_another_manager_holds_it() {
        let ours = || json!({"f:spec": {"f:replicas": {}, "f:paused": {}}});
        let theirs = json!({"f:spec": {"f:replicas": {}, "f:paused": {}}});
        let replicas = [".spec.replicas"];
        assert_eq!(
            yielded_of(&replicas, ours(), &[theirs]),
            [".spec.replicas"],
            "and no other"
        );
        assert!(yielded_of(&replicas, ours(), &[]).is_empty());
        assert!(yielded_of(&replicas, ours(), &[json!({"f:spec": {"f:paused": {}}})]).is_empty());
    }

    #[test]
    fn of_a_map_only_what_another_manager_holds_is_yielded() {
        let ours = json!({"f:metadata": {"f:labels": {"f:a": {}, "f:b": {}}}});
        let theirs = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}, "f:z": {}}}});
        assert_eq!(
            yielded_of(&[".metadata.labels"], ours.clone(), &[theirs]),
            [".metadata.labels.a"]
        );
        let emptied = json!({"f:metadata": {"f:labels": {}}});
        assert!(
            yielded_of(&[".metadata.labels"], ours, &[emptied]).is_empty(),
            "b would be removed"
        );
    }

    #[test]
    fn what_another_manager_holds_whole_is_yielded_whole() {
        let theirs = json!({"f:spec": {"f:selector": {}, "f:ports": {}}});
        let ours = || json!({"f:spec": {"f:replicas": {}}});
        assert_eq!(
            yielded_of(&[".spec.selector.app", ".spec.ports"], ours(), &[theirs]),
            [".spec.selector.app", ".spec.ports"]
        );
        let item = json!({"f:spec": {"f:ports": {"k:{\"port\":80}": {".": {}, "f:port": {}}}}});
        assert!(
            yielded_of(&[".spec.ports"], ours(), &[item]).is_empty(),
            "items of ours would be removed"
        );
    }

    #[test]
    fn entries_of_the_status_and_our_own_do_not_count() {
        let entry = |manager: &str, subresource: &str| json!({"manager": manager, "subresource": subresource, "fieldsV1": {"f:spec": {"f:replicas": {}}}});
        let managed = [
            entry("pilothouse/p", ""),
            entry("kubelet", "status"),
            entry("hpa", "scale"),
        ];
        assert_eq!(others(&managed, "pilothouse/p").len(), 1);
    }

    #[test]
    fn an_object_that_becomes_empty_is_left_out() {
        let body = json!({"spec": {"a": {"b": 1}, "c": {}}});
        let field = ["spec", "a", "b"].map(str::to_owned).to_vec();
        let rest = without(body.as_object().unwrap(), &[field]);
        assert_eq!(Value::Object(rest), json!({"spec": {"c": {}}}));
    }
}
