//! Addresses one field of an object, in the terms of server-side apply.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::{fmt, ptr};

use serde_json::{Map, Value};

/// One step from an object to one of its fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathElement {
    /// A member of an object.
    Field(String),
    /// An item of a keyed list: its key members, each value as JSON text.
    Key(BTreeMap<String, String>),
    /// An item of a set, as JSON text.
    Item(String),
}

impl PathElement {
    /// The step to the item with these key members.
    pub fn key<'a>(members: impl IntoIterator<Item = (&'a String, &'a Value)>) -> Self {
        let members = members.into_iter();
        Self::Key(members.map(|(name, value)| (name.clone(), value.to_string())).collect())
    }

    /// The step to this item of a set.
    pub fn item(value: &Value) -> Self {
        Self::Item(value.to_string())
    }

    /// The key members of an item, as in the object.
    pub(super) fn key_members(key: &BTreeMap<String, String>) -> Map<String, Value> {
        key.iter().map(|(name, text)| (name.clone(), parsed(text))).collect()
    }
}

/// The value from which a step's text was made.
pub(super) fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("the text of a step was made from a value")
}

/// The path from an object to one of its fields. Ordered like the list of its steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path(Vec<PathElement>);

impl Path {
    /// The path with one more step.
    #[must_use]
    pub fn to(&self, step: PathElement) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    /// The path with one more step, to a member.
    #[must_use]
    pub fn to_field(&self, name: &str) -> Self {
        self.to(PathElement::Field(name.to_owned()))
    }

    /// The total size of its names and keys, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let of = |step: &PathElement| match step {
            PathElement::Field(text) | PathElement::Item(text) => text.len(),
            PathElement::Key(key) => key.iter().map(|(name, value)| name.len() + value.len()).sum(),
        };
        self.0.iter().map(of).sum()
    }

    /// The steps.
    pub fn steps(&self) -> &[PathElement] {
        &self.0
    }

    /// Reports whether `written`, a path as the server writes it, is this field, within it or around it.
    pub fn touches(&self, written: &str) -> bool {
        let own = self.to_string();
        let (short, long) = if own.len() <= written.len() {
            (own.as_str(), written)
        } else {
            (written, own.as_str())
        };
        let rest = long.strip_prefix(short);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }
}

/// An object for many look-ups by path: the items of each list are indexed by their keys.
pub struct IndexedObject<'a> {
    object: &'a Value,
    /// Items of keyed lists, by the list and the names of the key members.
    keyed: HashMap<(*const Value, Vec<&'a str>), KeyedItems<'a>>,
    sets: HashMap<*const Value, HashMap<String, &'a Value>>,
}

/// Items by the texts of their keys.
type KeyedItems<'a> = HashMap<Vec<String>, &'a Value>;

impl<'a> IndexedObject<'a> {
    /// Starts with no list indexed.
    pub fn new(object: &'a Value) -> Self {
        Self {
            object,
            keyed: HashMap::new(),
            sets: HashMap::new(),
        }
    }

    /// The value at a path.
    pub fn value(&mut self, path: &'a Path) -> Option<&'a Value> {
        path.0.iter().try_fold(self.object, |place, step| match step {
            PathElement::Field(name) => place.get(name),
            PathElement::Key(key) => {
                let names: Vec<&str> = key.keys().map(String::as_str).collect();
                let index = self
                    .keyed
                    .entry((ptr::from_ref(place), names))
                    .or_insert_with_key(|(_, names)| {
                        let items = place.as_array().into_iter().flatten();
                        let key_of = |item: &Value| -> Option<Vec<String>> {
                            names.iter().map(|name| item.get(name).map(Value::to_string)).collect()
                        };
                        let keyed = items.rev().filter_map(|item| Some((key_of(item)?, item)));
                        keyed.collect()
                    });
                index.get(&key.values().cloned().collect::<Vec<_>>()).copied()
            }
            PathElement::Item(text) => {
                let index = self.sets.entry(ptr::from_ref(place)).or_insert_with(|| {
                    let items = place.as_array().into_iter().flatten();
                    items.map(|item| (item.to_string(), item)).collect()
                });
                index.get(text).copied()
            }
        })
    }
}

impl Borrow<[PathElement]> for Path {
    fn borrow(&self) -> &[PathElement] {
        &self.0
    }
}

/// Formats the path like server-side apply: `.spec.ports[port=80,protocol="TCP"].name`.
impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.0 {
            match step {
                PathElement::Field(name) => write!(formatter, ".{name}")?,
                PathElement::Item(value) => write!(formatter, "[={value}]")?,
                PathElement::Key(key) => {
                    let members: Vec<_> = key.iter().map(|(name, value)| format!("{name}={value}")).collect();
                    write!(formatter, "[{}]", members.join(","))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_is_written_as_the_server_writes_it() {
        let key = json!({"protocol": "TCP", "port": 80});
        let ports = Path::default().to_field("spec").to_field("ports");
        let name = ports.to(PathElement::key(key.as_object().unwrap())).to_field("name");
        assert_eq!(name.to_string(), r#".spec.ports[port=80,protocol="TCP"].name"#);
        let finalizer = Path::default()
            .to_field("finalizers")
            .to(PathElement::item(&json!("a/b")));
        assert_eq!(finalizer.to_string(), r#".finalizers[="a/b"]"#);
    }

    #[test]
    fn a_field_touches_itself_its_parents_and_its_children() {
        let data = Path::default().to_field("data").to_field("80");
        assert!(data.touches(".data.80") && data.touches(".data") && data.touches(".data.80.x"));
        assert!(!data.touches(".data.8") && !data.touches(".data.801") && !data.touches(".dat"));
    }

    #[test]
    fn an_object_is_looked_up_by_many_paths() {
        let object = json!({"a": {"list": [{"k": 1, "v": "one"}, {"k": 2}, {"k": 1, "v": "again"}], "set": ["x", 3]}});
        let list = Path::default().to_field("a").to_field("list");
        let key = |number: u64| list.to(PathElement::key(json!({"k": number}).as_object().unwrap()));
        let set = Path::default().to_field("a").to_field("set");
        let paths = [
            key(1).to_field("v"),
            key(2),
            key(3),
            set.to(PathElement::item(&json!(3))),
            set.to(PathElement::item(&json!("y"))),
            Path::default().to_field("b"),
        ];
        let mut indexed = IndexedObject::new(&object);
        let found: Vec<_> = paths.iter().map(|path| indexed.value(path).cloned()).collect();
        assert_eq!(
            found,
            [
                Some(json!("one")),
                Some(json!({"k": 2})),
                None,
                Some(json!(3)),
                None,
                None
            ]
        );
    }
}
