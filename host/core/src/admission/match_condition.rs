//! Decides for which objects a plugin's webhooks are called: never where an answer could keep the object from being
//! deleted, and never where nothing that the plugin could judge has changed. An object that was invalid before the
//! plugin was installed can thus always be deleted, and its finalizers can always be removed.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::review::{AdmissionRequest, Operation};
use crate::kubernetes::path::BorrowedText;

/// The same decision in CEL, as a match condition. The API server then sends no request, not even to a host that is
/// down.
///
/// All but metadata and status counts as the spec, because some kinds have none.
pub const CONDITION: &str = "request.operation == 'CREATE' || (request.operation == 'UPDATE' \
&& !has(object.metadata.deletionTimestamp) && !(\
object.all(k, k in ['metadata', 'status'] || (k in oldObject && object[k] == oldObject[k])) \
&& oldObject.all(k, k in ['metadata', 'status'] || k in object) \
&& (has(object.metadata.labels) ? object.metadata.labels : {}) == (has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}) \
&& (has(object.metadata.annotations) ? object.metadata.annotations : {}) == (has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {})))";

/// Reports whether the plugin is called for this request.
///
/// Nothing is parsed unnecessarily: both objects may be large, and their content comes from the client. An API server
/// writes both in the same way, so a difference in the text is a difference in the value.
pub fn is_asked(request: &AdmissionRequest<'_>) -> Result<bool, serde_json::Error> {
    let object = request.object.map(ReviewedParts::read).transpose()?;
    let old = request.old.map(ReviewedParts::read).transpose()?;
    Ok(match (request.operation, object, old) {
        (Operation::Create, Some(_), _) => true,
        (Operation::Update, Some(object), Some(old)) => !object.is_deleting && !object.is_as_before(&old),
        _ => false,
    })
}

/// The parts of an object that decide whether a plugin is called.
struct ReviewedParts<'a> {
    is_deleting: bool,
    /// Labels as they are written; empty where there are none.
    labels: &'a str,
    annotations: &'a str,
    /// All other members but metadata and status, as they are written.
    rest: BTreeMap<BorrowedText<'a>, &'a str>,
}

impl<'a> ReviewedParts<'a> {
    fn read(object: &'a RawValue) -> Result<Self, serde_json::Error> {
        let mut rest: BTreeMap<BorrowedText<'a>, &'a RawValue> = serde_json::from_str(object.get())?;
        rest.remove("status");
        let metadata = rest.remove("metadata").map_or("{}", RawValue::get);
        let ReviewedMetadata {
            deletion_timestamp,
            labels,
            annotations,
        } = serde_json::from_str::<Option<ReviewedMetadata<'a>>>(metadata)?.unwrap_or_default();
        let entries = |map: Option<&'a RawValue>| {
            let text = map.map_or("", RawValue::get);
            if ["null", "{}"].contains(&text) { "" } else { text }
        };
        Ok(Self {
            is_deleting: deletion_timestamp.is_some(),
            labels: entries(labels),
            annotations: entries(annotations),
            rest: rest.into_iter().map(|(name, value)| (name, value.get())).collect(),
        })
    }

    fn is_as_before(&self, old: &Self) -> bool {
        (&self.rest, self.labels, self.annotations) == (&old.rest, old.labels, old.annotations)
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewedMetadata<'a> {
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(borrow)]
    labels: Option<&'a RawValue>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
