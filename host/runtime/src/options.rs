//! Options of a host.

use std::collections::BTreeSet;
use std::time::Duration;

use pilothouse_cluster::write::identity::AccountTokens;
use pilothouse_core::diff::preview::MAX_PRIMARIES;
use pilothouse_core::kubernetes::selector::Selector;
use pilothouse_core::plugin::inventory::Inventory;
use pilothouse_metrics::Metrics;

use crate::admission::WebhookOptions;
use crate::election::leadership::ElectionOptions;
use crate::process::blocking::Blocking;
use crate::process::clock::WallClock;

/// Identity in whose name the host writes for a plugin, and reads live objects for it. Watches are shared, and made in
/// the host's own name.
#[derive(Clone, Debug, Default)]
pub enum Identity {
    /// The host's own identity.
    #[default]
    Host,
    /// The ServiceAccount of the plugin.
    ServiceAccounts {
        /// Namespace of the host and of the accounts.
        namespace: String,
        /// Tokens that the host requests for the accounts; `None`: it impersonates them.
        tokens: Option<AccountTokens>,
    },
}
use crate::process::heartbeat::Heartbeat;
use crate::telemetry::traces::TraceOptions;

/// CRDs that the host installs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InstallCrds {
    /// No CRDs.
    #[default]
    Nothing,
    /// Its own: that of Plugin. An installer applies and upgrades those of plugins.
    Host,
    /// CRDs that plugins bring, and, if it follows Plugin resources, its own.
    All,
}

impl InstallCrds {
    /// Returns `true` if the CRD of Plugin is installed.
    pub fn has_own(self) -> bool {
        self != Self::Nothing
    }

    /// Returns `true` if the CRDs that plugins bring are installed.
    pub fn has_those_of_plugins(self) -> bool {
        self == Self::All
    }
}

/// Options of a host.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// CRDs that are installed.
    pub install_crds: InstallCrds,
    /// Namespaces that the host sees and acts in; empty: all. Cluster-scoped objects are always seen.
    pub watch_namespaces: BTreeSet<String>,
    /// Interval at which every object is reconciled again although no change is known.
    pub resync: Duration,
    /// Concurrent reconciles, over all lanes.
    pub workers: usize,
    /// Concurrent reconciles of one plugin that does not set a number itself.
    pub plugin_workers: usize,
    /// Time that running work gets on a stop.
    pub grace: Duration,
    /// Time without a call after which a plugin's code is unmapped until the next one.
    pub sleep_after: Duration,
    /// Time without work after which memory that only the work needed is returned; `None`: never.
    pub give_back_after: Option<Duration>,
    /// The name of this process in events.
    pub instance: String,
    /// Namespace of the host, with the pull secrets; `None` if it is not known.
    pub namespace: Option<String>,
    /// The labels of the Plugins that the host runs; other hosts run the others.
    pub plugin_selector: Selector,
    /// Options of the leader election; `None`: there is one replica.
    pub election: Option<ElectionOptions>,
    /// Identity in whose name it writes for plugins.
    pub identity: Identity,
    /// Options of the webhooks; `None`: they are off.
    pub webhooks: Option<WebhookOptions>,
    /// Metrics, printed by [`Endpoints`](crate::Endpoints).
    pub metrics: Metrics,
    /// Heartbeat of the main loop; `None`: it is not read, and the loop only turns when there is work.
    pub heartbeat: Option<Heartbeat>,
    /// Sink and ratio of traces; `None`: nothing is traced.
    pub traces: Option<TraceOptions>,
    /// Set if clients with the right may record the calls of plugins.
    pub allow_recording: bool,
    /// The most primaries whose previews are kept, over all plugins in preview.
    pub previews: usize,
    /// Kinds that earlier versions of the plugins of the command line owned: these plugins have no resource to keep them.
    pub inventory: Inventory,
    /// Wall clock.
    pub clock: WallClock,
    /// Runs blocking work, such as calls of guests.
    pub blocking: Blocking,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            install_crds: InstallCrds::Nothing,
            watch_namespaces: BTreeSet::new(),
            resync: Duration::from_hours(1),
            workers: 32,
            plugin_workers: 16,
            grace: Duration::from_secs(10),
            sleep_after: Duration::from_secs(30),
            give_back_after: None,
            instance: "pilothouse".to_owned(),
            namespace: None,
            plugin_selector: Selector::default(),
            election: None,
            identity: Identity::Host,
            webhooks: None,
            metrics: Metrics::default(),
            heartbeat: None,
            traces: None,
            allow_recording: false,
            previews: MAX_PRIMARIES,
            inventory: Inventory::default(),
            clock: WallClock::System,
            blocking: Blocking::Threads,
        }
    }
}
