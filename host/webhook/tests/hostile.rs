//! Clients that mean harm, or do it: they say nothing, speak slowly, say too much, or go in the middle. Each is cut off in
//! time, holds no more than its share, and others are served meanwhile.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::io::Read as _;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{IMPATIENT, Served, WITHIN, Wire, head, serve, trusting};
use pilothouse_webhook::clients::ClientAuthorities;
use pilothouse_webhook::connections::{ConnectionTimeouts, MAX_CONNECTIONS_OF_A_PEER};
use pilothouse_webhook::handler::{MAX_BODY_BYTES, WebhookClient, WebhookHandler, WebhookRequest, WebhookResponse};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

/// Answers the count of the request's bytes; `/certified` requires a client certificate.
struct Count;

impl WebhookHandler for Count {
    fn admits(&self, path: &str, client: WebhookClient<'_>) -> Result<(), WebhookResponse> {
        if path == "/certified" && !client.is_certified {
            return Err(WebhookResponse::error(403, "show a certificate"));
        }
        Ok(())
    }

    async fn answer(&self, question: WebhookRequest) -> WebhookResponse {
        WebhookResponse::json(question.body.len().to_string())
    }
}

fn impatient() -> Served {
    serve(Arc::new(Count), IMPATIENT)
}

fn patient() -> Served {
    serve(Arc::new(Count), ConnectionTimeouts::default())
}

#[test]
fn who_never_speaks_tls_is_cut_off() {
    let served = impatient();
    let mut silent: Vec<TcpStream> = (0..50)
        .map(|_| TcpStream::connect(served.server.address()).unwrap())
        .collect();
    served.is_served();
    for stream in &mut silent {
        stream.set_read_timeout(Some(WITHIN)).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "it is closed");
    }
}

#[test]
fn a_client_that_completes_tls_but_asks_nothing_is_cut_off() {
    let served = impatient();
    for protocols in [&[][..], &[&b"h2"[..], b"http/1.1"], &[&b"http/1.1"[..]]] {
        let config = trusting(&served.certificates.bundle, None, protocols);
        let mut wire = Wire::open(served.server.address(), &config).unwrap();
        let began = Instant::now();
        while !wire.is_closed_within(WITHIN) {
            assert!(began.elapsed() < WITHIN);
        }
    }
    served.is_served();
}

#[test]
fn a_client_that_speaks_http_2_alone_is_turned_away() {
    let served = patient();
    let config = trusting(&served.certificates.bundle, None, &[b"h2"]);
    let refused = Wire::open(served.server.address(), &config).map(|_| ());
    assert!(refused.is_err_and(|error| error.to_string().contains("NoApplicationProtocol")));
    served.is_served();
}

#[test]
fn the_head_of_a_request_has_to_come_in_time() {
    let served = impatient();
    let mut wire = served.open();
    wire.send(b"POST /x HTTP/1.1\r\nHost: x\r\nX-Slow: ").unwrap();
    wire.dribble(b"a");
    assert!(wire.is_closed_within(WITHIN), "a byte now and then does not help");
    served.is_served();
}

#[test]
fn a_body_has_to_come_in_time() {
    let served = impatient();
    let mut wire = served.open();
    wire.send(head("/x", 1000).as_bytes()).unwrap();
    wire.dribble(b"1");
    let (code, text) = wire.answer();
    assert!(code == 408 && text.contains("did not come within"), "{text}");
    served.is_served();
}

#[test]
fn a_connection_on_which_nothing_is_asked_any_more_is_closed() {
    let served = impatient();
    let config = trusting(&served.certificates.bundle, None, &[b"http/1.1"]);
    let mut wire = Wire::open(served.server.address(), &config).unwrap();
    wire.send((head("/x", 2) + "{}").as_bytes()).unwrap();
    assert_eq!(wire.answer().0, 200);
    assert!(wire.is_closed_within(WITHIN));
}

#[test]
fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    let served = patient();
    let mut wire = served.open();
    wire.send(head("/x", MAX_BODY_BYTES + 1).as_bytes()).unwrap();
    let (code, text) = wire.answer();
    assert!(code == 413 && text.contains(&MAX_BODY_BYTES.to_string()), "{text}");
    for length in ["-1", "99999999999999999999999", "x", "5, 6"] {
        let mut wire = served.open();
        let head = head("/x", 7).replace("Content-Length: 7", &format!("Content-Length: {length}"));
        wire.send(head.as_bytes()).unwrap();
        let (code, text) = wire.answer();
        assert!((400..500).contains(&code), "{length}: {text}");
    }
    served.is_served();
}

#[test]
fn a_body_without_a_length_is_taken_as_far_as_the_largest_one() {
    let served = patient();
    let chunked = head("/x", 0).replace("Content-Length: 0", "Transfer-Encoding: chunked");
    let mut wire = served.open();
    wire.send(chunked.as_bytes()).unwrap();
    wire.send(b"2\r\n{}\r\n3\r\n   \r\n0\r\n\r\n").unwrap();
    let (code, text) = wire.answer();
    assert!(code == 200 && text.ends_with("\r\n5"), "{text}");

    let mut wire = served.open();
    wire.send(chunked.as_bytes()).unwrap();
    let chunk = [b"10000\r\n".as_slice(), &vec![b' '; 0x10000], b"\r\n"].concat();
    let sent = (0..).take_while(|_| wire.send(&chunk).is_ok()).take(1000).count();
    assert!(sent * 0x10000 < 2 * MAX_BODY_BYTES, "the server stops reading");
    served.is_served();
}

#[test]
fn a_body_that_is_not_json_is_refused_before_it_is_read() {
    let served = patient();
    for (from, to, expected) in [
        ("application/json", "text/plain", 415),
        ("application/json", "application/jsonp", 415),
        ("Content-Type: application/json", "X-Nothing: x", 415),
        ("POST", "PUT", 405),
        ("POST", "GET", 405),
    ] {
        let mut wire = served.open();
        wire.send(head("/x", MAX_BODY_BYTES).replace(from, to).as_bytes())
            .unwrap();
        let (code, text) = wire.answer();
        assert_eq!(code, expected, "{to}: {text}");
    }
    let mut wire = served.open();
    let endless = format!("POST /x HTTP/1.1\r\nX-Long: {}\r\n\r\n", "x".repeat(100_000));
    let _ = wire.send(endless.as_bytes());
    let (code, text) = wire.answer();
    assert!(code == 431 || code == 0, "{text}");
    served.is_served();
}

#[test]
fn idle_connections_make_room_and_admission_goes_on() {
    let served = patient();
    let config = served.config();
    let mut idle: Vec<Wire> = Vec::new();
    for _ in 0..300 {
        idle.push(Wire::open(served.server.address(), &config).unwrap());
    }
    for _ in 0..10 {
        served.is_served();
    }
    let closed = idle.iter_mut().take(300 - MAX_CONNECTIONS_OF_A_PEER);
    assert!(
        closed.into_iter().all(|wire| wire.is_closed_within(WITHIN)),
        "the oldest give way"
    );
    let last = idle.last_mut().unwrap();
    last.send((head("/x", 2) + "{}").as_bytes()).unwrap();
    assert_eq!(last.answer().0, 200, "the newest is served");
}

/// Keeps the bodies of `/keep` for as long as the test wants: a call that goes on.
struct Keep(Mutex<mpsc::Sender<Bytes>>);

impl WebhookHandler for Keep {
    async fn answer(&self, question: WebhookRequest) -> WebhookResponse {
        let WebhookRequest { path, body, .. } = question;
        if path != "/keep" {
            return WebhookResponse::json(body.len().to_string());
        }
        self.0.lock().unwrap().send(body).unwrap();
        std::future::pending().await
    }
}

#[test]
fn a_requests_bytes_are_counted_until_its_call_has_ended() {
    let (sender, kept) = mpsc::channel();
    let served = serve(Arc::new(Keep(Mutex::new(sender))), ConnectionTimeouts::default());
    let large = vec![b' '; MAX_BODY_BYTES];
    let mut wire = served.open();
    wire.send(head("/keep", large.len()).as_bytes()).unwrap();
    wire.send(&large).unwrap();
    let body = kept.recv_timeout(WITHIN).unwrap();
    drop(wire);
    let mut next = served.open();
    next.send(head("/x?timeout=1s", large.len()).as_bytes()).unwrap();
    let (code, text) = next.answer();
    assert!(code == 503 && text.contains("too many requests"), "{text}");
    served.is_served();
    drop(body);
    assert_eq!(served.ask("/x", &large).0, 200, "the call has ended");
}

#[test]
fn a_client_that_leaves_mid_body_leaves_nothing_behind() {
    let served = patient();
    for _ in 0..20 {
        let mut wire = served.open();
        wire.send(head("/x", MAX_BODY_BYTES).as_bytes()).unwrap();
        wire.send(&vec![b' '; 100_000]).unwrap();
    }
    let began = Instant::now();
    assert_eq!(served.ask("/x", &vec![b' '; MAX_BODY_BYTES]).0, 200);
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "nobody waits for those who are gone"
    );
}

#[test]
fn only_a_certificate_of_the_named_authorities_counts() {
    let served = patient();
    let (clients, others) = (Authority::new(), Authority::new());
    let authorities = ClientAuthorities::parse(&clients.pem).unwrap();
    let config = served.certificates.server_config_for(Some(&authorities)).unwrap();
    served.tls.send_replace(config);
    let address = served.server.address();
    let ask = |shown: Option<(&str, &str)>, path: &str| {
        let config = trusting(&served.certificates.bundle, shown, &[]);
        let mut wire = Wire::open(address, &config)?;
        wire.send((head(path, 2) + "{}").as_bytes())?;
        Ok::<_, std::io::Error>(wire.answer().0)
    };
    assert_eq!(ask(None, "/x").unwrap(), 200);
    assert_eq!(ask(None, "/certified").unwrap(), 403);
    let shown = |authority: &Authority, purpose| {
        let (certificate, key) = authority.issue(purpose);
        ask(Some((&certificate, &key)), "/certified")
    };
    let foreign = shown(&others, ExtendedKeyUsagePurpose::ClientAuth);
    assert!(!matches!(foreign, Ok(200)), "{foreign:?}");
    let server = shown(&clients, ExtendedKeyUsagePurpose::ServerAuth);
    assert!(
        !matches!(server, Ok(200)),
        "a server's certificate is none of a client: {server:?}"
    );
    assert_eq!(shown(&clients, ExtendedKeyUsagePurpose::ClientAuth).unwrap(), 200);
}

/// An authority that vouches for clients.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    fn issue(&self, purpose: ExtendedKeyUsagePurpose) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["api-server".to_owned()]).unwrap();
        params.extended_key_usages = vec![purpose];
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}
