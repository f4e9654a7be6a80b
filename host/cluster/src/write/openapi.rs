//! Reads the server's OpenAPI v3: the merge rules of a kind's values, requested once and stored.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Request;
use kube::Client;
use kube::client::Body;
use pilothouse_core::Kind;
use pilothouse_core::kubernetes::types::{Types, TypesError};
use pilothouse_core::status::status_schema;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::apart::apart;
use crate::error::RequestError;
use crate::write::send::send;

/// The time for which an API server may serve a kind without describing it: it publishes the OpenAPI of CRDs some
/// seconds after they are established, and after its own start.
pub const PUBLISHED_WITHIN: Duration = Duration::from_secs(10);

/// The interval at which unpublished documents are requested again.
const PUBLISHED_EVERY: Duration = Duration::from_secs(1);

/// The types of the requested kinds.
pub struct Schemas {
    client: Client,
    known: Mutex<HashMap<Kind, Arc<Types>>>,
    /// The schemas of statuses, by kind; none if the schema must be requested again.
    statuses: Mutex<HashMap<Kind, Option<Arc<Value>>>>,
    /// Held during a request, so that concurrent callers for a kind send only one.
    asking: tokio::sync::Mutex<()>,
}

/// The reason why the types of a kind are not known.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The document could not be requested.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The document does not describe the kind.
    #[error(transparent)]
    Types(#[from] TypesError),
}

impl Schemas {
    /// Starts without types.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            known: Mutex::default(),
            statuses: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
        }
    }

    /// The types of these kinds. Unknown ones are requested, with one request for each group and version. Unpublished
    /// ones are requested again for [`PUBLISHED_WITHIN`].
    pub async fn types<'a>(
        &self,
        kinds: impl IntoIterator<Item = &'a Kind>,
    ) -> Result<HashMap<&'a Kind, Arc<Types>>, SchemaError> {
        let kinds: Vec<&Kind> = kinds.into_iter().collect();
        let begun = Instant::now();
        loop {
            match self.ask(&kinds).await {
                Err(SchemaError::Request(error)) if error.is_not_found() && begun.elapsed() < PUBLISHED_WITHIN => {
                    sleep(PUBLISHED_EVERY).await;
                }
                result => return result,
            }
        }
    }

    async fn ask<'a>(&self, kinds: &[&'a Kind]) -> Result<HashMap<&'a Kind, Arc<Types>>, SchemaError> {
        if let Some(types) = self.known(kinds) {
            return Ok(types);
        }
        let _asking = self.asking.lock().await;
        let mut documents: HashMap<String, String> = HashMap::new();
        for kind in kinds {
            if self.known(&[kind]).is_some() {
                continue;
            }
            let version = kind.api_version();
            if !documents.contains_key(&version) {
                let document = self.document(kind).await?;
                documents.insert(version.clone(), document);
            }
            let document = &documents[&version];
            let types = apart(document.len(), || Types::parse(document, kind))?;
            self.lock().insert((*kind).clone(), Arc::new(types));
        }
        Ok(self.known(kinds).unwrap_or_default())
    }

    /// The types of a kind, if they are known.
    pub fn known_types(&self, kind: &Kind) -> Option<Arc<Types>> {
        self.lock().get(kind).cloned()
    }

    /// Requests the types of a kind that the server may not describe. The server then merges objects member by member
    /// and holds lists as a whole, and so do the types.
    pub async fn types_or_free(&self, kind: &Kind) -> Result<(), SchemaError> {
        match self.types([kind]).await {
            Err(SchemaError::Types(TypesError::Unknown(kind))) => {
                self.lock().insert(kind, Arc::default());
                Ok(())
            }
            result => result.map(drop),
        }
    }

    /// Forgets a kind that may have changed: its types are requested again when they are needed.
    pub fn forget(&self, kind: &Kind) {
        self.lock().remove(kind);
        if let Some(status) = self.statuses().get_mut(kind) {
            *status = None;
        }
    }

    /// Reports whether the schema of a kind's status was requested, and may have changed since.
    pub fn has_other_status(&self, kind: &Kind) -> bool {
        matches!(self.statuses().get(kind), Some(None))
    }

    /// The schema of a kind's status, if it is known.
    pub fn known_status(&self, kind: &Kind) -> Option<Arc<Value>> {
        self.statuses().get(kind).cloned().flatten()
    }

    /// The schema of a kind's status, requested once.
    pub async fn status(&self, kind: &Kind) -> Result<Arc<Value>, SchemaError> {
        if let Some(known) = self.known_status(kind) {
            return Ok(known);
        }
        let _asking = self.asking.lock().await;
        if let Some(known) = self.known_status(kind) {
            return Ok(known);
        }
        let document: Value = serde_json::from_str(&self.document(kind).await?).map_err(TypesError::from)?;
        let schemas = document["components"]["schemas"].as_object().into_iter().flatten();
        let is_it = |schema: &Value| {
            let kinds = schema["x-kubernetes-group-version-kind"]
                .as_array()
                .into_iter()
                .flatten();
            kinds
                .into_iter()
                .any(|it| it["group"] == *kind.group && it["version"] == *kind.version && it["kind"] == *kind.kind)
        };
        let schema = schemas.map(|(_, schema)| schema).find(|schema| is_it(schema));
        let schema = schema.ok_or_else(|| TypesError::Unknown(kind.clone()))?;
        let status = Arc::new(status_schema(schema));
        self.statuses().insert(kind.clone(), Some(status.clone()));
        Ok(status)
    }

    fn statuses(&self) -> MutexGuard<'_, HashMap<Kind, Option<Arc<Value>>>> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known<'a>(&self, kinds: &[&'a Kind]) -> Option<HashMap<&'a Kind, Arc<Types>>> {
        let known = self.lock();
        kinds
            .iter()
            .map(|kind| Some((*kind, known.get(kind)?.clone())))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Kind, Arc<Types>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn document(&self, kind: &Kind) -> Result<String, RequestError> {
        let root = if kind.group.is_empty() { "api" } else { "apis" };
        let request = Request::builder()
            .uri(format!("/openapi/v3/{root}/{}", kind.api_version()))
            .header(http::header::ACCEPT, "application/json")
            .body(Body::empty())
            .map_err(|error| RequestError::Garbled(error.to_string()))?;
        let (_, document) = send(&self.client, request).await?;
        Ok(document)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::Response;

    use super::*;

    /// A server that says so many times that it has no such document, and how often it was asked.
    fn server(publishes_after: usize) -> (Client, Arc<AtomicUsize>) {
        let asked = Arc::<AtomicUsize>::default();
        let counted = asked.clone();
        let service = tower::service_fn(move |_: Request<Body>| {
            let is_published = counted.fetch_add(1, Ordering::SeqCst) >= publishes_after;
            let (code, text) = if is_published {
                (200, r#"{"components": {"schemas": {}}}"#)
            } else {
                (404, "")
            };
            let response = Response::builder()
                .status(code)
                .body(Body::from(text.as_bytes().to_vec()));
            async move { Ok::<_, Infallible>(response.expect("it is a response")) }
        });
        (Client::new(service, "default"), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn types_that_are_not_published_yet_are_asked_for_again() {
        let (client, asked) = server(3);
        let kind = Kind::new("x.dev", "v1", "Thing");
        let begun = Instant::now();
        Schemas::new(client).types_or_free(&kind).await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 4);
        assert!(begun.elapsed() <= 3 * PUBLISHED_EVERY, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn unpublished_types_are_a_failure_that_names_the_response() {
        let (client, _) = server(usize::MAX);
        let begun = Instant::now();
        let error = Schemas::new(client)
            .types([&Kind::new("x.dev", "v1", "Thing")])
            .await
            .unwrap_err();
        assert!(error.to_string().contains("404"), "{error}");
        assert!(
            begun.elapsed() <= PUBLISHED_WITHIN + PUBLISHED_EVERY,
            "{:?}",
            begun.elapsed()
        );
    }
}
