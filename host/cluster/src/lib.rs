//! The only crate that knows kube: how the host sees a cluster and changes it.
//!
//! [`discovery`] says what is served, [`reflector`] lists and watches a kind into [`object::CachedObject`] objects,
//! which [`codec`] makes small and [`store`] keeps, [`mod@write`] applies and deletes, [`openapi`] says how values are
//! merged, [`events`] tells, [`install`] brings CRDs, [`installer`] all else that a plugin needs, [`release`] frees what a
//! lost plugin held, [`host_proxy`] is how commands reach a host, [`host_resources`] is for the host's own resources,
//! [`definitions`] sees CRDs change, [`namespaces`] namespaces come (all by way of `typed_watch`), [`permissions`] asks what the host may do, [`reviews`] who
//! a client is and what it may do, [`identity`] is in whose name it does it, [`lease`] reads and writes the Leases of the
//! leader and of shards, [`shard_plan`] the plan of shards, [`namespace_count`] counts for it, [`fence`] stops the writes of who does not lead, [`meter`]
//! counts requests, and [`apart`] keeps long work off the thread that makes them.
#![forbid(unsafe_code)]

pub mod apart;
pub mod cache;
pub mod connect;
pub mod discovery;
pub mod error;
pub mod fence;
pub mod object;
pub mod resources;
pub mod watch;
pub mod write;

pub use kube::Client;
