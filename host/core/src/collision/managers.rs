//! Rewrites managedFields so that fields in the way of an apply are ours: the apply that follows does not name them, and so
//! removes them.

use serde_json::{Map, Value, json};

use super::merge::{Entries, is_ours};
use super::{FieldLocation, at};
use crate::kubernetes::fields::{FieldSet, FieldSetElement};

/// The managers that hold a field or a part of it.
pub fn holders<'a>(entries: &'a Entries, location: &[FieldSetElement]) -> Vec<&'a str> {
    let mut holders: Vec<&str> = Vec::new();
    for (manager, set) in &entries.others {
        if at(set, location).is_some() && !holders.contains(&manager.as_str()) {
            holders.push(manager);
        }
    }
    holders
}

/// The managedFields of an object with these fields in our Apply entry, and in no other entry of the main resource.
pub fn move_to_us(managed: &[Value], locations: &[FieldLocation], ours: &str, api_version: &str) -> Vec<Value> {
    let mut kept = Vec::with_capacity(managed.len() + 1);
    let mut own = FieldSet::default();
    for entry in managed {
        let set: Option<FieldSet> = serde_json::from_value(entry["fieldsV1"].clone()).ok();
        match set {
            Some(set) if is_ours(entry, ours) => own = set,
            Some(mut set) if entry["subresource"] != "status" => {
                let before = set.clone();
                set.cut(locations);
                let mut entry = entry.clone();
                if set != before {
                    entry["fieldsV1"] = json!(set);
                }
                if !set.is_empty() {
                    kept.push(entry);
                }
            }
            _ => kept.push(entry.clone()),
        }
    }
    own.add(locations);
    let mut entry = Map::new();
    entry.insert("manager".to_owned(), json!(ours));
    entry.insert("operation".to_owned(), json!("Apply"));
    entry.insert("apiVersion".to_owned(), json!(api_version));
    entry.insert("fieldsType".to_owned(), json!("FieldsV1"));
    entry.insert("fieldsV1".to_owned(), json!(own));
    kept.push(Value::Object(entry));
    kept
}
