//! A registry in this process: it does what the distribution specification says, unless a test makes it hostile.
#![forbid(unsafe_code)]
#![allow(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    missing_docs,
    reason = "all of it is for tests; if a registry cannot be set up, the test has failed"
)]

mod answers;
mod authority;
mod connection;
pub mod exchange;
pub mod proxy;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pilothouse_artifact::{
    ArtifactError, ArtifactStore, Client, Credentials, Descriptor, Digest, Limits, Location, RegistriesConfig,
    media_type,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::authority::Authority;
use crate::connection::connection;
use crate::exchange::{Reply, Request, State};

/// The repository of most tests.
pub const REPOSITORY: &str = "acme/plugin";

#[derive(Clone)]
pub struct Registry {
    pub address: SocketAddr,
    pub state: Arc<Mutex<State>>,
    /// PEM of the authority, if it speaks TLS.
    pub authority: Option<String>,
}

impl Registry {
    pub async fn start() -> Self {
        Self::serve(None).await
    }

    /// With TLS, by an authority of its own.
    pub async fn start_tls() -> Self {
        let authority = Authority::new();
        let mut registry = Self::serve(Some(authority.acceptor)).await;
        registry.authority = Some(authority.pem);
        registry
    }

    async fn serve(tls: Option<tokio_rustls::TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let registry = Self {
            address: listener.local_addr().unwrap(),
            state: Arc::new(Mutex::new(State {
                referrers_api: true,
                ranges: true,
                ..State::default()
            })),
            authority: None,
        };
        let state = Arc::clone(&registry.state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                let (state, tls) = (Arc::clone(&state), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => connection(stream, state).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => connection(stream, state).await,
                            Err(_) => None,
                        },
                    }
                });
            }
        });
        registry
    }

    pub fn host(&self) -> String {
        self.address.to_string()
    }

    pub fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    pub fn hook(&self, hook: impl Fn(&Request, &mut State) -> Option<Reply> + Send + 'static) {
        self.change(|state| state.hook = Some(Box::new(hook)));
    }

    /// The requests so far, as METHOD PATH.
    pub fn requests(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        state
            .requests
            .iter()
            .map(|it| format!("{} {}", it.method, it.path))
            .collect()
    }

    pub fn count(&self, beginning: &str) -> usize {
        self.requests().iter().filter(|it| it.starts_with(beginning)).count()
    }

    /// Puts a manifest there as if it had been pushed.
    pub fn put(&self, name: &str, media_type: &str, bytes: impl Into<Vec<u8>>) -> Descriptor {
        let bytes = bytes.into();
        let descriptor = Descriptor::of(media_type, &bytes);
        self.change(|state| {
            for name in [name.to_owned(), descriptor.digest.to_string()] {
                state
                    .manifests
                    .insert((REPOSITORY.to_owned(), name), (media_type.to_owned(), bytes.clone()));
            }
        });
        descriptor
    }

    pub fn put_blob(&self, bytes: impl Into<Vec<u8>>) -> Digest {
        let bytes = bytes.into();
        let digest = Digest::of(&bytes);
        self.change(|state| {
            state.blobs.insert(digest, bytes);
        });
        digest
    }

    pub fn location(&self, rest: &str) -> Location {
        format!("{}/{REPOSITORY}{rest}", self.host()).parse().unwrap()
    }

    pub fn config(&self) -> Value {
        json!({"registries": [{"host": self.host(), "plainHttp": true}]})
    }

    pub fn store(&self) -> ArtifactStore {
        self.store_with(&Credentials::Anonymous)
    }

    pub fn store_with(&self, credentials: &Credentials) -> ArtifactStore {
        client(self.config()).open(&self.location(""), credentials).unwrap()
    }
}

pub fn client(config: Value) -> Client {
    Client::new(RegistriesConfig::from_value(config).unwrap(), limits())
}

/// Limits under which hostile registries fail soon.
pub fn limits() -> Limits {
    Limits {
        blob: 1 << 20,
        referrers: 20,
        tags: 50,
        connect: Duration::from_secs(5),
        exchange: Duration::from_secs(2),
        transfer: Duration::from_secs(3),
        progress_interval: Duration::from_millis(300),
        progress: 1024,
        attempts: 3,
        back_off: Duration::from_millis(5),
    }
}

/// A plugin's manifest over a component, both put into the registry.
pub fn plugin(registry: &Registry, tag: &str, component: &[u8]) -> Descriptor {
    let layer = Descriptor::new("application/wasm", registry.put_blob(component), component.len() as u64);
    let config = Descriptor::of("application/vnd.wasm.config.v0+json", b"{}");
    registry.put_blob(*b"{}");
    let manifest = json!({"schemaVersion": 2, "mediaType": media_type::MANIFEST, "config": config, "layers": [layer]});
    registry.put(tag, media_type::MANIFEST, manifest.to_string())
}

pub fn component(bytes: &[u8]) -> Descriptor {
    Descriptor::of("application/wasm", bytes)
}

pub async fn download(store: &ArtifactStore, descriptor: &Descriptor) -> Result<Vec<u8>, ArtifactError> {
    let mut bytes = Vec::new();
    store.blob(descriptor, &mut bytes, &pilothouse_artifact::Silent).await?;
    Ok(bytes)
}
