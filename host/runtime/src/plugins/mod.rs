//! Runs the life cycle of plugins: desired state, startup, update, deletion and status of each.
//!
//! In `resource`, `desired` is the request for a plugin, and `resources` reads it from Plugin resources, as
//! `static_plugins` does from the command line; `inventory` and `inventory_write` record what earlier versions owned;
//! `reporting`, `state` and `status_writer` write the Plugin's status together with [`crate::lanes::health`].
//! `life_cycle` is the state machine of one plugin; `task` drives it by way of `fetch`, `version` and `finish`;
//! `plugin` holds the parts of one plugin. In `version`, `exclusive_kinds` prevents two plugins from bringing the same
//! kind, and `permissions` reports missing rights of the host. `access` reviews the rights of the plugin's account.
//!
//! A plugin that goes is closed, waits for what runs, and is forgotten with what only it watched. If its resource is deleted, primaries
//! that are being deleted are finished first; then claims and children are removed, if `deletionPolicy` says so. On SIGTERM running
//! reconciles have `--grace` seconds to finish.
//!
//! [`pilothouse_core::rights`] derives from a manifest the rules that the requests of its plugin need, and no others. With `--identity` the
//! writers of a lane act as the plugin's account, and the host reviews what that account may see of the shared watches: a lane without
//! its rights does not run.
//!
//! A lane that is closed for want of rights keeps its claims and children as they are. Two hosts with different `--plugin-selector` do not see
//! that their plugins bring the same kind. The installed CRD of a plugin is compared by its annotation, so one that a user has edited stays
//! edited.

mod access;
pub mod fetch;
mod finish;
mod life_cycle;
mod plugin;
pub mod resource;
pub mod static_plugins;
mod task;
pub mod version;
pub mod waiting_lanes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use pilothouse_cluster::Client;
use pilothouse_metrics::ArtifactStep;
use pilothouse_sandbox::Sandbox;
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub use crate::plugins::resource::desired::check_plugin;

use crate::artifacts::ArtifactStore;
use crate::context::HostContext;
use crate::lanes::lane::Lane;
use crate::options::HostOptions;
use crate::plugins::fetch::directory_reader::DirectoryReader;
use crate::plugins::resource::state::{ConditionState, PluginState, StartupStep, WantedVersion};
use crate::plugins::version::exclusive_kinds::ExclusiveKinds;
use crate::watches::informers::Informers;

/// Components that are compiled at the same time. The compiler uses two threads, and other work has to continue.
const COMPILERS: usize = 1;

/// Plugins that are described at the same time: the memory that a call takes is released after it.
const DESCRIBERS: usize = 2;

/// Artifacts that are fetched at the same time, and references that are resolved: limits the threads and connections
/// that a slow registry can occupy.
const FETCHERS: usize = 4;
const RESOLVERS: usize = 16;

/// Plugins that make the requests of a startup at the same time. Each takes a connection, which is kept for a while: a
/// hundred plugins would take a hundred.
const STARTERS: usize = 4;

/// Sources of the components of Plugin resources, and the sandbox that loads them.
#[derive(Clone)]
pub struct Library {
    /// Sandbox that loads components.
    pub sandbox: Sandbox,
    /// Directory of `spec.source.file`.
    pub directory: PathBuf,
    /// Store of OCI artifacts; `None`: a Plugin that names one is refused.
    pub artifacts: Option<Arc<dyn ArtifactStore>>,
}

/// State shared by all plugins of a host.
pub struct PluginContext {
    client: Client,
    options: HostOptions,
    host: Arc<HostContext>,
    informers: Informers,
    library: Option<Library>,
    looks: DirectoryReader,
    claims: ExclusiveKinds,
    compiling: Semaphore,
    describing: Semaphore,
    starting: Semaphore,
    /// Limit of concurrent reviews of accounts' rights, over all plugins.
    reviewing: Arc<Semaphore>,
    fetching: Semaphore,
    resolving: Semaphore,
    registry: Arc<PluginRegistry>,
}

impl PluginContext {
    /// Makes a context without plugins; without a library only loaded components can be used.
    pub fn new(
        client: Client,
        options: HostOptions,
        host: Arc<HostContext>,
        registry: Arc<PluginRegistry>,
        library: Option<Library>,
    ) -> Self {
        Self {
            informers: Informers::new(client.clone(), host.clone()),
            looks: DirectoryReader::new(options.blocking.clone()),
            client,
            options,
            host,
            library,
            claims: ExclusiveKinds::default(),
            compiling: Semaphore::new(COMPILERS),
            describing: Semaphore::new(DESCRIBERS),
            starting: Semaphore::new(STARTERS),
            reviewing: Arc::new(Semaphore::new(access::REVIEWS_AT_ONCE)),
            fetching: Semaphore::new(FETCHERS),
            resolving: Semaphore::new(RESOLVERS),
            registry,
        }
    }

    /// Adapts the informers whenever the cached namespaces change; never ends.
    pub async fn follow_cached_namespaces(&self) {
        let mut changes = self.host.cached.follow();
        loop {
            // Also for changes announced before.
            self.host.cached.take_in(|| self.informers.refresh());
            if changes.changed().await.is_err() {
                // The host keeps the sender.
                return;
            }
        }
    }
}

/// The present plugins by name, for reports on the host, and the desired ones, whether they run or not.
#[derive(Default)]
pub struct PluginRegistry {
    plugin_states: Mutex<BTreeMap<Arc<str>, Arc<PluginState>>>,
    expected: Mutex<Option<Arc<BTreeSet<Arc<str>>>>>,
    /// Set once the plugins of the start have been registered: `true` if they come from Plugin resources.
    are_entered: OnceLock<bool>,
}

/// A plugin that is starting and has not reported why it cannot.
pub struct StartingPlugin {
    /// Its name.
    pub name: Arc<str>,
    /// Start of the attempt.
    pub since: Instant,
    /// Its lanes, as far as known.
    pub lanes: Vec<Arc<Lane>>,
}

/// Summary of one plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginSummary {
    /// Its name.
    pub name: Arc<str>,
    /// The running version.
    pub version: Option<String>,
    /// The digest of its component, in hexadecimal digits.
    pub digest: Option<String>,
    /// The wanted version, as far as it was loaded.
    pub wanted: Option<WantedVersion>,
    /// Set if the wanted version runs, or none is wanted.
    pub runs_wanted: bool,
    /// Set if the wanted version is refused.
    pub is_stalled: bool,
    /// Reason why the wanted version does not run: the condition `Reconciling` or `Stalled`, which is true.
    pub obstacle: Option<ConditionState>,
    /// Steps that failed when its artifact was asked for last; `None`: it has no artifact.
    pub artifact_failures: Option<Vec<ArtifactStep>>,
    /// Reason of its condition `Ready`, if that is true.
    pub ready: Option<&'static str>,
    /// Its condition `Ready`.
    pub condition: ConditionState,
    /// Reasons why the running version does not work in full.
    pub warnings: Vec<String>,
    /// Set if its code is mapped.
    pub is_awake: bool,
}

impl PluginRegistry {
    fn enter(&self, name: Arc<str>, plugin_state: Arc<PluginState>) {
        self.plugin_states.lock().insert(name, plugin_state);
    }

    fn leave(&self, name: &str) {
        self.plugin_states.lock().remove(name);
    }

    /// Sets the desired plugins.
    pub fn expect(&self, names: BTreeSet<Arc<str>>) {
        *self.expected.lock() = Some(Arc::new(names));
    }

    /// The desired plugins, whether they run, start, are suspended or stopped; `None` before all are known.
    pub fn expected(&self) -> Option<Arc<BTreeSet<Arc<str>>>> {
        self.expected.lock().clone()
    }

    /// Returns whether a plugin is desired; `None` before all are known.
    pub fn expects(&self, name: &str) -> Option<bool> {
        self.expected().map(|expected| expected.contains(name))
    }

    /// Records that the plugins of the start are registered, from Plugin resources or from the command line.
    pub fn set_entered(&self, by_resources: bool) {
        let _ = self.are_entered.set(by_resources);
    }

    /// Returns `true` if Plugin resources define the plugins, and have been listed.
    pub fn follows_resources(&self) -> bool {
        self.are_entered.get() == Some(&true)
    }

    /// The plugins that are starting; `None` before all are known.
    pub fn starting(&self) -> Option<Vec<StartingPlugin>> {
        self.are_entered.get()?;
        let registry = self.plugin_states.lock();
        let starting = registry.iter().filter_map(|(name, plugin_state)| {
            let known = plugin_state.known();
            let since = known
                .busy
                .filter(|_| known.fact(StartupStep::Ready).holds != Some(true))?;
            Some(StartingPlugin {
                name: name.clone(),
                since,
                lanes: known.lanes,
            })
        });
        Some(starting.collect())
    }

    /// Sets or clears a warning condition in the status of a plugin's resource.
    pub fn warn(&self, name: &str, warning: Option<ConditionState>) {
        if let Some(plugin_state) = self.plugin_states.lock().get(name)
            && plugin_state.known().warning != warning
        {
            plugin_state.set(|known| known.warning = warning);
        }
    }

    /// Returns `true` if there is a plugin, or none is desired, and none is changing.
    pub fn is_settled(&self) -> bool {
        let none_is_wanted = self.expected().is_some_and(|expected| expected.is_empty());
        let registry = self.plugin_states.lock();
        (!registry.is_empty() || none_is_wanted)
            && registry
                .values()
                .all(|plugin_state| plugin_state.known().busy.is_none())
    }

    /// Summaries of all plugins.
    pub fn summaries(&self) -> Vec<PluginSummary> {
        let registry = self.plugin_states.lock();
        let look = |(name, plugin_state): (&Arc<str>, &Arc<PluginState>)| {
            let known = plugin_state.known();
            let ready = known.fact(StartupStep::Ready);
            PluginSummary {
                name: name.clone(),
                ready: (ready.holds == Some(true)).then_some(ready.reason),
                condition: ready.clone(),
                runs_wanted: known.progress.obstacle().is_none(),
                is_stalled: known.progress.is_stalled(),
                obstacle: known.progress.obstacle().cloned(),
                artifact_failures: known.artifact_failures(),
                warnings: known
                    .lanes
                    .first()
                    .map(|lane| lane.health.warnings())
                    .unwrap_or_default(),
                is_awake: known.lanes.iter().any(|lane| lane.component.is_awake()),
                version: known.version,
                digest: known.digest,
                wanted: known.wanted,
            }
        };
        registry.iter().map(look).collect()
    }
}
