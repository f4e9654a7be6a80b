//! Server of the host's JSON API: GET only, over TLS, or over plain HTTP for clients on the same machine. Authorization
//! is left to an [`ApiHandler`]. Its own thread answers even while the rest of the process is stuck.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::certificates::{CertificateError, Certificates, Lifetimes};
use crate::connections::{ConnectionTimeouts, ReadingGuard};
use crate::serving::{ConnectionLife, HEADER_BYTES, ServerName, ServerThreads};

const NAME: ServerName = ServerName {
    threads: "api",
    title: "server for the API",
};

/// Header with the client's credential if there is no `Authorization`: the API server removes that one from requests
/// that it proxies to a Service. Both have the form `Bearer CREDENTIAL`.
pub const CREDENTIAL_HEADER: &str = "pilothouse-authorization";

/// Name in the certificate; no client of the API server's proxy checks it.
const CERTIFICATE_NAME: &str = "pilothouse";

/// Request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiRequest {
    /// The path, without the query.
    pub path: String,
    /// The query, as sent.
    pub query: Option<String>,
    /// The client's credential.
    pub credential: Option<String>,
    /// Address of the other end of the connection.
    pub peer: IpAddr,
    /// Client for which the peer sends the request: the last one in `X-Forwarded-For`, which a proxy adds.
    pub forwarded_for: Option<String>,
}

/// Response with a JSON body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResponse {
    /// The HTTP status code.
    pub code: u16,
    /// The body.
    pub body: Bytes,
}

/// Handles requests.
pub trait ApiHandler: Send + Sync + 'static {
    /// Answers a GET.
    fn answer(&self, request: ApiRequest) -> impl Future<Output = ApiResponse> + Send;
}

/// Transport below HTTP.
pub enum ApiTransport {
    /// None: the clients are on the same machine.
    Plain,
    /// TLS.
    Tls(OwnCertificates),
}

/// Certificates that are made in memory for this process alone, and renewed before they expire. Nobody can verify them:
/// the API server's proxy does not verify certificates.
pub struct OwnCertificates(Mutex<ShownCertificates>);

struct ShownCertificates {
    config: Arc<ServerConfig>,
    due: SystemTime,
}

/// A server that runs; it stops when this is dropped.
#[derive(Debug)]
pub struct ApiServer(ServerThreads);

impl OwnCertificates {
    /// Makes the first certificates.
    pub fn make() -> Result<Self, CertificateError> {
        ShownCertificates::make(SystemTime::now()).map(|shown| Self(Mutex::new(shown)))
    }

    /// Returns the TLS configuration of a new connection.
    fn config(&self, now: SystemTime) -> Arc<ServerConfig> {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.due <= now {
            match ShownCertificates::make(now) {
                Ok(renewed) => *shown = renewed,
                Err(error) => tracing::warn!(%error, "cannot renew the certificate of the {}", NAME.title),
            }
        }
        shown.config.clone()
    }
}

impl ShownCertificates {
    fn make(now: SystemTime) -> Result<Self, CertificateError> {
        let made = Certificates::make(&[CERTIFICATE_NAME.to_owned()], now, &Lifetimes::default())?;
        let mut config = ServerConfig::clone(&*made.server_config()?);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            config: Arc::new(config),
            due: made.due(),
        })
    }
}

impl ApiServer {
    /// Serves the connections of a listener.
    pub fn start<H: ApiHandler>(listener: TcpListener, transport: ApiTransport, handler: Arc<H>) -> io::Result<Self> {
        let transport = Arc::new(transport);
        let serve = move |stream, life| accepted(stream, life, transport.clone(), handler.clone());
        ServerThreads::start(NAME, 1, listener, ConnectionTimeouts::default(), serve).map(Self)
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

async fn accepted<H: ApiHandler>(
    stream: TcpStream,
    life: ConnectionLife,
    transport: Arc<ApiTransport>,
    handler: Arc<H>,
) {
    let peer = stream
        .peer_addr()
        .map_or(Ipv4Addr::UNSPECIFIED.into(), |address| address.ip().to_canonical());
    let own = match &*transport {
        ApiTransport::Plain => return serve(stream, peer, life, handler).await,
        ApiTransport::Tls(own) => own,
    };
    let acceptor = TlsAcceptor::from(own.config(SystemTime::now()));
    let handshake = timeout(life.patience.handshake, acceptor.accept(stream));
    let stream = tokio::select! {
        biased;
        () = life.slot.gives_way() => return,
        stream = handshake => stream,
    };
    match stream {
        Ok(Ok(stream)) => {
            life.slot.set_established();
            serve(stream, peer, life, handler).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "a client of the {} does not agree on TLS", NAME.title),
        Err(_) => {}
    }
}

async fn serve<H: ApiHandler>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: IpAddr,
    mut life: ConnectionLife,
    handler: Arc<H>,
) {
    let slot = life.slot.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (slot, handler) = (slot.clone(), handler.clone());
        async move {
            let _answering = ReadingGuard::begin(slot).ends();
            Ok::<_, std::convert::Infallible>(respond(&request, peer, &*handler).await)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(life.patience.head)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = life.until_ended(connection).await {
        tracing::debug!(%error, "a connection to the {} ended", NAME.title);
    }
}

async fn respond<H: ApiHandler>(request: &Request<Incoming>, peer: IpAddr, handler: &H) -> Response<Full<Bytes>> {
    let answer = if request.method() == Method::GET {
        let uri = request.uri();
        let asked = ApiRequest {
            path: uri.path().to_owned(),
            query: uri.query().map(str::to_owned),
            credential: credential(request.headers()),
            peer,
            forwarded_for: forwarded_for(request.headers()),
        };
        handler.answer(asked).await
    } else {
        ApiResponse {
            code: 405,
            body: Bytes::from_static(b"{\"error\":{\"code\":405,\"message\":\"only GET is answered here\"}}\n"),
        }
    };
    let ApiResponse { code, body } = answer;
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        // A response for one client must not be cached for another, nor sniffed as another type by a browser.
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Returns the client's credential.
fn credential(headers: &HeaderMap) -> Option<String> {
    let shown = headers
        .get(CREDENTIAL_HEADER)
        .or_else(|| headers.get(header::AUTHORIZATION))?;
    let (scheme, credential) = shown.to_str().ok()?.split_once(' ')?;
    let credential = credential.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !credential.is_empty()).then(|| credential.to_owned())
}

/// Returns the client's address as the last proxy recorded it.
fn forwarded_for(headers: &HeaderMap) -> Option<String> {
    let last = headers.get_all("x-forwarded-for").iter().next_back()?;
    let last = last.to_str().ok()?.rsplit(',').next()?.trim();
    (!last.is_empty()).then(|| last.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn shown(headers: &[(&'static str, &'static str)]) -> Option<String> {
        let headers = headers
            .iter()
            .map(|(name, value)| (header::HeaderName::from_static(name), HeaderValue::from_static(value)));
        credential(&headers.collect())
    }

    #[test]
    fn the_own_header_takes_precedence_for_the_bearer_token() {
        assert_eq!(shown(&[]), None);
        assert_eq!(shown(&[("authorization", "Bearer a")]).as_deref(), Some("a"));
        assert_eq!(
            shown(&[("authorization", "Bearer a"), (CREDENTIAL_HEADER, "bearer  b")]).as_deref(),
            Some("b")
        );
        for refused in ["Basic YTph", "Bearer ", "Bearer", "a"] {
            assert_eq!(shown(&[("authorization", refused)]), None, "{refused}");
        }
    }

    #[test]
    fn the_last_proxy_says_whom_it_asks_for() {
        let told = |values: &[&'static str]| {
            let name = header::HeaderName::from_static("x-forwarded-for");
            let values = values
                .iter()
                .map(|value| (name.clone(), HeaderValue::from_static(value)));
            forwarded_for(&values.collect())
        };
        assert_eq!(told(&[]), None);
        assert_eq!(told(&["192.0.2.1"]).as_deref(), Some("192.0.2.1"));
        assert_eq!(told(&["forged, 192.0.2.1"]).as_deref(), Some("192.0.2.1"));
        assert_eq!(told(&["forged", "192.0.2.1 "]).as_deref(), Some("192.0.2.1"));
    }

    #[test]
    fn certificates_are_made_anew_before_they_expire() {
        let own = OwnCertificates::make().unwrap();
        let now = SystemTime::now();
        let first = own.config(now);
        assert!(Arc::ptr_eq(&first, &own.config(now + Duration::from_hours(24))));
        let later = own.config(now + Duration::from_hours(24 * 80));
        assert!(!Arc::ptr_eq(&first, &later), "after two thirds of 90 days");
    }
}
