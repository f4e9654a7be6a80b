//! Reports an object that is written again and again: one live read of the child shows the conflicting writer. Makes a
//! request, and only for an object that the queue has slowed.

use std::sync::Arc;

use pilothouse_cluster::object::CachedObject;
use pilothouse_core::diff::contest::Fight;
use pilothouse_core::diff::{Action, Difference, contest};
use pilothouse_core::{Failure, Retry};

use super::diff::{Planned, PlannedObject, key};
use super::report;
use crate::lanes::lane::Lane;
use crate::queue::{HotLoop, Job, WrittenBody};

/// Returns why the object of a job does not come to rest; `None` if it does, or if the cause cannot be found at
/// present.
pub async fn find_contention(lane: &Lane, job: &Job, object: &CachedObject, planned: &Planned) -> Option<Arc<Failure>> {
    let hot_loop = job.hot_loop.as_ref()?;
    // Time does not help; the queue runs the object again when the hot loop may be over.
    let found = |failure: Failure| Some(Arc::new(failure.retry(Retry::Change)));
    for step in &planned.steps {
        if let Some(failure) = contested(lane, hot_loop, step).await {
            return found(failure);
        }
    }
    let unwanted = planned.prune.iter().find(|(served, child)| {
        let key = key(served, &child.name);
        let is_made_too = planned.steps.iter().any(|step| step.action == Action::Create);
        let is_written = matches!(hot_loop.writes.of(&key), Some(WrittenBody::Digest(_)));
        hot_loop.by_itself && is_written && (is_made_too || hot_loop.writes.has_made_again(&key))
    });
    if let Some((served, child)) = unwanted {
        return found(contest::wanted_by_turns(&format!(
            "{} {}",
            served.kind.kind, child.name
        )));
    }
    if hot_loop.of_status && hot_loop.by_itself && report::has_news(object, &planned.answer) {
        let title = format!("{} {}", lane.grants.primary().kind, job.name);
        return found(contest::status_never_rests(&title));
    }
    hot_loop.lasting_contention()
}

/// Returns why a child is about to be written once more. Children outside of the hot loop, and those that are written
/// because others have changed something, are not contested.
async fn contested(lane: &Lane, hot_loop: &HotLoop, step: &PlannedObject) -> Option<Failure> {
    let title = step.desired.title();
    let written = hot_loop.writes.of(&key(&step.desired.served, &step.desired.name))?;
    let is_repeated =
        written == WrittenBody::of(&step.digest) || matches!(step.action, Action::Apply(Difference::Drift(_)));
    match &step.action {
        Action::Create if matches!(written, WrittenBody::Digest(_)) => Some(contest::deleted(&title)),
        Action::Create if hot_loop.by_itself && written == WrittenBody::Gone => Some(contest::wanted_by_turns(&title)),
        Action::Apply(difference) if is_repeated || (hot_loop.by_itself && *difference == Difference::Desired) => {
            // If it cannot be read now, the next run will read it: this one continues.
            let live = lane.writer.live_whole(&step.desired.served, &step.desired.name).await;
            Some(contest::explain(&Fight {
                title: &title,
                body: &step.body,
                difference,
                live: &live.ok().flatten()?,
                manager: lane.writer.manager(),
                is_repeated,
            }))
        }
        _ => None,
    }
}
