//! Clients of a running host's webhooks that are no API servers: the CA that they trust, and the certificate that they
//! are shown.
#![allow(clippy::unwrap_used, missing_docs, reason = "all of it is for tests")]

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use serde_json::{Value, json};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Time limit of an answer: the longest review is given up after 30 seconds.
const WITHIN: Duration = Duration::from_mins(1);

/// A client of the webhooks at an address.
pub struct Asker {
    agent: ureq::Agent,
    address: SocketAddr,
}

impl Asker {
    /// Trusts the authorities of a bundle, PEM.
    pub fn new(address: SocketAddr, bundle: &str) -> Self {
        let roots: Vec<_> = certificates(bundle)
            .iter()
            .map(|certificate| Certificate::from_der(certificate).to_owned())
            .collect();
        let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&roots));
        let config = ureq::Agent::config_builder()
            .tls_config(tls.build())
            .timeout_global(Some(WITHIN))
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .proxy(None)
            // The server ends the connection of who asks badly; the next question shall not meet its end.
            .max_idle_connections(0);
        Self {
            agent: config.build().new_agent(),
            address,
        }
    }

    /// The code and the text of an answer. Blocks.
    pub fn ask(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> Result<(u16, String), ureq::Error> {
        self.ask_with(method, path, &[("content-type", kind)], body)
    }

    /// The same with these headers.
    pub fn ask_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<(u16, String), ureq::Error> {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.address));
        let request = headers
            .iter()
            .fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(body.to_vec()).unwrap();
        let mut response = self.agent.run(request)?;
        let code = response.status().as_u16();
        Ok((code, response.body_mut().read_to_string()?))
    }

    /// Reviews a new Gate, and returns the `response`. Blocks.
    pub fn judge(&self, spec: &Value) -> Value {
        let review = gate_review(spec).to_string();
        let asked = self.ask("POST", "/validate/gate/gates", "application/json", review.as_bytes());
        let (code, answer) = asked.unwrap();
        assert_eq!(code, 200, "{answer}");
        serde_json::from_str::<Value>(&answer).unwrap()["response"].clone()
    }

    /// Panics unless the host judges as ever.
    pub fn is_served(&self) {
        let refused = self.judge(&json!({"size": -1}));
        assert_eq!(refused["allowed"], false, "{refused}");
        assert_eq!(self.judge(&json!({"size": 1}))["allowed"], true);
    }
}

/// An AdmissionReview about a Gate that is to be made.
pub fn gate_review(spec: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "7", "name": "a", "namespace": "default", "operation": "CREATE",
        "kind": {"group": "gate.test.dev", "version": "v1", "kind": "Gate"},
        "object": {"apiVersion": "gate.test.dev/v1", "kind": "Gate", "metadata": {"name": "a", "namespace": "default"}, "spec": spec},
    }})
}

/// The certificates of a bundle.
pub fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .unwrap()
}

/// The certificate that a server shows to a client that trusts a bundle at some time, or why that client does not take it.
/// Blocks.
pub fn shown(address: SocketAddr, bundle: &str, now: SystemTime) -> Result<CertificateDer<'static>, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(bundle));
    let provider: Arc<CryptoProvider> = ring::default_provider().into();
    let config = ClientConfig::builder_with_details(provider, Arc::new(At(now)))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::from(address.ip());
    let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    while connection.is_handshaking() {
        connection.complete_io(&mut stream).map_err(|error| error.to_string())?;
    }
    let shown = connection.peer_certificates().unwrap();
    Ok(shown[0].clone().into_owned())
}

/// A clock that stands.
#[derive(Debug)]
struct At(SystemTime);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        let since = self.0.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        Some(UnixTime::since_unix_epoch(since))
    }
}
