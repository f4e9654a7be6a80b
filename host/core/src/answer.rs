//! Owns the check of a guest's answer: parsed once, held against the grants and limits, and made into objects that
//! the later stages need not question again.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::canonical::canonical;
use crate::contract::{Condition, Desired, Event, Lifecycle, Outcome, Ownership};
use crate::failure::{Failure, reason};
use crate::grants::Grants;
use crate::key::{Kind, Name};
use crate::limits::Limits;
use crate::manifest::{Access, Touch, is_label};
use crate::status::RECONCILED;

/// The longest message of a condition that is kept; the schema of metav1.Condition allows no more.
pub const MAX_CONDITION_MESSAGE: usize = 32_768;

/// The longest note of an event that is kept; events.k8s.io/v1 allows no more.
const MAX_EVENT_MESSAGE: usize = 1024;

/// The most conditions and the most events in one answer.
const MAX_CONDITIONS: usize = 64;

/// The longest time after which a plugin may ask to run again: a year.
const MAX_REQUEUE_MILLISECONDS: u64 = 366 * 24 * 60 * 60 * 1000;

/// What the host knows of a kind that the cluster serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindFacts {
    /// Whether its objects stand in namespaces.
    pub namespaced: bool,
    /// Whether it has the status subresource.
    pub has_status: bool,
}

/// The object that an answer is about.
#[derive(Clone, Debug)]
pub struct Primary<'a> {
    /// Its kind.
    pub kind: &'a Kind,
    /// Its place.
    pub name: &'a Name,
}

/// An object that should exist, in canonical form.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredObject {
    /// Its kind.
    pub kind: Kind,
    /// Its place.
    pub name: Name,
    /// The object, with `apiVersion`, `kind` and its place filled in.
    pub body: Map<String, Value>,
    /// Exceptions to its life.
    pub lifecycle: Lifecycle,
}

impl DesiredObject {
    /// For messages: `Deployment a/web`.
    pub fn title(&self) -> String {
        format!("{} {}", self.kind.kind, self.name)
    }
}

/// An answer that has been checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The owned objects, in the plugin's order.
    pub owned: Vec<DesiredObject>,
    /// Fields of other people's objects.
    pub contributed: Vec<DesiredObject>,
    /// The status without the host's part.
    pub status: Option<Map<String, Value>>,
    /// The plugin's conditions.
    pub conditions: Vec<Condition>,
    /// Events about the primary.
    pub events: Vec<Event>,
    /// Run again after so many milliseconds.
    pub requeue_after: Option<u64>,
}

/// An answer that breaks the contract: nobody but the plugin's author can do anything about it.
fn invalid(problem: impl std::fmt::Display) -> Failure {
    Failure::guest(reason::INVALID_ANSWER, format!("{problem}; mend the plugin"))
}

/// Checks an answer. `facts` knows every declared kind that is served.
pub fn check(
    outcome: Outcome,
    primary: &Primary<'_>,
    grants: &Grants,
    limits: &Limits,
    facts: impl Fn(&Kind) -> Option<KindFacts>,
) -> Result<Answer, Failure> {
    let Outcome {
        desired,
        status,
        conditions,
        events,
        requeue_after,
    } = outcome;
    let limit = usize::try_from(limits.output_objects).unwrap_or(usize::MAX);
    if desired.len() > limit {
        return Err(Failure::guest(
            reason::LIMIT,
            format!(
                "the plugin wants {} objects, the limit outputObjects is {limit}",
                desired.len()
            ),
        ));
    }
    let mut owned: Vec<DesiredObject> = Vec::with_capacity(desired.len());
    let mut contributed = Vec::new();
    let mut seen = HashMap::with_capacity(desired.len());
    for (position, wanted) in desired.into_iter().enumerate() {
        if wanted.ownership == Ownership::Contributed && wanted.lifecycle != Lifecycle::default() {
            return Err(invalid(format!(
                "desired object {position} is contributed and has a lifecycle, which only owned objects have"
            )));
        }
        let object = check_object(position, &wanted, primary, grants, &facts)?;
        let identity = (object.kind.group.clone(), object.kind.kind.clone(), object.name.clone());
        if let Some(earlier) = seen.insert(identity, position) {
            return Err(invalid(format!(
                "desired objects {earlier} and {position} are both {}",
                object.title()
            )));
        }
        match wanted.ownership {
            Ownership::Owned => owned.push(object),
            Ownership::Contributed => contributed.push(object),
        }
    }
    let status = status.map(|text| check_status(&text)).transpose()?;
    for condition in &conditions {
        check_condition(condition)?;
    }
    if conditions.len() > MAX_CONDITIONS || events.len() > MAX_CONDITIONS {
        return Err(invalid(format!(
            "an answer has at most {MAX_CONDITIONS} conditions and as many events"
        )));
    }
    if let Some(twice) = first_twice(conditions.iter().map(|it| it.name.as_str())) {
        return Err(invalid(format!("the answer has condition {twice} twice")));
    }
    let events = events.into_iter().map(check_event).collect::<Result<_, _>>()?;
    if let Some(wait) = requeue_after.filter(|wait| !(1..=MAX_REQUEUE_MILLISECONDS).contains(wait)) {
        return Err(invalid(format!(
            "requeue-after is {wait} ms; it must be between 1 and {MAX_REQUEUE_MILLISECONDS} (a year)"
        )));
    }
    Ok(Answer {
        owned,
        contributed,
        status,
        conditions,
        events,
        requeue_after,
    })
}

fn first_twice<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = std::collections::HashSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}

fn check_object(
    position: usize,
    wanted: &Desired,
    primary: &Primary<'_>,
    grants: &Grants,
    facts: &impl Fn(&Kind) -> Option<KindFacts>,
) -> Result<DesiredObject, Failure> {
    let mut body: Map<String, Value> = serde_json::from_str(&wanted.object)
        .map_err(|error| invalid(format!("desired object {position} is not a JSON object: {error}")))?;
    let member = |name: &str| body.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let (Some(api_version), Some(kind)) = (member("apiVersion"), member("kind")) else {
        return Err(invalid(format!("desired object {position} lacks apiVersion or kind")));
    };
    let kind = Kind::from_api_version(api_version, kind);
    let metadata = body.get("metadata").and_then(Value::as_object);
    let text_of = |name: &str| {
        metadata
            .and_then(|it| it.get(name))
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let Some(name) = text_of("name").filter(|name| !name.is_empty()) else {
        return Err(invalid(format!(
            "desired object {position}, a {}, has no metadata.name; a desired object is found by its name",
            kind.kind
        )));
    };
    if name.len() > 253 || name.contains(['/', '%']) || name == "." || name == ".." {
        return Err(invalid(format!(
            "desired object {position}, a {}, has the unusable name {name:?}",
            kind.kind
        )));
    }
    let access = match wanted.ownership {
        Ownership::Owned => Access::Owned,
        Ownership::Contributed => Access::Contributed,
    };
    match grants.get(&kind) {
        Some(grant) if grant.allows(access) => {}
        Some(_) => {
            let problem = format!("the manifest declares the kind without access {}", word(access));
            return Err(undeclared(&kind, &name, access, &problem));
        }
        None => {
            let problem = "the manifest does not declare the kind";
            return Err(undeclared(&kind, &name, access, problem));
        }
    }
    let Some(facts) = facts(&kind) else {
        return Err(Failure::cluster(
            reason::NOT_SYNCED,
            format!("{kind} {name} is desired, but the cluster does not serve the kind; install what brings it"),
        ));
    };
    let given = text_of("namespace");
    let namespace = place(&kind, &name, given, primary, facts)?;
    let name = Name::new(namespace.as_deref(), &name);
    if let Some(problem) = grants
        .get(&kind)
        .and_then(|grant| outside(&grant.touch, &name, &body, wanted.ownership))
    {
        return Err(undeclared(&kind, &name.name, access, &problem));
    }
    if wanted.ownership == Ownership::Owned && kind.same_kind(primary.kind) && name == *primary.name {
        return Err(invalid(format!(
            "{} {name} is desired by itself; an object cannot own itself",
            kind.kind
        )));
    }
    canonical(&mut body, &kind, facts.has_status);
    if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
        match namespace {
            Some(namespace) => metadata.insert("namespace".to_owned(), Value::String(namespace)),
            None => metadata.remove("namespace"),
        };
    }
    Ok(DesiredObject {
        kind,
        name,
        body,
        lifecycle: wanted.lifecycle,
    })
}

/// How an object lies outside of what a plugin declares of its own objects: it would not see it again.
fn outside(touch: &Touch, name: &Name, body: &Map<String, Value>, ownership: Ownership) -> Option<String> {
    let Touch {
        kind: _,
        access: _,
        fields: _,
        labels,
        namespaces,
        names,
        optional: _,
    } = touch;
    let namespace = name.namespace.as_deref().unwrap_or_default();
    if !namespaces.is_empty() && !namespaces.iter().any(|it| it == namespace) {
        return Some(format!(
            "namespace {namespace} is outside the namespaces that the manifest declares"
        ));
    }
    if !names.is_empty() && !names.iter().any(|it| **it == *name.name) {
        return Some("its name is outside the names that the manifest declares".to_owned());
    }
    // Somebody else's object has the labels that it has; they are looked at where it is found.
    if ownership == Ownership::Contributed {
        return None;
    }
    let own = body.get("metadata").and_then(|metadata| metadata.get("labels"));
    let label = |key: &str| own.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    let labels = labels.as_ref().filter(|labels| !labels.matches(label))?;
    Some(format!("its labels do not match {labels}, which the manifest declares"))
}

fn undeclared(kind: &Kind, name: &str, access: Access, problem: &str) -> Failure {
    let access = word(access);
    Failure::guest(
        reason::UNDECLARED,
        format!("{kind} {name} is desired, but {problem}; declare it under touches with access {access}"),
    )
}

/// As the manifest spells it.
fn word(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Owned => "owned",
        Access::Contributed => "contributed",
    }
}

/// The namespace that a desired object gets: the primary's where it gives none.
fn place(
    kind: &Kind,
    name: &str,
    namespace: Option<String>,
    primary: &Primary<'_>,
    facts: KindFacts,
) -> Result<Option<String>, Failure> {
    if !facts.namespaced {
        return Ok(None);
    }
    let home = primary.name.namespace.as_deref().map(str::to_owned);
    match namespace.filter(|namespace| !namespace.is_empty()).or(home) {
        // It goes into a path.
        Some(namespace) if !is_label(&namespace) => Err(invalid(format!(
            "{kind} {name} is desired in the unusable namespace {namespace:?}"
        ))),
        Some(namespace) => Ok(Some(namespace)),
        None => Err(invalid(format!(
            "{kind} {name} is desired without a namespace, and the primary has none to give it"
        ))),
    }
}

fn check_status(text: &str) -> Result<Map<String, Value>, Failure> {
    let status: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| invalid(format!("the status is not a JSON object: {error}")))?;
    let Some(conditions) = status.get("conditions") else {
        return Ok(status);
    };
    let types: Option<Vec<&str>> = conditions.as_array().and_then(|items| {
        items
            .iter()
            .map(|item| item.get("type").and_then(Value::as_str))
            .collect()
    });
    match types {
        None => Err(invalid("status.conditions must be a list of objects that have a type")),
        Some(types) => match first_twice(types.into_iter()) {
            Some(twice) => Err(invalid(format!("status.conditions has type {twice} twice"))),
            None => Ok(status),
        },
    }
}

/// The pattern of metav1.Condition's `type`, without the optional domain.
fn is_condition_type(text: &str) -> bool {
    let name = text.rsplit_once('/').map_or(text, |(_, name)| name);
    !name.is_empty()
        && text.len() <= 316
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && name.starts_with(|letter: char| letter.is_ascii_alphanumeric())
        && name.ends_with(|letter: char| letter.is_ascii_alphanumeric())
}

/// The pattern of metav1.Condition's `reason`.
fn is_reason(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 128
        && text.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_,:".contains(&byte))
        && text.ends_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_')
}

fn check_condition(condition: &Condition) -> Result<(), Failure> {
    let Condition {
        name,
        status: _,
        reason,
        message,
    } = condition;
    if !is_condition_type(name) {
        return Err(invalid(format!(
            "the answer has a condition of type {name:?}, which is not a CamelCase word"
        )));
    }
    if name == RECONCILED {
        return Err(invalid(format!(
            "the answer has the condition {RECONCILED}, which is the host's own"
        )));
    }
    if !is_reason(reason) {
        return Err(invalid(format!(
            "condition {name} has the reason {reason:?}, which is not a CamelCase word"
        )));
    }
    if message.len() > MAX_CONDITION_MESSAGE {
        return Err(invalid(format!(
            "condition {name} has a message over {MAX_CONDITION_MESSAGE} bytes"
        )));
    }
    Ok(())
}

fn check_event(event: Event) -> Result<Event, Failure> {
    let Event {
        severity,
        reason,
        message,
    } = event;
    if !is_reason(&reason) {
        return Err(invalid(format!(
            "an event has the reason {reason:?}, which is not a CamelCase word"
        )));
    }
    Ok(Event {
        severity,
        reason,
        message: shorten(message, MAX_EVENT_MESSAGE),
    })
}

/// Cuts a text to so many bytes at the border of a character.
pub fn shorten(mut text: String, bytes: usize) -> String {
    if text.len() > bytes {
        let mut end = bytes.saturating_sub('…'.len_utf8());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::contract::{ConditionStatus, Severity};

    fn check_outcome(outcome: Outcome) -> Result<Answer, Failure> {
        let grants = Grants::new(
            &serde_json::from_value(json!({
                "name": "c", "kind": {"group": "x.dev", "version": "v1", "kind": "X"},
                "touches": [
                    {"kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "access": ["owned"]},
                    {"kind": {"group": "x.dev", "version": "v1", "kind": "X"}, "access": ["owned"]},
                    {"kind": {"group": "", "version": "v1", "kind": "Namespace"}, "access": ["owned", "contributed"]},
                    {"kind": {"group": "", "version": "v1", "kind": "Node"}, "access": ["contributed"],
                     "names": ["n"], "labels": "app=mine"},
                    {"kind": {"group": "", "version": "v1", "kind": "Pod"}, "access": ["contributed"]},
                    {"kind": {"group": "y.dev", "version": "v1", "kind": "Unserved"}, "access": ["owned"]},
                    {"kind": {"group": "", "version": "v1", "kind": "Service"}, "access": ["owned"],
                     "names": ["only"], "labels": "app=mine"},
                    {"kind": {"group": "", "version": "v1", "kind": "Endpoints"}, "access": ["owned"],
                     "namespaces": ["elsewhere"]},
                    {"kind": {"group": "", "version": "v1", "kind": "Secret"}, "access": ["read"]}
                ]
            }))
            .unwrap(),
        );
        let name = Name::new(Some("home"), "x");
        let kind = Kind::new("x.dev", "v1", "X");
        let limits = Limits {
            output_objects: 3,
            ..Limits::default()
        };
        check(
            outcome,
            &Primary {
                kind: &kind,
                name: &name,
            },
            &grants,
            &limits,
            |kind| match kind.kind.as_str() {
                "Unserved" => None,
                "Namespace" | "Node" => Some(KindFacts {
                    namespaced: false,
                    has_status: true,
                }),
                _ => Some(KindFacts {
                    namespaced: true,
                    has_status: false,
                }),
            },
        )
    }

    fn desiring(objects: &[&str]) -> Outcome {
        let desired = objects
            .iter()
            .map(|object| Desired {
                object: (*object).to_owned(),
                ownership: Ownership::Owned,
                lifecycle: Lifecycle::default(),
            })
            .collect();
        Outcome {
            desired,
            ..Outcome::default()
        }
    }

    const CONFIG_MAP: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}"#;

    #[test]
    fn an_object_without_a_namespace_gets_that_of_its_owner() {
        let answer = check_outcome(desiring(&[CONFIG_MAP])).unwrap();
        assert_eq!(answer.owned[0].name, Name::new(Some("home"), "a"));
        assert_eq!(answer.owned[0].body["metadata"]["namespace"], "home");
    }

    #[test]
    fn an_object_may_stand_elsewhere() {
        let elsewhere = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b"}}"#;
        let of_the_cluster = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","namespace":"b"}}"#;
        let answer = check_outcome(desiring(&[elsewhere, of_the_cluster])).unwrap();
        assert_eq!(answer.owned[0].name, Name::new(Some("b"), "a"));
        assert_eq!(answer.owned[1].name, Name::new(None, "a"));
        assert!(answer.owned[1].body["metadata"].get("namespace").is_none());
    }

    #[test]
    fn each_unusable_object_is_named_with_its_fault() {
        let message = |objects: &[&str]| check_outcome(desiring(objects)).unwrap_err().message;
        assert!(message(&["{"]).contains("desired object 0 is not a JSON object"));
        assert!(message(&["[]"]).contains("not a JSON object"));
        assert!(message(&[CONFIG_MAP, r#"{"kind":"ConfigMap"}"#]).contains("desired object 1 lacks apiVersion"));
        assert!(message(&[r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}"#]).contains("no metadata.name"));
        assert!(
            message(&[r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a/b"}}"#]).contains("unusable name")
        );
        assert!(message(&[CONFIG_MAP, CONFIG_MAP]).contains("0 and 1 are both ConfigMap home/a"));
        assert!(
            message(&[r#"{"apiVersion":"v1","kind":"Lease","metadata":{"name":"a"}}"#])
                .contains("does not declare the kind")
        );
        assert!(
            message(&[r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#])
                .contains("without access owned")
        );
        assert!(message(&[r#"{"apiVersion":"x.dev/v1","kind":"X","metadata":{"name":"x"}}"#]).contains("own itself"));
        assert!(
            message(&[r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b/c"}}"#])
                .contains("unusable namespace \"b/c\"")
        );
        let unserved = check_outcome(desiring(&[
            r#"{"apiVersion":"y.dev/v1","kind":"Unserved","metadata":{"name":"x"}}"#,
        ]));
        assert_eq!(unserved.unwrap_err().reason, reason::NOT_SYNCED);
    }

    fn contributing(object: &str) -> Outcome {
        let mut outcome = desiring(&[object]);
        outcome.desired[0].ownership = Ownership::Contributed;
        outcome
    }

    #[test]
    fn fields_go_to_objects_of_any_place_and_to_the_primary_itself() {
        let answer = |object: &str| check_outcome(contributing(object)).unwrap().contributed.remove(0);
        let elsewhere = answer(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"b"}}"#);
        assert_eq!(elsewhere.name, Name::new(Some("b"), "a"));
        let at_home = answer(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#);
        assert_eq!(at_home.name, Name::new(Some("home"), "a"));
        let of_the_cluster = answer(r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}"#);
        assert_eq!(of_the_cluster.name, Name::new(None, "a"));
        let labelled = answer(r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}"#);
        assert_eq!(labelled.body["metadata"]["name"], "n");
    }

    #[test]
    fn fields_of_undeclared_objects_and_with_a_lifecycle_are_refused() {
        let message = |outcome: Outcome| check_outcome(outcome).unwrap_err().message;
        assert!(message(contributing(CONFIG_MAP)).contains("without access contributed"));
        let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"m"}}"#;
        assert!(message(contributing(node)).contains("outside the names"));
        let mut kept = contributing(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#);
        kept.desired[0].lifecycle.create_only = true;
        assert!(message(kept).contains("has a lifecycle"));
        let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#;
        let mut twice = desiring(&[pod, pod]);
        twice.desired[0].ownership = Ownership::Contributed;
        twice.desired[1].ownership = Ownership::Contributed;
        assert!(message(twice).contains("are both Pod home/a"));
    }

    #[test]
    fn an_object_that_the_plugin_would_not_see_again_is_refused() {
        let message = |object: &str| check_outcome(desiring(&[object])).unwrap_err().message;
        let service = |name: &str, label: &str| {
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": {"app": label}}})
                .to_string()
        };
        assert!(check_outcome(desiring(&[&service("only", "mine")])).is_ok());
        assert!(message(&service("other", "mine")).contains("outside the names"));
        assert!(message(&service("only", "theirs")).contains("do not match app=mine"));
        let endpoints = r#"{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":"a"}}"#;
        assert!(message(endpoints).contains("namespace home is outside"));
    }

    #[test]
    fn more_objects_than_the_limit_are_refused_by_the_limits_name() {
        let failure = check_outcome(desiring(&["", "", "", ""])).unwrap_err();
        assert_eq!(
            failure.message,
            "the plugin wants 4 objects, the limit outputObjects is 3"
        );
        assert_eq!(failure.reason, reason::LIMIT);
    }

    #[test]
    fn each_unusable_rest_is_named_with_its_fault() {
        let message = |outcome: Outcome| check_outcome(outcome).unwrap_err().message;
        let status = |text: &str| Outcome {
            status: Some(text.to_owned()),
            ..Outcome::default()
        };
        assert!(message(status("3")).contains("status is not a JSON object"));
        assert!(message(status(r#"{"conditions":{}}"#)).contains("status.conditions must be a list"));
        assert!(message(status(r#"{"conditions":[{"type":"A"},{"type":"A"}]}"#)).contains("type A twice"));
        let condition = |name: &str, reason: &str| Condition {
            name: name.into(),
            status: ConditionStatus::Yes,
            reason: reason.into(),
            message: String::new(),
        };
        let conditions = |conditions| Outcome {
            conditions,
            ..Outcome::default()
        };
        assert!(message(conditions(vec![condition("no good", "R")])).contains("no good"));
        assert!(message(conditions(vec![condition("Reconciled", "R")])).contains("the host's own"));
        assert!(message(conditions(vec![condition("A", "")])).contains("reason \"\""));
        assert!(message(conditions(vec![condition("A", "R"), condition("A", "R")])).contains("A twice"));
        let event = Event {
            severity: Severity::Normal,
            reason: String::new(),
            message: String::new(),
        };
        assert!(
            message(Outcome {
                events: vec![event],
                ..Outcome::default()
            })
            .contains("an event has the reason")
        );
        for wait in [0, u64::MAX] {
            let outcome = Outcome {
                requeue_after: Some(wait),
                ..Outcome::default()
            };
            assert!(message(outcome).contains("requeue-after"));
        }
    }

    #[test]
    fn texts_are_cut_at_the_border_of_a_character() {
        assert_eq!(shorten("aäb".into(), 10), "aäb");
        assert_eq!(shorten("ääääää".into(), 8), "ää…");
    }
}
