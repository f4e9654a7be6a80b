//! Patch formats other than server-side apply, as functions on values.

pub(crate) mod json;
pub(crate) mod merge;
pub(crate) mod strategic;
