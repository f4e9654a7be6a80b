//! Sends one request to the API server, within the time that each may take.

use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use kube::core::response::StatusDetails;

use crate::apart::weigh;
use crate::error::RequestError;

/// The time-out of one request, including the response.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Sends a request and reads the whole response, within [`REQUEST_TIMEOUT`].
pub(crate) async fn send(client: &Client, request: Request<Body>) -> Result<(StatusCode, String), RequestError> {
    let exchange = async {
        let response = client.send(request).await?;
        let status = response.status();
        let retry_after = response.headers().get(http::header::RETRY_AFTER).cloned();
        let body = response.into_body().collect().await.map_err(RequestError::from)?;
        let text =
            String::from_utf8(body.to_bytes().into()).map_err(|error| RequestError::Garbled(error.to_string()))?;
        weigh(text.len()).await;
        if status.is_success() {
            return Ok((status, text));
        }
        let mut answer: Status = serde_json::from_str(&text).unwrap_or_else(|_| {
            let mut answer = Status::default();
            answer.message.clone_from(&text);
            answer
        });
        answer.code = status.as_u16();
        // An overloaded server reports the delay in the header only, with a body that is no Status.
        if let Some(seconds) = retry_after.and_then(|seconds| seconds.to_str().ok()?.parse().ok()) {
            let details = answer.details.get_or_insert_with(|| StatusDetails {
                name: String::new(),
                group: String::new(),
                kind: String::new(),
                uid: String::new(),
                causes: Vec::new(),
                retry_after_seconds: 0,
            });
            details.retry_after_seconds = details.retry_after_seconds.max(seconds);
        }
        Err(RequestError::Answered(Box::new(answer)))
    };
    tokio::time::timeout(REQUEST_TIMEOUT, exchange)
        .await
        .unwrap_or(Err(RequestError::Silent(REQUEST_TIMEOUT)))
}
