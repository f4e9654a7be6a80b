//! Decides which reads of a plugin a change concerns, and which watches they need.
//!
//! Each `get` and `list` of a call is recorded with a fingerprint of its answer; `clock.now` and `clock.reached` are recorded with the
//! moment from which they would answer otherwise. After the call, also after one that failed, the records replace the object's
//! dependencies. If a recorded read would return something else by then, the object is requeued.
//!
//! A query by a field's or a label's value (`query`) has an index for as long as somebody depends on it, and only changes with that value
//! concern it. `dependencies` bounds the records of one plugin to 128 MiB. A primary whose reads do not fit depends on every visible change of
//! the kinds that it read; if even that does not fit, all primaries of its lane do. So a bound may wake a primary too often, and never
//! too rarely.
//!
//! Known gaps: a kind has at most 16 indexes, and queries by further labels and fields scan all of its objects. A lane that depends on whole kinds
//! does so until every one of its primaries is reconciled again, even if memory becomes free earlier.

pub mod dependencies;
pub mod query;
pub mod reach;
