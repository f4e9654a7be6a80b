//! Reads, writes and orders the entries of `metadata.managedFields`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::fields::Set;

/// Entries of updates beyond this number are merged into one, the oldest first.
const MAXIMAL_UPDATERS: usize = 10;

/// Field manager of the entries that were merged.
const ANCIENT: &str = "ancient-changes";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// Key of an entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) manager: String,
    pub(crate) operation: Operation,
    /// Empty for appliers: one who applies in another version is still the same one.
    version: String,
    pub(crate) subresource: String,
}

impl Identity {
    pub(crate) fn new(manager: &str, operation: Operation, version: &str, subresource: &str) -> Self {
        let version = if operation == Operation::Apply { "" } else { version };
        Self {
            manager: manager.to_owned(),
            operation,
            version: version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }
}

/// One manager's fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) set: Set,
    pub(crate) version: String,
    pub(crate) time: Option<String>,
}

/// All managers of one object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Book(pub(crate) BTreeMap<Identity, Entry>);

impl Book {
    /// Reads `managedFields`, or returns the error in it.
    pub(crate) fn read(list: Option<&Value>) -> Result<Self, String> {
        let mut book = Self::default();
        for (index, entry) in list.and_then(Value::as_array).into_iter().flatten().enumerate() {
            let text = |name: &str| entry[name].as_str().unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            if text("apiVersion").is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
                other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {index}")),
            }
            let nothing = json!({});
            let set = Set::parse(entry.get("fieldsV1").unwrap_or(&nothing))
                .ok_or_else(|| format!("error decoding set of managed fields entry {index}"))?;
            let identity = Identity::new(text("manager"), operation, text("apiVersion"), text("subresource"));
            let time = entry["time"].as_str().map(str::to_owned);
            book.0.insert(
                identity,
                Entry {
                    set,
                    version: text("apiVersion").to_owned(),
                    time,
                },
            );
        }
        Ok(book)
    }

    /// Reads the entries of an object; an unreadable value counts as empty.
    pub(crate) fn of(object: &Value) -> Self {
        Self::read(object["metadata"].get("managedFields")).unwrap_or_default()
    }

    /// Writes the book into an object, or takes `managedFields` away when it is empty.
    pub(crate) fn write(&self, object: &mut Value) {
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
            return;
        };
        if self.0.is_empty() {
            metadata.remove("managedFields");
            return;
        }
        let mut entries: Vec<(&Identity, &Entry)> = self.0.iter().collect();
        entries.sort_by_key(|(identity, entry)| {
            let version = entry.version.clone();
            (
                identity.operation,
                entry.time.clone(),
                identity.manager.clone(),
                version,
                identity.subresource.clone(),
            )
        });
        metadata.insert("managedFields".to_owned(), entries.into_iter().map(encoded).collect());
    }

    /// Merges the oldest updaters while there are too many of them.
    pub(crate) fn cap_updaters(&mut self) {
        let mut updaters: Vec<(Option<String>, Identity)> = self
            .0
            .iter()
            .filter(|(identity, _)| identity.operation == Operation::Update)
            .map(|(identity, entry)| (entry.time.clone(), identity.clone()))
            .collect();
        updaters.sort();
        let mut left = updaters.len();
        let mut first_of_version: BTreeMap<String, Identity> = BTreeMap::new();
        for (time, identity) in updaters {
            if left <= MAXIMAL_UPDATERS {
                break;
            }
            let version = identity.version.clone();
            let Some(first) = first_of_version.get(&version) else {
                first_of_version.insert(version, identity);
                continue;
            };
            let bucket = Identity::new(ANCIENT, Operation::Update, &version, "");
            let taken = self.0.remove(&identity);
            if !self.0.contains_key(&bucket)
                && let Some(entry) = self.0.remove(first)
            {
                self.0.insert(bucket.clone(), entry);
            }
            if let (Some(taken), Some(entry)) = (taken, self.0.get_mut(&bucket)) {
                entry.set.extend(&taken.set);
                entry.time = time;
            }
            left -= 1;
        }
    }
}

fn encoded((identity, entry): (&Identity, &Entry)) -> Value {
    let mut object = Map::new();
    let operation = match identity.operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    if !identity.manager.is_empty() {
        object.insert("manager".to_owned(), json!(identity.manager));
    }
    object.insert("operation".to_owned(), json!(operation));
    object.insert("apiVersion".to_owned(), json!(entry.version));
    if let Some(time) = &entry.time {
        object.insert("time".to_owned(), json!(time));
    }
    object.insert("fieldsType".to_owned(), json!("FieldsV1"));
    object.insert("fieldsV1".to_owned(), entry.set.serialise());
    if !identity.subresource.is_empty() {
        object.insert("subresource".to_owned(), json!(identity.subresource));
    }
    Value::Object(object)
}

/// Returns `true` if a request resets the entries: an empty list, or a list of one empty entry.
pub(crate) fn is_reset(object: &Value) -> bool {
    match object["metadata"]["managedFields"].as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([single]) => single
            .as_object()
            .is_some_and(|entry| entry.values().all(|value| value == "")),
        _ => false,
    }
}

/// A manager as a conflict names it.
pub(crate) fn shown(identity: &Identity, entry: &Entry) -> String {
    let mut text = format!("{:?}", identity.manager);
    if !identity.subresource.is_empty() {
        text = format!("{text} with subresource {:?}", identity.subresource);
    }
    if identity.operation == Operation::Update {
        text = format!("{text} using {}", entry.version);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_ordered_by_operation_and_then_by_time() {
        let entry = |time: &str| Entry {
            set: Set::of_fields(&[&["data"]]),
            version: "v1".to_owned(),
            time: Some(time.to_owned()),
        };
        let mut book = Book::default();
        book.0.insert(
            Identity::new("a", Operation::Update, "v1", ""),
            entry("2026-01-02T00:00:00Z"),
        );
        book.0.insert(
            Identity::new("b", Operation::Update, "v1", ""),
            entry("2026-01-01T00:00:00Z"),
        );
        book.0.insert(
            Identity::new("c", Operation::Apply, "v1", ""),
            entry("2026-01-03T00:00:00Z"),
        );
        let mut object = json!({"metadata": {}});
        book.write(&mut object);
        let managers: Vec<&Value> = object["metadata"]["managedFields"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|entry| &entry["manager"])
            .collect();
        assert_eq!(managers, ["c", "b", "a"]);
        assert_eq!(Book::of(&object), book);
    }

    #[test]
    fn the_oldest_of_too_many_updaters_become_ancient() {
        let mut book = Book::default();
        for index in 0..12 {
            let set = Set::of_fields(&[&["data", &format!("k{index}")]]);
            let time = Some(format!("2026-01-01T00:00:{index:02}Z"));
            let identity = Identity::new(&format!("m{index}"), Operation::Update, "v1", "");
            book.0.insert(
                identity,
                Entry {
                    set,
                    version: "v1".to_owned(),
                    time,
                },
            );
        }
        book.cap_updaters();
        assert_eq!(book.0.len(), 10);
        let ancient = &book.0[&Identity::new(ANCIENT, Operation::Update, "v1", "")];
        assert_eq!(
            ancient.set,
            Set::of_fields(&[&["data", "k0"], &["data", "k1"], &["data", "k2"]])
        );
    }
}
