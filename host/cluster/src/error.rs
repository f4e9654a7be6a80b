//! Translates errors of an API server, or of the connection to it, into failures with blame.

use std::io::ErrorKind;
use std::time::Duration;

use kube::core::Status;
use pilothouse_core::contribution::HeldField;
use pilothouse_core::status::failure::LONGEST_REQUESTED_WAIT;
use pilothouse_core::status::reason::{ADMISSION_STEP, DENIED_STEP, QUOTA_STEP, REFUSED_STEP, Reason};
use pilothouse_core::{Failure, Retry};

use crate::fence::NotLeading;

/// The reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The API server answered with an error.
    #[error("{}", status_text(.0))]
    Answered(Box<Status>),
    /// No response within the time-out.
    #[error("the API server gave no answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// The connection to the API server failed.
    #[error("the API server cannot be reached: {0}")]
    Unreachable(String),
    /// The response violates the API.
    #[error("the API server's response cannot be parsed: {0}")]
    Garbled(String),
    /// No token is available for the requesting account, so the request was not sent.
    #[error("{0}")]
    NoToken(String),
    /// The replica is not the leader, so the request was not sent, or its response was not awaited.
    #[error(transparent)]
    NotLeading(NotLeading),
}

/// The failure of a list or a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchError {
    /// The cause.
    pub kind: WatchErrorKind,
    /// The message for the log.
    pub message: String,
}

/// The cause of a failed list or watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchErrorKind {
    /// The API server cannot be reached.
    Connection,
    /// The API server does not accept the host's credentials (401).
    Unauthorized,
    /// The host lacks a right (403).
    Forbidden,
    /// Another cause.
    Other,
}

impl WatchError {
    /// A failure that is not the response to a request.
    pub(crate) fn other(message: impl Into<String>) -> Self {
        Self {
            kind: WatchErrorKind::Other,
            message: message.into(),
        }
    }

    /// Reports whether every request of the host fails so; [`crate::connect::connection_log`] then logs it once for
    /// all.
    pub fn is_about_connection(&self) -> bool {
        matches!(self.kind, WatchErrorKind::Connection | WatchErrorKind::Unauthorized)
    }
}

impl From<&RequestError> for WatchError {
    fn from(error: &RequestError) -> Self {
        let kind = match error {
            RequestError::Unreachable(_) => WatchErrorKind::Connection,
            RequestError::Answered(status) if status.code == 401 => WatchErrorKind::Unauthorized,
            RequestError::Answered(status) if status.code == 403 => WatchErrorKind::Forbidden,
            RequestError::Answered(_)
            | RequestError::Silent(_)
            | RequestError::Garbled(_)
            | RequestError::NoToken(_)
            | RequestError::NotLeading(_) => WatchErrorKind::Other,
        };
        Self {
            kind,
            message: chain(error),
        }
    }
}

/// The server's message, or its status code if it has none.
fn status_text(status: &Status) -> String {
    match (status.message.as_str(), status.code) {
        ("", code) => format!("the API server answered {code} {}", status.reason),
        (message, _) => message.to_owned(),
    }
}

/// Reports whether the message is the API server's for a webhook or a policy that denies a request which is valid in
/// itself. Whatever status code they choose, the request may pass as soon as they are changed, and no event tells us of
/// that:
fn is_denied(message: &str) -> bool {
    let by_webhook = message.starts_with("admission webhook ") && message.contains(" denied the request");
    by_webhook || (message.contains("AdmissionPolicy '") && message.contains(" denied request: "))
}

/// Reports whether the message of a 403 is about a right, in the words that the API server has for every authorizer:
/// `pods is forbidden: User "a" cannot list resource "pods" in API group "" in the namespace "b"`. A policy may quote them.
fn is_about_rights(message: &str) -> bool {
    !is_denied(message) && message.contains("User \"") && message.contains("\" cannot ")
}

/// Next step after a 403.
fn forbidden_step(message: &str) -> &'static str {
    match message {
        _ if is_about_rights(message) => "grant it",
        _ if message.contains("exceeded quota: ") => QUOTA_STEP,
        _ => ADMISSION_STEP,
    }
}

/// Reports whether server-side apply (which answers 500 then) refuses a body by its types. It can never pass.
fn is_about_types(message: &str) -> bool {
    message.contains("failed to create typed patch object")
}

/// Messages about a body that is larger than etcd, the connection to it, or an extension API server accepts. The API
/// server passes them on with the code 500; for a body above its own limit it answers 413. The same body can never
/// pass.
const TOO_LARGE: [&str; 4] = [
    "etcdserver: request is too large",
    "trying to send message larger than max",
    "received message larger than max",
    "http: request body too large",
];

/// Reports whether a 500 is about the size of the body. Messages of webhooks and proxies may change: they do not count.
fn is_too_large(message: &str) -> bool {
    !message.contains("webhook") && TOO_LARGE.iter().any(|words| message.contains(words))
}

/// Every error of a chain, because the first one of a transport error rarely names the cause.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

impl From<kube::Error> for RequestError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Answered(status),
            kube::Error::SerdeError(error) => Self::Garbled(error.to_string()),
            kube::Error::Service(error) => match error.downcast_ref() {
                Some(refused) => Self::NotLeading(*refused),
                None => Self::Unreachable(transport_problem(&kube::Error::Service(error))),
            },
            error => Self::Unreachable(transport_problem(&error)),
        }
    }
}

/// Messages of rustls about a server's certificate, and explanations of them for the log.
const CERTIFICATE_PROBLEMS: [(&str, &str); 4] = [
    (
        "UnknownIssuer",
        "its certificate is not signed by the kubeconfig's certificate-authority",
    ),
    (
        "NotValidForName",
        "its certificate is for another name than the one in the kubeconfig's server",
    ),
    ("Expired", "its certificate has expired"),
    ("NotValidYet", "its certificate is not valid yet; compare the clocks"),
];

/// A request that did not reach its server, with the server's name.
#[derive(Debug, thiserror::Error)]
#[error("{server} cannot be reached")]
pub(crate) struct AtServer {
    /// The address of the server, and the context that names it.
    pub(crate) server: String,
    /// The transport error.
    pub(crate) source: tower::BoxError,
}

/// The reason why a request did not reach its server, without the type names of libraries.
pub fn transport_problem(error: &(dyn std::error::Error + 'static)) -> String {
    let mut link = Some(error);
    while let Some(error) = link {
        if let Some(AtServer { server, source }) = error.downcast_ref() {
            return format!("{} ({server})", transport_problem(&**source));
        }
        link = error.source();
    }
    let text = chain(error);
    if let Some((_, certificate)) = text.split_once("invalid peer certificate: ") {
        let known = CERTIFICATE_PROBLEMS
            .iter()
            .find(|(name, _)| certificate.starts_with(name));
        return known.map_or_else(
            || format!("its certificate is not accepted: {certificate}"),
            |(_, meaning)| (*meaning).to_owned(),
        );
    }
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    let Some(io) = root.downcast_ref::<std::io::Error>() else {
        return ["ServiceError: ", "HyperError: ", "client error (Connect): "]
            .iter()
            .fold(text, |text, layer| text.replace(layer, ""));
    };
    match io.kind() {
        ErrorKind::ConnectionRefused => "connection refused: nothing listens at this address".to_owned(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
            "the connection was closed before the response".to_owned()
        }
        ErrorKind::TimedOut => "the connection timed out".to_owned(),
        _ if text.contains("dns error") => format!("its name cannot be resolved: {io}"),
        _ => io.to_string(),
    }
}

impl RequestError {
    /// The HTTP status code of the response, if there was one.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Answered(status) => Some(status.code),
            _ => None,
        }
    }

    /// Reports whether the account of the request lacks a right. Other answers with 403 are those of admission, which no
    /// right changes.
    pub fn is_missing_right(&self) -> bool {
        self.code() == Some(403) && is_about_rights(&self.to_string())
    }

    /// The reason that the server gives, if there is one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Answered(status) => Some(&status.reason),
            _ => None,
        }
    }

    /// The delay that the server requests, up to [`LONGEST_REQUESTED_WAIT`]: a webhook may have set any number.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Answered(status) => status
                .details
                .as_ref()
                .filter(|details| details.retry_after_seconds > 0)
                .map(|details| Duration::from_secs(u64::from(details.retry_after_seconds)).min(LONGEST_REQUESTED_WAIT)),
            _ => None,
        }
    }

    /// The fields of other managers with which an apply without force conflicts.
    pub fn held_by_others(&self) -> Vec<HeldField> {
        let Self::Answered(status) = self else {
            return Vec::new();
        };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        causes
            .filter(|cause| cause.reason == "FieldManagerConflict")
            .map(|cause| {
                // As in `conflict with "kubectl-edit" using v1 at 2026-01-01T00:00:00Z`: the time would make each
                // message a new one.
                let manager = cause.message.split('"').nth(1).unwrap_or(&cause.message);
                HeldField {
                    manager: manager.to_owned(),
                    path: cause.field.clone(),
                }
            })
            .collect()
    }

    /// Reports whether the object, or its kind, is not found.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Reports whether the object itself is not found. A 404 that names no object is about the path: the kind is not
    /// served, or a proxy is misconfigured, which says nothing about objects.
    pub fn is_object_not_found(&self) -> bool {
        match self {
            Self::Answered(status) => {
                let names_it = |details: &kube::core::response::StatusDetails| !details.name.is_empty();
                status.code == 404 && status.details.as_ref().is_some_and(names_it)
            }
            _ => false,
        }
    }

    /// Reports whether the namespace is being deleted and accepts no new objects.
    pub fn is_in_terminating_namespace(&self) -> bool {
        match self {
            Self::Answered(status) => {
                let causes = status.details.iter().flat_map(|details| &details.causes);
                status.code == 403 && causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
            }
            _ => false,
        }
    }

    /// Reports whether the namespace for a new object does not exist.
    pub fn is_namespace_not_found(&self) -> bool {
        match self {
            Self::Answered(status) => {
                let details = status.details.as_ref();
                status.code == 404 && details.is_some_and(|details| details.kind == "namespaces")
            }
            _ => false,
        }
    }

    /// Reports whether the same request may soon succeed: the server was busy, or gave no response that rules it out.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Answered(status) => {
                let is_permanent = is_about_types(&status.message) || is_too_large(&status.message);
                matches!(status.code, 429 | 500 | 502 | 503 | 504) && !is_permanent
            }
            Self::Unreachable(_) | Self::Silent(_) | Self::NotLeading(_) => true,
            Self::Garbled(_) | Self::NoToken(_) => false,
        }
    }

    /// The fields that the server's validation refuses, such as `spec.ports[1].name`; none if validation was not the
    /// reason. Some checks name no field, and answer 500 without a reason, such as that of a node port which a Service
    /// has twice; a fault of the server may look the same.
    pub fn invalid_fields(&self) -> Option<Vec<String>> {
        match self {
            Self::Answered(status) if status.code == 500 && status.reason.is_empty() && !self.is_of_storage() => {
                Some(Vec::new())
            }
            Self::Answered(status) if status.code == 422 && !is_denied(&status.message) => {
                let causes = status.details.iter().flat_map(|details| &details.causes);
                Some(causes.map(|cause| cause.field.clone()).collect())
            }
            _ => None,
        }
    }

    /// Reports whether the server could not reach or use its storage.
    fn is_of_storage(&self) -> bool {
        let message = self.to_string();
        ["etcdserver: ", "rpc error: ", "context deadline exceeded"]
            .iter()
            .any(|words| message.contains(words))
    }

    /// Reports whether a webhook prevents dry runs.
    pub fn is_without_dry_run(&self) -> bool {
        let message = self.to_string();
        self.code() == Some(400)
            && message.starts_with("admission webhook ")
            && message.contains("does not support dry run")
    }

    /// Reports whether only an existing object, or one that still counts against a quota, prevents the creation.
    pub fn is_about_predecessor(&self) -> bool {
        match self.code() {
            Some(409) => self.reason() == Some("AlreadyExists"),
            Some(403) => self.to_string().contains("exceeded quota: "),
            _ => false,
        }
    }

    /// Reports whether the object that a write names by its uid does not exist: there is no object of its name, or
    /// another one. For the first see
    /// <https://github.com/kubernetes/apiserver/blob/v0.36.0/pkg/endpoints/handlers/patch.go>, for the second the
    /// validation of metadata.
    pub fn is_about_another_object(&self) -> bool {
        let Self::Answered(status) = self else { return false };
        match status.code {
            404 => self.is_object_not_found(),
            409 => status.message.contains("uid mismatch: "),
            422 => {
                let causes = status.details.iter().flat_map(|details| &details.causes);
                causes.into_iter().any(|cause| cause.field == "metadata.uid")
            }
            _ => false,
        }
    }

    /// Reports whether the server will refuse the same request again: its content is wrong.
    pub fn is_for_good(&self) -> bool {
        let message = self.to_string();
        match self.code() {
            Some(400 | 405 | 413 | 415 | 422) => !is_denied(&message),
            Some(500) => (is_about_types(&message) || is_too_large(&message)) && !is_denied(&message),
            _ => false,
        }
    }

    /// Converts a refused or failed write of an object into a failure. `title` names the object, `verb` the action.
    pub fn into_failure(self, verb: &str, title: &str) -> Failure {
        let message = self.to_string();
        if let Self::NoToken(_) = &self {
            return Failure::cluster(Reason::Forbidden, format!("cannot {verb} {title}: {message}"));
        }
        let Self::Answered(status) = &self else {
            return Failure::cluster(
                Reason::ClusterUnavailable,
                format!("cannot {verb} {title}: {message}; retrying"),
            );
        };
        let at_least = self.retry_after().unwrap_or_default();
        if is_denied(&message) {
            return Failure::cluster(
                Reason::Forbidden,
                format!("cannot {verb} {title}: {message}; {DENIED_STEP}"),
            )
            .at_least(at_least);
        }
        match status.code {
            500 if is_about_types(&message) => Failure::guest(
                Reason::Refused,
                format!("cannot {verb} {title}: the API server's types refuse it: {message}; {REFUSED_STEP}"),
            ),
            413 => too_large(verb, title, &message),
            500 if is_too_large(&message) => too_large(verb, title, &message),
            405 => Failure::guest(
                Reason::Refused,
                format!(
                    "cannot {verb} {title}: the API server does not allow this for the kind: {message}; {REFUSED_STEP}"
                ),
            ),
            400 | 415 | 422 => Failure::guest(
                Reason::Refused,
                format!("cannot {verb} {title}: the API server refuses it: {message}; {REFUSED_STEP}"),
            ),
            403 => Failure::cluster(
                Reason::Forbidden,
                format!("cannot {verb} {title}: {message}; {}", forbidden_step(&message)),
            ),
            404 => Failure::cluster(Reason::ClusterUnavailable, format!("cannot {verb} {title}: {message}")),
            409 => Failure::cluster(
                Reason::ClusterUnavailable,
                format!("cannot {verb} {title} just now: {message}"),
            ),
            _ => Failure::cluster(
                Reason::ClusterUnavailable,
                format!("cannot {verb} {title}: {message}; retrying"),
            ),
        }
        .retry(if self.is_for_good() {
            Retry::Change
        } else {
            Retry::Backoff
        })
        .at_least(at_least)
    }
}

/// The failure of a write that is too large.
fn too_large(verb: &str, title: &str, message: &str) -> Failure {
    Failure::guest(
        Reason::Refused,
        format!(
            "cannot {verb} {title}: it is larger than the cluster stores: {message}; ask for less in the object that asks for \
             it, or have the plugin divide it"
        ),
    )
}

#[cfg(test)]
mod tests {
    use pilothouse_core::Blame;
    use pilothouse_core::status::failure::LONGEST_EDIT_WAIT;

    use super::*;

    fn answered(code: u16, message: &str) -> RequestError {
        let status: Status = serde_json::from_value(serde_json::json!({
            "code": code, "message": message, "reason": "R", "details": {"retryAfterSeconds": 3}}))
        .unwrap();
        RequestError::Answered(Box::new(status))
    }

    #[test]
    fn what_the_servers_types_refuse_is_never_tried_again() {
        for error in [
            answered(500, "failed to create typed patch object (a/b): x"),
            answered(422, "Invalid value"),
        ] {
            let failure = error.into_failure("apply", "Deployment a/b");
            assert_eq!((failure.blame, failure.retry), (Blame::Guest, Retry::Change));
            assert!(failure.message.contains("Deployment a/b"));
        }
    }

    #[test]
    fn a_body_that_is_too_large_is_never_tried_again() {
        for (code, message) in [
            (500, "etcdserver: request is too large"),
            (
                500,
                "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2097165 vs. 2097152)",
            ),
            (
                500,
                "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (9 vs. 4)",
            ),
            (500, "http: request body too large"),
            (413, "Request entity too large: limit is 3145728"),
            (405, "the server does not allow this method on the requested resource"),
            (
                422,
                "ConfigMap \"a\" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes",
            ),
        ] {
            let error = answered(code, message);
            assert!(!error.may_pass() && error.is_for_good(), "{message}");
            let failure = error.into_failure("apply", "ConfigMap a/b");
            assert_eq!(
                (failure.blame, failure.retry, failure.reason),
                (Blame::Guest, Retry::Change, Reason::Refused)
            );
            assert!(failure.message.contains(message), "{failure}");
        }
        for message in [
            "conversion webhook for x.dev/v1, Kind=X failed: Post \"https://x\": http: request body too large",
            "Internal error occurred: failed calling webhook \"x.dev\": etcdserver: request is too large",
            "etcdserver: mvcc: database space exceeded",
            "etcdserver: request timed out",
            "etcdserver: too many requests",
            "etcdserver: leader changed",
        ] {
            let error = answered(500, message);
            assert!(error.may_pass() && !error.is_for_good(), "{message}");
            assert_eq!(error.into_failure("apply", "ConfigMap a/b").retry, Retry::Backoff);
        }
    }

    #[test]
    fn who_holds_a_field_is_named_without_when() {
        let status: Status = serde_json::from_value(serde_json::json!({
            "code": 409, "reason": "Conflict", "details": {"causes": [
                {"reason": "FieldManagerConflict", "field": ".data.80",
                 "message": "conflict with \"kubectl-edit\" using v1 at 2026-01-01T00:00:00Z"},
                {"reason": "Other", "field": ".x", "message": "y"}]}}))
        .unwrap();
        let held = RequestError::Answered(Box::new(status)).held_by_others();
        let field = HeldField {
            manager: "kubectl-edit".to_owned(),
            path: ".data.80".to_owned(),
        };
        assert_eq!(held, [field]);
    }

    #[test]
    fn a_path_that_is_not_served_is_no_object_that_is_gone() {
        assert!(!answered(404, "404 page not found").is_object_not_found());
        let gone: Status =
            serde_json::from_value(serde_json::json!({"code": 404, "details": {"name": "a", "kind": "things"}}))
                .unwrap();
        assert!(RequestError::Answered(Box::new(gone)).is_object_not_found());
    }

    #[test]
    fn a_denial_by_webhook_or_policy_blames_the_cluster_and_retries() {
        for error in [
            answered(400, "admission webhook \"images.example.com\" denied the request: no"),
            answered(
                422,
                "deployments.apps \"web\" is forbidden: ValidatingAdmissionPolicy 'images' with binding 'images' denied \
                 request: no",
            ),
        ] {
            let failure = error.into_failure("create", "Deployment a/web");
            assert_eq!((failure.blame, failure.retry), (Blame::Cluster, Retry::Backoff));
            assert!(failure.message.contains("no; change the object so that"), "{failure}");
        }
    }

    #[test]
    fn only_a_missing_right_is_to_be_granted() {
        let step = |message: &str| {
            let failure = answered(403, message).into_failure("create", "Pod a/web");
            assert_eq!((failure.reason, failure.retry), (Reason::Forbidden, Retry::Backoff));
            failure.message.rsplit("; ").next().unwrap_or_default().to_owned()
        };
        for right in [
            "pods is forbidden: User \"a\" cannot create resource \"pods\" in API group \"\" in the namespace \"b\"",
            "serviceaccounts \"a\" is forbidden: User \"h\" cannot impersonate resource \"serviceaccounts\" in API group \"\" in the \
             namespace \"b\": RBAC: role.rbac.authorization.k8s.io \"c\" not found",
        ] {
            assert_eq!(step(right), "grant it");
            assert!(answered(403, right).is_missing_right());
            assert!(!answered(500, right).is_missing_right());
        }
        for (message, expected) in [
            (
                "pods \"web\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5",
                QUOTA_STEP,
            ),
            (
                "pods \"web\" is forbidden: violates PodSecurity \"restricted:latest\": privileged",
                ADMISSION_STEP,
            ),
            (
                "pods \"web\" is forbidden: maximum cpu usage per Container is 1, but limit is 2",
                ADMISSION_STEP,
            ),
            (
                "pods \"web\" is forbidden: error looking up service account a/b: serviceaccount \"b\" not found",
                ADMISSION_STEP,
            ),
            (
                "pods \"web\" is forbidden: no PriorityClass with name high was found",
                ADMISSION_STEP,
            ),
            (
                "pods \"web\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: User \"a\" cannot do that",
                DENIED_STEP,
            ),
            (
                "admission webhook \"a.b\" denied the request: User \"a\" cannot do that",
                DENIED_STEP,
            ),
        ] {
            assert_eq!(step(message), expected, "{message}");
            assert!(!answered(403, message).is_missing_right(), "{message}");
        }
    }

    #[test]
    fn retry_after_is_capped_and_a_denial_does_not_delay_edits() {
        let asking = |code: u16, message: &str| {
            let status: Status = serde_json::from_value(serde_json::json!({
                "code": code, "message": message, "reason": "R", "details": {"retryAfterSeconds": 1_u32 << 31}}))
            .unwrap();
            RequestError::Answered(Box::new(status))
        };
        let denied = "admission webhook \"images.example.com\" denied the request: no";
        for code in [400, 403, 422, 429, 503] {
            let error = asking(code, denied);
            assert_eq!(error.retry_after(), Some(LONGEST_REQUESTED_WAIT));
            let failure = error.into_failure("create", "Deployment a/web");
            assert_eq!(failure.at_least, LONGEST_REQUESTED_WAIT, "{code}");
            assert_eq!(failure.wait_after_edit(), Duration::ZERO, "{code}");
        }
        let failure = asking(429, "too many requests").into_failure("create", "Deployment a/web");
        assert_eq!(failure.wait_after_edit(), LONGEST_EDIT_WAIT);
    }

    #[test]
    fn a_failed_watch_is_told_by_code_not_by_words() {
        for (error, kind) in [
            (answered(401, "no token, no list"), WatchErrorKind::Unauthorized),
            (
                answered(403, "pods is forbidden: User \"x\" cannot list"),
                WatchErrorKind::Forbidden,
            ),
            (answered(500, "Unauthorized"), WatchErrorKind::Other),
            (answered(500, "this is forbidden: User x"), WatchErrorKind::Other),
            (RequestError::Silent(Duration::from_secs(30)), WatchErrorKind::Other),
            (
                RequestError::Unreachable("refused".to_owned()),
                WatchErrorKind::Connection,
            ),
        ] {
            let told = WatchError::from(&error);
            assert_eq!((told.kind, &told.message), (kind, &error.to_string()));
            let of_all = matches!(kind, WatchErrorKind::Connection | WatchErrorKind::Unauthorized);
            assert_eq!(told.is_about_connection(), of_all, "{error}");
        }
    }

    #[test]
    fn trouble_that_may_pass_is_tried_again() {
        for error in [
            answered(500, "etcd is away"),
            answered(429, "slow down"),
            answered(503, ""),
            answered(409, "x"),
        ] {
            assert_eq!(error.may_pass(), error.code() != Some(409));
            let failure = error.into_failure("apply", "Deployment a/b");
            assert_eq!((failure.blame, failure.retry), (Blame::Cluster, Retry::Backoff));
            assert_eq!(failure.at_least, Duration::from_secs(3), "the server asked for it");
        }
        assert_eq!(answered(429, "").retry_after(), Some(Duration::from_secs(3)));
    }
}
