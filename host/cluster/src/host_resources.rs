//! Owns the host's own resources in the cluster: following all of a kind as parsed values, and writing their status and
//! finalizers. There are few of them, so they are not compressed. Their meaning is left to host/runtime.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt as _;
use http::{Method, Request};
use kube::api::DynamicObject;
use kube::client::Body;
use kube::core::ApiResource;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use pilothouse_core::Kind;
use pilothouse_core::answer::KindFacts;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::discovery::ServedKind;
use crate::error::RequestError;
use crate::read_timeout::with_read_timeout;
use crate::watch_backoff::watch_backoff;
use crate::write::send;

/// The field manager of what the host writes for itself.
pub const MANAGER: &str = "pilothouse";

/// The field manager of what a Plugin's status remembers: it is written apart from the rest of it.
pub const KINDS_MANAGER: &str = "pilothouse-kinds";

/// One of the host's own resources. All of them are of cluster scope.
#[derive(Clone, Debug, PartialEq)]
pub struct HostResource {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// `metadata.creationTimestamp`, RFC 3339 in UTC.
    pub created: String,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// `metadata.finalizers`.
    pub finalizers: Vec<String>,
    /// `spec`.
    pub spec: Value,
    /// `status`; null where there is none.
    pub status: Value,
}

/// All resources of a kind by their names; none before they have been listed.
pub type HostResources = Option<Arc<BTreeMap<Arc<str>, Arc<HostResource>>>>;

/// A kind of the host's own resources.
#[derive(Clone)]
pub struct HostResourceApi {
    client: Client,
    served: ServedKind,
}

impl HostResourceApi {
    /// A kind of cluster scope with a status.
    pub fn new(client: Client, kind: Kind, plural: &str) -> Self {
        let served = ServedKind {
            kind: Arc::new(kind),
            plural: plural.to_owned(),
            facts: KindFacts {
                namespaced: false,
                has_status: true,
            },
        };
        Self { client, served }
    }

    /// Lists and watches the kind until it is dropped. Each trouble is told, and tried again with back-off.
    pub async fn follow(&self, known: watch::Sender<HostResources>, mut trouble: impl FnMut(Option<&str>)) {
        let api: Api<DynamicObject> = Api::all_with(with_read_timeout(self.client.clone()), &self.api_resource());
        let stream = watcher::watcher(api, watcher::Config::default()).backoff(watch_backoff(&self.served.kind.kind));
        let mut stream = std::pin::pin!(stream);
        let mut objects = BTreeMap::new();
        let mut listed = BTreeMap::new();
        while let Some(event) = stream.next().await {
            match event {
                Ok(Event::Init) => {
                    listed.clear();
                    continue;
                }
                Ok(Event::InitApply(object)) => {
                    insert(&mut listed, object);
                    continue;
                }
                Ok(Event::InitDone) => {
                    trouble(None);
                    objects = std::mem::take(&mut listed);
                }
                Ok(Event::Apply(object)) => insert(&mut objects, object),
                Ok(Event::Delete(object)) => {
                    objects.remove(object.metadata.name.as_deref().unwrap_or_default());
                }
                Err(error) => {
                    trouble(Some(&self.words(error)));
                    continue;
                }
            }
            known.send_replace(Some(Arc::new(objects.clone())));
        }
    }

    /// What is wrong, without what the client wraps around it.
    fn words(&self, error: watcher::Error) -> String {
        let error = match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => RequestError::from(error),
            watcher::Error::WatchError(status) => RequestError::Answered(status),
            error @ watcher::Error::NoResourceVersion => RequestError::Garbled(error.to_string()),
        };
        if error.is_not_found() {
            let kind = &self.served.kind;
            return format!("the cluster does not serve {kind}; install its CRD (--install-crds does so)");
        }
        error.to_string()
    }

    /// Applies all that a manager has in the status of a resource, unless another has taken its name. Says what the server
    /// has then.
    pub async fn apply_status(
        &self,
        resource: &HostResource,
        status: &Value,
        manager: &str,
    ) -> Result<HostResource, RequestError> {
        self.apply_status_if(resource, json!({"uid": &*resource.uid}), status, manager)
            .await
    }

    /// The same, unless the resource has changed since it was seen so.
    pub async fn apply_unchanged_status(
        &self,
        resource: &HostResource,
        status: &Value,
        manager: &str,
    ) -> Result<HostResource, RequestError> {
        let conditions = json!({"uid": &*resource.uid, "resourceVersion": resource.resource_version});
        self.apply_status_if(resource, conditions, status, manager).await
    }

    async fn apply_status_if(
        &self,
        resource: &HostResource,
        mut metadata: Value,
        status: &Value,
        manager: &str,
    ) -> Result<HostResource, RequestError> {
        metadata["name"] = json!(&*resource.name);
        let body = json!({
            "apiVersion": self.served.kind.api_version(),
            "kind": self.served.kind.kind,
            "metadata": metadata,
            "status": status,
        });
        let path = format!("{}?fieldManager={manager}&force=true", self.path(resource, "/status"));
        self.write(Method::PATCH, path, "application/apply-patch+yaml", &body)
            .await
    }

    /// Sets the finalizers of a resource, if it is still in this version.
    pub async fn set_finalizers(
        &self,
        resource: &HostResource,
        finalizers: &[String],
    ) -> Result<HostResource, RequestError> {
        let body = json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": resource.resource_version},
            {"op": "add", "path": "/metadata/finalizers", "value": finalizers},
        ]);
        let path = format!("{}?fieldManager={MANAGER}-finalizer", self.path(resource, ""));
        self.write(Method::PATCH, path, "application/json-patch+json", &body)
            .await
    }

    fn api_resource(&self) -> ApiResource {
        let ServedKind { kind, plural, facts: _ } = &self.served;
        ApiResource {
            group: kind.group.clone(),
            version: kind.version.clone(),
            api_version: kind.api_version(),
            kind: kind.kind.clone(),
            plural: plural.clone(),
        }
    }

    fn path(&self, resource: &HostResource, subresource: &str) -> String {
        format!("{}{subresource}", self.served.path(None, Some(&resource.name)))
    }

    async fn write(
        &self,
        method: Method,
        path: String,
        content_type: &str,
        body: &Value,
    ) -> Result<HostResource, RequestError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .body(Body::from(body.to_string().into_bytes()))
            .map_err(|error| RequestError::Garbled(error.to_string()))?;
        let (_, text) = send(&self.client, request).await?;
        let object: DynamicObject =
            serde_json::from_str(&text).map_err(|error| RequestError::Garbled(error.to_string()))?;
        Ok(read(object))
    }
}

fn insert(objects: &mut BTreeMap<Arc<str>, Arc<HostResource>>, object: DynamicObject) {
    let resource = read(object);
    objects.insert(resource.name.clone(), Arc::new(resource));
}

fn read(object: DynamicObject) -> HostResource {
    let DynamicObject {
        types: _,
        metadata,
        mut data,
    } = object;
    let created = metadata.creation_timestamp.map(|time| json!(time));
    HostResource {
        name: metadata.name.as_deref().unwrap_or_default().into(),
        uid: metadata.uid.as_deref().unwrap_or_default().into(),
        resource_version: metadata.resource_version.unwrap_or_default(),
        generation: metadata.generation,
        created: created.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned(),
        deleting: metadata.deletion_timestamp.is_some(),
        finalizers: metadata.finalizers.unwrap_or_default(),
        spec: data["spec"].take(),
        status: data["status"].take(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_read_with_what_the_host_goes_by() {
        let object = json!({
            "apiVersion": "pilothouse.dev/v1alpha1", "kind": "Plugin", "spec": {"a": 1},
            "metadata": {"name": "p", "uid": "u", "resourceVersion": "7", "generation": 2, "finalizers": ["x.dev/y"],
                "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-02T03:04:06Z"},
        });
        let resource = read(serde_json::from_value(object).unwrap());
        assert_eq!(
            (&*resource.name, &*resource.uid, resource.generation),
            ("p", "u", Some(2))
        );
        assert_eq!(resource.created, "2026-01-02T03:04:05Z");
        assert!(resource.deleting && resource.finalizers == ["x.dev/y"]);
        assert_eq!((&resource.spec["a"], &resource.status), (&json!(1), &Value::Null));
    }
}
