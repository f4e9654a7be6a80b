//! AdmissionReview: builds the request to a webhook, and checks its response. Knows nothing of the transport.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::matching::Subject;
use crate::kinds::Resource;

/// Version of the request.
const API_VERSION: &str = "admission.k8s.io/v1";

/// User of clients that impersonate nobody: the simulation knows no accounts.
const ADMINISTRATOR: &str = "kubernetes-admin";

/// Verdict of a webhook.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) allowed: bool,
    /// The operations of a JSON patch.
    pub(super) patch: Option<Value>,
    pub(super) warnings: Vec<String>,
    /// Refusal as a Status.
    pub(super) status: Value,
}

/// The request without the objects, as match conditions see it.
pub(super) fn request(resource: &Resource, subject: &Subject<'_>) -> Value {
    let call = subject.call;
    let (kind, plural) = (kind_of(resource), plural_of(resource));
    let user = call.options.impersonated.as_deref();
    let groups: &[&str] = if user.is_some() {
        &["system:authenticated"]
    } else {
        &["system:masters", "system:authenticated"]
    };
    let mut request = json!({
        "kind": kind,
        "resource": plural,
        "requestKind": kind_of(&call.resource),
        "requestResource": plural_of(&call.resource),
        "name": subject.name(),
        "operation": subject.operation,
        "userInfo": {"username": user.unwrap_or(ADMINISTRATOR), "groups": groups},
        "dryRun": call.options.dry_run,
    });
    if !subject.namespace().is_empty() {
        request["namespace"] = json!(subject.namespace());
    }
    if !call.subresource.is_empty() {
        request["subResource"] = json!(call.subresource);
        request["requestSubResource"] = json!(call.subresource);
    }
    request
}

/// The whole question, but for its uid.
pub(super) fn question(resource: &Resource, subject: &Subject<'_>) -> Value {
    let own = &subject.call.resource;
    let mut request = request(resource, subject);
    request["object"] = Subject::shown(resource, own, subject.object).unwrap_or(Value::Null);
    request["oldObject"] = Subject::shown(resource, own, subject.old).unwrap_or(Value::Null);
    let options = match subject.operation {
        "CREATE" => "CreateOptions",
        "DELETE" => "DeleteOptions",
        _ => "UpdateOptions",
    };
    request["options"] = json!({"apiVersion": "meta.k8s.io/v1", "kind": options});
    json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "request": request})
}

/// Reads a response; the error is worded as the server's.
pub(super) fn read(answer: &Value, uid: &str, mutating: bool) -> Result<Verdict, String> {
    let response = &answer["response"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if response.is_null() {
        return Err("webhook response was absent".to_owned());
    }
    if response["uid"] != uid {
        let got = text(&response["uid"]);
        return Err(format!("expected response.uid={uid:?}, got {got:?}"));
    }
    let (version, kind) = (text(&answer["apiVersion"]), text(&answer["kind"]));
    if (version.as_str(), kind.as_str()) != (API_VERSION, "AdmissionReview") {
        return Err(format!(
            "expected webhook response of {API_VERSION}, Kind=AdmissionReview, got {version}, Kind={kind}"
        ));
    }
    let (patch, patch_type) = (text(&response["patch"]), text(&response["patchType"]));
    let patch = match (mutating, patch.is_empty(), patch_type.as_str()) {
        (_, true, "") => None,
        (false, false, _) => return Err("validating webhook may not return response.patch".to_owned()),
        (false, true, _) => return Err("validating webhook may not return response.patchType".to_owned()),
        (true, false, "") => return Err("webhook returned response.patch but not response.patchType".to_owned()),
        (true, true, _) => return Err("webhook returned response.patchType but not response.patch".to_owned()),
        (true, false, "JSONPatch") => Some(operations(&patch)?),
        (true, false, other) => return Err(format!("webhook returned invalid response.patchType of {other:?}")),
    };
    let warnings = response["warnings"].as_array().into_iter().flatten();
    Ok(Verdict {
        allowed: response["allowed"] == true,
        patch,
        warnings: warnings.filter_map(Value::as_str).map(str::to_owned).collect(),
        status: response["status"].clone(),
    })
}

fn operations(patch: &str) -> Result<Value, String> {
    let bytes = STANDARD.decode(patch).map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}

fn kind_of(resource: &Resource) -> Value {
    json!({"group": resource.group, "version": resource.version, "kind": resource.kind})
}

fn plural_of(resource: &Resource) -> Value {
    json!({"group": resource.group, "version": resource.version, "resource": resource.plural})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(mutating: bool, change: impl FnOnce(&mut Value)) -> String {
        let mut answer =
            json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": {"uid": "7", "allowed": true}});
        change(&mut answer);
        read(&answer, "7", mutating).expect_err("something is wrong with it")
    }

    #[test]
    fn what_is_wrong_with_an_answer_is_said() {
        assert_eq!(
            problem(false, |it| it["response"] = Value::Null),
            "webhook response was absent"
        );
        assert_eq!(
            problem(false, |it| it["response"]["uid"] = json!("8")),
            "expected response.uid=\"7\", got \"8\""
        );
        assert!(problem(false, |it| it["kind"] = json!("Pod")).contains("got admission.k8s.io/v1, Kind=Pod"));
        assert!(problem(false, |it| it["response"]["patch"] = json!("W10=")).contains("may not return response.patch"));
        assert!(problem(true, |it| it["response"]["patch"] = json!("W10=")).contains("but not response.patchType"));
    }

    #[test]
    fn a_patch_is_read_from_base64() {
        let answer = json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": {
            "uid": "7", "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode("[{\"op\":\"add\"}]"), "warnings": ["careful"],
        }});
        let verdict = read(&answer, "7", true).expect("it is an answer");
        assert_eq!(verdict.patch, Some(json!([{"op": "add"}])));
        assert_eq!(verdict.warnings, ["careful"]);
    }
}
