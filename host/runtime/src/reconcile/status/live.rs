//! The live status of a primary, compared with the desired one in the sixth stage: our entry, the schema if known, and
//! what the server made of our last write. Makes no request.

use std::collections::BTreeSet;
use std::sync::Arc;

use pilothouse_cluster::object::CachedObject;
use pilothouse_core::answer::CheckedAnswer;
use pilothouse_core::diff::canonical::digest;
use pilothouse_core::kubernetes::fields::FieldSet;
use pilothouse_core::{Key, status};
use serde_json::{Map, Value};

use crate::context::HostContext;
use crate::lanes::lane::Lane;
use crate::state::tables::unpersisted::UnpersistedApply;
use crate::state::tables::visibility;

/// A live status.
pub struct LiveStatus {
    /// Object of the status.
    pub object: Arc<CachedObject>,
    /// The status; `None` if the object has none.
    pub status: Option<Value>,
    /// Schema of the status, if known.
    pub schema: Option<Arc<Value>>,
    fields: Option<FieldSet>,
    /// Set if a write of ours replaces the list of conditions as a whole; `None`: unknown.
    plain: Option<bool>,
}

impl LiveStatus {
    /// The status of an object.
    pub fn new(lane: &Lane, object: Arc<CachedObject>, schema: Option<Arc<Value>>) -> Self {
        let entry = object.entry(lane.writer.manager(), true);
        let fields = entry.map(|entry| entry.field_set());
        Self {
            status: visibility::status(&object),
            plain: status::is_plain_list(schema.as_deref(), fields.as_ref()),
            fields,
            object,
            schema,
        }
    }

    /// Returns `true` if a write of ours replaces the list of conditions as a whole.
    pub fn is_plain(&self) -> bool {
        self.plain == Some(true)
    }

    /// Generation that was examined last, by this status; none if it has the default of a CRD, -1: no host has seen the
    /// object.
    pub fn observed_generation(&self) -> Option<i64> {
        let observed = self.status.as_ref()?[status::OBSERVED_GENERATION].as_i64();
        observed.filter(|generation| *generation >= 0)
    }

    /// Our field set of the status; `None` if no field is ours.
    pub fn fields(&self) -> Option<&FieldSet> {
        self.fields.as_ref()
    }

    /// Returns `true` if the schema has to be known before a status is written: it distinguishes the server's defaults
    /// from changes, and says how conditions of others are kept.
    pub fn needs_schema(&self) -> bool {
        self.schema.is_none() && (self.fields.is_some() || status::has_other_conditions(self.status.as_ref()))
    }

    /// Condition types that the plugin has returned, if the conditions of others have to be told from them: in a list
    /// that is, or may be, replaced as a whole.
    pub fn given_conditions(&self, lane: &Lane, answer: Option<&CheckedAnswer>) -> Option<Arc<BTreeSet<String>>> {
        if self.plain == Some(false) {
            return None;
        }
        let given = answer.into_iter().flat_map(CheckedAnswer::condition_types);
        Some(lane.health.give_conditions(lane.grants.primary(), given))
    }

    /// Status fields that this plugin applied. Conditions are merged by type.
    pub fn own_part(&self) -> Option<Map<String, Value>> {
        let own = self.fields.as_ref()?.below("status")?;
        let mut part = self.status.as_ref()?.as_object()?.clone();
        let is_plain = self.is_plain();
        part.retain(|name, _| own.below(name).is_some() || is_plain && name == "conditions");
        if let Some(conditions) = part.get_mut("conditions").filter(|_| !is_plain) {
            let mut names = own.below("conditions")?.names_of_items(conditions).into_iter();
            if let Some(conditions) = conditions.as_array_mut() {
                conditions.retain(|_| names.next().flatten().is_some());
            }
        }
        Some(part)
    }

    /// Returns `true` if the status is as desired, or is what the server made of the same status before.
    pub fn is_as_desired(&self, host: &HostContext, key: &Key, desired: &Map<String, Value>) -> bool {
        let unpersisted = || host.state.unpersisted(key);
        self.shows(desired) || unpersisted().is_some_and(|unpersisted| unpersisted == self.unpersisted(desired))
    }

    /// Remembers what the server made of a status that it stored differently, so that it is sent once. Returns `true`
    /// if it is as desired.
    pub fn remember(&self, host: &HostContext, key: Key, desired: &Map<String, Value>) -> bool {
        let is_as_desired = self.shows(desired);
        let unpersisted = (!is_as_desired).then(|| self.unpersisted(desired));
        host.state.status_applied(key, unpersisted);
        is_as_desired
    }

    fn shows(&self, desired: &Map<String, Value>) -> bool {
        let (status, fields) = (self.status.as_ref(), self.fields.as_ref());
        status::status_is_as_desired(desired, status, fields, self.schema.as_deref(), self.is_plain())
    }

    fn unpersisted(&self, desired: &Map<String, Value>) -> UnpersistedApply {
        UnpersistedApply {
            digest: digest(&Value::Object(without_times(desired))).into(),
            left: digest(self.status.as_ref().unwrap_or(&Value::Null)).into(),
            rewritten: Arc::default(),
        }
    }
}

/// A status for comparison with an earlier one: if the server drops conditions, their times are new each time.
pub fn without_times(desired: &Map<String, Value>) -> Map<String, Value> {
    let mut desired = desired.clone();
    for condition in desired
        .get_mut("conditions")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(condition) = condition.as_object_mut() {
            condition.remove("lastTransitionTime");
        }
    }
    desired
}
