//! Client of the webhook servers of other replicas of the same host: forwards a review that another replica can answer,
//! with a proof that a replica sent it. The caller chooses the replica.
//!
//! Replicas share the authority of their certificates, and nobody else has its key. So the server at an address proves
//! that it is a replica by a certificate of that authority for the host's name, before any part of the review is sent;
//! and the client proves it by a code that only a holder of the key can compute. A client certificate would need a
//! request for one from every client, and an API server that has one of another authority would present that.

use std::error::Error as _;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use ring::hmac;
use rustls::crypto::ring as provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::certificates::{CertificateError, Certificates};
use crate::handler::{MAX_BODY_BYTES, WebhookResponse};

/// Header by which a replica marks a forwarded review. Its value proves that the client is a replica.
pub const FORWARDED_HEADER: &str = "pilothouse-forwarded";

/// Text that the code in that header authenticates; the key is that of the authority.
const PROOF_TEXT: &[u8] = b"pilothouse: a replica forwards a review";

/// Reviews that are forwarded at once. Beyond that the caller answers them itself.
const MOST_FORWARDED: usize = 64;

/// Idle connections that are kept for one replica, and for how long: for less than the server waits.
const IDLE_CONNECTIONS: usize = 8;
const IDLE_TIME: Duration = Duration::from_secs(30);

/// Timeout of opening a connection.
const CONNECT_TIME: Duration = Duration::from_secs(1);

/// Largest response: a patch of the largest object, in base64.
const MAX_ANSWER_BYTES: usize = 2 * MAX_BODY_BYTES;

/// Reasons why a replica did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// Too many reviews are forwarded already.
    #[error("{MOST_FORWARDED} reviews are being forwarded already")]
    Busy,
    /// There was no answer in time.
    #[error("it did not answer within {0:?}")]
    Silent(Duration),
    /// The replica could not be reached, or does not prove that it is one.
    #[error("it could not be asked: {0}")]
    Unreachable(String),
    /// The replica refused, with this code and message.
    #[error("it answered {0}: {1}")]
    Refused(u16, String),
}

/// A client for the webhook servers of other replicas.
pub struct PeerClient {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    key: hmac::Key,
    proof: HeaderValue,
    places: Semaphore,
}

impl PeerClient {
    /// Makes a client for servers that present a certificate of these certificates' authority for this name.
    pub fn new(certificates: &Certificates, name: &str) -> Result<Self, CertificateError> {
        let refused = |error: &dyn std::fmt::Display| CertificateError::Use(error.to_string());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(certificates.bundle.as_bytes()) {
            let certificate = certificate.map_err(|error| refused(&error))?;
            roots.add(certificate).map_err(|error| refused(&error))?;
        }
        let tls = ClientConfig::builder_with_provider(Arc::new(provider::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).map_err(|error| refused(&error))?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIME));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_only()
            .with_server_name_resolver(FixedServerNameResolver::new(name))
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .pool_idle_timeout(IDLE_TIME)
            .build(connector);
        let key = hmac::Key::new(hmac::HMAC_SHA256, certificates.authority_key.as_bytes());
        let mut proof = HeaderValue::try_from(hexadecimal(hmac::sign(&key, PROOF_TEXT).as_ref()))
            .expect("hexadecimal digits are a header's value");
        proof.set_sensitive(true);
        Ok(Self {
            client,
            key,
            proof,
            places: Semaphore::new(MOST_FORWARDED),
        })
    }

    /// Reports whether the value of the header proves that a replica forwards.
    pub fn is_proof(&self, value: &str) -> bool {
        let code = from_hexadecimal(value);
        code.is_some_and(|code| hmac::verify(&self.key, PROOF_TEXT, &code).is_ok())
    }

    /// Forwards a review to the replica at an address, with this timeout. Returns the plugin's judgement or failure.
    pub async fn forward(
        &self,
        address: SocketAddr,
        path: &str,
        body: Bytes,
        time: Duration,
    ) -> Result<WebhookResponse, ForwardError> {
        let _place = self.places.try_acquire().map_err(|_| ForwardError::Busy)?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("https://{address}{path}?timeout={}ms", time.as_millis()))
            .header(header::CONTENT_TYPE, "application/json")
            .header(FORWARDED_HEADER, self.proof.clone())
            .body(Full::new(body))
            .map_err(|error| ForwardError::Unreachable(error.to_string()))?;
        let answer = timeout(time, async {
            let response = self.client.request(request).await;
            let response = response.map_err(|error| ForwardError::Unreachable(causes(&error)))?;
            let code = response.status().as_u16();
            let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
            let body = body.map_err(|error| ForwardError::Unreachable(error.to_string()))?;
            let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
            match code {
                200 | 500 => Ok(WebhookResponse { code, body }),
                code => Err(ForwardError::Refused(code, body)),
            }
        });
        answer.await.unwrap_or(Err(ForwardError::Silent(time)))
    }
}

/// Returns an error with its causes.
fn causes(error: &hyper_util::client::legacy::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        write!(text, ": {error}").expect("a String takes all");
        cause = error.source();
    }
    text
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes all");
        text
    })
}

fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    let bytes = (0..text.len()).step_by(2);
    bytes.map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::certificates::Lifetimes;

    fn client() -> PeerClient {
        let names = ["127.0.0.1".to_owned()];
        let certificates = Certificates::make(&names, SystemTime::now(), &Lifetimes::default()).unwrap();
        PeerClient::new(&certificates, &names[0]).unwrap()
    }

    #[test]
    fn only_who_has_the_authoritys_key_can_say_that_it_forwards() {
        let (one, other) = (client(), client());
        let proof = one.proof.to_str().unwrap();
        assert!(one.is_proof(proof));
        assert!(!other.is_proof(proof));
        for forged in ["", "true", "zz", "0", &proof[2..], &proof.replace(&proof[..2], "é")] {
            assert!(!one.is_proof(forged), "{forged}");
        }
    }
}
