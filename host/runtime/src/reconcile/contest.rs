//! Owns the report about an object that is written again and again: one read of the live child shows who fights over it.
//! Makes a request, and only for an object that the queue has slowed.

use std::sync::Arc;

use pilothouse_cluster::object::CachedObject;
use pilothouse_core::contest::{self, Fight};
use pilothouse_core::diff::Action;
use pilothouse_core::{Failure, Retry};

use super::diff::Planned;
use super::report;
use crate::lane::Lane;
use crate::queue::Job;

/// Why the object of a job does not come to rest; none when it does, or when that cannot be found out just now.
pub async fn look(lane: &Lane, job: &Job, object: &CachedObject, planned: &Planned) -> Option<Arc<Failure>> {
    let hot_loop = job.hot_loop.as_ref()?;
    for step in &planned.steps {
        let title = step.desired.title();
        let failure = match &step.action {
            Action::Create => contest::deleted(&title),
            Action::Apply(difference) => {
                // If it cannot be looked at now, the next run will: this one goes on.
                let live = lane.writer.live_whole(&step.desired.served, &step.desired.name).await;
                let Some(live) = live.ok().flatten() else { continue };
                contest::explain(&Fight {
                    title: &title,
                    body: &step.body,
                    difference,
                    live: &live,
                    manager: lane.writer.manager(),
                })
            }
            Action::Nothing
            | Action::Foreign
            | Action::CompetingPlugin(_)
            | Action::Adopt(_)
            | Action::Rebind
            | Action::Wait
            | Action::Inherited => continue,
        };
        // Time does not help; the queue runs the object again when the hot loop may be over.
        return Some(Arc::new(failure.retry(Retry::Change)));
    }
    if hot_loop.of_status && report::has_news(object, &planned.answer) {
        let title = format!("{} {}", lane.grants.primary().kind, job.name);
        return Some(Arc::new(contest::status_never_rests(&title).retry(Retry::Change)));
    }
    hot_loop.lasting_contention()
}
