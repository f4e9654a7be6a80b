//! Describes the parts of an artifact: descriptors, digests, its manifest, its bill of materials.

pub mod annotation;
pub mod blob;
pub(crate) mod descriptor;
pub(crate) mod digest;
pub(crate) mod json;
pub(crate) mod manifest;
