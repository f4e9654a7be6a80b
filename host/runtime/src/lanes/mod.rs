//! Describes the lanes, one per controller of a plugin: fixed properties, needs and health.

pub mod access;
pub mod cache_need;
pub mod cached_namespaces;
pub mod custody;
pub mod health;
pub mod lane;
pub mod pause;
pub mod primary;
pub mod served_kinds;
pub mod snapshot;
