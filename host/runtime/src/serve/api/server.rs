//! Answers requests to the API. The shared state is read on a blocking thread, so that a stuck host can still be
//! reported.

use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use pilothouse_cluster::write::permissions::Permission;
use pilothouse_core::text::printable::shorten;
use pilothouse_webhook::api::{ApiHandler, ApiRequest, ApiResponse, ApiServer, ApiTransport, OwnCertificates};
use serde::Serialize;
use tokio::runtime::Handle as RuntimeHandle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::access::{Caller, ClientAccess, Gate, Refusal, as_json, to_list_plugins, to_take_artifacts};
use super::documents::StatusDocument;
use super::objects::{KnownObject, ObjectQuestion, Place, lookup, placed, resolve, right_to_see_place};
use super::recordings::{self, AskedRecording, to_record};
use super::review_limit::ClientAddress;
use super::status::{ProcessFacts, right_to_see, status};
use super::usage::usage;
use crate::host::{Handle, HostParts};

/// Time limit for reading the shared state. It is locked for microseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest address of a client that a proxy names, in bytes.
const LONGEST_ADDRESS: usize = 64;

/// Answers that are made at the same time.
const AT_ONCE: usize = 4;

/// Paths of the API, for messages.
const PATHS: &str = "/api/v1/status, /api/v1/usage, /api/v1/objects?kind=KIND&namespace=NAMESPACE&name=NAME and \
                     /api/v1/recordings?id=ID&plugin=NAME";

/// Time limit for masking a recording.
const MASKING: Duration = Duration::from_secs(20);

/// Artifacts of this replica's cache, for other replicas.
pub trait ArtifactAnswers: Send + Sync {
    /// Answers the query of another replica, with JSON.
    fn answer<'a>(&'a self, query: &'a str) -> Pin<Box<dyn Future<Output = Result<String, Refusal>> + Send + 'a>>;
}

/// The API of one host.
pub struct HostApi {
    process: OnceLock<ProcessFacts>,
    host: OnceLock<HostParts>,
    artifacts: OnceLock<Arc<dyn ArtifactAnswers>>,
    gate: Gate,
    slots: Semaphore,
}

/// A running server; it stops on drop.
#[derive(Debug)]
pub struct HostApiServer(ApiServer);

impl HostApiServer {
    /// Address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

impl HostApi {
    /// Makes the API of a host that is set later.
    pub fn new(access: ClientAccess) -> Self {
        Self {
            process: OnceLock::new(),
            host: OnceLock::new(),
            artifacts: OnceLock::new(),
            gate: Gate::new(access),
            slots: Semaphore::new(AT_ONCE),
        }
    }

    /// Serves connections of a listener: over TLS, unless clients show a key of this machine.
    pub fn serve(self: &Arc<Self>, listener: TcpListener, is_local: bool) -> io::Result<HostApiServer> {
        let transport = if is_local {
            ApiTransport::Plain
        } else {
            ApiTransport::Tls(OwnCertificates::make().map_err(io::Error::other)?)
        };
        ApiServer::start(listener, transport, self.clone()).map(HostApiServer)
    }

    /// Sets the host; its requests are made on this runtime.
    pub fn set_host(&self, host: &Handle, version: &'static str, instance: String) {
        let parts = host.parts();
        let process = ProcessFacts {
            version,
            instance,
            started: parts.context.clock.now(),
        };
        self.gate.connect(parts.client.clone(), RuntimeHandle::current());
        // There is one host in a process.
        let _ = self.process.set(process);
        let _ = self.host.set(parts);
    }

    /// Sets the source of answers for other replicas.
    pub fn set_artifacts(&self, artifacts: Arc<dyn ArtifactAnswers>) {
        // There is one cache in a process.
        let _ = self.artifacts.set(artifacts);
    }

    async fn respond(&self, request: ApiRequest) -> Result<Bytes, Refusal> {
        let ApiRequest {
            path,
            query,
            credential,
            peer,
            forwarded_for,
        } = request;
        let client = ClientAddress {
            peer,
            forwarded_for: forwarded_for.map(|client| shorten(client, LONGEST_ADDRESS).into()),
        };
        let paths = [
            "/api/v1/status",
            "/api/v1/usage",
            "/api/v1/objects",
            "/api/v1/recordings",
            "/api/v1/artifacts",
        ];
        if !paths.contains(&&*path) {
            return Err(Refusal::new(
                404,
                format!("there is nothing at this path; there are {PATHS}"),
            ));
        }
        let caller = self.gate.identify(&client, credential.as_deref()).await?;
        match &*path {
            "/api/v1/status" => {
                self.gate.demand(&caller, &to_list_plugins()).await?;
                self.status(&caller).await
            }
            "/api/v1/usage" => {
                self.gate.demand(&caller, &to_list_plugins()).await?;
                let document = self.ask(|process, host| usage(process, &host.context, &host.registry));
                Ok(body(&document.await?))
            }
            "/api/v1/artifacts" => self.artifact(&caller, query.as_deref().unwrap_or_default()).await,
            "/api/v1/recordings" => self.recording(&caller, query.as_deref().unwrap_or_default()).await,
            _ => self.object(&caller, query.as_deref().unwrap_or_default()).await,
        }
    }

    async fn status(&self, caller: &Caller) -> Result<Bytes, Refusal> {
        let asked = self.ask(|process, host| status(process, &host.context, &host.registry));
        let (document, rights) = asked.await?;
        let StatusDocument {
            host,
            plugins,
            failing,
            mut failing_not_listed,
        } = document;
        let mut seen = Vec::new();
        for (object, right) in failing.into_iter().zip(rights) {
            let everywhere = right.map(|right| {
                // Most clients may see either all objects of a kind, or a namespace.
                let of_kind = Permission {
                    namespace: None,
                    name: None,
                    ..right.clone()
                };
                let of_namespace = Permission { name: None, ..right };
                [of_kind, of_namespace]
            });
            let mut is_visible = false;
            for right in everywhere.into_iter().flatten() {
                is_visible = is_visible || self.is_visible(caller, &right).await?;
            }
            if is_visible {
                seen.push(object);
            } else {
                failing_not_listed += 1;
            }
        }
        Ok(body(&StatusDocument {
            host,
            plugins,
            failing: seen,
            failing_not_listed,
        }))
    }

    /// Returns `true` if another object may be shown. It is hidden if that takes more reviews than the caller may
    /// cause.
    async fn is_visible(&self, caller: &Caller, right: &Permission) -> Result<bool, Refusal> {
        match self.gate.may_see(caller, right).await {
            Err(Refusal { code: 429, .. }) => Ok(false),
            seen => seen,
        }
    }

    async fn object(&self, caller: &Caller, query: &str) -> Result<Bytes, Refusal> {
        let question = ObjectQuestion::read(query)?;
        let ObjectQuestion { kind: asked, name } = question;
        let meant = self.ask(move |_, host| {
            let kind = resolve(&host.context, &asked)?;
            let name = placed(&host.context, &kind, name);
            let right = right_to_see(&host.context.kinds.served(), &kind, &name);
            Ok((kind, name, right))
        });
        let (kind, name, right) = meant
            .await?
            .map_err(|problem: super::UnknownObject| Refusal::from(problem))?;
        // Checked before anything is looked up: even the existence of an object is not for everybody to know.
        let Some(right) = right else {
            return Err(Refusal::new(
                503,
                format!("the cluster does not serve {kind} now; try again later"),
            ));
        };
        self.gate.demand_to_see(caller, &right).await?;
        let known = self.ask(move |process, host| {
            let known = lookup(process, &host.context, &host.registry, &kind, &name);
            let places = known.places().into_iter();
            let rights = places.map(|place| (right_to_see_place(&host.context, &place), place));
            let rights: Vec<_> = rights.collect();
            (known, rights)
        });
        let (known, rights): (KnownObject, Vec<_>) = known.await?;
        let mut visible: BTreeSet<Place> = BTreeSet::new();
        for (right, place) in rights {
            if let Some(right) = right
                && self.is_visible(caller, &right).await?
            {
                visible.insert(place);
            }
        }
        Ok(body(&known.told(&visible)))
    }

    async fn recording(&self, caller: &Caller, query: &str) -> Result<Bytes, Refusal> {
        let asked = AskedRecording::read(query)?;
        let AskedRecording { id, finish, .. } = &asked;
        let (id, finish) = (id.clone(), *finish);
        let question = self.ask(move |_, host| asked.meant(&host.context)).await??;
        self.gate.demand(caller, &to_record(&question.plugin)).await?;
        if !finish {
            let begun = self.ask(move |process, host| {
                let (context, registry) = (&host.context, &host.registry);
                recordings::begin(process, context, registry, &id, question)
            });
            return Ok(body(&begun.await??));
        }
        let finished = self.ask_within(MASKING, move |process, host| {
            let (lines, progress) = host.context.recordings.finish(&id, &question)?;
            let document = recordings::document(process, &host.context, &host.registry, true, progress);
            Ok::<_, Refusal>((document, lines))
        });
        let (document, lines) = finished.await??;
        // The lines are JSON already.
        let text = serde_json::to_string(&document).expect("documents have text for keys");
        let head = text
            .strip_suffix("]}")
            .expect("the lines, of which there are none, come last");
        Ok(Bytes::from(format!("{head}{}]}}\n", lines.join(","))))
    }

    async fn artifact(&self, caller: &Caller, query: &str) -> Result<Bytes, Refusal> {
        self.gate.demand(caller, &to_take_artifacts()).await?;
        let Some(artifacts) = self.artifacts.get() else {
            return Err(Refusal::new(503, "the host is starting; try again in a few seconds"));
        };
        let _slot = self.slots.acquire().await;
        artifacts.answer(query).await.map(Bytes::from)
    }

    /// Reads the host's state.
    async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&ProcessFacts, &HostParts) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        self.ask_within(PATIENCE, ask).await
    }

    async fn ask_within<T: Send + 'static>(
        &self,
        patience: Duration,
        ask: impl FnOnce(&ProcessFacts, &HostParts) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let (Some(process), Some(host)) = (self.process.get().cloned(), self.host.get().cloned()) else {
            return Err(Refusal::new(503, "the host is starting; try again in a few seconds"));
        };
        let answer = async {
            let _slot = self.slots.acquire().await;
            tokio::task::spawn_blocking(move || ask(&process, &host)).await.ok()
        };
        let answered = timeout(patience, answer).await.ok().flatten();
        answered.ok_or_else(|| {
            Refusal::new(
                503,
                format!(
                    "the host's state has been locked for {} s; report this as a bug, with the host's log",
                    patience.as_secs()
                ),
            )
        })
    }
}

fn body(document: &impl Serialize) -> Bytes {
    let mut text = serde_json::to_vec(document).expect("documents have text for keys");
    text.push(b'\n');
    Bytes::from(text)
}

impl ApiHandler for HostApi {
    async fn answer(&self, request: ApiRequest) -> ApiResponse {
        match self.respond(request).await {
            Ok(body) => ApiResponse { code: 200, body },
            Err(refusal) => ApiResponse {
                code: refusal.code,
                body: body(&as_json(&refusal)),
            },
        }
    }
}
