//! Sends the requests of a reconcile that write children.
//!
//! Namespaces and CRDs are applied first and deleted last. A refused step is decided again from a live GET, up to three times; an object
//! is the primary's own if that GET, or the watch, shows the owner's uid. After the steps, the living children of the primary's uid are pruned
//! that have the plugin's Apply entry and are neither in the answer nor to be kept, but in no namespace in which an object of the
//! answer could not be made that is new in it.
//!
//! An object that comes `after` others is applied once these are Current, and what it comes after is deleted once it is gone (`after`).
//!
//! Transient errors are retried within the reconcile. A body that was refused for good is sent again only after the body, the object or the
//! kind's CRD has changed. A denial by a policy or a webhook is retried with back-off.
//!
//! Where an apply is refused (422) because of fields beside the host's own, the fewest such fields are found by dry runs
//! ([`pilothouse_core::collision`]) and made the host's, so that the next apply removes them; fields of other plugins stay. A refusal with another
//! cause, of a body that the server would create, is about an immutable field ([`pilothouse_core::ownership::recreate`]).

pub mod adopt;
pub mod after;
pub mod collision;
pub mod create;
pub mod empty;
pub mod once;
pub mod order;
pub mod requests;
pub mod takeover;
pub mod terminating;
