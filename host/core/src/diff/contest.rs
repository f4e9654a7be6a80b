//! Finds out why a child is applied repeatedly: either another field manager reverts its fields, or the plugin
//! returns another object each time.
//!
//! Only fields and managers are named, never values, because the child may be a Secret.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::diff::Difference;
use crate::kubernetes::fields::{FieldSet, LeafSemantics, Trail};
use crate::status::failure::Failure;
use crate::status::reason::Reason;
use crate::text::printable::first_few;

/// The highest number of taken fields whose holders are searched.
const TRACED: usize = 100;

/// A child that is about to be applied again.
#[derive(Debug)]
pub struct Fight<'a> {
    /// Its kind, namespace and name, for messages.
    pub title: &'a str,
    /// The body to apply.
    pub body: &'a Map<String, Value>,
    /// The reason for the apply.
    pub difference: &'a Difference,
    /// The object as it is now, with its managedFields.
    pub live: &'a Value,
    /// Our field manager.
    pub manager: &'a str,
    /// Set if the same body has been applied before. If not, the plugin wants something else each time.
    pub is_repeated: bool,
}

/// A field manager that took fields from us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTaker {
    /// The field manager.
    pub manager: String,
    /// The time of its last write, as recorded in managedFields: RFC 3339 in UTC. Empty where none is recorded.
    pub time: String,
    /// Our former fields that it holds.
    pub fields: Vec<String>,
}

/// The holders of the fields that were taken from us, the most recent writer first. A removed field has no holder.
pub fn takers(taken: &[String], body: &Map<String, Value>, live: &Value, own: &str) -> Vec<FieldTaker> {
    let takers = others(live, own).into_iter().filter_map(|(time, manager, held)| {
        let fields = held_of(taken, &held.missing(body, LeafSemantics::AsApplied).paths);
        (!fields.is_empty()).then_some(FieldTaker { manager, time, fields })
    });
    takers.collect()
}

/// The number of levels above a removed field at which a field in its place is searched.
const ABOVE: usize = 2;

/// The manager of a field that replaces a removed one, that field, and the removed one: `valueFrom` for `value`. The
/// members of a whole object, such as those of `spec`, are no alternatives of each other.
fn replaced(taken: &[String], body: &Map<String, Value>, live: &Value, own: &str) -> Option<(String, String, String)> {
    let others: Vec<_> = others(live, own)
        .into_iter()
        .map(|(_, manager, held)| (manager, held.surplus(body)))
        .collect();
    taken.iter().take(TRACED).find_map(|ours| {
        let above = ours.rmatch_indices('.').take(ABOVE).map(|(end, _)| &ours[..=end]);
        let mut above = above.filter(|above| above.matches('.').count() > 2);
        above.find_map(|above| {
            let stands_beside = |theirs: &&String| {
                let rest = theirs.strip_prefix(above);
                rest.is_some_and(|rest| !rest.contains('.'))
            };
            let beside = |(manager, held): &(String, Vec<String>)| {
                let theirs = held.iter().find(stands_beside)?;
                Some((manager.clone(), theirs.clone(), ours.clone()))
            };
            others.iter().find_map(beside)
        })
    })
}

/// Explains which managers overwrite which fields, and how to resolve it.
pub fn explain(fight: &Fight<'_>) -> Failure {
    let Fight {
        title,
        body,
        difference,
        live,
        manager,
        is_repeated,
    } = *fight;
    let fields;
    let taken = if let Difference::Drift(taken) = difference {
        taken
    } else {
        fields = differing(body, live);
        &fields
    };
    if !is_repeated {
        return Failure::guest(
            Reason::Contested,
            format!(
                "the plugin asks for another {title} in each run{}, so it is slowed; fix the plugin: its answer must not \
                 depend on what it has written, nor on the time without end",
                list(" (", taken, ")")
            ),
        );
    }
    let takers: Vec<_> = takers(taken, body, live, manager)
        .into_iter()
        .map(|FieldTaker { manager, fields, .. }| format!("{manager} sets {}", list("", &fields, "")))
        .collect();
    let who = match difference {
        _ if !takers.is_empty() => takers.join(", and "),
        Difference::Drift(_) if let Some((manager, theirs, ours)) = replaced(taken, body, live, manager) => {
            format!("{manager} sets {theirs} in place of {ours}")
        }
        Difference::Drift(_) => format!("somebody removes {}", list("", taken, "")),
        // The fields are ours, and yet another body was applied, by a digest of another.
        _ => format!(
            "somebody else applies it as {manager}{}, perhaps another host that runs the same plugin,",
            list(" (", taken, ")")
        ),
    };
    Failure::cluster(
        Reason::Contested,
        format!(
            "{title} is fought over: {who} each time that it has been set as desired, so it is slowed; let only one of the \
             two set it"
        ),
    )
}

/// The failure for a status that differs in each reconcile although nobody else changes anything.
pub fn status_never_rests(title: &str) -> Failure {
    Failure::guest(
        Reason::Contested,
        format!(
            "the plugin reports another status of {title} in each run though nobody else changes anything, so it is slowed; \
             fix the plugin: its status must not depend on itself, on a status that depends on it, nor on the time without \
             end"
        ),
    )
}

/// The failure for a child that the plugin alternately wants and does not want.
pub fn wanted_by_turns(title: &str) -> Failure {
    Failure::guest(
        Reason::Contested,
        format!(
            "the plugin asks for {title} in one run and not in the next though nobody else changes anything, so it is slowed; \
             fix the plugin: its answer must not depend on what it has written, nor on the time without end"
        ),
    )
}

/// The failure for a child that another client deletes repeatedly.
pub fn deleted(title: &str) -> Failure {
    Failure::cluster(
        Reason::Contested,
        format!(
            "{title} is deleted by somebody each time that it has been made, so it is slowed; find out who deletes it, or \
             delete the object that asks for it"
        ),
    )
}

/// The other managers with their fields and the time of their last write, the most recent writer first. Entries of
/// subresources count too.
fn others(live: &Value, own: &str) -> Vec<(String, String, FieldSet)> {
    let entries = live["metadata"]["managedFields"].as_array();
    let mut others: Vec<_> = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let applied_by_us = entry["manager"] == own && entry["operation"] == "Apply";
            let held = serde_json::from_value(entry["fieldsV1"].clone()).ok()?;
            let time = entry["time"].as_str().unwrap_or_default().to_owned();
            let name = entry["manager"]
                .as_str()
                .unwrap_or("somebody without a name")
                .to_owned();
            (!applied_by_us).then_some((time, name, held))
        })
        .collect();
    others.sort_by(|(one, ..), (other, ..)| other.cmp(one));
    others
}

/// The paths held by a set that lacks only `lacking`.
fn held_of(paths: &[String], lacking: &[String]) -> Vec<String> {
    let lacking: HashSet<&str> = lacking.iter().map(String::as_str).collect();
    let lacks = |path: &String| {
        let ends = path.match_indices(['.', '[', ' ']).map(|(end, _)| end);
        ends.chain([path.len()]).any(|end| lacking.contains(&path[..end]))
    };
    paths.iter().take(TRACED).filter(|path| !lacks(path)).cloned().collect()
}

/// The paths at which the live object has other values than the body, except the host's own annotation.
fn differing(body: &Map<String, Value>, live: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    for (name, value) in body {
        let of_metadata = |name: &str| ["labels", "annotations", "finalizers"].contains(&name);
        match (name.as_str(), value) {
            ("apiVersion" | "kind", _) => {}
            ("metadata", Value::Object(metadata)) => {
                for (name, value) in metadata.iter().filter(|(name, _)| of_metadata(name)) {
                    let around = Trail::root("metadata");
                    differing_at(&around.member(name), value, &live["metadata"][name], &mut paths);
                }
            }
            _ => differing_at(&Trail::root(name), value, &live[name], &mut paths),
        }
    }
    paths.retain(|path| path != OWN_ANNOTATION);
    paths
}

/// The annotation with the digest, which differs with every other difference.
const OWN_ANNOTATION: &str = ".metadata.annotations.pilothouse.dev/desired";

fn differing_at(trail: &Trail<'_>, value: &Value, live: &Value, paths: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let live = live.get(name).unwrap_or(&Value::Null);
                differing_at(&trail.member(name), value, live, paths);
            }
        }
        _ if value == live => {}
        _ => paths.push(trail.path()),
    }
}

/// The first few fields between two texts; empty if there are no fields.
fn list(before: &str, fields: &[String], after: &str) -> String {
    if fields.is_empty() {
        return String::new();
    }
    format!("{before}{}{after}", first_few(fields.iter().map(String::as_str)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const OURS: &str = "pilothouse/p";

    fn body() -> Map<String, Value> {
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "c", "labels": {"app": "c"}, "annotations": {"pilothouse.dev/desired": "2"}},
            "data": {"a": "1", "b": "secret words"},
        });
        body.as_object().unwrap().clone()
    }

    fn live(others: &Value) -> Value {
        let ours = json!({"manager": OURS, "operation": "Apply", "time": "2026-01-01T00:00:00Z",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:app": {}}}, "f:data": {"f:a": {}}}});
        let mut entries = vec![ours];
        entries.extend(others.as_array().unwrap().iter().cloned());
        json!({"metadata": {"name": "c", "labels": {"app": "c"}, "managedFields": entries},
            "data": {"a": "1", "b": "other words"}})
    }

    fn words(difference: &Difference, live: &Value) -> String {
        let body = body();
        let fight = Fight {
            title: "ConfigMap n/c",
            body: &body,
            difference,
            live,
            manager: OURS,
            is_repeated: *difference != Difference::Desired,
        };
        let failure = explain(&fight);
        assert_eq!(failure.reason, Reason::Contested);
        assert!(!failure.message.contains("words"), "no value is told: {failure}");
        failure.message
    }

    #[test]
    fn the_managers_are_named_with_the_fields_that_they_took() {
        let live = live(&json!([
            {"manager": "early", "operation": "Update", "time": "2026-01-01T00:00:01Z", "fieldsV1": {"f:data": {"f:z": {}}}},
            {"manager": "kubectl-edit", "operation": "Update", "time": "2026-01-01T00:00:02Z",
             "fieldsV1": {"f:data": {"f:b": {}}}},
        ]));
        let words = words(&Difference::Drift(vec![".data.b".to_owned()]), &live);
        assert!(
            words.starts_with("ConfigMap n/c is fought over: kubectl-edit sets .data.b each time"),
            "{words}"
        );
        assert!(!words.contains("early"), "{words}");
    }

    #[test]
    fn our_own_updates_are_somebody_elses() {
        let live = live(&json!([{"manager": OURS, "operation": "Update", "fieldsV1": {"f:data": {"f:b": {}}}}]));
        let words = words(&Difference::Drift(vec![".data.b".to_owned()]), &live);
        assert!(words.contains("pilothouse/p sets .data.b"), "{words}");
    }

    #[test]
    fn a_field_that_nobody_holds_is_removed_by_somebody() {
        let words = words(&Difference::Drift(vec![".data.b".to_owned()]), &live(&json!([])));
        assert!(words.contains("somebody removes .data.b each time"), "{words}");
    }

    #[test]
    fn an_answer_that_is_another_each_time_is_the_plugins_fault() {
        let words = words(&Difference::Desired, &live(&json!([])));
        assert!(
            words.starts_with("the plugin asks for another ConfigMap n/c in each run (.data.b), so"),
            "{words}"
        );
    }

    #[test]
    fn no_more_fields_are_named_than_a_person_reads() {
        let fields: Vec<_> = (0..8).map(|number| format!(".data.x{number}")).collect();
        let words = words(&Difference::Drift(fields), &live(&json!([])));
        assert!(words.contains(".data.x4 and 3 more each time"), "{words}");
    }
}
