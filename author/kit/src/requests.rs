//! Record of one request to a cluster: client, target and outcome. The clusters record it.

use std::fmt;

/// The account that a steered host uses, so that its requests can be told from everybody else's.
pub const HOST_ACCOUNT: &str = "pilothouse-host";

/// The account of the test itself.
pub const TEST_ACCOUNT: &str = "pilothouse-test";

/// The field managers of the host's plugins begin with this.
const HOST_MANAGER_PREFIX: &str = "pilothouse/";

/// One request that a cluster has answered (or, for a watch, has begun to answer).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// The account behind the request's token, not the impersonated one.
    pub account: String,
    /// The account that was impersonated, if any.
    pub impersonated: Option<String>,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// The `fieldManager` parameter.
    pub field_manager: Option<String>,
    /// The `shardSelector` parameter of a list or a watch.
    pub shard_selector: Option<String>,
    /// API group, empty for the core group and for paths that are no resource.
    pub group: String,
    /// Plural, empty for paths that are no resource (`/readyz`).
    pub resource: String,
    /// `status`, `scale` or empty.
    pub subresource: String,
    /// Empty for cluster-wide requests.
    pub namespace: String,
    /// Empty for lists.
    pub name: String,
    /// Set if the request is a dry run.
    pub dry_run: bool,
    /// The HTTP status of the answer.
    pub code: u16,
}

impl Request {
    /// Returns `true` if the request changes objects. Reviews and tokens change nothing, whatever their verb.
    pub fn is_write(&self) -> bool {
        let is_question = self.resource.ends_with("reviews") || self.subresource == "token";
        !self.dry_run
            && !is_question
            && matches!(
                self.verb.as_str(),
                "create" | "update" | "patch" | "delete" | "deletecollection"
            )
    }

    /// Returns `true` if the steered host sent it.
    pub fn is_by_host(&self) -> bool {
        self.account == HOST_ACCOUNT
            || self
                .field_manager
                .as_deref()
                .is_some_and(|manager| manager.starts_with(HOST_MANAGER_PREFIX))
    }

    /// Returns `true` if it renews a lease, which a host does all the time and which says nothing about its plugins.
    pub fn is_lease(&self) -> bool {
        self.group == "coordination.k8s.io" && self.resource == "leases"
    }
}

impl fmt::Display for Request {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.verb, self.resource)?;
        for (separator, part) in [
            (".", &self.group),
            ("/", &self.subresource),
            (" ", &self.namespace),
            ("/", &self.name),
        ] {
            if !part.is_empty() {
                write!(formatter, "{separator}{part}")?;
            }
        }
        write!(
            formatter,
            " by {}",
            self.field_manager.as_deref().unwrap_or(&self.account)
        )?;
        write!(formatter, " -> {}", self.code)
    }
}

/// A query parameter, with its percent-escapes undone.
pub(crate) fn parameter(uri: &str, name: &str) -> Option<String> {
    let (_, query) = uri.split_once('?')?;
    let value = query
        .split('&')
        .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    Some(unescape(value))
}

fn unescape(value: &str) -> String {
    let mut parts = value.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let escape = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let Some(byte) = escape {
            bytes.push(byte);
            bytes.extend_from_slice(&part.as_bytes()[2..]);
        } else {
            bytes.push(b'%');
            bytes.extend_from_slice(part.as_bytes());
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_and_broken_ones_kept() {
        assert_eq!(unescape("a%2Fb%zz%2"), "a/b%zz%2");
        assert_eq!(parameter("/x?dryRun=All", "dryRun").as_deref(), Some("All"));
        assert_eq!(parameter("/x", "dryRun"), None);
    }

    #[test]
    fn a_dry_run_is_no_write() {
        let write = Request {
            verb: "patch".into(),
            ..Request::default()
        };
        assert!(write.is_write());
        assert!(!Request { dry_run: true, ..write }.is_write());
    }

    #[test]
    fn an_impersonated_request_of_the_host_is_the_hosts() {
        let request = Request {
            verb: "patch".into(),
            account: HOST_ACCOUNT.into(),
            impersonated: Some("system:serviceaccount:pilothouse:web".into()),
            ..Request::default()
        };
        assert!(request.is_by_host());
    }

    #[test]
    fn a_request_reads_as_a_sentence() {
        let request = Request {
            verb: "patch".into(),
            group: "apps".into(),
            resource: "deployments".into(),
            subresource: "status".into(),
            namespace: "shop".into(),
            name: "web".into(),
            field_manager: Some("pilothouse/app-service".into()),
            code: 200,
            ..Request::default()
        };
        assert_eq!(
            request.to_string(),
            "patch deployments.apps/status shop/web by pilothouse/app-service -> 200"
        );
    }
}
