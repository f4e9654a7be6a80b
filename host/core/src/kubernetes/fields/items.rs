//! Finds items of a list by the elements of field sets. Each search takes a few look-ups, however long the list is:
//! other clients' objects may have tens of thousands of items.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::{FieldSetElement, step};

/// The highest number of combinations of key fields that are indexed for one list. The keys of a list all have the
/// fields of the kind's schema. Only forged managedFields have further combinations; their keys match no item.
const MOST_KEYS: usize = 4;

/// The highest number of combinations of omitted key fields (which the server defaults) in one list. Items with further
/// combinations are not found.
const MOST_OMISSIONS: usize = 16;

/// The degree to which an item matches a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Likeness {
    /// The item has all of the key's fields with the key's values.
    Exact,
    /// The item has none of the key's fields with another value, and at least one with the same.
    Given,
    /// The item gives none of the key's fields, so that each may have been filled in.
    Default,
}

/// The items of a list by their keys and values. The index is built lazily, for the keys that are looked up.
pub(crate) struct ItemIndex<'a> {
    items: &'a [Value],
    taken: Vec<bool>,
    by_value: Option<HashMap<String, Positions>>,
    by_key: Vec<(Vec<String>, Vec<Omission>)>,
}

/// Items that leave out the same fields of a key, by the values of the others.
struct Omission {
    gives: Vec<bool>,
    by_values: HashMap<String, Positions>,
}

/// Positions in a list, in their order; those before `first` are taken.
#[derive(Default)]
struct Positions {
    all: Vec<usize>,
    first: usize,
}

impl Positions {
    fn first(&mut self, taken: &[bool]) -> Option<usize> {
        while self.all.get(self.first).is_some_and(|position| taken[*position]) {
            step();
            self.first += 1;
        }
        self.all.get(self.first).copied()
    }
}

impl<'a> ItemIndex<'a> {
    /// Begins with the items of a value; one that is no list has none.
    pub(crate) fn new(list: Option<&'a Value>) -> Self {
        let items = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        Self {
            items,
            taken: vec![false; items.len()],
            by_value: None,
            by_key: Vec::new(),
        }
    }

    /// The position of the first item that an element names and that is not taken.
    pub(crate) fn find(&mut self, element: &FieldSetElement, likeness: Likeness) -> Option<usize> {
        let mut found = None;
        self.each(element, likeness, |positions, taken| {
            let first = positions.first(taken);
            found = found.into_iter().chain(first).min();
        });
        found
    }

    /// The same item, which is taken from now on.
    pub(crate) fn take(&mut self, element: &FieldSetElement, likeness: Likeness) -> Option<usize> {
        let found = self.find(element, likeness)?;
        self.taken[found] = true;
        Some(found)
    }

    /// The positions of all items that an element names.
    pub(crate) fn find_all(&mut self, element: &FieldSetElement, likeness: Likeness) -> Vec<usize> {
        let mut found = Vec::new();
        self.each(element, likeness, |positions, _| {
            found.extend_from_slice(&positions.all);
        });
        found
    }

    fn each(&mut self, element: &FieldSetElement, likeness: Likeness, mut visit: impl FnMut(&mut Positions, &[bool])) {
        step();
        match element {
            FieldSetElement::Item(value) => {
                let items = self.items;
                let by_value = self.by_value.get_or_insert_with(|| {
                    let mut by_value: HashMap<String, Positions> = HashMap::new();
                    for (position, item) in items.iter().enumerate() {
                        step();
                        by_value.entry(value_text(item)).or_default().all.push(position);
                    }
                    by_value
                });
                if let Some(positions) = by_value.get_mut(&value_text(value)) {
                    visit(positions, &self.taken);
                }
            }
            FieldSetElement::Key(Value::Object(key)) => {
                let Some(group) = self.group(key) else { return };
                for Omission { gives, by_values } in &mut self.by_key[group].1 {
                    step();
                    let given = gives.iter().filter(|gives| **gives).count();
                    let is_like = match likeness {
                        Likeness::Exact => given == gives.len(),
                        Likeness::Given => given > 0,
                        Likeness::Default => given == 0,
                    };
                    if !is_like {
                        continue;
                    }
                    let values = key.values().zip(&*gives).filter(|(_, gives)| **gives);
                    if let Some(positions) = by_values.get_mut(&key_text(values.map(|(value, _)| value))) {
                        visit(positions, &self.taken);
                    }
                }
            }
            FieldSetElement::Key(_) | FieldSetElement::Field(_) | FieldSetElement::Other(_) => {}
        }
    }

    /// The index by the fields of a key.
    fn group(&mut self, key: &Map<String, Value>) -> Option<usize> {
        let is_same = |(names, _): &(Vec<String>, Vec<Omission>)| names.iter().eq(key.keys());
        if let Some(found) = self.by_key.iter().position(is_same) {
            return Some(found);
        }
        if self.by_key.len() == MOST_KEYS {
            return None;
        }
        let names: Vec<String> = key.keys().cloned().collect();
        let mut omissions: Vec<Omission> = Vec::new();
        for (position, item) in self.items.iter().enumerate() {
            step();
            let values: Vec<Option<&Value>> = names.iter().map(|name| item.get(name)).collect();
            let gives: Vec<bool> = values.iter().map(Option::is_some).collect();
            let known = omissions.iter().position(|omission| omission.gives == gives);
            let index = match known {
                Some(index) => index,
                None if omissions.len() == MOST_OMISSIONS => continue,
                None => {
                    let by_values = HashMap::new();
                    omissions.push(Omission { gives, by_values });
                    omissions.len() - 1
                }
            };
            let positions = &mut omissions[index].by_values;
            let positions = positions.entry(key_text(values.into_iter().flatten())).or_default();
            positions.all.push(position);
        }
        self.by_key.push((names, omissions));
        Some(self.by_key.len() - 1)
    }
}

/// Values of key fields as text, equal where the values are the same.
fn key_text<'v>(values: impl Iterator<Item = &'v Value>) -> String {
    let mut text = String::new();
    for value in values {
        // JSON has no such character as it is.
        _ = write!(text, "{}\u{1}", value_text(value));
    }
    text
}

/// A value as text, equal where the values are the [same](super::same).
pub(crate) fn value_text(value: &Value) -> String {
    match value {
        Value::Number(number) => match number.as_f64() {
            // So that both zeros are one.
            Some(number) => (number + 0.0).to_string(),
            None => number.to_string(),
        },
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(key: Value) -> FieldSetElement {
        FieldSetElement::Key(key)
    }

    #[test]
    fn items_are_found_by_what_they_give_of_a_key() {
        let list =
            json!([{"port": 1}, {"port": 1, "protocol": "UDP"}, {"name": "x"}, {"port": 2.0, "protocol": "TCP"}]);
        let mut items = ItemIndex::new(Some(&list));
        let tcp = |port: u64| key(json!({"port": port, "protocol": "TCP"}));
        assert_eq!(items.find(&tcp(1), Likeness::Exact), None);
        assert_eq!(items.find(&tcp(1), Likeness::Given), Some(0));
        assert_eq!(items.find(&tcp(1), Likeness::Default), Some(2));
        assert_eq!(items.find(&tcp(2), Likeness::Exact), Some(3), "2 and 2.0 are the same");
        assert_eq!(
            items.find(&key(json!({"port": 1, "protocol": "UDP"})), Likeness::Exact),
            Some(1)
        );
        assert_eq!(
            items.find_all(&key(json!({"port": 1, "protocol": "UDP"})), Likeness::Given),
            [0, 1]
        );
    }

    #[test]
    fn an_item_is_taken_once() {
        let list = json!(["a", "b", "a"]);
        let mut items = ItemIndex::new(Some(&list));
        let a = FieldSetElement::Item(json!("a"));
        assert_eq!(items.take(&a, Likeness::Exact), Some(0));
        assert_eq!(items.take(&a, Likeness::Exact), Some(2));
        assert_eq!(items.take(&a, Likeness::Exact), None);
        assert_eq!(items.find_all(&a, Likeness::Exact), [0, 2]);
    }

    #[test]
    fn keys_of_forged_combinations_name_nothing() {
        let list: Value = (0..100).map(|number| json!({format!("k{number}"): 1})).collect();
        let mut items = ItemIndex::new(Some(&list));
        let found: Vec<_> = (0..100)
            .filter_map(|number| items.find(&key(json!({format!("k{number}"): 1})), Likeness::Exact))
            .collect();
        assert_eq!(found, [0, 1, 2, 3]);
    }
}
