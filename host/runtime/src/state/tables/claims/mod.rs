//! Owns the registry of claims: which primary wants which fields of which object, what became of that, and when a target is
//! looked at. Makes no request: [`crate::reconcile::contribute`] carries out what is decided here.
//!
//! `registry` is who wants what, `target` one object that a plugin contributes to, `target_queue` which targets are to be
//! looked at, `due` which of them now, `revert_limiter` which of them less often, `cache_news` what a watch shows of a
//! target, `unclaimed` which fields are given up, `target_snapshot` all that a look begins with, and `outcome` how a look
//! ends. Every operation that also concerns the cache, the lanes or the work
//! queue takes them as arguments, so that [`crate::state`] can do it in one step.
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
