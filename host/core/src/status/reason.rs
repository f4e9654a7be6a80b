//! Defines the reasons of failures: a closed set, so that users can alert on them. docs/conditions.md explains each.

use std::fmt;

/// The reason why a reconcile failed, in one word. Used in the conditions `Reconciled`, `Reconciling` and `Stalled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The plugin answered `transient` or `permanent`.
    Failure,
    /// The guest trapped.
    GuestTrap,
    /// The guest exceeded a limit; the message names it and its value.
    GuestLimit,
    /// The guest's answer breaks the contract.
    InvalidAnswer,
    /// The guest read or desired what its manifest does not declare.
    Undeclared,
    /// The plugin's defaulter or validator refuses the object; the message names the fields.
    Invalid,
    /// The object nests deeper than a plugin can read.
    TooDeep,
    /// A kind that is read or written is not served, or its cache has not synced yet.
    NotSynced,
    /// An object of a desired name exists and belongs to someone else.
    ForeignObject,
    /// An object to contribute to does not exist.
    TargetNotFound,
    /// Another manager holds a field to contribute.
    FieldConflict,
    /// The API server refused an object; the message quotes it.
    Refused,
    /// The host lacks a right that the plugin needs.
    Forbidden,
    /// The API server did not answer, or could not.
    ClusterUnavailable,
    /// An object is being deleted and obstructs its successor, or another one has to be Current, or gone, first.
    Waiting,
    /// The namespace in which something is to be created does not exist.
    NamespaceNotFound,
    /// The namespace in which something is to be created is being deleted.
    NamespaceTerminating,
    /// A child is written repeatedly: another manager reverts it, or the plugin's answer never settles.
    Contested,
    /// The host itself failed; the message says how.
    HostFault,
}

/// Next step after a refusal by the API server. The host does not know whose value was refused: plugins pass values of objects on.
pub const REFUSED_STEP: &str = "change the object, or fix the plugin if the value is its own";

/// Next steps after a 403 that no right would prevent, as its message ends: a webhook or policy denies the request, a quota is used
/// up, or another admission plugin of the API server, such as pod security, forbids it.
pub const DENIED_STEP: &str =
    "change the object so that the webhook or policy admits it, or change the webhook or policy";
/// The same for a quota.
pub const QUOTA_STEP: &str = "raise the quota, or delete what uses it";
/// The same for any other admission plugin.
pub const ADMISSION_STEP: &str = "change the object so that the API server admits it, or change what forbids it";

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 19] = [
        Self::Failure,
        Self::GuestTrap,
        Self::GuestLimit,
        Self::InvalidAnswer,
        Self::Undeclared,
        Self::Invalid,
        Self::TooDeep,
        Self::NotSynced,
        Self::ForeignObject,
        Self::TargetNotFound,
        Self::FieldConflict,
        Self::Refused,
        Self::Forbidden,
        Self::ClusterUnavailable,
        Self::Waiting,
        Self::NamespaceNotFound,
        Self::NamespaceTerminating,
        Self::Contested,
        Self::HostFault,
    ];

    /// The reason as conditions and events spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failure => "Failure",
            Self::GuestTrap => "GuestTrap",
            Self::GuestLimit => "GuestLimit",
            Self::InvalidAnswer => "InvalidAnswer",
            Self::Undeclared => "Undeclared",
            Self::Invalid => "Invalid",
            Self::TooDeep => "TooDeep",
            Self::NotSynced => "NotSynced",
            Self::ForeignObject => "ForeignObject",
            Self::TargetNotFound => "TargetNotFound",
            Self::FieldConflict => "FieldConflict",
            Self::Refused => "Refused",
            Self::Forbidden => "Forbidden",
            Self::ClusterUnavailable => "ClusterUnavailable",
            Self::Waiting => "Waiting",
            Self::NamespaceNotFound => "NamespaceNotFound",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::Contested => "Contested",
            Self::HostFault => "HostFault",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The longest reason of a metav1.Condition that plugins may use, in bytes.
pub const MAX_REASON_BYTES: usize = 128;

/// The regular expression for [`is_reason`]; the length is checked separately.
pub const REASON_PATTERN: &str = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";

/// Reports whether a text can be the `reason` of a metav1.Condition.
pub fn is_reason(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_REASON_BYTES
        && text.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_,:".contains(&byte))
        && text.ends_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_fits_a_condition_and_is_unique() {
        for (index, reason) in Reason::ALL.iter().enumerate() {
            assert!(is_reason(reason.as_str()), "{reason}");
            assert_eq!(format!("{reason:?}"), reason.as_str());
            assert!(!Reason::ALL[..index].contains(reason), "{reason} is listed twice");
        }
    }

    #[test]
    fn the_documentation_lists_exactly_these_reasons() {
        let text = include_str!("../../../../docs/conditions.md");
        let (_, section) = text.split_once("## Reasons").expect("the table has a heading");
        let section = section.split("\n## ").next().unwrap_or_default();
        let listed: Vec<_> = section
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .collect();
        assert_eq!(listed, Reason::ALL.map(Reason::as_str));
    }
}
