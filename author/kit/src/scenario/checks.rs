//! Evaluates the checks of a scenario, and explains those that fail. `run` waits for them.

use std::fmt;

use serde_json::{Value, json};
use similar::TextDiff;

use super::{
    form::{Check, ConditionCheck, EventCheck, Reference},
    matching::{mismatches, overlay},
    objects::{Objects, words},
    path::Path,
};
use crate::kstatus;

/// Check that does not hold, with the actual state.
#[derive(Debug, Clone)]
pub struct Unmet {
    reference: Reference,
    object: String,
    reasons: Vec<String>,
    /// Difference from the actual to the expected state.
    diff: Option<String>,
    /// The whole object, where no difference can be drawn.
    seen: Option<String>,
    /// The owners of an object that should be absent.
    owners: Vec<Reference>,
}

impl Unmet {
    /// The object that was looked at.
    pub fn reference(&self) -> &Reference {
        &self.reference
    }
}

impl fmt::Display for Unmet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}:", self.object)?;
        for reason in &self.reasons {
            writeln!(formatter, "  {reason}")?;
        }
        for text in self.diff.iter().chain(&self.seen) {
            for line in text.lines() {
                writeln!(formatter, "    {line}")?;
            }
        }
        Ok(())
    }
}

/// All checks that do not hold now.
pub(super) async fn unmet(objects: &mut Objects, checks: &[Check]) -> Vec<Unmet> {
    let mut found = Vec::new();
    for check in checks {
        found.extend(unmet_check(objects, check).await);
    }
    found
}

/// Says of what is left, though all its owners are gone, why a real garbage collector may not have seen that yet.
pub(super) async fn explain_left(objects: &mut Objects, unmet: &mut [Unmet]) {
    for left in unmet.iter_mut().filter(|it| !it.owners.is_empty()) {
        let mut is_orphan = true;
        for owner in &left.owners {
            is_orphan &= matches!(objects.get(owner).await, Ok(None));
        }
        if is_orphan {
            left.reasons.push(
                "its owner is gone, and the garbage collector of the control plane, which learns of new kinds each 30 s, has not \
                 deleted it yet; give the step more time with `within`"
                    .to_owned(),
            );
        }
    }
}

/// The owners of an object, which are in its namespace or in none.
fn owners(object: &Value) -> Vec<Reference> {
    let references = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let owner = |reference: &Value| {
        let owner = json!({
            "apiVersion": reference["apiVersion"], "kind": reference["kind"], "name": reference["name"],
            "namespace": object["metadata"]["namespace"],
        });
        serde_json::from_value(owner).ok()
    };
    references.filter_map(owner).collect()
}

async fn unmet_check(objects: &mut Objects, check: &Check) -> Option<Unmet> {
    let mut unmet = Unmet {
        reference: check.object.clone(),
        object: describe(&check.object),
        reasons: Vec::new(),
        diff: None,
        seen: None,
        owners: Vec::new(),
    };
    let object = match objects.get(&check.object).await {
        Ok(object) => object,
        Err(error) => {
            unmet.reasons.push(words(&error));
            return Some(unmet);
        }
    };
    match (&object, check.absent) {
        (None, true) => {}
        (Some(object), true) => {
            unmet.reasons.push("expected it to be absent".to_owned());
            unmet.seen = Some(yaml(object));
            unmet.owners = owners(object);
        }
        (None, false) => unmet.reasons.push("it does not exist".to_owned()),
        (Some(object), false) => look_inside(objects, check, object, &mut unmet).await,
    }
    if let Some(event) = &check.event {
        unmet
            .reasons
            .extend(missing_event(objects, &check.object, object.as_ref(), event).await);
    }
    (!unmet.reasons.is_empty()).then_some(unmet)
}

async fn look_inside(objects: &mut Objects, check: &Check, object: &Value, unmet: &mut Unmet) {
    if let Some(expected) = &check.matches {
        // With a path and nothing else to compare its value with, the partial value is that of the path.
        let alone = check.equals.is_none() && check.differs_from.is_none() && check.same_as.is_none();
        let object = match check.path.as_ref().filter(|_| alone).map(|path| value_at(path, object)) {
            Some(Ok(value)) => value,
            Some(Err(_)) => &Value::Null,
            None => object,
        };
        let differences = mismatches(expected, object);
        if !differences.is_empty() {
            unmet.reasons.extend(
                differences
                    .iter()
                    .map(|found| format!("{}: {}", found.path, found.problem)),
            );
            unmet.diff = Some(diff(&yaml(object), &yaml(&overlay(expected, object))));
        }
    }
    let mut others = Vec::new();
    others.extend(
        check
            .condition
            .as_ref()
            .and_then(|condition| missing_condition(object, condition)),
    );
    others.extend(check.kstatus.and_then(|expected| other_kstatus(object, expected)));
    if let Some(path) = &check.path {
        others.extend(wrong_value(objects, check, path, object).await);
    }
    if !others.is_empty() && unmet.diff.is_none() {
        unmet.seen = Some(yaml(object));
    }
    unmet.reasons.extend(others);
}

async fn wrong_value(objects: &mut Objects, check: &Check, path: &str, object: &Value) -> Option<String> {
    let found = match value_at(path, object) {
        Ok(found) => found,
        Err(reason) => return Some(reason),
    };
    if let Some(other) = &check.differs_from {
        return (found == other).then(|| format!("{path}: expected anything but {other}"));
    }
    let expected = match (&check.equals, &check.same_as) {
        (Some(expected), _) => expected.clone(),
        (None, Some(place)) => match objects.get(&place.object).await {
            Ok(Some(other)) => match value_at(&place.path, &other) {
                Ok(expected) => expected.clone(),
                Err(reason) => return Some(format!("{}: {reason}", describe(&place.object))),
            },
            Ok(None) => return Some(format!("{} does not exist", describe(&place.object))),
            Err(error) => return Some(words(&error)),
        },
        (None, None) => return None,
    };
    (*found != expected).then(|| format!("{path}: expected {expected}, found {found}"))
}

fn value_at<'object>(path: &str, object: &'object Value) -> Result<&'object Value, String> {
    Path::parse(path)?
        .find(object)
        .ok_or_else(|| format!("there is nothing at {path}"))
}

fn missing_condition(object: &Value, expected: &ConditionCheck) -> Option<String> {
    let conditions = object
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let text = |condition: &Value, member: &str| condition[member].as_str().unwrap_or_default().to_owned();
    let Some(found) = conditions.iter().find(|condition| condition["type"] == *expected.kind) else {
        let kinds: Vec<String> = conditions.iter().map(|condition| text(condition, "type")).collect();
        return Some(format!("there is no condition {}, only {kinds:?}", expected.kind));
    };
    let same =
        |member: &str, wanted: &Option<String>| wanted.as_ref().is_none_or(|wanted| text(found, member) == *wanted);
    let holds = same("status", &expected.status)
        && same("reason", &expected.reason)
        && expected
            .message
            .as_ref()
            .is_none_or(|part| text(found, "message").contains(part));
    (!holds).then(|| {
        format!(
            "condition {}: expected {}, found status {:?}, reason {:?}, message {:?}",
            expected.kind,
            wanted([
                ("status", &expected.status),
                ("reason", &expected.reason),
                ("message with", &expected.message)
            ]),
            text(found, "status"),
            text(found, "reason"),
            text(found, "message"),
        )
    })
}

fn other_kstatus(object: &Value, expected: kstatus::Status) -> Option<String> {
    match kstatus::compute(object) {
        Ok(computed) if computed.status == expected => None,
        Ok(computed) => Some(format!(
            "kstatus: expected {expected}, found {} ({})",
            computed.status, computed.message
        )),
        Err(problem) => Some(format!(
            "kstatus: expected {expected}, but it cannot be computed: {problem}"
        )),
    }
}

async fn missing_event(
    objects: &mut Objects,
    reference: &Reference,
    object: Option<&Value>,
    expected: &EventCheck,
) -> Option<String> {
    let events = match objects.events(reference).await {
        Ok(events) => events,
        Err(error) => return Some(words(&error)),
    };
    let uid = object.and_then(|object| object.pointer("/metadata/uid"));
    let about = |event: &&Value| match uid {
        Some(uid) => event.pointer("/regarding/uid") == Some(uid),
        None => event["regarding"]["name"] == *reference.name && event["regarding"]["kind"] == *reference.kind,
    };
    let (mut lines, mut holds) = (Vec::new(), false);
    for event in events.iter().filter(about) {
        let text = |member: &str| event[member].as_str().unwrap_or_default();
        holds |= text("reason") == expected.reason
            && expected.kind.as_ref().is_none_or(|kind| text("type") == kind)
            && expected.message.as_ref().is_none_or(|part| text("note").contains(part));
        lines.push(format!("{} {}: {}", text("type"), text("reason"), text("note")));
    }
    (!holds).then(|| {
        let reason = Some(expected.reason.clone());
        let wanted = wanted([
            ("type", &expected.kind),
            ("reason", &reason),
            ("note with", &expected.message),
        ]);
        format!("there is no event of {wanted}, only {lines:?}")
    })
}

fn wanted<const N: usize>(members: [(&str, &Option<String>); N]) -> String {
    let parts: Vec<String> = members
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name} {:?}", value.as_ref()?)))
        .collect();
    parts.join(", ")
}

pub(super) fn describe(reference: &Reference) -> String {
    let namespace = reference
        .namespace
        .as_ref()
        .map(|namespace| format!("{namespace}/"))
        .unwrap_or_default();
    format!("{} {namespace}{}", reference.kind, reference.name)
}

/// Returns the object as YAML without the server's bookkeeping.
fn yaml(object: &Value) -> String {
    let mut object = object.clone();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
    }
    serde_saphyr::to_string(&object).unwrap_or_else(|_| object.to_string())
}

fn diff(actual: &str, expected: &str) -> String {
    TextDiff::from_lines(actual, expected)
        .unified_diff()
        .context_radius(3)
        .header("found", "expected")
        .to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_condition_that_differs_is_shown_beside_the_expected_one() {
        let object =
            json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "No", "message": "why"}]}});
        let check = |status: &str, message: Option<&str>| ConditionCheck {
            kind: "Ready".into(),
            status: Some(status.into()),
            reason: None,
            message: message.map(str::to_owned),
        };
        assert_eq!(missing_condition(&object, &check("False", Some("wh"))), None);
        assert_eq!(
            missing_condition(&object, &check("True", None)).unwrap(),
            r#"condition Ready: expected status "True", found status "False", reason "No", message "why""#
        );
        let absent = missing_condition(&json!({}), &check("True", None)).unwrap();
        assert_eq!(absent, "there is no condition Ready, only []");
    }

    #[test]
    fn another_kstatus_is_shown_with_its_message() {
        let object = json!({"status": {"conditions": [{"type": "Stalled", "status": "True", "message": "why"}]}});
        assert_eq!(other_kstatus(&object, kstatus::Status::Failed), None);
        assert_eq!(
            other_kstatus(&object, kstatus::Status::Current).unwrap(),
            "kstatus: expected Current, found Failed (why)"
        );
    }

    #[test]
    fn a_difference_is_drawn_from_found_to_expected() {
        let drawn = diff("a: 1\nb: 2\n", "a: 1\nb: 3\n");
        assert!(
            drawn.contains("-b: 2") && drawn.contains("+b: 3") && drawn.contains(" a: 1"),
            "{drawn}"
        );
    }
}
