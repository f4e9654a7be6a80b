//! Sends the requests that settle a target, and classifies the responses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::error::RequestError;
use pilothouse_cluster::object::CachedObject;
use pilothouse_cluster::write::{ApplyPrecondition, LiveObject};
use pilothouse_core::contribution::{Claim, HeldField, Leaves, assemble, conflicting};
use pilothouse_core::diff::emptied::{ApplyManager, Emptied};
use pilothouse_core::status::reason::Reason;
use pilothouse_core::text::printable::first_few;
use pilothouse_core::{Failure, Retry};
use serde_json::{Map, Value, json};

use super::settle::TargetReconcile;
use crate::lanes::primary::PrimaryRef;

/// Number of attempts of a request if the cluster has problems.
const TRIES: u32 = 3;

/// Time between attempts.
const BETWEEN_TRIES: Duration = Duration::from_millis(200);

/// Result of an attempt.
pub enum SendResult {
    /// All is held.
    Held,
    /// Other managers hold fields of these claims.
    Conflict(BTreeMap<PrimaryRef, Failure>),
    /// The server rejects the body.
    Refused(String, Box<Failure>),
    /// The target is not as expected; its state has been read anew.
    Outdated,
    /// Failure that time may help, and the minimum wait.
    Trouble(Box<Failure>, Duration),
}

impl TargetReconcile {
    /// Sends what has to be tried, unless it is already held.
    pub async fn attempt(
        &mut self,
        candidates: &BTreeMap<PrimaryRef, Claim>,
        tried: &BTreeSet<PrimaryRef>,
    ) -> SendResult {
        let desired = self.desired(candidates, tried);
        if desired == self.held || self.look.unpersisted == Some(self.unpersisted(&desired)) {
            return SendResult::Held;
        }
        let mut tries = 0;
        loop {
            tries += 1;
            match self.send(&desired).await {
                Ok(object) => {
                    // One manager for all controllers of a plugin: the lane that sends is not the one that claims.
                    let claimants: Vec<&str> = tried.iter().map(|claimant| &*self.look.titles[claimant]).collect();
                    tracing::info!(
                        plugin = &*self.look.lane.plugin,
                        object = self.look.title,
                        claims = tried.len(),
                        claimants = first_few(claimants.into_iter()),
                        fields = desired.len(),
                        "contributed"
                    );
                    self.wrote = true;
                    self.know(Some(Arc::new(object)));
                    let unpersisted = self.unpersisted(&desired);
                    self.look.unpersisted = (desired != self.held).then_some(unpersisted);
                    return SendResult::Held;
                }
                Err(error) => {
                    let sent = self.judge(error, candidates, tried).await;
                    match sent {
                        SendResult::Trouble(_, wait) if tries < TRIES && wait.is_zero() => {
                            tokio::time::sleep(BETWEEN_TRIES).await;
                        }
                        sent => return sent,
                    }
                }
            }
        }
    }

    async fn send(&self, desired: &Leaves) -> Result<CachedObject, RequestError> {
        let live = self
            .look
            .live
            .as_ref()
            .expect("a target that is missing is an obstacle");
        let mut body = assemble(desired);
        let emptied = self.empty(live, &body).await?;
        let place = json!({
            "name": &*live.name.name,
            "uid": &*live.uid,
            "resourceVersion": &*emptied.as_ref().unwrap_or(live).resource_version,
        });
        let metadata = body.entry("metadata").or_insert_with(|| json!({}));
        if let (Value::Object(metadata), Value::Object(place)) = (metadata, place) {
            metadata.extend(place);
            if let Some(namespace) = &live.name.namespace {
                metadata.insert("namespace".to_owned(), json!(&**namespace));
            }
        }
        body.insert("apiVersion".to_owned(), json!(self.key_kind().api_version()));
        body.insert("kind".to_owned(), json!(self.key_kind().kind));
        let writer = &self.look.lane.contributor;
        let applied = writer
            .apply(&self.look.served, &live.name, &body, ApplyPrecondition::AsInBody)
            .await?;
        Ok(applied.object)
    }

    /// Empties the members that the apply of a body would turn into null; `None` if there are none.
    async fn empty(
        &self,
        live: &CachedObject,
        body: &Map<String, Value>,
    ) -> Result<Option<CachedObject>, RequestError> {
        let writer = &self.look.lane.contributor;
        let ours = live.entry(writer.manager(), false).map(|entry| entry.field_set());
        if !ours.is_some_and(|ours| Emptied::Objects.is_in(body, &ours)) {
            return Ok(None);
        }
        let now = writer.live(&self.look.served, &live.name).await?;
        let Some(LiveObject { object, managers }) =
            now.filter(|now| now.object.resource_version == live.resource_version)
        else {
            return Ok(None);
        };
        let manager = ApplyManager {
            name: writer.manager(),
            subresource: None,
            api_version: &self.key_kind().api_version(),
        };
        let operations = Emptied::Objects.operations_by(&manager, body, &object.value(), &managers);
        if operations.is_empty() {
            return Ok(None);
        }
        match writer
            .replace_values(&self.look.served, &object, None, operations)
            .await
        {
            Ok(emptied) => Ok(Some(emptied)),
            // The object has changed meanwhile, or must not be empty: the apply, which is for the same version, tells
            // which.
            Err(error) if matches!(error.code(), Some(409 | 422)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn key_kind(&self) -> &pilothouse_core::Kind {
        &self.look.key.kind
    }

    /// Classifies an error, and attributes it to claims.
    async fn judge(
        &mut self,
        error: RequestError,
        candidates: &BTreeMap<PrimaryRef, Claim>,
        tried: &BTreeSet<PrimaryRef>,
    ) -> SendResult {
        let theirs = error.held_by_others();
        let wait = error.retry_after().unwrap_or_default();
        let title = self.look.title.clone();
        if error.is_not_found() {
            self.know(None);
            return SendResult::Outdated;
        }
        if !theirs.is_empty() {
            let claims = candidates
                .iter()
                .filter(|(primary_ref, _)| tried.contains(*primary_ref));
            let conflicts: BTreeMap<_, _> = conflicting(claims, &theirs)
                .into_iter()
                .map(|(primary_ref, field)| (primary_ref, held_elsewhere(&title, field)))
                .collect();
            if conflicts.is_empty() {
                return SendResult::Refused(error.to_string(), Box::new(held_elsewhere(&title, &theirs[0])));
            }
            return SendResult::Conflict(conflicts);
        }
        if error.code() == Some(409) {
            let writer = self.look.lane.contributor.clone();
            return match writer.live(&self.look.served, &self.look.key.name).await {
                Ok(live) => {
                    self.know(live.map(|live| Arc::new(live.object)));
                    SendResult::Outdated
                }
                Err(error) => SendResult::Trouble(Box::new(error.into_failure("look at", &title)), wait),
            };
        }
        let words = error.to_string();
        let failure = error.into_failure("contribute to", &title);
        match failure.retry {
            Retry::Change => SendResult::Refused(words, Box::new(failure)),
            Retry::Backoff => SendResult::Trouble(Box::new(failure), wait),
        }
    }
}

fn held_elsewhere(title: &str, field: &HeldField) -> Failure {
    let HeldField { manager, path } = field;
    let problem = format!(
        "{path} of {title} is held by {manager:?} and stays with it; remove the field from that manager, or contribute another field"
    );
    Failure::cluster(Reason::FieldConflict, problem).retry(Retry::Change)
}
