//! Advises on a failure in one sentence, by its reason. docs/conditions.md has more about each.

use pilothouse_core::status::reason::{ADMISSION_STEP, DENIED_STEP, QUOTA_STEP, REFUSED_STEP, Reason};
use pilothouse_core::{Blame, Failure};

/// Advice on a failure.
pub fn next_step(failure: &Failure) -> &'static str {
    match failure.reason {
        Reason::Failure if failure.blame == Blame::User => {
            "change the object or what it depends on, as the message says; it is then reconciled at once"
        }
        Reason::Failure => "wait: it is retried; if it lasts, look at what the message names",
        Reason::GuestTrap => {
            "report the message to the plugin's author; the Plugin's log lines say what happened before"
        }
        Reason::GuestLimit => {
            "raise the limit in spec.limits of the Plugin, or report the message to the plugin's author"
        }
        Reason::InvalidAnswer | Reason::Undeclared => {
            "report the message to the plugin's author, or run another version"
        }
        Reason::Invalid => "correct the fields of the object that the message names",
        Reason::TooDeep => "reduce the nesting of the object",
        Reason::NotSynced => {
            "wait until the kind is served and listed; `pilothouse status` shows for what the plugin waits"
        }
        Reason::ForeignObject => "rename or delete the object that the message names, or rename this one",
        Reason::TargetNotFound => "create the object that the message names, or name another one",
        Reason::FieldConflict => "have the field managers that the message names give the fields up",
        Reason::Refused => REFUSED_STEP,
        Reason::Forbidden => [DENIED_STEP, QUOTA_STEP, ADMISSION_STEP]
            .into_iter()
            .find(|step| failure.message.contains(step))
            .unwrap_or("grant the rights that the message names; `pilothouse rights` prints what the plugin needs"),
        Reason::ClusterUnavailable => "wait: it is retried; if it lasts, look at the API server",
        Reason::Waiting => {
            "wait until the object that the message names is gone, or Current if another one comes after it"
        }
        Reason::NamespaceNotFound => "create the namespace, or use another one",
        Reason::NamespaceTerminating => "wait until the namespace is gone, or use another one",
        Reason::Contested => "let only one of those that the message names write the fields",
        Reason::HostFault => "report this as a bug of Pilothouse, with the host's log; it is retried",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_right_is_advised_for_what_a_policy_denies() {
        let step = |message: &str| next_step(&Failure::cluster(Reason::Forbidden, message));
        assert!(step("User \"x\" cannot create it; grant it").contains("`pilothouse rights`"));
        for other in [DENIED_STEP, QUOTA_STEP, ADMISSION_STEP] {
            assert_eq!(step(&format!("cannot create it: no; {other}")), other);
        }
    }
}
