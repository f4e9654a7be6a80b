//! The only house that knows kube: how the host sees a cluster and changes it.
//!
//! [`discovery`] says what is served, [`watch`] lists and watches a kind into [`object::Stored`] objects, which [`press`]
//! makes small and [`store`] keeps, [`mod@write`] applies and deletes, [`openapi`] says how values are merged, [`events`]
//! tells, [`install`] brings CRDs, [`release`] frees what a lost plugin held, [`own`] is for the host's own
//! resources, [`definitions`] sees CRDs change, [`rights`] asks what the host may do.
#![forbid(unsafe_code)]

pub mod connect;
pub mod definitions;
pub mod discovery;
pub mod error;
pub mod events;
pub mod install;
pub mod object;
pub mod openapi;
pub mod own;
mod pages;
mod parts;
pub mod press;
pub mod release;
pub mod rights;
mod shelf;
mod silence;
pub mod store;
mod waits;
pub mod watch;
pub mod webhooks;
pub mod write;

pub use kube::Client;
