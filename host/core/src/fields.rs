//! Owns the field sets of managedFields (`FieldsV1`): reading one, putting its list items into the order of the live
//! object, and asking whether each leaf of a desired object is in it.
//!
//! Format: <https://github.com/kubernetes-sigs/structured-merge-diff>, `fieldpath/serialize.go`: an object whose
//! members are `f:<name>`, `k:<key fields as JSON>`, `v:<value as JSON>`, `i:<index>`, and `.` for the node itself.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

/// The deepest field set that is read. The API server allows objects no deeper than this.
const MAX_DEPTH: usize = 128;

/// A set of fields, as a tree in a fixed order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Whether the node itself is a member (`.`).
    itself: bool,
    children: Vec<(Element, FieldSet)>,
}

/// One step of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    /// A member of an object.
    Field(String),
    /// An item of a map list, by its key fields.
    Key(Value),
    /// An item of a set list, by its value.
    Item(Value),
    /// An item by position, or something that a later server invented.
    Other(String),
}

impl Element {
    fn parse(text: &str) -> Self {
        let json = |text: &str| serde_json::from_str(text).ok();
        match text.split_at_checked(2) {
            Some(("f:", name)) => Self::Field(name.to_owned()),
            Some(("k:", key)) => json(key).map_or_else(|| Self::Other(text.to_owned()), Self::Key),
            Some(("v:", value)) => json(value).map_or_else(|| Self::Other(text.to_owned()), Self::Item),
            _ => Self::Other(text.to_owned()),
        }
    }

    fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Field(name) => Cow::Owned(format!("f:{name}")),
            Self::Key(key) => Cow::Owned(format!("k:{key}")),
            Self::Item(value) => Cow::Owned(format!("v:{value}")),
            Self::Other(text) => Cow::Borrowed(text),
        }
    }
}

/// Whether a field set, as text, names several items of one list: only then does their order in the live object say
/// anything. Nothing is kept of the text, so that this costs little where it says no.
pub fn names_several_items(text: &str) -> Result<bool, serde_json::Error> {
    serde_json::from_str::<SeveralItems>(text).map(|SeveralItems(several)| several)
}

struct SeveralItems(bool);

impl<'de> Deserialize<'de> for SeveralItems {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SetVisitor;
        impl<'de> Visitor<'de> for SetVisitor {
            type Value = SeveralItems;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a FieldsV1 object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SeveralItems, A::Error> {
                let (mut items, mut below) = (0, false);
                while let Some(IsItem(is_item)) = map.next_key()? {
                    items += usize::from(is_item);
                    let SeveralItems(several) = map.next_value()?;
                    below |= several;
                }
                Ok(SeveralItems(below || items > 1))
            }
        }
        deserializer.deserialize_map(SetVisitor)
    }
}

/// Whether a member of a field set is an item of a list that has an order.
struct IsItem(bool);

impl<'de> Deserialize<'de> for IsItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl Visitor<'_> for NameVisitor {
            type Value = IsItem;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a member of a FieldsV1 object")
            }

            fn visit_str<E>(self, name: &str) -> Result<IsItem, E> {
                Ok(IsItem(name.starts_with("k:") || name.starts_with("v:")))
            }
        }
        deserializer.deserialize_str(NameVisitor)
    }
}

impl<'de> Deserialize<'de> for FieldSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SetVisitor;
        impl<'de> Visitor<'de> for SetVisitor {
            type Value = FieldSet;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a FieldsV1 object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FieldSet, A::Error> {
                let mut set = FieldSet::default();
                while let Some(name) = map.next_key::<Cow<'de, str>>()? {
                    let child: FieldSet = map.next_value()?;
                    if name == "." {
                        set.itself = true;
                    } else {
                        set.children.push((Element::parse(&name), child));
                    }
                }
                Ok(set)
            }
        }
        deserializer.deserialize_map(SetVisitor)
    }
}

impl Serialize for FieldSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.children.len() + usize::from(self.itself)))?;
        if self.itself {
            map.serialize_entry(".", &FieldSet::default())?;
        }
        for (element, child) in &self.children {
            map.serialize_entry(&element.text(), child)?;
        }
        map.end()
    }
}

impl FieldSet {
    /// What is below, step by step.
    pub(crate) fn children(&self) -> &[(Element, Self)] {
        &self.children
    }

    fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }

    fn field(&self, name: &str) -> Option<&Self> {
        self.children.iter().find_map(|(element, child)| match element {
            Element::Field(field) if field == name => Some(child),
            _ => None,
        })
    }

    /// The set at an object's member, such as `status`.
    pub fn below(&self, name: &str) -> Option<&Self> {
        self.field(name)
    }

    /// Whether the set, of a map list, has an item with the key fields of this one.
    pub fn has_item_like(&self, item: &Value) -> bool {
        self.children
            .iter()
            .any(|(element, _)| matches!(element, Element::Key(key) if has_key(item, key)))
    }

    /// Puts the items of map and set lists into the order in which they stand in the live object, so that the order
    /// can be compared later without keeping the lists.
    pub fn order_as(&mut self, live: &Value) {
        self.order_below(live, 0);
    }

    fn order_below(&mut self, live: &Value, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        match live {
            Value::Object(members) => {
                for (element, child) in &mut self.children {
                    if let Element::Field(name) = element
                        && let Some(value) = members.get(name)
                    {
                        child.order_below(value, depth + 1);
                    }
                }
            }
            Value::Array(items) => {
                for (element, child) in &mut self.children {
                    if let Element::Key(key) = element
                        && let Some(item) = items.iter().find(|item| has_key(item, key))
                    {
                        child.order_below(item, depth + 1);
                    }
                }
                self.children.sort_by_key(|(element, _)| {
                    items.iter().position(|item| match element {
                        Element::Key(key) => has_key(item, key),
                        Element::Item(value) => item == value,
                        Element::Field(_) | Element::Other(_) => false,
                    })
                });
            }
            _ => {}
        }
    }

    /// The paths of the desired object that are not in this set or stand in another order; empty when the desired
    /// object is held as it was applied.
    ///
    /// No value is compared: whoever changes a value of ours takes the field out of our set.
    pub fn missing(&self, desired: &Map<String, Value>) -> Vec<String> {
        let mut missing = Vec::new();
        for (name, value) in desired {
            match name.as_str() {
                "apiVersion" | "kind" => {}
                "metadata" => self.missing_metadata(value, &mut missing),
                _ => self.missing_member(name, value, "", &mut missing),
            }
        }
        missing
    }

    /// The server keeps names out of field sets.
    fn missing_metadata(&self, metadata: &Value, missing: &mut Vec<String>) {
        let none = Self::default();
        let set = self.field("metadata").unwrap_or(&none);
        for (name, value) in metadata.as_object().into_iter().flatten() {
            if name != "name" && name != "namespace" {
                set.missing_member(name, value, ".metadata", missing);
            }
        }
    }

    fn missing_member(&self, name: &str, value: &Value, path: &str, missing: &mut Vec<String>) {
        let path = format!("{path}.{name}");
        match self.field(name) {
            None => missing.push(path),
            // Nothing below: a scalar, an empty value, or a subtree that the schema calls atomic.
            Some(set) if set.is_leaf() => {}
            Some(set) => set.missing_value(value, &path, missing),
        }
    }

    fn missing_value(&self, value: &Value, path: &str, missing: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    self.missing_member(name, value, path, missing);
                }
            }
            Value::Array(items) => self.missing_items(items, path, missing),
            _ => {}
        }
    }

    fn missing_items(&self, items: &[Value], path: &str, missing: &mut Vec<String>) {
        let positions = self.positions(items);
        let mut last = None;
        for (item, position) in items.iter().zip(positions) {
            let Some(position) = position else {
                missing.push(format!("{path}[{item}]"));
                continue;
            };
            if last.is_some_and(|last| last > position) {
                missing.push(format!("{path} (order)"));
            }
            last = Some(position);
            let (element, set) = &self.children[position];
            if matches!(element, Element::Key(_)) && !set.is_leaf() {
                set.missing_value(item, &format!("{path}[{}]", &element.text()[2..]), missing);
            }
        }
    }

    /// Which child of the set each item is. The server fills in defaults for key fields that an item does not give,
    /// so exact keys are found first, and items that give fewer key fields take what is left over.
    fn positions(&self, items: &[Value]) -> Vec<Option<usize>> {
        let mut taken = vec![false; self.children.len()];
        let mut positions = vec![None; items.len()];
        for exact in [true, false] {
            for (item, found) in items.iter().zip(&mut positions) {
                if found.is_some() {
                    continue;
                }
                *found = self.children.iter().enumerate().position(|(index, (element, _))| {
                    !taken[index]
                        && match element {
                            Element::Key(key) if exact => has_key(item, key),
                            Element::Key(key) => may_have_key(item, key),
                            Element::Item(value) => value == item,
                            Element::Field(_) | Element::Other(_) => false,
                        }
                });
                if let Some(index) = *found {
                    taken[index] = true;
                }
            }
        }
        positions
    }

    /// The paths of the set that the desired object has not: applying it would remove them.
    pub fn surplus(&self, desired: &Map<String, Value>) -> Vec<String> {
        let mut surplus = Vec::new();
        self.surplus_in(&Value::Object(desired.clone()), "", &mut surplus);
        surplus
    }

    fn surplus_in(&self, value: &Value, path: &str, surplus: &mut Vec<String>) {
        let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
        let positions = self.positions(items);
        for (index, (element, child)) in self.children.iter().enumerate() {
            let (found, path) = match element {
                Element::Field(name) => (value.get(name), format!("{path}.{name}")),
                other => {
                    let item = positions.iter().position(|position| *position == Some(index));
                    let text = other.text();
                    let key = text.split_once(':').map_or(&*text, |(_, key)| key);
                    (item.map(|item| &items[item]), format!("{path}[{key}]"))
                }
            };
            match (found, element) {
                (None, _) => surplus.push(path),
                // What the server filled in of the key is not ours to remove.
                (Some(item), Element::Key(key)) => child.without(key).surplus_in(item, &path, surplus),
                (Some(value), _) => child.surplus_in(value, &path, surplus),
            }
        }
    }

    /// The set without the fields of a key.
    fn without(&self, key: &Value) -> Self {
        let is_key = |element: &Element| matches!(element, Element::Field(name) if key.get(name).is_some());
        let others = self.children.iter().filter(|(element, _)| !is_key(element));
        Self {
            itself: self.itself,
            children: others.cloned().collect(),
        }
    }

    /// Whether every member of the set stands in the value, so that applying the value would not remove anything.
    pub fn is_within(&self, value: &Value) -> bool {
        self.children.iter().all(|(element, child)| {
            let found = match (element, value) {
                (Element::Field(name), Value::Object(members)) => members.get(name),
                (Element::Key(key), Value::Array(items)) => items.iter().find(|item| may_have_key(item, key)),
                (Element::Item(item), Value::Array(items)) => items.iter().find(|it| *it == item),
                _ => None,
            };
            match (found, element) {
                (Some(value), _) => child.is_leaf() || child.is_within(value),
                // A key field that the server filled in.
                (None, _) => false,
            }
        })
    }
}

/// Whether the item has all of the key's fields with the key's values.
fn has_key(item: &Value, key: &Value) -> bool {
    key.as_object()
        .is_some_and(|key| key.iter().all(|(name, value)| item.get(name) == Some(value)))
}

/// Whether the item has none of the key's fields with another value, and at least one with the same.
fn may_have_key(item: &Value, key: &Value) -> bool {
    key.as_object().is_some_and(|key| {
        key.iter()
            .all(|(name, value)| item.get(name).is_none_or(|own| own == value))
            && key.iter().any(|(name, value)| item.get(name) == Some(value))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn missing(set: &FieldSet, desired: &Value) -> Vec<String> {
        set.missing(desired.as_object().unwrap())
    }

    fn set(value: &Value) -> FieldSet {
        serde_json::from_value(value.clone()).unwrap()
    }

    /// What a real API server keeps for a Service applied with two ports named 53, one without a protocol.
    fn service_set() -> FieldSet {
        serde_json::from_str(
            r#"{"f:metadata":{"f:labels":{"f:app":{}}},
                "f:spec":{"f:selector":{},"f:ports":{
                    "k:{\"port\":53,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{}},
                    "k:{\"port\":53,\"protocol\":\"UDP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{}}}}}"#,
        )
        .unwrap()
    }

    fn service() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "dns", "namespace": "a", "labels": {"app": "dns"}},
            "spec": {"selector": {"app": "dns"}, "ports": [
                {"name": "tcp", "port": 53},
                {"name": "udp", "port": 53, "protocol": "UDP"}]}
        })
    }

    #[test]
    fn several_items_of_one_list_are_told_from_one_item_of_several() {
        let several = |set: &Value| names_several_items(&set.to_string()).unwrap();
        let port = json!({"k:{\"port\":53,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}});
        assert!(!several(
            &json!({".": {}, "f:a": {}, "f:b": {}, "f:ports": port, "f:others": port})
        ));
        assert!(several(&json!({"f:spec": {"f:list": {"v:1": {}, "v:2": {}}}})));
        assert!(several(&serde_json::to_value(service_set()).unwrap()));
        assert!(names_several_items("[]").is_err());
    }

    #[test]
    fn what_was_applied_is_found_whole() {
        assert_eq!(missing(&service_set(), &service()), Vec::<String>::new());
    }

    #[test]
    fn a_field_that_somebody_took_is_missing() {
        let mut taken = service_set();
        let FieldSet { children, .. } = &mut taken;
        children.remove(0);
        assert_eq!(missing(&taken, &service()), [".metadata.labels"]);

        let name_taken = set(&json!({"f:metadata": {"f:labels": {"f:app": {}}},
            "f:spec": {"f:selector": {}, "f:ports": {
                "k:{\"port\":53,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}},
                "k:{\"port\":53,\"protocol\":\"UDP\"}": {".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}}}}}));
        assert_eq!(
            missing(&name_taken, &service()),
            [r#".spec.ports[{"port":53,"protocol":"TCP"}].name"#]
        );
    }

    #[test]
    fn an_item_that_is_gone_is_missing() {
        let mut service = service();
        service["spec"]["ports"][0]["port"] = json!(54);
        assert_eq!(
            missing(&service_set(), &service),
            [r#".spec.ports[{"name":"tcp","port":54}]"#]
        );
    }

    #[test]
    fn another_order_is_missing_once_the_set_has_the_order_of_the_live_object() {
        let mut live = service();
        live["spec"]["ports"].as_array_mut().unwrap().reverse();
        live["spec"]["ports"][1]["protocol"] = json!("TCP");
        let mut ordered = service_set();
        ordered.order_as(&live);
        assert_eq!(missing(&ordered, &service()), [".spec.ports (order)"]);
        let text = serde_json::to_string(&ordered).unwrap();
        assert_eq!(
            serde_json::from_str::<FieldSet>(&text).unwrap(),
            ordered,
            "the order survives being stored"
        );
    }

    #[test]
    fn a_leaf_over_a_subtree_is_atomic() {
        let atomic = set(&json!({"f:spec": {"f:selector": {}}}));
        assert_eq!(
            missing(&atomic, &json!({"spec": {"selector": {"app": "a"}}})),
            Vec::<String>::new()
        );
    }

    #[test]
    fn items_of_set_lists_are_found_by_value_and_order() {
        let finalizers = set(&json!({"f:metadata": {"f:finalizers": {"v:\"a\"": {}, "v:\"b\"": {}}}}));
        let desired = |items: Value| json!({"metadata": {"finalizers": items}});
        assert_eq!(missing(&finalizers, &desired(json!(["a", "b"]))), Vec::<String>::new());
        assert_eq!(
            missing(&finalizers, &desired(json!(["b", "a"]))),
            [".metadata.finalizers (order)"]
        );
        assert_eq!(
            missing(&finalizers, &desired(json!(["a", "c"]))),
            [r#".metadata.finalizers["c"]"#]
        );
    }

    #[test]
    fn what_is_no_longer_desired_is_surplus() {
        assert_eq!(
            service_set().surplus(service().as_object().unwrap()),
            Vec::<String>::new()
        );
        let mut less = service();
        less["metadata"] = json!({"name": "dns"});
        less["spec"]["ports"].as_array_mut().unwrap().pop();
        assert_eq!(
            service_set().surplus(less.as_object().unwrap()),
            [".metadata.labels", r#".spec.ports[{"port":53,"protocol":"UDP"}]"#]
        );
    }

    #[test]
    fn a_set_within_a_value_has_nothing_that_the_value_lacks() {
        let status = set(&json!({"f:ready": {}, "f:conditions": {"k:{\"type\":\"A\"}": {".": {}, "f:type": {}}}}));
        assert!(status.is_within(&json!({"ready": true, "conditions": [{"type": "A"}]})));
        assert!(!status.is_within(&json!({"ready": true, "conditions": [{"type": "B"}]})));
        assert!(!status.is_within(&json!({"conditions": [{"type": "A"}]})));
    }
}
