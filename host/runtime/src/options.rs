//! Owns the options of a host.

use std::collections::BTreeSet;
use std::time::Duration;

use pilothouse_cluster::write::identity::AccountTokens;
use pilothouse_core::diff::preview::MAX_PRIMARIES;
use pilothouse_core::kubernetes::selector::Selector;
use pilothouse_metrics::Metrics;

use crate::admission::WebhookOptions;
use crate::election::leadership::ElectionOptions;
use crate::process::blocking::Blocking;
use crate::process::clock::WallClock;

/// In whose name the host writes for a plugin, and reads live objects for it. Watches are shared, and the host's own.
#[derive(Clone, Debug, Default)]
pub enum Identity {
    /// In its own.
    #[default]
    Host,
    /// In that of the plugin's ServiceAccount.
    ServiceAccounts {
        /// The host's namespace, in which the accounts are.
        namespace: String,
        /// The tokens that the host requests for the accounts; none: it impersonates them.
        tokens: Option<AccountTokens>,
    },
}
use crate::process::heartbeat::Heartbeat;
use crate::telemetry::traces::TraceOptions;

/// Which CRDs the host installs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InstallCrds {
    /// None.
    #[default]
    Nothing,
    /// Its own: that of Plugin. Those of plugins are somebody else's matter, who also says when they change.
    Host,
    /// Those that plugins bring, and, if it follows Plugin resources, its own.
    All,
}

impl InstallCrds {
    /// Whether the CRD of Plugin is installed.
    pub fn has_own(self) -> bool {
        self != Self::Nothing
    }

    /// Whether the CRDs that plugins bring are installed.
    pub fn has_those_of_plugins(self) -> bool {
        self == Self::All
    }
}

/// How the host runs.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Which CRDs are installed.
    pub install_crds: InstallCrds,
    /// The namespaces that the host sees and acts in; all if there is none. What is of cluster scope it sees all the same.
    pub watch_namespaces: BTreeSet<String>,
    /// How often every object is reconciled again though nothing is known to have changed.
    pub resync: Duration,
    /// Reconciles at once, over all lanes.
    pub workers: usize,
    /// Reconciles at once of one plugin that does not say itself how many.
    pub plugin_workers: usize,
    /// How long work in flight may take to end on a stop.
    pub grace: Duration,
    /// After how long without a call a plugin's code is unmapped until the next one.
    pub sleep_after: Duration,
    /// After how long without work the memory is given back that only the work needed; none means never.
    pub give_back_after: Option<Duration>,
    /// The name of this process in events.
    pub instance: String,
    /// The namespace that the host runs in, where pull secrets are; none if it is not known.
    pub namespace: Option<String>,
    /// The labels of the Plugins that the host runs; other hosts run the others.
    pub plugin_selector: Selector,
    /// How replicas choose the one that writes; none means that there is one replica.
    pub election: Option<ElectionOptions>,
    /// In whose name it writes for plugins.
    pub identity: Identity,
    /// How webhooks are served; none means that they are off.
    pub webhooks: Option<WebhookOptions>,
    /// What is counted, and printed by [`Endpoints`](crate::Endpoints).
    pub metrics: Metrics,
    /// The heartbeat of the main loop; none: nobody asks for it, and the loop turns only when there is something to do.
    pub heartbeat: Option<Heartbeat>,
    /// Where traces go; none: nothing is traced.
    pub traces: Option<TraceOptions>,
    /// Whether people with the right may record the calls of plugins.
    pub allow_recording: bool,
    /// The most primaries whose previews are kept, over all plugins in preview.
    pub previews: usize,
    /// The time of day.
    pub clock: WallClock,
    /// Where the calls of guests run.
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
            clock: WallClock::System,
            blocking: Blocking::Threads,
        }
    }
}
