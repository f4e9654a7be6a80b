//! Common parts of the servers of this crate: threads of their own, the loop that accepts connections, and the life of
//! each connection. The slots of connections are in `connections`; the protocol on them is up to each server.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper_util::server::graceful::GracefulConnection;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::connections::{ConnectionTimeouts, Connections, MAX_CONNECTIONS, Slot};
use crate::log_throttle::LogThrottle;

/// Sockets beyond the connections that have a slot: those that are ending because they gave their slot to another.
const ENDING_CONNECTIONS: usize = 64;

/// Bytes of the head of a request that are held.
pub const HEADER_BYTES: usize = 16 * 1024;

/// Time that requests under way may take once the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Time that a connection may take to shut down. Over HTTP/2 the client learns which of its requests still count.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Pause after a connection could not be accepted: too many files are open, say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Names of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerName {
    /// Name of its threads.
    pub threads: &'static str,
    /// Name in the log, as in "a connection to the webhook server".
    pub title: &'static str,
}

/// The threads of a server; it stops when this is dropped.
#[derive(Debug)]
pub struct ServerThreads {
    name: ServerName,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl ServerThreads {
    /// Accepts connections on so many threads, and serves each.
    pub fn start<F>(
        name: ServerName,
        threads: usize,
        listener: StdListener,
        patience: ConnectionTimeouts,
        serve: impl Fn(TcpStream, ConnectionLife) -> F + Send + 'static,
    ) -> io::Result<Self>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name(name.threads)
            .enable_all()
            .build()?;
        let (stop, stopped) = watch::channel(false);
        let accepting = std::thread::Builder::new().name(name.threads.to_owned());
        let thread = accepting.spawn(move || {
            runtime.block_on(async move {
                match TcpListener::from_std(listener) {
                    Ok(listener) => accept(name, &listener, patience, stopped, serve).await,
                    Err(error) => tracing::error!(%error, "the {} cannot listen", name.title),
                }
            });
            runtime.shutdown_timeout(STOP_TIMEOUT);
        })?;
        Ok(Self {
            name,
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ServerThreads {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the {} panicked; this is a bug of the host", self.name.title);
        }
    }
}

async fn accept<F>(
    ServerName { threads: _, title }: ServerName,
    listener: &TcpListener,
    patience: ConnectionTimeouts,
    mut stopped: watch::Receiver<bool>,
    serve: impl Fn(TcpStream, ConnectionLife) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let sockets = Arc::new(Semaphore::new(MAX_CONNECTIONS + ENDING_CONNECTIONS));
    let connections = Arc::new(Connections::new(patience));
    let full = LogThrottle::default();
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
                tracing::warn!(%error, "a connection to the {title} cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(slot) = connections.enter(peer.ip()) else {
            if let Some(left_out) = full.may_say() {
                tracing::warn!(%peer, left_out, "a connection to the {title} is closed: requests that are being answered take all slots that it could have");
            }
            continue;
        };
        let life = ConnectionLife {
            slot: Arc::new(slot),
            stopped: stopped.clone(),
            patience,
        };
        let served = serve(stream, life);
        tokio::spawn(async move {
            served.await;
            drop(place);
        });
    }
    // Requests under way are finished; each connection is notified that the server stops.
    let all = u32::try_from(MAX_CONNECTIONS + ENDING_CONNECTIONS).expect("it is a small number");
    let _ = timeout(STOP_TIMEOUT, sockets.acquire_many(all)).await;
}

/// Slot and timeouts of one connection.
pub struct ConnectionLife {
    /// Its slot.
    pub slot: Arc<Slot>,
    /// Its timeouts.
    pub patience: ConnectionTimeouts,
    stopped: watch::Receiver<bool>,
}

/// Reasons why the server ends a connection.
#[derive(Clone, Copy)]
enum ConnectionEnd {
    /// The connection is idle too long, or another one needs its slot.
    Spared,
    /// The server stops.
    Stop,
}

impl ConnectionLife {
    /// Serves a connection until its client or the server ends it.
    pub async fn until_ended<C: GracefulConnection>(&mut self, connection: C) -> Result<(), C::Error> {
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
            // While a request is under way, check again after this time.
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
