//! Translates serde's "at line 1 column 57" to the path of the field.
//!
//! Tracking the path while reading would double the code of every type in the component. The position is enough: the
//! text is scanned once more, only if it is invalid.

/// Returns the error with the path of the field in front, for example
/// ``spec.ports[0].port: invalid value: integer `70000`, expected u16``.
pub(crate) fn explain(json: &str, error: &serde_json::Error) -> String {
    let (path, cause) = find(json, error);
    if path.is_empty() {
        cause
    } else {
        format!("{path}: {cause}")
    }
}

/// Advice about a boolean in place of a text, which authors of YAML seldom intend.
const QUOTE: &str = "; quote it: YAML reads y, yes, on, true and their opposites as booleans";

/// Returns the path of the field, empty for the whole document, and the error.
pub(crate) fn find(json: &str, error: &serde_json::Error) -> (String, String) {
    let text = error.to_string();
    if error.line() == 0 {
        return (String::new(), text);
    }
    let suffix = format!(" at line {} column {}", error.line(), error.column());
    let cause = text.strip_suffix(&suffix).unwrap_or(&text);
    let hint = if cause.starts_with("invalid type: boolean") && cause.ends_with("expected a string") {
        QUOTE
    } else {
        ""
    };
    if error.is_syntax() || error.is_eof() {
        return (String::new(), format!("not JSON: {text}"));
    }
    let offset = offset(json, error.line(), error.column());
    let path = path_at(
        json.as_bytes(),
        if is_about_last_member(cause) {
            end_of_last_member(json, offset)
        } else {
            offset
        },
    );
    (path, [cause, hint].concat())
}

/// Reports whether the error is about the last member. Serde's own errors have the position at which they were found.
/// An error that a type's author made gets the position of the code that reads the enclosing value: after the value, or
/// after the bracket that closes the object or list of which the value is the last member.
fn is_about_last_member(cause: &str) -> bool {
    let serde = [
        "missing field ",
        "unknown field ",
        "duplicate field ",
        "invalid length ",
        "unknown variant ",
        "invalid type: ",
    ];
    !serde.iter().any(|beginning| cause.starts_with(beginning))
}

/// Returns the offset before the closing bracket, if there is one right before this offset.
fn end_of_last_member(json: &str, offset: usize) -> usize {
    let inside = json.get(..offset).and_then(|before| before.strip_suffix(['}', ']']));
    inside.map_or(offset, |inside| inside.trim_end().len())
}

/// Returns the offset of a position, which counts bytes.
fn offset(json: &str, line: usize, column: usize) -> usize {
    let before: usize = json.split_inclusive('\n').take(line - 1).map(str::len).sum();
    (before + column).min(json.len())
}

/// Position of the scan: in an object, after the key that was read last, or in an array.
enum Step {
    Key(String),
    Index(usize),
}

/// Returns the path of the value that is being read, or was just read, at an offset of a document.
fn path_at(json: &[u8], offset: usize) -> String {
    let mut open: Vec<Step> = Vec::new();
    // Number of steps of `open` that lead to the value.
    let mut depth = 0;
    let mut at = 0;
    while at < offset {
        match json[at] {
            b'{' => open.push(Step::Key(String::new())),
            b'[' => {
                open.push(Step::Index(0));
                depth = open.len();
            }
            b'}' | b']' => {
                open.pop();
                depth = open.len();
            }
            b',' => {
                if let Some(Step::Index(index)) = open.last_mut() {
                    *index += 1;
                    depth = open.len();
                }
            }
            b'"' => {
                let end = end_of_string(json, at);
                let is_key = json[end..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':');
                let outer = open.len().saturating_sub(1);
                if let (true, Some(Step::Key(key))) = (is_key, open.last_mut()) {
                    // An error at a key, for example an unknown field, is about the enclosing object.
                    depth = outer;
                    *key = serde_json::from_slice(&json[at..end]).unwrap_or_default();
                }
                at = end;
                continue;
            }
            b':' => depth = open.len(),
            _ => {}
        }
        at += 1;
    }
    let mut path = String::new();
    for step in &open[..depth] {
        let written = match step {
            Step::Index(index) => format!("[{index}]"),
            Step::Key(key) if key.contains(['.', '/', '"']) => format!("[{key:?}]"),
            Step::Key(key) if path.is_empty() => key.clone(),
            Step::Key(key) => format!(".{key}"),
        };
        path.push_str(&written);
    }
    path
}

/// Returns the offset after the closing quote of the string that begins at `start`.
fn end_of_string(json: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < json.len() {
        match json[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::explain;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only reading is tested")]
    struct Sample {
        size: Option<u16>,
        ports: Option<Vec<Port>>,
        labels: Option<BTreeMap<String, String>>,
        flag: Option<bool>,
        even: Option<Even>,
        evens: Option<Vec<BTreeMap<String, Even>>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(try_from = "u16")]
    struct Even(#[allow(dead_code, reason = "only reading is tested")] u16);

    impl TryFrom<u16> for Even {
        type Error = String;

        fn try_from(number: u16) -> Result<Self, String> {
            if number.is_multiple_of(2) {
                Ok(Self(number))
            } else {
                Err(format!("{number} is odd"))
            }
        }
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only reading is tested")]
    struct Port {
        port: u16,
        name: Option<String>,
    }

    fn error_of(json: &str) -> String {
        explain(
            json,
            &serde_json::from_str::<Sample>(json).expect_err("the document is wrong"),
        )
    }

    #[test]
    fn a_boolean_where_a_text_is_meant_is_to_be_quoted() {
        let quoted = error_of(r#"{"ports":[{"port":1,"name":true}]}"#);
        let words = "ports[0].name: invalid type: boolean `true`, expected a string; quote it: YAML reads y, yes, on";
        assert!(quoted.starts_with(words), "{quoted}");
        let number = error_of(r#"{"size":true}"#);
        assert_eq!(number, "size: invalid type: boolean `true`, expected u16");
    }

    #[test]
    fn names_the_field_of_a_wrong_type_at_any_depth() {
        assert_eq!(
            error_of(r#"{"size":"x"}"#),
            r#"size: invalid type: string "x", expected u16"#
        );
        assert_eq!(
            error_of(r#"{"flag":true,"size":[1]}"#),
            "size: invalid type: sequence, expected u16"
        );
        assert_eq!(
            error_of(r#"{"size":{"a":1},"flag":true}"#),
            "size: invalid type: map, expected u16"
        );
        assert_eq!(
            error_of(r#"{"ports":[{"port":1},{"name":"a","port":70000}]}"#),
            "ports[1].port: invalid value: integer `70000`, expected u16"
        );
        assert_eq!(
            error_of("{\n  \"ports\": [\n    { \"port\": true , \"name\": \"b\" }\n  ]\n}"),
            "ports[0].port: invalid type: boolean `true`, expected u16"
        );
        assert_eq!(
            error_of(r#"{"ports":[7]}"#),
            "ports[0]: invalid type: integer `7`, expected struct Port"
        );
        assert_eq!(
            error_of(r#"{"ports":[{"port":7},null]}"#),
            "ports[1]: invalid type: null, expected struct Port"
        );
    }

    #[test]
    fn names_the_object_that_lacks_a_field_or_has_an_unknown_one() {
        assert_eq!(
            error_of(r#"{"size":1,"ports":[{"port":1},{"name":"a"}]}"#),
            "ports[1]: missing field `port`"
        );
        let unknown = error_of(r#"{"size":1,"sise":{"x":[]}}"#);
        assert!(
            unknown.starts_with("unknown field `sise`, expected one of"),
            "{unknown}"
        );
    }

    #[test]
    fn quotes_unusual_keys_and_is_not_misled_by_strings() {
        assert_eq!(
            error_of(r#"{"labels":{"x":"}],{\"","a.b/c":5}}"#),
            r#"labels["a.b/c"]: invalid type: integer `5`, expected a string"#
        );
    }

    #[test]
    fn names_the_field_whose_type_has_an_error_of_its_own() {
        assert_eq!(error_of(r#"{"even":3}"#), "even: 3 is odd");
        assert_eq!(error_of(r#"{"even":3,"size":1}"#), "even: 3 is odd");
        assert_eq!(
            error_of("{\"size\":1,\n \"evens\": [{}, {\"a\":3 } ]\n}"),
            "evens[1].a: 3 is odd"
        );
        assert_eq!(error_of(r#"{"evens":[{"a":5,"b":2}]}"#), "evens[0].a: 5 is odd");
    }

    #[test]
    fn says_that_text_is_not_json() {
        assert!(
            error_of(r#"{"size":"#).starts_with("not JSON: EOF"),
            "{}",
            error_of(r#"{"size":"#)
        );
        assert!(error_of("nonsense").starts_with("not JSON: expected"));
    }
}
