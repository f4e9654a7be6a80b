//! The report about an object that is written again and again: one read of the live child shows who fights over it. Makes a
//! request, and only for an object that the queue has slowed.

use std::sync::Arc;

use pilothouse_cluster::object::CachedObject;
use pilothouse_core::diff::contest;
use pilothouse_core::diff::contest::Fight;
use pilothouse_core::diff::{Action, Difference};
use pilothouse_core::{Failure, Retry};

use super::diff::{Planned, PlannedObject, key};
use super::report;
use crate::lanes::lane::Lane;
use crate::queue::{HotLoop, Job, WrittenBody};

/// Why the object of a job does not come to rest; none when it does, or when that cannot be found out just now.
pub async fn look(lane: &Lane, job: &Job, object: &CachedObject, planned: &Planned) -> Option<Arc<Failure>> {
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

/// Why a child is about to be written once more. Nobody is blamed for a child that the hot loop is not about, nor for one
/// that is written because others have changed something.
async fn contested(lane: &Lane, hot_loop: &HotLoop, step: &PlannedObject) -> Option<Failure> {
    let title = step.desired.title();
    let written = hot_loop.writes.of(&key(&step.desired.served, &step.desired.name))?;
    let is_repeated =
        written == WrittenBody::of(&step.digest) || matches!(step.action, Action::Apply(Difference::Drift(_)));
    match &step.action {
        Action::Create if matches!(written, WrittenBody::Digest(_)) => Some(contest::deleted(&title)),
        Action::Create if hot_loop.by_itself && written == WrittenBody::Gone => Some(contest::wanted_by_turns(&title)),
        Action::Apply(difference) if is_repeated || (hot_loop.by_itself && *difference == Difference::Desired) => {
            // If it cannot be looked at now, the next run will: this one goes on.
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
