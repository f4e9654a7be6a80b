//! Shows the difference of two objects as YAML, line by line, with equal parts folded. Values of Secrets are hidden.
//!
//! ```
//! use pilothouse_testkit::diff::diff;
//! use serde_json::json;
//!
//! assert_eq!(diff(&json!({"a": 1}), &json!({"a": 1})), None);
//! assert_eq!(diff(&json!({"a": 1}), &json!({"a": 2})).unwrap(), "- a: 1\n+ a: 2\n");
//! ```

use std::fmt::Write as _;

use serde_json::{Map, Value};
use similar::{ChangeTag, TextDiff};

/// Count of unchanged lines before and after a change.
const CONTEXT: usize = 3;

/// Members of a Secret that nobody should see.
pub const SECRET_MEMBERS: [&str; 2] = ["data", "stringData"];

/// Replacement of a value that nobody should see.
pub const HIDDEN: &str = "***";

/// Returns the difference of two values as YAML: lines of the expected one begin with `-`, lines of the actual one with
/// `+`. None if they are equal.
pub fn diff(expected: &Value, actual: &Value) -> Option<String> {
    if expected == actual {
        return None;
    }
    let (expected, actual) = hidden_apart(expected, actual);
    Some(diff_lines(&yaml(&expected), &yaml(&actual)))
}

/// Returns the difference of two texts, with equal parts folded.
pub fn diff_lines(expected: &str, actual: &str) -> String {
    let compared = TextDiff::from_lines(expected, actual);
    let mut text = String::new();
    let mut shown = 0;
    let fold = |lines: usize, text: &mut String| match lines {
        0 => {}
        1 => text.push_str("  … 1 unchanged line\n"),
        lines => {
            let _ = writeln!(text, "  … {lines} unchanged lines");
        }
    };
    for group in compared.grouped_ops(CONTEXT) {
        let Some(first) = group.first() else { continue };
        fold(first.old_range().start - shown, &mut text);
        for operation in &group {
            for change in compared.iter_changes(operation) {
                let sign = match change.tag() {
                    ChangeTag::Equal => ' ',
                    ChangeTag::Delete => '-',
                    ChangeTag::Insert => '+',
                };
                let _ = writeln!(text, "{sign} {}", change.value().trim_end_matches(['\n', '\r']));
            }
            shown = operation.old_range().end;
        }
    }
    fold(expected.lines().count().saturating_sub(shown), &mut text);
    text
}

/// Returns a value as YAML, without the server's bookkeeping.
pub fn yaml(value: &Value) -> String {
    let mut value = value.clone();
    if let Some(Value::Object(metadata)) = value.get_mut("metadata") {
        metadata.remove("managedFields");
    }
    serde_saphyr::to_string(&value).unwrap_or_else(|_| format!("{value}\n"))
}

/// Returns `true` if an object is a Secret.
pub fn is_secret(object: &Value) -> bool {
    object.get("kind").and_then(Value::as_str) == Some("Secret")
        && object.get("apiVersion").and_then(Value::as_str) == Some("v1")
}

/// An object with the values of a Secret hidden.
pub fn hidden(object: &Value) -> Value {
    let mut object = object.clone();
    if !is_secret(&object) {
        return object;
    }
    for member in SECRET_MEMBERS {
        let Some(values) = object.get_mut(member) else { continue };
        match values {
            Value::Object(values) => values.values_mut().for_each(|value| *value = HIDDEN.into()),
            other => *other = HIDDEN.into(),
        }
    }
    object
}

/// Two objects with the values of Secrets hidden, so that it can be seen which differ.
pub fn hidden_apart(expected: &Value, actual: &Value) -> (Value, Value) {
    let (mut hidden_expected, mut hidden_actual) = (hidden(expected), hidden(actual));
    if is_secret(expected) && is_secret(actual) {
        for member in SECRET_MEMBERS {
            let (Some(before), Some(after)) = (expected[member].as_object(), actual[member].as_object()) else {
                continue;
            };
            for key in differing(before, after) {
                hidden_expected[member][key] = format!("{HIDDEN} (expected)").into();
                hidden_actual[member][key] = format!("{HIDDEN} (another value)").into();
            }
        }
    }
    (hidden_expected, hidden_actual)
}

fn differing<'a>(before: &'a Map<String, Value>, after: &'a Map<String, Value>) -> impl Iterator<Item = &'a String> {
    let differs = |(key, value): &(&String, &Value)| after.get(*key).is_some_and(|other| other != *value);
    before.iter().filter(differs).map(|(key, _)| key)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_ends_with_one_line_feed_whatever_comes_last() {
        for last in [
            json!({}),
            json!([]),
            json!(""),
            json!(null),
            json!("a"),
            json!("a\nb"),
            json!("a\n"),
            json!("a\n\n"),
            json!("\n"),
            json!("a\n "),
            json!(["a\nb"]),
            json!([{"b": {}}]),
            json!([[]]),
            json!({"b": []}),
            json!({"b": "x ".repeat(200)}),
            json!("x ".repeat(200) + "\n"),
            json!("x\ty: 'z'\n# no comment"),
        ] {
            let object = json!({"apiVersion": "v1", "z": last});
            let text = yaml(&object);
            assert!(text.ends_with('\n'), "{text:?}");
            let read: Value = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(read, object, "{text}");
        }
    }

    #[test]
    fn what_is_the_same_is_folded() {
        let object = |last: u32| {
            let data: Map<String, Value> = (10..40)
                .map(|n| (format!("k{n}"), json!(if n == 25 { last } else { n })))
                .collect();
            json!({"data": data})
        };
        let shown = diff(&object(1), &object(2)).unwrap();
        let expected = "  … 13 unchanged lines\n    k22: 22\n    k23: 23\n    k24: 24\n-   k25: 1\n+   k25: 2\n    k26: 26\n    k27: 27\n    k28: 28\n  … 11 unchanged lines\n";
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_only_one_has_is_shown() {
        assert_eq!(diff(&json!({}), &json!({"a": 1})).unwrap(), "- {}\n+ a: 1\n");
        assert_eq!(
            diff(&json!({"a": 1, "b": 2}), &json!({"a": 1})).unwrap(),
            "  a: 1\n- b: 2\n"
        );
    }

    #[test]
    fn values_of_secrets_are_hidden_and_still_seen_to_differ() {
        let secret = |password: &str| json!({"apiVersion": "v1", "kind": "Secret", "data": {"password": password, "user": "cm9vdA=="}});
        assert_eq!(diff(&secret("a"), &secret("a")), None);
        let shown = diff(&secret("aHVzaA=="), &secret("c2VjcmV0")).unwrap();
        assert!(
            !shown.contains("aHVzaA") && !shown.contains("c2VjcmV0") && !shown.contains("cm9vdA"),
            "{shown}"
        );
        assert!(
            shown.contains("- ") && shown.contains("+ ") && shown.contains("password"),
            "{shown}"
        );
        let one_sided = diff(&json!({}), &secret("c2VjcmV0")).unwrap();
        assert!(!one_sided.contains("c2VjcmV0"), "{one_sided}");
    }
}
