//! Owns the three patch formats that are not server-side apply, as functions on values.

pub(crate) mod json;
pub(crate) mod merge;
pub(crate) mod strategic;
