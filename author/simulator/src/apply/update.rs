//! Updates field ownership after a write: applies with their conflicts and removals, and updates of any other kind.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::book::{Book, Entry, Identity, Operation, is_reset, shown};
use super::check::check;
use super::compare::Comparison;
use super::merge::merge;
use super::types::Type;
use super::walk::{field_set, remove, with_named_parents};
use crate::failure::Failure;
use crate::fields::{self, Set};

/// Field manager of the entries of objects that were never tracked.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The versions in which one object can be seen.
pub(crate) trait Versions {
    /// None when the version is not served any more.
    fn kind(&self, version: &str) -> Option<Type<'_>>;
    /// The object as another version shows it.
    fn convert<'v>(&self, object: &'v Value, version: &str) -> Cow<'v, Value>;
    /// An object of the version without any field.
    fn nothing(&self, version: &str) -> Value;
    /// Returns the fields that requests of this kind cannot own: `status` for the main resource, `spec` for the status.
    fn ignored(&self, version: &str) -> &Set;
}

/// Field manager and operation of a write.
#[derive(Debug, Clone)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    /// `apps/v1`.
    pub(crate) version: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) time: &'a str,
}

impl Writer<'_> {
    fn identity(&self, operation: Operation) -> Identity {
        Identity::new(self.manager, operation, self.version, self.subresource)
    }
}

/// Fields of metadata that have no owner.
static STRIPPED: LazyLock<Set> = LazyLock::new(|| {
    Set::of_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

/// Writes the field ownership into `new` after it replaces `live`. `live` has no uid when the object is created.
pub(crate) fn update(versions: &dyn Versions, live: &Value, new: &mut Value, writer: &Writer<'_>) {
    let live_book = || Book::of(live);
    let mut book = if !writer.subresource.is_empty() {
        live_book()
    } else if is_reset(new) {
        Book::default()
    } else {
        let own = Book::of(new);
        if own.0.is_empty() { live_book() } else { own }
    };
    clear(new);
    let created = live["metadata"]["uid"].as_str().unwrap_or_default().is_empty();
    // Objects that are not tracked yet stay so until somebody applies them.
    if !book.0.is_empty() || created {
        let identity = writer.identity(Operation::Update);
        record(versions, live, new, &mut book, &identity, writer);
        book.cap_updaters();
    }
    book.write(new);
}

fn record(
    versions: &dyn Versions,
    live: &Value,
    new: &Value,
    book: &mut Book,
    identity: &Identity,
    writer: &Writer<'_>,
) {
    let Some(kind) = versions.kind(writer.version) else {
        return;
    };
    let live = without_managed_fields(live);
    let comparison = Comparison::of(kind, &live, new);
    // The write is nobody's at first, so that it takes fields from the writer's own entry as well.
    let Ok(()) = take(versions, &live, new, book, None, true) else {
        return;
    };
    let ignored = versions.ignored(writer.version);
    let taken = comparison
        .modified
        .union(&comparison.added)
        .difference_with_subtrees(ignored)
        .difference(&STRIPPED);
    if taken.is_empty() {
        return;
    }
    let entry = book.0.entry(identity.clone()).or_insert_with(|| Entry {
        set: Set::default(),
        version: writer.version.to_owned(),
        time: None,
    });
    entry.set.extend(&taken);
    entry.time = Some(writer.time.to_owned());
}

/// Removes the written or removed fields from all managers but one; refuses when they would lose some and the write
/// does not force it.
fn take(
    versions: &dyn Versions,
    old: &Value,
    new: &Value,
    book: &mut Book,
    writer: Option<&Identity>,
    force: bool,
) -> Result<(), Vec<(Identity, Set)>> {
    let mut comparisons: BTreeMap<String, Option<Comparison>> = BTreeMap::new();
    let mut conflicts = Vec::new();
    let mut after = BTreeMap::new();
    for (identity, entry) in &book.0 {
        if writer == Some(identity) {
            after.insert(identity.clone(), entry.clone());
            continue;
        }
        let comparison = comparisons.entry(entry.version.clone()).or_insert_with(|| {
            let kind = versions.kind(&entry.version)?;
            let (old, new) = (
                versions.convert(old, &entry.version),
                versions.convert(new, &entry.version),
            );
            Some(Comparison::of(kind, &old, &new).without(versions.ignored(&entry.version)))
        });
        // A version that is not served any more takes its entries along.
        let Some(comparison) = comparison else { continue };
        let changed = comparison.modified.union(&comparison.added);
        let lost = entry.set.intersection(&changed);
        let set = entry.set.difference(&lost).difference(&comparison.removed);
        if !lost.is_empty() {
            conflicts.push((identity.clone(), lost));
        }
        if !set.is_empty() {
            after.insert(identity.clone(), Entry { set, ..entry.clone() });
        }
    }
    if !force && !conflicts.is_empty() {
        return Err(conflicts);
    }
    book.0 = after;
    Ok(())
}

/// Merges the applied object into the live one. `live` is an object without fields when there is none yet.
pub(crate) fn apply(
    versions: &dyn Versions,
    live: &Value,
    applied: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, Failure> {
    if applied["metadata"]
        .get("managedFields")
        .is_some_and(|fields| !fields.is_null())
    {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    let kind = versions.kind(writer.version).ok_or_else(Failure::no_such_resource)?;
    let faults = check(kind, applied);
    if !faults.is_empty() {
        let shown = match faults.as_slice() {
            [single] => single.clone(),
            several => format!(
                "errors:\n{}",
                several
                    .iter()
                    .map(|fault| format!("  {fault}"))
                    .collect::<Vec<_>>()
                    .join("\n")
            ),
        };
        let whose = described(applied, writer.version);
        return Err(Failure::unclassified(format!(
            "failed to create typed patch object ({whose}): {shown}"
        )));
    }
    let mut book = Book::read(live["metadata"].get("managedFields"))
        .map_err(|fault| Failure::unclassified(format!("failed to decode managed fields: {fault}")))?;
    let bare_live = without_managed_fields(live);
    if book.0.is_empty() && live["metadata"]["uid"].is_string() {
        let nothing = versions.nothing(writer.version);
        let first = Identity::new(
            BEFORE_FIRST_APPLY,
            Operation::Update,
            writer.version,
            writer.subresource,
        );
        record(versions, &nothing, &bare_live, &mut book, &first, writer);
    }
    let forced = force || allowed_by_last_applied(versions, kind, &bare_live, applied, &book, writer);
    let mut result = merged(versions, kind, &bare_live, applied, &mut book, writer, forced)?;
    if writer.manager == "kubectl" && result["metadata"]["annotations"][LAST_APPLIED].is_string() {
        refresh_last_applied(&mut result, applied);
    }
    book.write(&mut result);
    Ok(result)
}

/// The merge itself, with pruning and the book.
fn merged(
    versions: &dyn Versions,
    kind: Type<'_>,
    live: &Value,
    applied: &Value,
    book: &mut Book,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, Failure> {
    let merged = merge(kind, Some(live), Some(applied))
        .map_err(|fault| Failure::unclassified(format!("failed to merge config: {fault}")))?
        .unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let identity = writer.identity(Operation::Apply);
    let last = book.0.remove(&identity);
    let set = field_set(kind, applied).difference_with_subtrees(versions.ignored(writer.version));
    let time = last.as_ref().and_then(|entry| entry.time.clone());
    book.0.insert(
        identity.clone(),
        Entry {
            set,
            version: writer.version.to_owned(),
            time,
        },
    );
    let result = match &last {
        Some(last) if !last.set.is_empty() => prune(versions, &merged, book, last, writer.version),
        _ => merged,
    };
    take(versions, live, &result, book, Some(&identity), force).map_err(|conflicts| refusal(&conflicts, book))?;
    if let Some(entry) = book.0.get_mut(&identity) {
        entry.set = entry.set.difference(&STRIPPED);
        // An apply that changes no value leaves its entry the time that it has, or none; also when it owns other fields now.
        if result != *live {
            entry.time = Some(writer.time.to_owned());
        }
        if entry.set.is_empty() {
            book.0.remove(&identity);
        }
    }
    Ok(result)
}

fn refusal(conflicts: &[(Identity, Set)], book: &Book) -> Failure {
    let mut lines = Vec::new();
    for (identity, set) in conflicts {
        let entry = &book.0[identity];
        let holder = shown(identity, entry);
        lines.extend(set.paths().iter().map(|path| (holder.clone(), fields::shown(path))));
    }
    Failure::apply_conflict(&lines)
}

/// Removes the fields that the manager applied last time, does not apply now, and no other manager owns.
fn prune(versions: &dyn Versions, merged: &Value, book: &Book, last: &Entry, version: &str) -> Value {
    let Some(kind) = versions.kind(&last.version) else {
        return merged.clone();
    };
    let whole = versions.convert(merged, &last.version).into_owned();
    let without = |value: &Value, kind: Type<'_>, set: &Set| remove(kind, value, set).unwrap_or(Value::Null);
    let last_named = with_named_parents(kind, &last.set);
    let mut pruned = without(&whole, kind, &last_named);

    let mut claimed: BTreeMap<&str, Set> = BTreeMap::new();
    for entry in book.0.values() {
        claimed.entry(&entry.version).or_default().extend(&entry.set);
    }
    // The version of the last apply goes first: other versions may not be able to show what was pruned.
    let mut order: Vec<&str> = claimed.keys().copied().collect();
    order.sort_by_key(|name| *name != last.version);
    let mut current = whole;
    for name in order {
        let Some(kind) = versions.kind(name) else { continue };
        current = versions.convert(&current, name).into_owned();
        pruned = versions.convert(&pruned, name).into_owned();
        let named = |set: &Set| with_named_parents(kind, set);
        let kept = named(&field_set(kind, &pruned)).union(&named(&claimed[name]));
        let gone = named(&field_set(kind, &current)).difference(&kept);
        pruned = without(&current, kind, &gone);
    }

    // What the manager did not own before is not its to remove.
    let merged = versions.convert(merged, &last.version);
    let pruned = versions.convert(&pruned, &last.version);
    let named = |value: &Value| with_named_parents(kind, &field_set(kind, value));
    let gone = named(&merged).difference(&named(&pruned)).intersection(&last_named);
    let result = without(&merged, kind, &gone);
    versions.convert(&result, version).into_owned()
}

/// Returns `true` if kubectl takes over only fields of its own client-side apply, by its annotation.
fn allowed_by_last_applied(
    versions: &dyn Versions,
    kind: Type<'_>,
    live: &Value,
    applied: &Value,
    book: &Book,
    writer: &Writer<'_>,
) -> bool {
    if writer.manager != "kubectl" {
        return false;
    }
    let Some(text) = live["metadata"]["annotations"][LAST_APPLIED].as_str() else {
        return false;
    };
    let Ok(last_applied) = serde_json::from_str::<Value>(text) else {
        return false;
    };
    if last_applied["apiVersion"] != writer.version {
        return false;
    }
    let comparison = Comparison::of(kind, &last_applied, live);
    let allowed = field_set(kind, &last_applied)
        .difference(&comparison.modified)
        .difference(&comparison.added)
        .difference(&comparison.removed);
    let Ok(Some(merged)) = merge(kind, Some(live), Some(applied)) else {
        return false;
    };
    let identity = writer.identity(Operation::Apply);
    match take(versions, live, &merged, &mut book.clone(), Some(&identity), false) {
        Ok(()) => false,
        Err(conflicts) => conflicts.iter().all(|(_, set)| set.difference(&allowed).is_empty()),
    }
}

fn refresh_last_applied(object: &mut Value, applied: &Value) {
    let mut applied = applied.clone();
    if let Some(annotations) = applied["metadata"]["annotations"].as_object_mut() {
        annotations.remove(LAST_APPLIED);
    }
    object["metadata"]["annotations"][LAST_APPLIED] = Value::String(format!("{applied}\n"));
}

fn clear(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    clear(&mut object);
    object
}

/// `namespace/name; group/version, Kind=Kind`.
fn described(object: &Value, version: &str) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    let version = if version.contains('/') {
        version.to_owned()
    } else {
        format!("/{version}")
    };
    format!("{namespace}/{name}; {version}, Kind={}", text(&object["kind"]))
}
