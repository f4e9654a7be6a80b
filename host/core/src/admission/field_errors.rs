//! Owns how a plugin's field errors read: as the API server words its own, with the value that the field has.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::answer::shorten;
use crate::contract::FieldError;
use crate::key::Kind;

/// The most that is shown of a value, in bytes.
const MAX_SHOWN: usize = 256;

/// How the API server begins, and the cause that goes with it. A plugin may begin so itself.
const BEGINNINGS: [(&str, &str); 8] = [
    ("Invalid value", "FieldValueInvalid"),
    ("Required value", "FieldValueRequired"),
    ("Unsupported value", "FieldValueNotSupported"),
    ("Duplicate value", "FieldValueDuplicate"),
    ("Forbidden", "FieldValueForbidden"),
    ("Not found", "FieldValueNotFound"),
    ("Too long", "FieldValueTooLong"),
    ("Too many", "FieldValueTooMany"),
];

/// Why an object is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidObject {
    kind: Kind,
    name: String,
    causes: Vec<StatusCause>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct StatusCause {
    /// One of the API server's words for what is wrong with a field.
    reason: &'static str,
    /// Empty for the object as a whole.
    field: String,
    message: String,
}

impl InvalidObject {
    /// From what a plugin says of an object.
    pub fn new(kind: &Kind, name: &str, errors: &[FieldError], object: &Value) -> Self {
        Self {
            kind: kind.clone(),
            name: name.to_owned(),
            causes: errors.iter().map(|error| cause(kind, error, object)).collect(),
        }
    }

    /// In one line: `spec.size: Invalid value: -1: must not be negative`; several in brackets.
    pub fn message(&self) -> String {
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
            .collect();
        match lines.as_slice() {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        }
    }

    /// As a Status of the API: kubectl shows it as it shows the API server's own refusals.
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

fn cause(kind: &Kind, error: &FieldError, object: &Value) -> StatusCause {
    let FieldError { path, message } = error;
    let field = path.trim_start_matches('.').to_owned();
    let worded = BEGINNINGS.iter().find(|(beginning, _)| message.starts_with(beginning));
    if let Some((_, reason)) = worded {
        return StatusCause {
            reason,
            field,
            message: message.clone(),
        };
    }
    let mut said = String::new();
    let reason = match (field.is_empty(), at(object, &field)) {
        (true, _) => "FieldValueInvalid",
        (false, None | Some(Value::Null)) => {
            said.push_str("Required value: ");
            "FieldValueRequired"
        }
        (false, Some(value)) => {
            said.push_str("Invalid value: ");
            // Messages are kept in logs that whoever may not read the Secret may read.
            if !(kind.group.is_empty() && kind.kind == "Secret") {
                write!(said, "{}: ", shorten(value.to_string(), MAX_SHOWN)).expect("writing to a String cannot fail");
            }
            "FieldValueInvalid"
        }
    };
    said.push_str(message);
    StatusCause {
        reason,
        field,
        message: said,
    }
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
    use super::*;

    fn refusal(errors: &[(&str, &str)]) -> InvalidObject {
        let object = json!({
            "metadata": {"annotations": {"a.b/c": "x"}},
            "spec": {"proxyPass": "http://$noexists", "ports": [{"port": 0}], "empty": null, "long": "ä".repeat(300)}
        });
        let errors: Vec<FieldError> = errors
            .iter()
            .map(|(path, message)| FieldError {
                path: (*path).to_owned(),
                message: (*message).to_owned(),
            })
            .collect();
        InvalidObject::new(&Kind::new("x.dev", "v1", "Thing"), "a", &errors, &object)
    }

    fn message(path: &str, message: &str) -> String {
        refusal(&[(path, message)]).message()
    }

    #[test]
    fn a_field_is_named_with_its_value() {
        assert_eq!(
            message("spec.proxyPass", "unknown \"noexists\" variable"),
            "spec.proxyPass: Invalid value: \"http://$noexists\": unknown \"noexists\" variable"
        );
        assert_eq!(
            message(".spec.ports[0].port", "must be at least 1"),
            "spec.ports[0].port: Invalid value: 0: must be at least 1"
        );
        assert_eq!(
            message("metadata.annotations[a.b/c]", "no"),
            "metadata.annotations[a.b/c]: Invalid value: \"x\": no"
        );
    }

    #[test]
    fn what_is_not_there_is_required() {
        assert_eq!(
            message("spec.image", "name one"),
            "spec.image: Required value: name one"
        );
        assert_eq!(
            message("spec.empty", "name one"),
            "spec.empty: Required value: name one"
        );
        assert_eq!(
            message("spec.ports[3]", "name one"),
            "spec.ports[3]: Required value: name one"
        );
        assert_eq!(message("spec.ports[x].y", "z"), "spec.ports[x].y: Required value: z");
    }

    #[test]
    fn what_the_plugin_words_itself_is_left_as_it_is() {
        assert_eq!(
            message("spec.ports", "Forbidden: may not change"),
            "spec.ports: Forbidden: may not change"
        );
        assert_eq!(message("", "too much at once"), "too much at once");
    }

    #[test]
    fn a_long_value_is_shown_shortened() {
        assert!(message("spec.long", "too long").len() < 300);
    }

    #[test]
    fn a_secrets_values_are_not_shown() {
        let error = FieldError {
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
        let status = refusal(&[("spec.a", "x"), ("", "y")]).status();
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
