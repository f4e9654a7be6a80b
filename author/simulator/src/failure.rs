//! Errors of the API server: `Status` objects with code, reason, message and causes, worded as a real server words
//! them.

use std::borrow::Cow;

use http::StatusCode;
use serde_json::{Map, Value, json};

pub(crate) use crate::field_error::{FieldError, Wrong};

/// A request that was refused; becomes a `Status` object.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub(crate) code: StatusCode,
    pub(crate) reason: Cow<'static, str>,
    pub(crate) message: String,
    pub(crate) details: Option<Value>,
    /// Seconds of the `Retry-After` header.
    pub(crate) retry_after: Option<u32>,
}

impl Failure {
    fn new(code: StatusCode, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
            message: message.into(),
            details: None,
            retry_after: None,
        }
    }

    fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(crate) fn not_found(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(group, resource));
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).with_details(details(group, resource, name))
    }

    /// The name in an object differs from the one in the path.
    pub(crate) fn name_mismatch(given: &str, wanted: &str) -> Self {
        Self::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({wanted})"
        ))
    }

    /// The object has no name at all, although the path has.
    pub(crate) fn nameless(wanted: &str) -> Self {
        Self::bad_request(format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        ))
    }

    pub(crate) fn namespace_mismatch(given: &str, wanted: &str) -> Self {
        Self::bad_request(format!(
            "the namespace of the object ({given}) does not match the namespace on the request ({wanted})"
        ))
    }

    pub(crate) fn invalid_resource_version(given: &str) -> Self {
        let detail = format!("strconv.ParseUint: parsing {given:?}: invalid syntax");
        Self::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {given:?}: {detail}"
        ))
    }

    /// A JSON patch that does not apply. The server keeps the reason to itself.
    pub(crate) fn rejected() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with_details(json!({}))
    }

    /// Refuses a patch whose result is no such object.
    pub(crate) fn bad_patch_result(object: &Value, detail: &str) -> Self {
        let error = FieldError::invalid("patch", &Value::String(object.to_string()), detail);
        Self::invalid("", "", "", &[error])
    }

    /// The object that a write is about is another one than the writer thinks.
    pub(crate) fn other_uid(
        group: &str,
        resource: &str,
        name: &str,
        key: &str,
        (wanted, actual): (&str, &str),
    ) -> Self {
        let cause = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {wanted}, UID in object meta: {actual}"
        );
        Self::conflict(group, resource, name, &cause)
    }

    /// The path is under a group version that is served, but names no resource of it.
    pub(crate) fn no_such_resource() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the server could not find the requested resource",
        )
        .with_details(json!({}))
    }

    pub(crate) fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", qualified(group, resource));
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).with_details(details(group, resource, name))
    }

    pub(crate) fn conflict(group: &str, resource: &str, name: &str, cause: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {cause}",
            qualified(group, resource)
        );
        Self::new(StatusCode::CONFLICT, "Conflict", message).with_details(details(group, resource, name))
    }

    /// An update that carries a resourceVersion which is not the object's any more.
    pub(crate) fn modified(group: &str, resource: &str, name: &str) -> Self {
        let cause = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(group, resource, name, cause)
    }

    /// Server-side apply without force met fields of other managers; one (manager as shown, path) a conflict.
    pub(crate) fn apply_conflict(conflicts: &[(String, String)]) -> Self {
        let causes: Vec<Value> = conflicts
            .iter()
            .map(|(manager, path)| {
                json!({"reason": "FieldManagerConflict", "message": format!("conflict with {manager}"), "field": path})
            })
            .collect();
        let plural = if conflicts.len() == 1 { "" } else { "s" };
        let mut lines = Vec::new();
        if let [(manager, path)] = conflicts {
            lines.push(format!("conflict with {manager}: {path}"));
        } else {
            let mut managers: Vec<&String> = conflicts.iter().map(|(manager, _)| manager).collect();
            managers.dedup();
            for holder in managers {
                lines.push(format!("conflicts with {holder}:"));
                lines.extend(
                    conflicts
                        .iter()
                        .filter(|(manager, _)| manager == holder)
                        .map(|(_, path)| format!("- {path}")),
                );
            }
        }
        let message = format!(
            "Apply failed with {} conflict{plural}: {}",
            conflicts.len(),
            lines.join("\n")
        );
        Self::new(StatusCode::CONFLICT, "Conflict", message).with_details(json!({"causes": causes}))
    }

    pub(crate) fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        // What is said twice is shown once, but stays two causes.
        let mut messages: Vec<String> = Vec::new();
        for error in errors {
            let message = error.to_string();
            if !messages.contains(&message) {
                messages.push(message);
            }
        }
        let shown = match messages.as_slice() {
            [single] => single.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let causes: Vec<Value> = errors
            .iter()
            .map(|error| json!({"reason": error.cause(), "message": error.body(), "field": error.field}))
            .collect();
        let mut described = details(group, kind, name);
        described["causes"] = Value::Array(causes);
        let message = format!("{} {name:?} is invalid: {shown}", qualified(group, kind));
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with_details(described)
    }

    pub(crate) fn forbidden(group: &str, resource: &str, name: &str, cause: &str) -> Self {
        let message = if name.is_empty() {
            format!("{} is forbidden: {cause}", qualified(group, resource))
        } else {
            format!("{} {name:?} is forbidden: {cause}", qualified(group, resource))
        };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).with_details(details(group, resource, name))
    }

    pub(crate) fn namespace_terminating(group: &str, resource: &str, name: &str, namespace: &str) -> Self {
        let cause = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut failure = Self::forbidden(group, resource, name, &cause);
        if let Some(details) = &mut failure.details {
            details["causes"] = json!([{
                "reason": "NamespaceTerminating",
                "message": format!("namespace {namespace} is being terminated"),
                "field": "metadata.namespace",
            }]);
        }
        failure
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).with_details(json!({}))
    }

    /// A part of the API that a real server has and this one has not.
    pub(crate) fn not_simulated(resource: &str, subresource: &str) -> Self {
        let message = format!(
            "the simulated API server does not implement this verb on {resource}/{subresource}; use a real one"
        );
        Self::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", message)
    }

    pub(crate) fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json, application/yaml";
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// Error of a patch whose format the API does not know at all.
    pub(crate) fn unknown_patch_type() -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            "415: Unsupported Media Type",
        )
        .with_details(json!({}))
    }

    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// A resourceVersion or a continue token that the history no longer reaches.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// A body that is larger than the server reads.
    pub(crate) fn body_too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// Error of an object that is larger than the store accepts, worded by etcd, or by the server's client of etcd,
    /// which sends no more than 2 MiB.
    pub(crate) fn object_too_large(bytes: usize) -> Self {
        const MOST_SENT: usize = 2 * 1024 * 1024;
        let message = if bytes > MOST_SENT {
            format!(
                "rpc error: code = ResourceExhausted desc = trying to send message larger than max ({bytes} vs. {MOST_SENT})"
            )
        } else {
            "etcdserver: request is too large".to_owned()
        };
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            format!("Internal error occurred: {message}"),
        )
        .with_details(json!({"causes": [{"message": message}]}))
    }

    /// Refusal of a webhook, with its message.
    pub(crate) fn denied(webhook: &str, said: &Value) -> Self {
        let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
        let code = said["code"].as_u64().and_then(|code| u16::try_from(code).ok());
        let code = code.and_then(|code| StatusCode::from_u16(code).ok());
        // A refusal is never answered with a code that means success.
        let code = code
            .filter(|code| code.as_u16() >= 400)
            .unwrap_or(StatusCode::BAD_REQUEST);
        let (message, reason) = (text("message"), text("reason"));
        let why = match (message.is_empty(), reason.is_empty()) {
            (false, _) => format!(": {message}"),
            (true, false) => format!(": {reason}"),
            (true, true) => " without explanation".to_owned(),
        };
        let message = format!("admission webhook {webhook:?} denied the request{why}");
        Self {
            details: said.get("details").filter(|details| details.is_object()).cloned(),
            ..Self::new(code, reason, message)
        }
    }

    /// An error that the API server does not classify: code 500, no reason.
    pub(crate) fn unclassified(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    pub(crate) fn too_large_resource_version(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let mut failure = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", format!("Timeout: {message}"));
        failure.retry_after = Some(1);
        failure.with_details(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }))
    }

    /// Response of a fault in place of the server: any code, with its reason.
    pub(crate) fn injected(code: u16, retry_after: Option<u32>) -> Self {
        let (reason, message) = match code {
            409 => (
                "Conflict",
                "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest version and try again",
            ),
            410 => ("Expired", "The resourceVersion for the provided watch is too old."),
            429 => ("TooManyRequests", "Too many requests, please try again later."),
            503 => (
                "ServiceUnavailable",
                "the server is currently unable to handle the request",
            ),
            504 => (
                "Timeout",
                "Timeout: request did not complete within the allotted timeout",
            ),
            _ => (
                "InternalError",
                "an error on the server (\"injected\") has prevented the request from succeeding",
            ),
        };
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut failure = Self::new(code, reason, message);
        failure.retry_after = retry_after;
        if let Some(seconds) = retry_after {
            failure.details = Some(json!({"retryAfterSeconds": seconds}));
        }
        failure
    }

    /// The `Status` object.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}

/// `deployments.apps`, or `services` for the core group.
pub(crate) fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}

fn details(group: &str, kind: &str, name: &str) -> Value {
    let mut details = Map::new();
    if !name.is_empty() {
        details.insert("name".to_owned(), json!(name));
    }
    if !group.is_empty() {
        details.insert("group".to_owned(), json!(group));
    }
    if !kind.is_empty() {
        details.insert("kind".to_owned(), json!(kind));
    }
    Value::Object(details)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_errors_stand_in_brackets_and_each_is_a_cause() {
        let errors = [
            FieldError::required("spec.selector", ""),
            FieldError::invalid("spec.replicas", &json!(-1), "must be greater than or equal to 0"),
        ];
        let failure = Failure::invalid("apps", "Deployment", "web", &errors);
        assert_eq!(
            failure.message,
            "Deployment.apps \"web\" is invalid: [spec.selector: Required value, \
             spec.replicas: Invalid value: -1: must be greater than or equal to 0]"
        );
        assert_eq!(failure.status()["details"]["causes"][0]["reason"], "FieldValueRequired");
    }

    #[test]
    fn conflicts_of_one_manager_are_listed_together() {
        let conflicts = [
            ("\"a\"".to_owned(), ".data.x".to_owned()),
            ("\"a\"".to_owned(), ".data.y".to_owned()),
        ];
        let failure = Failure::apply_conflict(&conflicts);
        assert_eq!(
            failure.message,
            "Apply failed with 2 conflicts: conflicts with \"a\":\n- .data.x\n- .data.y"
        );
    }
}
