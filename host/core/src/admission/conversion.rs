//! Owns ConversionReview: objects that an API server wants in another version, parsed once, and the answer.
//!
//! Source: <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#webhook-request-and-response>.

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The version that is asked and answered.
pub const API_VERSION: &str = "apiextensions.k8s.io/v1";

/// The kind of both question and answer.
const KIND: &str = "ConversionReview";

/// What of the metadata a plugin may change: the API server refuses a conversion that changes more.
const CONVERTED_METADATA: [&str; 2] = ["labels", "annotations"];

/// What a plugin is not shown of the metadata.
const HIDDEN_METADATA: [&str; 2] = ["resourceVersion", "managedFields"];

/// What an API server asks.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversionRequest {
    /// Goes into the answer.
    pub uid: String,
    /// The version that all objects are wanted in, such as `x.dev/v2`.
    #[serde(rename = "desiredAPIVersion")]
    pub desired: String,
    /// The objects.
    pub objects: Vec<Map<String, Value>>,
}

/// Why a question is none.
#[derive(Debug, thiserror::Error)]
pub enum ConversionError {
    /// Not JSON, or not of the shape of a ConversionReview.
    #[error("the body is not a ConversionReview: {0}")]
    Shape(#[from] serde_json::Error),
    /// Another kind, or a version that is not spoken.
    #[error(
        "the body is {kind} of {api_version}, and only {KIND} of {API_VERSION} is understood; list v1 in conversionReviewVersions"
    )]
    Version {
        /// What it says that it is.
        api_version: String,
        /// What it says that it is.
        kind: String,
    },
    /// A question without a request.
    #[error("the ConversionReview has no request")]
    Missing,
}

/// Parses a question.
pub fn parse(body: &[u8]) -> Result<ConversionRequest, ConversionError> {
    let ConversionReviewEnvelope {
        api_version,
        kind,
        request,
    } = serde_json::from_slice(body)?;
    if api_version != API_VERSION || kind != KIND {
        return Err(ConversionError::Version { api_version, kind });
    }
    request.ok_or(ConversionError::Missing)
}

/// What a plugin is given of an object: all of it, because what is left out would be lost, but what no plugin sees.
pub fn shown(object: &Map<String, Value>) -> String {
    let mut shown = object.clone();
    if let Some(Value::Object(metadata)) = shown.get_mut("metadata") {
        for hidden in HIDDEN_METADATA {
            metadata.remove(hidden);
        }
    }
    Value::Object(shown).to_string()
}

/// The object as the plugin converted it, with the metadata that is not a converter's to change.
pub fn converted(original: &Map<String, Value>, answer: &str, desired: &str) -> Result<Value, String> {
    let mut object: Map<String, Value> =
        serde_json::from_str(answer).map_err(|error| format!("the converted object is not a JSON object: {error}"))?;
    let found = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if found != desired {
        return Err(format!(
            "the converted object has apiVersion {found:?}, wanted was {desired:?}"
        ));
    }
    if object.get("kind") != original.get("kind") {
        return Err("the converted object is of another kind".to_owned());
    }
    let mut metadata = original
        .get("metadata")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    for name in CONVERTED_METADATA {
        match object.get("metadata").and_then(|metadata| metadata.get(name)) {
            Some(value) => metadata.insert(name.to_owned(), value.clone()),
            None => metadata.remove(name),
        };
    }
    object.insert("metadata".to_owned(), Value::Object(metadata));
    Ok(Value::Object(object))
}

/// The answer: all objects in the order of the question, or why there are none.
pub fn answer(uid: &str, objects: Result<Vec<Value>, String>) -> Value {
    let response = match objects {
        Ok(objects) => json!({"uid": uid, "convertedObjects": objects, "result": {"status": "Success"}}),
        Err(message) => json!({"uid": uid, "result": {"status": "Failure", "message": message}}),
    };
    json!({"apiVersion": API_VERSION, "kind": KIND, "response": response})
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConversionReviewEnvelope {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<ConversionRequest>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn original() -> Map<String, Value> {
        let object = json!({
            "apiVersion": "x.dev/v1", "kind": "Thing",
            "metadata": {"name": "a", "uid": "1", "resourceVersion": "5", "managedFields": [], "labels": {"l": "1"}},
            "spec": {"size": 1}
        });
        object.as_object().unwrap().clone()
    }

    #[test]
    fn a_question_is_read_and_others_are_refused() {
        let question = json!({"apiVersion": API_VERSION, "kind": KIND,
            "request": {"uid": "7", "desiredAPIVersion": "x.dev/v2", "objects": [original()]}});
        let request = parse(question.to_string().as_bytes()).unwrap();
        assert_eq!(
            (&*request.uid, &*request.desired, request.objects.len()),
            ("7", "x.dev/v2", 1)
        );
        let problem = |body: Value| parse(body.to_string().as_bytes()).unwrap_err().to_string();
        assert!(problem(json!({"apiVersion": "apiextensions.k8s.io/v1beta1", "kind": KIND})).contains("v1beta1"));
        assert!(problem(json!({"apiVersion": API_VERSION, "kind": KIND})).contains("no request"));
        assert!(problem(json!({"apiVersion": API_VERSION, "kind": KIND, "request": {"uid": "7"}})).contains("desired"));
        assert!(problem(json!([])).contains("not a ConversionReview"));
    }

    #[test]
    fn a_converter_sees_all_but_what_no_plugin_sees() {
        let shown: Value = serde_json::from_str(&shown(&original())).unwrap();
        assert_eq!(
            shown["metadata"],
            json!({"name": "a", "uid": "1", "labels": {"l": "1"}})
        );
        assert_eq!(shown["spec"]["size"], 1);
    }

    #[test]
    fn a_converter_may_change_only_labels_and_annotations() {
        let answer = json!({"apiVersion": "x.dev/v2", "kind": "Thing",
            "metadata": {"name": "stolen", "annotations": {"was": "1"}}, "spec": {"count": 1}});
        let object = converted(&original(), &answer.to_string(), "x.dev/v2").unwrap();
        assert_eq!(
            object["metadata"],
            json!({"name": "a", "uid": "1", "resourceVersion": "5", "managedFields": [], "annotations": {"was": "1"}})
        );
        assert_eq!(object["spec"]["count"], 1);
    }

    #[test]
    fn another_version_or_kind_than_was_wanted_is_refused() {
        let refused = |answer: &str| converted(&original(), answer, "x.dev/v2").unwrap_err();
        assert!(refused("[]").contains("not a JSON object"));
        assert!(refused(r#"{"apiVersion":"x.dev/v1","kind":"Thing"}"#).contains("wanted was \"x.dev/v2\""));
        assert!(refused(r#"{"apiVersion":"x.dev/v2","kind":"Other"}"#).contains("another kind"));
    }
}
