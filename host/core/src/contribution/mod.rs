//! Decisions about contributions: merges the fields that many primaries contribute to one object into the one
//! configuration that their plugin applies.
//!
//! A plugin contributes with one field manager, and a manager has one configuration per object: a field that it does
//! not send again is removed. So all claims are sent together. A held field without a claim is sent again with its live
//! value as long as a primary may still claim it. Sending, and the wait for such primaries, is left to host/runtime.
//!
//! A plugin has another field manager for the objects that it owns, also if its primaries contribute to them. There the
//! owner's values win.
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
