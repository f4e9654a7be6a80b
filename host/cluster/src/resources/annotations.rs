//! Sets an annotation of one object, for the commands with which a user steers its reconciles.

use std::collections::BTreeMap;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use pilothouse_core::Name;
use serde::Deserialize;
use serde_json::json;

use crate::discovery::ServedKind;
use crate::error::RequestError;
use crate::resources::host_resources::MANAGER;
use crate::write::send::send;

/// An object with its annotations.
#[derive(Clone, Debug)]
pub struct AnnotatedObject {
    served: ServedKind,
    name: Name,
    uid: String,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Set if it is being deleted.
    pub deleting: bool,
}

impl AnnotatedObject {
    /// Reads an object, if it exists.
    pub async fn find(client: &Client, served: &ServedKind, name: &Name) -> Result<Option<Self>, RequestError> {
        let request = Request::get(served.object_path(name)).header(
            http::header::ACCEPT,
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json",
        );
        let request = request
            .body(Body::empty())
            .map_err(|error| RequestError::Garbled(error.to_string()))?;
        let text = match send(client, request).await {
            Ok((_, text)) => text,
            Err(error) if error.is_object_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let Named { metadata } =
            serde_json::from_str(&text).map_err(|error| RequestError::Garbled(error.to_string()))?;
        Ok(Some(Self {
            served: served.clone(),
            name: name.clone(),
            uid: metadata.uid,
            annotations: metadata.annotations.unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
        }))
    }

    /// Sets an annotation, or removes it, unless another object has taken the name.
    pub async fn annotate(&self, client: &Client, annotation: &str, text: Option<&str>) -> Result<(), RequestError> {
        let body = json!({"metadata": {"uid": self.uid, "annotations": {annotation: text}}});
        let path = self.served.object_path(&self.name);
        let request = Request::builder()
            .method(Method::PATCH)
            .uri(format!("{path}?fieldManager={MANAGER}-annotation"))
            .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
            .body(Body::from(body.to_string().into_bytes()))
            .map_err(|error| RequestError::Garbled(error.to_string()))?;
        send(client, request).await.map(drop)
    }
}

#[derive(Deserialize)]
struct Named {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: String,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
    #[serde(default)]
    deletion_timestamp: Option<serde::de::IgnoredAny>,
}
