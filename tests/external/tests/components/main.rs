//! The registries and tools that tests of artifacts stand on: that they work together without a network, and what each leaves
//! in a registry. `cargo xtask test --only external` runs them.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

mod external;
