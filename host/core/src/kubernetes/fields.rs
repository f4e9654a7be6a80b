//! Reads the field sets of managedFields (`FieldsV1`), puts their list items into the order of the live object, and
//! finds the leaves of a desired object that are missing in a set.
//!
//! Objects of any client are walked on each watch event, so a walk takes at most one look-up (`items.rs`) for each
//! field.
//!
//! Format: <https://github.com/kubernetes-sigs/structured-merge-diff>, `fieldpath/serialize.go`: an object whose
//! members are `f:<name>`, `k:<key fields as JSON>`, `v:<value as JSON>`, `i:<index>`, and `.` for the node itself.

mod items;
mod overlap;
mod trail;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::kubernetes::key::Kind;
use crate::kubernetes::types::{Shape, Types};

pub(crate) use items::{ItemIndex, Likeness, value_text};
pub(crate) use trail::Trail;

/// The deepest field set that is read. The API server allows objects no deeper than this.
const MAX_DEPTH: usize = 128;

/// A set of fields, as a tree in a fixed order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Set if the node itself is a member (`.`).
    itself: bool,
    /// The members of an object by name, followed by the items of a list.
    children: Vec<(FieldSetElement, FieldSet)>,
}

/// A step of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldSetElement {
    /// A member of an object.
    Field(String),
    /// An item of a map list, by its key fields.
    Key(Value),
    /// An item of a set list, by its value.
    Item(Value),
    /// An item by position, or a form that a later server introduced.
    Other(String),
}

impl FieldSetElement {
    fn parse(text: &str) -> Self {
        let json = |text: &str| serde_json::from_str(text).ok();
        match text.split_at_checked(2) {
            Some(("f:", name)) => Self::Field(name.to_owned()),
            Some(("k:", key)) => json(key).map_or_else(|| Self::Other(text.to_owned()), Self::Key),
            Some(("v:", value)) => json(value).map_or_else(|| Self::Other(text.to_owned()), Self::Item),
            _ => Self::Other(text.to_owned()),
        }
    }

    pub(crate) fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Field(name) => Cow::Owned(format!("f:{name}")),
            Self::Key(key) => Cow::Owned(format!("k:{key}")),
            Self::Item(value) => Cow::Owned(format!("v:{value}")),
            Self::Other(text) => Cow::Borrowed(text),
        }
    }
}

/// Reports whether a field set, as text, names several items of one list. Only then does their order in the live object
/// matter. Nothing of the text is stored, so the check is cheap.
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

/// Set if a member of a field set is an item of a list that has an order.
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
                        set.children.push((FieldSetElement::parse(&name), child));
                    }
                }
                set.sort();
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
    /// The children, by step.
    pub(crate) fn children(&self) -> &[(FieldSetElement, Self)] {
        &self.children
    }

    fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }

    fn sort(&mut self) {
        let order =
            |(element, _): &(FieldSetElement, Self), (other, _): &(FieldSetElement, Self)| match (element, other) {
                (FieldSetElement::Field(one), FieldSetElement::Field(other)) => one.cmp(other),
                (FieldSetElement::Field(_), _) => Ordering::Less,
                (_, FieldSetElement::Field(_)) => Ordering::Greater,
                _ => Ordering::Equal,
            };
        if !self.children.is_sorted_by(|one, other| order(one, other).is_le()) {
            self.children.sort_by(order);
        }
    }

    fn field(&self, name: &str) -> Option<&Self> {
        let found = self.children.binary_search_by(|(element, _)| {
            step();
            match element {
                FieldSetElement::Field(field) => field.as_str().cmp(name),
                _ => Ordering::Greater,
            }
        });
        found.ok().map(|index| &self.children[index].1)
    }

    /// The set below one step. For many items use [`FieldSet::by_item`].
    pub(crate) fn child(&self, element: &FieldSetElement) -> Option<&Self> {
        match element {
            FieldSetElement::Field(name) => self.field(name),
            _ => self.children.iter().find_map(|(own, child)| {
                step();
                (own == element).then_some(child)
            }),
        }
    }

    /// The sets below the items of a list, by the text of their steps.
    pub(crate) fn by_item(&self) -> HashMap<Cow<'_, str>, &Self> {
        let items = self.children.iter();
        let items = items.filter(|(element, _)| !matches!(element, FieldSetElement::Field(_)));
        items
            .map(|(element, child)| {
                step();
                (element.text(), child)
            })
            .collect()
    }

    /// Reports whether the set has no members.
    pub fn is_empty(&self) -> bool {
        !self.itself && self.children.is_empty()
    }

    /// Adds whole fields.
    pub(crate) fn add(&mut self, locations: &[impl AsRef<[FieldSetElement]>]) {
        self.add_below(locations.iter().map(AsRef::as_ref));
    }

    fn add_below<'a>(&mut self, locations: impl Iterator<Item = &'a [FieldSetElement]>) {
        let mut branches = branches(locations);
        for (element, child) in &mut self.children {
            if let Some(Branch { below, .. }) = branches.remove(&element.text()) {
                child.add_below(below.into_iter());
            }
        }
        let mut new: Vec<Branch<'a>> = branches.into_values().collect();
        new.sort_by_key(|branch| branch.position);
        for Branch { element, below, .. } in new {
            let mut child = Self::default();
            child.add_below(below.into_iter());
            self.children.push((element.clone(), child));
        }
        self.sort();
    }

    /// Removes fields with everything below them, and parents that become empty.
    pub(crate) fn cut(&mut self, locations: &[impl AsRef<[FieldSetElement]>]) {
        self.cut_below(locations.iter().map(AsRef::as_ref));
    }

    fn cut_below<'a>(&mut self, locations: impl Iterator<Item = &'a [FieldSetElement]>) {
        let branches = branches(locations);
        self.children.retain_mut(|(element, child)| {
            step();
            let Some(Branch { below, .. }) = branches.get(&element.text()) else {
                return true;
            };
            let is_cut = below.iter().any(|rest| rest.is_empty());
            let had_parts = !child.children.is_empty();
            child.cut_below(below.iter().copied());
            !(is_cut || had_parts && child.is_empty())
        });
    }

    /// The set at an object's member, such as `status`.
    pub fn below(&self, name: &str) -> Option<&Self> {
        self.field(name)
    }

    /// The position of the child that names each item of a list, if there is one.
    pub fn names_of_items(&self, list: &Value) -> Vec<Option<usize>> {
        let mut index = ItemIndex::new(Some(list));
        let mut names = vec![None; list.as_array().map_or(0, Vec::len)];
        for (child, (element, _)) in self.children.iter().enumerate() {
            for position in index.find_all(element, Likeness::Exact) {
                names[position].get_or_insert(child);
            }
        }
        names
    }

    /// Puts the items of map and set lists into the order of the live object, so that the order can be compared later
    /// without keeping the lists.
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
                    step();
                    if let FieldSetElement::Field(name) = element
                        && let Some(value) = members.get(name)
                    {
                        child.order_below(value, depth + 1);
                    }
                }
            }
            Value::Array(items) => {
                let mut index = ItemIndex::new(Some(live));
                let children = std::mem::take(&mut self.children).into_iter();
                let mut children: Vec<_> = children
                    .map(|(element, mut child)| {
                        let position = index.find(&element, Likeness::Exact);
                        if let (FieldSetElement::Key(_), Some(position)) = (&element, position) {
                            child.order_below(&items[position], depth + 1);
                        }
                        (position, (element, child))
                    })
                    .collect();
                children.sort_by_key(|(position, _)| *position);
                self.children = children.into_iter().map(|(_, child)| child).collect();
            }
            _ => {}
        }
    }

    /// The leaves of the desired object that are missing in this set, or have another order.
    ///
    /// Values are not compared: a manager that changes a value of ours takes the field out of our set.
    ///
    /// The set alone is ambiguous. A map's key is a member of it beside its children (`f:a: {".": {}, "f:weight":
    /// {}}`). A key whose value was emptied is left as `f:a: {}`, which is also the form of a value that is held as a
    /// whole. `reading` tells the two apart.
    pub fn missing(&self, desired: &Map<String, Value>, reading: LeafSemantics<'_>) -> Missing {
        let mut walk = Walk {
            reading,
            missing: Missing::default(),
        };
        let shape = reading.types().map(Types::root);
        for (name, value) in desired {
            match name.as_str() {
                "apiVersion" | "kind" => {}
                "metadata" => self.missing_metadata(value, &mut walk),
                _ => walk.member(self, value, &Trail::root(name), name, shape),
            }
        }
        walk.missing
    }

    /// Adds the missing leaves of the metadata. The server keeps names out of field sets. The metadata's types are the
    /// same for all kinds, and its maps contain nothing but texts, so none of its leaves was emptied.
    fn missing_metadata(&self, metadata: &Value, walk: &mut Walk<'_>) {
        let none = Self::default();
        let set = self.field("metadata").unwrap_or(&none);
        let around = Trail::root("metadata");
        let mut within = Walk {
            reading: LeafSemantics::AsApplied,
            missing: Missing::default(),
        };
        for (name, value) in metadata.as_object().into_iter().flatten() {
            if name != "name" && name != "namespace" {
                within.member(set, value, &around.member(name), name, None);
            }
        }
        walk.missing.paths.append(&mut within.missing.paths);
    }

    /// The child of the set for each item. The server defaults key fields that an item omits, so exact keys are matched
    /// first, then items that omit some key fields, and last items that omit all.
    pub(crate) fn positions(&self, list: Option<&Value>) -> Vec<Option<usize>> {
        let mut index = ItemIndex::new(list);
        let mut positions = vec![None; list.and_then(Value::as_array).map_or(0, Vec::len)];
        let mut unfound: Vec<usize> = (0..self.children.len()).collect();
        for likeness in [Likeness::Exact, Likeness::Given, Likeness::Default] {
            unfound.retain(|child| match index.take(&self.children[*child].0, likeness) {
                Some(position) => {
                    positions[position] = Some(*child);
                    false
                }
                None => true,
            });
        }
        positions
    }

    /// The paths of the set that the desired object lacks: applying it would remove them.
    pub fn surplus(&self, desired: &Map<String, Value>) -> Vec<String> {
        let removed = self.removed(desired, &Value::Null).into_iter();
        removed.map(|(path, _)| path).collect()
    }

    /// The paths of the set that the desired object lacks, each with what the live object has there of the set.
    pub fn removed(&self, desired: &Map<String, Value>, live: &Value) -> Vec<(String, Option<Value>)> {
        let mut removed = Vec::new();
        for (element, child) in &self.children {
            if let FieldSetElement::Field(name) = element {
                child.removed_at(
                    desired.get(name),
                    live.get(name),
                    &Trail::root(name),
                    None,
                    &mut removed,
                );
            }
        }
        removed
    }

    /// Adds the paths that a value lacks. Key fields that the server defaulted are not ours to remove.
    fn removed_at(
        &self,
        value: Option<&Value>,
        live: Option<&Value>,
        trail: &Trail<'_>,
        key: Option<&Value>,
        removed: &mut Vec<(String, Option<Value>)>,
    ) {
        let Some(value) = value else {
            removed.push((trail.path(), live.map(|live| self.part_of(live))));
            return;
        };
        let [items, live_items] = [Some(value), live].map(|list| self.items_by_child(list));
        for (((element, child), item), live_item) in self.children.iter().zip(items).zip(live_items) {
            step();
            match element {
                FieldSetElement::Field(name) if key.is_some_and(|key| key.get(name).is_some()) => {}
                FieldSetElement::Field(name) => {
                    let live = live.and_then(|live| live.get(name));
                    child.removed_at(value.get(name), live, &trail.member(name), None, removed);
                }
                element => {
                    let text = element.text();
                    let text = text.split_once(':').map_or(&*text, |(_, text)| text);
                    let key = if let FieldSetElement::Key(key) = element {
                        Some(key)
                    } else {
                        None
                    };
                    child.removed_at(item, live_item, &trail.item(text), key, removed);
                }
            }
        }
    }

    /// The item of a list for each child of the set.
    fn items_by_child<'a>(&self, list: Option<&'a Value>) -> Vec<Option<&'a Value>> {
        let mut items = vec![None; self.children.len()];
        let values = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for (item, position) in values.iter().zip(self.positions(list)) {
            if let Some(position) = position {
                items[position] = Some(item);
            }
        }
        items
    }

    /// The part of a value that the set has. Of a list it is the whole list.
    fn part_of(&self, value: &Value) -> Value {
        let Value::Object(members) = value else {
            return value.clone();
        };
        if self.children.is_empty() {
            return value.clone();
        }
        let part = self.children.iter().filter_map(|(element, child)| {
            step();
            let FieldSetElement::Field(name) = element else {
                return None;
            };
            Some((name.clone(), child.part_of(members.get(name)?)))
        });
        Value::Object(part.collect())
    }

    /// Reports whether every member of the set is in the value, so that applying the value would remove nothing.
    pub fn is_within(&self, value: &Value) -> bool {
        let mut index = ItemIndex::new(Some(value));
        self.children.iter().all(|(element, child)| {
            step();
            let found = match element {
                FieldSetElement::Field(name) => value.get(name),
                // A key field may be filled in by the server.
                element => index.find(element, Likeness::Given).map(|position| &value[position]),
            };
            found.is_some_and(|value| child.is_leaf() || child.is_within(value))
        })
    }
}

/// Locations with the same first step.
struct Branch<'a> {
    /// The position of the first such location.
    position: usize,
    element: &'a FieldSetElement,
    /// The locations without that step.
    below: Vec<&'a [FieldSetElement]>,
}

/// Locations by the text of their first steps.
fn branches<'a>(locations: impl Iterator<Item = &'a [FieldSetElement]>) -> HashMap<Cow<'a, str>, Branch<'a>> {
    let mut branches: HashMap<Cow<'a, str>, Branch<'a>> = HashMap::new();
    for (position, location) in locations.enumerate() {
        step();
        if let [element, below @ ..] = location {
            let branch = branches.entry(element.text()).or_insert_with(|| Branch {
                position,
                element,
                below: Vec::new(),
            });
            branch.below.push(below);
        }
    }
    branches
}

/// The interpretation of a leaf, which by itself may stand for everything below it or for the emptied rest.
#[derive(Clone, Copy, Debug)]
pub enum LeafSemantics<'a> {
    /// The leaf stands for everything that was applied there: our own apply of the same object has just written it.
    AsApplied,
    /// The types of the kind decide.
    By(&'a Types),
    /// The types of the kind are not known. What the set does not show is [unclear](Missing::unclear).
    Alone {
        /// Set if the kind is known to have no map whose values have parts, so that a leaf is always a value held as a
        /// whole.
        flat_maps: bool,
    },
}

/// The groups with a dot in their name that kube-apiserver itself serves and whose kinds have no map whose values have
/// parts (`api/openapi-spec` of Kubernetes 1.36: every `additionalProperties` is a scalar or an atomic list). The groups
/// without a dot are all flat; a CustomResourceDefinition and the kinds of `resource.k8s.io` have such maps.
const FLAT_GROUPS: [&str; 14] = [
    "admissionregistration.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

impl<'a> LeafSemantics<'a> {
    /// Selects the types of the kind, if they are known.
    pub fn of(kind: &Kind, types: Option<&'a Types>) -> Self {
        // The group of a CRD has a dot.
        let flat_maps = !kind.group.contains('.') || FLAT_GROUPS.contains(&&*kind.group);
        types.map_or(Self::Alone { flat_maps }, Self::By)
    }

    fn types(self) -> Option<&'a Types> {
        match self {
            Self::By(types) => Some(types),
            Self::AsApplied | Self::Alone { .. } => None,
        }
    }
}

/// The fields of an object that a field set lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// The paths that are certainly missing.
    pub paths: Vec<String>,
    /// Set if more fields may be missing; only the types of the kind can tell.
    pub unclear: bool,
}

/// The meaning of a leaf of the set.
enum LeafMeaning {
    /// Everything below is in the set.
    Whole,
    /// Only the leaf itself: everything below it is missing.
    Emptied,
    /// Either of them.
    Unclear,
}

struct Walk<'a> {
    reading: LeafSemantics<'a>,
    missing: Missing,
}

impl<'a> Walk<'a> {
    fn member(&mut self, set: &FieldSet, value: &Value, trail: &Trail<'_>, name: &str, shape: Option<&'a Shape>) {
        let below = self.below(shape, name);
        let Some(found) = set.field(name) else {
            return self.absent(value, trail, name, shape);
        };
        self.value(found, value, trail, below);
    }

    /// The shape of a member, if the types are known.
    fn below(&self, shape: Option<&'a Shape>, name: &str) -> Option<&'a Shape> {
        Some(self.reading.types()?.member(shape?, name))
    }

    fn absent(&mut self, value: &Value, trail: &Trail<'_>, name: &str, shape: Option<&'a Shape>) {
        match self.reading {
            LeafSemantics::AsApplied if is_nothing_but_empty_lists(value) => {}
            LeafSemantics::Alone { .. } if is_nothing_but_empty_lists(value) => self.missing.unclear = true,
            LeafSemantics::By(_) if self.leaves_no_trace(value, name, shape) => {}
            _ => self.missing.paths.push(trail.path()),
        }
    }

    /// Reports whether a value is in no field set. That is so of a declared list that is merged item by item while it
    /// has no items, and of a declared object with nothing but such lists.
    fn leaves_no_trace(&self, value: &Value, name: &str, shape: Option<&'a Shape>) -> bool {
        let below = self.below(shape, name);
        shape.is_some_and(|shape| shape.declares(name))
            && match (value, below) {
                (Value::Array(items), Some(Shape::Set | Shape::Map { .. })) => items.is_empty(),
                (Value::Object(members), Some(Shape::Object { .. })) => {
                    let mut members = members.iter();
                    members.len() > 0 && members.all(|(name, value)| self.leaves_no_trace(value, name, below))
                }
                _ => false,
            }
    }

    fn value(&mut self, set: &FieldSet, value: &Value, trail: &Trail<'_>, shape: Option<&'a Shape>) {
        step();
        let has_parts = match value {
            Value::Object(members) => !members.is_empty(),
            Value::Array(items) => !items.is_empty(),
            _ => false,
        };
        if !has_parts {
            return;
        }
        if set.is_leaf() {
            match self.leaf(value, shape) {
                LeafMeaning::Whole => return,
                LeafMeaning::Unclear => {
                    self.missing.unclear = true;
                    return;
                }
                LeafMeaning::Emptied => {}
            }
        }
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    self.member(set, value, &trail.member(name), name, shape);
                }
            }
            Value::Array(_) => self.items(set, value, trail, shape),
            _ => {}
        }
    }

    fn leaf(&self, value: &Value, shape: Option<&Shape>) -> LeafMeaning {
        match self.reading {
            LeafSemantics::AsApplied | LeafSemantics::Alone { flat_maps: true } => LeafMeaning::Whole,
            LeafSemantics::Alone { .. } => LeafMeaning::Unclear,
            LeafSemantics::By(_) => match (value, shape.unwrap_or(&Shape::Free)) {
                (Value::Object(_), Shape::Object { .. } | Shape::Free)
                | (Value::Array(_), Shape::Set | Shape::Map { .. }) => LeafMeaning::Emptied,
                _ => LeafMeaning::Whole,
            },
        }
    }

    fn items(&mut self, set: &FieldSet, list: &Value, trail: &Trail<'_>, shape: Option<&'a Shape>) {
        let item_shape = match (self.reading.types(), shape) {
            (Some(types), Some(Shape::Map { item, .. })) => Some(types.resolve(item)),
            (Some(_), _) => Some(&Shape::Leaf),
            (None, _) => None,
        };
        let mut last = None;
        let items = list.as_array().into_iter().flatten();
        for (item, position) in items.zip(set.positions(Some(list))) {
            let Some(position) = position else {
                self.missing.paths.push(trail.item(&item.to_string()).path());
                continue;
            };
            if last.is_some_and(|last| last > position) {
                self.missing.paths.push(format!("{} (order)", trail.path()));
            }
            last = Some(position);
            let (element, set) = &set.children[position];
            if let FieldSetElement::Key(key) = element {
                // A key field that the item gives is in the set with it, unless the item is held as a whole: it cannot
                // be changed without the item going.
                let gives_a_key = key
                    .as_object()
                    .is_some_and(|key| key.keys().any(|name| item.get(name).is_some()));
                if set.is_leaf() && gives_a_key {
                    continue;
                }
                self.value(set, item, &trail.item(&element.text()[2..]), item_shape);
            }
        }
    }
}

/// Reports whether all leaves of a value are empty lists.
fn is_nothing_but_empty_lists(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => !members.is_empty() && members.values().all(is_nothing_but_empty_lists),
        _ => false,
    }
}

/// Counts a step of a walk, for tests.
#[cfg(not(test))]
pub(crate) const fn step() {}

#[cfg(test)]
pub(crate) fn step() {
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The number of steps that a piece of work takes.
#[cfg(test)]
pub(crate) fn steps_of(work: impl FnOnce()) -> usize {
    STEPS.with(|steps| steps.set(0));
    work();
    STEPS.with(std::cell::Cell::get)
}

/// Asserts that a piece of work takes about as many steps for each of 50,000 leaves as for each of 5,000.
#[cfg(test)]
pub(crate) fn assert_linear<T>(what: &str, [few, many]: [T; 2], work: impl Fn(T)) {
    let (few, many) = (steps_of(|| work(few)), steps_of(|| work(many)));
    assert!(few > 0, "{what} counts its steps");
    assert!(
        many < 20 * few,
        "{what}: {few} steps for 5,000 leaves, {many} for 50,000"
    );
}

/// The numbers of leaves of [`assert_linear`].
#[cfg(test)]
pub(crate) const FEW_AND_MANY: [usize; 2] = [5000, 50_000];

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    fn missing(set: &FieldSet, desired: &Value) -> Vec<String> {
        set.missing(desired.as_object().unwrap(), LeafSemantics::AsApplied)
            .paths
    }

    /// The types of a kind whose spec has a member of each structure.
    fn types() -> Types {
        let weighed = json!({"type": "object", "properties": {"weight": {"type": "integer"}}});
        let list = |kind: &str| json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": kind});
        let document = json!({"components": {"schemas": {"x": {
            "x-kubernetes-group-version-kind": [{"group": "x.dev", "version": "v1", "kind": "X"}],
            "type": "object",
            "properties": {"spec": {"type": "object", "properties": {
                "one": weighed,
                "map": {"type": "object", "additionalProperties": weighed},
                "whole": {"type": "object", "additionalProperties":
                    {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"weight": {"type": "integer"}}}},
                "sets": {"type": "object", "additionalProperties": list("set")},
                "lists": {"type": "object", "additionalProperties": list("atomic")},
                "set": list("set"),
                "list": list("atomic"),
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "raw": {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.runtime.RawExtension"},
            }}},
        }, "io.k8s.apimachinery.pkg.runtime.RawExtension": {"type": "object"}}}});
        Types::parse(&document.to_string(), &Kind::new("x.dev", "v1", "X")).unwrap()
    }

    fn missing_of_spec(fields: &Value, spec: &Value, reading: LeafSemantics<'_>) -> Missing {
        let desired = json!({"spec": spec});
        set(&json!({"f:spec": fields})).missing(desired.as_object().unwrap(), reading)
    }

    #[test]
    fn an_emptied_map_member_differs_from_one_held_as_a_whole() {
        let types = types();
        let lost = |fields: Value, spec: Value| missing_of_spec(&fields, &spec, LeafSemantics::By(&types)).paths;
        let leaf = |name: &str| json!({name: {"f:a": {}}});
        for (name, value, expected) in [
            ("map", json!({"weight": 1}), ".spec.map.a.weight"),
            ("whole", json!({"weight": 1}), ""),
            ("sets", json!(["x"]), ".spec.sets.a[\"x\"]"),
            ("lists", json!(["x"]), ""),
            ("free", json!({"b": {"c": 1}}), ".spec.free.a.b"),
            ("free", json!(["x"]), ""),
            ("raw", json!({"b": 1}), ""),
        ] {
            let fields = if name == "raw" {
                json!({"f:raw": {}})
            } else {
                leaf(&format!("f:{name}"))
            };
            let spec = if name == "raw" {
                json!({"raw": value})
            } else {
                json!({name: {"a": value}})
            };
            let expected: Vec<&str> = Some(expected).into_iter().filter(|it| !it.is_empty()).collect();
            assert_eq!(lost(fields, spec), expected, "{name}");
        }
    }

    #[test]
    fn a_leaf_that_may_be_either_is_unclear_without_the_types() {
        let emptied = json!({"f:map": {"f:a": {}}});
        let spec = json!({"map": {"a": {"weight": 1}}});
        let alone = LeafSemantics::Alone { flat_maps: false };
        let Missing { paths, unclear } = missing_of_spec(&emptied, &spec, alone);
        assert!(paths.is_empty() && unclear);
        let as_applied = missing_of_spec(&emptied, &spec, LeafSemantics::AsApplied);
        assert_eq!(as_applied, Missing::default());
    }

    #[test]
    fn a_kind_whose_maps_hold_no_parts_needs_no_types() {
        let kind = |group: &str| Kind {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: "Any".to_owned(),
        };
        let desired = service();
        let unclear = |group: &str| {
            let kind = kind(group);
            let reading = LeafSemantics::of(&kind, None);
            service_set().missing(desired.as_object().unwrap(), reading).unclear
        };
        for group in ["", "apps", "networking.k8s.io"] {
            assert!(!unclear(group), "{group}");
        }
        for group in [
            "example.com",
            "gateway.networking.k8s.io",
            "apiextensions.k8s.io",
            "resource.k8s.io",
        ] {
            assert!(unclear(group), "{group}");
        }
    }

    #[test]
    fn a_list_that_is_merged_and_has_no_items_is_not_missing() {
        let types = types();
        let none = json!({"f:other": {}});
        let spec = json!({"set": [], "list": [], "sets": {"a": []}});
        assert_eq!(
            missing_of_spec(&none, &spec, LeafSemantics::By(&types)).paths,
            [".spec.list", ".spec.sets"]
        );
        let nothing_else = json!({"spec": {"set": []}});
        let nothing_else = nothing_else.as_object().unwrap();
        assert_eq!(
            set(&json!({})).missing(nothing_else, LeafSemantics::By(&types)),
            Missing::default()
        );
        assert!(missing_of_spec(&none, &json!({"set": []}), LeafSemantics::Alone { flat_maps: true }).unclear);
    }

    #[test]
    fn an_item_that_gives_no_key_is_the_one_with_the_default_key() {
        let set = set(
            &json!({"f:list": {"k:{\"a\":\"x\",\"b\":1}": {".": {}, "f:c": {}}, "k:{\"a\":\"y\",\"b\":1}": {".": {}, "f:a": {}}}}),
        );
        let desired = |items: Value| json!({"list": items});
        let both = json!([{"c": 1}, {"a": "y"}]);
        assert_eq!(missing(&set, &desired(both)), Vec::<String>::new());
        assert_eq!(missing(&set, &desired(json!([{"c": 1, "d": 2}]))).len(), 1);
    }

    #[test]
    fn a_number_is_found_however_it_is_written() {
        let set = set(&json!({"f:list": {"v:1": {}}}));
        assert_eq!(missing(&set, &json!({"list": [1.0]})), Vec::<String>::new());
    }

    fn set(value: &Value) -> FieldSet {
        serde_json::from_value(value.clone()).unwrap()
    }

    /// The field set of a real API server for a Service applied with two ports named 53, one without a protocol.
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
    fn another_order_of_items_counts_as_missing() {
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

    /// Objects of many leaves with the field set of an apply of them: a map, a keyed list, one whose keys the server fills
    /// up, and a set.
    pub(crate) fn wide(leaves: usize) -> [(FieldSet, Value); 4] {
        let object = |name: &str, value: Value| json!({"spec": {name: value}});
        let of = |fields: Map<String, Value>, value: Value| {
            let set = json!({"f:spec": {"f:wide": fields}});
            (serde_json::from_value(set).unwrap(), object("wide", value))
        };
        let numbers = || 0..leaves;
        let map = numbers().map(|number| (format!("f:{number}"), json!({})));
        let keyed = numbers().map(|number| {
            let key = format!(r#"k:{{"name":"{number}"}}"#);
            (key, json!({".": {}, "f:name": {}}))
        });
        let filled = numbers().map(|number| {
            let key = format!(r#"k:{{"port":{number},"protocol":"TCP"}}"#);
            (key, json!({".": {}, "f:port": {}}))
        });
        let set = numbers().map(|number| (format!(r#"v:"{number}""#), json!({})));
        [
            of(
                map.collect(),
                numbers()
                    .map(|number| (number.to_string(), json!(number)))
                    .collect::<Map<_, _>>()
                    .into(),
            ),
            of(
                keyed.collect(),
                numbers()
                    .rev()
                    .map(|number| json!({"name": number.to_string()}))
                    .collect(),
            ),
            of(
                filled.collect(),
                numbers().rev().map(|number| json!({"port": number})).collect(),
            ),
            of(
                set.collect(),
                numbers().rev().map(|number| json!(number.to_string())).collect(),
            ),
        ]
    }

    #[test]
    fn every_walk_takes_a_few_steps_for_each_leaf() {
        type Walked = fn(FieldSet, &Value);
        let walks: [(&str, Walked); 5] = [
            ("missing", |set, object| {
                assert!(missing(&set, object).iter().all(|path| path.ends_with("(order)")));
            }),
            ("surplus", |set, object| {
                assert_eq!(set.surplus(object.as_object().unwrap()), Vec::<String>::new());
            }),
            ("is_within", |set, object| assert!(set.is_within(object))),
            ("order_as", |mut set, object| set.order_as(object)),
            ("names_of_items", |set, object| {
                let list = set.below("spec").unwrap().below("wide").unwrap();
                list.names_of_items(&object["spec"]["wide"]);
                list.by_item();
            }),
        ];
        let [few, many] = FEW_AND_MANY.map(wide);
        for (name, walk) in walks {
            for (shape, both) in few.iter().zip(&many).enumerate() {
                assert_linear(&format!("{name} of shape {shape}"), both.into(), |(set, object)| {
                    walk(set.clone(), object);
                });
            }
        }
    }

    #[test]
    fn many_fields_are_added_and_cut_in_linear_time() {
        let location = |number: usize| {
            let field = |name: &str| FieldSetElement::Field(name.to_owned());
            vec![field("spec"), FieldSetElement::Key(json!({"name": number}))]
        };
        assert_linear("add and cut", FEW_AND_MANY, |leaves| {
            let locations: Vec<_> = (0..leaves).map(location).collect();
            let mut set = FieldSet::default();
            set.add(&locations);
            assert_eq!(set.children[0].1.children.len(), leaves);
            set.cut(&locations);
            assert!(set.is_empty());
        });
    }

    #[test]
    fn a_long_name_is_not_repeated_for_each_leaf() {
        let name = "n".repeat(100_000);
        let leaves: Map<String, Value> = (0..1000).map(|number| (format!("l{number}"), json!(1))).collect();
        let lost = missing(
            &set(&json!({"f:spec": {format!("f:{name}"): {"f:x": {}}}})),
            &json!({"spec": {name: leaves}}),
        );
        assert_eq!(lost.len(), 1000);
        assert!(lost.iter().all(|path| path.len() <= 512));
    }
}
