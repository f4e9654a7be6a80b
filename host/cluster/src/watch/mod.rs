//! Lists and watches kinds.

pub mod definitions;
pub mod live_list;
pub mod namespace_count;
pub mod namespaces;
pub(crate) mod pages;
pub mod reflector;
pub(crate) mod typed_watch;
