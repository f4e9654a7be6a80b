//! Requests to the webhook server and their answers, for whoever handles them.

use crate::budget::ParsedMemory;
use bytes::Bytes;
use std::time::Duration;

/// The largest question: an API server takes objects of 3 MiB, and sends the old one too.
pub const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;

/// A question.
#[derive(Debug)]
pub struct WebhookRequest {
    /// The path, without the query.
    pub path: String,
    /// How long the client waits, if it says so: `?timeout=5s`.
    pub timeout: Option<Duration>,
    /// When the head of the request was there: the client waits since then.
    pub received: std::time::Instant,
    /// Whether the client has shown a certificate, which was verified.
    pub is_certified: bool,
    /// Whether another replica has forwarded it: [`WebhookHandler::admits`] has taken its proof.
    pub is_forwarded: bool,
    /// The memory for parsing it.
    pub memory: ParsedMemory,
    /// What is asked. The server counts its bytes until the last copy of it is dropped, so whoever works on it keeps it.
    pub body: Bytes,
}

/// What is known of a client before its question is read.
#[derive(Clone, Copy, Debug)]
pub struct WebhookClient<'a> {
    /// Whether it has shown a certificate, which was verified.
    pub is_certified: bool,
    /// What it says to prove that it is another replica, which forwards what it was asked; none: it does not say so.
    pub forwards: Option<&'a str>,
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub struct WebhookResponse {
    /// The HTTP status code.
    pub code: u16,
    /// JSON where the code is 200, else words.
    pub body: String,
}

impl WebhookResponse {
    /// An answer of JSON.
    pub fn json(body: String) -> Self {
        Self { code: 200, body }
    }

    /// Words about what went wrong.
    pub fn error(code: u16, body: impl Into<String>) -> Self {
        Self {
            code,
            body: body.into(),
        }
    }
}

/// Who answers.
pub trait WebhookHandler: Send + Sync + 'static {
    /// Whether a client may ask at this path at all, before its question is read.
    fn admits(&self, path: &str, client: WebhookClient<'_>) -> Result<(), WebhookResponse> {
        let _ = (path, client);
        Ok(())
    }

    /// Answers one question.
    fn answer(&self, question: WebhookRequest) -> impl Future<Output = WebhookResponse> + Send;
}
