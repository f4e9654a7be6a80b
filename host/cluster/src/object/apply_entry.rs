//! The host's part of managedFields: the Apply entries of its own field managers. Children that differ only in their
//! names and controllers have equal entries, and share them.

use pilothouse_core::Kind;
use pilothouse_core::kubernetes::fields::{FieldSet, names_several_items};
use pilothouse_core::kubernetes::path::FieldPath;
use pilothouse_core::kubernetes::values;
use pilothouse_core::status::kstatus;
use serde_json::Value;

use crate::object::raw::{ManagedFieldsEntry, RawMetadata, RawObject};

/// The prefix of the host's field managers; the rest is the Plugin's name.
pub const MANAGER_PREFIX: &str = "pilothouse/";

/// One stored entry of managedFields; only entries of the host's own managers are stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ApplyEntry {
    pub(crate) manager: Box<str>,
    api_version: Box<str>,
    pub(crate) of_status: bool,
    /// The field set as text, its list items in the order of the live object, and marks where it names the object or its
    /// controller: children that differ in nothing else have the same entries, and share them.
    fields: Box<str>,
}

impl ApplyEntry {
    /// The version that it was written in.
    pub(crate) fn api_version(&self) -> &str {
        &self.api_version
    }

    pub(crate) fn bytes(&self) -> usize {
        self.fields.len()
    }

    /// The field set as text, of an object with this controller and name.
    pub(crate) fn fields_of(&self, controller: &str, name: &str) -> String {
        self.fields
            .replace(CONTROLLER_MARK, controller)
            .replace(NAME_MARK, &quoted(name))
    }
}

/// Placeholders in a field set for the controller's uid and for the object's name. Valid JSON has no such characters
/// unescaped, so replacing them is reversible.
const CONTROLLER_MARK: &str = "\u{1}";
const NAME_MARK: &str = "\u{2}";

/// The host's part of an object.
pub(crate) struct ReadEntries {
    /// The entries of the host's managers.
    pub(crate) entries: Vec<ApplyEntry>,
    /// The fingerprint of the values of each entry. That of an entry of the status is none, because statuses are compared
    /// whole.
    pub(crate) values: Vec<u64>,
    /// The reason why an object that a plugin applies is not Current.
    pub(crate) pending: Option<String>,
}

/// Reads the host's part of an object.
pub(crate) fn read_entries(
    parts: &RawObject<'_>,
    kind: &Kind,
    name: &str,
    controller: Option<&str>,
) -> Result<ReadEntries, serde_json::Error> {
    let (mut entries, mut fingerprints, mut pending) = (Vec::new(), Vec::new(), None);
    // Parsed only where there is an entry of ours.
    let mut live: Option<Value> = None;
    for ManagedFieldsEntry {
        manager,
        operation,
        api_version,
        subresource,
        fields_v1,
    } in &parts.metadata.managed_fields
    {
        let (Some(manager), Some(text)) = (manager, fields_v1) else {
            continue;
        };
        if !manager.starts_with(MANAGER_PREFIX) || operation.as_deref() != Some("Apply") {
            continue;
        }
        // All entries that the host writes can be parsed: another client uses its name, and holds the fields.
        let Ok(several) = names_several_items(text.get()) else {
            continue;
        };
        let of_status = subresource.as_deref() == Some("status");
        let mut fields = text.get().replace(&quoted(name), NAME_MARK);
        let mut fingerprint = 0;
        if several || !of_status {
            let live = match &mut live {
                Some(live) => live,
                none => none.insert(parts.value()?),
            };
            let mut set: FieldSet = serde_json::from_str(text.get())?;
            if !of_status && is_applier(manager) {
                pending = kstatus::pending(kind, live);
            }
            if let (false, Value::Object(live)) = (of_status, &*live) {
                fingerprint = values::fingerprint(&set, live, kind);
            }
            if several {
                set.order_as(live);
                fields = serde_json::to_string(&set)?.replace(&quoted(name), NAME_MARK);
            }
        }
        if let Some(controller) = controller {
            fields = fields.replace(controller, CONTROLLER_MARK);
        }
        entries.push(ApplyEntry {
            manager: manager.as_ref().into(),
            api_version: api_version.as_deref().unwrap_or_default().into(),
            of_status,
            fields: fields.into_boxed_str(),
        });
        fingerprints.push(fingerprint);
    }
    Ok(ReadEntries {
        entries,
        values: fingerprints,
        pending,
    })
}

/// The fields of other clients at the paths that an object yields, as a JSON list of field sets; none if there are none. Those
/// of plugins are among the entries.
pub(crate) fn read_taken(metadata: &RawMetadata<'_>, yields: &[FieldPath]) -> Option<Box<str>> {
    if yields.is_empty() {
        return None;
    }
    let others = metadata.managed_fields.iter().filter(|entry| {
        let is_plugin = entry.manager.as_deref().is_some_and(is_applier);
        !is_plugin && entry.subresource.as_deref() != Some("status")
    });
    let sets = others.filter_map(|entry| serde_json::from_str::<FieldSet>(entry.fields_v1?.get()).ok());
    let taken: Vec<FieldSet> = sets.map(|set| set.only(yields)).filter(|set| !set.is_empty()).collect();
    let text = serde_json::to_string(&taken).expect("a field set is always text");
    (!taken.is_empty()).then(|| text.into())
}

/// Reports whether a field manager is that of a plugin's owned objects: a plugin contributes as
/// `pilothouse/NAME/contributed`.
pub(crate) fn is_applier(manager: &str) -> bool {
    let plugin = manager.strip_prefix(MANAGER_PREFIX);
    plugin.is_some_and(|plugin| !plugin.contains('/'))
}

/// A name as it is written in the key of a list item: a string within a string.
fn quoted(name: &str) -> String {
    format!("\\\"{name}\\\"")
}
