//! The server as a client meets it: over TLS, with what it trusts, in time, and not with just anything.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pilothouse_webhook::ServerConfig;
use pilothouse_webhook::certificates::{Certificates, Lifetimes};
use pilothouse_webhook::handler::{MAX_BODY_BYTES, WebhookHandler, WebhookRequest, WebhookResponse};
use pilothouse_webhook::peers::{ForwardError, PeerClient};
use pilothouse_webhook::server::WebhookServer;
use tokio::sync::watch;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Echoes the request.
struct Echo;

impl WebhookHandler for Echo {
    async fn answer(&self, question: WebhookRequest) -> WebhookResponse {
        let WebhookRequest {
            path, timeout, body, ..
        } = question;
        if path == "/refused" {
            return WebhookResponse::error(503, "the plugin does not run here");
        }
        WebhookResponse::json(format!("{path} {timeout:?} {}", body.len()))
    }
}

/// Forwards to an address as a replica with these certificates.
fn forwarded(certificates: &Certificates, address: SocketAddr, path: &str) -> Result<WebhookResponse, ForwardError> {
    let client = PeerClient::new(certificates, "127.0.0.1").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(client.forward(address, path, "{}".into(), Duration::from_secs(2)))
}

#[test]
fn a_review_is_forwarded_only_to_a_peer_of_the_same_ca() {
    let served = served();
    let address = served.server.address();
    let answer = forwarded(&served.certificates, address, "/x").unwrap();
    assert_eq!(answer, WebhookResponse::json("/x Some(2s) 2".to_owned()));
    let problem = forwarded(&made(), address, "/x").unwrap_err().to_string();
    assert!(
        problem.contains("UnknownIssuer") || problem.contains("BadSignature"),
        "{problem}"
    );
    let elsewhere = Certificates::make(&["10.0.0.1".to_owned()], SystemTime::now(), &Lifetimes::default()).unwrap();
    served.tls.send_replace(elsewhere.server_config().unwrap());
    let problem = forwarded(&elsewhere, address, "/x").unwrap_err().to_string();
    assert!(problem.contains("not valid for name"), "{problem}");
}

#[test]
fn a_hanging_replica_times_out_and_an_unable_one_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let certificates = made();
    let hangs = forwarded(&certificates, listener.local_addr().unwrap(), "/x");
    assert!(matches!(hangs, Err(ForwardError::Silent(_))), "{hangs:?}");
    let served = served();
    let refused = forwarded(&served.certificates, served.server.address(), "/refused");
    assert!(matches!(refused, Err(ForwardError::Refused(503, _))), "{refused:?}");
}

struct Served {
    server: WebhookServer,
    tls: watch::Sender<Arc<ServerConfig>>,
    certificates: Certificates,
}

fn made() -> Certificates {
    Certificates::make(&["127.0.0.1".to_owned()], SystemTime::now(), &Lifetimes::default()).unwrap()
}

fn served() -> Served {
    let certificates = made();
    let (tls, shown) = watch::channel(certificates.server_config().unwrap());
    let server = WebhookServer::start("127.0.0.1:0".parse().unwrap(), shown, Arc::new(Echo)).unwrap();
    Served {
        server,
        tls,
        certificates,
    }
}

/// A client that trusts a bundle.
fn client(bundle: &str) -> ureq::Agent {
    let roots: Vec<_> = bundle
        .split_inclusive("-----END CERTIFICATE-----")
        .filter_map(|pem| Certificate::from_pem(pem.as_bytes()).ok())
        .collect();
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .build();
    ureq::Agent::config_builder()
        .tls_config(tls)
        .timeout_global(Some(Duration::from_secs(20)))
        .http_status_as_error(false)
        .build()
        .into()
}

impl Served {
    fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.server.address())
    }

    /// Asks as an API server does: the status code and the text of the answer.
    fn ask(&self, path: &str, body: &[u8]) -> (u16, String) {
        let asked = client(&self.certificates.bundle)
            .post(self.url(path))
            .content_type("application/json")
            .send(body);
        let mut answer = asked.unwrap();
        (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
    }
}

#[test]
fn a_question_is_answered_with_its_path_its_time_and_its_body() {
    let served = served();
    let (code, text) = served.ask("/validate/a/b?timeout=5s", b"{}");
    assert_eq!((code, &*text), (200, "/validate/a/b Some(5s) 2"));
}

#[test]
fn a_3_mb_request_is_answered_and_one_over_the_limit_is_not() {
    let served = served();
    assert_eq!(served.ask("/x", &vec![b' '; 3_000_000]).0, 200);
    let (code, text) = served.ask("/x", &vec![b' '; MAX_BODY_BYTES + 1]);
    assert_eq!(code, 413);
    assert!(text.contains(&MAX_BODY_BYTES.to_string()), "{text}");
}

#[test]
fn only_json_that_is_posted_is_a_question() {
    let served = served();
    let client = client(&served.certificates.bundle);
    assert_eq!(client.get(served.url("/x")).call().unwrap().status(), 405);
    let text = client.post(served.url("/x")).content_type("text/plain").send("{}");
    assert_eq!(text.unwrap().status(), 415);
}

#[test]
fn a_client_without_tls_is_told_so() {
    let served = served();
    let mut stream = TcpStream::connect(served.server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"POST /x HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    // What the client sent and the server never read may reset the connection, after the answer.
    let _ = stream.read_to_string(&mut answer);
    assert!(
        answer.starts_with("HTTP/1.0 400") && answer.contains("HTTPS only"),
        "{answer}"
    );
}

#[test]
fn a_client_that_trusts_another_authority_gets_nothing() {
    let served = served();
    let foreign = client(&made().bundle)
        .post(served.url("/x"))
        .content_type("application/json")
        .send("{}");
    assert!(foreign.is_err());
    assert_eq!(served.ask("/x", b"{}").0, 200);
}

#[test]
fn a_certificate_that_has_run_out_is_not_taken() {
    let then = SystemTime::now() - Duration::from_hours(1000 * 24);
    let old = Certificates::make(&["127.0.0.1".to_owned()], then, &Lifetimes::default()).unwrap();
    let served = served();
    served.tls.send_replace(old.server_config().unwrap());
    let asked = client(&old.bundle)
        .post(served.url("/x"))
        .content_type("application/json")
        .send("{}");
    assert!(asked.is_err());
}

#[test]
fn a_renewed_certificate_is_served_without_a_restart() {
    let mut served = served();
    assert_eq!(served.ask("/x", b"{}").0, 200);
    let next = made();
    served.tls.send_replace(next.server_config().unwrap());
    served.certificates = next;
    assert_eq!(served.ask("/x", b"{}").0, 200);
}

#[test]
fn a_stopped_server_lets_its_address_go() {
    let served = served();
    let address = served.server.address();
    drop(served);
    assert!(TcpListener::bind(address).is_ok());
}
