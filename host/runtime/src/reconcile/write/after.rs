//! Holds an object back until the objects that it comes after are Current, and the deletion of these until it is gone.
//!
//! The cache knows why an object is not Current, so that this makes no request, and whoever waits is woken by each change of what it
//! waits for. An object that is recreated takes with it what comes after it, if that may be recreated by its own lifecycle. Anything else
//! stays, and is not changed before its predecessor is Current again: a migration that is recreated does not take down the workload that
//! comes after it.

use std::fmt::Write as _;
use std::sync::Arc;

use pilothouse_cluster::object::CachedObject;
use pilothouse_core::diff::order::last_after;
use pilothouse_core::{Failure, Key};

use crate::queue::WrittenBody;
use crate::reconcile::apply::{PlanExecution, waiting};
use crate::reconcile::diff::PlannedObject;
use crate::reconcile::write::order::Follower;
use crate::state::LeftChild;

/// The most waiting objects that a message names.
const NAMED_WAITS: usize = 5;

impl PlanExecution<'_> {
    /// Remembers a desired object as it is now: others may come after it.
    pub(in crate::reconcile) fn remember_made(
        &mut self,
        step: &PlannedObject,
        object: impl FnOnce() -> Arc<CachedObject>,
    ) {
        if let Some(made) = &mut self.order.made {
            made.insert(step.key(), (step.desired.served.clone(), object()));
        }
    }

    /// Returns the failure of a step that has to wait for an object that it comes after.
    pub(in crate::reconcile) fn wait_for_others(&mut self, step: &PlannedObject) -> Result<(), Failure> {
        for predecessor in step.desired.after.iter().filter(|_| step.waits(self.lane)) {
            let why = match self.order.made(predecessor) {
                None if self.once.gone(predecessor) == Some(true) => continue,
                None if self.once.gone(predecessor).is_some() => {
                    "gone and was not seen to be Current; give it another token to have it made again"
                }
                // It has failed or waits itself; whatever ends that wakes the primary.
                None => "not as desired yet",
                Some((served, made)) => {
                    let Some(pending) = made.pending() else { continue };
                    let state = &self.host.state;
                    state.depend_on_obstacle(self.primary_ref, served, &made.name, Some(made));
                    pending
                }
            };
            let title = step.desired.title();
            let verb = if step.live.is_some() { "changed" } else { "made" };
            let message = format!("{title} is {verb} once {predecessor} is Current, which is {why}");
            self.order.waits.push(message.clone());
            return Err(waiting(message));
        }
        Ok(())
    }

    /// Deletes the objects that come after one that is to be recreated, from the last one on, if they may be recreated, too. The
    /// failure says that some of them exist.
    pub(in crate::reconcile) async fn delete_followers(&mut self, step: &PlannedObject) -> Result<(), Failure> {
        // One that is made once for another token is a step of its own, and goes alone.
        if step.desired.once.is_some() {
            return Ok(());
        }
        let followers = &self.order.followers;
        let after: Vec<(Key, Vec<Key>)> = followers.iter().map(|it| (it.key.clone(), it.after.clone())).collect();
        let first = step.key();
        let last = last_after(&first, &after);
        let last = followers.iter().filter(|it| last.contains(&&it.key));
        let last: Vec<Follower> = last.cloned().collect();
        let Some(first) = last.first() else { return Ok(()) };
        for Follower { served, live, key, .. } in &last {
            let state = &self.host.state;
            state.depend_on_obstacle(self.primary_ref, served, &live.name, Some(live));
            if live.deleting {
                continue;
            }
            let deleted = self.requests.delete(served, live).await;
            deleted.map_err(|error| error.into_failure("delete", &key.to_string()))?;
            self.applied.writes.record(key, WrittenBody::Gone);
            tracing::info!(
                lane = self.lane.title(), owner = %self.primary_ref.name, object = %key, first = step.desired.title(),
                "deleted the object, because one that it comes after is recreated"
            );
        }
        Err(waiting(format!(
            "{} is deleted and made anew once {} is gone, which comes after it",
            step.desired.title(),
            first.key
        )))
    }

    /// Records the failure of a step. That of one that waits is recorded at the end: what cannot be made says more.
    pub(in crate::reconcile) fn fail_step(&mut self, failure: Failure) {
        if self.order.waits.last() != Some(&failure.message) {
            self.applied.fail(failure);
        }
    }

    /// Leaves objects that are no longer desired, each while one that comes after it exists, and reports all objects that wait.
    /// The primary runs again once one that is waited for changes.
    pub(in crate::reconcile) fn leave_for_later(&mut self, later: &[(LeftChild, LeftChild)]) {
        for ((served, child), (first_served, first)) in later {
            let state = &self.host.state;
            state.depend_on_obstacle(self.primary_ref, first_served, &first.name, Some(first));
            self.order.waits.push(format!(
                "{} {} is no longer desired, and is deleted once {} {} is gone, which comes after it",
                served.kind.kind, child.name, first_served.kind.kind, first.name
            ));
        }
        let waits = &self.order.waits;
        let (named, more) = waits.split_at(waits.len().min(NAMED_WAITS));
        let mut message = named.join("; ");
        if !more.is_empty() {
            let _ = write!(message, "; and {} more wait", more.len());
        }
        if !waits.is_empty() {
            self.applied.fail(waiting(message));
        }
    }
}
