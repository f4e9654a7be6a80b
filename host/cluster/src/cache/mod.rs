//! Caches the objects of each kind: compressed objects from lists and watches, and the indexes to find them.

pub mod codec;
pub mod decoding;
pub(crate) mod index;
pub(crate) mod kind_cache;
pub mod store;
