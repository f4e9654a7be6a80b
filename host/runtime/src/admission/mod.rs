//! Lets API servers call plugins: a server on threads of its own, so that no queue of reconciles delays it (`answer`),
//! reads that another replica serves (`reads`), the webhook objects in the cluster (`keep`, with `secret` and `hooks`),
//! and the search for such objects if webhooks are off (`strays`).
//!
//! A review that cannot be answered in time is an HTTP error, for the failure policy. A webhook proves nothing: a failure policy, a
//! selector or a timeout may let an object pass. So defaulter and validator run before each reconcile, whatever happened at admission. If the host
//! remembered what admission had validated, two hosts would come to different results.
//!
//! Configurations stay as long as somebody wants the plugin, whether it runs or not. What names another host is left alone while that
//! host's Secret exists.

mod answer;
mod hooks;
mod keep;
mod reads;
mod secret;
mod strays;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use pilothouse_cluster::resources::webhooks::SecretPlace;
use pilothouse_core::admission::configuration::Endpoint;
use pilothouse_webhook::certificates::Lifetimes;

pub use keep::keep;
pub use strays::look_for_strays;

/// Options of the webhooks.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Address at which other replicas forward reviews to it; `None`: they do not.
    pub peer_address: Option<SocketAddr>,
    /// Endpoint at which API servers reach it.
    pub endpoint: Endpoint,
    /// Secret with its certificates.
    pub secret: SecretPlace,
    /// PEM file with the authorities of client certificates that API servers have to show; `None`: they show none.
    pub client_ca: Option<PathBuf>,
    /// Namespace of the host; no webhook reaches it.
    pub own_namespace: String,
    /// ClusterRole that owns the configurations made by the host, so that the garbage collector deletes them after it.
    pub owner: Option<String>,
    /// Lifetimes of its certificates.
    pub lifetimes: Lifetimes,
    /// Maker of the webhook objects.
    pub maker: Maker,
    /// Set if this host may have plugins whose names are unknown because they could not be loaded. Then no
    /// configuration is removed.
    pub has_unknown_plugins: bool,
    /// Time that API servers get to trust a new authority, before a certificate of it is shown.
    pub settle: Duration,
}

/// Maker of the webhook configurations, and of the conversion in CRDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// The host, which also removes them.
    Host,
    /// An installer; the host only sets the CA bundle.
    Installer,
}
