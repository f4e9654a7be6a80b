//! The status that a primary should have: the plugin's part, its conditions and the host's, merged by type with the
//! times that Kubernetes requires. Also decides whether a live status already shows it.
//!
//! `Reconciled` is True/Success, or False with a reason from a closed set (`reason`) or the controller's
//! `failureReason`, or Unknown/Paused while the object is paused (`annotations`). `Reconciling` and `Stalled` are those
//! of kstatus. The failure alone decides which of the two is set, or two hosts would rewrite each other's status.
//!
//! A failure (`failure`) has a blame, a reason, and what makes another try worth it:
//!
//! | cause | blame | retried |
//! |---|---|---|
//! | the plugin says `transient` | cluster | with back-off |
//! | the plugin says `permanent` | user | after a change of the object or of what was read |
//! | a trap, a broken limit, an answer that breaks the contract, an undeclared read | guest | after a change; a call that took too long also with back-off |
//! | 400, 413, 415, 422; 500 `failed to create typed patch object` | guest | after a change |
//! | 403, 404, 409, 429, 5xx, no answer | cluster | with back-off |
//! | a foreign object, a child that is being deleted | cluster | when that object changes in any way |
//! | a missing target, a field of it that others hold | cluster, user | when the target, or the holder's claim, changes |
//! | a kind that is not listed, a lost call | cluster, host | with back-off |
//!
//! A resync tries all once, but sends no body that was refused. Of several failures, one that time can help with decides. Retry-After is
//! honoured for up to five minutes; an edit by somebody else ends that wait.

pub mod annotations;
pub mod backoff;
pub mod failure;
pub mod host_conditions;
pub mod kstatus;
pub mod reason;
pub mod undeclared;

use std::collections::{BTreeSet, HashMap, HashSet};

use pilothouse_description::defaults::fill_in;
use serde_json::{Map, Value, json};

use crate::diff::canonical::drop_nulls;
use crate::kubernetes::fields::FieldSet;
use crate::kubernetes::values::is_equal;
use crate::plugin::contract::Condition;
use crate::plugin::manifest::BroughtCrd;
use crate::status::host_conditions::{HostConditions, is_host_condition};

pub use pilothouse_description::status::{
    OBSERVED_GENERATION, STATUS, left_out, replaces_conditions, status_schema, without_subresource,
};

/// The plugin's part of a status.
#[derive(Clone, Copy, Debug)]
pub enum PluginPart<'a> {
    /// The plugin's answer for the object as it is now.
    Answered {
        /// Its status; none where it gives none.
        status: Option<&'a Map<String, Value>>,
        /// Its conditions.
        conditions: &'a [Condition],
    },
    /// An earlier answer that the object still has, for lack of a new one. Conditions keep their observed generation.
    Kept(&'a Map<String, Value>),
    /// No answer.
    Omitted,
}

/// The inputs of the status.
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
    /// The condition types that this plugin has set, where a write replaces the list of conditions as a whole. The
    /// other conditions of the live status belong to others, and stay in it. None where conditions are merged by type.
    pub given: Option<&'a BTreeSet<String>>,
}

/// Builds the complete status to apply. Its `observedGeneration` is the primary's own, whatever the plugin sets, also
/// if the reconcile failed: the generation was examined.
pub fn desired_status(input: &StatusInput<'_>) -> Map<String, Value> {
    let StatusInput {
        plugin,
        host,
        live,
        generation,
        now,
        given,
    } = *input;
    let (status, conditions, is_kept) = match plugin {
        PluginPart::Answered { status, conditions } => (status, conditions, false),
        PluginPart::Kept(status) => (Some(status), &[][..], true),
        PluginPart::Omitted => (None, &[][..], false),
    };
    let mut status = status.cloned().unwrap_or_default();
    drop_nulls(&mut status);
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
    if let Some(given) = given {
        let listed: HashSet<&str> = list.iter().filter_map(|item| item["type"].as_str()).collect();
        let is_others = |item: &&Value| {
            let name = item["type"].as_str();
            name.is_none_or(|name| !given.contains(name) && !is_host_condition(name) && !listed.contains(name))
        };
        let others: Vec<_> = live_conditions
            .into_iter()
            .flatten()
            .filter(is_others)
            .cloned()
            .collect();
        list.extend(others);
    }
    status.insert("conditions".to_owned(), Value::Array(list));
    observe(&mut status, generation);
    status
}

/// Sets the observed generation of a status or a condition.
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

/// The members of the host's status that a kind's definition does not accept, for messages; none if it accepts all.
pub fn gaps(crd: &BroughtCrd, version: &str) -> Option<String> {
    pilothouse_description::status::gaps(&crd.described(), version).map(|(_, message)| message)
}

/// Reports whether a write of our status replaces the list of conditions as a whole: by the schema, if it is known,
/// else by our entry. None if neither tells.
pub fn is_plain_list(schema: Option<&Value>, entry: Option<&FieldSet>) -> Option<bool> {
    schema.map(replaces_conditions).or_else(|| {
        let list = entry?.below("status")?.below("conditions")?;
        Some(list.children().is_empty())
    })
}

/// Reports whether a live status has conditions that are not the host's.
pub fn has_other_conditions(live: Option<&Value>) -> bool {
    let conditions = live.and_then(|live| live["conditions"].as_array());
    let is_others = |item: &Value| !item["type"].as_str().is_some_and(is_host_condition);
    conditions.into_iter().flatten().any(is_others)
}

/// Reports whether the live status has all desired members, and our entry has no others. `is_plain` is set if the list
/// of conditions is replaced as a whole.
///
/// Values are compared here, because a status has no annotation with a digest; the caller remembers the server's form
/// of our own last apply. A value in another form is no difference: numbers are compared as numbers, and the defaults
/// of the schema, if it is known, are filled in first.
pub fn status_is_as_desired(
    desired: &Map<String, Value>,
    live: Option<&Value>,
    entry: Option<&FieldSet>,
    schema: Option<&Value>,
    is_plain: bool,
) -> bool {
    let (Some(live), Some(entry)) = (live, entry) else {
        return desired.is_empty();
    };
    let desired = Value::Object(desired.clone());
    let count = |status: &Value| status["conditions"].as_array().map_or(0, Vec::len);
    if is_plain && count(&desired) != count(live) {
        return false;
    }
    let Some(entry) = entry.below(STATUS_MEMBER) else {
        return false;
    };
    let is_within = entry.is_within(&desired);
    let mut filled = desired;
    if let Some(schema) = schema {
        fill_in(schema, &mut filled);
    }
    is_within
        && shows(
            live,
            &filled,
            Place {
                set: Some(entry),
                schema,
            },
        )
}

/// The name of an object's status member.
const STATUS_MEMBER: &str = "status";

/// Reports whether a status has anything new beside the host's own conditions and the generations.
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
    !desired.is_empty() && live.is_none_or(|live| !shows(live, &Value::Object(desired), Place::default()))
}

/// Reports whether `live` has everything that `desired` has. Lists of conditions are matched by type. A value that our
/// set holds as a whole has to be equal; a list that is merged item by item may also have items of others.
fn shows(live: &Value, desired: &Value, place: Place<'_>) -> bool {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => {
            let others = live.len() != desired.len();
            if others && place.is_whole(desired.is_empty()) {
                return false;
            }
            desired
                .iter()
                .all(|(name, value)| match (name.as_str(), live.get(name), value) {
                    (_, None, _) => false,
                    ("conditions", Some(Value::Array(live)), Value::Array(desired)) => {
                        let mut by_type: HashMap<_, &Value> = HashMap::new();
                        for item in live {
                            by_type.entry(item["type"].to_string()).or_insert(item);
                        }
                        desired.iter().all(|condition| {
                            let item = by_type.get(&condition["type"].to_string());
                            item.is_some_and(|item| shows(item, condition, Place::default()))
                        })
                    }
                    (_, Some(live), value) => shows(live, value, place.member(name)),
                })
        }
        (Value::Array(live), Value::Array(items)) if place.has_items() => {
            let mut live = live.iter();
            let names = place.set.map(|set| set.names_of_items(desired)).unwrap_or_default();
            items
                .iter()
                .zip(names)
                .all(|(wanted, name)| live.any(|item| shows(item, wanted, place.item(name))))
        }
        _ => is_equal(live, desired),
    }
}

/// A position in a status: our field set and the schema there, as far as they are known.
#[derive(Clone, Copy, Default)]
struct Place<'a> {
    set: Option<&'a FieldSet>,
    schema: Option<&'a Value>,
}

impl<'a> Place<'a> {
    fn member(self, name: &str) -> Self {
        let below = |schema: &'a Value| {
            schema["properties"]
                .get(name)
                .unwrap_or(&schema["additionalProperties"])
        };
        Self {
            set: self.set.and_then(|set| set.below(name)),
            schema: self.schema.map(below),
        }
    }

    /// The position of an item, by the child of the set that names it.
    fn item(self, name: Option<usize>) -> Self {
        let found = self.set.zip(name).map(|(set, name)| &set.children()[name]);
        Self {
            set: found.map(|(_, below)| below),
            schema: self.schema.map(|schema| &schema["items"]),
        }
    }

    /// Reports whether an object is held as a whole. An empty one that is merged by member looks the same in a set.
    fn is_whole(self, is_empty: bool) -> bool {
        let is_merged = self
            .schema
            .is_some_and(|schema| schema["x-kubernetes-map-type"] != "atomic");
        self.set.is_some_and(|set| set.children().is_empty()) && !(is_empty && is_merged)
    }

    fn has_items(self) -> bool {
        self.set.is_some_and(|set| !set.children().is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::failure::Failure;
    use crate::status::host_conditions::{RECONCILED, STALLED};
    use crate::status::reason::Reason;

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
            given: None,
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
            given: None,
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
            !status_is_as_desired(status, Some(&live), Some(&entry), None, false),
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
            status_is_as_desired(&desired, Some(&live), Some(&entry), None, false),
            "others' fields are no difference"
        );

        live["ready"] = json!(false);
        assert!(
            !status_is_as_desired(&desired, Some(&live), Some(&entry), None, false),
            "a changed value is"
        );
        live["ready"] = json!(true);
        let less = desired_for(&json!({}), None);
        assert!(
            !status_is_as_desired(&less, Some(&live), Some(&entry), None, false),
            "a field that has to go is"
        );
        assert!(
            !status_is_as_desired(&desired, Some(&live), None, None, false),
            "nothing of ours is"
        );
        assert!(!status_is_as_desired(&desired, None, None, None, false));
    }

    fn entry(status: &Value) -> FieldSet {
        serde_json::from_value(json!({"f:status": status})).unwrap()
    }

    fn is_shown(desired: &Value, live: &Value, fields: &Value, schema: Option<&Value>) -> bool {
        let desired = desired.as_object().unwrap();
        status_is_as_desired(desired, Some(live), Some(&entry(fields)), schema, false)
    }

    #[test]
    fn value_stored_in_another_form_is_no_difference() {
        for (desired, stored, same) in [
            ("1.0", "1", true),
            ("1e3", "1000", true),
            ("-0.0", "0", true),
            ("18446744073709551615", "18446744073709552000", true),
            ("9007199254740993", "9007199254740992", false),
            ("1", "2", false),
            ("1", "\"1\"", false),
            ("[1.0, {\"a\": 2.0}]", "[1, {\"a\": 2}]", true),
            ("[{\"a\": 1}]", "[{\"a\": 1, \"b\": 2}]", false),
            ("[1]", "[1, 2]", false),
        ] {
            let value = |text: &str| json!({"x": serde_json::from_str::<Value>(text).unwrap()});
            let shown = is_shown(&value(desired), &value(stored), &json!({"f:x": {}}), None);
            assert_eq!(shown, same, "{desired} is stored as {stored}");
        }
    }

    #[test]
    fn defaults_of_the_schema_in_items_of_lists_are_no_difference() {
        let item = json!({"type": "object", "properties": {
            "a": {"type": "integer"}, "mode": {"type": "string", "default": "x"},
            "deep": {"type": "object", "default": {}, "properties": {"on": {"type": "boolean", "default": true}}}}});
        let schema = json!({"type": "object", "properties": {
            "list": {"type": "array", "items": item}, "map": {"type": "object", "additionalProperties": item}}});
        let filled = json!({"a": 1, "mode": "x", "deep": {"on": true}});
        let fields = json!({"f:list": {}, "f:map": {"f:k": {"f:a": {}}}});
        let desired = json!({"list": [{"a": 1}], "map": {"k": {"a": 1}}});
        let live = json!({"list": [filled], "map": {"k": filled}});
        assert!(is_shown(&desired, &live, &fields, Some(&schema)));
        assert!(
            !is_shown(&desired, &live, &fields, None),
            "what is not known to be a default is a difference"
        );
        let other = json!({"list": [{"a": 1, "mode": "y"}], "map": {"k": filled}});
        assert!(!is_shown(&desired, &other, &fields, Some(&schema)));
    }

    #[test]
    fn merged_list_ignores_foreign_items_atomic_object_does_not() {
        let fields = json!({"f:list": {"k:{\"n\":\"a\"}": {"f:n": {}, "f:v": {}}}, "f:set": {"v:1": {}},
                            "f:whole": {}});
        let desired = json!({"list": [{"n": "a", "v": 1}], "set": [1.0], "whole": {"x": 1}});
        let live = json!({"list": [{"n": "b"}, {"n": "a", "v": 1, "theirs": 2}], "set": [2, 1], "whole": {"x": 1}});
        assert!(is_shown(&desired, &live, &fields, None));
        let mut more = live.clone();
        more["whole"]["y"] = json!(2);
        assert!(!is_shown(&desired, &more, &fields, None), "y has to go");
        let mut less = live;
        less["list"] = json!([{"n": "b"}]);
        assert!(!is_shown(&desired, &less, &fields, None));
    }

    #[test]
    fn an_empty_object_is_desired_as_such() {
        let (desired, fields) = (json!({"detail": {}}), json!({"f:detail": {}}));
        let merged = json!({"properties": {"detail": {"type": "object", "properties": {"a": {"type": "integer"}}}}});
        let atomic = json!({"properties": {"detail": {"type": "object", "x-kubernetes-map-type": "atomic"}}});
        let theirs = json!({"detail": {"a": 1}});
        assert!(!is_shown(&desired, &json!({}), &fields, None));
        assert!(!is_shown(&desired, &json!({"detail": null}), &fields, None));
        assert!(is_shown(&desired, &json!({"detail": {}}), &fields, None));
        assert!(
            is_shown(&desired, &theirs, &fields, Some(&merged)),
            "a is somebody else's"
        );
        assert!(!is_shown(&desired, &theirs, &fields, Some(&atomic)));
    }

    #[test]
    fn nulls_of_the_plugin_are_dropped_at_any_depth() {
        let given = json!({"a": null, "b": {"c": null, "d": {"e": null}}, "list": [{"f": null, "g": 1}, null]});
        let status = desired(answered(&given), &succeeded(), None, 1);
        assert_eq!(
            (&status["a"], &status["b"], &status["list"]),
            (&Value::Null, &json!({"d": {}}), &json!([{"g": 1}, null]))
        );
        assert!(status.get("a").is_none());
    }

    #[test]
    fn others_conditions_stay_in_a_list_replaced_as_a_whole() {
        let live = json!({"conditions": [
            {"type": "Theirs", "status": "True"}, {"type": "Former", "status": "True"}, {"type": "Ready", "status": "False"},
            {"type": STALLED, "status": "True"}]});
        let given = BTreeSet::from(["Former".to_owned(), "Ready".to_owned()]);
        let status = desired_status(&StatusInput {
            plugin: answered(&json!({"conditions": [{"type": "Ready", "status": "True"}]})),
            host: &succeeded(),
            live: Some(&live),
            generation: Some(1),
            now: NOW,
            given: Some(&given),
        });
        let types: Vec<_> = status["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["type"].clone())
            .collect();
        assert_eq!(types, ["Ready", RECONCILED, "Theirs"]);
        let fields = entry(&json!({"f:conditions": {}, "f:observedGeneration": {}}));
        let is_shown = |live: &Value| status_is_as_desired(&status, Some(live), Some(&fields), None, true);
        assert!(is_shown(&Value::Object(status.clone())));
        let mut more = Value::Object(status.clone());
        more["conditions"]
            .as_array_mut()
            .unwrap()
            .push(json!({"type": "Former", "status": "True"}));
        assert!(!is_shown(&more), "a condition that is not given any more has to go");
    }

    #[test]
    fn a_list_of_conditions_is_plain_by_its_schema_or_by_our_entry() {
        let of = |list_type: Value| json!({"properties": {"conditions": {"type": "array", "x-kubernetes-list-type": list_type}}});
        let (map, atomic, none) = (of(json!("map")), of(json!("atomic")), of(Value::Null));
        let merged = entry(&json!({"f:conditions": {"k:{\"type\":\"A\"}": {}}}));
        let whole = entry(&json!({"f:conditions": {}}));
        for (schema, entry, plain) in [
            (Some(&map), Some(&whole), Some(false)),
            (Some(&atomic), Some(&merged), Some(true)),
            (Some(&none), None, Some(true)),
            (
                Some(&json!({"x-kubernetes-preserve-unknown-fields": true})),
                None,
                Some(true),
            ),
            (Some(&json!({"type": "object"})), None, Some(false)),
            (None, Some(&merged), Some(false)),
            (None, Some(&whole), Some(true)),
            (None, None, None),
        ] {
            assert_eq!(is_plain_list(schema, entry), plain, "{schema:?} {entry:?}");
        }
    }
}
