//! Objects on which a fault acts.

use http::Request;

/// Target of a request, as far as faults depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub method: http::Method,
    /// `/api/v1` or `/apis/group/version`.
    pub prefix: String,
    pub group: String,
    pub plural: String,
    pub namespace: String,
    pub name: String,
    pub subresource: String,
    pub is_dry_run: bool,
}

impl Target {
    /// Target of a request; of discovery and the like only the method.
    pub fn of<B>(request: &Request<B>) -> Self {
        let uri = request.uri();
        let query = uri.query().unwrap_or_default();
        let parts: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
        let (prefix, group, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => (format!("/api/{version}"), "", rest),
            ["apis", group, version, rest @ ..] => (format!("/apis/{group}/{version}"), *group, rest),
            _ => (String::new(), "", [].as_slice()),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() && !matches!(rest[0], "status" | "finalize") => {
                (*namespace, rest)
            }
            rest => ("", rest),
        };
        let part = |index: usize| rest.get(index).copied().unwrap_or_default().to_owned();
        Self {
            method: request.method().clone(),
            prefix,
            group: group.to_owned(),
            plural: part(0),
            namespace: namespace.to_owned(),
            name: part(1),
            subresource: part(2),
            is_dry_run: query.contains("dryRun="),
        }
    }

    /// Returns `true` if it requests a change.
    pub fn is_write(&self) -> bool {
        self.method != http::Method::GET && !self.is_dry_run
    }
}
