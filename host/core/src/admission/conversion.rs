//! Reads ConversionReview requests (objects that an API server wants in another version) and writes the responses.
//!
//! API servers show no certificate here, so anybody may send a request. Objects therefore stay text: only their first
//! two levels are parsed, and one object is converted at a time.
//!
//! Source: <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#webhook-request-and-response>.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use crate::kubernetes::path::BorrowedText;

/// The supported version of ConversionReview.
pub const API_VERSION: &str = "apiextensions.k8s.io/v1";

/// The kind of both request and response.
const KIND: &str = "ConversionReview";

/// The largest response, in bytes. A plugin whose objects grow by conversion could make it as large as it likes.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// Metadata that a plugin may change: the API server refuses a conversion that changes more.
const CONVERTED_METADATA: [&str; 2] = ["labels", "annotations"];

/// Metadata that a plugin does not see.
const HIDDEN_METADATA: [&str; 2] = ["resourceVersion", "managedFields"];

/// The request of an API server.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversionRequest<'a> {
    /// Copied into the response.
    pub uid: String,
    /// The version that all objects are wanted in, such as `x.dev/v2`.
    #[serde(rename = "desiredAPIVersion")]
    pub desired: String,
    /// The objects.
    #[serde(borrow)]
    objects: &'a RawValue,
}

/// The reason why a request cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub enum ConversionError {
    /// The body is not JSON, or does not have the shape of a ConversionReview.
    #[error("the body is not a ConversionReview: {0}")]
    Shape(#[from] serde_json::Error),
    /// The kind is another one, or the version is not supported.
    #[error(
        "the body is {kind} of {api_version}, and only {KIND} of {API_VERSION} is understood; list v1 in conversionReviewVersions"
    )]
    Version {
        /// The version in the body.
        api_version: String,
        /// The kind in the body.
        kind: String,
    },
    /// The review has no request.
    #[error("the ConversionReview has no request")]
    Missing,
}

/// Parses a request.
pub fn parse(body: &[u8]) -> Result<ConversionRequest<'_>, ConversionError> {
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

/// An object of a request. Its members stay as they are written.
#[derive(Debug)]
pub struct OriginalObject<'a> {
    members: Members<'a>,
    metadata: Members<'a>,
}

type Members<'a> = BTreeMap<BorrowedText<'a>, &'a RawValue>;

impl<'a> OriginalObject<'a> {
    fn read(object: &'a RawValue) -> Result<Self, String> {
        let problem = |error: serde_json::Error| format!("an object of the question is not a JSON object: {error}");
        let members: Members<'a> = serde_json::from_str(object.get()).map_err(problem)?;
        let metadata = members
            .get("metadata")
            .map(|metadata| serde_json::from_str(metadata.get()));
        let metadata: Option<Option<Members<'a>>> = metadata.transpose().map_err(problem)?;
        let metadata = metadata.flatten().unwrap_or_default();
        if !(members.contains_key("apiVersion") && members.contains_key("kind")) {
            return Err("an object of the question has no apiVersion or no kind".to_owned());
        }
        Ok(Self { members, metadata })
    }

    /// The object as a plugin receives it. Only `HIDDEN_METADATA` is missing, because members that the plugin does not
    /// receive would be lost.
    pub fn shown(&self) -> String {
        let mut metadata = self.metadata.clone();
        metadata.retain(|name, _| !HIDDEN_METADATA.contains(&&*name.0));
        written(&self.members, &metadata)
    }

    /// The object as the plugin converted it, with the metadata that is not a converter's to change.
    pub fn converted(&self, answer: &str, desired: &str) -> Result<String, String> {
        let problem = |error: serde_json::Error| format!("the converted object is not a JSON object: {error}");
        let members: Members<'_> = serde_json::from_str(answer).map_err(problem)?;
        let text = |members: &Members<'_>, name: &str| -> Option<String> {
            serde_json::from_str(members.get(name)?.get()).ok()
        };
        let found = text(&members, "apiVersion").unwrap_or_default();
        if found != desired {
            return Err(format!(
                "the converted object has apiVersion {found:?}, wanted was {desired:?}"
            ));
        }
        if text(&members, "kind") != text(&self.members, "kind") {
            return Err("the converted object is of another kind".to_owned());
        }
        let answered = members
            .get("metadata")
            .map(|metadata| serde_json::from_str(metadata.get()));
        // Metadata that is no object has no labels.
        let answered: Members<'_> = answered.and_then(Result::ok).unwrap_or_default();
        let mut metadata = self.metadata.clone();
        for name in CONVERTED_METADATA {
            metadata.remove(name);
            if let Some((name, value)) = answered.get_key_value(name) {
                metadata.insert(name.clone(), value);
            }
        }
        Ok(written(&members, &metadata))
    }
}

/// An object with other metadata.
fn written(members: &Members<'_>, metadata: &Members<'_>) -> String {
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Member<'m, 'a> {
        Metadata(&'m Members<'a>),
        Other(&'a RawValue),
    }
    let others = members.iter().filter(|(name, _)| &*name.0 != "metadata");
    let mut whole: BTreeMap<&str, Member<'_, '_>> =
        others.map(|(name, value)| (&*name.0, Member::Other(value))).collect();
    whole.insert("metadata", Member::Metadata(metadata));
    serde_json::to_string(&whole).expect("raw values and texts are always JSON")
}

impl<'a> ConversionRequest<'a> {
    /// The sizes of the objects as text and when they are parsed, as far as they can be read.
    pub fn each_size(&self, mut visit: impl FnMut(&str)) -> Result<(), ConversionError> {
        let visit = |object: &'a RawValue| {
            visit(object.get());
            Ok::<(), String>(())
        };
        Ok(self.each(visit).map(|_| ())?)
    }

    /// Converts one object after the other, until one fails. The response has all of them in their order, or the error.
    pub fn answer(
        &self,
        mut convert: impl FnMut(&OriginalObject<'a>) -> Result<String, String>,
    ) -> Result<String, ConversionError> {
        let mut converted = String::new();
        let one = |object: &'a RawValue| {
            let object = convert(&OriginalObject::read(object)?)?;
            if converted.len() + object.len() > MAX_ANSWER_BYTES {
                return Err(format!(
                    "the converted objects have more than {MAX_ANSWER_BYTES} bytes together; read fewer objects at a time"
                ));
            }
            if !converted.is_empty() {
                converted.push(',');
            }
            converted.push_str(&object);
            Ok(())
        };
        let (uid, version, kind) = (json!(self.uid), json!(API_VERSION), json!(KIND));
        let response = match self.each(one)? {
            Ok(()) => format!(r#"{{"uid":{uid},"convertedObjects":[{converted}],"result":{{"status":"Success"}}}}"#),
            Err(message) => json!({"uid": self.uid, "result": {"status": "Failure", "message": message}}).to_string(),
        };
        Ok(format!(
            r#"{{"apiVersion":{version},"kind":{kind},"response":{response}}}"#
        ))
    }

    fn each<E>(&self, visit: impl FnMut(&'a RawValue) -> Result<(), E>) -> Result<Result<(), E>, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_str(self.objects.get());
        EachObject(visit).deserialize(&mut deserializer)
    }
}

/// Visits the items of a list without keeping them. After an error, the others are only read.
struct EachObject<F>(F);

impl<'de, F: FnMut(&'de RawValue) -> Result<(), E>, E> DeserializeSeed<'de> for EachObject<F> {
    type Value = Result<(), E>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(&'de RawValue) -> Result<(), E>, E> Visitor<'de> for EachObject<F> {
    type Value = Result<(), E>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut visited = Ok(());
        while let Some(object) = items.next_element::<&RawValue>()? {
            if visited.is_ok() {
                visited = (self.0)(object);
            }
        }
        Ok(visited)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConversionReviewEnvelope<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(borrow)]
    request: Option<ConversionRequest<'a>>,
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn original() -> Value {
        json!({
            "apiVersion": "x.dev/v1", "kind": "Thing",
            "metadata": {"name": "a", "uid": "1", "resourceVersion": "5", "managedFields": [], "labels": {"l": "1"}},
            "spec": {"size": 1}
        })
    }

    fn question(objects: &Value) -> String {
        let request = json!({"uid": "7", "desiredAPIVersion": "x.dev/v2", "objects": objects});
        json!({"apiVersion": API_VERSION, "kind": KIND, "request": request}).to_string()
    }

    fn answered(objects: &Value, convert: impl FnMut(&OriginalObject<'_>) -> Result<String, String>) -> Value {
        let answer = parse(question(objects).as_bytes()).unwrap().answer(convert).unwrap();
        serde_json::from_str::<Value>(&answer).unwrap()["response"].take()
    }

    /// The result for one object that a plugin converts to `answer`.
    fn converted(answer: &str) -> Result<Value, String> {
        let response = answered(&json!([original()]), |object| object.converted(answer, "x.dev/v2"));
        match response["result"]["message"].as_str() {
            Some(message) => Err(message.to_owned()),
            None => Ok(response["convertedObjects"][0].clone()),
        }
    }

    #[test]
    fn a_question_is_read_and_others_are_refused() {
        let mut sizes = Vec::new();
        let text = question(&json!([original(), 1]));
        let request = parse(text.as_bytes()).unwrap();
        request.each_size(|object| sizes.push(object.len())).unwrap();
        assert_eq!((&*request.uid, &*request.desired), ("7", "x.dev/v2"));
        assert_eq!(sizes, [original().to_string().len(), 1]);
        let problem = |body: Value| parse(body.to_string().as_bytes()).unwrap_err().to_string();
        assert!(problem(json!({"apiVersion": "apiextensions.k8s.io/v1beta1", "kind": KIND})).contains("v1beta1"));
        assert!(problem(json!({"apiVersion": API_VERSION, "kind": KIND})).contains("no request"));
        assert!(problem(json!({"apiVersion": API_VERSION, "kind": KIND, "request": {"uid": "7"}})).contains("desired"));
        assert!(problem(json!([])).contains("not a ConversionReview"));
        let objects = question(&json!({"a": 1}));
        let problem = parse(objects.as_bytes())
            .unwrap()
            .answer(|_| unreachable!("nothing is converted"));
        assert!(problem.unwrap_err().to_string().contains("a list of objects"));
    }

    #[test]
    fn objects_are_converted_one_by_one_until_one_fails() {
        let mut seen = 0;
        let objects = json!([original(), original(), 1, original()]);
        let response = answered(&objects, |object| {
            seen += 1;
            Ok(object.shown())
        });
        assert_eq!(seen, 2);
        let message = response["result"]["message"].as_str().unwrap();
        assert!(message.contains("not a JSON object"), "{message}");
        let response = answered(&json!([original(), {"metadata": {}}]), |object| Ok(object.shown()));
        assert!(
            response["result"]["message"]
                .as_str()
                .unwrap()
                .contains("no apiVersion")
        );
        let response = answered(&json!([]), |_| unreachable!("there is none"));
        assert_eq!(
            response,
            json!({"uid": "7", "convertedObjects": [], "result": {"status": "Success"}})
        );
    }

    #[test]
    fn an_answer_that_grows_without_end_is_none() {
        let objects: Value = vec![original(); 100].into();
        let response = answered(&objects, |_| Ok(format!("\"{}\"", "x".repeat(MAX_ANSWER_BYTES / 50))));
        assert!(
            response["result"]["message"]
                .as_str()
                .unwrap()
                .contains("read fewer objects")
        );
    }

    #[test]
    fn a_converter_sees_all_but_what_no_plugin_sees() {
        let mut shown = Value::Null;
        answered(&json!([original()]), |object| {
            shown = serde_json::from_str(&object.shown()).unwrap();
            Ok(object.shown())
        });
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
        let object = converted(&answer.to_string()).unwrap();
        assert_eq!(
            object["metadata"],
            json!({"name": "a", "uid": "1", "resourceVersion": "5", "managedFields": [], "annotations": {"was": "1"}})
        );
        assert_eq!(object["spec"]["count"], 1);
    }

    #[test]
    fn another_version_or_kind_than_was_wanted_is_refused() {
        let refused = |answer: &str| converted(answer).unwrap_err();
        assert!(refused("[]").contains("not a JSON object"));
        assert!(refused(r#"{"apiVersion":"x.dev/v1","kind":"Thing"}"#).contains("wanted was \"x.dev/v2\""));
        assert!(refused(r#"{"apiVersion":"x.dev/v2","kind":"Other"}"#).contains("another kind"));
        let twice = r#"{"apiVersion":"x.dev/v2","kind":"Thing","apiVersion":"x.dev/v1"}"#;
        assert!(
            refused(twice).contains("wanted was"),
            "the last one counts, as for the API server"
        );
    }
}
