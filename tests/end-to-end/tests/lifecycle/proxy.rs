//! Network that fails on demand: a TCP proxy in front of the API server, for one replica. TLS passes through.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// State of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    Works,
    /// Keeps the clients' bytes until the network works again, and then delivers them. The server's bytes arrive.
    KeepsRequests,
    /// All connections break, and new ones break at once.
    Broken,
}

/// A proxy on a free port of 127.0.0.1, for the certificate of the API server there. It ends when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    network: watch::Sender<Network>,
    kept: Kept,
    task: JoinHandle<()>,
}

/// Count of kept bytes of each connection.
type Kept = Arc<Mutex<BTreeMap<usize, usize>>>;

impl Proxy {
    /// A proxy for the server at `https://ADDRESS`.
    pub async fn start(url: &str) -> Self {
        let server: SocketAddr = url.strip_prefix("https://").unwrap().parse().unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (network, follows) = watch::channel(Network::Works);
        let kept = Kept::default();
        let task = tokio::spawn(accept(listener, server, follows, kept.clone()));
        Self {
            address,
            network,
            kept,
            task,
        }
    }

    /// URL of the API server on which it listens.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Restores the network: the kept bytes arrive.
    pub fn works(&self) {
        self.network.send_replace(Network::Works);
    }

    /// Keeps the clients' bytes from here on.
    pub fn keep_requests(&self) {
        self.network.send_replace(Network::KeepsRequests);
    }

    /// Breaks all connections, and each new one.
    pub fn breaks(&self) {
        self.network.send_replace(Network::Broken);
    }

    /// Count of the connections of which at least so many bytes are kept.
    pub fn kept(&self, bytes: usize) -> usize {
        self.kept.lock().values().filter(|kept| **kept >= bytes).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.network.send_replace(Network::Broken);
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, network: watch::Receiver<Network>, kept: Kept) {
    for connection in 0.. {
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        if *network.borrow() == Network::Broken {
            continue;
        }
        let (network, kept) = (network.clone(), kept.clone());
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect(server).await else {
                return;
            };
            let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
            let count = |bytes| {
                kept.lock().insert(connection, bytes);
            };
            let requests = pass(from_client, to_server, network.clone(), true, count);
            let answers = pass(from_server, to_client, network, false, |_| ());
            tokio::join!(requests, answers);
        });
    }
}

/// Passes on the bytes from one side of a connection, until it ends or the network breaks.
async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut network: watch::Receiver<Network>,
    are_requests: bool,
    count: impl Fn(usize),
) {
    let (mut pending, mut chunk, mut is_at_end) = (Vec::new(), vec![0; 16 * 1024], false);
    loop {
        let now = *network.borrow_and_update();
        let keeps = now == Network::KeepsRequests && are_requests;
        count(if keeps { pending.len() } else { 0 });
        if now == Network::Broken {
            return;
        }
        if !keeps {
            if to.write_all(&pending).await.is_err() || is_at_end {
                return;
            }
            pending.clear();
        }
        tokio::select! {
            read = from.read(&mut chunk), if !is_at_end => match read {
                Ok(0) | Err(_) => is_at_end = true,
                Ok(bytes) => pending.extend_from_slice(&chunk[..bytes]),
            },
            changed = network.changed() => if changed.is_err() {
                return;
            },
        }
    }
}
