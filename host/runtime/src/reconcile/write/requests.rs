//! Sends the write requests of a reconcile: each is recorded in the shared state before and after, and transient errors
//! are retried within the reconcile's time budget.

use std::time::Duration;

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::error::RequestError;
use pilothouse_cluster::object::CachedObject;
use pilothouse_cluster::write::{ApplyPrecondition, ApplyResponse, LiveObject};
use pilothouse_core::ownership::takeover;
use pilothouse_core::plugin::contract::Propagation;
use pilothouse_core::{Key, Name};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::context::HostContext;
use crate::lanes::lane::Lane;
use crate::lanes::primary::PrimaryRef;
use crate::reconcile::diff::{PlannedObject, key};
use crate::state::tables::echo::AwaitedEcho;

/// The most attempts of one request.
const TRIES: u32 = 3;

/// Time that one reconcile waits in all for a busy server. It keeps its worker meanwhile: other queued objects would
/// use the same server.
const PATIENCE: Duration = Duration::from_secs(10);

/// Wait before the second attempt if the server names none; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// The requests of one reconcile.
pub struct Requests<'a> {
    host: &'a HostContext,
    pub(in crate::reconcile) lane: &'a Lane,
    primary_ref: &'a PrimaryRef,
    deadline: Instant,
}

/// Number of attempts of one request.
#[derive(Default)]
pub struct Tries(u32);

impl<'a> Requests<'a> {
    /// Starts the time budget of a reconcile.
    pub fn new(host: &'a HostContext, lane: &'a Lane, primary_ref: &'a PrimaryRef) -> Self {
        Self {
            host,
            lane,
            primary_ref,
            deadline: Instant::now() + PATIENCE,
        }
    }

    /// Waits if a failed request is worth retrying now. Returns `false` otherwise.
    pub async fn pause_if_transient(&self, tries: &mut Tries, error: &RequestError) -> bool {
        error.may_pass() && self.pause(tries, error).await
    }

    /// Waits as long as the server asks. Returns `false` if there is no time left for that.
    async fn pause(&self, tries: &mut Tries, error: &RequestError) -> bool {
        tries.0 += 1;
        let pause = error
            .retry_after()
            .unwrap_or_else(|| FIRST_PAUSE * (1 << tries.0.saturating_sub(1)));
        if tries.0 >= TRIES || Instant::now() + pause > self.deadline {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }

    /// Reads an object live.
    pub async fn live(&self, served: &ServedKind, name: &Name) -> Result<Option<LiveObject>, RequestError> {
        self.with_retries(|| self.lane.writer.live(served, name)).await
    }

    /// Applies a desired object to a live one, which is ours. The apply is idempotent. Where the object yields fields, it is
    /// for the live version alone: another manager may have taken a field since.
    pub async fn apply(&self, step: &PlannedObject, live: &CachedObject) -> Result<ApplyResponse, RequestError> {
        if step.desired.yields.is_empty() {
            let target = ApplyPrecondition::Uid(&live.uid);
            return self.with_conflict_retries(|| self.apply_once(step, target)).await;
        }
        let target = ApplyPrecondition::Version(&live.uid, &live.resource_version);
        self.with_retries(|| self.apply_once(step, target)).await
    }

    /// Applies a desired object once; the caller handles the failure.
    pub async fn apply_once(
        &self,
        step: &PlannedObject,
        target: ApplyPrecondition<'_>,
    ) -> Result<ApplyResponse, RequestError> {
        self.apply_body(step, &step.sent(), target).await
    }

    /// Applies a part of a desired object once; the caller handles the failure.
    pub async fn apply_body(
        &self,
        step: &PlannedObject,
        body: &Map<String, Value>,
        target: ApplyPrecondition<'_>,
    ) -> Result<ApplyResponse, RequestError> {
        let (served, name) = (&step.desired.served, &step.desired.name);
        let request = self.lane.writer.apply(served, name, body, target);
        self.tracked(key(served, name), request, |applied| version(&applied.object))
            .await
    }

    /// Deletes a child. One that has changed since the cache saw it is read again: it must be the same object, and
    /// still have our entry. A child that another plugin applies, too, is left to that plugin.
    pub async fn delete(&self, served: &ServedKind, child: &CachedObject) -> Result<Deleted, RequestError> {
        if is_shared(self.lane, child) {
            let released = release_child(self.lane, served, child).await?;
            return Ok(if released { Deleted::Released } else { Deleted::Before });
        }
        self.delete_with(served, child, None).await
    }

    /// Deletes a child with this propagation policy for its dependents, or with the one that was applied.
    pub async fn delete_with(
        &self,
        served: &ServedKind,
        child: &CachedObject,
        propagation: Option<Propagation>,
    ) -> Result<Deleted, RequestError> {
        match self.delete_once(served, child, propagation).await {
            Ok(()) => return Ok(Deleted::Now),
            Err(error) if error.is_object_not_found() => return Ok(Deleted::Before),
            Err(error) if error.code() == Some(409) => {}
            Err(error) => return Err(error),
        }
        let Some(LiveObject { object, .. }) = self.live(served, &child.name).await? else {
            return Ok(Deleted::Before);
        };
        let same = object.uid == child.uid && object.controller == child.controller;
        if !same || object.deleting || object.entry(self.lane.writer.manager(), false).is_none() {
            return Ok(Deleted::Before);
        }
        if is_shared(self.lane, &object) {
            let released = release_child(self.lane, served, &object).await?;
            return Ok(if released { Deleted::Released } else { Deleted::Before });
        }
        match self.delete_once(served, &object, propagation).await {
            Ok(()) => Ok(Deleted::Now),
            Err(error) if error.is_object_not_found() => Ok(Deleted::Before),
            Err(error) => Err(error),
        }
    }

    async fn delete_once(
        &self,
        served: &ServedKind,
        child: &CachedObject,
        propagation: Option<Propagation>,
    ) -> Result<(), RequestError> {
        let writer = &self.lane.writer;
        self.with_retries(|| {
            let request = async {
                match propagation {
                    Some(propagation) => writer.delete_with(served, child, propagation).await,
                    None => writer.delete(served, child).await,
                }
            };
            let awaited = AwaitedEcho::Deletion(child.uid.clone());
            self.tracked(key(served, &child.name), request, |()| awaited)
        })
        .await
    }

    /// Sends a request that changes an object. `awaited` names the echo that the cache has to show before the primary
    /// runs again.
    pub async fn tracked<T>(
        &self,
        key: Key,
        request: impl Future<Output = Result<T, RequestError>>,
        awaited: impl FnOnce(&T) -> AwaitedEcho,
    ) -> Result<T, RequestError> {
        self.host.state.begin_write(key.clone(), self.primary_ref);
        self.host.traces.wrote(&key, self.primary_ref);
        let sent = request.await;
        let awaited = sent.as_ref().ok().map(awaited);
        self.host.state.end_write(key, awaited, self.primary_ref);
        sent
    }

    /// Sends an idempotent request, with retries.
    pub async fn with_retries<T, F: Future<Output = Result<T, RequestError>>>(
        &self,
        request: impl FnMut() -> F,
    ) -> Result<T, RequestError> {
        self.retry_while(RequestError::may_pass, request).await
    }

    /// Sends an idempotent request without precondition, with retries also on conflict: such a conflict is the server's
    /// own, after too many concurrent writes.
    pub async fn with_conflict_retries<T, F: Future<Output = Result<T, RequestError>>>(
        &self,
        request: impl FnMut() -> F,
    ) -> Result<T, RequestError> {
        self.retry_while(is_worth_insisting, request).await
    }

    async fn retry_while<T, F: Future<Output = Result<T, RequestError>>>(
        &self,
        is_worth_it: impl Fn(&RequestError) -> bool,
        mut request: impl FnMut() -> F,
    ) -> Result<T, RequestError> {
        let mut tries = Tries::default();
        loop {
            match request().await {
                Err(error) if is_worth_it(&error) && self.pause(&mut tries, &error).await => {}
                ended => return ended,
            }
        }
    }
}

fn is_worth_insisting(error: &RequestError) -> bool {
    error.may_pass() || (error.code() == Some(409) && !error.is_about_another_object())
}

/// Returns `true` if another plugin applies a child, too.
pub fn is_shared(lane: &Lane, child: &CachedObject) -> bool {
    child.appliers().any(|manager| manager != lane.writer.manager())
}

/// Releases a child that another plugin applies, too: no field changes, and the child is the other's alone. Returns
/// `false` if there is nothing to release.
pub async fn release_child(lane: &Lane, served: &ServedKind, child: &CachedObject) -> Result<bool, RequestError> {
    let live = lane.writer.live(served, &child.name).await?;
    let Some(LiveObject { object, managers }) = live.filter(|live| live.object.uid == child.uid) else {
        return Ok(false);
    };
    let Some(left) = takeover::give_up(&managers, lane.writer.manager()) else {
        return Ok(false);
    };
    lane.writer.set_managers(served, &object, left).await?;
    tracing::info!(
        lane = lane.title(),
        object = %child.name,
        kind = %served.kind,
        appliers = ?object.appliers().collect::<Vec<_>>(),
        "another plugin applies the object too; it stays, and is that plugin's"
    );
    Ok(true)
}

/// Result of deleting an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// The server accepted the request.
    Now,
    /// There was nothing to delete any more.
    Before,
    /// Another plugin applies it, so it stays.
    Released,
}

/// The version that the cache has to show.
pub fn version(object: &CachedObject) -> AwaitedEcho {
    AwaitedEcho::Version(object.resource_version.clone())
}
