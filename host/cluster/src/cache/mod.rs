//! Caches the objects of each kind: what lists and watches make of them, compressed, and the indexes by which they are found.

pub mod codec;
pub mod decoding;
pub(crate) mod index;
pub(crate) mod kind_cache;
pub mod store;
