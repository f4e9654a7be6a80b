//! Keeps the result of the last review of a lane's account: the kinds its plugin may be shown, and whether API servers
//! may call the plugin at admission. The reviews themselves are made by `plugins/access.rs`.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use pilothouse_core::Kind;
use tokio::time::Instant;

/// Rights of the account of a lane's plugin. Copies of a lane share it.
#[derive(Debug)]
pub enum LaneAccess {
    /// The plugin has no account of its own, and nothing is reviewed.
    Unlimited,
    /// The last review and the deadline until which it is valid: if the host cannot review again, a revoked right still
    /// ends. `None`: not reviewed.
    Reviewed(Mutex<Option<(ReviewedAccess, Instant)>>),
}

/// The outcome of a review.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReviewedAccess {
    /// Set if the account has the rights that the lane needs in the whole cluster, and all namespaced rights in at
    /// least one namespace of primaries.
    pub is_granted: bool,
    /// Namespaces in which a right is missing.
    pub denied: BTreeSet<String>,
    /// Kinds that were reviewed. A kind that the cluster began to serve later is missing here.
    pub kinds: BTreeSet<Kind>,
    /// Set if API servers may call the plugin to default primaries.
    pub defaults: bool,
    /// Set if API servers may call the plugin to validate primaries.
    pub validates: bool,
}

impl LaneAccess {
    /// Makes the access of a lane whose account has not been reviewed: it has no rights.
    pub fn unreviewed() -> Self {
        Self::Reviewed(Mutex::default())
    }

    /// Stores a review that is valid until `until`, or its absence. Returns `true` if that changes anything.
    pub fn set(&self, outcome: Option<ReviewedAccess>, until: Instant) -> bool {
        let Self::Reviewed(reviewed) = self else { return false };
        let mut reviewed = reviewed.lock();
        let before = current(reviewed.as_ref());
        let is_news = before != outcome.as_ref();
        *reviewed = outcome.map(|outcome| (outcome, until));
        is_news
    }

    /// Returns `true` if there is no valid review.
    pub fn is_unreviewed(&self) -> bool {
        matches!(self, Self::Reviewed(reviewed) if current(reviewed.lock().as_ref()).is_none())
    }

    /// Returns `true` if the lane may run.
    pub fn is_granted(&self) -> bool {
        self.has(|reviewed| reviewed.is_granted)
    }

    /// Returns `true` if the rights to a kind have been reviewed.
    pub fn knows(&self, kind: &Kind) -> bool {
        self.has(|reviewed| reviewed.kinds.contains(kind))
    }

    /// Returns `true` if the plugin may be called for primaries in a namespace and be shown its objects. `None`:
    /// cluster-scoped objects.
    pub fn allows(&self, namespace: Option<&str>) -> bool {
        self.has(|reviewed| {
            let is_denied = namespace.is_some_and(|namespace| reviewed.denied.contains(namespace));
            reviewed.is_granted && !is_denied
        })
    }

    /// Namespaces in which a right is missing, while the lane runs.
    pub fn denied(&self) -> BTreeSet<String> {
        match self {
            Self::Unlimited => BTreeSet::new(),
            Self::Reviewed(reviewed) => current(reviewed.lock().as_ref())
                .map(|it| it.denied.clone())
                .unwrap_or_default(),
        }
    }

    /// Returns `true` if API servers may call the plugin to default objects.
    pub fn defaults(&self) -> bool {
        self.has(|reviewed| reviewed.defaults)
    }

    /// Returns `true` if API servers may call the plugin to validate objects.
    pub fn validates(&self) -> bool {
        self.has(|reviewed| reviewed.validates)
    }

    fn has(&self, right: impl FnOnce(&ReviewedAccess) -> bool) -> bool {
        match self {
            Self::Unlimited => true,
            Self::Reviewed(reviewed) => current(reviewed.lock().as_ref()).is_some_and(right),
        }
    }
}

/// Returns the review while it is valid.
fn current(reviewed: Option<&(ReviewedAccess, Instant)>) -> Option<&ReviewedAccess> {
    reviewed
        .filter(|(_, until)| Instant::now() < *until)
        .map(|(outcome, _)| outcome)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_account_has_the_rights_of_its_last_review_only() {
        let secret = Kind::new("", "v1", "Secret");
        let access = LaneAccess::unreviewed();
        let until = Instant::now() + Duration::from_mins(5);
        assert!(!access.is_granted() && !access.allows(Some("a")) && !access.knows(&secret));
        assert!(!access.defaults() && !access.validates());
        let granted = ReviewedAccess {
            is_granted: true,
            denied: BTreeSet::from(["b".to_owned()]),
            kinds: BTreeSet::from([secret.clone()]),
            defaults: false,
            validates: true,
        };
        assert!(access.is_unreviewed() && access.set(Some(granted.clone()), until));
        assert!(!access.set(Some(granted), until));
        assert!(access.is_granted() && access.knows(&secret) && access.validates() && !access.defaults());
        assert!(!access.knows(&Kind::new("", "v1", "ConfigMap")));
        assert!(access.allows(None) && access.allows(Some("a")) && !access.allows(Some("b")));
        let revoked = ReviewedAccess {
            kinds: BTreeSet::from([secret.clone()]),
            ..ReviewedAccess::default()
        };
        assert!(access.set(Some(revoked), until));
        assert!(!access.is_granted() && !access.allows(Some("a")) && !access.is_unreviewed());
        assert!(access.set(None, until) && access.is_unreviewed());
    }

    #[test]
    fn without_an_account_nothing_is_limited() {
        let access = LaneAccess::Unlimited;
        assert!(!access.set(None, Instant::now()) && !access.is_unreviewed());
        assert!(access.is_granted() && access.knows(&Kind::new("", "v1", "Secret")) && access.defaults());
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_counts_for_a_time_and_is_news_after_it() {
        let access = LaneAccess::unreviewed();
        let granted = ReviewedAccess {
            is_granted: true,
            ..ReviewedAccess::default()
        };
        let set = || access.set(Some(granted.clone()), Instant::now() + Duration::from_mins(5));
        assert!(set() && !set());
        tokio::time::advance(Duration::from_secs(299)).await;
        assert!(access.is_granted());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!access.is_granted() && access.is_unreviewed());
        assert!(set() && access.is_granted());
    }
}
