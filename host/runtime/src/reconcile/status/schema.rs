//! Finds the part of a status that the cluster's CRD of a kind accepts. The rest is omitted, which is reported once for
//! the kind: in the log, in an event about the first such object, and in the Plugin's status. Makes requests.

use std::collections::BTreeSet;
use std::sync::Arc;

use pilothouse_cluster::write::events::Regarding;
use pilothouse_core::plugin::contract::{Event, EventType};
use pilothouse_core::schema_pruning;
use pilothouse_core::status::undeclared::leave_out;
use pilothouse_core::status::{self, OBSERVED_GENERATION, STATUS};
use serde_json::{Map, Value};

use crate::context::HostContext;
use crate::lanes::health::about_status;
use crate::lanes::lane::Lane;
use crate::reconcile::gather::Gathered;

/// Reason of the Warning event.
const STATUS_INCOMPLETE: &str = "StatusIncomplete";

/// The longest message of an event, in bytes.
const LONGEST_NOTE: usize = 1024;

/// Schema of the status of a lane's primaries in the cluster. It is requested if it was before, or if `ask` is set;
/// `None` if it is not known.
pub async fn known(host: &HostContext, lane: &Lane, ask: bool) -> Option<Arc<Value>> {
    let kind = lane.grants.primary();
    let schema = host.schemas.known_status(kind);
    if schema.is_some() || !(ask || host.schemas.needs_status(kind)) {
        return schema;
    }
    match host.schemas.status(kind).await {
        Ok(schema) => Some(schema),
        Err(error) => {
            tracing::debug!(lane = lane.title(), %kind, %error, "cannot ask what the status may have");
            None
        }
    }
}

/// A status reduced to what the schema accepts, where it is known, and the server accepted before. Undeclared fields are omitted. Other
/// violations in the members that the plugin returns now (`own`) stay, because they are the plugin's failure.
pub async fn fitted(
    host: &HostContext,
    lane: &Lane,
    gathered: &Gathered,
    schema: Option<&Value>,
    desired: Map<String, Value>,
    own: Option<&Map<String, Value>>,
) -> Map<String, Value> {
    let kind = lane.grants.primary();
    let (mut fitted, mut omitted) = match schema {
        Some(schema) => pruned(schema, desired, own),
        None => (desired, BTreeSet::new()),
    };
    omitted.extend(leave_out(&mut fitted, &host.schemas.undeclared(kind)));
    if let Some(all) = lane.health.omit(&about_status(kind), omitted) {
        report_omission(host, lane, gathered, &status::left_out(&kind.kind, &all)).await;
    }
    fitted
}

fn pruned(
    schema: &Value,
    mut desired: Map<String, Value>,
    own: Option<&Map<String, Value>>,
) -> (Map<String, Value>, BTreeSet<String>) {
    let mut kept = Map::new();
    if schema.is_object() && !schema_pruning::drops_all(schema) {
        let own = own.into_iter().flat_map(Map::keys);
        let own = own.filter(|name| !["conditions", OBSERVED_GENERATION].contains(&name.as_str()));
        kept.extend(own.filter_map(|name| desired.remove_entry(name)));
    }
    let (mut value, mut kept) = (Value::Object(desired), Value::Object(kept));
    let mut omitted = schema_pruning::prune_to_schema(schema, &mut value, STATUS);
    omitted.extend(schema_pruning::prune_undeclared(schema, &mut kept, STATUS));
    let members = [value, kept].into_iter().filter_map(|part| match part {
        Value::Object(members) => Some(members),
        _ => None,
    });
    (members.flatten().collect(), omitted)
}

/// Reports why a status, or a part of it, is not written.
pub async fn report_omission(host: &HostContext, lane: &Lane, gathered: &Gathered, problem: &str) {
    let kind = lane.grants.primary();
    if !lane.health.warn(&about_status(kind), problem) {
        return;
    }
    let name = &gathered.object.name;
    tracing::warn!(lane = lane.title(), object = %name, problem, "the status is not written as a whole");
    let regarding = Regarding {
        kind,
        name,
        uid: &gathered.object.uid,
    };
    let event = Event {
        type_: EventType::Warning,
        reason: STATUS_INCOMPLETE.to_owned(),
        message: pilothouse_core::text::printable::shorten(problem.to_owned(), LONGEST_NOTE),
    };
    // The log and the Plugin's status report it, too.
    let now = host.clock.microseconds();
    if let Err(error) = lane.recorder.record_for_kind(&regarding, &event, &now).await {
        tracing::debug!(lane = lane.title(), object = %name, %error, "cannot emit an event");
    }
}
