//! Owns the server's OpenAPI v3: how the values of a kind are merged, asked once per kind and kept.

use std::collections::HashMap;
use std::sync::Arc;

use http::Request;
use kube::Client;
use kube::client::Body;
use pilothouse_core::Kind;
use pilothouse_core::types::{Types, TypesError};
use tokio::sync::Mutex;

use crate::error::RequestError;
use crate::write::send;

/// The types of the kinds that were asked for.
pub struct Schemas {
    client: Client,
    /// Locked over the request, so that many who need a kind at once make one.
    known: Mutex<HashMap<Kind, Arc<Types>>>,
}

/// Why the types of a kind are not known.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The document could not be had.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The document does not say what it should.
    #[error(transparent)]
    Types(#[from] TypesError),
}

impl Schemas {
    /// Knows nothing yet.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            known: Mutex::default(),
        }
    }

    /// The types of a kind. One request for the document of its group and version, the first time.
    pub async fn types(&self, kind: &Kind) -> Result<Arc<Types>, SchemaError> {
        let mut known = self.known.lock().await;
        if let Some(types) = known.get(kind) {
            return Ok(types.clone());
        }
        let root = if kind.group.is_empty() { "api" } else { "apis" };
        let request = Request::builder()
            .uri(format!("/openapi/v3/{root}/{}", kind.api_version()))
            .header(http::header::ACCEPT, "application/json")
            .body(Body::empty())
            .map_err(|error| RequestError::Garbled(error.to_string()))?;
        let (_, document) = send(&self.client, request).await?;
        let types = Arc::new(Types::parse(&document, kind)?);
        known.insert(kind.clone(), types.clone());
        Ok(types)
    }

    /// A kind's types have turned out to be others than they were: they are asked again when they are needed.
    pub async fn forget(&self, kind: &Kind) {
        self.known.lock().await.remove(kind);
    }
}
