//! Builds the conditions that the host itself writes: `Reconciled`, and the conditions of kstatus beside it.
//!
//! `Reconciling` and `Stalled` are true while a failure persists and absent otherwise, as kstatus reads them
//! (<https://github.com/kubernetes-sigs/cli-utils/blob/v0.37.2/pkg/kstatus/README.md>). Their content depends on the
//! failure alone, so that every process of the host writes the same.

pub use pilothouse_description::status::{RECONCILED, RECONCILING, STALLED, SUCCESS};

use crate::answer::MAX_CONDITION_MESSAGE;
use crate::plugin::contract::{Condition, ConditionStatus};
use crate::status::annotations::PAUSED as PAUSED_ANNOTATION;
use crate::status::failure::Failure;
use crate::status::reason::Reason;
use crate::text::printable::shorten;

/// The reason of `Reconciled` where another party rewrites what the host applies.
pub const REWRITTEN: &str = "Rewritten";

/// The reason of `Reconciled` while the object is paused.
pub const PAUSED: &str = "Paused";

/// Reports whether only the host writes conditions of this type.
pub fn is_host_condition(condition_type: &str) -> bool {
    [RECONCILED, RECONCILING, STALLED].contains(&condition_type)
}

/// The host's conditions of one object. Its other host conditions are removed from the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConditions(Vec<Condition>);

impl HostConditions {
    /// The conditions after a successful reconcile.
    pub fn succeeded(message: impl Into<String>) -> Self {
        Self(vec![Condition {
            type_: RECONCILED.to_owned(),
            status: ConditionStatus::True,
            reason: SUCCESS.to_owned(),
            message: message.into(),
        }])
    }

    /// The conditions after a successful reconcile, where the server stores other values than were applied.
    pub fn rewritten(message: impl Into<String>) -> Self {
        let Self(mut conditions) = Self::succeeded(shorten(message.into(), MAX_CONDITION_MESSAGE));
        REWRITTEN.clone_into(&mut conditions[0].reason);
        Self(conditions)
    }

    /// The conditions of a paused object.
    pub fn paused() -> Self {
        Self(vec![Condition {
            type_: RECONCILED.to_owned(),
            status: ConditionStatus::Unknown,
            reason: PAUSED.to_owned(),
            message: format!(
                "the annotation {PAUSED_ANNOTATION} is \"true\": the object is neither reconciled nor written until somebody removes the \
                 annotation"
            ),
        }])
    }

    /// The conditions after a failed reconcile. With a `fixed_reason`, from the member `failureReason` of the manifest,
    /// the conditions always have that reason, and the message begins with the failure's own.
    pub fn failed(failure: &Failure, fixed_reason: Option<&str>) -> Self {
        let kind = failure.reason;
        let (reason, message) = match fixed_reason {
            Some(fixed) if kind == Reason::Failure => (fixed, failure.message.clone()),
            Some(fixed) => (fixed, format!("{kind}: {}", failure.message)),
            None => (kind.as_str(), failure.message.clone()),
        };
        let message = shorten(message, MAX_CONDITION_MESSAGE);
        let condition = |type_: &str, status| Condition {
            type_: type_.to_owned(),
            status,
            reason: reason.to_owned(),
            message: message.clone(),
        };
        let abnormal = if failure.is_stalled() { STALLED } else { RECONCILING };
        Self(vec![
            condition(RECONCILED, ConditionStatus::False),
            condition(abnormal, ConditionStatus::True),
        ])
    }

    /// Each condition, `Reconciled` first.
    pub fn iter(&self) -> impl Iterator<Item = &Condition> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::failure::Retry;

    fn written(conditions: &HostConditions) -> Vec<(&str, &str, &str)> {
        conditions
            .iter()
            .map(|it| (it.type_.as_str(), it.status.as_str(), it.reason.as_str()))
            .collect()
    }

    #[test]
    fn success_has_neither_reconciling_nor_stalled() {
        let conditions = HostConditions::succeeded("all is as desired");
        assert_eq!(written(&conditions), [("Reconciled", "True", "Success")]);
    }

    #[test]
    fn a_paused_object_is_neither_reconciled_nor_failing() {
        assert_eq!(
            written(&HostConditions::paused()),
            [("Reconciled", "Unknown", "Paused")]
        );
    }

    #[test]
    fn a_failure_that_waits_for_a_change_is_stalled() {
        let conditions = HostConditions::failed(&Failure::guest(Reason::GuestTrap, "it panicked"), None);
        let expected = [("Reconciled", "False", "GuestTrap"), ("Stalled", "True", "GuestTrap")];
        assert_eq!(written(&conditions), expected);
        assert!(conditions.iter().all(|it| it.message == "it panicked"));
    }

    #[test]
    fn a_failure_that_is_retried_is_reconciling() {
        let busy = Failure::cluster(Reason::ClusterUnavailable, "busy");
        let conditions = HostConditions::failed(&busy, None);
        let reason = "ClusterUnavailable";
        assert_eq!(
            written(&conditions),
            [("Reconciled", "False", reason), ("Reconciling", "True", reason)]
        );
    }

    #[test]
    fn what_time_can_remove_is_reconciling_whatever_is_waited_for() {
        for reason in [Reason::Waiting, Reason::ClusterUnavailable, Reason::Forbidden] {
            let failure = Failure::cluster(reason, "not yet").retry(Retry::Change);
            let conditions = HostConditions::failed(&failure, None);
            assert_eq!(conditions.iter().last().unwrap().type_, RECONCILING);
        }
    }

    #[test]
    fn a_fixed_reason_moves_the_kind_into_the_message() {
        let said = |failure: &Failure| {
            let conditions = HostConditions::failed(failure, Some("Failure"));
            assert!(conditions.iter().all(|it| it.reason == "Failure"));
            conditions.iter().next().unwrap().message.clone()
        };
        let trap = Failure::guest(Reason::GuestTrap, "it panicked");
        assert_eq!(said(&trap), "GuestTrap: it panicked");
        let own = Failure::user(Reason::Failure, "no such port");
        assert_eq!(said(&own), "no such port", "the plugin says itself that it failed");
    }

    #[test]
    fn a_long_message_fits_its_schema_with_the_kind_before_it() {
        let failure = Failure::guest(Reason::GuestTrap, "x".repeat(MAX_CONDITION_MESSAGE));
        let conditions = HostConditions::failed(&failure, Some("Failure"));
        assert!(conditions.iter().all(|it| it.message.len() <= MAX_CONDITION_MESSAGE));
    }
}
