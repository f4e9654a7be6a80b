//! Syntax of names: DNS labels and subdomains, qualified names, label values, ports.

use serde_json::{Value, json};

use crate::failure::FieldError;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
    end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
    start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
    start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
    'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const PREFIX: &str = "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const LABEL_LENGTH: usize = 63;
const SUBDOMAIN_LENGTH: usize = 253;

/// The forms that names of kinds have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameForm {
    Subdomain,
    Label,
    PathSegment,
}

/// Returns the errors of an object's name.
pub(crate) fn object_name(form: NameForm, name: &str, path: &str) -> Vec<FieldError> {
    let faults = match form {
        NameForm::Subdomain => subdomain_faults(name),
        NameForm::Label if name.contains('.') && name.split('.').all(is_label) => {
            vec!["must not contain dots".to_owned()]
        }
        NameForm::Label => label_faults(name),
        NameForm::PathSegment => path_segment_faults(name),
    };
    faults
        .into_iter()
        .map(|fault| FieldError::invalid(path, &json!(name), fault))
        .collect()
}

fn too_long(limit: usize) -> String {
    format!("must be no more than {limit} bytes")
}

fn label_faults(name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if name.len() > LABEL_LENGTH {
        faults.push(too_long(LABEL_LENGTH));
    }
    if !is_label(name) {
        faults.push(LABEL.to_owned());
    }
    faults
}

fn subdomain_faults(name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if name.len() > SUBDOMAIN_LENGTH {
        faults.push(too_long(SUBDOMAIN_LENGTH));
    }
    if !name.split('.').all(is_label) {
        faults.push(SUBDOMAIN.to_owned());
    }
    faults
}

fn path_segment_faults(name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if name == "." || name == ".." {
        faults.push(format!("may not be '{name}'"));
    }
    for letter in ['/', '%'] {
        if name.contains(letter) {
            faults.push(format!("may not contain '{letter}'"));
        }
    }
    faults
}

pub(crate) fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let end = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-');
    let bytes = text.as_bytes();
    bytes.iter().all(|byte| inner(*byte)) && end(bytes.first()) && end(bytes.last())
}

/// A DNS label, as containers and volumes are named.
pub(crate) fn label(name: &str, path: &str) -> Vec<FieldError> {
    object_name(NameForm::Label, name, path)
}

/// A DNS subdomain with an optional wildcard in front, as hosts of ingresses are named.
pub(crate) fn host(name: &str, path: &str) -> Vec<FieldError> {
    if let Some(rest) = name.strip_prefix("*.") {
        if rest.split('.').all(is_label) {
            return Vec::new();
        }
        let words = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of \
            lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex \
            used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
        return vec![FieldError::invalid(path, &json!(name), words)];
    }
    object_name(NameForm::Subdomain, name, path)
}

fn is_name_part(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.iter().all(|byte| inner(*byte)) && end(bytes.first()) && end(bytes.last())
}

/// Returns the errors of `prefix/name`.
pub(crate) fn qualified_faults(name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let part = match name.split_once('/') {
        None => name,
        Some((prefix, part)) if !part.contains('/') => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else if !prefix.split('.').all(is_label) {
                faults.push(PREFIX.to_owned());
            }
            part
        }
        Some(_) => {
            return vec![format!(
                "a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                QUALIFIED.trim_start_matches("name part ")
            )];
        }
    };
    if part.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if part.len() > LABEL_LENGTH {
        faults.push(format!("name part {}", too_long(LABEL_LENGTH)));
    }
    if !is_name_part(part) {
        faults.push(QUALIFIED.to_owned());
    }
    faults
}

/// Returns the errors of the labels of an object or a selector.
pub(crate) fn labels(labels: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (name, value) in labels.as_object().into_iter().flatten() {
        errors.extend(
            qualified_faults(name)
                .into_iter()
                .map(|fault| FieldError::invalid(path, &json!(name), fault)),
        );
        let text = value.as_str().unwrap_or_default();
        if text.len() > LABEL_LENGTH {
            errors.push(FieldError::invalid(path, value, too_long(LABEL_LENGTH)));
        }
        if !text.is_empty() && !is_name_part(text) {
            errors.push(FieldError::invalid(path, value, LABEL_VALUE));
        }
    }
    errors
}

/// A key of a config map or a secret.
pub(crate) fn config_key(name: &str, path: &str) -> Vec<FieldError> {
    let fits = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let mut errors = Vec::new();
    if name.len() > SUBDOMAIN_LENGTH {
        errors.push(FieldError::invalid(path, &json!(name), too_long(SUBDOMAIN_LENGTH)));
    }
    if !fits {
        errors.push(FieldError::invalid(path, &json!(name), CONFIG_KEY));
    }
    errors
}

/// A number of a port.
pub(crate) fn port_number(value: &Value, path: &str) -> Option<FieldError> {
    let fits = value.as_i64().is_some_and(|number| (1..=65_535).contains(&number));
    (!fits).then(|| FieldError::invalid(path, value, "must be between 1 and 65535, inclusive"))
}

/// A port by number or by name.
pub(crate) fn port(value: &Value, path: &str) -> Vec<FieldError> {
    match value.as_str() {
        Some(name) => port_name(name, path),
        None => port_number(&json!(value.as_i64().unwrap_or(0)), path)
            .into_iter()
            .collect(),
    }
}

/// A protocol of a port.
pub(crate) fn protocol(value: &Value, path: &str) -> Option<FieldError> {
    let protocols = ["SCTP", "TCP", "UDP"];
    match value.as_str().unwrap_or_default() {
        "" => Some(FieldError::required(path, "")),
        given => (!protocols.contains(&given)).then(|| FieldError::not_supported(path, value, &protocols)),
    }
}

/// A name of a port of a container.
pub(crate) fn port_name(name: &str, path: &str) -> Vec<FieldError> {
    let mut faults = Vec::new();
    if name.len() > 15 {
        faults.push("must be no more than 15 characters");
    }
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !name.bytes().all(inner) {
        faults.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        faults.push("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        faults.push("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        faults.push("must not begin or end with a hyphen");
    }
    faults
        .into_iter()
        .map(|fault| FieldError::invalid(path, &json!(name), fault))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_refused_by_their_form() {
        assert!(object_name(NameForm::Subdomain, "a.b-c", "metadata.name").is_empty());
        assert_eq!(object_name(NameForm::Subdomain, "A", "metadata.name").len(), 1);
        assert!(object_name(NameForm::PathSegment, "system:Node", "metadata.name").is_empty());
        assert_eq!(object_name(NameForm::Label, "a.b", "metadata.name").len(), 1);
    }

    #[test]
    fn labels_are_checked_by_key_and_value() {
        assert!(labels(&json!({"example.com/a": "b.c", "d": ""}), "metadata.labels").is_empty());
        assert_eq!(labels(&json!({"a b": "c", "d": "-e"}), "metadata.labels").len(), 2);
    }
}
