//! Caches the objects of each kind: compressed objects from lists and watches, and the indexes to find them.
//!
//! A relist updates in place: an unchanged object causes no event, an object that is missing from the list counts as deleted, and one
//! that was made anew under the same name causes two events. An object is kept as LZ4 against a sample of its kind, and equal Apply entries
//! are kept once (`codec`).
//!
//! An object of a complete list that cannot be read any more stays as it was read before, also where a plugin that came later needs more of
//! its fields.

pub mod codec;
pub mod decoding;
pub(crate) mod index;
pub(crate) mod kind_cache;
pub mod store;
