//! Reads from the words of an API server which fields of a status its schema does not declare, and leaves them out. Server-side
//! apply names each: <https://github.com/kubernetes-sigs/structured-merge-diff/blob/v6.3.0/typed/validate.go>.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::STATUS;

/// The words that follow an undeclared field.
const UNDECLARED: &str = ": field not declared in schema";

/// The undeclared fields of a status that an error of server-side apply names, as paths like `.status.conditions[].reason`.
pub fn undeclared_fields(message: &str) -> BTreeSet<String> {
    // A single field stands behind what is refused, several each on a line of their own.
    let refused = message.split_once("failed to create typed patch object (");
    let named = refused.and_then(|(_, refused)| refused.split_once("): "));
    let lines = named.into_iter().flat_map(|(_, named)| named.lines());
    let paths = lines.filter_map(|line| line.trim().strip_suffix(UNDECLARED).map(without_items));
    let is_within = |path: &String| {
        path.strip_prefix(STATUS)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    paths.filter(is_within).collect()
}

/// A path without the keys and indexes of items.
fn without_items(path: &str) -> String {
    let mut short = String::with_capacity(path.len());
    let (mut is_item, mut is_text, mut is_escaped) = (false, false, false);
    for letter in path.chars() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if is_text => is_escaped = true,
            '"' if is_item => is_text = !is_text,
            '[' if !is_item => {
                is_item = true;
                short.push_str("[]");
            }
            ']' if is_item && !is_text => is_item = false,
            _ if is_item => {}
            letter => short.push(letter),
        }
    }
    short
}

/// Takes fields out of a status. Returns those that were there.
pub fn leave_out(status: &mut Map<String, Value>, fields: &BTreeSet<String>) -> BTreeSet<String> {
    let mut omitted = BTreeSet::new();
    if fields.contains(STATUS) && !status.is_empty() {
        status.clear();
        omitted.insert(STATUS.to_owned());
    }
    if !fields.is_empty() {
        remove(status, STATUS, fields, &mut omitted);
    }
    omitted
}

fn remove(members: &mut Map<String, Value>, path: &str, fields: &BTreeSet<String>, omitted: &mut BTreeSet<String>) {
    members.retain(|name, value| {
        let path = format!("{path}.{name}");
        let is_undeclared = fields.contains(&path);
        if is_undeclared {
            omitted.insert(path);
        } else {
            remove_within(value, &path, fields, omitted);
        }
        !is_undeclared
    });
}

fn remove_within(value: &mut Value, path: &str, fields: &BTreeSet<String>, omitted: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => remove(members, path, fields, omitted),
        Value::Array(items) => {
            let path = format!("{path}[]");
            for item in items {
                remove_within(item, &path, fields, omitted);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PREFIX: &str = "failed to create typed patch object (default/web; x.dev/v1, Kind=Thing): ";

    #[test]
    fn undeclared_fields_are_read_from_the_words_of_the_server() {
        for (said, fields) in [
            (
                ".status.observedGeneration: field not declared in schema",
                vec![".status.observedGeneration"],
            ),
            (".status: field not declared in schema", vec![".status"]),
            (
                "errors:\n  .status.conditions[type=\"Reconciled\"].observedGeneration: field not declared in schema\n  \
                 .status.conditions[type=\"Stalled\"].observedGeneration: field not declared in schema\n  .status.new: field not \
                 declared in schema",
                vec![".status.conditions[].observedGeneration", ".status.new"],
            ),
            (
                ".status.list[name=\"a]\\\".b\",port=1][0].x: field not declared in schema",
                vec![".status.list[][].x"],
            ),
            (
                ".status.text: expected string, got &value.valueUnstructured{Value:1}",
                vec![],
            ),
            (".spec.status.x: field not declared in schema", vec![]),
            (".statuses: field not declared in schema", vec![]),
        ] {
            let found = undeclared_fields(&format!("{PREFIX}{said}"));
            assert_eq!(found.iter().collect::<Vec<_>>(), fields, "{said}");
        }
        assert_eq!(undeclared_fields("etcdserver: leader changed"), BTreeSet::new());
    }

    #[test]
    fn fields_are_left_out_at_any_depth_and_nothing_else() {
        let whole = json!({
            "observedGeneration": 1, "text": "a", "a.b": {"c": 1},
            "conditions": [{"type": "A", "observedGeneration": 1}, {"type": "B"}], "matrix": [[{"x": 1, "y": 2}]]});
        let left_out = |fields: &[&str]| {
            let mut status = whole.as_object().expect("it is an object").clone();
            let fields = fields.iter().map(|field| (*field).to_owned()).collect();
            let omitted = leave_out(&mut status, &fields);
            (Value::Object(status), omitted.len())
        };
        let fields = [
            ".status.observedGeneration",
            ".status.conditions[].observedGeneration",
            ".status.matrix[][].x",
            ".status.a.b.c",
            ".status.absent",
        ];
        let rest = json!({
            "text": "a", "a.b": {}, "conditions": [{"type": "A"}, {"type": "B"}], "matrix": [[{"y": 2}]]});
        assert_eq!(left_out(&fields), (rest, 4));
        assert_eq!(left_out(&[]), (whole.clone(), 0));
        assert_eq!(left_out(&[".status"]), (json!({}), 1));
    }
}
