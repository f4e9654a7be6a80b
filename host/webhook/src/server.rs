//! Owns the HTTPS server: its threads, its connections and their TLS. What is asked is left to a [`WebhookHandler`],
//! which runs on this server's threads, so that nothing that the rest of the process does can make it wait. Which
//! connections there may be, `connections` decides; what one request may take, `request`.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::budget::ByteBudget;
use crate::connections::{ConnectionTimeouts, Connections, MAX_CONNECTIONS, Slot};
use crate::log_throttle::LogThrottle;
use crate::request::ConnectionContext;

/// The largest question: an API server takes objects of 3 MiB, and sends the old one too.
pub const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;

/// Sockets beyond the connections that have a slot: those that end because they gave their slot to another.
const ENDING_CONNECTIONS: usize = 64;

/// How much of the head of a request is held.
const HEADER_BYTES: usize = 16 * 1024;

/// Requests at once on one connection of HTTP/2, and how much of their bodies is taken before it is asked for: what a
/// client sends before its bytes are reserved is held for each connection.
const STREAMS: u32 = 100;
const WINDOW_BYTES: u32 = 64 * 1024;

/// How long questions that are under way may take once the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a connection may take to end in order. Over HTTP/2 the client is told which of its requests still count.
const END_TIMEOUT: Duration = Duration::from_secs(1);

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
pub struct WebhookRequest {
    /// The path, without the query.
    pub path: String,
    /// How long the client waits, if it says so: `?timeout=5s`.
    pub timeout: Option<Duration>,
    /// When the head of the request was there: the client waits since then.
    pub received: std::time::Instant,
    /// Whether the client has shown a certificate, which was verified.
    pub is_certified: bool,
    /// What is asked. The server counts its bytes until the last copy of it is dropped, so whoever works on it keeps it.
    pub body: Bytes,
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub struct WebhookResponse {
    /// The HTTP status code.
    pub code: u16,
    /// JSON where the code is 200, else words.
    pub body: String,
}

impl WebhookResponse {
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
pub trait WebhookHandler: Send + Sync + 'static {
    /// Whether a client may ask at this path at all, before its question is read.
    fn admits(&self, path: &str, is_certified: bool) -> Result<(), WebhookResponse> {
        let _ = (path, is_certified);
        Ok(())
    }

    /// Answers one question.
    fn answer(&self, question: WebhookRequest) -> impl Future<Output = WebhookResponse> + Send;
}

/// A server that runs; it stops when this is dropped.
#[derive(Debug)]
pub struct WebhookServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl WebhookServer {
    /// Serves at an address, on threads of its own. New connections are shown what `tls` holds then.
    pub fn start<H: WebhookHandler>(
        address: SocketAddr,
        tls: watch::Receiver<Arc<ServerConfig>>,
        handler: Arc<H>,
    ) -> io::Result<Self> {
        Self::start_with(address, tls, handler, ConnectionTimeouts::default())
    }

    /// The same with other times than the usual ones.
    pub fn start_with<H: WebhookHandler>(
        address: SocketAddr,
        tls: watch::Receiver<Arc<ServerConfig>>,
        handler: Arc<H>,
        patience: ConnectionTimeouts,
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
                    Ok(listener) => serve(&listener, &tls, &handler, patience, stopped).await,
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

impl Drop for WebhookServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the webhook server panicked; this is a bug of the host");
        }
    }
}

async fn serve<H: WebhookHandler>(
    listener: &TcpListener,
    tls: &watch::Receiver<Arc<ServerConfig>>,
    handler: &Arc<H>,
    patience: ConnectionTimeouts,
    mut stopped: watch::Receiver<bool>,
) {
    let sockets = Arc::new(Semaphore::new(MAX_CONNECTIONS + ENDING_CONNECTIONS));
    let (connections, budget) = (Arc::new(Connections::new(patience)), Arc::new(ByteBudget::of_all()));
    let (full, disagreeing) = (LogThrottle::default(), Arc::<LogThrottle>::default());
    loop {
        let place = tokio::select! {
            _ = stopped.changed() => break,
            place = sockets.clone().acquire_owned() => place.expect("the semaphore is never closed"),
        };
        let accepted = tokio::select! {
            _ = stopped.changed() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection to the webhook server cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(slot) = connections.enter(peer.ip()) else {
            if let Some(left_out) = full.may_say() {
                tracing::warn!(%peer, left_out, "a connection to the webhook server is closed: requests that are being answered take all slots that it could have");
            }
            continue;
        };
        let client = AcceptedConnection {
            slot: Arc::new(slot),
            config: tls.borrow().clone(),
            stopped: stopped.clone(),
            patience,
            disagreeing: disagreeing.clone(),
        };
        let (handler, budget) = (handler.clone(), budget.clone());
        tokio::spawn(async move {
            client.serve(stream, handler, budget).await;
            drop(place);
        });
    }
    // What is under way is finished; each connection knows that the server stops.
    let all = u32::try_from(MAX_CONNECTIONS + ENDING_CONNECTIONS).expect("it is a small number");
    let _ = timeout(STOP_TIMEOUT, sockets.acquire_many(all)).await;
}

/// One connection.
struct AcceptedConnection {
    slot: Arc<Slot>,
    config: Arc<ServerConfig>,
    stopped: watch::Receiver<bool>,
    patience: ConnectionTimeouts,
    /// Tells of clients that do not agree on TLS.
    disagreeing: Arc<LogThrottle>,
}

/// Why the server ends a connection.
#[derive(Clone, Copy)]
enum ConnectionEnd {
    /// Nothing happens on it, or another one needs its slot.
    Spared,
    /// The server stops.
    Stop,
}

impl AcceptedConnection {
    async fn serve<H: WebhookHandler>(mut self, stream: TcpStream, handler: Arc<H>, budget: Arc<ByteBudget>) {
        let handshake = timeout(
            self.patience.handshake,
            handshake(stream, self.config.clone(), self.disagreeing.clone()),
        );
        let stream = tokio::select! {
            biased;
            () = self.slot.gives_way() => return,
            stream = handshake => match stream {
                Ok(Some(stream)) => stream,
                Ok(None) | Err(_) => return,
            },
        };
        self.slot.is_established();
        let (_, session) = stream.get_ref();
        let is_http2 = session.alpn_protocol() == Some(b"h2");
        let is_certified = session.peer_certificates().is_some();
        let asked = Arc::new(ConnectionContext {
            handler,
            slot: self.slot.clone(),
            budget,
            is_certified,
            body_timeout: self.patience.body,
        });
        let service = service_fn(move |request| {
            let asked = asked.clone();
            async move { Ok::<_, std::convert::Infallible>(asked.respond(request).await) }
        });
        let stream = TokioIo::new(stream);
        let ended = if is_http2 {
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .initial_stream_window_size(WINDOW_BYTES)
                .initial_connection_window_size(WINDOW_BYTES)
                .max_concurrent_streams(STREAMS)
                .max_header_list_size(u32::try_from(HEADER_BYTES).expect("it is a small number"))
                .serve_connection(stream, service);
            self.until_ended(connection).await
        } else {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(self.patience.head)
                .max_buf_size(HEADER_BYTES)
                .serve_connection(stream, service);
            self.until_ended(connection).await
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection to the webhook server ended");
        }
    }

    /// Serves a connection until its client or the server ends it.
    async fn until_ended<C: GracefulConnection>(&mut self, connection: C) -> Result<(), C::Error> {
        let mut connection = pin!(connection);
        let time = tokio::select! {
            ended = connection.as_mut() => return ended,
            end = self.end() => match end {
                ConnectionEnd::Spared => END_TIMEOUT,
                ConnectionEnd::Stop => STOP_TIMEOUT,
            },
        };
        connection.as_mut().graceful_shutdown();
        timeout(time, connection).await.unwrap_or(Ok(()))
    }

    /// Resolves when the server is to end the connection.
    async fn end(&mut self) -> ConnectionEnd {
        loop {
            // While a request is under way, it is looked again whether it still is.
            let due = self.slot.due().unwrap_or_else(|| Instant::now() + self.patience.idle);
            tokio::select! {
                _ = self.stopped.changed() => return ConnectionEnd::Stop,
                () = self.slot.gives_way() => return ConnectionEnd::Spared,
                () = sleep_until(due) => {
                    if self.slot.due().is_some_and(|due| due <= Instant::now()) {
                        return ConnectionEnd::Spared;
                    }
                }
            }
        }
    }
}

/// Agrees on TLS with a client; a client that does not speak TLS is told so.
async fn handshake(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    disagreeing: Arc<LogThrottle>,
) -> Option<TlsStream<TcpStream>> {
    let mut first = [0];
    if stream.peek(&mut first).await.ok()? != 1 {
        return None;
    }
    if first != [HANDSHAKE_RECORD] {
        let _ = turn_away(stream).await;
        return None;
    }
    let _ = stream.set_nodelay(true);
    match TlsAcceptor::from(config).accept(stream).await {
        Ok(stream) => Some(stream),
        Err(error) => {
            if let Some(left_out) = disagreeing.may_say() {
                tracing::warn!(%error, left_out, "a client of the webhook server does not agree on TLS; does it have the authority's certificate?");
            }
            None
        }
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
