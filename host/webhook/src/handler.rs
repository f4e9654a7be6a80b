//! Requests to the webhook server and their answers, for whoever handles them.

use std::time::Duration;

use bytes::Bytes;

use crate::budget::ParsedMemory;

/// Largest request body: an API server accepts objects of 3 MiB, and sends the old one too.
pub const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;

/// Request.
#[derive(Debug)]
pub struct WebhookRequest {
    /// The path, without the query.
    pub path: String,
    /// The client's timeout, if it sends one: `?timeout=5s`.
    pub timeout: Option<Duration>,
    /// Time at which the head of the request was read: the client waits since then.
    pub received: std::time::Instant,
    /// Set if the client has presented a certificate, which was verified.
    pub is_certified: bool,
    /// Set if another replica has forwarded it, with a proof that [`WebhookHandler::admits`] has accepted.
    pub is_forwarded: bool,
    /// Memory for parsing it.
    pub memory: ParsedMemory,
    /// The body. Its bytes count until the last copy is dropped, so code that still needs them keeps a copy.
    pub body: Bytes,
}

/// Facts about a client before its body is read.
#[derive(Clone, Copy, Debug)]
pub struct WebhookClient<'a> {
    /// Set if it has presented a certificate, which was verified.
    pub is_certified: bool,
    /// Its proof that it is another replica, which forwards a review; none if it does not claim to be one.
    pub forwards: Option<&'a str>,
}

/// Response.
#[derive(Debug, PartialEq, Eq)]
pub struct WebhookResponse {
    /// The HTTP status code.
    pub code: u16,
    /// JSON if the code is 200, else plain text.
    pub body: String,
}

impl WebhookResponse {
    /// Returns a response of JSON.
    pub fn json(body: String) -> Self {
        Self { code: 200, body }
    }

    /// Returns an error with a message.
    pub fn error(code: u16, body: impl Into<String>) -> Self {
        Self {
            code,
            body: body.into(),
        }
    }
}

/// Handles requests.
pub trait WebhookHandler: Send + Sync + 'static {
    /// Checks whether a client may send requests to this path at all, before the body is read.
    fn admits(&self, path: &str, client: WebhookClient<'_>) -> Result<(), WebhookResponse> {
        let _ = (path, client);
        Ok(())
    }

    /// Answers one request.
    fn answer(&self, question: WebhookRequest) -> impl Future<Output = WebhookResponse> + Send;
}
