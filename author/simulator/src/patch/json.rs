//! JSON patch (RFC 6902), with the messages of the library that the API server uses.

use serde_json::Value;

/// More operations than this are refused.
const OPERATION_LIMIT: usize = 10_000;

/// Errors of applying a patch.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PatchError {
    #[error("cannot decode JSON patch: {0}")]
    Malformed(String),
    #[error("{0}")]
    Rejected(String),
    #[error("The allowed maximum operations in a JSON patch is {OPERATION_LIMIT}, got {0}")]
    TooMany(usize),
}

/// Applies the operations one after the other.
pub(crate) fn apply(target: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let operations = patch.as_array().ok_or_else(|| {
        PatchError::Malformed("json: cannot unmarshal into Go value of type jsonpatch.Patch".to_owned())
    })?;
    if operations.len() > OPERATION_LIMIT {
        return Err(PatchError::TooMany(operations.len()));
    }
    operations.iter().try_for_each(|operation| perform(target, operation))
}

fn perform(target: &mut Value, operation: &Value) -> Result<(), PatchError> {
    let word = |name: &str| operation[name].as_str().unwrap_or_default();
    let path = word("path");
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match word("op") {
        "add" => add(target, path, value()),
        "remove" => remove(target, path).map(drop),
        "replace" => {
            if let Some(place) = target.pointer_mut(path) {
                *place = value();
                return Ok(());
            }
            // The server's library takes this for an addition where the parent is an object.
            let parent = split(path).and_then(|(parent, _)| target.pointer(parent));
            if !parent.is_some_and(Value::is_object) {
                return Err(missing("replace", path));
            }
            add(target, path, value())
        }
        "move" => {
            let taken = remove(target, word("from"))?;
            add(target, path, taken)
        }
        "copy" => {
            let copied = target
                .pointer(word("from"))
                .cloned()
                .ok_or_else(|| missing("copy", word("from")))?;
            add(target, path, copied)
        }
        "test" => {
            let found = target.pointer(path).cloned().unwrap_or(Value::Null);
            if crate::apply::types::same(&found, &value()) {
                Ok(())
            } else {
                Err(PatchError::Rejected(format!("testing value {path} failed")))
            }
        }
        other => Err(PatchError::Rejected(format!("Unexpected kind: {other}"))),
    }
}

fn missing(verb: &str, path: &str) -> PatchError {
    PatchError::Rejected(format!(
        "{verb} operation does not apply: doc is missing key: {path}: missing value"
    ))
}

/// The parent's path and the last step with its escapes undone.
fn split(path: &str) -> Option<(&str, String)> {
    let (parent, last) = path.rsplit_once('/')?;
    Some((parent, last.replace("~1", "/").replace("~0", "~")))
}

fn add(target: &mut Value, path: &str, value: Value) -> Result<(), PatchError> {
    if path.is_empty() {
        *target = value;
        return Ok(());
    }
    let (parent, last) = split(path).ok_or_else(|| missing("add", path))?;
    match target.pointer_mut(parent) {
        Some(Value::Object(members)) => {
            members.insert(last, value);
            Ok(())
        }
        Some(Value::Array(items)) if last == "-" => {
            items.push(value);
            Ok(())
        }
        Some(Value::Array(items)) => {
            let index: usize = last.parse().map_err(|_| missing("add", path))?;
            if index > items.len() {
                let message = format!(
                    "add operation does not apply: doc is missing path: {path:?}: Unable to access invalid index: {index}: invalid index referenced"
                );
                return Err(PatchError::Rejected(message));
            }
            items.insert(index, value);
            Ok(())
        }
        _ => Err(PatchError::Rejected(format!(
            "add operation does not apply: doc is missing path: {path:?}: missing value"
        ))),
    }
}

fn remove(target: &mut Value, path: &str) -> Result<Value, PatchError> {
    let nothing = || {
        PatchError::Rejected(format!(
            "remove operation does not apply: doc is missing path: {path:?}: missing value"
        ))
    };
    let (parent, last) = split(path).ok_or_else(nothing)?;
    match target.pointer_mut(parent) {
        Some(Value::Object(members)) => members.remove(&last).ok_or_else(|| {
            PatchError::Rejected(format!(
                "error in remove for path: '{path}': Unable to remove nonexistent key: {last}: missing value"
            ))
        }),
        Some(Value::Array(items)) => {
            let index = last
                .parse()
                .ok()
                .filter(|index: &usize| *index < items.len())
                .ok_or_else(nothing)?;
            Ok(items.remove(index))
        }
        _ => Err(nothing()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn operations_add_move_and_test() {
        let mut object = json!({"a": [1, 3], "b/c": "x"});
        let patch = json!([
            {"op": "test", "path": "/b~1c", "value": "x"},
            {"op": "add", "path": "/a/1", "value": 2},
            {"op": "add", "path": "/a/-", "value": 4},
            {"op": "move", "from": "/b~1c", "path": "/d"},
            {"op": "remove", "path": "/a/0"},
        ]);
        apply(&mut object, &patch).expect("every operation applies");
        assert_eq!(object, json!({"a": [2, 3, 4], "d": "x"}));
    }

    #[test]
    fn a_failed_test_rejects_the_patch() {
        let patch = json!([{"op": "test", "path": "/a", "value": 2}]);
        let error = apply(&mut json!({"a": 1}), &patch).expect_err("1 is not 2");
        assert_eq!(error.to_string(), "testing value /a failed");
    }
}
