//! Measures a running host's memory during a flood: `flood ADDRESS PID [PATH]` holds 300 idle connections to its
//! webhooks, sends 64 reviews of nearly 8 MiB at once, and small ones meanwhile. It prints the resident memory of the
//! process before, at most, and afterwards, the number of answered reviews, and the latency of the small ones.
//!
//! Anybody who reaches the port can send such a flood, which is why it is measured; it accepts any certificate of the
//! host.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

const IDLE: usize = 300;
const BODIES: usize = 64;
const BODY_BYTES: usize = 8 * 1024 * 1024;

/// How often the memory is looked at.
const LOOK: Duration = Duration::from_millis(2);

type Wire = StreamOwned<ClientConnection, TcpStream>;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, pid, rest @ ..] = arguments.as_slice() else {
        return Err("flood ADDRESS PID [PATH]".into());
    };
    let (address, pid): (SocketAddr, u32) = (address.parse()?, pid.parse()?);
    let path = rest.first().map_or("/validate/gate/gates", String::as_str);
    let before = resident(pid)?;
    let idle = (0..IDLE).map(|_| open(address)).collect::<Result<Vec<_>, _>>()?;
    println!(
        "{IDLE} idle connections: {} KiB more",
        resident(pid)?.saturating_sub(before)
    );
    let large = review(BODY_BYTES - 1000);
    let (mut most, mut times, mut refused) = (0, Vec::new(), 0);
    let codes: Vec<Option<u16>> = std::thread::scope(|scope| {
        let bodies: Vec<_> = (0..BODIES)
            .map(|_| scope.spawn(|| ask(address, path, &large).ok()))
            .collect();
        let small = scope.spawn(|| {
            let mut asked = Vec::new();
            while bodies.iter().any(|body| !body.is_finished()) {
                let began = Instant::now();
                asked.push((ask(address, path, &review(10)).ok(), began.elapsed()));
            }
            (asked, bodies)
        });
        while !small.is_finished() {
            most = most.max(resident(pid).unwrap_or_default());
            std::thread::sleep(LOOK);
        }
        let (asked, bodies) = small.join().expect("it does not panic");
        refused = asked.iter().filter(|(code, _)| *code != Some(200)).count();
        times.extend(asked.into_iter().map(|(_, time)| time));
        bodies
            .into_iter()
            .map(|body| body.join().expect("it does not panic"))
            .collect()
    });
    drop(idle);
    times.sort_unstable();
    let count = |code: Option<u16>| codes.iter().filter(|it| **it == code).count();
    println!(
        "{BODIES} reviews of {} KiB: {} answered, {} told to come later",
        large.len() / 1024,
        count(Some(200)),
        count(Some(503))
    );
    println!(
        "resident: {before} KiB before, {} KiB more at most, {} KiB more afterwards",
        most.saturating_sub(before),
        resident(pid)?.saturating_sub(before)
    );
    println!(
        "{} small reviews meanwhile, {refused} not answered; median {:?}, longest {:?}",
        times.len(),
        times.get(times.len() / 2),
        times.last()
    );
    Ok(())
}

/// The resident memory of a process in KiB.
fn resident(pid: u32) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("the process has no VmRSS")?.parse()?)
}

fn review(padding: usize) -> String {
    let padding = "x".repeat(padding);
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"7","name":"a","namespace":"default","operation":"CREATE","kind":{{"group":"gate.test.dev","version":"v1","kind":"Gate"}},"object":{{"apiVersion":"gate.test.dev/v1","kind":"Gate","metadata":{{"name":"a","namespace":"default"}},"spec":{{"size":1,"padding":"{padding}"}}}}}}}}"#
    )
}

fn ask(address: SocketAddr, path: &str, body: &str) -> Result<u16, Box<dyn Error>> {
    let mut wire = open(address)?;
    write!(
        wire,
        "POST {path}?timeout=30s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )?;
    // Who is refused while it sends still reads why.
    let _ = wire.write_all(body.as_bytes());
    let _ = wire.flush();
    let mut answer = Vec::new();
    let _ = wire.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    Ok(answer.split(' ').nth(1).ok_or("no answer")?.parse()?)
}

fn open(address: SocketAddr) -> Result<Wire, Box<dyn Error>> {
    let config = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth();
    let mut stream = TcpStream::connect(address)?;
    let mut connection = ClientConnection::new(Arc::new(config), ServerName::from(address.ip()))?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    Ok(StreamOwned::new(connection, stream))
}

/// Takes any certificate.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
