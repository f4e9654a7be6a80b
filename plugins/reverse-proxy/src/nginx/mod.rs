//! Owns what nginx takes: which variables it knows, what its values look like, and how its configuration is written.

pub(crate) mod address;
pub(crate) mod http;
pub(crate) mod regex;
pub(crate) mod stream;
pub(crate) mod syntax;
pub mod variables;
mod writer;
