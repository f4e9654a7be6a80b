//! Requests of a scenario to the cluster: raw objects in and out, in the scenario's namespace unless they name another.

use std::collections::HashMap;

use kube::{
    Client,
    client::Body,
    core::{GroupVersionKind, Status},
    discovery::{self, Scope},
    error::DiscoveryError,
};
use serde_json::Value;

use super::form::{PatchKind, Propagation, Reference};
use super::mistake::likely;

/// Requests with one account, and the kinds that discovery has found so far.
pub struct Objects {
    client: Client,
    namespace: String,
    kinds: HashMap<(String, String), Kind>,
}

/// Description of a kind by discovery.
#[derive(Clone)]
struct Kind {
    prefix: String,
    plural: String,
    namespaced: bool,
}

/// Response of the server to an accepted write.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) object: Value,
    /// The texts of its warnings, as headers carry them.
    pub(super) warnings: Vec<String>,
}

/// Kind of a write, with its own data.
pub(super) enum Write<'body> {
    Create(&'body Value),
    Apply { body: &'body Value, force: bool },
    Patch { body: &'body Value, kind: PatchKind },
}

impl Objects {
    /// Creates it with a client, and the namespace of objects that name none.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            kinds: HashMap::new(),
        }
    }

    /// Applies an object by server-side apply, forcing conflicts, and returns the result. The error is the server's
    /// message.
    pub async fn apply(&mut self, manager: &str, body: &Value) -> Result<Value, String> {
        let (reference, write) = (Reference::of(body), Write::Apply { body, force: true });
        let written = self.write(&reference, None, manager, (&write, false)).await;
        written.map(|written| written.object).map_err(|error| words(&error))
    }

    /// The object, or none.
    pub async fn find(&mut self, reference: &Reference) -> Result<Option<Value>, String> {
        self.get(reference).await.map_err(|error| words(&error))
    }

    /// Deletes the object; its dependents are deleted afterwards.
    pub async fn remove(&mut self, reference: &Reference) -> Result<(), String> {
        let deleted = self.delete(reference, Propagation::Background).await;
        deleted.map_err(|error| words(&error))
    }

    /// The object, or none.
    pub(super) async fn get(&mut self, reference: &Reference) -> Result<Option<Value>, kube::Error> {
        let url = self.url(reference, true).await?;
        match self.send(http::Method::GET, &url, None, Vec::new()).await {
            Ok(found) => Ok(Some(found.object)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn write(
        &mut self,
        reference: &Reference,
        subresource: Option<&str>,
        manager: &str,
        (write, dry_run): (&Write<'_>, bool),
    ) -> Result<Written, kube::Error> {
        let (method, content_type, body, force) = match *write {
            Write::Create(body) => (http::Method::POST, "application/json", body, false),
            Write::Apply { body, force } => (http::Method::PATCH, "application/apply-patch+yaml", body, force),
            Write::Patch { body, kind } => (http::Method::PATCH, content_type(kind), body, false),
        };
        let mut url = self.url(reference, method == http::Method::PATCH).await?;
        if let Some(subresource) = subresource {
            url = format!("{url}/{subresource}");
        }
        // Strict: a mistyped field in a scenario is an error and not silently nothing.
        url = format!("{url}?fieldManager={manager}&fieldValidation=Strict");
        if force {
            url.push_str("&force=true");
        }
        if dry_run {
            url.push_str("&dryRun=All");
        }
        let bytes = serde_json::to_vec(body).map_err(kube::Error::SerdeError)?;
        let written = self.send(method, &url, Some(content_type), bytes).await;
        if written.as_ref().is_err_and(is_not_found) {
            // The kind may have come back in another scope since it was looked up; the next try looks again.
            self.kinds.clear();
        }
        written
    }

    pub(super) async fn delete(&mut self, reference: &Reference, propagation: Propagation) -> Result<(), kube::Error> {
        let url = self.url(reference, true).await?;
        let body = serde_json::json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": format!("{propagation:?}"),
        });
        self.send(
            http::Method::DELETE,
            &url,
            Some("application/json"),
            body.to_string().into_bytes(),
        )
        .await
        .map(drop)
    }

    /// The events in the namespace of an object.
    pub(super) async fn events(&mut self, reference: &Reference) -> Result<Vec<Value>, kube::Error> {
        // Events about objects without a namespace are kept in `default`.
        let namespace = self
            .namespace_of(reference)
            .await?
            .unwrap_or_else(|| "default".to_owned());
        let url = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let mut list = self.send(http::Method::GET, &url, None, Vec::new()).await?.object;
        Ok(match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        })
    }

    async fn namespace_of(&mut self, reference: &Reference) -> Result<Option<String>, kube::Error> {
        let namespaced = self.kind(reference).await?.namespaced;
        Ok(namespaced.then(|| reference.namespace.clone().unwrap_or_else(|| self.namespace.clone())))
    }

    async fn url(&mut self, reference: &Reference, with_name: bool) -> Result<String, kube::Error> {
        let kind = self.kind(reference).await?;
        let mut url = kind.prefix;
        if let Some(namespace) = self.namespace_of(reference).await? {
            url = format!("{url}/namespaces/{namespace}");
        }
        url = format!("{url}/{}", kind.plural);
        Ok(if with_name {
            format!("{url}/{}", reference.name)
        } else {
            url
        })
    }

    async fn kind(&mut self, reference: &Reference) -> Result<Kind, kube::Error> {
        let key = (reference.api_version.clone(), reference.kind.clone());
        if let Some(kind) = self.kinds.get(&key) {
            return Ok(kind.clone());
        }
        let (group, version) = key.0.split_once('/').unwrap_or(("", &key.0));
        let found = discovery::pinned_kind(&self.client, &GroupVersionKind::gvk(group, version, &key.1)).await;
        let (resource, capabilities) = match found {
            Err(error) if is_unserved(&error) => return Err(self.unserved(reference).await),
            found => found?,
        };
        let kind = Kind {
            prefix: if group.is_empty() {
                format!("/api/{version}")
            } else {
                format!("/apis/{group}/{version}")
            },
            plural: resource.plural,
            namespaced: capabilities.scope == Scope::Namespaced,
        };
        self.kinds.insert(key, kind.clone());
        Ok(kind)
    }

    /// Returns the error that a kind is not served, with a kind of a similar name.
    async fn unserved(&self, Reference { api_version, kind, .. }: &Reference) -> kube::Error {
        let list = if api_version.contains('/') {
            self.client.list_api_group_resources(api_version).await
        } else {
            self.client.list_core_api_resources(api_version).await
        };
        let words = match list {
            Ok(list) => {
                let kinds: Vec<&str> = list.resources.iter().map(|resource| &*resource.kind).collect();
                let likely = likely(kind, &kinds).map(|kind| format!("; did you mean {kind}?"));
                let likely = likely.unwrap_or_default();
                format!("the cluster serves no kind {kind} in {api_version}{likely}")
            }
            Err(_) => format!("the cluster does not serve {api_version}, of which {kind} would be a kind"),
        };
        kube::Error::Discovery(DiscoveryError::MissingKind(words))
    }

    async fn send(
        &self,
        method: http::Method,
        url: &str,
        content_type: Option<&str>,
        body: Vec<u8>,
    ) -> Result<Written, kube::Error> {
        let mut request = http::Request::builder().method(method).uri(url);
        if let Some(content_type) = content_type {
            request = request.header(http::header::CONTENT_TYPE, content_type);
        }
        let request = request.body(Body::from(body)).map_err(kube::Error::HttpError)?;
        let (head, body) = self.client.send(request).await?.into_parts();
        let body = body.collect_bytes().await?;
        if !head.status.is_success() {
            return Err(refusal(head.status, &body));
        }
        let warnings = head.headers.get_all(http::header::WARNING).iter();
        Ok(Written {
            object: serde_json::from_slice(&body).map_err(kube::Error::SerdeError)?,
            warnings: warnings
                .filter_map(|value| value.to_str().ok().map(str::to_owned))
                .collect(),
        })
    }
}

/// Returns the server's Status, or its raw answer where that is none.
fn refusal(code: http::StatusCode, body: &[u8]) -> kube::Error {
    let status = serde_json::from_slice::<Status>(body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(body);
        Status::failure(&text, "Unknown").with_code(code.as_u16())
    });
    kube::Error::Api(Box::new(status))
}

fn content_type(kind: PatchKind) -> &'static str {
    match kind {
        PatchKind::Json => "application/json-patch+json",
        PatchKind::Merge => "application/merge-patch+json",
        PatchKind::Strategic => "application/strategic-merge-patch+json",
    }
}

/// Returns `true` if discovery finds no such kind, or no such version of the API.
fn is_unserved(error: &kube::Error) -> bool {
    is_not_found(error) || matches!(error, kube::Error::Discovery(DiscoveryError::MissingKind(_)))
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// The server's own words where there are any.
pub(super) fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.reason.is_empty() => format!("{} ({})", status.message, status.code),
        kube::Error::Api(status) => format!("{} ({} {})", status.message, status.code, status.reason),
        // These are the words of `Objects::unserved`.
        kube::Error::Discovery(DiscoveryError::MissingKind(words)) => words.clone(),
        other => other.to_string(),
    }
}
