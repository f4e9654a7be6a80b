//! A registry in this process: it does what the distribution specification says, unless a test makes it hostile.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use pilothouse_artifact::{
    ArtifactError, ArtifactStore, Client, Credentials, Descriptor, Digest, Limits, Location, RegistriesConfig,
    media_type,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;

/// The repository of most tests.
pub const REPOSITORY: &str = "acme/plugin";

#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// With the query.
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// What the registry answers.
#[derive(Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub manner: Manner,
}

/// How it sends its answer.
#[derive(Clone, Copy, PartialEq)]
pub enum Manner {
    Whole,
    /// Nothing at all.
    Hang,
    /// One byte, and the next after this time.
    Drip(Duration),
    /// So many bytes, and the next after this time.
    Bursts(usize, Duration),
    /// So many bytes, and then the connection closes.
    CutAfter(usize),
    /// The body again and again, without a length.
    Endless,
}

pub fn reply(status: u16, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Reply {
    Reply {
        status,
        headers: headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        body: body.into(),
        manner: Manner::Whole,
    }
}

impl Reply {
    pub fn manner(mut self, manner: Manner) -> Self {
        self.manner = manner;
        self
    }
}

type Hook = Box<dyn Fn(&Request, &mut State) -> Option<Reply> + Send>;

/// What is in the registry, and how it behaves.
#[derive(Default)]
pub struct State {
    pub blobs: BTreeMap<Digest, Vec<u8>>,
    /// By repository and then tag or digest.
    pub manifests: BTreeMap<(String, String), (String, Vec<u8>)>,
    pub requests: Vec<Request>,
    /// Whether it has the referrers API.
    pub referrers_api: bool,
    /// User and password, for the Basic scheme.
    pub basic: Option<(String, String)>,
    /// Asked before anything else.
    pub hook: Option<Hook>,
    pub ranges: bool,
}

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
        let _ = rustls::crypto::ring::default_provider().install_default();
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(vec!["registry.example".to_owned()]).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = parameters.self_signed(&key).unwrap();
        let issuer = rcgen::Issuer::new(parameters, key);
        let leaf_key = rcgen::KeyPair::generate().unwrap();
        let leaf = rcgen::CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let leaf = leaf.signed_by(&leaf_key, &issuer).unwrap();
        let private = rustls::pki_types::PrivateKeyDer::try_from(leaf_key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], private)
            .unwrap();
        let mut registry = Self::serve(Some(tokio_rustls::TlsAcceptor::from(Arc::new(config)))).await;
        registry.authority = Some(authority.pem());
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

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, state: Arc<Mutex<State>>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let request = read(&mut stream).await?;
        let reply = {
            let mut state = state.lock().unwrap();
            state.requests.push(request.clone());
            let hook = state.hook.take();
            let hooked = hook.as_ref().and_then(|hook| hook(&request, &mut state));
            state.hook = state.hook.take().or(hook);
            hooked.unwrap_or_else(|| answer(&request, &mut state))
        };
        write(&mut stream, &request, reply).await?;
    }
}

async fn read(stream: &mut (impl AsyncBufReadExt + Unpin)) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |it| it.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    assert!(!headers.contains_key("transfer-encoding"), "bodies have a length");
    Some(Request {
        method,
        path,
        headers,
        body,
    })
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), request: &Request, reply: Reply) -> Option<()> {
    let Reply {
        status,
        headers,
        body,
        manner,
    } = reply;
    if manner == Manner::Hang {
        std::future::pending::<()>().await;
    }
    let mut head = format!("HTTP/1.1 {status} Status\r\n");
    for (name, value) in &headers {
        head += &[name, ": ", value, "\r\n"].concat();
    }
    let has_length = headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    if manner == Manner::Endless {
        head.push_str("connection: close\r\n");
    } else if !has_length && status != 204 {
        head += &["content-length: ", &body.len().to_string(), "\r\n"].concat();
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await.ok()?;
    if request.method == "HEAD" {
        return stream.flush().await.ok();
    }
    match manner {
        Manner::Drip(pause) => {
            for byte in body {
                stream.write_all(&[byte]).await.ok()?;
                stream.flush().await.ok()?;
                tokio::time::sleep(pause).await;
            }
        }
        Manner::Bursts(size, pause) => {
            for burst in body.chunks(size) {
                stream.write_all(burst).await.ok()?;
                stream.flush().await.ok()?;
                tokio::time::sleep(pause).await;
            }
        }
        Manner::CutAfter(bytes) => {
            stream.write_all(&body[..bytes.min(body.len())]).await.ok()?;
            stream.flush().await.ok()?;
            return None;
        }
        Manner::Endless => loop {
            stream.write_all(&body).await.ok()?;
        },
        Manner::Whole | Manner::Hang => stream.write_all(&body).await.ok()?,
    }
    stream.flush().await.ok()
}

/// What a registry answers by the specification.
fn answer(request: &Request, state: &mut State) -> Reply {
    if let Some((user, password)) = &state.basic {
        let expected = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        if request.header("authorization") != Some(&format!("Basic {expected}")) {
            return reply(401, &[("WWW-Authenticate", "Basic realm=\"registry\"")], "");
        }
    }
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    let Some(rest) = path.strip_prefix("/v2/") else {
        return reply(404, &[], "");
    };
    if rest.is_empty() {
        return reply(200, &[], "{}");
    }
    let method = request.method.as_str();
    if let Some((repository, name)) = rest.split_once("/manifests/") {
        return manifests(request, state, method, repository, name);
    }
    if let Some((repository, digest)) = rest.split_once("/referrers/") {
        return referrers(state, repository, digest);
    }
    if let Some(repository) = rest.strip_suffix("/tags/list") {
        let names = state
            .manifests
            .keys()
            .filter(|(of, name)| of == repository && !name.contains(':'));
        let tags: Vec<&String> = names.map(|(_, name)| name).collect();
        return reply(200, &[], json!({"name": repository, "tags": tags}).to_string());
    }
    if rest.ends_with("/blobs/uploads/") && method == "POST" {
        if let Some(mounted) = query.split('&').find_map(|it| it.strip_prefix("mount=")) {
            let digest: Digest = mounted.replace("%3A", ":").parse().unwrap();
            if state.blobs.contains_key(&digest) {
                return reply(201, &[("Location", "/v2/x/blobs/x")], "");
            }
        }
        return reply(202, &[("Location", &format!("/v2/{rest}session?state=1"))], "");
    }
    if rest.ends_with("/blobs/uploads/session") && method == "PUT" {
        let digest = query
            .split('&')
            .find_map(|it| it.strip_prefix("digest="))
            .unwrap()
            .replace("%3A", ":");
        if Digest::of(&request.body).to_string() != digest {
            return reply(
                400,
                &[],
                json!({"errors": [{"code": "DIGEST_INVALID", "message": "wrong"}]}).to_string(),
            );
        }
        state.blobs.insert(digest.parse().unwrap(), request.body.clone());
        return reply(201, &[("Location", "/v2/x/blobs/x")], "");
    }
    if let Some((_, digest)) = rest.split_once("/blobs/") {
        let Some(bytes) = digest.parse().ok().and_then(|digest| state.blobs.get(&digest)) else {
            return reply(
                404,
                &[],
                json!({"errors": [{"code": "BLOB_UNKNOWN", "message": "no blob"}]}).to_string(),
            );
        };
        if method == "HEAD" {
            return reply(200, &[("Content-Length", &bytes.len().to_string())], "");
        }
        let from = request
            .header("range")
            .and_then(|it| it.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
        return match from.filter(|_| state.ranges) {
            Some(from) => {
                let range = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
                reply(206, &[("Content-Range", &range)], &bytes[from..])
            }
            None => reply(200, &[], bytes.clone()),
        };
    }
    reply(404, &[], "")
}

fn manifests(request: &Request, state: &mut State, method: &str, repository: &str, name: &str) -> Reply {
    if method == "PUT" {
        let media_type = request.header("content-type").unwrap().to_owned();
        let digest = Digest::of(&request.body).to_string();
        for name in [name.to_owned(), digest.clone()] {
            state.manifests.insert(
                (repository.to_owned(), name),
                (media_type.clone(), request.body.clone()),
            );
        }
        let document: Value = serde_json::from_slice(&request.body).unwrap();
        let mut reply = reply(201, &[("Location", "/v2/x")], "");
        if let Some(subject) = document["subject"]["digest"].as_str().filter(|_| state.referrers_api) {
            reply.headers.push(("OCI-Subject".to_owned(), subject.to_owned()));
        }
        return reply;
    }
    let Some((media_type, bytes)) = state.manifests.get(&(repository.to_owned(), name.to_owned())) else {
        return reply(
            404,
            &[],
            json!({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}).to_string(),
        );
    };
    let digest = Digest::of(bytes).to_string();
    let headers = [
        ("Content-Type", media_type.as_str()),
        ("Docker-Content-Digest", &digest),
        ("Content-Length", &bytes.len().to_string()),
    ];
    reply(200, &headers, bytes.clone())
}

fn referrers(state: &State, repository: &str, digest: &str) -> Reply {
    if !state.referrers_api {
        return reply(404, &[], "404 page not found");
    }
    let mut entries = BTreeMap::new();
    for ((of, _), (media_type, bytes)) in &state.manifests {
        let document: Value = serde_json::from_slice(bytes).unwrap_or_default();
        if of == repository && document["subject"]["digest"] == digest {
            let mut entry = serde_json::to_value(Descriptor::of(media_type, bytes)).unwrap();
            entry["artifactType"] = document["artifactType"].clone();
            if document["annotations"].is_object() {
                entry["annotations"] = document["annotations"].clone();
            }
            entries.insert(Digest::of(bytes), entry);
        }
    }
    let entries: Vec<&Value> = entries.values().collect();
    let index = json!({"schemaVersion": 2, "mediaType": media_type::INDEX, "manifests": entries});
    reply(200, &[("Content-Type", media_type::INDEX)], index.to_string())
}
