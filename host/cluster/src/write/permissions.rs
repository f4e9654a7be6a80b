//! Checks with the API server which rights the host, or the account of a plugin, has: one right at a time. Every user
//! may review their own rights; reviewing those of others needs a right. Which rights are needed is left to
//! host/runtime.

use std::collections::BTreeMap;
use std::fmt;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::error::RequestError;
use crate::write::identity::Impersonation;
use crate::write::send::send;

/// The API group of access reviews.
const AUTHORIZATION: &str = "authorization.k8s.io";

/// A right that the host, or the account of a plugin, may need.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// The API group of the resource.
    pub group: String,
    /// The resource, such as `deployments`, with its subresource, such as `deployments/status`.
    pub resource: String,
    /// The namespace; none means all namespaces, or the cluster scope.
    pub namespace: Option<String>,
    /// The name of the only object; none means all.
    pub name: Option<String>,
    /// `list`, `patch` and so on.
    pub verb: &'static str,
}

/// Lists rights for messages: those on one resource in one place together.
pub fn listed(rights: &[Permission]) -> String {
    let mut by_place: BTreeMap<PermissionPlace<'_>, Vec<&str>> = BTreeMap::new();
    for right in rights {
        let place = PermissionPlace {
            resource: &right.resource,
            group: &right.group,
            namespace: right.namespace.as_deref(),
            name: right.name.as_deref(),
        };
        by_place.entry(place).or_default().push(right.verb);
    }
    let places = by_place
        .iter()
        .map(|(place, verbs)| format!("{} {place}", verbs.join(", ")));
    places.collect::<Vec<_>>().join("; ")
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct PermissionPlace<'a> {
    resource: &'a str,
    group: &'a str,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
}

impl fmt::Display for PermissionPlace<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resource,
            group,
            namespace,
            name,
        } = self;
        let (plural, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        formatter.write_str(plural)?;
        if !group.is_empty() {
            write!(formatter, ".{group}")?;
        }
        if !subresource.is_empty() {
            write!(formatter, "/{subresource}")?;
        }
        if let Some(name) = name {
            write!(formatter, " named {name}")?;
        }
        match namespace {
            Some(namespace) => write!(formatter, " in namespace {namespace}"),
            None => formatter.write_str(" in all namespaces"),
        }
    }
}

impl Permission {
    /// The right to review the rights of others.
    pub fn to_review() -> Self {
        Self {
            group: AUTHORIZATION.to_owned(),
            resource: "subjectaccessreviews".to_owned(),
            namespace: None,
            name: None,
            verb: "create",
        }
    }

    fn attributes(&self) -> Value {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        json!({
            "group": self.group, "resource": resource, "subresource": subresource, "verb": self.verb,
            "namespace": self.namespace.as_deref().unwrap_or_default(), "name": self.name.as_deref().unwrap_or_default(),
        })
    }
}

/// Reports whether the host has a right.
pub async fn has(client: &Client, right: &Permission) -> Result<bool, RequestError> {
    let spec = json!({"resourceAttributes": right.attributes()});
    let review = review(client, AUTHORIZATION, "SelfSubjectAccessReview", Some(spec)).await?;
    Ok(review["status"]["allowed"] == true)
}

/// Reports whether a ServiceAccount has a right. Its existence is not checked: an account that does not exist has the
/// rights that are bound to its name.
pub async fn account_has(client: &Client, account: &Impersonation, right: &Permission) -> Result<bool, RequestError> {
    let spec = json!({
        "resourceAttributes": right.attributes(), "user": account.user(), "groups": account.groups(),
    });
    let review = review(client, AUTHORIZATION, "SubjectAccessReview", Some(spec)).await?;
    Ok(review["status"]["allowed"] == true)
}

/// The host's user name at the API server, if the server reports it.
pub async fn user(client: &Client) -> Option<String> {
    let review = review(client, "authentication.k8s.io", "SelfSubjectReview", None);
    let review = review.await.ok()?;
    review["status"]["userInfo"]["username"].as_str().map(str::to_owned)
}

async fn review(client: &Client, group: &str, kind: &str, spec: Option<Value>) -> Result<Value, RequestError> {
    let mut body = json!({"apiVersion": format!("{group}/v1"), "kind": kind});
    if let Some(spec) = spec {
        body["spec"] = spec;
    }
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("/apis/{group}/v1/{}s", kind.to_lowercase()))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Body::from(body.to_string().into_bytes()))
        .map_err(|error| RequestError::Garbled(error.to_string()))?;
    let (_, text) = send(client, request).await?;
    serde_json::from_str(&text).map_err(|error| RequestError::Garbled(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_on_one_resource_are_named_together() {
        let right = |group: &str, resource: &str, namespace: Option<&str>, verb| Permission {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: (verb == "delete").then(|| "x".to_owned()),
            verb,
        };
        let rights = [
            right("apps", "deployments", None, "list"),
            right("x.dev", "things/status", Some("a"), "patch"),
            right("apps", "deployments", None, "watch"),
            right("", "services", Some("a"), "delete"),
        ];
        assert_eq!(
            listed(&rights),
            "list, watch deployments.apps in all namespaces; delete services named x in namespace a; patch things.x.dev/status in \
             namespace a"
        );
    }
}
