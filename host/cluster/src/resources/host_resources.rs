//! Reads and writes the host's own resources: follows all objects of a kind as parsed values, and writes their status
//! and finalizers. They are few, so they are not compressed. Their meaning is left to host/runtime.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use pilothouse_core::Kind;
use pilothouse_core::answer::KindFacts;
use pilothouse_core::kubernetes::path::Projection;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::discovery::ServedKind;
use crate::error::{RequestError, chain};
use crate::fence::Unfenced;
use crate::object::CachedObject;
use crate::watch::reflector::Detail;
use crate::watch::typed_watch;
use crate::watch::typed_watch::{TypedObjects, TypedSink};
use crate::write::send::send;

/// The field manager of the host's own writes.
pub const MANAGER: &str = "pilothouse";

/// The field manager of the inventory in a Plugin's status, which is written apart from the rest.
pub const KINDS_MANAGER: &str = "pilothouse-kinds";

/// One of the host's own resources. All of them are cluster-scoped.
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
    /// Set if it is being deleted.
    pub deleting: bool,
    /// `metadata.finalizers`.
    pub finalizers: Vec<String>,
    /// `metadata.annotations`; null where there are none.
    pub annotations: Value,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `spec`.
    pub spec: Value,
    /// `status`; null where there is none.
    pub status: Value,
    /// Set if it nests so deep that a part of it is missing here ([`pilothouse_core::text::depth`]).
    pub is_too_deep: bool,
}

/// All resources of a kind by name; none before they have been listed.
pub type HostResources = Option<TypedObjects<HostResource>>;

/// A kind of the host's own resources.
#[derive(Clone)]
pub struct HostResourceApi {
    client: Client,
    served: ServedKind,
    is_unfenced: bool,
}

impl HostResourceApi {
    /// A cluster-scoped kind with a status.
    pub fn new(client: Client, kind: Kind, plural: &str) -> Self {
        let served = ServedKind {
            short_names: Vec::new(),
            kind: Arc::new(kind),
            plural: plural.to_owned(),
            facts: KindFacts {
                namespaced: false,
                has_status: true,
            },
        };
        Self {
            client,
            served,
            is_unfenced: false,
        }
    }

    /// The same for the last replica, after it has stopped to lead.
    #[must_use]
    pub fn unfenced(self) -> Self {
        Self {
            is_unfenced: true,
            ..self
        }
    }

    /// Lists and watches the kind until it is dropped. `trouble` is called with each failure, and with none when the
    /// watch is open again.
    pub async fn follow(
        &self,
        known: watch::Sender<HostResources>,
        trouble: impl FnMut(Option<&str>) + Send + 'static,
    ) {
        let sink = HostResourceSink { known, trouble };
        typed_watch::follow(self.client.clone(), self.served.clone(), sink).await;
    }

    /// Reads a resource, if it exists.
    pub async fn find(&self, name: &str) -> Result<Option<HostResource>, RequestError> {
        let request = Request::get(self.served.path(None, Some(name))).body(Body::empty());
        match self
            .exchange(request.map_err(|error| RequestError::Garbled(error.to_string()))?)
            .await
        {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_object_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Applies the whole part of a manager in the status of a resource, unless another resource has taken its name.
    /// Returns the server's state.
    pub async fn apply_status(
        &self,
        resource: &HostResource,
        status: &Value,
        manager: &str,
    ) -> Result<HostResource, RequestError> {
        self.apply_status_if(resource, json!({"uid": &*resource.uid}), status, manager)
            .await
    }

    /// The same, unless the resource has changed since that state.
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

    /// Sets an annotation of a resource, or removes it.
    pub async fn set_annotation(
        &self,
        resource: &HostResource,
        name: &str,
        value: Option<&str>,
    ) -> Result<HostResource, RequestError> {
        let body = json!({"metadata": {"uid": &*resource.uid, "annotations": {name: value}}});
        let path = format!("{}?fieldManager={MANAGER}-annotation", self.path(resource, ""));
        self.write(Method::PATCH, path, "application/merge-patch+json", &body)
            .await
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
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .body(Body::from(body.to_string().into_bytes()))
            .map_err(|error| RequestError::Garbled(error.to_string()))?;
        if self.is_unfenced {
            request.extensions_mut().insert(Unfenced);
        }
        self.exchange(request).await
    }

    async fn exchange(&self, request: Request<Body>) -> Result<HostResource, RequestError> {
        let (_, text) = send(&self.client, request).await?;
        let object = CachedObject::read(&text, &self.served.kind, &Projection::whole())
            .map_err(|error| RequestError::Garbled(chain(&error)))?;
        Ok(read(&object))
    }
}

struct HostResourceSink<F> {
    known: watch::Sender<HostResources>,
    trouble: F,
}

impl<F: FnMut(Option<&str>) + Send + 'static> TypedSink for HostResourceSink<F> {
    type Object = HostResource;

    const DETAIL: Detail = Detail::Whole;

    fn read(object: &CachedObject) -> HostResource {
        read(object)
    }

    fn changed(&mut self, _: Option<&TypedObjects<HostResource>>, now: &TypedObjects<HostResource>) {
        self.known.send_replace(Some(now.clone()));
    }

    fn works(&mut self) {
        (self.trouble)(None);
    }

    fn trouble(&mut self, trouble: &str) {
        (self.trouble)(Some(trouble));
    }
}

fn read(object: &CachedObject) -> HostResource {
    let mut value = object.value();
    let metadata = value["metadata"].take();
    let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
    let labels = metadata["labels"].as_object().into_iter().flatten();
    HostResource {
        name: object.name.name.clone(),
        uid: object.uid.clone(),
        resource_version: object.resource_version.to_string(),
        generation: object.generation,
        created: metadata["creationTimestamp"].as_str().unwrap_or_default().to_owned(),
        deleting: object.deleting,
        finalizers: finalizers.filter_map(Value::as_str).map(str::to_owned).collect(),
        annotations: metadata["annotations"].clone(),
        labels: labels
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect(),
        spec: value["spec"].take(),
        status: value["status"].take(),
        is_too_deep: object.is_too_deep(),
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
                "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-02T03:04:06Z",
                "labels": {"team": "a"}},
        });
        let kind = Kind::new("pilothouse.dev", "v1alpha1", "Plugin");
        let resource = read(&CachedObject::read(&object.to_string(), &kind, &Projection::whole()).unwrap());
        assert_eq!(
            (&*resource.name, &*resource.uid, resource.generation),
            ("p", "u", Some(2))
        );
        assert_eq!(resource.created, "2026-01-02T03:04:05Z");
        assert!(resource.deleting && resource.finalizers == ["x.dev/y"]);
        assert_eq!(resource.labels["team"], "a");
        assert_eq!((&resource.spec["a"], &resource.status), (&json!(1), &Value::Null));
        assert_eq!((&*resource.resource_version, resource.is_too_deep), ("7", false));
    }
}
