//! The registry of claims: which primary wants which fields of which object, the outcome, and when a target is settled.
//! Makes no requests: [`crate::reconcile::contribute`] carries out what is decided here.
//!
//! `registry` holds the claims, `target` one object that a plugin contributes to, `target_queue` the targets to settle,
//! `due` selects those to settle now, `revert_limiter` slows some of them, `cache_news` applies watch events,
//! `unclaimed` releases fields, `target_snapshot` captures the input of a settlement, and `outcome` applies its result.
//! Every operation that also affects the cache, the lanes or the work queue takes them as arguments, so that
//! [`crate::state`] can do it in one step.
//!
//! Fields that are held without a claim keep their live values until every primary that existed when its lane opened has been reconciled.
//! Then the fields that nobody claims are given up (`unclaimed`), so no finalizer is needed. The Plugin's status names the primaries that are
//! still missing.

mod cache_news;
mod due;
mod outcome;
mod registry;
mod revert_limiter;
mod target;
mod target_queue;
mod target_snapshot;
#[cfg(test)]
mod tests;

mod unclaimed;

pub use outcome::{EndedLook, SettledTarget};
pub use registry::{ClaimRequest, Contributions, PendingClaims};
pub use target::{TargetId, UnpersistedContribution, WaitingClaims};
pub use target_snapshot::{CapturedTarget, TargetSnapshot, refusal_fingerprint};
pub use unclaimed::{Contribution, GivenUp, contributed_to, contributes};
