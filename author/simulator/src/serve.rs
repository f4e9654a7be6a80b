//! Serves the simulated API on a socket of this machine, for kubectl and for other processes.

use std::io;
use std::net::SocketAddr;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::server::Simulator;

/// A server that runs until this is dropped.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Serving {
    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A kubeconfig with this server as its only cluster, as YAML.
    pub fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: simulated\nclusters:\n- name: simulated\n  cluster:\n    server: {}\n\
             users:\n- name: simulated\n  user: {{}}\ncontexts:\n- name: simulated\n  context:\n    cluster: simulated\n    \
             user: simulated\n    namespace: default\n",
            self.url()
        )
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Simulator {
    /// Serves HTTP/1.1 without TLS. Port 0 picks a free one.
    pub async fn serve(&self, address: SocketAddr) -> io::Result<Serving> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let service = self.service();
        let task = tokio::spawn(async move {
            // Dropped with the task, and the connections with it.
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let Ok((stream, _)) = accepted else { continue };
                        // A watch's first event would wait 40 ms for an acknowledgement. Without it, it is only slower.
                        let _ = stream.set_nodelay(true);
                        let service = service.clone();
                        connections.spawn(async move {
                            let service = TowerToHyperService::new(service);
                            let builder = http1::Builder::new();
                            // A client that goes away in the middle is no failure of the server.
                            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                        });
                    }
                    Some(_) = connections.join_next(), if !connections.is_empty() => {}
                }
            }
        });
        Ok(Serving { address, task })
    }
}
