//! Owns when a plugin is asked about an object: never where its answer could keep the object from being deleted, and
//! never where nothing that it could judge has changed. An object that is invalid from before the plugin came can thus
//! always be deleted, and its finalizers always be removed.

use serde_json::{Map, Value};

use super::review::AdmissionRequest;
use crate::contract::Operation;

/// The same in CEL, as a match condition: the API server then does not ask at all, not even a host that is down.
///
/// All but metadata and status counts as the spec, because some kinds have none.
pub const CONDITION: &str = "request.operation == 'CREATE' || (request.operation == 'UPDATE' \
&& !has(object.metadata.deletionTimestamp) && !(\
object.all(k, k in ['metadata', 'status'] || (k in oldObject && object[k] == oldObject[k])) \
&& oldObject.all(k, k in ['metadata', 'status'] || k in object) \
&& (has(object.metadata.labels) ? object.metadata.labels : {}) == (has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}) \
&& (has(object.metadata.annotations) ? object.metadata.annotations : {}) == (has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {})))";

/// Whether the plugin is asked.
pub fn is_asked(request: &AdmissionRequest) -> Result<bool, serde_json::Error> {
    let parse = |object: &Option<Box<serde_json::value::RawValue>>| {
        object
            .as_ref()
            .map(|object| serde_json::from_str::<Map<String, Value>>(object.get()))
            .transpose()
    };
    let (object, old) = (parse(&request.object)?, parse(&request.old)?);
    Ok(match (request.operation, object, old) {
        (Operation::Create, Some(_), _) => true,
        (Operation::Update, Some(object), Some(old)) => !is_deleting(&object) && !is_as_before(&object, &old),
        _ => false,
    })
}

fn is_deleting(object: &Map<String, Value>) -> bool {
    let metadata = object.get("metadata");
    metadata.is_some_and(|metadata| !metadata["deletionTimestamp"].is_null())
}

fn is_as_before(object: &Map<String, Value>, old: &Map<String, Value>) -> bool {
    let judged = |object: &Map<String, Value>| {
        let mut rest = object.clone();
        rest.remove("status");
        let metadata = rest.remove("metadata").unwrap_or_default();
        let part = |name: &str| {
            metadata
                .get(name)
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default()
        };
        (rest, part("labels"), part("annotations"))
    };
    judged(object) == judged(old)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admission::review;

    fn asked(operation: &str, object: &Value, old: &Value) -> bool {
        let body = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "7", "kind": {"group": "x.dev", "version": "v1", "kind": "Thing"},
                "operation": operation, "object": object, "oldObject": old,
            }
        });
        is_asked(&review::parse(body.to_string().as_bytes()).unwrap()).unwrap()
    }

    fn changed(change: impl FnOnce(&mut Value)) -> bool {
        let old = json!({
            "metadata": {"name": "a", "labels": {"l": "1"}, "finalizers": ["f"], "resourceVersion": "1"},
            "spec": {"bad": true}, "status": {"x": 1}
        });
        let mut object = old.clone();
        object["metadata"]["resourceVersion"] = json!("2");
        change(&mut object);
        asked("UPDATE", &object, &old)
    }

    #[test]
    fn what_is_made_is_judged() {
        assert!(asked("CREATE", &json!({}), &Value::Null));
    }

    #[test]
    fn a_deletion_is_never_judged() {
        assert!(!asked("DELETE", &Value::Null, &json!({})));
        assert!(!changed(|it| {
            it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            it["spec"]["bad"] = json!("worse");
        }));
    }

    #[test]
    fn a_change_that_could_not_be_judged_is_not() {
        assert!(!changed(|_| {}));
        assert!(!changed(|it| it["metadata"]["finalizers"] = json!([])));
        assert!(!changed(|it| it["metadata"]["annotations"] = json!({})));
        assert!(!changed(|it| it["status"] = json!({"x": 2})));
    }

    #[test]
    fn a_change_of_the_spec_the_labels_or_the_annotations_is_judged() {
        assert!(changed(|it| it["spec"]["bad"] = json!(false)));
        assert!(changed(|it| it["metadata"]["labels"]["l"] = json!("2")));
        assert!(changed(|it| it["metadata"]["annotations"] = json!({"a": "b"})));
        assert!(changed(|it| it["data"] = json!({"a": "b"})));
        assert!(changed(|it| {
            it.as_object_mut().unwrap().remove("spec");
        }));
    }
}
