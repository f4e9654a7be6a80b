//! Plain HTTP server for monitoring: only GET is answered, by a [`PlainHandler`]. The server has a thread of its own,
//! so that it answers even while the rest of the process is stuck.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;

use crate::connections::{ConnectionTimeouts, ReadingGuard};
use crate::serving::{ConnectionLife, HEADER_BYTES, ServerName, ServerThreads};

const NAME: ServerName = ServerName {
    threads: "metrics",
    title: "server for metrics and health",
};

/// Response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainResponse {
    /// The HTTP status code.
    pub code: u16,
    /// The media type of the body.
    pub content_type: &'static str,
    /// The body. Clones share it, so that slow clients hold one copy.
    pub body: Bytes,
}

impl PlainResponse {
    /// Returns a response of plain text.
    pub fn text(code: u16, text: impl Into<String>) -> Self {
        Self {
            code,
            content_type: "text/plain; charset=utf-8",
            body: Bytes::from(text.into()),
        }
    }
}

/// Handles requests.
pub trait PlainHandler: Send + Sync + 'static {
    /// Answers a GET of a path, which has no query.
    fn get(&self, path: &str) -> impl Future<Output = PlainResponse> + Send;
}

/// A server that runs; it stops when this is dropped.
#[derive(Debug)]
pub struct PlainServer(ServerThreads);

impl PlainServer {
    /// Serves the connections of a listener.
    pub fn start<H: PlainHandler>(listener: TcpListener, handler: Arc<H>) -> io::Result<Self> {
        let patience = ConnectionTimeouts {
            // Scrapers keep their connections, and open new ones when these have ended.
            idle: Duration::from_secs(30),
            ..ConnectionTimeouts::default()
        };
        Self::start_with(listener, handler, patience)
    }

    /// Serves with these timeouts instead of the default ones.
    pub fn start_with<H: PlainHandler>(
        listener: TcpListener,
        handler: Arc<H>,
        patience: ConnectionTimeouts,
    ) -> io::Result<Self> {
        let serve = move |stream, life| serve(stream, life, handler.clone());
        ServerThreads::start(NAME, 1, listener, patience, serve).map(Self)
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

async fn serve<H: PlainHandler>(stream: TcpStream, mut life: ConnectionLife, handler: Arc<H>) {
    let slot = life.slot.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (slot, handler) = (slot.clone(), handler.clone());
        async move {
            let _answering = ReadingGuard::begin(slot).ends();
            Ok::<_, std::convert::Infallible>(respond(&request, &*handler).await)
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

async fn respond<H: PlainHandler>(request: &Request<Incoming>, handler: &H) -> Response<Full<Bytes>> {
    let is_head = request.method() == Method::HEAD;
    let answer = if is_head || request.method() == Method::GET {
        handler.get(request.uri().path()).await
    } else {
        PlainResponse::text(405, "only GET is answered here\n")
    };
    let PlainResponse {
        code,
        content_type,
        body,
    } = answer;
    let length = HeaderValue::from(body.len());
    let mut response = Response::new(Full::from(if is_head { Bytes::new() } else { body }));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CONTENT_LENGTH, length);
    response
}
