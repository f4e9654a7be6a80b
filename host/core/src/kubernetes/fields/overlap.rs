//! Compares a field set with what somebody else sets: the fields that both set, and the part at some paths.

use serde_json::{Map, Value};

use super::{FieldSet, FieldSetElement, Trail, step};
use crate::kubernetes::path::FieldPath;

impl FieldSet {
    /// The paths of the set that a desired object sets, too. The key fields of an item belong to everybody who names it.
    pub fn shared(&self, desired: &Map<String, Value>) -> Vec<String> {
        let mut shared = Vec::new();
        for (element, child) in &self.children {
            if let FieldSetElement::Field(name) = element
                && let Some(value) = desired.get(name)
            {
                child.shared_at(value, &Trail::root(name), None, &mut shared);
            }
        }
        shared
    }

    /// The paths of the fields of members in the set, without those of items.
    pub fn leaves(&self) -> Vec<String> {
        let mut leaves = Vec::new();
        for (element, child) in &self.children {
            if let FieldSetElement::Field(name) = element {
                child.leaves_at(&Trail::root(name), &mut leaves);
            }
        }
        leaves
    }

    fn leaves_at(&self, trail: &Trail<'_>, leaves: &mut Vec<String>) {
        if self.is_leaf_set() {
            leaves.push(trail.path());
        }
        for (element, child) in &self.children {
            if let FieldSetElement::Field(name) = element {
                child.leaves_at(&trail.member(name), leaves);
            }
        }
    }

    /// Reports whether the set has no members: that of a value that is held whole.
    pub fn is_leaf_set(&self) -> bool {
        self.is_leaf() && !self.itself
    }

    /// Reports whether a location of members is in the set.
    pub fn has(&self, location: &[String]) -> bool {
        let mut names = location.iter();
        names.try_fold(self, |set, name| set.below(name)).is_some()
    }

    /// The part of the set at paths of members. What is held whole around a path stays.
    #[must_use]
    pub fn only(&self, paths: &[FieldPath]) -> Self {
        let paths: Vec<Vec<&str>> = paths.iter().filter_map(|path| path.names().collect()).collect();
        let paths: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
        self.only_at(&paths)
    }

    fn only_at(&self, paths: &[&[&str]]) -> Self {
        if paths.iter().any(|path| path.is_empty()) {
            return self.clone();
        }
        let mut only = Self::default();
        for (element, child) in &self.children {
            step();
            let FieldSetElement::Field(name) = element else {
                continue;
            };
            let within = paths.iter().filter(|path| path.first() == Some(&name.as_str()));
            let within: Vec<&[&str]> = within.map(|path| &path[1..]).collect();
            if within.is_empty() {
                continue;
            }
            let part = child.only_at(&within);
            if child.is_leaf_set() || !part.is_empty() || within.iter().any(|path| path.is_empty()) {
                only.children.push((element.clone(), part));
            }
        }
        only
    }

    fn shared_at(&self, value: &Value, trail: &Trail<'_>, key: Option<&Value>, shared: &mut Vec<String>) {
        if self.children.is_empty() {
            // Who holds a map or a list alone (`.`) holds nothing in it.
            if !(self.itself && (value.is_object() || value.is_array())) {
                shared.push(trail.path());
            }
            return;
        }
        let mut items = vec![None; self.children.len()];
        let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
        for (item, position) in list.iter().zip(self.positions(Some(value))) {
            if let Some(position) = position {
                items[position] = Some(item);
            }
        }
        for ((element, child), item) in self.children.iter().zip(items) {
            step();
            match element {
                FieldSetElement::Field(name) if key.is_some_and(|key| key.get(name).is_some()) => {}
                FieldSetElement::Field(name) => {
                    if let Some(value) = value.get(name) {
                        child.shared_at(value, &trail.member(name), None, shared);
                    }
                }
                element => {
                    let Some(item) = item else { continue };
                    let text = element.text();
                    let text = text.split_once(':').map_or(&*text, |(_, text)| text);
                    let key = if let FieldSetElement::Key(key) = element {
                        Some(key)
                    } else {
                        None
                    };
                    child.shared_at(item, &trail.item(text), key, shared);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shared(set: Value, desired: &Value) -> Vec<String> {
        let set: FieldSet = serde_json::from_value(set).unwrap();
        set.shared(desired.as_object().unwrap())
    }

    #[test]
    fn fields_that_both_set_are_named() {
        let desired = json!({
            "metadata": {"labels": {"a": "1", "b": "2"}, "annotations": {"c": "3"}},
            "spec": {"replicas": 1, "containers": [{"name": "web", "image": "web:1"}], "args": ["x"]},
        });
        let set = json!({
            "f:metadata": {"f:labels": {".": {}, "f:a": {}, "f:z": {}}, "f:annotations": {".": {}}},
            "f:spec": {"f:paused": {}, "f:args": {}, "f:containers": {
                "k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {}},
                "k:{\"name\":\"other\"}": {".": {}, "f:name": {}, "f:image": {}},
            }},
        });
        assert_eq!(
            shared(set, &desired),
            [
                ".metadata.labels.a",
                ".spec.args",
                r#".spec.containers[{"name":"web"}].image"#
            ]
        );
    }

    #[test]
    fn the_part_at_some_paths_has_what_is_held_whole_around_them() {
        let set = json!({"f:spec": {"f:replicas": {}, "f:selector": {}, "f:template": {"f:spec": {"f:a": {}}}}, "f:data": {"f:k": {}}});
        let set: FieldSet = serde_json::from_value(set).unwrap();
        let paths = [
            ".spec.replicas",
            ".spec.selector.app",
            ".spec.template.metadata",
            ".status",
        ];
        let only = set.only(&paths.map(|path| FieldPath::parse(path).unwrap()));
        let expected = json!({"f:spec": {"f:replicas": {}, "f:selector": {}}});
        assert_eq!(only.leaves(), [".spec.replicas", ".spec.selector"]);
        assert_eq!(serde_json::to_value(only).unwrap(), expected);
    }

    #[test]
    fn who_names_the_same_item_alone_shares_no_field() {
        let desired = json!({"spec": {"ports": [{"port": 80, "protocol": "TCP", "name": "http"}]}});
        let set = json!({"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:protocol": {}}}}});
        assert!(shared(set, &desired).is_empty());
    }
}
