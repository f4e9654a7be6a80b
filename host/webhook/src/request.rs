//! Handles one request: checks it, reserves its bytes, reads its body in bounded time, and writes the response.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use tokio::time::{Instant, timeout, timeout_at};

use crate::budget::{ByteBudget, ParsedMemory, Reservation, ReservedBody};
use crate::connections::{ReadingGuard, Slot};
use crate::handler::{MAX_BODY_BYTES, WebhookClient, WebhookHandler, WebhookRequest, WebhookResponse};
use crate::peers::FORWARDED_HEADER;

/// Bytes of a body that have to arrive per second, beside the time that even the smallest one has.
const BODY_BYTES_PER_SECOND: usize = 1024 * 1024;

/// Longest time that a request waits to be read, unless its client waits for less.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Context that all requests of one connection share.
pub struct ConnectionContext<H> {
    /// The handler.
    pub handler: Arc<H>,
    /// The slot of the connection.
    pub slot: Arc<Slot>,
    /// Bytes that the whole server may still hold.
    pub budget: Arc<ByteBudget>,
    /// Set if the client has presented a certificate, which was verified.
    pub is_certified: bool,
    /// Time that even the smallest body may take to arrive.
    pub body_timeout: Duration,
}

impl<H: WebhookHandler> ConnectionContext<H> {
    /// Answers one request.
    pub async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let received = Instant::now();
        let reading = ReadingGuard::begin(self.slot.clone());
        match self.read(request, received).await {
            Ok((question, reservation)) => {
                let _answering = reading.ends();
                let answer = self.handler.answer(question).await;
                // The bytes are held until the response is written, which a client can delay.
                response(answer, Some(reservation))
            }
            Err(answer) => response(answer, None),
        }
    }

    async fn read(
        &self,
        request: Request<Incoming>,
        received: Instant,
    ) -> Result<(WebhookRequest, Arc<Reservation>), WebhookResponse> {
        let path = request.uri().path().to_owned();
        check_form(&request)?;
        let forwards = request.headers().get(FORWARDED_HEADER);
        // A value that is not text proves nothing.
        let forwards = forwards.map(|proof| proof.to_str().unwrap_or_default());
        let is_forwarded = forwards.is_some();
        let client = WebhookClient {
            is_certified: self.is_certified,
            forwards,
        };
        self.handler.admits(&path, client)?;
        let Ok(declared) = declared_bytes(&request) else {
            // Most clients read no response before they have sent everything.
            let time = time_for(MAX_BODY_BYTES, self.body_timeout);
            tokio::spawn(timeout(time, discard(request.into_body())));
            return Err(too_large());
        };
        let waits = client_timeout(request.uri().query());
        let patience = waits.map_or(LONGEST_WAIT, |waits| waits.min(LONGEST_WAIT));
        // A body of unknown length counts as the largest.
        let bytes = declared.unwrap_or(MAX_BODY_BYTES);
        let reserved = timeout_at(
            received + patience,
            Reservation::make(&self.budget, &self.slot.budget, bytes),
        );
        let Ok(reservation) = reserved.await else {
            return Err(WebhookResponse::error(
                503,
                "too many requests are being read here at the same time; try again later",
            ));
        };
        let reservation = Arc::new(reservation);
        let time = time_for(bytes, self.body_timeout);
        let collected = timeout_at(Instant::now() + time, collect(request.into_body(), declared));
        let Ok(body) = collected.await else {
            let problem = format!("the question did not come within {time:?}");
            return Err(WebhookResponse::error(408, problem));
        };
        let body = body?;
        let body = Bytes::from_owner(ReservedBody::new(body, reservation.clone()));
        let question = WebhookRequest {
            path,
            timeout: waits,
            received: received.into_std(),
            is_certified: self.is_certified,
            is_forwarded,
            memory: ParsedMemory::new(self.budget.clone(), self.slot.budget.clone()),
            body,
        };
        Ok((question, reservation))
    }
}

fn check_form(request: &Request<Incoming>) -> Result<(), WebhookResponse> {
    if request.method() != Method::POST {
        return Err(WebhookResponse::error(405, "only POST is answered here"));
    }
    let kind = request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    if kind == "application/json" {
        Ok(())
    } else {
        Err(WebhookResponse::error(415, "only application/json is understood here"))
    }
}

/// Returns the length of a body, if the client declares it.
fn declared_bytes(request: &Request<Incoming>) -> Result<Option<usize>, WebhookResponse> {
    let hint = request.body().size_hint();
    if hint.lower() > MAX_BODY_BYTES as u64 {
        return Err(too_large());
    }
    Ok(hint.exact().and_then(|bytes| usize::try_from(bytes).ok()))
}

fn too_large() -> WebhookResponse {
    WebhookResponse::error(413, format!("the question has more than {MAX_BODY_BYTES} bytes"))
}

/// Returns the time that the bytes of a body may take to arrive.
fn time_for(bytes: usize, at_least: Duration) -> Duration {
    at_least + Duration::from_millis((bytes * 1000 / BODY_BYTES_PER_SECOND) as u64)
}

/// Reads a body to its end and discards it.
async fn discard(mut body: Incoming) {
    while let Some(Ok(_)) = body.frame().await {}
}

/// Reads a body into one piece of memory, which does not grow beyond the reservation.
async fn collect(mut body: Incoming, declared: Option<usize>) -> Result<Vec<u8>, WebhookResponse> {
    let mut bytes = Vec::with_capacity(declared.unwrap_or_default());
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| WebhookResponse::error(400, format!("the question cannot be read: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > declared.unwrap_or(MAX_BODY_BYTES) {
            return Err(too_large());
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

/// Returns the client's timeout, as API servers write it, or in milliseconds as other replicas do.
fn client_timeout(query: Option<&str>) -> Option<Duration> {
    let text = query?.split('&').find_map(|pair| pair.strip_prefix("timeout="))?;
    match text.strip_suffix("ms") {
        Some(milliseconds) => milliseconds.parse().ok().map(Duration::from_millis),
        None => text.strip_suffix('s')?.parse().ok().map(Duration::from_secs),
    }
}

fn response(answer: WebhookResponse, reservation: Option<Arc<Reservation>>) -> Response<Full<Bytes>> {
    let kind = if answer.code == 200 {
        "application/json"
    } else {
        "text/plain; charset=utf-8"
    };
    let bytes = answer.body.into_bytes();
    let body = match reservation {
        Some(reservation) => Bytes::from_owner(ReservedBody::new(bytes, reservation)),
        None => Bytes::from(bytes),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_a_client_waits_is_read() {
        assert_eq!(client_timeout(Some("timeout=5s")), Some(Duration::from_secs(5)));
        assert_eq!(client_timeout(Some("a=b&timeout=30s")), Some(Duration::from_secs(30)));
        assert_eq!(
            client_timeout(Some("timeout=1500ms")),
            Some(Duration::from_millis(1500))
        );
        assert_eq!(client_timeout(Some("timeout=soon")), None);
        assert_eq!(client_timeout(None), None);
    }

    #[test]
    fn a_small_body_has_to_come_sooner_than_a_large_one() {
        let at_least = Duration::from_secs(2);
        assert_eq!(time_for(100, at_least), at_least);
        assert_eq!(time_for(MAX_BODY_BYTES, at_least), Duration::from_secs(10));
    }
}
