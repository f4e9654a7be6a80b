//! Releases children outside of the stages: those that the garbage collector does not delete, and those of orphaning
//! deletions.

pub mod collect;
pub mod orphan;
