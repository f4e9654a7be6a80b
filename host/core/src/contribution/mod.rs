//! Owns the decisions about contributions: what many primaries want of one object beside what its owner says, made into
//! the one configuration that their plugin applies.
//!
//! What a plugin contributes has one field manager, and a manager has one configuration per object: what it does not send
//! again is gone. So all claims are sent together, and what is held without a claim is sent again with its live value for
//! as long as somebody may still claim it. Sending, and who is waited for, are host/runtime's matter.
//!
//! What a plugin owns has a manager of its own, also where its primaries contribute to it. There the owner's word counts.
//!
//! Fields that other managers hold are left to them, and the condition names these managers. If the server refuses the body, the claim at
//! fault is found by the conflict's paths or by bisection (`bisect`). It keeps the fields that it holds, and waits until the target changes in
//! more than its status. Which plugin holds what is read from the target itself (`holders` in `union`): no owner of a primary can write
//! that memory, and a restart and another replica have it, too.

mod bisect;
mod conflict;
mod leaves;
mod path;
mod union;

pub use bisect::{ClaimBisection, RefusedClaim};
pub use conflict::{HeldField, conflicting};
pub use leaves::{Leaf, Leaves, LeavesError, assemble, held, take_apart};
pub use path::{IndexedObject, Path, PathElement};
pub use union::{Claim, ClaimAge, LostClaim, Standing, Union, holders, keep, overruled, unite};

#[cfg(test)]
mod tests;
