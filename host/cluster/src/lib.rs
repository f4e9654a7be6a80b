//! Reads and changes a cluster. The only crate that knows kube.
//!
//! [`discovery`] finds served kinds. [`reflector`](watch::reflector) lists and watches a kind into [`object::CachedObject`] objects,
//! which [`codec`](cache::codec) compresses and [`store`](cache::store) holds. [`mod@write`] applies and deletes, and [`openapi`](write::openapi) reads how values
//! are merged. [`events`](write::events) emits Events. [`install`](resources::install) installs CRDs, [`installer`](resources::installer) everything else that a plugin needs,
//! and [`release`](resources::release) removes the finalizers of a lost plugin. [`host_proxy`](connect::host_proxy) sends requests of commands to a host.
//! [`host_resources`](resources::host_resources) reads and writes the host's own resources. [`definitions`](watch::definitions) follows CRDs and [`namespaces`](watch::namespaces)
//! follows namespaces (both through `typed_watch`). [`permissions`](write::permissions) checks the host's rights, [`reviews`](write::reviews) authenticates
//! and authorises its clients, and [`identity`](write::identity) is the account with which it acts. [`lease`](resources::lease) reads and writes the
//! Leases of the leader and of shards, [`shard_plan`](resources::shard_plan) the plan of shards, and [`namespace_count`](watch::namespace_count) counts objects for
//! it. [`fence`] stops the writes of a replica that does not lead. [`meter`](connect::meter) counts requests, and [`apart`] keeps long
//! work off the thread that sends them.
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
