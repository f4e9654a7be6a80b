//! Runs the two registries: Debian's docker-registry with TLS and basic authentication, and that of
//! go-containerregistry with the referrers API over plain HTTP. Both serve a free port of 127.0.0.1 and end when they
//! are dropped. Plain requests show a test what a program has left there.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use pilothouse_programs::supervisor::Supervisor;
use serde_json::{Value, json};
use thiserror::Error;
use ureq::{
    Agent, AsSendBody,
    http::{HeaderMap, Request, StatusCode, request::Builder},
    tls::{Certificate, RootCerts, TlsConfig},
};

use crate::{authority::Certificates, programs::Program};

/// The user that a registry with authentication accepts.
pub const USER: &str = "tester";

/// The password of [`USER`].
pub const PASSWORD: &str = "correct horse";

/// [`USER`] and [`PASSWORD`] as `htpasswd -B` writes them; docker-registry takes no other hash than bcrypt.
const HTPASSWD: &str = "tester:$2b$04$yP.cMtn7n2NyeNuDlF9hi.shZcbdSIisQ2GasFmaxVSl3gNXuy3XK\n";

/// Time limit for a registry to answer after its start, on a loaded machine.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Interval of polling whether a registry answers.
const READY_INTERVAL: Duration = Duration::from_millis(20);

/// Time limit of a request.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);

/// Free ports are found by asking for them and letting go; somebody else may be quicker.
const PORT_ATTEMPTS: usize = 3;

/// The largest answer that is read.
const ANSWER_BYTES: u64 = 64 << 20;

/// The name of the process and of its log.
const PROCESS: &str = "registry";

/// Accept header of a client that gets a manifest of any kind as it is stored.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
                         application/vnd.docker.distribution.manifest.v2+json";

/// A registry that runs, until it is stopped or dropped.
#[derive(Debug)]
pub struct Registry {
    kind: Kind,
    port: u16,
    ca: Option<Ca>,
    agent: Agent,
    supervisor: Supervisor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Docker,
    Referrers,
}

/// The authority that has signed a registry's certificate.
#[derive(Debug)]
struct Ca {
    file: PathBuf,
    pem: String,
}

/// Response of a registry.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
}

/// Errors of starting a registry.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// The files or the process could not be made.
    #[error("prepare a registry: {0}")]
    Prepare(#[source] std::io::Error),
    /// The certificates could not be made.
    #[error("make the registry's certificates: {0}")]
    Certificates(#[from] rcgen::Error),
    /// The process ended by itself.
    #[error("the registry ended ({status}) while it started; the end of its log:\n{log}")]
    Ended {
        /// Exit status.
        status: std::process::ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// No answer in time.
    #[error("the registry does not answer after {} s ({reason}); the end of its log:\n{log}", READY_WITHIN.as_secs())]
    NotReady {
        /// Result of the last request.
        reason: String,
        /// The end of its log.
        log: String,
    },
}

impl Registry {
    /// Debian's docker-registry: TLS with a certificate of an authority of its own, basic authentication as [`USER`] with
    /// [`PASSWORD`], and no referrers API.
    pub fn docker() -> Result<Self, RegistryError> {
        Self::begin(Kind::Docker)
    }

    /// The registry of go-containerregistry: plain HTTP, no authentication, and the referrers API. It keeps everything in
    /// memory, so a stop empties it.
    pub fn with_referrers() -> Result<Self, RegistryError> {
        Self::begin(Kind::Referrers)
    }

    /// The host and port that references begin with, for example `127.0.0.1:41234`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A reference in this registry: `repository:tag` or `repository@digest` behind the address.
    pub fn reference(&self, rest: &str) -> String {
        format!("{}/{rest}", self.address())
    }

    /// The file with the authority that clients have to trust; none where the registry serves plain HTTP.
    pub fn ca_file(&self) -> Option<&Path> {
        self.ca.as_ref().map(|ca| ca.file.as_path())
    }

    /// The same authority as PEM.
    pub fn ca(&self) -> Option<&str> {
        self.ca.as_ref().map(|ca| ca.pem.as_str())
    }

    /// The user and the password that the registry wants, where it wants any.
    pub fn credentials(&self) -> Option<(&'static str, &'static str)> {
        (self.kind == Kind::Docker).then_some((USER, PASSWORD))
    }

    /// Kills the registry. Its port stays the same for [`Self::start`].
    pub fn stop(&mut self) -> Result<(), RegistryError> {
        self.supervisor.stop(PROCESS).map_err(RegistryError::Prepare)
    }

    /// Starts a stopped registry on its port, with the data that it had (go-containerregistry's has none), and waits until
    /// it answers.
    pub fn start(&mut self) -> Result<(), RegistryError> {
        self.spawn()?;
        self.wait()
    }

    /// The end of the registry's log.
    pub fn log(&self) -> String {
        self.supervisor.tail(PROCESS)
    }

    /// Sends a GET of a path, for example `/v2/plugins/a/tags/list`, with the credentials.
    pub fn get(&self, path: &str) -> Result<Answer, String> {
        self.request(path, self.credentials())
    }

    /// The same without credentials.
    pub fn get_anonymously(&self, path: &str) -> Result<Answer, String> {
        self.request(path, None)
    }

    /// The bytes of a manifest, by tag or digest; none if there is no such manifest.
    pub fn manifest(&self, repository: &str, reference: &str) -> Option<Vec<u8>> {
        self.found(&format!("/v2/{repository}/manifests/{reference}"))
    }

    /// The bytes of a blob; none if there is no such blob.
    pub fn blob(&self, repository: &str, digest: &str) -> Option<Vec<u8>> {
        self.found(&format!("/v2/{repository}/blobs/{digest}"))
    }

    /// The tags of a repository in alphabetical order.
    pub fn tags(&self, repository: &str) -> Vec<String> {
        let body = self.found(&format!("/v2/{repository}/tags/list")).unwrap_or_default();
        let list: Value = serde_json::from_slice(&body).unwrap_or_default();
        let tags = list["tags"].as_array().into_iter().flatten();
        let mut tags: Vec<String> = tags.filter_map(|tag| tag.as_str().map(str::to_owned)).collect();
        tags.sort();
        tags
    }

    /// Returns the referrers API's list for a digest; none where the registry does not have that API.
    pub fn referrers(&self, repository: &str, digest: &str) -> Option<Value> {
        let body = self.found(&format!("/v2/{repository}/referrers/{digest}"))?;
        serde_json::from_slice(&body).ok()
    }

    /// Stores a manifest as it is under a tag or its digest, whatever it says: what no tool would write, or another manifest
    /// under a tag that exists.
    pub fn put_manifest(&self, repository: &str, reference: &str, media_type: &str, manifest: &[u8]) -> Answer {
        let path = format!("/v2/{repository}/manifests/{reference}");
        let request = Request::put(self.url(&path)).header("content-type", media_type);
        let request = authorized(request, self.credentials()).body(manifest);
        let answer = self.send(request.expect("the path and the media type are in ASCII"));
        answer.unwrap_or_else(|error| panic!("put {path}: {error}"))
    }

    /// Returns the content of Docker's `config.json`, and of a Secret of the type `kubernetes.io/dockerconfigjson`, for
    /// this registry.
    pub fn docker_config(&self) -> Value {
        let Some((user, password)) = self.credentials() else {
            return json!({"auths": {}});
        };
        let auth = BASE64_STANDARD.encode(format!("{user}:{password}"));
        json!({"auths": {self.address(): {"auth": auth}}})
    }

    fn found(&self, path: &str) -> Option<Vec<u8>> {
        let answer = self.get(path).unwrap_or_else(|error| panic!("get {path}: {error}"));
        match answer.status {
            StatusCode::OK => Some(answer.body),
            StatusCode::NOT_FOUND => None,
            status => panic!("get {path}: {status}: {}", String::from_utf8_lossy(&answer.body)),
        }
    }

    fn request(&self, path: &str, credentials: Option<(&str, &str)>) -> Result<Answer, String> {
        let request = Request::get(self.url(path)).header("accept", MANIFESTS);
        let request = authorized(request, credentials).body(());
        self.send(request.map_err(|error| error.to_string())?)
    }

    fn url(&self, path: &str) -> String {
        let scheme = if self.ca.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.address())
    }

    fn send(&self, request: Request<impl AsSendBody>) -> Result<Answer, String> {
        let mut response = self.agent.run(request).map_err(|error| error.to_string())?;
        let body = response.body_mut().with_config().limit(ANSWER_BYTES).read_to_vec();
        Ok(Answer {
            status: response.status(),
            headers: response.headers().clone(),
            body: body.map_err(|error| error.to_string())?,
        })
    }

    fn begin(kind: Kind) -> Result<Self, RegistryError> {
        let mut attempt = 1;
        loop {
            match Self::begin_once(kind) {
                Err(RegistryError::Ended { log, .. })
                    if attempt < PORT_ATTEMPTS && log.contains("address already in use") =>
                {
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    fn begin_once(kind: Kind) -> Result<Self, RegistryError> {
        let folder = tempfile::Builder::new().prefix("pilothouse-registry-").tempdir();
        let folder = folder.map_err(RegistryError::Prepare)?.keep();
        let supervisor = Supervisor::new(folder.clone()).map_err(RegistryError::Prepare)?;
        let port = free_port().map_err(RegistryError::Prepare)?;
        let ca = match kind {
            Kind::Referrers => None,
            Kind::Docker => {
                let certificates = Certificates::create()?;
                configure(&folder, port, &certificates).map_err(RegistryError::Prepare)?;
                Some(Ca {
                    file: folder.join("ca.crt"),
                    pem: certificates.authority,
                })
            }
        };
        let mut registry = Self {
            kind,
            port,
            agent: agent(ca.as_ref()),
            ca,
            supervisor,
        };
        registry.start()?;
        Ok(registry)
    }

    fn spawn(&mut self) -> Result<(), RegistryError> {
        let (program, arguments) = match self.kind {
            Kind::Docker => {
                let configuration = self.supervisor.folder().join("registry.yaml").display().to_string();
                (Program::DockerRegistry, vec!["serve".to_owned(), configuration])
            }
            Kind::Referrers => (Program::ReferrersRegistry, vec!["-address".to_owned(), self.address()]),
        };
        let spawned = self.supervisor.spawn(PROCESS, &program.path(), &arguments);
        spawned.map_err(RegistryError::Prepare)
    }

    /// Waits until the registry answers its own clients.
    fn wait(&mut self) -> Result<(), RegistryError> {
        let started = Instant::now();
        loop {
            let reason = match self.get("/v2/") {
                Ok(answer) if answer.status == StatusCode::OK => return Ok(()),
                Ok(answer) => answer.status.to_string(),
                Err(reason) => reason,
            };
            let log = self.log();
            if let Some((_, status)) = self.supervisor.ended() {
                return Err(RegistryError::Ended { status, log });
            }
            if started.elapsed() > READY_WITHIN {
                return Err(RegistryError::NotReady { reason, log });
            }
            thread::sleep(READY_INTERVAL);
        }
    }
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

fn authorized(request: Builder, credentials: Option<(&str, &str)>) -> Builder {
    let Some((user, password)) = credentials else {
        return request;
    };
    let encoded = BASE64_STANDARD.encode(format!("{user}:{password}"));
    request.header("authorization", format!("Basic {encoded}"))
}

/// Writes what docker-registry reads. Its data lies in the folder too, so that it survives a stop and not the owner.
fn configure(folder: &Path, port: u16, certificates: &Certificates) -> std::io::Result<()> {
    let Certificates {
        authority,
        serving,
        serving_key,
    } = certificates;
    let configuration = format!(
        "version: 0.1
log:
  level: warn
  accesslog:
    disabled: true
storage:
  filesystem:
    rootdirectory: data
  delete:
    enabled: true
http:
  addr: 127.0.0.1:{port}
  # Uploads go on after a restart.
  secret: not a secret
  tls:
    certificate: serving.crt
    key: serving.key
auth:
  htpasswd:
    realm: pilothouse
    path: htpasswd
"
    );
    for (name, text) in [
        ("registry.yaml", configuration.as_str()),
        ("ca.crt", authority),
        ("serving.crt", serving),
        ("serving.key", serving_key),
        ("htpasswd", HTPASSWD),
    ] {
        fs::write(folder.join(name), text)?;
    }
    Ok(())
}

/// A client that trusts this authority only, and goes through no proxy.
fn agent(ca: Option<&Ca>) -> Agent {
    let mut config = Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(REQUEST_WITHIN))
        .proxy(None);
    if let Some(ca) = ca {
        let certificate = Certificate::from_pem(ca.pem.as_bytes()).expect("rcgen writes PEM");
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(vec![certificate])))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()));
        config = config.tls_config(tls.build());
    }
    config.build().into()
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
