//! Reads the server's OpenAPI v3: the merge rules of a kind's values, requested once and stored.

use std::collections::{BTreeSet, HashMap};
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

/// The time for which a kind's schema may be missing before a refused status counts as permanently refused. Until then, it counts as
/// sent too early.
pub const MISSING_AT_MOST: Duration = Duration::from_mins(1);

/// The longest wait between two requests for a schema that is missing.
const ASKED_EVERY: Duration = Duration::from_mins(5);

/// The most fields of a kind's status that are remembered as undeclared; a plugin may make up any number of them.
const MOST_UNDECLARED: usize = 256;

/// The types of the requested kinds.
pub struct Schemas {
    client: Client,
    known: Mutex<HashMap<Kind, Arc<Types>>>,
    /// The statuses of the kinds whose schema was requested, or whose status the server refused.
    statuses: Mutex<HashMap<Kind, KnownStatus>>,
    /// Held during a request, so that concurrent callers for a kind send only one.
    asking: tokio::sync::Mutex<()>,
}

/// The facts about the status of a kind.
#[derive(Default)]
struct KnownStatus {
    schema: Option<Arc<Value>>,
    /// The kind has changed since its schema was asked for.
    has_changed: bool,
    /// Fields that the server refused as undeclared while the schema was missing, or older than the kind.
    undeclared: BTreeSet<String>,
    missing: Option<MissingSchema>,
}

/// A schema that could not be had.
#[derive(Clone, Copy)]
struct MissingSchema {
    since: Instant,
    ask_at: Instant,
}

impl MissingSchema {
    /// Waits as long again as the schema has been missing, and so ever longer.
    fn again(before: Option<Self>) -> Self {
        let now = Instant::now();
        let since = before.map_or(now, |missing| missing.since);
        let wait = now.duration_since(since).clamp(PUBLISHED_EVERY, ASKED_EVERY);
        Self {
            since,
            ask_at: now + wait,
        }
    }
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
    /// The schema was missing a moment ago.
    #[error("the API server does not describe {0} yet; it is asked again in a moment")]
    Missing(Kind),
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
            *status = KnownStatus {
                has_changed: true,
                ..KnownStatus::default()
            };
        }
    }

    /// Reports whether the schema of a kind's status has to be requested: the kind has changed since, or the server refused fields of
    /// the status as undeclared.
    pub fn needs_status(&self, kind: &Kind) -> bool {
        let statuses = self.statuses();
        let known = statuses.get(kind);
        known.is_some_and(|known| known.has_changed || !known.undeclared.is_empty())
    }

    /// The schema of a kind's status, if it is known.
    pub fn known_status(&self, kind: &Kind) -> Option<Arc<Value>> {
        self.statuses().get(kind)?.schema.clone()
    }

    /// Reports whether the schema of a kind's status was requested and may still come: API servers publish it some seconds after they
    /// serve the kind.
    pub fn awaits_status(&self, kind: &Kind) -> bool {
        let statuses = self.statuses();
        let missing = statuses.get(kind).and_then(|known| known.missing);
        missing.is_some_and(|missing| missing.since.elapsed() < MISSING_AT_MOST)
    }

    /// The fields of a kind's status that the server refused as undeclared and that no schema has told since.
    pub fn undeclared(&self, kind: &Kind) -> BTreeSet<String> {
        let statuses = self.statuses();
        statuses
            .get(kind)
            .map(|known| known.undeclared.clone())
            .unwrap_or_default()
    }

    /// Remembers fields that the server refused as undeclared. Returns whether one of them is new.
    pub fn note_undeclared(&self, kind: &Kind, fields: BTreeSet<String>) -> bool {
        if fields.is_empty() {
            return false;
        }
        let mut statuses = self.statuses();
        let undeclared = &mut statuses.entry(kind.clone()).or_default().undeclared;
        let before = undeclared.len();
        let more = MOST_UNDECLARED.saturating_sub(before);
        let new: Vec<_> = fields
            .into_iter()
            .filter(|field| !undeclared.contains(field))
            .take(more)
            .collect();
        undeclared.extend(new);
        undeclared.len() > before
    }

    /// The schema of a kind's status; asked once. One that is missing is asked for again at intervals.
    pub async fn status(&self, kind: &Kind) -> Result<Arc<Value>, SchemaError> {
        if let Some(known) = self.known_or_missing(kind)? {
            return Ok(known);
        }
        let _asking = self.asking.lock().await;
        if let Some(known) = self.known_or_missing(kind)? {
            return Ok(known);
        }
        let asked = self.ask_status(kind).await;
        let mut statuses = self.statuses();
        let known = statuses.entry(kind.clone()).or_default();
        match &asked {
            Ok(schema) => {
                *known = KnownStatus {
                    schema: Some(schema.clone()),
                    ..KnownStatus::default()
                }
            }
            Err(_) => known.missing = Some(MissingSchema::again(known.missing)),
        }
        asked
    }

    fn known_or_missing(&self, kind: &Kind) -> Result<Option<Arc<Value>>, SchemaError> {
        let statuses = self.statuses();
        let Some(known) = statuses.get(kind) else {
            return Ok(None);
        };
        match known.missing {
            Some(missing) if Instant::now() < missing.ask_at => Err(SchemaError::Missing(kind.clone())),
            _ => Ok(known.schema.clone()),
        }
    }

    async fn ask_status(&self, kind: &Kind) -> Result<Arc<Value>, SchemaError> {
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
        Ok(Arc::new(status_schema(schema)))
    }

    fn statuses(&self) -> MutexGuard<'_, HashMap<Kind, KnownStatus>> {
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

    /// A document that describes a Thing and no other kind.
    const DOCUMENT: &str = r#"{"components": {"schemas": {"Thing": {
        "x-kubernetes-group-version-kind": [{"group": "x.dev", "version": "v1", "kind": "Thing"}],
        "properties": {"status": {"type": "object"}}}}}}"#;

    /// A server that says so many times that it has no such document, and how often it was asked.
    fn server(publishes_after: usize) -> (Client, Arc<AtomicUsize>) {
        let asked = Arc::<AtomicUsize>::default();
        let counted = asked.clone();
        let service = tower::service_fn(move |_: Request<Body>| {
            let is_published = counted.fetch_add(1, Ordering::SeqCst) >= publishes_after;
            let (code, text) = if is_published { (200, DOCUMENT) } else { (404, "") };
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

    #[tokio::test(start_paused = true)]
    async fn a_missing_status_schema_is_asked_for_with_back_off_until_it_is_published() {
        let (client, asked) = server(4);
        let (schemas, kind) = (Schemas::new(client), Kind::new("x.dev", "v1", "Thing"));
        assert!(!schemas.awaits_status(&kind));
        let begun = Instant::now();
        while schemas.status(&kind).await.is_err() {
            assert!(schemas.awaits_status(&kind));
            sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(asked.load(Ordering::SeqCst), 5);
        let waited = begun.elapsed();
        assert!((8..10).contains(&waited.as_secs()), "1 + 1 + 2 + 4 s: {waited:?}");
        assert!(!schemas.awaits_status(&kind));
    }

    #[tokio::test(start_paused = true)]
    async fn a_document_without_the_kind_is_a_missing_schema_too_but_not_for_ever() {
        let (client, asked) = server(0);
        let (schemas, kind) = (Schemas::new(client), Kind::new("x.dev", "v1", "Newer"));
        schemas.status(&kind).await.unwrap_err();
        assert!(schemas.awaits_status(&kind));
        schemas.status(&kind).await.unwrap_err();
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        sleep(MISSING_AT_MOST).await;
        schemas.status(&kind).await.unwrap_err();
        assert!(!schemas.awaits_status(&kind));
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn undeclared_fields_are_remembered_until_a_schema_comes_or_the_kind_changes() {
        let (client, _) = server(1);
        let (schemas, kind) = (Schemas::new(client), Kind::new("x.dev", "v1", "Thing"));
        let fields = || BTreeSet::from([".status.a".to_owned()]);
        assert!(schemas.note_undeclared(&kind, fields()));
        assert!(!schemas.note_undeclared(&kind, fields()), "it is known");
        assert!(!schemas.note_undeclared(&kind, BTreeSet::new()));
        schemas.status(&kind).await.unwrap_err();
        assert_eq!(
            (schemas.undeclared(&kind), schemas.needs_status(&kind)),
            (fields(), true)
        );
        sleep(PUBLISHED_EVERY).await;
        schemas.status(&kind).await.unwrap();
        assert_eq!(
            (schemas.undeclared(&kind).len(), schemas.needs_status(&kind)),
            (0, false)
        );
        schemas.note_undeclared(&kind, fields());
        schemas.forget(&kind);
        assert_eq!(
            (schemas.undeclared(&kind).len(), schemas.needs_status(&kind)),
            (0, true)
        );
        let many = (0..2 * MOST_UNDECLARED).map(|it| format!(".status.{it}")).collect();
        assert!(schemas.note_undeclared(&kind, many));
        assert_eq!(schemas.undeclared(&kind).len(), MOST_UNDECLARED);
        assert!(!schemas.note_undeclared(&kind, fields()), "no more are remembered");
    }
}
