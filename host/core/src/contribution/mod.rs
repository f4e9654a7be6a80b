//! Decisions about contributions: merges the fields that many primaries contribute to one object into the one
//! configuration that their plugin applies.
//!
//! A plugin contributes with one field manager, and a manager has one configuration per object: a field that it does
//! not send again is removed. So all claims are sent together. A held field without a claim is sent again with its live
//! value as long as a primary may still claim it. Sending, and the wait for such primaries, is left to host/runtime.
//!
//! A plugin has another field manager for the objects that it owns, also if its primaries contribute to them. There the
//! owner's values win.

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
