//! Lets go of children outside the stages: those that no garbage collector deletes, and those that an orphaning deletion leaves.

pub mod collect;
pub mod orphan;
