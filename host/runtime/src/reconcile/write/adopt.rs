//! Adopts an object that exists and belongs to nobody, if the plugin asks for that. Makes requests.
//!
//! The apply carries the resourceVersion of the object that was judged. Of two hosts or plugins that adopt it at the same moment, the
//! server refuses one, which then finds the other's owner reference.

use std::sync::Arc;

use pilothouse_cluster::write::{ApplyPrecondition, LiveObject};
use pilothouse_core::ownership::adoption::{self, Adoption};
use pilothouse_core::status::reason::Reason;
use pilothouse_core::text::printable::first_few;
use pilothouse_core::{Failure, Retry};

use crate::queue::WrittenBody;
use crate::reconcile::apply::{PlanExecution, StepResult, changed_meanwhile};
use crate::reconcile::diff::{PlannedObject, key};

impl PlanExecution<'_> {
    /// Adopts the object of a step.
    pub async fn adopt(&mut self, step: &PlannedObject) -> Result<StepResult, Failure> {
        let (served, name, title) = (&step.desired.served, &step.desired.name, step.desired.title());
        let live = self.requests.live(served, name).await;
        let live = live.map_err(|error| error.into_failure("look at", &title))?;
        let is_unowned = |live: &LiveObject| live.object.controller.is_none() && !live.object.deleting;
        let Some(LiveObject { object, managers }) = live.filter(is_unowned) else {
            return Err(changed_meanwhile(&title));
        };
        let body = match adoption::judge(&step.desired, &step.body, &managers, self.lane.writer.manager()) {
            Adoption::Apply(body) => body,
            Adoption::HeldBy(manager, fields) => return Err(self.not_adopted(step, &manager, &fields)),
        };
        let target = ApplyPrecondition::Version(&object.uid, &object.resource_version);
        let request = || self.requests.apply_body(step, &body, target);
        let adopted = match self.requests.with_retries(request).await {
            Ok(sent) => sent.object,
            Err(error) if error.code() == Some(409) => return Ok(StepResult::Outdated(Box::new(error))),
            Err(error) => return Err(self.refused(step, "adopt", error)),
        };
        self.wrote(step, WrittenBody::of(&step.digest));
        tracing::info!(lane = self.lane.title(), owner = %self.primary_ref.name, object = title, "adopted an object of nobody");
        self.applied.adopted.push(title);
        if step.desired.lifecycle.create_only {
            self.host.state.applied(key(served, name), None);
            self.remember_made(step, || Arc::new(adopted));
        } else {
            self.remember_unpersisted(step, &adopted);
        }
        Ok(StepResult::Done)
    }

    /// The failure for an object of nobody of which another manager applies fields.
    fn not_adopted(&self, step: &PlannedObject, manager: &str, fields: &[String]) -> Failure {
        let (title, fields) = (step.desired.title(), first_few(fields.iter().map(String::as_str)));
        let failure = Failure::cluster(
            Reason::ForeignObject,
            format!(
                "{title} belongs to nobody, but the field manager {manager} applies {fields}, so the host does not adopt it; have only \
                 one of the two apply these fields, or rename this object"
            ),
        );
        self.depend_on_obstacle(step);
        // The cache does not keep what others apply, so nothing wakes the primary when they let go. A retry reads the object only if
        // it has another version.
        let failure = failure.retry(Retry::Backoff);
        self.remember_refusal(step, &failure);
        failure
    }
}
