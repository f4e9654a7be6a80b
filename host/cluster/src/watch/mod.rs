//! Lists and watches kinds.
//!
//! A kind is listed page by page into the store. `pages` sizes each page by the one before it, to 4 MiB, and aborts it at 16 MiB. Back-off
//! delays every relist; it is reset after a watch has worked for two minutes. A watch that delivers nothing for 150 s, not even a bookmark,
//! is reopened. Before a relist the host asks discovery whether the kind is still served.
//!
//! The host's own resources (Plugin, CRDs) come through the same reflector as typed values (`typed_watch`). Without the right to watch CRDs
//! the host tries again every ten minutes.

pub mod definitions;
pub mod live_list;
pub mod namespace_count;
pub mod namespaces;
pub(crate) mod pages;
pub mod reflector;
pub(crate) mod typed_watch;
