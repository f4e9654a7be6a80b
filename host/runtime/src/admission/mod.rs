//! Owns how API servers ask plugins: a server on threads of its own, so that no queue of reconciles delays it (`answer`),
//! what a review reads that another replica has (`reads`), the objects that the cluster has to have for it (`keep`, with `secret` and `hooks`), and the search for such objects
//! where webhooks are off (`strays`).
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

/// How the host serves webhooks.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where other replicas reach it, so that they forward reviews; none: they do not.
    pub peer_address: Option<SocketAddr>,
    /// How API servers reach it.
    pub endpoint: Endpoint,
    /// Where its certificates are kept.
    pub secret: SecretPlace,
    /// The authorities of the certificates that API servers have to show, a PEM file; none means that they show none.
    pub client_ca: Option<PathBuf>,
    /// The namespace that the host runs in; no webhook reaches it.
    pub own_namespace: String,
    /// The ClusterRole that owns the configurations which the host makes, so that Kubernetes deletes them after it.
    pub owner: Option<String>,
    /// How long its certificates last.
    pub lifetimes: Lifetimes,
    /// Who makes what has API servers ask.
    pub maker: Maker,
    /// Whether there may be plugins of this host of which it does not even know the names, because they could not be
    /// loaded. Then no configuration is removed.
    pub has_unknown_plugins: bool,
    /// How long API servers may take to trust a new authority, before a certificate of it is shown.
    pub settle: Duration,
}

/// Who makes the webhook configurations, and the conversion in CRDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// The host, which also removes them.
    Host,
    /// An installer; the host only writes into them who vouches for it.
    Installer,
}
