//! Owns the status that a primary should have: the plugin's part, its conditions and the host's, merged by type with
//! the times that Kubernetes asks for.

pub use pilothouse_description::status::{OBSERVED_GENERATION, STATUS, left_out, status_schema, without_subresource};
use serde_json::{Map, Value, json};

use crate::contract::Condition;
use crate::fields::FieldSet;
use crate::host_conditions::{HostConditions, is_host_condition};
use crate::manifest::BroughtCrd;

/// The plugin's part of a status.
#[derive(Clone, Copy, Debug)]
pub enum PluginPart<'a> {
    /// What the plugin answers about the object as it is now.
    Answered {
        /// Its status; none where it gives none.
        status: Option<&'a Map<String, Value>>,
        /// Its conditions.
        conditions: &'a [Condition],
    },
    /// What it answered earlier and the object still has, because no answer has come since. Conditions keep the
    /// generation that they are about.
    Kept(&'a Map<String, Value>),
    /// Nothing.
    Omitted,
}

/// What the status is made from.
#[derive(Debug)]
pub struct StatusInput<'a> {
    /// The plugin's part.
    pub plugin: PluginPart<'a>,
    /// The host's own conditions.
    pub host: &'a HostConditions,
    /// The primary's live status.
    pub live: Option<&'a Value>,
    /// The primary's `metadata.generation`.
    pub generation: Option<i64>,
    /// Now, as RFC 3339 with seconds.
    pub now: &'a str,
}

/// Makes the whole status that is to be applied. Its `observedGeneration` is the primary's own, whatever the plugin
/// gives there, and also when the reconcile failed: the generation was examined.
pub fn desired_status(input: &StatusInput<'_>) -> Map<String, Value> {
    let StatusInput {
        plugin,
        host,
        live,
        generation,
        now,
    } = *input;
    let (status, conditions, is_kept) = match plugin {
        PluginPart::Answered { status, conditions } => (status, conditions, false),
        PluginPart::Kept(status) => (Some(status), &[][..], true),
        PluginPart::Omitted => (None, &[][..], false),
    };
    let mut status = status.cloned().unwrap_or_default();
    status.retain(|_, value| !value.is_null());
    let mut list: Vec<Value> = match status.remove("conditions") {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    list.retain(|item| !item["type"].as_str().is_some_and(is_host_condition));
    if !is_kept {
        for item in list.iter_mut().filter_map(Value::as_object_mut) {
            observe(item, generation);
        }
    }
    let live_conditions = live.and_then(|it| it.get("conditions")).and_then(Value::as_array);
    for condition in conditions.iter().chain(host.iter()) {
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
    observe(&mut status, generation);
    status
}

/// Sets the generation that a status or a condition is about.
fn observe(value: &mut Map<String, Value>, generation: Option<i64>) {
    match generation {
        Some(generation) => value.insert(OBSERVED_GENERATION.to_owned(), json!(generation)),
        None => value.remove(OBSERVED_GENERATION),
    };
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
        value[OBSERVED_GENERATION] = json!(generation);
    }
    value
}

/// What the definition of a kind does not take of the status that the host writes, for people; none if it takes all.
pub fn gaps(crd: &BroughtCrd, version: &str) -> Option<String> {
    pilothouse_description::status::gaps(&crd.described(), version)
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

/// Whether a status says anything new beside the host's own conditions and the generations.
pub fn says_more_than_the_host(desired: &Map<String, Value>, live: Option<&Value>) -> bool {
    let mut desired = desired.clone();
    desired.remove(OBSERVED_GENERATION);
    if let Some(Value::Array(conditions)) = desired.get_mut("conditions") {
        conditions.retain(|condition| !condition["type"].as_str().is_some_and(is_host_condition));
        for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
            condition.remove(OBSERVED_GENERATION);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;
    use crate::host_conditions::{RECONCILED, STALLED};
    use crate::reason::Reason;

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn succeeded() -> HostConditions {
        HostConditions::succeeded("all is as desired")
    }

    fn failed() -> HostConditions {
        HostConditions::failed(&Failure::user(Reason::Invalid, "no such port"), None)
    }

    fn desired(plugin: PluginPart<'_>, host: &HostConditions, live: Option<&Value>, generation: i64) -> Value {
        Value::Object(desired_status(&StatusInput {
            plugin,
            host,
            live,
            generation: Some(generation),
            now: NOW,
        }))
    }

    fn answered(status: &Value) -> PluginPart<'_> {
        PluginPart::Answered {
            status: status.as_object(),
            conditions: &[],
        }
    }

    fn desired_for(plugin: &Value, live: Option<&Value>) -> Map<String, Value> {
        let status = desired(answered(plugin), &succeeded(), live, 3);
        status.as_object().unwrap().clone()
    }

    #[test]
    fn what_the_host_says_itself_is_no_news_of_the_plugin() {
        let say = |text: &str, host: &HostConditions, generation| {
            let status = desired(answered(&json!({"text": text})), host, None, generation);
            status.as_object().unwrap().clone()
        };
        let live = Value::Object(say("a", &succeeded(), 1));
        assert!(!says_more_than_the_host(&say("a", &failed(), 2), Some(&live)));
        assert!(says_more_than_the_host(&say("b", &succeeded(), 1), Some(&live)));
        assert!(says_more_than_the_host(&say("a", &succeeded(), 1), None));
        let alone = json!({"conditions": [{"type": RECONCILED}, {"type": STALLED}]});
        assert!(!says_more_than_the_host(alone.as_object().unwrap(), None));
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
        let status = desired_for(&json!({"ready": true}), None);
        assert_eq!(
            Value::Object(status),
            json!({"ready": true, "observedGeneration": 3, "conditions": [{
                "type": "Reconciled", "status": "True", "reason": "Success", "message": "all is as desired",
                "lastTransitionTime": NOW, "observedGeneration": 3}]})
        );
    }

    #[test]
    fn a_childs_conditions_get_the_generation_of_the_primary() {
        let child = json!({"observedGeneration": 9, "conditions": [{"type": "Available", "status": "True"}]});
        let status = desired_for(&child, None);
        assert_eq!(status["observedGeneration"], 3, "what the plugin gives is dropped");
        let available = json!({"type": "Available", "status": "True", "observedGeneration": 3});
        assert_eq!(status["conditions"][0], available);
        assert_eq!(status["conditions"][1]["type"], "Reconciled");
    }

    #[test]
    fn without_a_generation_the_plugins_is_dropped_all_the_same() {
        let child = json!({"observedGeneration": 9, "conditions": [{"type": "A", "observedGeneration": 9}]});
        let status = desired_status(&StatusInput {
            plugin: answered(&child),
            host: &succeeded(),
            live: None,
            generation: None,
            now: NOW,
        });
        assert_eq!(status.get("observedGeneration"), None);
        assert_eq!(status["conditions"][0], json!({"type": "A"}));
    }

    #[test]
    fn a_failed_call_keeps_the_conditions_and_moves_the_generation() {
        let before = desired_for(
            &json!({"ready": true, "conditions": [{"type": "A", "status": "True"}]}),
            None,
        );
        let live = Value::Object(before.clone());
        let status = desired(PluginPart::Kept(&before), &failed(), Some(&live), 4);
        assert_eq!(
            (&status["ready"], &status["observedGeneration"]),
            (&json!(true), &json!(4))
        );
        let observed: Vec<_> = status["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| (&it["type"], &it["observedGeneration"]))
            .collect();
        let (a, reconciled, stalled) = (json!("A"), json!(RECONCILED), json!(STALLED));
        assert_eq!(
            observed,
            [(&a, &json!(3)), (&reconciled, &json!(4)), (&stalled, &json!(4))]
        );
    }

    #[test]
    fn success_removes_reconciling_and_stalled() {
        let stalled = desired(PluginPart::Omitted, &failed(), None, 3);
        assert_eq!(stalled["conditions"][1]["type"], STALLED);
        let kept = stalled.as_object().unwrap();
        let status = desired(PluginPart::Kept(kept), &succeeded(), Some(&stalled), 3);
        assert_eq!(status["conditions"].as_array().unwrap().len(), 1, "{status}");
        let entry: FieldSet = serde_json::from_value(json!({"f:status": {"f:observedGeneration": {}, "f:conditions": {
            "k:{\"type\":\"Reconciled\"}": {".": {}}, "k:{\"type\":\"Stalled\"}": {".": {}}}}}))
        .unwrap();
        let mut live = status.clone();
        live["conditions"]
            .as_array_mut()
            .unwrap()
            .push(stalled["conditions"][1].clone());
        let status = status.as_object().unwrap();
        assert!(
            !status_is_as_desired(status, Some(&live), Some(&entry)),
            "it is written"
        );
    }

    #[test]
    fn a_condition_of_the_hosts_in_the_plugins_status_is_dropped() {
        let status =
            json!({"conditions": [{"type": STALLED, "status": "True"}, {"type": RECONCILED, "status": "False"}]});
        assert_eq!(desired_for(&status, None), desired_for(&json!({}), None));
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let early = "2020-01-01T00:00:00Z";
        let live = |status: &str| {
            json!({"conditions": [
                {"type": "Reconciled", "status": status, "lastTransitionTime": early, "reason": "Old", "message": ""}]})
        };
        let same = desired_for(&json!({}), Some(&live("True")));
        assert_eq!(same["conditions"][0]["lastTransitionTime"], early);
        let other = desired_for(&json!({}), Some(&live("False")));
        assert_eq!(other["conditions"][0]["lastTransitionTime"], NOW);
    }

    #[test]
    fn a_status_is_applied_only_when_it_differs() {
        let desired = desired_for(&json!({"ready": true}), None);
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
        let less = desired_for(&json!({}), None);
        assert!(
            !status_is_as_desired(&less, Some(&live), Some(&entry)),
            "a field that has to go is"
        );
        assert!(!status_is_as_desired(&desired, Some(&live), None), "nothing of ours is");
        assert!(!status_is_as_desired(&desired, None, None));
    }
}
