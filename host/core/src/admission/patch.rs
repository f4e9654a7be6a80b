//! Turns a defaulter's answer into a JSON patch: changes in the part of the object that the plugin sees are carried
//! over to the whole object, and the difference is written as RFC 6902 defines it.

use serde_json::{Map, Value, json};

use crate::status::failure::Failure;
use crate::status::reason::Reason;

/// Metadata that a defaulter may change.
const DEFAULTED_METADATA: [&str; 2] = ["labels", "annotations"];

/// The whole object with the defaults. `shown` is the part that the plugin received, `answer` is its answer.
///
/// The plugin may change the fields that it sees, labels and annotations, and add what is not there.
pub fn with_defaults(whole: &Value, shown: &Value, answer: &str) -> Result<Value, Failure> {
    let invalid = |problem: String| Failure::guest(Reason::InvalidAnswer, problem);
    let answered: Value = serde_json::from_str(answer)
        .map_err(|error| invalid(format!("the object with defaults is not JSON: {error}; fix the plugin")))?;
    let Value::Object(answered_members) = &answered else {
        return Err(invalid(
            "the object with defaults is not a JSON object; fix the plugin".to_owned(),
        ));
    };
    if let Some(fixed) = fixed(shown).find(|(path, value)| at(answered_members, path) != Some(value)) {
        return Err(invalid(format!(
            "the defaulter changes {}, which is not a default; it may change labels, annotations and the fields that the \
             manifest declares",
            fixed.0.join(".")
        )));
    }
    let known = |name: &str| shown["metadata"].get(name).is_some() || DEFAULTED_METADATA.contains(&name);
    if let Some(added) = answered["metadata"]
        .as_object()
        .into_iter()
        .flat_map(Map::keys)
        .find(|name| !known(name))
    {
        return Err(invalid(format!(
            "the defaulter adds metadata.{added}, which is not a default; fix the plugin"
        )));
    }
    let mut path = Vec::new();
    carry(whole, shown, &answered, &mut path).map_err(|path| {
        invalid(format!(
            "the defaulter changes {path}, of which it does not see everything; declare the field in the manifest"
        ))
    })
}

/// The JSON patch operations that turn one object into another.
pub fn difference(from: &Value, to: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    compare(from, to, &mut String::new(), &mut operations);
    operations
}

/// The members that no defaulter may change.
fn fixed(shown: &Value) -> impl Iterator<Item = (Vec<&str>, &Value)> {
    let top = ["apiVersion", "kind", "status"]
        .into_iter()
        .filter_map(|name| Some((vec![name], shown.get(name)?)));
    let metadata = shown["metadata"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !DEFAULTED_METADATA.contains(&name.as_str()))
        .map(|(name, value)| (vec!["metadata", name.as_str()], value));
    top.chain(metadata)
}

fn at<'a>(object: &'a Map<String, Value>, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(object.get(*first)?, |value, name| value.get(name))
}

/// Carries the change from `shown` to `answered` over to `whole`. The error is the path of a change to a field that was
/// not shown.
fn carry(whole: &Value, shown: &Value, answered: &Value, path: &mut Vec<String>) -> Result<Value, String> {
    if shown == answered {
        return Ok(whole.clone());
    }
    // A value that was shown completely may be replaced by anything.
    if whole == shown {
        return Ok(answered.clone());
    }
    match (whole, shown, answered) {
        (Value::Object(whole), Value::Object(shown), Value::Object(answered)) => {
            // Each part is copied once: the whole may be large, and deep.
            let is_left = |name: &String| !shown.contains_key(name) && !answered.contains_key(name);
            let left = whole.iter().filter(|(name, _)| is_left(name));
            let mut carried: Map<String, Value> = left.map(|(name, value)| (name.clone(), value.clone())).collect();
            for name in shown.keys().filter(|name| !answered.contains_key(*name)) {
                if whole.get(name) != shown.get(name) {
                    path.push(name.clone());
                    return Err(path.join("."));
                }
            }
            for (name, answer) in answered {
                path.push(name.clone());
                let value = match (whole.get(name), shown.get(name)) {
                    (Some(whole), Some(shown)) => carry(whole, shown, answer, path)?,
                    (None, _) => answer.clone(),
                    // There, and hidden: an object may get members that it does not have.
                    (Some(whole @ Value::Object(_)), None) if answer.is_object() => {
                        carry(whole, &Value::Object(Map::new()), answer, path)?
                    }
                    (Some(_), None) => return Err(path.join(".")),
                };
                path.pop();
                carried.insert(name.clone(), value);
            }
            Ok(Value::Object(carried))
        }
        (Value::Array(whole), Value::Array(shown), Value::Array(answered))
            if whole.len() == shown.len() && shown.len() == answered.len() =>
        {
            let mut carried = Vec::with_capacity(whole.len());
            for (index, ((whole, shown), answered)) in whole.iter().zip(shown).zip(answered).enumerate() {
                path.push(index.to_string());
                carried.push(carry(whole, shown, answered, path)?);
                path.pop();
            }
            Ok(Value::Array(carried))
        }
        _ => Err(path.join(".")),
    }
}

fn compare(from: &Value, to: &Value, path: &mut String, operations: &mut Vec<Value>) {
    if from == to {
        return;
    }
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        operations.push(json!({"op": "replace", "path": path, "value": to}));
        return;
    };
    let length = path.len();
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        step(path, name);
        operations.push(json!({"op": "remove", "path": path}));
        path.truncate(length);
    }
    for (name, value) in to {
        step(path, name);
        match from.get(name) {
            Some(earlier) => compare(earlier, value, path, operations),
            None => operations.push(json!({"op": "add", "path": path, "value": value})),
        }
        path.truncate(length);
    }
}

/// Appends a step to a JSON pointer: RFC 6901, section 3.
fn step(path: &mut String, name: &str) {
    path.push('/');
    path.push_str(&name.replace('~', "~0").replace('/', "~1"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Value {
        json!({
            "apiVersion": "x.dev/v1", "kind": "Thing",
            "metadata": {"name": "a", "resourceVersion": "1", "labels": {"l": "1"}},
            "spec": {"size": 1, "hidden": {"secret": 1}, "list": [{"a": 1, "b": 2}], "all": [1]}
        })
    }

    fn shown() -> Value {
        json!({
            "apiVersion": "x.dev/v1", "kind": "Thing",
            "metadata": {"name": "a", "labels": {"l": "1"}},
            "spec": {"size": 1, "list": [{"a": 1}], "all": [1]}
        })
    }

    fn defaulted(change: impl FnOnce(&mut Value)) -> Result<Vec<Value>, String> {
        let mut answer = shown();
        change(&mut answer);
        with_defaults(&whole(), &shown(), &answer.to_string())
            .map(|object| {
                // Whether serde_json keeps another order than that of names depends on what else is built.
                let mut operations = difference(&whole(), &object);
                operations.sort_by_key(|operation| operation["path"].to_string());
                operations
            })
            .map_err(|failure| failure.message)
    }

    #[test]
    fn an_object_that_needs_no_defaults_needs_no_patch() {
        assert_eq!(defaulted(|_| {}), Ok(vec![]));
    }

    #[test]
    fn each_default_is_one_operation_and_what_is_hidden_stays() {
        assert_eq!(
            defaulted(|it| {
                it["spec"]["size"] = json!(2);
                it["spec"]["a/b~"] = json!({"x": 1});
                it["spec"]["all"] = json!([1, 2]);
                it["metadata"]["labels"]["m"] = json!("2");
            }),
            Ok(vec![
                json!({"op": "add", "path": "/metadata/labels/m", "value": "2"}),
                json!({"op": "replace", "path": "/spec/all", "value": [1, 2]}),
                json!({"op": "add", "path": "/spec/a~1b~0", "value": {"x": 1}}),
                json!({"op": "replace", "path": "/spec/size", "value": 2}),
            ])
        );
    }

    #[test]
    fn items_that_are_seen_in_part_keep_the_rest() {
        assert_eq!(
            defaulted(|it| it["spec"]["list"][0]["c"] = json!(3)),
            Ok(vec![
                json!({"op": "replace", "path": "/spec/list", "value": [{"a": 1, "b": 2, "c": 3}]})
            ])
        );
        assert_eq!(
            defaulted(|it| it["spec"]["hidden"] = json!({"added": 1})),
            Ok(vec![json!({"op": "add", "path": "/spec/hidden/added", "value": 1})])
        );
    }

    #[test]
    fn what_was_seen_may_go() {
        let removed = defaulted(|it| {
            it["spec"].as_object_mut().unwrap().remove("size");
        });
        assert_eq!(removed, Ok(vec![json!({"op": "remove", "path": "/spec/size"})]));
    }

    #[test]
    fn a_default_outside_the_visible_part_is_refused_by_path() {
        let list = defaulted(|it| it["spec"]["list"] = json!([]));
        assert!(list.unwrap_err().contains("changes spec.list,"));
        let hidden = defaulted(|it| it["spec"]["hidden"] = json!({"secret": 2}));
        assert!(hidden.unwrap_err().contains("changes spec.hidden.secret,"));
        let scalar = defaulted(|it| it["spec"]["hidden"] = json!(1));
        assert!(scalar.unwrap_err().contains("changes spec.hidden,"));
        let gone = defaulted(|it| {
            it.as_object_mut().unwrap().remove("spec");
        });
        assert!(gone.unwrap_err().contains("changes spec,"));
    }

    #[test]
    fn what_is_no_default_is_refused() {
        assert!(
            defaulted(|it| it["metadata"]["name"] = json!("b"))
                .unwrap_err()
                .contains("metadata.name")
        );
        assert!(
            defaulted(|it| it["kind"] = json!("Other"))
                .unwrap_err()
                .contains("kind")
        );
        let added = defaulted(|it| it["metadata"]["finalizers"] = json!(["x"]));
        assert!(added.unwrap_err().contains("adds metadata.finalizers"));
        assert!(
            defaulted(|it| *it = json!([]))
                .unwrap_err()
                .contains("not a JSON object")
        );
        assert!(
            with_defaults(&whole(), &shown(), "{")
                .unwrap_err()
                .message
                .contains("not JSON")
        );
    }
}
