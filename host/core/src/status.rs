//! Owns the status that a primary should have: the plugin's part, its conditions and the host's, merged by type with
//! the times that Kubernetes asks for.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::answer::{MAX_CONDITION_MESSAGE, shorten};
use crate::contract::{Condition, ConditionStatus};
use crate::failure::{Failure, reason};
use crate::fields::FieldSet;
use crate::manifest::BroughtCrd;
use crate::schema_pruning;

/// Where the status stands in an object.
pub const STATUS: &str = ".status";

/// The most fields that are named in one message.
const NAMED_PATHS: usize = 10;

/// The condition that the host keeps on every kind whose CRD a plugin brings.
pub const RECONCILED: &str = "Reconciled";

/// What the status is made from.
#[derive(Debug)]
pub struct StatusInput<'a> {
    /// The plugin's status; none where the call gave none or failed.
    pub plugin: Option<&'a Map<String, Value>>,
    /// The plugin's conditions.
    pub conditions: &'a [Condition],
    /// The host's own condition.
    pub reconciled: &'a Condition,
    /// The primary's live status.
    pub live: Option<&'a Value>,
    /// The primary's `metadata.generation`.
    pub generation: Option<i64>,
    /// Now, as RFC 3339 with seconds.
    pub now: &'a str,
}

/// Makes the whole status that is to be applied.
pub fn desired_status(input: &StatusInput<'_>) -> Map<String, Value> {
    let StatusInput {
        plugin,
        conditions,
        reconciled,
        live,
        generation,
        now,
    } = *input;
    let mut status = plugin.cloned().unwrap_or_default();
    status.retain(|_, value| !value.is_null());
    let mut list: Vec<Value> = match status.remove("conditions") {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    let live_conditions = live.and_then(|it| it.get("conditions")).and_then(Value::as_array);
    for condition in conditions.iter().chain([reconciled]) {
        let before = live_conditions
            .into_iter()
            .flatten()
            .find(|item| item.get("type").and_then(Value::as_str) == Some(&condition.type_));
        let made = condition_value(condition, before, generation, now);
        match list.iter_mut().find(|item| item["type"] == condition.type_.as_str()) {
            Some(item) => *item = made,
            None => list.push(made),
        }
    }
    status.insert("conditions".to_owned(), Value::Array(list));
    if let Some(generation) = generation {
        status.entry("observedGeneration").or_insert_with(|| json!(generation));
    }
    status
}

fn condition_value(condition: &Condition, before: Option<&Value>, generation: Option<i64>, now: &str) -> Value {
    let status = condition.status.as_str();
    let since = before
        .filter(|before| before["status"] == status)
        .and_then(|before| before["lastTransitionTime"].as_str())
        .unwrap_or(now);
    let mut value = json!({
        "type": condition.type_,
        "status": status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": since,
    });
    if let Some(generation) = generation {
        value["observedGeneration"] = json!(generation);
    }
    value
}

/// The schema of the status in the schema of a kind's objects; null where it takes none.
pub fn status_schema(root: &Value) -> Value {
    match (
        &root["properties"]["status"],
        &root["x-kubernetes-preserve-unknown-fields"],
    ) {
        (Value::Null, Value::Bool(true)) => root.clone(),
        (status, _) => status.clone(),
    }
}

/// What the definition of a kind does not take of the status that the host writes, for people; none if it takes all.
pub fn gaps(crd: &BroughtCrd, version: &str) -> Option<String> {
    let versions = crd.definition["spec"]["versions"].as_array().into_iter().flatten();
    let version = versions.into_iter().find(|it| it["name"] == version)?;
    if version["subresources"]["status"].is_null() {
        return Some(without_subresource(&crd.kind));
    }
    let schema = status_schema(&version["schema"]["openAPIV3Schema"]);
    let mut sample = json!({"observedGeneration": 1, "conditions": [{
        "type": RECONCILED, "status": "True", "reason": reason::SUCCESS, "message": "all is as desired",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
    }]});
    let omitted = schema_pruning::prune_to_schema(&schema, &mut sample, STATUS);
    (!omitted.is_empty()).then(|| left_out(&crd.kind, &omitted))
}

/// What is said of a kind without the subresource.
pub fn without_subresource(kind: &str) -> String {
    format!(
        "the CRD of {kind} has no subresource status, so neither status nor conditions are written, and only events tell \
         what happens; add subresources.status to its version"
    )
}

/// What is said of fields that a kind's schema does not take.
pub fn left_out(kind: &str, omitted: &BTreeSet<String>) -> String {
    let paths: Vec<_> = omitted.iter().take(NAMED_PATHS).map(String::as_str).collect();
    let more = match omitted.len().saturating_sub(NAMED_PATHS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "the CRD of {kind} does not take {}{more} as the host writes it, so that is left out of the status; declare it in the \
         schema of the CRD",
        paths.join(", ")
    )
}

/// Whether the live status shows all that is desired, and our entry holds nothing else.
///
/// Values are compared here, because a status has no annotation to carry a digest; what the server made of our own
/// last apply is remembered by the caller.
pub fn status_is_as_desired(desired: &Map<String, Value>, live: Option<&Value>, entry: Option<&FieldSet>) -> bool {
    let (Some(live), Some(entry)) = (live, entry) else {
        return desired.is_empty();
    };
    let desired = Value::Object(desired.clone());
    shows(live, &desired) && entry.below("status").is_some_and(|entry| entry.is_within(&desired))
}

/// Whether a status says anything new beside the host's own condition and the generations.
pub fn says_more_than_the_host(desired: &Map<String, Value>, live: Option<&Value>) -> bool {
    let mut desired = desired.clone();
    desired.remove("observedGeneration");
    if let Some(Value::Array(conditions)) = desired.get_mut("conditions") {
        conditions.retain(|condition| condition["type"] != RECONCILED);
        for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
            condition.remove("observedGeneration");
        }
        if conditions.is_empty() {
            desired.remove("conditions");
        }
    }
    !desired.is_empty() && live.is_none_or(|live| !shows(live, &Value::Object(desired)))
}

/// Whether `live` has everything that `desired` has. Lists of conditions are matched by type, other lists whole.
fn shows(live: &Value, desired: &Value) -> bool {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => {
            desired
                .iter()
                .all(|(name, value)| match (name.as_str(), live.get(name), value) {
                    (_, None, _) => false,
                    ("conditions", Some(Value::Array(live)), Value::Array(desired)) => {
                        desired.iter().all(|condition| {
                            live.iter()
                                .find(|item| item["type"] == condition["type"])
                                .is_some_and(|item| shows(item, condition))
                        })
                    }
                    (_, Some(live), value) => shows(live, value),
                })
        }
        _ => live == desired,
    }
}

/// The host's condition for a reconcile that succeeded.
pub fn reconciled(message: impl Into<String>) -> Condition {
    Condition {
        type_: RECONCILED.to_owned(),
        status: ConditionStatus::True,
        reason: reason::SUCCESS.to_owned(),
        message: message.into(),
    }
}

/// The host's condition for a reconcile that failed. Its reason is always `Failure`; the message begins with what kind of
/// failure it is, unless the plugin itself said that it failed.
pub fn not_reconciled(failure: &Failure) -> Condition {
    let message = match failure.reason {
        reason::FAILURE => failure.message.clone(),
        kind => format!("{kind}: {}", failure.message),
    };
    Condition {
        type_: RECONCILED.to_owned(),
        status: ConditionStatus::False,
        reason: reason::FAILURE.to_owned(),
        message: shorten(message, MAX_CONDITION_MESSAGE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_says_itself_is_no_news_of_the_plugin() {
        let say = |text: &str, reconciled: &Condition, generation| {
            desired_status(&StatusInput {
                plugin: json!({"text": text}).as_object(),
                conditions: &[],
                reconciled,
                live: None,
                generation: Some(generation),
                now: "2026-01-01T00:00:00Z",
            })
        };
        let (well, ill) = (
            reconciled("all is as desired"),
            not_reconciled(&Failure::user("X", "y")),
        );
        let live = Value::Object(say("a", &well, 1));
        assert!(!says_more_than_the_host(&say("a", &ill, 2), Some(&live)));
        assert!(says_more_than_the_host(&say("b", &well, 1), Some(&live)));
        assert!(says_more_than_the_host(&say("a", &well, 1), None));
        let alone = json!({"conditions": [{"type": RECONCILED}]});
        assert!(!says_more_than_the_host(alone.as_object().unwrap(), None));
    }

    #[test]
    fn a_failure_says_of_which_kind_it_is() {
        let trap = not_reconciled(&Failure::guest(reason::TRAP, "it panicked"));
        assert_eq!(
            (trap.reason.as_str(), trap.message.as_str()),
            ("Failure", "GuestTrap: it panicked")
        );
        let own = not_reconciled(&Failure::user(reason::FAILURE, "no such port"));
        assert_eq!((own.reason.as_str(), own.message.as_str()), ("Failure", "no such port"));
    }

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn desired_for(plugin: &Value, conditions: &[Condition], live: Option<&Value>) -> Map<String, Value> {
        desired_status(&StatusInput {
            plugin: plugin.as_object(),
            conditions,
            reconciled: &reconciled("all is as desired"),
            live,
            generation: Some(3),
            now: NOW,
        })
    }

    fn gaps_of(status: &Value, subresources: &Value) -> Option<String> {
        let schema = json!({"type": "object", "properties": {"status": status}});
        let version = json!({"name": "v1", "subresources": subresources, "schema": {"openAPIV3Schema": schema}});
        let crd = BroughtCrd {
            name: "things.x.dev".to_owned(),
            group: "x.dev".to_owned(),
            kind: "Thing".to_owned(),
            definition: json!({"spec": {"versions": [version]}}),
        };
        gaps(&crd, "v1")
    }

    #[test]
    fn what_a_definition_does_not_take_is_known_beforehand() {
        let with_status = json!({"status": {}});
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        assert_eq!(gaps_of(&open, &with_status), None);
        assert!(gaps_of(&open, &Value::Null).unwrap().contains("no subresource status"));
        let conditions =
            json!({"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let without = json!({"type": "object", "properties": {"conditions": conditions}});
        let said = gaps_of(&without, &with_status).unwrap();
        assert!(
            said.contains("CRD of Thing does not take .status.observedGeneration as"),
            "{said}"
        );
        let said = gaps_of(&Value::Null, &with_status).unwrap();
        assert!(said.contains("does not take .status as"), "{said}");
    }

    #[test]
    fn the_host_adds_its_condition_and_the_generation() {
        let status = desired_for(&json!({"ready": true}), &[], None);
        assert_eq!(
            Value::Object(status),
            json!({"ready": true, "observedGeneration": 3, "conditions": [{
                "type": "Reconciled", "status": "True", "reason": "Success", "message": "all is as desired",
                "lastTransitionTime": NOW, "observedGeneration": 3}]})
        );
    }

    #[test]
    fn the_plugins_generation_and_a_childs_conditions_are_kept() {
        let child = json!({"observedGeneration": 9, "conditions": [{"type": "Available", "status": "True"}]});
        let status = desired_for(&child, &[], None);
        assert_eq!(status["observedGeneration"], 9);
        assert_eq!(status["conditions"][0], json!({"type": "Available", "status": "True"}));
        assert_eq!(status["conditions"][1]["type"], "Reconciled");
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let early = "2020-01-01T00:00:00Z";
        let live = |status: &str| {
            json!({"conditions": [
                {"type": "Reconciled", "status": status, "lastTransitionTime": early, "reason": "Old", "message": ""}]})
        };
        let same = desired_for(&json!({}), &[], Some(&live("True")));
        assert_eq!(same["conditions"][0]["lastTransitionTime"], early);
        let other = desired_for(&json!({}), &[], Some(&live("False")));
        assert_eq!(other["conditions"][0]["lastTransitionTime"], NOW);
    }

    #[test]
    fn a_status_is_applied_only_when_it_differs() {
        let desired = desired_for(&json!({"ready": true}), &[], None);
        let entry: FieldSet = serde_json::from_value(json!({"f:status": {
            "f:ready": {}, "f:observedGeneration": {}, "f:conditions": {"k:{\"type\":\"Reconciled\"}": {".": {},
                "f:type": {}, "f:status": {}, "f:reason": {}, "f:message": {}, "f:lastTransitionTime": {},
                "f:observedGeneration": {}}}}}))
        .unwrap();
        let mut live = Value::Object(desired.clone());
        live["conditions"]
            .as_array_mut()
            .unwrap()
            .insert(0, json!({"type": "Others", "status": "True"}));
        live["others"] = json!(1);
        assert!(
            status_is_as_desired(&desired, Some(&live), Some(&entry)),
            "others' fields are no difference"
        );

        live["ready"] = json!(false);
        assert!(
            !status_is_as_desired(&desired, Some(&live), Some(&entry)),
            "a changed value is"
        );
        live["ready"] = json!(true);
        let less = desired_for(&json!({}), &[], None);
        assert!(
            !status_is_as_desired(&less, Some(&live), Some(&entry)),
            "a field that has to go is"
        );
        assert!(!status_is_as_desired(&desired, Some(&live), None), "nothing of ours is");
        assert!(!status_is_as_desired(&desired, None, None));
    }
}
