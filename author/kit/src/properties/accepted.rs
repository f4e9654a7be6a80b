//! Reads which findings are meant to be as they are, each with the reason.

use serde::Deserialize;

use super::judge::Finding;
use crate::properties::property::Property;

/// A finding that is meant to be as it is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptedFinding {
    /// The property that it breaks.
    pub property: Property,
    /// Part of the finding's text, as `pilothouse check` prints it.
    pub contains: String,
    /// Reason why the finding is intended.
    pub reason: String,
}

impl AcceptedFinding {
    /// Returns the error if this accepts every finding or has no reason.
    pub fn problem(&self) -> Option<&'static str> {
        if self.contains.trim().is_empty() {
            return Some("contains is empty, which would accept every finding; give a part of the finding's text");
        }
        let has_reason = !self.reason.trim().is_empty();
        (!has_reason).then_some("reason is empty; say why the finding is meant to be as it is")
    }

    pub(super) fn accepts(&self, finding: &Finding) -> bool {
        self.property == finding.property && finding.problem.contains(&self.contains)
    }
}
