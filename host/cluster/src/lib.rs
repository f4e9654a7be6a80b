//! Reads and changes a cluster. The only crate that knows kube.
//!
//! [`discovery`] finds served kinds. [`reflector`] lists and watches a kind into [`object::CachedObject`] objects,
//! which [`codec`] compresses and [`store`] holds. [`mod@write`] applies and deletes, and [`openapi`] reads how values
//! are merged. [`events`] emits Events. [`install`] installs CRDs, [`installer`] everything else that a plugin needs,
//! and [`release`] removes the finalizers of a lost plugin. [`host_proxy`] sends requests of commands to a host.
//! [`host_resources`] reads and writes the host's own resources. [`definitions`] follows CRDs and [`namespaces`]
//! follows namespaces (both through `typed_watch`). [`permissions`] checks the host's rights, [`reviews`] authenticates
//! and authorises its clients, and [`identity`] is the account with which it acts. [`lease`] reads and writes the
//! Leases of the leader and of shards, [`shard_plan`] the plan of shards, and [`namespace_count`] counts objects for
//! it. [`fence`] stops the writes of a replica that does not lead. [`meter`] counts requests, and [`apart`] keeps long
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
