//! Owns the fifth stage: the plan is carried out. Makes requests. A failure of one object does not keep the others from
//! being applied, but nothing is pruned then.

use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::discovery::Served;
use pilothouse_cluster::error::RequestError;
use pilothouse_cluster::object::Stored;
use pilothouse_cluster::write::Force;
use pilothouse_core::answer::Answer;
use pilothouse_core::dependencies::Read;
use pilothouse_core::diff::{Action, Difference, Owner};
use pilothouse_core::failure::reason;
use pilothouse_core::{Failure, Key, Retry};
use tokio::time::Instant;

use super::diff::{Planned, Step};
use crate::contribute::{Contributed, Turn, contribute};
use crate::hub::{Awaited, Hub, Odd, Reader};
use crate::lane::Lane;

/// What was done, and what can be reported of it.
pub struct Applied {
    /// The plugin's answer; none when there was none to carry out.
    pub answer: Option<Answer>,
    /// The first failure.
    pub failure: Option<Failure>,
    /// Requests that changed something.
    pub writes: u32,
    /// What the server does not keep of what is desired, for the author.
    pub not_kept: Vec<String>,
    /// When time alone would change the answer, in milliseconds since the epoch.
    pub wake_at: Option<u64>,
    /// The turn to go on, where the object had to wait for others.
    pub turn: Option<Turn>,
}

impl Applied {
    /// Nothing was done, because of a failure before.
    pub fn nothing(failure: Failure) -> Self {
        Self {
            answer: None,
            failure: Some(failure),
            writes: 0,
            not_kept: Vec::new(),
            wake_at: None,
            turn: None,
        }
    }

    /// When the object has to run again if nothing changes.
    pub fn again(&self, hub: &Hub) -> Option<Instant> {
        let asked = self.answer.as_ref().and_then(|answer| answer.requeue_after);
        let moment = self.wake_at.map(|moment| moment.saturating_sub(hub.clock.now()).max(1));
        let wait = [asked, moment].into_iter().flatten().min()?;
        Some(Instant::now() + Duration::from_millis(wait))
    }

    fn fail(&mut self, failure: Failure) {
        // What time can help with is worth another try, even if something else waits for a change.
        match &self.failure {
            Some(first) if first.retry == Retry::Backoff || failure.retry == Retry::Change => {}
            _ => self.failure = Some(failure),
        }
    }
}

/// Carries the plan out.
///
/// Without the primary, nothing is desired, and there is nothing to contribute.
pub async fn apply(
    hub: &Arc<Hub>,
    lane: &Arc<Lane>,
    reader: &Reader,
    primary: Option<&Stored>,
    planned: Planned,
) -> Applied {
    let Planned {
        steps,
        prune,
        mut answer,
        owner,
        wake_at,
        attempt,
    } = planned;
    let contributed = std::mem::take(&mut answer.contributed);
    let mut applied = Applied {
        answer: Some(answer),
        failure: None,
        writes: 0,
        not_kept: Vec::new(),
        wake_at,
        turn: None,
    };
    for step in &steps {
        let result = match &step.action {
            Action::Nothing => {
                remember_what_is_not_kept(hub, step, &mut applied);
                Ok(())
            }
            Action::Create => create(hub, lane, reader, step, &owner, attempt, &mut applied).await,
            Action::Apply(difference) => update(hub, lane, reader, step, difference, &mut applied).await,
            Action::Foreign => {
                mind(hub, reader, step);
                Err(foreign(step))
            }
            Action::Wait => {
                mind(hub, reader, step);
                Err(Failure::cluster(
                    reason::WAITING,
                    format!(
                        "{} is being deleted; it is made again once it is gone",
                        step.desired.title()
                    ),
                )
                .retry(Retry::Change))
            }
        };
        if let Err(failure) = result {
            applied.fail(failure);
        }
    }
    if let Some(primary) = primary {
        let Contributed { failures, wrote, turn } = contribute(hub, lane, reader, primary, contributed).await;
        applied.turn = turn;
        applied.writes += u32::from(wrote);
        for failure in failures {
            applied.fail(failure);
        }
    }
    if applied.failure.is_none() {
        for (served, child) in prune {
            if let Err(failure) = delete(hub, lane, reader, &served, &child, &mut applied).await {
                applied.fail(failure);
            }
        }
    }
    applied
}

fn foreign(step: &Step) -> Failure {
    Failure::cluster(
        reason::FOREIGN_OBJECT,
        format!(
            "{} exists and belongs to somebody else; it is left alone: delete or rename it, or rename this object",
            step.desired.title()
        ),
    )
    .retry(Retry::Change)
}

/// Depends on an object that stands in the way.
fn mind(hub: &Hub, reader: &Reader, step: &Step) {
    let read = Read::Obstacle(step.served.kind.clone(), step.desired.name.clone());
    hub.state.write().dependencies.add(reader, read);
}

fn key(step: &Step) -> Key {
    Key::new(step.served.kind.clone(), step.desired.name.clone())
}

async fn create(
    hub: &Hub,
    lane: &Lane,
    reader: &Reader,
    step: &Step,
    owner: &Owner,
    attempt: u32,
    applied: &mut Applied,
) -> Result<(), Failure> {
    let title = step.desired.title();
    // An earlier try may have made the object without our hearing of it; then it is not unexpected.
    let mut known = None;
    if attempt > 0 {
        let live = lane.writer.live(&step.served, &step.desired.name).await;
        known = live.map_err(|error| error.into_failure("look for", &title))?;
        let ours = |object: &Stored| object.controller.as_ref().is_some_and(|it| *it.uid == *owner.uid);
        if known.as_ref().is_some_and(|object| !ours(object)) {
            mind(hub, reader, step);
            return Err(foreign(step));
        }
    }
    let force = if known.is_some() { Force::Yes } else { Force::No };
    let sent = send(hub, lane, reader, step, force).await;
    let (created, object) = match sent {
        Ok(sent) => sent,
        // Another manager holds a field of an object that, as far as we know, did not exist.
        Err(error) if error.code() == Some(409) && force == Force::No && error.reason() == Some("Conflict") => {
            mind(hub, reader, step);
            return Err(foreign(step));
        }
        Err(error) => return Err(error.into_failure("create", &title)),
    };
    applied.writes += 1;
    if !created && known.is_none() {
        tracing::warn!(
            lane = lane.title(),
            object = title,
            "found an object where none was known; withdrawing"
        );
        let withdrawn = lane
            .writer
            .withdraw(&step.served, &step.desired.name, &object.uid)
            .await;
        withdrawn.map_err(|error| error.into_failure("withdraw from", &title))?;
        mind(hub, reader, step);
        return Err(foreign(step));
    }
    tracing::info!(lane = lane.title(), owner = %reader.name, object = title, "created");
    note_what_is_not_kept(hub, lane, step, &object, applied);
    Ok(())
}

async fn update(
    hub: &Hub,
    lane: &Lane,
    reader: &Reader,
    step: &Step,
    difference: &Difference,
    applied: &mut Applied,
) -> Result<(), Failure> {
    let title = step.desired.title();
    let (_, object) = send(hub, lane, reader, step, Force::Yes)
        .await
        .map_err(|error| error.into_failure("apply", &title))?;
    applied.writes += 1;
    match difference {
        Difference::Drift(fields) => {
            tracing::info!(lane = lane.title(), owner = %reader.name, object = title, ?fields, "reverted drift");
        }
        Difference::Desired | Difference::ApiVersion => {
            tracing::info!(lane = lane.title(), owner = %reader.name, object = title, "updated");
        }
    }
    note_what_is_not_kept(hub, lane, step, &object, applied);
    Ok(())
}

async fn send(
    hub: &Hub,
    lane: &Lane,
    reader: &Reader,
    step: &Step,
    force: Force,
) -> Result<(bool, Stored), RequestError> {
    hub.state.write().begin_write(key(step));
    let sent = lane
        .writer
        .apply(&step.served, &step.desired.name, &step.body, force)
        .await;
    let awaited = sent
        .as_ref()
        .ok()
        .map(|sent| Awaited::Version(sent.object.resource_version.clone()));
    hub.state.write().end_write(key(step), awaited, reader);
    sent.map(|sent| (sent.created, sent.object))
}

async fn delete(
    hub: &Hub,
    lane: &Lane,
    reader: &Reader,
    served: &Served,
    child: &Stored,
    applied: &mut Applied,
) -> Result<(), Failure> {
    let title = format!("{} {}", served.kind.kind, child.name);
    let key = Key::new(served.kind.clone(), child.name.clone());
    hub.state.write().begin_write(key.clone());
    let deleted = lane.writer.delete(served, child).await;
    let awaited = deleted.is_ok().then(|| Awaited::Deletion(child.uid.clone()));
    hub.state.write().end_write(key, awaited, reader);
    match deleted {
        Ok(()) => {
            applied.writes += 1;
            tracing::info!(lane = lane.title(), owner = %reader.name, object = title, "pruned");
            Ok(())
        }
        // Somebody was faster.
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error.into_failure("delete", &title)),
    }
}

/// What the walk misses right after our own apply, the server does not keep: it is remembered, so that it costs one
/// request and not one for each reconcile.
fn note_what_is_not_kept(hub: &Hub, lane: &Lane, step: &Step, object: &Stored, applied: &mut Applied) {
    let entry = object.entry(lane.writer.manager(), false);
    let missing = entry
        .map(|entry| entry.field_set().missing(&step.body))
        .unwrap_or_default();
    let mut state = hub.state.write();
    if missing.is_empty() {
        state.odd.remove(&key(step));
        return;
    }
    let left = entry.map(|entry| entry.fields().into()).unwrap_or_default();
    state.odd.insert(
        key(step),
        Odd {
            digest: step.digest.as_str().into(),
            left,
        },
    );
    drop(state);
    name_what_is_not_kept(step, &missing, applied);
}

/// The same for an object that was left alone because of that memory.
fn remember_what_is_not_kept(hub: &Hub, step: &Step, applied: &mut Applied) {
    let state = hub.state.read();
    let Some(odd) = state.odd.get(&key(step)) else { return };
    let set: pilothouse_core::fields::FieldSet = serde_json::from_str(&odd.left).unwrap_or_default();
    drop(state);
    name_what_is_not_kept(step, &set.missing(&step.body), applied);
}

fn name_what_is_not_kept(step: &Step, missing: &[String], applied: &mut Applied) {
    applied
        .not_kept
        .extend(missing.iter().map(|path| format!("{path} of {}", step.desired.title())));
}
