//! Tracks requests that were begun and not answered, and decides which responses are not definite: after them, the
//! request may still take effect.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, Either, Full, Limited};
use serde::Deserialize;
use tokio::time::Instant;
use tower::BoxError;

use super::Passage;

/// The longest failure body that is read, in bytes.
const LONGEST_FAILURE: usize = 1 << 20;

/// Requests that have passed the fence and have no response yet.
#[derive(Debug, Default)]
pub(super) struct Unanswered {
    next: u64,
    in_flight: HashMap<u64, InFlight>,
    abandoned: Vec<Abandoned>,
}

/// A request whose response is awaited.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(super) passage: Passage,
    pub(super) begun: Instant,
    pub(super) duration: Duration,
}

/// A request whose response is no longer awaited.
#[derive(Clone, Copy, Debug)]
struct Abandoned {
    passage: Passage,
    begun: Instant,
    /// The time from which it cannot take effect any more.
    settled: Instant,
}

impl Unanswered {
    pub(super) fn begin(&mut self, request: InFlight) -> u64 {
        self.next += 1;
        self.in_flight.insert(self.next, request);
        self.next
    }

    /// Records that a request was answered, or is known not to take effect.
    pub(super) fn answer(&mut self, number: u64) {
        self.in_flight.remove(&number);
    }

    /// Records that the response is no longer awaited; does nothing if it has arrived. The request may take effect
    /// until others may assume that its sender is dead: a replica that is killed at this moment is replaced when its
    /// Lease ends, at most one duration later.
    pub(super) fn abandon(&mut self, number: u64) {
        let Some(InFlight {
            passage,
            begun,
            duration,
        }) = self.in_flight.remove(&number)
        else {
            return;
        };
        let now = Instant::now();
        self.abandoned.retain(|abandoned| now < abandoned.settled);
        self.abandoned.push(Abandoned {
            passage,
            begun,
            settled: now + duration,
        });
    }

    /// Reports whether no response is awaited.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    pub(super) fn is_in_flight(&self, passage: Passage) -> bool {
        self.in_flight.values().any(|request| request.passage == passage)
    }

    /// The passages of requests that may still take effect, and the time at which each was begun.
    pub(super) fn unsettled(&self) -> impl Iterator<Item = (Passage, Instant)> {
        let now = Instant::now();
        let in_flight = self.in_flight.values().map(|request| (request.passage, request.begun));
        let abandoned = self.abandoned.iter().filter(move |request| now < request.settled);
        in_flight.chain(abandoned.map(|request| (request.passage, request.begun)))
    }
}

/// Reports whether a request cannot take effect after this response. A gateway that answers 502 or 504 has given up on
/// the API server, and an API server may answer 504 to a request that continues. A broken connection may have delivered
/// the request before. [`classified`] has examined 500 and 503.
pub(super) fn is_definite<R>(answer: &Result<Response<R>, BoxError>) -> bool {
    match answer {
        Ok(answer) => {
            let is_gateway = matches!(answer.status(), StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT);
            !is_gateway && answer.extensions().get::<Unclassified>().is_none()
        }
        Err(error) => is_unsent(&**error),
    }
}

/// Reports whether a request was never sent, because no connection was established.
fn is_unsent(error: &(dyn std::error::Error + 'static)) -> bool {
    let is_connect = |error: &(dyn std::error::Error + 'static)| {
        let error = error.downcast_ref::<hyper_util::client::legacy::Error>();
        error.is_some_and(hyper_util::client::legacy::Error::is_connect)
    };
    std::iter::successors(Some(error), |error| error.source()).any(is_connect)
}

/// The body of a response, whether it was read or not.
pub type AnswerBody<R> = Either<R, Full<Bytes>>;

/// Marks a response of 500 or 503 after which the request may still take effect.
#[derive(Clone, Copy, Debug)]
struct Unclassified;

/// The only parsed part of a `Status`.
#[derive(Default, Deserialize)]
struct Reason {
    #[serde(default)]
    reason: String,
}

/// Classifies a response of 500 or 503. With the reason `InternalError` the API server reports its own failures and
/// those of webhooks, before anything is stored. An error of etcd, which may have stored the object, has no reason or
/// another one (`ErrorToAPIStatus` in k8s.io/apiserver, `responsewriters/status.go`). The API server itself sends 503
/// with the reason `ServiceUnavailable`. Without it the 503 comes from a proxy, or from the aggregator for another API
/// server, whose connection has broken (`handler_proxy.go` in k8s.io/kube-aggregator).
pub(super) async fn classified<R>(answer: Response<R>) -> Result<Response<AnswerBody<R>>, BoxError>
where
    R: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let definite = match answer.status() {
        StatusCode::INTERNAL_SERVER_ERROR => "InternalError",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        _ => return Ok(answer.map(Either::Left)),
    };
    let (mut parts, body) = answer.into_parts();
    let body = Limited::new(body, LONGEST_FAILURE).collect().await?.to_bytes();
    let Reason { reason } = serde_json::from_slice(&body).unwrap_or_default();
    if reason != definite {
        parts.extensions.insert(Unclassified);
    }
    Ok(Response::from_parts(parts, Either::Right(Full::new(body))))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn of(status: u16, body: &str) -> (bool, Bytes) {
        let answer = Response::builder().status(status);
        let answer = classified(answer.body(Full::from(body.to_owned())).unwrap())
            .await
            .unwrap();
        let (parts, body) = answer.into_parts();
        let is_definite = is_definite(&Ok(Response::from_parts(parts, ())));
        (is_definite, body.collect().await.unwrap().to_bytes())
    }

    #[tokio::test]
    async fn a_failure_of_the_store_is_no_answer_and_one_of_a_webhook_is() {
        let status = |reason: &str| {
            format!(r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"so",{reason}"code":500}}"#)
        };
        for (code, body, expected) in [
            (500, status(r#""reason":"InternalError","#), true),
            (500, status(""), false),
            (500, status(r#""reason":"ServerTimeout","#), false),
            (500, "Internal Server Error".to_owned(), false),
            (500, String::new(), false),
            (409, status(""), true),
            (503, status(r#""reason":"ServiceUnavailable","#), true),
            (503, status(""), false),
            (503, "no healthy upstream".to_owned(), false),
            (502, String::new(), false),
            (504, status(r#""reason":"Timeout","#), false),
        ] {
            let (is_definite, read) = of(code, &body).await;
            assert_eq!(is_definite, expected, "{code} {body}");
            assert_eq!(read, body, "who has asked reads all of it");
        }
    }

    #[tokio::test]
    async fn a_failure_without_end_is_not_read() {
        let answer = Response::builder()
            .status(500)
            .body(Full::from(vec![b'a'; LONGEST_FAILURE + 1]));
        let answer = classified(answer.unwrap()).await;
        assert!(!is_definite(&answer), "nothing is known");
    }
}
