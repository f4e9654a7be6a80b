//! HTTPS server for webhooks. Requests are answered by a [`WebhookHandler`], on this server's threads, so that no other
//! work of the process can make it wait. `serving` handles connections, `request` single requests and their limits.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::budget::ByteBudget;
use crate::connections::ConnectionTimeouts;
use crate::handler::WebhookHandler;
use crate::log_throttle::LogThrottle;
use crate::request::ConnectionContext;
use crate::serving::{ConnectionLife, HEADER_BYTES, ServerName, ServerThreads};

/// Number of threads that serve.
const THREADS: usize = 2;

const NAME: ServerName = ServerName {
    threads: "webhooks",
    title: "webhook server",
};

/// The first byte of a TLS handshake (RFC 8446, section 5.1).
const HANDSHAKE_RECORD: u8 = 22;

/// Response to a client that does not speak TLS.
const NOT_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
this server speaks HTTPS only\n";

/// A server that runs; it stops when this is dropped.
#[derive(Debug)]
pub struct WebhookServer(ServerThreads);

impl WebhookServer {
    /// Serves at an address, on threads of its own. New connections use the current content of `tls`.
    pub fn start<H: WebhookHandler>(
        address: SocketAddr,
        tls: watch::Receiver<Arc<ServerConfig>>,
        handler: Arc<H>,
    ) -> io::Result<Self> {
        Self::start_with(address, tls, handler, ConnectionTimeouts::default())
    }

    /// Serves with these timeouts instead of the default ones.
    pub fn start_with<H: WebhookHandler>(
        address: SocketAddr,
        tls: watch::Receiver<Arc<ServerConfig>>,
        handler: Arc<H>,
        patience: ConnectionTimeouts,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let (budget, disagreeing) = (Arc::new(ByteBudget::of_all()), Arc::<LogThrottle>::default());
        let serve = move |stream, life| {
            let client = AcceptedConnection {
                life,
                config: tls.borrow().clone(),
                disagreeing: disagreeing.clone(),
            };
            client.serve(stream, handler.clone(), budget.clone())
        };
        ServerThreads::start(NAME, THREADS, listener, patience, serve).map(Self)
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

/// One connection.
struct AcceptedConnection {
    life: ConnectionLife,
    config: Arc<ServerConfig>,
    /// Throttles log lines about clients whose TLS handshake fails.
    disagreeing: Arc<LogThrottle>,
}

impl AcceptedConnection {
    async fn serve<H: WebhookHandler>(self, stream: TcpStream, handler: Arc<H>, budget: Arc<ByteBudget>) {
        let Self {
            mut life,
            config,
            disagreeing,
        } = self;
        let patience = life.patience;
        let handshake = timeout(patience.handshake, handshake(stream, config, disagreeing));
        let stream = tokio::select! {
            biased;
            () = life.slot.gives_way() => return,
            stream = handshake => match stream {
                Ok(Some(stream)) => stream,
                Ok(None) | Err(_) => return,
            },
        };
        life.slot.set_established();
        let (_, session) = stream.get_ref();
        let is_certified = session.peer_certificates().is_some();
        let asked = Arc::new(ConnectionContext {
            handler,
            slot: life.slot.clone(),
            budget,
            is_certified,
            body_timeout: patience.body,
        });
        let service = service_fn(move |request| {
            let asked = asked.clone();
            async move { Ok::<_, std::convert::Infallible>(asked.respond(request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(patience.head)
            .max_buf_size(HEADER_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let ended = life.until_ended(connection).await;
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection to the webhook server ended");
        }
    }
}

/// Performs the TLS handshake; a client that does not speak TLS gets a message.
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

/// Sends a message to a client that does not speak TLS. Its data is read to the end, because closing on unread bytes
/// resets the connection, and the client would not see the message.
async fn turn_away(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(NOT_TLS).await?;
    stream.shutdown().await?;
    let mut sent = [0; 1024];
    while stream.read(&mut sent).await? > 0 {}
    Ok(())
}
