//! Webhook calls in the course of one request. A request is carried out under the cluster's lock, where nothing can be
//! awaited. Where an answer is missing, the request is abandoned before it has changed anything, the webhook is called
//! without the lock, and the request starts again, as a real server retries after a conflict.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::random::Random;

/// One call of a webhook: its request and its address.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    /// The webhook's `clientConfig`.
    pub(crate) client: Value,
    pub(crate) timeout: Duration,
    /// The review.
    pub(crate) body: Value,
    key: u64,
}

/// Response of a webhook, or the error in the server's words.
pub(crate) type Reply = Result<Value, String>;

/// The questions of one request.
#[derive(Debug, Default)]
pub(crate) struct Consultation {
    replies: HashMap<u64, Reply>,
    open: Option<Question>,
    warnings: Vec<String>,
}

impl Consultation {
    /// The question for which the request was given up.
    pub(crate) fn open(&mut self) -> Option<Question> {
        self.open.take()
    }

    /// Remembers a reply for when the request comes by again.
    pub(crate) fn learn(&mut self, question: &Question, reply: Reply) {
        self.replies.insert(question.key, reply);
        self.warnings.clear();
    }

    /// Returns the warnings of webhooks; each once.
    pub(crate) fn warnings(self) -> Vec<String> {
        self.warnings
    }

    pub(super) fn warn(&mut self, warnings: Vec<String>) {
        for warning in warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }

    /// Returns the reply to a review, with the review's uid. A failure abandons the attempt; no client sees it.
    pub(super) fn ask(
        &mut self,
        client: &Value,
        timeout: Duration,
        mut body: Value,
    ) -> Result<(String, Reply), Failure> {
        let mut hasher = DefaultHasher::new();
        (client.to_string(), body.to_string()).hash(&mut hasher);
        let key = hasher.finish();
        let uid = Random::new(key).uid();
        if let Some(reply) = self.replies.get(&key) {
            return Ok((uid, reply.clone()));
        }
        body["request"]["uid"] = json!(uid);
        self.open = Some(Question {
            client: client.clone(),
            timeout,
            body,
            key,
        });
        Err(Failure::internal("the request waits for a webhook"))
    }
}
