//! Reads and writes one of the host's own objects in its namespace. Writes succeed only if the object is unchanged.

use std::time::Duration;

use http::{Method, Request, StatusCode};
use kube::Client;
use kube::client::Body;
use pilothouse_core::rights::objects::{MANAGED_BY, MANAGED_BY_LABEL};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::RequestError;
use crate::fence::Unfenced;
use crate::write::send::send;

/// The kind of the object, and whether the fence applies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnKind {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    /// Set if writes bypass the fence, because they acquire leadership.
    pub(crate) is_unfenced: bool,
}

/// One object.
#[derive(Clone)]
pub(crate) struct OwnObject {
    pub(crate) client: Client,
    pub(crate) kind: OwnKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The time-out of each request.
    pub(crate) timeout: Duration,
}

#[derive(Deserialize)]
struct List {
    items: Vec<Value>,
}

/// Reports whether a host has created an object, and not other software.
pub(crate) fn is_ours(object: &Value) -> bool {
    object["metadata"]["labels"][MANAGED_BY_LABEL] == MANAGED_BY
}

impl OwnObject {
    /// Its namespace and name, for messages.
    pub(crate) fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The object without content.
    pub(crate) fn empty(&self) -> Value {
        json!({
            "apiVersion": self.kind.api_version, "kind": self.kind.kind,
            "metadata": {"namespace": self.namespace, "name": self.name, "labels": {MANAGED_BY_LABEL: MANAGED_BY}},
        })
    }

    /// The live object, if it exists.
    pub(crate) async fn read(&self) -> Result<Option<Value>, RequestError> {
        match self.exchange(Method::GET, &self.path(), None).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_object_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the object if it is unchanged, or, if it `is_new`, still does not exist. None means that it has changed.
    pub(crate) async fn write(&self, object: &Value, is_new: bool) -> Result<Option<Value>, RequestError> {
        let written = if is_new {
            self.exchange(Method::POST, &self.collection(), Some(object)).await
        } else {
            self.exchange(Method::PUT, &self.path(), Some(object)).await
        };
        match written {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.code() == Some(StatusCode::CONFLICT.as_u16()) => Ok(None),
            // Where it was to be made, it is the namespace that is not there.
            Err(error) if !is_new && error.is_object_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes the object if it is unchanged.
    pub(crate) async fn delete(&self, object: &Value) -> Result<(), RequestError> {
        let metadata = &object["metadata"];
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
        });
        match self.send(Method::DELETE, &self.path(), Some(&options)).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_object_not_found() || error.code() == Some(StatusCode::CONFLICT.as_u16()) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The objects of this kind in this namespace that a host has created.
    pub(crate) async fn list(&self) -> Result<Vec<Value>, RequestError> {
        let path = format!("{}?labelSelector={MANAGED_BY_LABEL}%3D{MANAGED_BY}", self.collection());
        let text = self.send(Method::GET, &path, None).await?;
        let List { items } = serde_json::from_str(&text).map_err(|error| RequestError::Garbled(error.to_string()))?;
        Ok(items)
    }

    async fn exchange(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, RequestError> {
        let text = self.send(method, path, body).await?;
        serde_json::from_str(&text).map_err(|error| RequestError::Garbled(error.to_string()))
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<String, RequestError> {
        let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Body::from(body))
            .map_err(|error| RequestError::Garbled(error.to_string()))?;
        if self.kind.is_unfenced {
            request.extensions_mut().insert(Unfenced);
        }
        let answer = tokio::time::timeout(self.timeout, send(&self.client, request)).await;
        let (_, text) = answer.unwrap_or(Err(RequestError::Silent(self.timeout)))?;
        Ok(text)
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    fn collection(&self) -> String {
        let OwnKind {
            api_version, plural, ..
        } = self.kind;
        let root = if api_version.contains('/') { "apis" } else { "api" };
        format!("/{root}/{api_version}/namespaces/{}/{plural}", self.namespace)
    }
}
