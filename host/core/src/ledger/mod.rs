//! Owns the decisions about contributions: what many primaries want of one object that is none of theirs, made into the
//! one configuration that their plugin applies.
//!
//! A plugin is one field manager, and a manager has one configuration per object: what it does not send again is gone.
//! So all claims are sent together, and what is held without a claim is sent again with its live value for as long as
//! somebody may still claim it. Sending, and who is waited for, are host/runtime's matter.

mod conflict;
mod leaves;
mod narrow;
mod path;
mod union;

pub use conflict::{HeldField, conflicting};
pub use leaves::{Leaf, Leaves, LeavesError, assemble, held, take_apart};
pub use narrow::{Blame, Narrowing};
pub use path::{Path, Step};
pub use union::{Age, Claim, Lost, Union, keep, unite};

#[cfg(test)]
mod tests;
