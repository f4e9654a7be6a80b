//! Owns asking the API server what the host may do: one right at a time, by reviews that everybody may make. Which rights are
//! needed is left to host/runtime.

use std::collections::BTreeMap;
use std::fmt;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::error::RequestError;
use crate::identity::Impersonation;
use crate::write::send;

/// Something that the host may have to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// The API group of the resource.
    pub group: String,
    /// The resource, such as `deployments`, with its subresource, such as `deployments/status`.
    pub resource: String,
    /// Where; none means in all namespaces, or at the cluster scope.
    pub namespace: Option<String>,
    /// Only the object of this name; none means all.
    pub name: Option<String>,
    /// `list`, `patch` and so on.
    pub verb: &'static str,
}

/// Rights for people: those on one resource in one place together.
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

/// Whether the host has a right, or whom it acts as.
pub async fn has(client: &Client, identity: Option<&Impersonation>, right: &Permission) -> Result<bool, RequestError> {
    let (resource, subresource) = right.resource.split_once('/').unwrap_or((&right.resource, ""));
    let attributes = json!({
        "group": right.group, "resource": resource, "subresource": subresource, "verb": right.verb,
        "namespace": right.namespace.as_deref().unwrap_or_default(), "name": right.name.as_deref().unwrap_or_default(),
    });
    let review = json!({"resourceAttributes": attributes});
    let review = self_review(
        client,
        identity,
        "authorization.k8s.io",
        "SelfSubjectAccessReview",
        &review,
    )
    .await?;
    Ok(review["status"]["allowed"] == true)
}

/// Whom the API server takes the host for, or whom it acts as, as far as the server tells.
pub async fn user(client: &Client, identity: Option<&Impersonation>) -> Option<String> {
    let review = self_review(
        client,
        identity,
        "authentication.k8s.io",
        "SelfSubjectReview",
        &Value::Null,
    );
    let review = review.await.ok()?;
    review["status"]["userInfo"]["username"].as_str().map(str::to_owned)
}

async fn self_review(
    client: &Client,
    identity: Option<&Impersonation>,
    group: &str,
    kind: &str,
    spec: &Value,
) -> Result<Value, RequestError> {
    let mut body = json!({"apiVersion": format!("{group}/v1"), "kind": kind});
    if !spec.is_null() {
        body["spec"] = spec.clone();
    }
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(format!("/apis/{group}/v1/{}s", kind.to_lowercase()))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Body::from(body.to_string().into_bytes()))
        .map_err(|error| RequestError::Garbled(error.to_string()))?;
    if let Some(identity) = identity {
        identity.apply(&mut request);
    }
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
