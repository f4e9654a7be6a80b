//! Compares a partial object with a whole one.
//!
//! - A map matches when every member does; other members do not matter.
//! - `null` matches what is absent or null, also where the map that it would be in is absent, and `$ANY` whatever is there.
//! - A list matches by position and has the same length.
//! - `ports[port]: [...]` matches the list `ports` by key: each item is compared with the one that has the same `port`,
//!   wherever it stands; other items do not matter. Several keys are separated by commas: `ports[port,protocol]`. An
//!   item with `$absent: true` beside its keys must not be there.
//! - `finalizers[]: [...]`: each item matches at least one item of the list `finalizers`.
//! - Everything else is equal.

use serde_json::{Map, Value};

/// Matches any value that is there.
pub(super) const ANY: &str = "$ANY";

/// Marks an item that must not be there.
const ABSENT: &str = "$absent";

/// Maximum length of a differing value in messages, in characters.
const SHOWN_CHARACTERS: usize = 200;

/// Difference of a whole object from a partial one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The place, like `.spec.ports[0].port`.
    pub path: String,
    /// The expected and the found value.
    pub problem: String,
}

/// All differences; none when the partial object matches.
pub fn mismatches(expected: &Value, actual: &Value) -> Vec<Mismatch> {
    let mut found = Vec::new();
    compare("", expected, Some(actual), &mut found);
    found
}

/// The whole object as it would have to be: the partial one laid over it. For showing a difference in its surroundings.
pub fn overlay(expected: &Value, actual: &Value) -> Value {
    lay_over(expected, Some(actual))
}

/// Checks the syntax of every keyed list.
pub(super) fn validate(expected: &Value) -> Result<(), String> {
    match expected {
        Value::Object(members) => members.iter().try_for_each(|(name, value)| {
            if let Field::ByKey(list, keys) = Field::of(name) {
                let items = value.as_array().ok_or_else(|| format!("{name} must be a list"))?;
                for item in items {
                    if let Some(key) = keys.iter().find(|key| item.get(**key).is_none()) {
                        return Err(format!("an item of {list} has no {key}, by which {name} is matched"));
                    }
                }
            } else if let Field::Somewhere(_) = Field::of(name)
                && !value.is_array()
            {
                return Err(format!("{name} must be a list"));
            }
            validate(value)
        }),
        Value::Array(items) => items.iter().try_for_each(validate),
        _ => Ok(()),
    }
}

/// Matching rule in the name of a member.
enum Field<'name> {
    Plain(&'name str),
    ByKey(&'name str, Vec<&'name str>),
    Somewhere(&'name str),
}

impl<'name> Field<'name> {
    fn of(name: &'name str) -> Self {
        match name.strip_suffix(']').and_then(|open| open.split_once('[')) {
            Some((list, "")) => Self::Somewhere(list),
            Some((list, keys)) => Self::ByKey(list, keys.split(',').map(str::trim).collect()),
            None => Self::Plain(name),
        }
    }
}

fn compare(path: &str, expected: &Value, actual: Option<&Value>, found: &mut Vec<Mismatch>) {
    let actual = actual.filter(|actual| !actual.is_null());
    let problem = match (expected, actual) {
        (expected, None) if wants_nothing(expected) => return,
        (Value::Null, Some(actual)) => format!("expected nothing, found {}", show(actual)),
        (_, None) => format!("expected {}, found nothing", show(expected)),
        (Value::String(any), Some(_)) if any == ANY => return,
        (Value::Object(members), Some(Value::Object(object))) => {
            for (name, value) in members {
                compare_member(path, name, value, object, found);
            }
            return;
        }
        (Value::Array(items), Some(Value::Array(list))) if items.len() == list.len() => {
            for (position, (item, actual)) in items.iter().zip(list).enumerate() {
                compare(&format!("{path}[{position}]"), item, Some(actual), found);
            }
            return;
        }
        (Value::Array(items), Some(Value::Array(list))) => {
            format!(
                "expected a list of {}, found one of {}: {}",
                items.len(),
                list.len(),
                show(&Value::from(list.clone()))
            )
        }
        (_, Some(actual)) if expected == actual => return,
        (_, Some(actual)) => format!("expected {}, found {}", show(expected), show(actual)),
    };
    found.push(Mismatch {
        path: path.to_owned(),
        problem,
    });
}

/// Reports whether an expected value matches an absent one: null, and a map whose members all do.
fn wants_nothing(expected: &Value) -> bool {
    match expected {
        Value::Null => true,
        Value::Object(members) => {
            let is_absent = |item: &Value| item.get(ABSENT) == Some(&Value::Bool(true));
            !members.is_empty()
                && members.iter().all(|(name, value)| match Field::of(name) {
                    Field::Plain(_) => wants_nothing(value),
                    Field::ByKey(..) => items(value).iter().all(is_absent),
                    Field::Somewhere(_) => items(value).is_empty(),
                })
        }
        _ => false,
    }
}

fn compare_member(path: &str, name: &str, value: &Value, object: &Map<String, Value>, found: &mut Vec<Mismatch>) {
    match Field::of(name) {
        Field::Plain(name) => compare(&format!("{path}.{name}"), value, object.get(name), found),
        Field::ByKey(list, keys) => {
            for item in items(value) {
                let path = format!("{path}.{list}[{}]", describe_keys(&keys, item));
                let candidate = items_of(object, list)
                    .iter()
                    .find(|candidate| same_keys(&keys, item, candidate));
                if item.get(ABSENT) == Some(&Value::Bool(true)) {
                    if let Some(candidate) = candidate {
                        let problem = format!("expected no such item, found {}", show(candidate));
                        found.push(Mismatch { path, problem });
                    }
                } else {
                    compare(&path, item, candidate, found);
                }
            }
        }
        Field::Somewhere(list) => {
            for item in items(value) {
                if !items_of(object, list)
                    .iter()
                    .any(|candidate| mismatches(item, candidate).is_empty())
                {
                    let problem = format!("no item matches {}", show(item));
                    found.push(Mismatch {
                        path: format!("{path}.{list}[]"),
                        problem,
                    });
                }
            }
        }
    }
}

fn lay_over(expected: &Value, actual: Option<&Value>) -> Value {
    match (expected, actual) {
        (Value::String(any), Some(actual)) if any == ANY => actual.clone(),
        (Value::Object(members), actual) => {
            let mut object = actual.and_then(Value::as_object).cloned().unwrap_or_default();
            for (name, value) in members {
                lay_member_over(name, value, &mut object);
            }
            Value::Object(object)
        }
        (Value::Array(items), actual) => {
            let list = actual.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            items
                .iter()
                .enumerate()
                .map(|(position, item)| lay_over(item, list.get(position)))
                .collect()
        }
        (expected, _) => expected.clone(),
    }
}

fn lay_member_over(name: &str, value: &Value, object: &mut Map<String, Value>) {
    match Field::of(name) {
        Field::Plain(name) if value.is_null() => {
            object.remove(name);
        }
        Field::Plain(name) => {
            let laid = lay_over(value, object.get(name));
            object.insert(name.to_owned(), laid);
        }
        Field::ByKey(list, keys) => {
            let mut laid = items_of(object, list).to_vec();
            for item in items(value) {
                let position = laid.iter().position(|candidate| same_keys(&keys, item, candidate));
                match (position, item.get(ABSENT) == Some(&Value::Bool(true))) {
                    (Some(position), true) => drop(laid.remove(position)),
                    (Some(position), false) => laid[position] = lay_over(item, Some(&laid[position])),
                    (None, true) => {}
                    (None, false) => laid.push(item.clone()),
                }
            }
            object.insert(list.to_owned(), Value::Array(laid));
        }
        Field::Somewhere(list) => {
            let mut laid = items_of(object, list).to_vec();
            for item in items(value) {
                if !laid.iter().any(|candidate| mismatches(item, candidate).is_empty()) {
                    laid.push(item.clone());
                }
            }
            object.insert(list.to_owned(), Value::Array(laid));
        }
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn items_of<'object>(object: &'object Map<String, Value>, list: &str) -> &'object [Value] {
    object.get(list).map_or(&[], items)
}

fn same_keys(keys: &[&str], expected: &Value, candidate: &Value) -> bool {
    keys.iter().all(|key| expected.get(key) == candidate.get(key))
}

fn describe_keys(keys: &[&str], item: &Value) -> String {
    let parts: Vec<String> = keys.iter().map(|key| format!("{key}={}", show(&item[*key]))).collect();
    parts.join(",")
}

fn show(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARACTERS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service() -> Value {
        json!({
            "metadata": {"name": "web", "finalizers": ["a", "b"]},
            "spec": {
                "ports": [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}],
                "args": ["x", "y"]
            }
        })
    }

    fn problems(expected: &Value) -> Vec<String> {
        mismatches(expected, &service())
            .into_iter()
            .map(|found| format!("{}: {}", found.path, found.problem))
            .collect()
    }

    #[test]
    fn a_map_matches_when_its_members_do() {
        assert_eq!(problems(&json!({"metadata": {"name": "web"}})), [""; 0]);
        assert_eq!(
            problems(&json!({"metadata": {"name": "db"}})),
            [r#".metadata.name: expected "db", found "web""#]
        );
        assert_eq!(
            problems(&json!({"spec": {"type": "x"}})),
            [r#".spec.type: expected "x", found nothing"#]
        );
    }

    #[test]
    fn what_wants_nothing_holds_where_the_map_around_it_is_absent() {
        for expected in [
            json!({"metadata": {"annotations": {"x": null}}}),
            json!({"metadata": {"annotations": {"x": null, "y": null}}}),
            json!({"status": {"a": {"b": null}}}),
            json!({"status": {"ports[port]": [{"port": 80, "$absent": true}]}}),
            json!({"status": {"names[]": []}}),
        ] {
            assert_eq!(problems(&expected), [""; 0], "{expected}");
        }
        for expected in [
            json!({"metadata": {"annotations": {}}}),
            json!({"metadata": {"annotations": {"x": null, "y": "z"}}}),
            json!({"status": {"a": {"b": "$ANY"}}}),
            json!({"status": {"ports[port]": [{"port": 80}]}}),
            json!({"spec": {"args": null}}),
        ] {
            assert_eq!(problems(&expected).len(), 1, "{expected}");
        }
    }

    #[test]
    fn null_demands_absence_and_any_demands_presence() {
        assert_eq!(
            problems(&json!({"status": null, "metadata": {"name": "$ANY"}})),
            [""; 0]
        );
        assert_eq!(
            problems(&json!({"metadata": {"name": null}})),
            [r#".metadata.name: expected nothing, found "web""#]
        );
        assert_eq!(
            problems(&json!({"status": "$ANY"})),
            [r#".status: expected "$ANY", found nothing"#]
        );
    }

    #[test]
    fn a_plain_list_has_the_same_length_and_order() {
        assert_eq!(problems(&json!({"spec": {"args": ["x", "y"]}})), [""; 0]);
        assert_eq!(
            problems(&json!({"spec": {"args": ["x"]}})),
            [r#".spec.args: expected a list of 1, found one of 2: ["x","y"]"#]
        );
        assert_eq!(problems(&json!({"spec": {"args": ["y", "x"]}})).len(), 2);
    }

    #[test]
    fn a_keyed_list_is_matched_wherever_its_items_stand() {
        assert_eq!(
            problems(&json!({"spec": {"ports[port]": [{"port": 53, "name": "dns"}]}})),
            [""; 0]
        );
        assert_eq!(
            problems(&json!({"spec": {"ports[port,protocol]": [{"port": 53, "protocol": "UDP", "name": "x"}]}})),
            [r#".spec.ports[port=53,protocol="UDP"].name: expected "x", found "dns""#]
        );
        assert_eq!(problems(&json!({"spec": {"ports[port]": [{"port": 1}]}})).len(), 1);
    }

    #[test]
    fn an_item_can_be_demanded_absent() {
        assert_eq!(
            problems(&json!({"spec": {"ports[port]": [{"port": 1, "$absent": true}]}})),
            [""; 0]
        );
        assert_eq!(
            problems(&json!({"spec": {"ports[port]": [{"port": 53, "$absent": true}]}})).len(),
            1
        );
        assert_eq!(
            problems(&json!({"none": {}, "spec": {"none[a]": [{"a": 1, "$absent": true}]}})).len(),
            1
        );
    }

    #[test]
    fn an_item_can_be_anywhere() {
        assert_eq!(problems(&json!({"metadata": {"finalizers[]": ["b"]}})), [""; 0]);
        assert_eq!(
            problems(&json!({"metadata": {"finalizers[]": ["c"]}})),
            [r#".metadata.finalizers[]: no item matches "c""#]
        );
    }

    #[test]
    fn an_overlay_matches_and_keeps_the_rest() {
        let expected = json!({
            "metadata": {"name": "db", "finalizers[]": ["c"], "labels": null},
            "spec": {"ports[port]": [{"port": 53, "name": "x"}, {"port": 80, "$absent": true}], "args": ["x"]}
        });
        let laid = overlay(&expected, &service());
        assert_eq!(mismatches(&expected, &laid), []);
        assert_eq!(
            laid.pointer("/spec/ports"),
            Some(&json!([{"name": "x", "port": 53, "protocol": "UDP"}]))
        );
        assert_eq!(laid.pointer("/metadata/finalizers"), Some(&json!(["a", "b", "c"])));
    }

    #[test]
    fn a_keyed_item_without_its_key_is_refused() {
        let error = validate(&json!({"spec": {"ports[port]": [{"name": "x"}]}})).unwrap_err();
        assert_eq!(error, "an item of ports has no port, by which ports[port] is matched");
        assert!(validate(&json!({"a[]": {}})).unwrap_err().contains("must be a list"));
    }
}
