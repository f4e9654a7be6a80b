//! Releases children outside of the stages: those that the garbage collector does not delete, and those of orphaning
//! deletions.
//!
//! `collect` deletes a child that has only the label after a live GET has said that its owner does not exist. A label alone proves nothing,
//! because anybody may have written it; deploy/policy.yaml reserves it. A primary with the finalizer `orphan` is remembered by its uid,
//! and none of its children is applied or deleted any more.

pub mod collect;
pub mod orphan;
