//! Creates an object that does not exist as far as the host knows. If one exists, the server rejects the create and
//! changes nothing; a read of it then shows its owner. Makes requests.

use pilothouse_cluster::write::ApplyPrecondition;
use pilothouse_core::Failure;
use pilothouse_core::status::reason::Reason;

use super::requests::Tries;
use crate::queue::WrittenBody;
use crate::reconcile::apply::{PlanExecution, StepResult};
use crate::reconcile::diff::PlannedObject;

impl PlanExecution<'_> {
    /// Creates an object. If one exists, made by another writer, by another host or by an earlier create whose response
    /// was lost, the step is outdated.
    pub async fn create(&mut self, step: &PlannedObject) -> Result<StepResult, Failure> {
        let mut tries = Tries::default();
        let sent = loop {
            match self.requests.apply_once(step, ApplyPrecondition::Absent).await {
                Ok(sent) => break sent,
                Err(error) if error.code() == Some(409) => return Ok(StepResult::Outdated(Box::new(error))),
                // If a create took effect but its response was lost, the next attempt is rejected.
                Err(error) if self.requests.pause_if_transient(&mut tries, &error).await => {}
                Err(error) => return Err(self.refused(step, "create", error)),
            }
        };
        self.wrote(step, WrittenBody::of(&step.digest));
        if !sent.created {
            return Err(self.created_over_another(step));
        }
        tracing::info!(lane = self.lane.title(), owner = %self.primary_ref.name, object = step.desired.title(), "created");
        self.remember_unpersisted(step, &sent.object);
        Ok(StepResult::Done)
    }

    /// The failure after the server has changed an object in place of creating one. The object's earlier state is not
    /// known, so nothing is reverted.
    fn created_over_another(&self, step: &PlannedObject) -> Failure {
        let title = step.desired.title();
        tracing::error!(
            lane = self.lane.title(), owner = %self.primary_ref.name, object = title,
            "the API server that serves this kind ignores resourceVersion as a precondition: it changed an object that it \
             was asked to create; check the fields of the object"
        );
        Failure::cluster(
            Reason::ForeignObject,
            format!(
                "{title} existed when it was to be created, and its API server changed it all the same, because it ignores \
                 the precondition of the create; compare the object with what is desired, and delete it if it is not ours"
            ),
        )
    }
}
