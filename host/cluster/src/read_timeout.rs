//! Adds a read timeout to the client that kube's own watcher uses, so that it does not wait for ever for a silent
//! server. What the host asks for itself has its time in `write` and `reflector`.
//!
//! A time-out of the connection would do the same, but sets its clock twice for each piece that is read, of every
//! request, and tokio wakes the thread for each: with it a new object takes a tenth more of the processors.

use std::time::Duration;

use futures::stream;
use http::Request;
use http_body_util::{BodyExt as _, StreamBody};
use kube::Client;
use kube::client::Body;
use tokio::time::timeout;

use crate::error::RequestError;
use crate::reflector::LONGEST_SILENCE;
use crate::write::REQUEST_TIMEOUT;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The same way to a cluster, with an end to the wait for an answer, and for each next piece of it.
pub fn with_read_timeout(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let response = within(REQUEST_TIMEOUT, client.send(request)).await??;
            Ok::<_, BoxError>(response.map(|body| StreamBody::new(Box::pin(pieces(body)))))
        }
    });
    Client::new(service, namespace)
}

fn pieces(body: Body) -> impl stream::Stream<Item = Result<http_body::Frame<bytes::Bytes>, BoxError>> + Send {
    stream::unfold(Some(body), |body| async {
        let mut body = body?;
        match within(LONGEST_SILENCE, body.frame()).await {
            Ok(piece) => piece.map(|piece| (piece.map_err(BoxError::from), Some(body))),
            Err(silent) => Some((Err(silent), None)),
        }
    })
}

async fn within<T>(time: Duration, what: impl Future<Output = T>) -> Result<T, BoxError> {
    let ended = timeout(time, what).await;
    ended.map_err(|_| RequestError::Silent(time).into())
}
