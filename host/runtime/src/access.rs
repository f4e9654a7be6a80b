//! Owns what is known of the rights of the account in whose name a lane works: which kinds its plugin may be shown, and
//! whether API servers may ask the plugin at admission. Who reviews the rights is left to `plugins/access.rs`.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use pilothouse_core::Kind;

/// What the account of a lane's plugin may do, as it was reviewed last. Copies of a lane share it.
#[derive(Debug)]
pub struct LaneAccess {
    /// None: the plugin has no account of its own, and nothing is reviewed.
    reviewed: Option<Mutex<ReviewedAccess>>,
}

/// The outcome of a review.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReviewedAccess {
    /// Whether the account has all rights that the lane needs.
    pub is_granted: bool,
    /// The kinds that were reviewed. A kind that the cluster serves only since then is not among them.
    pub kinds: BTreeSet<Kind>,
    /// Whether API servers may ask for the defaults of primaries.
    pub defaults: bool,
    /// Whether they may ask if primaries are valid.
    pub validates: bool,
}

impl LaneAccess {
    /// Of a lane that works in the host's name.
    pub fn unlimited() -> Self {
        Self { reviewed: None }
    }

    /// Of a lane whose account has not been reviewed: it has no rights.
    pub fn unreviewed() -> Self {
        Self {
            reviewed: Some(Mutex::default()),
        }
    }

    /// Takes note of a review; says whether it changes anything.
    pub fn set(&self, outcome: ReviewedAccess) -> bool {
        let Some(reviewed) = &self.reviewed else { return false };
        let mut reviewed = reviewed.lock();
        let is_news = *reviewed != outcome;
        *reviewed = outcome;
        is_news
    }

    /// Whether the lane may run.
    pub fn is_granted(&self) -> bool {
        self.has(|reviewed| reviewed.is_granted)
    }

    /// Whether the plugin may be shown objects of a kind.
    pub fn shows(&self, kind: &Kind) -> bool {
        self.has(|reviewed| reviewed.is_granted && reviewed.kinds.contains(kind))
    }

    /// Whether API servers may ask the plugin for defaults.
    pub fn defaults(&self) -> bool {
        self.has(|reviewed| reviewed.defaults)
    }

    /// Whether API servers may ask the plugin if objects are valid.
    pub fn validates(&self) -> bool {
        self.has(|reviewed| reviewed.validates)
    }

    fn has(&self, right: impl FnOnce(&ReviewedAccess) -> bool) -> bool {
        self.reviewed.as_ref().is_none_or(|reviewed| right(&reviewed.lock()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_no_rights_before_its_review_and_only_those_of_the_last_one() {
        let secret = Kind::new("", "v1", "Secret");
        let access = LaneAccess::unreviewed();
        assert!(!access.is_granted() && !access.shows(&secret) && !access.defaults() && !access.validates());
        let granted = ReviewedAccess {
            is_granted: true,
            kinds: BTreeSet::from([secret.clone()]),
            defaults: false,
            validates: true,
        };
        assert!(access.set(granted.clone()) && !access.set(granted));
        assert!(access.is_granted() && access.shows(&secret) && access.validates() && !access.defaults());
        assert!(!access.shows(&Kind::new("", "v1", "ConfigMap")));
        let revoked = ReviewedAccess {
            kinds: BTreeSet::from([secret.clone()]),
            ..ReviewedAccess::default()
        };
        assert!(access.set(revoked));
        assert!(!access.is_granted() && !access.shows(&secret));
    }

    #[test]
    fn without_an_account_nothing_is_limited() {
        let access = LaneAccess::unlimited();
        assert!(!access.set(ReviewedAccess::default()));
        assert!(access.is_granted() && access.shows(&Kind::new("", "v1", "Secret")) && access.defaults());
    }
}
