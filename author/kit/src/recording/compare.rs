//! Compares a recorded answer with a replayed one, and decides which differences masked values explain.
//!
//! The recorded answer was masked after the call, and the replayed one is made from masked inputs. A value that is passed on is
//! the same in both. Where it is changed on the way, the two differ although nothing is wrong: so a difference does not count
//! if the texts agree around the masked part, or if both look like digests in a call that was shown masked values.

use std::collections::BTreeMap;

use pilothouse_core::recording::{
    MASK, MASK_DIGITS, RecordedAnswer, RecordedCondition, RecordedDesired, RecordedFailure, RecordedFieldError,
    RecordedOutcome, Tree,
};
use serde_json::{Value, json};
use similar::TextDiff;

use super::difference::{Difference, FieldDifference};

/// The masked form of base64: `masked:` and the digits have a number of bytes that three divides.
const MASK_BASE64: &str = "bWFza2VkO";
const MASK_BASE64_BYTES: usize = (MASK.len() + MASK_DIGITS) / 3 * 4;

/// The least characters of a text that is taken for a digest.
const DIGEST_CHARACTERS: usize = 32;

/// Words in the name of an annotation or a member that mark its value as a digest.
const DIGEST_WORDS: [&str; 5] = ["checksum", "digest", "fingerprint", "hash", "revision"];

/// Compares the answers of a call. `was_masked` says whether the call was shown masked values.
pub(super) fn compare(recorded: &RecordedAnswer, replayed: &RecordedAnswer, was_masked: bool) -> Vec<Difference> {
    let (recorded, replayed) = (parts(recorded), parts(replayed));
    let mut places: Vec<&String> = recorded.keys().collect();
    places.extend(replayed.keys().filter(|place| !recorded.contains_key(*place)));
    let mut differences = Vec::new();
    for place in places {
        let (before, after) = (recorded.get(place), replayed.get(place));
        let mut fields = Vec::new();
        fields_of("", before, after, was_masked, &mut fields);
        if !fields.is_empty() {
            differences.push(Difference {
                place: place.clone(),
                fields,
                diff: diff(before, after),
            });
        }
    }
    differences
}

/// Returns `true` if a text has a masked value.
pub(super) fn has_mask(text: &str) -> bool {
    mask_at(text).is_some()
}

/// The parts of an answer by their titles.
fn parts(answer: &RecordedAnswer) -> BTreeMap<String, Value> {
    let mut parts = BTreeMap::new();
    match answer {
        RecordedAnswer::Outcome(outcome) => return outcome_parts(outcome),
        RecordedAnswer::Done => {
            parts.insert("answer".to_owned(), json!("done: the object may go"));
        }
        RecordedAnswer::Defaulted(object) => {
            parts.insert("object with defaults".to_owned(), object.value());
        }
        RecordedAnswer::Valid(warnings) => {
            parts.insert("answer".to_owned(), json!("valid"));
            if !warnings.is_empty() {
                parts.insert("warnings".to_owned(), json!(warnings));
            }
        }
        RecordedAnswer::Invalid(errors) => {
            parts.insert("answer".to_owned(), json!("refused"));
            for RecordedFieldError { kind, path, message } in errors {
                parts.insert(
                    format!("field error {path:?}"),
                    json!({"kind": kind, "message": message}),
                );
            }
        }
        RecordedAnswer::Failed(failure) => {
            let RecordedFailure {
                blame,
                reason,
                retry,
                message,
            } = failure;
            parts.insert("answer".to_owned(), json!("failure"));
            let failure = json!({"blame": blame, "reason": reason, "retry": retry, "message": message});
            parts.insert("failure".to_owned(), failure);
        }
    }
    parts
}

fn outcome_parts(outcome: &RecordedOutcome) -> BTreeMap<String, Value> {
    let RecordedOutcome {
        desired,
        status,
        conditions,
        events,
        requeue_after,
    } = outcome;
    let mut parts = BTreeMap::new();
    for RecordedDesired { how, object, options } in desired {
        let mut part = object.value();
        let plain = ["owned".to_owned()];
        if let Some(part) = part.as_object_mut() {
            if how.as_slice() != plain {
                part.insert("(how)".to_owned(), json!(how));
            }
            if let Some(options) = options {
                part.insert("(options)".to_owned(), options.value());
            }
        }
        let title = title(object);
        let mut place = title.clone();
        let mut count = 1;
        while parts.contains_key(&place) {
            count += 1;
            place = format!("{title} ({count})");
        }
        parts.insert(place, part);
    }
    if let Some(status) = status {
        parts.insert("status".to_owned(), status.value());
    }
    for RecordedCondition {
        type_,
        status,
        reason,
        message,
    } in conditions
    {
        let condition = json!({"status": status, "reason": reason, "message": message});
        parts.insert(format!("condition {type_}"), condition);
    }
    if !events.is_empty() {
        parts.insert("events".to_owned(), json!(events));
    }
    if let Some(milliseconds) = requeue_after {
        parts.insert("requeueAfterMilliseconds".to_owned(), json!(milliseconds));
    }
    parts
}

fn title(object: &Tree) -> String {
    let text = |tree: Option<&Tree>| tree.and_then(Tree::as_str).map(str::to_owned);
    let metadata = object.get("metadata");
    let kind = text(object.get("kind")).unwrap_or_else(|| "object".to_owned());
    let name = text(metadata.and_then(|it| it.get("name"))).unwrap_or_default();
    match text(metadata.and_then(|it| it.get("namespace"))) {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

fn fields_of(
    path: &str,
    recorded: Option<&Value>,
    replayed: Option<&Value>,
    was_masked: bool,
    fields: &mut Vec<FieldDifference>,
) {
    match (recorded, replayed) {
        (one, other) if one == other => {}
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            let names: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for name in names {
                let path = if name.contains(['.', '/', '[', ' ']) {
                    format!("{path}[{name:?}]")
                } else {
                    format!("{path}.{name}")
                };
                fields_of(&path, one.get(name), other.get(name), was_masked, fields);
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) => {
            for index in 0..one.len().max(other.len()) {
                let path = format!("{path}[{index}]");
                fields_of(&path, one.get(index), other.get(index), was_masked, fields);
            }
        }
        (recorded, replayed) => fields.push(FieldDifference {
            path: path.to_owned(),
            recorded: recorded.cloned(),
            replayed: replayed.cloned(),
            masked: is_explained(path, recorded, replayed, was_masked),
        }),
    }
}

/// Returns `true` if masked values explain the difference of two values.
fn is_explained(path: &str, recorded: Option<&Value>, replayed: Option<&Value>, was_masked: bool) -> bool {
    let (Some(Value::String(recorded)), Some(Value::String(replayed))) = (recorded, replayed) else {
        return false;
    };
    if agrees_around_masks(recorded, replayed) || agrees_around_masks(replayed, recorded) {
        return true;
    }
    let name = path.rsplit(['.', '[']).next().unwrap_or_default().to_lowercase();
    let is_named = DIGEST_WORDS.iter().any(|word| name.contains(word));
    let is_digest = |text: &str| {
        let digits = text.rsplit(':').next().unwrap_or_default();
        digits.len() >= DIGEST_CHARACTERS && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let are_digests = recorded.len() == replayed.len() && is_digest(recorded) && is_digest(replayed);
    was_masked && (is_named || are_digests)
}

/// Returns the position and length of the first masked value in a text.
fn mask_at(text: &str) -> Option<(usize, usize)> {
    let plain = text.match_indices(MASK).find_map(|(start, _)| {
        let digits = text.get(start + MASK.len()..start + MASK.len() + MASK_DIGITS)?;
        let is_mask = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_mask.then_some((start, MASK.len() + MASK_DIGITS))
    });
    let encoded = text.match_indices(MASK_BASE64).find_map(|(start, _)| {
        text.get(start..start + MASK_BASE64_BYTES)?;
        Some((start, MASK_BASE64_BYTES))
    });
    plain.into_iter().chain(encoded).min()
}

/// Returns `true` if the other text equals the masked one around its masked values.
fn agrees_around_masks(masked: &str, other: &str) -> bool {
    let Some((start, length)) = mask_at(masked) else {
        return false;
    };
    let Some(mut rest) = other.strip_prefix(&masked[..start]) else {
        return false;
    };
    let mut pattern = &masked[start + length..];
    while let Some((start, length)) = mask_at(pattern) {
        let literal = &pattern[..start];
        let Some(found) = rest.find(literal) else { return false };
        rest = &rest[found + literal.len()..];
        pattern = &pattern[start + length..];
    }
    rest.ends_with(pattern)
}

fn diff(recorded: Option<&Value>, replayed: Option<&Value>) -> String {
    let text = |value: Option<&Value>| {
        let text = value.map(|value| serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string()));
        text.unwrap_or_default()
    };
    let (recorded, replayed) = (text(recorded), text(replayed));
    let diff = TextDiff::from_lines(&recorded, &replayed);
    diff.unified_diff()
        .context_radius(3)
        .header("recorded", "replayed")
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(recorded: &str, replayed: &str) -> bool {
        is_explained(".a", Some(&json!(recorded)), Some(&json!(replayed)), true)
    }

    #[test]
    fn texts_that_agree_around_a_masked_value_do_not_count() {
        assert!(masked("postgres://u:masked:01234567@db", "postgres://u:anything@db"));
        assert!(masked("masked:01234567", "x") && masked("x", "masked:01234567"));
        assert!(masked("bWFza2VkOjAxMjM0NTY3", "aGVsbG8="));
        assert!(masked("a masked:01234567 b masked:89abcdef c", "a 1 b 2 c"));
        assert!(!masked("postgres://u:masked:01234567@db", "mysql://u:anything@db"));
        assert!(!masked("a masked:01234567 b", "a 1 c"));
        assert!(!masked("masked: no", "other"), "this is no masked value");
    }

    #[test]
    fn digests_count_only_where_nothing_was_masked() {
        let (one, other) = (json!("a".repeat(64)), json!("b".repeat(64)));
        assert!(is_explained(".a", Some(&one), Some(&other), true));
        assert!(!is_explained(".a", Some(&one), Some(&other), false));
        let path = ".metadata.annotations[\"checksum/config\"]";
        assert!(is_explained(path, Some(&json!("1f")), Some(&json!("2e")), true));
        assert!(!is_explained(".a", Some(&json!("1f")), Some(&json!("2e")), true));
        assert!(!is_explained(path, Some(&json!("1f")), None, true));
    }

    #[test]
    fn what_differs_is_named_with_both_values_and_a_diff() {
        let outcome = |replicas: u32, ready: &str| {
            let object = format!(
                r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"web","namespace":"shop"}},"spec":{{"replicas":{replicas}}}}}"#
            );
            RecordedAnswer::Outcome(RecordedOutcome {
                desired: vec![RecordedDesired {
                    how: vec!["owned".to_owned()],
                    object: Tree::read(&object),
                    options: None,
                }],
                conditions: vec![RecordedCondition {
                    type_: "Ready".to_owned(),
                    status: ready.to_owned(),
                    reason: "R".to_owned(),
                    message: "m".to_owned(),
                }],
                ..RecordedOutcome::default()
            })
        };
        assert!(compare(&outcome(1, "True"), &outcome(1, "True"), false).is_empty());
        let differences = compare(&outcome(1, "True"), &outcome(2, "False"), false);
        let places: Vec<_> = differences.iter().map(|it| it.place.as_str()).collect();
        assert_eq!(places, ["Deployment shop/web", "condition Ready"]);
        let field = &differences[0].fields[0];
        assert_eq!(
            (field.path.as_str(), &field.recorded, &field.replayed),
            (".spec.replicas", &Some(json!(1)), &Some(json!(2)))
        );
        assert!(
            differences[0].diff.contains("-  replicas: 1\n+  replicas: 2\n"),
            "{}",
            differences[0].diff
        );
        let done = compare(&outcome(1, "True"), &RecordedAnswer::Done, false);
        assert!(done.iter().any(|it| it.place == "answer") && done.iter().any(|it| it.place == "condition Ready"));
    }
}
