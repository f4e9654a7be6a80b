//! Formats a plugin's field errors in the form of the API server's own, with the value of the field.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::kubernetes::key::Kind;
use crate::plugin::contract::{FieldError, FieldErrorKind};
use crate::text::printable::shorten;

/// The longest shown part of a value, in bytes.
const MAX_SHOWN: usize = 256;

/// The refusal of an object, with its causes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidObject {
    kind: Kind,
    name: String,
    causes: Vec<StatusCause>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct StatusCause {
    /// The API server's reason for a field error, such as `FieldValueInvalid`.
    reason: &'static str,
    /// The field's path; empty for the object as a whole.
    field: String,
    message: String,
}

impl InvalidObject {
    /// Makes a refusal of the errors that a plugin reports for an object.
    pub fn new(kind: &Kind, name: &str, errors: &[FieldError], object: &Value) -> Self {
        Self {
            kind: kind.clone(),
            name: name.to_owned(),
            causes: errors.iter().map(|error| cause(kind, error, object)).collect(),
        }
    }

    /// The message in one line: `spec.size: Invalid value: -1: must not be negative`; several errors are in brackets.
    pub fn message(&self) -> String {
        // Like the API server, report equal errors once.
        let mut said = BTreeSet::new();
        let lines: Vec<String> = self
            .causes
            .iter()
            .map(|StatusCause { field, message, .. }| {
                if field.is_empty() {
                    message.clone()
                } else {
                    format!("{field}: {message}")
                }
            })
            .filter(|line| said.insert(line.clone()))
            .collect();
        match lines.as_slice() {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        }
    }

    /// The refusal as a Status of the API: kubectl shows it like the API server's own refusals.
    pub fn status(&self) -> Value {
        let Self { kind, name, causes } = self;
        let causes: Vec<Value> = causes
            .iter()
            .map(|StatusCause { reason, field, message }| json!({"reason": reason, "field": field, "message": message}))
            .collect();
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "code": 422,
            "reason": "Invalid",
            "message": format!("{} {name:?} is invalid: {}", full_name(kind), self.message()),
            "details": {"name": name, "group": kind.group, "kind": kind.kind, "causes": causes},
        })
    }
}

fn full_name(kind: &Kind) -> String {
    if kind.group.is_empty() {
        kind.kind.clone()
    } else {
        format!("{}.{}", kind.kind, kind.group)
    }
}

/// The API server's text for this kind of field error, and its reason.
fn text_and_reason(kind: FieldErrorKind) -> (&'static str, &'static str) {
    match kind {
        FieldErrorKind::Required => ("Required value", "FieldValueRequired"),
        FieldErrorKind::Duplicate => ("Duplicate value", "FieldValueDuplicate"),
        FieldErrorKind::Forbidden => ("Forbidden", "FieldValueForbidden"),
        FieldErrorKind::NotFound => ("Not found", "FieldValueNotFound"),
        FieldErrorKind::Invalid => ("Invalid value", "FieldValueInvalid"),
    }
}

/// Formats one error like `ErrorBody` of k8s.io/apimachinery/pkg/util/validation/field: a required or forbidden field
/// is named without its value, and an empty message is left out.
fn cause(kind: &Kind, error: &FieldError, object: &Value) -> StatusCause {
    let FieldError {
        kind: error_kind,
        path,
        message,
    } = error;
    let field = path.trim_start_matches('.').to_owned();
    let (beginning, reason) = text_and_reason(*error_kind);
    let (is_whole, is_invalid) = (field.is_empty(), *error_kind == FieldErrorKind::Invalid);
    // Messages are written to logs, whose readers may not be allowed to read the Secret.
    let is_secret = kind.group.is_empty() && kind.kind == "Secret";
    let has_value = !matches!(error_kind, FieldErrorKind::Required | FieldErrorKind::Forbidden);
    let mut parts = Vec::new();
    // That the whole object is an invalid value carries no information.
    if !(is_whole && is_invalid) {
        parts.push(beginning.to_owned());
    }
    if has_value && !is_whole && !is_secret {
        let value = at(object, &field).unwrap_or(&Value::Null);
        parts.push(shorten(printed(value), MAX_SHOWN));
    }
    if !message.is_empty() {
        parts.push(message.clone());
    }
    StatusCause {
        reason,
        field,
        message: parts.join(": "),
    }
}

/// A value as the API server prints it: a text in Go's quotes, a list or an object as Go writes JSON, which is safe in HTML.
fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(_) | Value::Object(_) => {
            let escapes = [
                ('<', "\\u003c"),
                ('>', "\\u003e"),
                ('&', "\\u0026"),
                ('\u{2028}', "\\u2028"),
                ('\u{2029}', "\\u2029"),
            ];
            let escape = |text: String, (letter, escaped): (char, &str)| text.replace(letter, escaped);
            escapes.into_iter().fold(value.to_string(), escape)
        }
        Value::Number(number) if number.is_f64() => float(number.as_f64().unwrap_or_default()),
        other => other.to_string(),
    }
}

/// Formats a number like `%v` of Go's package fmt.
fn float(value: f64) -> String {
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => value.to_string(),
    }
}

/// Quotes a text like `%q` of Go's package fmt. Go takes the printable characters from Unicode. Here every character
/// counts as printable except controls and formats that change how the rest of a line looks.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\0'..='\u{1f}' | '\u{7f}' => {
                let _ = write!(quoted, "\\x{:02x}", u32::from(letter));
            }
            '\u{80}'..='\u{a0}'
            | '\u{ad}'
            | '\u{2000}'..='\u{200f}'
            | '\u{2028}'..='\u{202f}'
            | '\u{205f}'..='\u{206f}'
            | '\u{3000}'
            | '\u{e000}'..='\u{f8ff}'
            | '\u{feff}' => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// The value at a path as field errors spell it: `spec.ports[0].name`, `metadata.annotations[a.b/c]`.
fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut found = object;
    let mut rest = path;
    while !rest.is_empty() {
        let (step, after) = if let Some(bracket) = rest.strip_prefix('[') {
            bracket.split_once(']')?
        } else {
            let name = rest.strip_prefix('.').unwrap_or(rest);
            name.split_at(name.find(['.', '[']).unwrap_or(name.len()))
        };
        let step = step.trim_matches('"');
        found = match found {
            Value::Array(items) => items.get(step.parse::<usize>().ok()?)?,
            Value::Object(members) => members.get(step)?,
            _ => return None,
        };
        rest = after;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::FieldErrorKind::{Duplicate, Forbidden, Invalid, NotFound, Required};
    use super::*;

    fn refusal(errors: &[(FieldErrorKind, &str, &str)]) -> InvalidObject {
        let object = json!({
            "metadata": {"annotations": {"a.b/c": "x"}},
            "spec": {"proxyPass": "http://$noexists", "ports": [{"port": 0}], "empty": null, "long": "ä".repeat(300)}
        });
        let errors: Vec<FieldError> = errors
            .iter()
            .map(|(kind, path, message)| FieldError {
                kind: *kind,
                path: (*path).to_owned(),
                message: (*message).to_owned(),
            })
            .collect();
        InvalidObject::new(&Kind::new("x.dev", "v1", "Thing"), "a", &errors, &object)
    }

    fn invalid(path: &str, message: &str) -> String {
        refusal(&[(Invalid, path, message)]).message()
    }

    #[test]
    fn a_field_is_named_with_its_value() {
        assert_eq!(
            invalid("spec.proxyPass", "unknown \"noexists\" variable"),
            "spec.proxyPass: Invalid value: \"http://$noexists\": unknown \"noexists\" variable"
        );
        assert_eq!(
            invalid(".spec.ports[0].port", "must be at least 1"),
            "spec.ports[0].port: Invalid value: 0: must be at least 1"
        );
        assert_eq!(
            invalid("metadata.annotations[a.b/c]", "no"),
            "metadata.annotations[a.b/c]: Invalid value: \"x\": no"
        );
        for absent in ["spec.empty", "spec.ports[3]", "spec.ports[x].y"] {
            assert_eq!(invalid(absent, "no"), format!("{absent}: Invalid value: null: no"));
        }
        assert_eq!(invalid("", "too much at once"), "too much at once");
    }

    #[test]
    fn each_kind_of_error_reads_as_the_api_servers_own() {
        let cases = [
            (Required, "Required value: why", "Required value", "FieldValueRequired"),
            (
                Duplicate,
                "Duplicate value: 0: why",
                "Duplicate value: 0",
                "FieldValueDuplicate",
            ),
            (Forbidden, "Forbidden: why", "Forbidden", "FieldValueForbidden"),
            (NotFound, "Not found: 0: why", "Not found: 0", "FieldValueNotFound"),
            (
                Invalid,
                "Invalid value: 0: why",
                "Invalid value: 0",
                "FieldValueInvalid",
            ),
        ];
        for (kind, with_message, without, reason) in cases {
            let refusal = refusal(&[(kind, "spec.ports[0].port", "why"), (kind, "spec.ports[0].port", "")]);
            let causes = refusal.status()["details"]["causes"].take();
            let expected = |message| json!({"reason": reason, "field": "spec.ports[0].port", "message": message});
            assert_eq!(causes, json!([expected(with_message), expected(without)]));
        }
        assert_eq!(
            refusal(&[(Forbidden, "", "not today")]).message(),
            "Forbidden: not today"
        );
    }

    /// Each pair is what `field.Invalid(path, value, "")` of k8s.io/apimachinery 0.36.3 printed for the value.
    #[test]
    fn values_are_printed_as_the_api_server_prints_them() {
        let cases = [
            (json!("plain"), r#""plain""#),
            (json!("say \"hi\"\\"), r#""say \"hi\"\\""#),
            (json!("a\tb\nc\u{7}\0\u{7f}"), r#""a\tb\nc\a\x00\x7f""#),
            (
                json!("<b> & ä \u{200b}\u{ad}\u{2028}\u{e000}😀\u{a0}"),
                r#""<b> & ä \u200b\u00ad\u2028\ue000😀\u00a0""#,
            ),
            (json!(1e21), "1e+21"),
            (json!(1_000_000.5), "1.0000005e+06"),
            (json!(1e8), "1e+08"),
            (json!(0.000_01), "1e-05"),
            (
                json!({"b": "<x>", "a": [1, true, null]}),
                r#"{"a":[1,true,null],"b":"\u003cx\u003e"}"#,
            ),
            (json!(3), "3"),
            (json!(-1.5), "-1.5"),
            (json!(true), "true"),
            (json!(null), "null"),
        ];
        for (value, shown) in cases {
            assert_eq!(printed(&value), shown);
        }
    }

    #[test]
    fn duplicate_error_is_shown_once_in_message_twice_in_causes() {
        let refusal = refusal(&[
            (Required, "spec.a", "x"),
            (Required, "spec.a", "x"),
            (Forbidden, "spec.b", ""),
        ]);
        assert_eq!(refusal.message(), "[spec.a: Required value: x, spec.b: Forbidden]");
        assert_eq!(refusal.status()["details"]["causes"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn a_long_value_is_shown_shortened() {
        assert!(invalid("spec.long", "too long").len() < 300);
    }

    #[test]
    fn a_secrets_values_are_not_shown() {
        let error = FieldError {
            kind: Invalid,
            path: "data.key".to_owned(),
            message: "is not base64".to_owned(),
        };
        let refusal = InvalidObject::new(
            &Kind::new("", "v1", "Secret"),
            "a",
            &[error],
            &json!({"data": {"key": "hidden"}}),
        );
        assert_eq!(refusal.message(), "data.key: Invalid value: is not base64");
    }

    #[test]
    fn the_status_is_that_of_an_invalid_object() {
        let status = refusal(&[(Required, "spec.a", "x"), (Invalid, "", "y")]).status();
        assert_eq!((&status["code"], &status["reason"]), (&json!(422), &json!("Invalid")));
        assert_eq!(
            status["message"],
            "Thing.x.dev \"a\" is invalid: [spec.a: Required value: x, y]"
        );
        assert_eq!(
            status["details"]["causes"][0],
            json!({"reason": "FieldValueRequired", "field": "spec.a", "message": "Required value: x"})
        );
    }
}
