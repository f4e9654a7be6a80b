//! Describes the lanes, one for each controller of a plugin: what is fixed of each, what it needs of the cluster, and its health.

pub mod access;
pub mod cache_need;
pub mod cached_namespaces;
pub mod custody;
pub mod health;
pub mod lane;
pub mod primary;
pub mod served_kinds;
pub mod snapshot;
