//! Clients of the server's tests: over sockets and TLS, well-behaved or byte by byte.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use pilothouse_webhook::ServerConfig;
use pilothouse_webhook::certificates::{Certificates, Lifetimes};
use pilothouse_webhook::connections::ConnectionTimeouts;
use pilothouse_webhook::handler::WebhookHandler;
use pilothouse_webhook::server::WebhookServer;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio::sync::watch;

/// Time limit of a wait in a test.
pub const WITHIN: Duration = Duration::from_mins(1);

/// Time that a client listens before it sends the next byte.
const PACE: Duration = Duration::from_millis(20);

/// Shorter timeouts than anyone needs, so that connections are cut off soon.
pub const IMPATIENT: ConnectionTimeouts = ConnectionTimeouts {
    handshake: Duration::from_millis(400),
    head: Duration::from_millis(400),
    body: Duration::from_millis(400),
    idle: Duration::from_millis(400),
};

/// A server with a handler, and who vouches for it.
pub struct Served {
    pub server: WebhookServer,
    pub tls: watch::Sender<Arc<ServerConfig>>,
    pub certificates: Certificates,
}

pub fn made() -> Certificates {
    Certificates::make(&["127.0.0.1".to_owned()], SystemTime::now(), &Lifetimes::default()).unwrap()
}

pub fn serve<H: WebhookHandler>(handler: Arc<H>, patience: ConnectionTimeouts) -> Served {
    let certificates = made();
    let (tls, shown) = watch::channel(certificates.server_config().unwrap());
    let server = WebhookServer::start_with("127.0.0.1:0".parse().unwrap(), shown, handler, patience).unwrap();
    Served {
        server,
        tls,
        certificates,
    }
}

/// A client that trusts a bundle, and shows a certificate with its key where it has one.
pub fn trusting(bundle: &str, shown: Option<(&str, &str)>, protocols: &[&[u8]]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(bundle));
    let config = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match shown {
        None => config.with_no_client_auth(),
        Some((chain, key)) => config
            .with_client_auth_cert(
                certificates(chain),
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap(),
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config.into()
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .unwrap()
}

/// Connection over TLS that sends the given bytes.
pub struct Wire(StreamOwned<ClientConnection, TcpStream>);

impl Wire {
    /// Connects and agrees on TLS.
    pub fn open(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(WITHIN))?;
        stream.set_write_timeout(Some(WITHIN))?;
        let mut connection = ClientConnection::new(config.clone(), ServerName::from(address.ip())).unwrap();
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(Self(StreamOwned::new(connection, stream)))
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)?;
        self.0.flush()
    }

    /// The code of the answer and all of it, read until the server closes or, with a length, to its end.
    pub fn answer(&mut self) -> (u16, String) {
        let (mut text, mut piece) = (Vec::new(), [0; 4096]);
        let end = |text: &[u8]| {
            let text = String::from_utf8_lossy(text).into_owned();
            let (head, body) = text.split_once("\r\n\r\n")?;
            let length = head.to_lowercase().lines().find_map(|line| {
                let length = line.strip_prefix("content-length:")?.trim().parse::<usize>();
                length.ok()
            });
            (body.len() >= length?).then_some(())
        };
        while end(&text).is_none() {
            match self.0.read(&mut piece) {
                Ok(0) | Err(_) => break,
                Ok(count) => text.extend_from_slice(&piece[..count]),
            }
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        let code = text.split(' ').nth(1).and_then(|code| code.parse().ok());
        (code.unwrap_or_default(), text)
    }

    /// Returns `true` if the server has closed the connection, or closes it within this time.
    pub fn is_closed_within(&mut self, time: Duration) -> bool {
        self.0.sock.set_read_timeout(Some(time)).unwrap();
        let mut byte = [0];
        match self.0.read(&mut byte) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    /// Sends byte after byte, with pauses, until the server says or does something; how long that took.
    pub fn dribble(&mut self, bytes: &[u8]) -> Duration {
        let began = Instant::now();
        for byte in bytes.iter().cycle() {
            assert!(began.elapsed() < WITHIN, "the server listens for ever");
            if self.send(&[*byte]).is_err() || self.says_something() {
                break;
            }
        }
        began.elapsed()
    }

    fn says_something(&mut self) -> bool {
        self.0.sock.set_read_timeout(Some(PACE)).unwrap();
        let mut bytes = [0];
        let peeked = self.0.sock.peek(&mut bytes);
        self.0.sock.set_read_timeout(Some(WITHIN)).unwrap();
        peeked.is_ok()
    }
}

impl Served {
    pub fn config(&self) -> Arc<ClientConfig> {
        trusting(&self.certificates.bundle, None, &[])
    }

    pub fn open(&self) -> Wire {
        Wire::open(self.server.address(), &self.config()).unwrap()
    }

    /// Asks as an API server does: the code and the text of the answer.
    pub fn ask(&self, path: &str, body: &[u8]) -> (u16, String) {
        let mut wire = self.open();
        let head = head(path, body.len());
        wire.send(head.as_bytes()).unwrap();
        let _ = wire.send(body);
        wire.answer()
    }

    /// Panics unless the server answers as ever.
    pub fn is_served(&self) {
        let (code, text) = self.ask("/ok", b"{}");
        assert_eq!(code, 200, "{text}");
    }
}

pub fn head(path: &str, length: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n")
}
