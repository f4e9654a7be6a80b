//! Owns how API servers ask plugins: a server on threads of its own, so that no queue of reconciles makes it wait
//! ([`answer`]), and what has to be kept in the cluster for it ([`keep`]).

mod answer;
mod hooks;
mod keep;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use pilothouse_cluster::webhooks::SecretPlace;
use pilothouse_core::Name;
use pilothouse_core::admission::configuration::{Endpoint, spared};
use pilothouse_webhook::certificates::Lifetimes;

pub use keep::keep;

use crate::lane::LaneId;

/// How the host serves webhooks.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// Where it listens.
    pub listen: SocketAddr,
    /// How API servers reach it.
    pub endpoint: Endpoint,
    /// Where its certificates are kept.
    pub secret: SecretPlace,
    /// The namespace that the host runs in; no webhook reaches it.
    pub own_namespace: String,
    /// How long its certificates last.
    pub lifetimes: Lifetimes,
    /// Who makes what has API servers ask.
    pub maker: Maker,
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

/// What API servers ask about, so that it is judged before it is stored.
#[derive(Debug, Default)]
pub struct Judged {
    lanes: BTreeSet<LaneId>,
    own_namespace: String,
}

impl Judged {
    /// Whether a primary of a lane is judged before it is stored.
    pub fn has(&self, lane: LaneId, name: &Name) -> bool {
        let spared = spared(&self.own_namespace);
        let is_spared = name
            .namespace
            .as_deref()
            .is_some_and(|namespace| spared.contains(&namespace));
        !is_spared && self.lanes.contains(&lane)
    }
}
