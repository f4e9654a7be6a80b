//! Parses the AdmissionReview requests of an API server and builds the responses.
//!
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#request>.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::field_errors::InvalidObject;
use crate::kubernetes::key::Kind;
use crate::plugin::contract::{Phase, UserInfo};

/// The supported version of AdmissionReview; the configurations list no other.
pub const API_VERSION: &str = "admission.k8s.io/v1";

/// The largest total size of a user's groups, in bytes. Each group becomes an allocation.
const MAX_GROUPS_BYTES: usize = 256 * 1024;

/// The kind of both request and response.
const KIND: &str = "AdmissionReview";

/// The operation that a request performs on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// CREATE.
    Create,
    /// UPDATE.
    Update,
    /// DELETE.
    Delete,
}

impl From<Operation> for Phase {
    fn from(operation: Operation) -> Self {
        match operation {
            Operation::Create => Self::Create,
            Operation::Update => Self::Update,
            Operation::Delete => Self::Delete,
        }
    }
}

/// The request of an API server. The objects borrow from the body: they may be large.
#[derive(Debug)]
pub struct AdmissionRequest<'a> {
    /// Copied into the response.
    pub uid: String,
    /// The object's kind, in the version in which it is given.
    pub kind: Kind,
    /// The object's name; empty if the server is still to generate one.
    pub name: String,
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
    /// The operation on the object.
    pub operation: Operation,
    /// The object after the operation; none for DELETE.
    pub object: Option<&'a RawValue>,
    /// The object before the operation; none for CREATE.
    pub old: Option<&'a RawValue>,
    /// The user who makes the request.
    pub user_info: UserInfo,
    /// Set if nothing will be stored.
    pub dry_run: bool,
}

/// The reason why a request cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// The body is not JSON, or does not have the shape of an AdmissionReview.
    #[error("the body is not an AdmissionReview: {0}")]
    Shape(#[from] serde_json::Error),
    /// The kind is another one, or the version is not supported.
    #[error(
        "the body is {kind} of {api_version}, and only {KIND} of {API_VERSION} is understood; list v1 in admissionReviewVersions"
    )]
    Version {
        /// The version in the body.
        api_version: String,
        /// The kind in the body.
        kind: String,
    },
    /// The review has no request, or the operation has no object.
    #[error("the AdmissionReview has no {0}")]
    Missing(&'static str),
    /// The user has too many groups.
    #[error("the groups in request.userInfo have more than {MAX_GROUPS_BYTES} bytes")]
    Groups,
    /// The operation is CONNECT or unknown.
    #[error("the operation {0:?} is not reviewed; only CREATE, UPDATE and DELETE are")]
    Operation(String),
}

/// Parses a request.
pub fn parse(body: &[u8]) -> Result<AdmissionRequest<'_>, ReviewError> {
    let AdmissionReviewEnvelope {
        api_version,
        kind,
        request,
    } = serde_json::from_slice(body)?;
    if api_version != API_VERSION || kind != KIND {
        return Err(ReviewError::Version { api_version, kind });
    }
    let request: RawRequest<'_> = match request {
        Some(request) => serde_json::from_str(request.get())?,
        None => return Err(ReviewError::Missing("request")),
    };
    let RawRequest {
        uid,
        kind,
        name,
        namespace,
        operation,
        object,
        old_object,
        user_info,
        dry_run,
    } = request;
    let operation = match operation.as_str() {
        "CREATE" => Operation::Create,
        "UPDATE" => Operation::Update,
        "DELETE" => Operation::Delete,
        _ => return Err(ReviewError::Operation(operation)),
    };
    let (object, old) = (non_null(object), non_null(old_object));
    match operation {
        Operation::Create | Operation::Update if object.is_none() => {
            return Err(ReviewError::Missing("request.object"));
        }
        Operation::Update if old.is_none() => return Err(ReviewError::Missing("request.oldObject")),
        _ => {}
    }
    let RawUserInfo { username, groups } = user_info;
    let groups = match groups.map(RawValue::get) {
        Some(groups) if groups.len() > MAX_GROUPS_BYTES => return Err(ReviewError::Groups),
        Some(groups) => serde_json::from_str(groups)?,
        None => Vec::new(),
    };
    Ok(AdmissionRequest {
        uid,
        kind,
        name,
        namespace: namespace.filter(|namespace| !namespace.is_empty()),
        operation,
        object,
        old,
        user_info: UserInfo { username, groups },
        dry_run,
    })
}

/// The object, unless it is `null`.
fn non_null(object: Option<&RawValue>) -> Option<&RawValue> {
    object.filter(|object| object.get() != "null")
}

/// The response that allows a request, with warnings for the user and a JSON patch of the object.
pub fn allowed(uid: &str, warnings: &[String], patch: &[Value]) -> Value {
    let mut response = json!({"uid": uid, "allowed": true});
    if !patch.is_empty() {
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(STANDARD.encode(Value::from(patch).to_string()));
    }
    answer(response, warnings)
}

/// The response that refuses a request, in the form in which an API server itself refuses an invalid object.
pub fn refused(uid: &str, refusal: &InvalidObject) -> Value {
    answer(json!({"uid": uid, "allowed": false, "status": refusal.status()}), &[])
}

/// Returns `true` if an answer refuses an object, at a review or at a conversion.
pub fn is_refusal(answer: &str) -> bool {
    #[derive(Deserialize)]
    struct Answer {
        response: Response,
    }
    #[derive(Deserialize)]
    struct Response {
        allowed: Option<bool>,
        result: Option<ConversionResult>,
    }
    #[derive(Deserialize)]
    struct ConversionResult {
        status: String,
    }
    serde_json::from_str(answer).is_ok_and(|Answer { response }| {
        let is_unconverted = response.result.is_some_and(|result| result.status != "Success");
        response.allowed == Some(false) || is_unconverted
    })
}

fn answer(mut response: Value, warnings: &[String]) -> Value {
    if !warnings.is_empty() {
        response["warnings"] = json!(warnings);
    }
    json!({"apiVersion": API_VERSION, "kind": KIND, "response": response})
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionReviewEnvelope<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(borrow)]
    request: Option<&'a RawValue>,
}

/// The members that are parsed. The rest of a request (the resource, options, the requested kind) is not needed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRequest<'a> {
    uid: String,
    kind: Kind,
    #[serde(default)]
    name: String,
    namespace: Option<String>,
    operation: String,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    old_object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    user_info: RawUserInfo<'a>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Default, Deserialize)]
struct RawUserInfo<'a> {
    #[serde(default)]
    username: String,
    #[serde(borrow)]
    groups: Option<&'a RawValue>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review() -> Value {
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "7", "kind": {"group": "x.dev", "version": "v1", "kind": "Thing"},
                "resource": {"group": "x.dev", "version": "v1", "resource": "things"},
                "name": "a", "namespace": "here", "operation": "UPDATE",
                "userInfo": {"username": "ann", "groups": ["crew"], "extra": {"k": ["v"]}},
                "object": {"spec": 1}, "oldObject": {"spec": 2}, "dryRun": true, "options": null
            }
        })
    }

    fn problem(change: impl FnOnce(&mut Value)) -> String {
        let mut review = review();
        change(&mut review);
        parse(review.to_string().as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn a_question_is_read_whole() {
        let review = review().to_string();
        let request = parse(review.as_bytes()).unwrap();
        assert_eq!(request.kind, Kind::new("x.dev", "v1", "Thing"));
        assert_eq!((&*request.uid, &*request.name), ("7", "a"));
        assert_eq!(request.namespace.as_deref(), Some("here"));
        assert_eq!(request.operation, Operation::Update);
        assert_eq!(request.object.unwrap().get(), r#"{"spec":1}"#);
        assert_eq!(request.old.unwrap().get(), r#"{"spec":2}"#);
        let UserInfo { username, groups } = request.user_info;
        assert_eq!((&*username, groups), ("ann", vec!["crew".to_owned()]));
        assert!(request.dry_run);
    }

    #[test]
    fn what_is_no_question_is_refused_with_its_fault() {
        assert!(parse(b"").unwrap_err().to_string().contains("not an AdmissionReview"));
        assert!(
            parse(b"[1]")
                .unwrap_err()
                .to_string()
                .contains("not an AdmissionReview")
        );
        assert!(parse(&[0xff, 0xfe]).is_err());
        let version = problem(|it| it["apiVersion"] = json!("admission.k8s.io/v1beta1"));
        assert!(version.contains("admission.k8s.io/v1beta1") && version.contains("admissionReviewVersions"));
        assert!(problem(|it| it["kind"] = json!("Pod")).contains("is Pod of"));
        assert!(problem(|it| it["request"] = Value::Null).contains("no request"));
        assert!(problem(|it| it["request"]["object"] = Value::Null).contains("no request.object"));
        assert!(problem(|it| it["request"]["oldObject"] = Value::Null).contains("no request.oldObject"));
        assert!(problem(|it| it["request"]["operation"] = json!("CONNECT")).contains("CONNECT"));
        assert!(
            problem(|it| it["request"]["uid"] = json!(7)).contains("uid")
                || problem(|it| it["request"]["uid"] = json!(7)).contains("string")
        );
        assert!(problem(|it| it["request"]["kind"] = json!("Thing")).contains("Kind"));
    }

    #[test]
    fn a_patch_is_sent_in_base64_and_only_if_there_is_one() {
        let without = allowed("7", &[], &[]);
        assert_eq!(without["response"], json!({"uid": "7", "allowed": true}));
        let with = allowed("7", &["careful".to_owned()], &[json!({"op": "add"})]);
        assert_eq!(with["response"]["patchType"], "JSONPatch");
        assert_eq!(with["response"]["warnings"], json!(["careful"]));
        let patch = STANDARD.decode(with["response"]["patch"].as_str().unwrap()).unwrap();
        assert_eq!(patch, br#"[{"op":"add"}]"#);
    }
}
