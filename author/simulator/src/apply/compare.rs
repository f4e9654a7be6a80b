//! Compares two typed values: fields added, changed and removed.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::types::{Atom, Type, same};
use crate::fields::{Element, Set};
use crate::schema::Listing;

/// Difference of an old and a new value; no field is in two of the sets.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) added: Set,
    pub(crate) modified: Set,
    pub(crate) removed: Set,
}

impl Comparison {
    pub(crate) fn of(kind: Type<'_>, old: &Value, new: &Value) -> Self {
        let mut comparison = Self::default();
        comparison.walk(kind, Some(old), Some(new), &mut Vec::new());
        comparison
    }

    /// Removes the fields that this kind of request cannot own.
    pub(crate) fn without(self, ignored: &Set) -> Self {
        Self {
            added: self.added.difference_with_subtrees(ignored),
            modified: self.modified.difference_with_subtrees(ignored),
            removed: self.removed.difference_with_subtrees(ignored),
        }
    }

    fn walk(&mut self, kind: Type<'_>, old: Option<&Value>, new: Option<&Value>, path: &mut Vec<Element>) {
        let old_atom = kind.atom(old);
        let new_atom = kind.atom(new);
        let leaf = if new.is_none() {
            self.atom(kind, old_atom, old, new, path)
        } else if old.is_none() || old_atom.same_form(new_atom) {
            self.atom(kind, new_atom, old, new, path)
        } else {
            self.atom(kind, old_atom, old, new, path);
            self.atom(kind, new_atom, old, new, path)
        };
        if !leaf {
            match (old, new) {
                (None, _) => self.added.insert(path),
                (_, None) => self.removed.insert(path),
                _ => {}
            }
        }
    }

    /// True when the value was taken as a leaf.
    fn atom(
        &mut self,
        kind: Type<'_>,
        atom: Atom<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
        path: &mut Vec<Element>,
    ) -> bool {
        match atom {
            Atom::Scalar(_) | Atom::List(Listing::Atomic) | Atom::Map { atomic: true } => {
                self.leaf(old, new, path);
                true
            }
            Atom::List(listing) => {
                let old_items = old.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                let new_items = new.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                // Two empty lists are a leaf, so that null and [] can be told apart.
                if old_items.is_empty() && new_items.is_empty() {
                    self.leaf(old, new, path);
                    return true;
                }
                self.items(kind, listing, old_items, new_items, path);
                false
            }
            Atom::Map { atomic: false } => {
                let nothing = Map::new();
                let old_members = old.and_then(Value::as_object).unwrap_or(&nothing);
                let new_members = new.and_then(Value::as_object).unwrap_or(&nothing);
                if old_members.is_empty() && new_members.is_empty() {
                    self.leaf(old, new, path);
                    return true;
                }
                let added = new_members.keys().filter(|name| !old_members.contains_key(*name));
                for name in old_members.keys().chain(added) {
                    let Some(member) = kind.member(name) else { continue };
                    path.push(Element::field(name));
                    self.walk(member, old_members.get(name), new_members.get(name), path);
                    path.pop();
                }
                false
            }
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>, path: &[Element]) {
        match (old, new) {
            (None, _) => self.added.insert(path),
            (_, None) => self.removed.insert(path),
            (Some(old), Some(new)) if !same(old, new) => self.modified.insert(path),
            _ => {}
        }
    }

    fn items(&mut self, kind: Type<'_>, listing: &Listing, old: &[Value], new: &[Value], path: &mut Vec<Element>) {
        let index = |items: &[Value]| {
            let mut by_element: BTreeMap<Element, Vec<usize>> = BTreeMap::new();
            for (position, item) in items.iter().enumerate() {
                if let Ok(element) = kind.element(listing, item) {
                    by_element.entry(element).or_default().push(position);
                }
            }
            by_element
        };
        let (old_index, new_index) = (index(old), index(new));
        let added = new_index.keys().filter(|element| !old_index.contains_key(*element));
        for element in old_index.keys().chain(added) {
            let of = |index: &BTreeMap<Element, Vec<usize>>| index.get(element).cloned().unwrap_or_default();
            let (old_places, new_places) = (of(&old_index), of(&new_index));
            let first = |items: &'_ [Value], places: &[usize]| places.first().map(|place| items[*place].clone());
            let (old_first, new_first) = (first(old, &old_places), first(new, &new_places));
            path.push(element.clone());
            match (old_places.len(), new_places.len()) {
                (0 | 1, 0 | 1) => self.walk(kind.item(), old_first.as_ref(), new_first.as_ref(), path),
                // Items that share a key are compared as one leaf.
                (2.., 2..) => {
                    let equal = old_places.len() == new_places.len()
                        && old_places
                            .iter()
                            .zip(&new_places)
                            .all(|(one, other)| same(&old[*one], &new[*other]));
                    if !equal {
                        self.modified.insert(path);
                    }
                }
                (2.., _) => {
                    if new_first.is_some() {
                        self.walk(kind.item(), None, new_first.as_ref(), path);
                    }
                    self.removed.insert(path);
                }
                (_, _) => {
                    if old_first.is_some() {
                        self.walk(kind.item(), old_first.as_ref(), None, path);
                    }
                    self.added.insert(path);
                }
            }
            path.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::definition;
    use serde_json::json;

    fn compare(old: &Value, new: &Value) -> Comparison {
        let schema = definition("io.k8s.api.core.v1.Service").expect("services are served");
        Comparison::of(Type::of(schema), old, new)
    }

    #[test]
    fn a_changed_port_is_a_removed_and_an_added_item() {
        let comparison = compare(
            &json!({"spec": {"ports": [{"port": 80, "protocol": "TCP"}]}}),
            &json!({"spec": {"ports": [{"port": 81, "protocol": "TCP"}]}}),
        );
        let key = |port: u16| format!("k:{{\"port\":{port},\"protocol\":\"TCP\"}}");
        let item = |port| json!({"f:spec": {"f:ports": {key(port): {".": {}, "f:port": {}, "f:protocol": {}}}}});
        assert_eq!(comparison.added.serialise(), item(81));
        assert_eq!(comparison.removed.serialise(), item(80));
        assert!(comparison.modified.is_empty());
    }

    #[test]
    fn the_selector_is_one_leaf() {
        let comparison = compare(
            &json!({"spec": {"selector": {"app": "a", "tier": "b"}}}),
            &json!({"spec": {"selector": {"app": "a"}}}),
        );
        assert_eq!(comparison.modified.serialise(), json!({"f:spec": {"f:selector": {}}}));
        assert!(comparison.removed.is_empty());
    }
}
