//! Holds an object back until the objects that it comes after are Current, and the deletion of these until it is gone. Makes no
//! request: the cache knows why an object is not Current, and whoever waits is woken by each change of what it waits for.

use std::sync::Arc;

use pilothouse_cluster::object::CachedObject;
use pilothouse_core::Failure;

use crate::reconcile::apply::{PlanExecution, waiting};
use crate::reconcile::diff::{PlannedObject, key};
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
        let served = &step.desired.served;
        if let Some(made) = &mut self.made {
            made.insert(key(served, &step.desired.name), (served.clone(), object()));
        }
    }

    /// Returns the failure of a step that has to wait for an object that it comes after.
    pub(in crate::reconcile) fn wait_for_others(&mut self, step: &PlannedObject) -> Result<(), Failure> {
        for predecessor in step.desired.after.iter().filter(|_| step.waits()) {
            let made = self.made.as_ref().and_then(|made| made.get(predecessor));
            let why = match made {
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
            self.waits.push(message.clone());
            return Err(waiting(message));
        }
        Ok(())
    }

    /// Names all objects that wait for others where one of them decides.
    pub(in crate::reconcile) fn name_waits(&mut self) {
        let first = self.waits.first();
        if let Some(failure) = self
            .applied
            .failure
            .as_mut()
            .filter(|failure| Some(&failure.message) == first)
        {
            let (named, more) = self.waits.split_at(self.waits.len().min(NAMED_WAITS));
            failure.message = named.join("; ");
            if !more.is_empty() {
                failure.message += &format!("; and {} more wait", more.len());
            }
        }
    }

    /// The failure of an object that is no longer desired, while one that comes after it exists. The primary runs again once
    /// that one changes.
    pub(in crate::reconcile) fn wait_for_later(&self, (served, child): &LeftChild, first: &LeftChild) -> Failure {
        let (first_served, first) = first;
        let state = &self.host.state;
        state.depend_on_obstacle(self.primary_ref, first_served, &first.name, Some(first));
        waiting(format!(
            "{} {} is no longer desired, and is deleted once {} {} is gone, which comes after it",
            served.kind.kind, child.name, first_served.kind.kind, first.name
        ))
    }
}
