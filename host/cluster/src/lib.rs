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
mod apply_entry;
pub mod codec;
pub mod connect;
mod connection_log;
mod controller_ref;
mod credentials;
pub mod decoding;
pub mod definitions;
pub mod discovery;
pub mod error;
pub mod events;
pub mod facts;
pub mod fence;
pub mod host_proxy;
pub mod host_resources;
pub mod identity;
mod index;
pub mod install;
pub mod installer;
mod kind_cache;
mod kubeconfig;
pub mod lease;
pub mod live_list;
pub mod meter;
pub mod namespace_count;
pub mod namespaces;
pub mod object;
pub mod openapi;
mod own_object;
mod pages;
pub mod permissions;
mod proxy;
pub mod pull_secret;
mod raw_object;
pub mod reflector;
pub mod release;
pub mod reviews;
pub mod shard_plan;
pub mod store;
mod typed_watch;
pub mod webhooks;
pub mod write;

pub use kube::Client;
