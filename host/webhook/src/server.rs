//! Owns the HTTPS server: connections, sizes and times. What is asked is left to a [`Handler`], which runs on this server's
//! threads, so that nothing that the rest of the process does can make it wait.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// The largest question: an API server takes objects of 3 MiB, and sends the old one too.
pub const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;

/// Connections at once. An API server keeps few, and over one many questions.
const MAX_CONNECTIONS: usize = 256;

/// How long a client may take to agree on TLS, and to say what it wants.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client may take to send its question.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long questions that are under way may take once the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The wait after a connection could not be accepted: too many files are open, say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The threads that serve.
const THREADS: usize = 2;

/// The first byte of a TLS handshake (RFC 8446, section 5.1).
const HANDSHAKE_RECORD: u8 = 22;

/// What somebody who does not speak TLS is told.
const NOT_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
this server speaks HTTPS only\n";

/// A question.
#[derive(Debug)]
pub struct Question {
    /// The path, without the query.
    pub path: String,
    /// How long the client waits, if it says so: `?timeout=5s`.
    pub timeout: Option<Duration>,
    /// What is asked.
    pub body: Bytes,
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status code.
    pub code: u16,
    /// JSON where the code is 200, else words.
    pub body: String,
}

impl Answer {
    /// An answer of JSON.
    pub fn json(body: String) -> Self {
        Self { code: 200, body }
    }

    /// Words about what went wrong.
    pub fn error(code: u16, body: impl Into<String>) -> Self {
        Self {
            code,
            body: body.into(),
        }
    }
}

/// Who answers.
pub trait Handler: Send + Sync + 'static {
    /// Answers one question.
    fn answer(&self, question: Question) -> impl Future<Output = Answer> + Send;
}

/// A server that runs; it stops when this is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves at an address, on threads of its own. New connections are shown what `tls` holds then.
    pub fn start<H: Handler>(
        address: SocketAddr,
        tls: watch::Receiver<Arc<ServerConfig>>,
        handler: Arc<H>,
    ) -> io::Result<Self> {
        let listener = StdListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("webhooks")
            .enable_all()
            .build()?;
        let (stop, stopped) = watch::channel(false);
        let thread = std::thread::Builder::new().name("webhooks".to_owned()).spawn(move || {
            runtime.block_on(async move {
                match TcpListener::from_std(listener) {
                    Ok(listener) => serve(&listener, &tls, &handler, stopped).await,
                    Err(error) => tracing::error!(%error, "the webhook server cannot listen"),
                }
            });
            runtime.shutdown_timeout(STOP_TIMEOUT);
        })?;
        Ok(Self {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the webhook server panicked; this is a bug of the host");
        }
    }
}

async fn serve<H: Handler>(
    listener: &TcpListener,
    tls: &watch::Receiver<Arc<ServerConfig>>,
    handler: &Arc<H>,
    mut stopped: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let place = tokio::select! {
            _ = stopped.changed() => break,
            place = places.clone().acquire_owned() => place.expect("the semaphore is never closed"),
        };
        let accepted = tokio::select! {
            _ = stopped.changed() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection to the webhook server cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (config, handler, stopped) = (tls.borrow().clone(), handler.clone(), stopped.clone());
        tokio::spawn(async move {
            connection(stream, config, handler, stopped).await;
            drop(place);
        });
    }
    // What is under way is finished; each connection knows that the server stops.
    let all = u32::try_from(MAX_CONNECTIONS).expect("it is a small number");
    let _ = timeout(STOP_TIMEOUT, places.acquire_many(all)).await;
}

async fn connection<H: Handler>(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    handler: Arc<H>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut first = [0];
    let peeked = timeout(HANDSHAKE_TIMEOUT, stream.peek(&mut first)).await;
    if !matches!(peeked, Ok(Ok(1))) {
        return;
    }
    if first != [HANDSHAKE_RECORD] {
        let _ = timeout(HANDSHAKE_TIMEOUT, turn_away(stream)).await;
        return;
    }
    let _ = stream.set_nodelay(true);
    let stream = match timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(config).accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::warn!(%error, "a client of the webhook server does not agree on TLS; does it have the authority's certificate?");
            return;
        }
        Err(_) => return,
    };
    let service = service_fn(move |request| {
        let handler = handler.clone();
        async move { Ok::<_, std::convert::Infallible>(respond(&*handler, request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            timeout(STOP_TIMEOUT, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the webhook server ended");
    }
}

/// Tells a client that does not speak TLS. What it sends is read to its end, because closing on unread bytes resets the
/// connection, and the client would not see what it is told.
async fn turn_away(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(NOT_TLS).await?;
    stream.shutdown().await?;
    let mut sent = [0; 1024];
    while stream.read(&mut sent).await? > 0 {}
    Ok(())
}

async fn respond<H: Handler>(handler: &H, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let answer = match read(request).await {
        Ok(question) => handler.answer(question).await,
        Err(answer) => answer,
    };
    let kind = if answer.code == 200 {
        "application/json"
    } else {
        "text/plain; charset=utf-8"
    };
    let mut response = Response::new(Full::from(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

async fn read(request: Request<Incoming>) -> Result<Question, Answer> {
    if request.method() != Method::POST {
        return Err(Answer::error(405, "only POST is answered here"));
    }
    let kind = request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    if kind != "application/json" {
        return Err(Answer::error(415, "only application/json is understood here"));
    }
    let (path, wait) = (request.uri().path().to_owned(), waits(request.uri().query()));
    let body = Limited::new(request.into_body(), MAX_BODY_BYTES).collect();
    match timeout(BODY_TIMEOUT, body).await {
        Ok(Ok(body)) => Ok(Question {
            path,
            timeout: wait,
            body: body.to_bytes(),
        }),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Answer::error(
            413,
            format!("the question has more than {MAX_BODY_BYTES} bytes"),
        )),
        Ok(Err(error)) => Err(Answer::error(400, format!("the question cannot be read: {error}"))),
        Err(_) => Err(Answer::error(408, "the question did not come in time")),
    }
}

/// How long the client waits, in the form in which API servers say so.
fn waits(query: Option<&str>) -> Option<Duration> {
    let text = query?.split('&').find_map(|pair| pair.strip_prefix("timeout="))?;
    text.strip_suffix('s')?.parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_a_client_waits_is_read() {
        assert_eq!(waits(Some("timeout=5s")), Some(Duration::from_secs(5)));
        assert_eq!(waits(Some("a=b&timeout=30s")), Some(Duration::from_secs(30)));
        assert_eq!(waits(Some("timeout=soon")), None);
        assert_eq!(waits(None), None);
    }
}
