//! Cluster with scripted responses: bytes for each request, and nothing else.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::runtime::{Builder, Runtime};

/// A runtime whose time is virtual, so that waits cost nothing.
pub fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime can be made")
}

/// A client of a server that answers each request, by its path and query, with a status and a body.
pub fn client(answer: impl Fn(&str) -> (u16, Bytes) + Clone + Send + Sync + 'static) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let asked = request.uri().path_and_query().map_or("", |asked| asked.as_str());
        let (status, body) = answer(asked);
        async move {
            let response = Response::builder()
                .status(status)
                .header("content-type", "application/json")
                .body(Body::from(Vec::from(body)))
                .expect("the status is one");
            Ok::<_, Infallible>(response)
        }
    });
    Client::new(service, "default")
}

/// The bytes, cut at each line `---`.
pub fn chunks(data: &[u8]) -> Vec<Bytes> {
    const MARK: &[u8] = b"\n---\n";
    let mut chunks = Vec::new();
    let mut rest = data;
    while let Some(at) = rest.windows(MARK.len()).position(|window| window == MARK) {
        chunks.push(Bytes::copy_from_slice(&rest[..=at]));
        rest = &rest[at + MARK.len()..];
    }
    chunks.push(Bytes::copy_from_slice(rest));
    chunks
}
