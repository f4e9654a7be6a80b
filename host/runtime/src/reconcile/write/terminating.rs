//! Decides what to do if a child's namespace is missing or terminating: the API server creates nothing in it. Makes no
//! request.

use pilothouse_cluster::error::RequestError;
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Failure, Retry};

use crate::reconcile::apply::PlanExecution;
use crate::reconcile::diff::PlannedObject;

impl PlanExecution<'_> {
    /// Returns the failure of a child that is not created because of its namespace.
    pub(in crate::reconcile) fn without_namespace(
        &self,
        step: &PlannedObject,
        error: &RequestError,
    ) -> Option<Failure> {
        let namespace = step.desired.name.namespace.as_ref()?;
        let failure = if error.is_namespace_not_found() {
            let title = step.desired.title();
            let problem = format!(
                "cannot create {title}: there is no namespace {namespace}; create it, and {title} is made at once, or have \
                 the object go to another one"
            );
            Failure::cluster(Reason::NamespaceNotFound, problem).retry(Retry::Backoff)
        } else {
            self.in_terminating_namespace(step, error)?
        };
        self.host.state.wait_for_namespace(namespace, self.primary_ref);
        Some(failure)
    }

    /// Returns the failure of a child that is not created because its namespace is being deleted. A primary in the same
    /// namespace is deleted with it, so it is not retried. A primary elsewhere waits for a namespace of the same name.
    fn in_terminating_namespace(&self, step: &PlannedObject, error: &RequestError) -> Option<Failure> {
        if !error.is_in_terminating_namespace() {
            return None;
        }
        let title = step.desired.title();
        let namespace = step.desired.name.namespace.as_deref().unwrap_or_default();
        let primary = &self.owner.kind;
        let owner = format!("{} {}", primary.kind, self.owner.name);
        let is_here = self.owner.name.namespace == step.desired.name.namespace;
        let next = match (&self.lane.finalizer, is_here) {
            (_, false) => "it is made once there is a namespace of this name again".to_owned(),
            (None, true) => format!("{owner} goes with it"),
            (Some(finalizer), true) => format!(
                "the deletion waits for {owner}, which keeps the finalizer {finalizer} as long as {title} is missing; \
                 `pilothouse release {finalizer} --kind {} --namespace {namespace} --deleting --yes` frees it",
                qualified(&primary.kind, &primary.group)
            ),
        };
        let problem =
            format!("cannot create {title}: namespace {namespace} is being deleted and takes nothing new; {next}");
        let retry = if is_here { Retry::Change } else { Retry::Backoff };
        Some(Failure::cluster(Reason::NamespaceTerminating, problem).retry(retry))
    }
}

/// A kind as a command-line argument: `KIND` or `KIND.GROUP`.
fn qualified(kind: &str, group: &str) -> String {
    match group {
        "" => kind.to_owned(),
        group => format!("{kind}.{group}"),
    }
}
