//! Owns the life cycle of plugins: the desired state of each, its startup, its replacement by another version, its
//! deletion, and its status.
//!
//! `desired` is what somebody asked for, `resources` and `static_plugins` say where from; `life_cycle` is the state
//! machine of one plugin, and `task` drives it, by way of `source`, `directory_reader`, `artifact`, `earlier_artifact`,
//! `prepare`, `staging`, `running` and `finish`; `plugin` is what there is of one plugin; `exclusive_kinds` keeps two from having the same kind,
//! `permissions` names missing rights of the host, `access` reviews those of the plugin's account, `inventory` and `inventory_write` know what earlier versions owned; `reporting`,
//! `state` and `status_writer` make the status of the Plugin resource, together with [`crate::lanes::health`].
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
use pilothouse_sandbox::Sandbox;
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub use crate::plugins::resource::desired::check_plugin;

use crate::artifacts::ArtifactStore;
use crate::context::HostContext;
use crate::lanes::lane::Lane;
use crate::options::HostOptions;
use crate::plugins::fetch::directory_reader::DirectoryReader;
use crate::plugins::resource::state::{ConditionState, PluginState, StartupStep};
use crate::plugins::version::exclusive_kinds::ExclusiveKinds;
use crate::watches::informers::Informers;

/// Components that are compiled at the same time. The compiler uses two threads, and the others have to go on.
const COMPILERS: usize = 1;

/// Plugins that are asked at the same time what they are: what that takes of memory is given back after each.
const DESCRIBERS: usize = 2;

/// Artifacts that are fetched at the same time, and references that are resolved: a slow registry takes no more threads and
/// connections than that.
const FETCHERS: usize = 4;
const RESOLVERS: usize = 16;

/// Plugins that make the requests of a start at the same time. Each takes a connection, which is kept for a while: a hundred
/// plugins would have a hundred.
const STARTERS: usize = 4;

/// Where the components of Plugin resources come from, and who loads them.
#[derive(Clone)]
pub struct Library {
    /// Who loads them.
    pub sandbox: Sandbox,
    /// `spec.source.file` is below this directory.
    pub directory: PathBuf,
    /// Where OCI artifacts come from; none: a Plugin that wants one is refused.
    pub artifacts: Option<Arc<dyn ArtifactStore>>,
}

/// What all plugins of a host have in common.
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
    /// The reviews of accounts' rights at once, of all plugins.
    reviewing: Arc<Semaphore>,
    fetching: Semaphore,
    resolving: Semaphore,
    registry: Arc<PluginRegistry>,
}

impl PluginContext {
    /// A context without plugins; without a library only those can come that are loaded.
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

    /// Has the informers list other namespaces whenever the cache is to hold others; never ends.
    pub async fn follow_cached_namespaces(&self) {
        let mut changes = self.host.cached.follow();
        loop {
            // Also what was told before.
            self.host.cached.take_in(|| self.informers.refresh());
            if changes.changed().await.is_err() {
                // The host has the sender.
                return;
            }
        }
    }
}

/// The plugins that are there, by name, for those who look at the host; and those that are wanted, whether they run or not.
#[derive(Default)]
pub struct PluginRegistry {
    plugin_states: Mutex<BTreeMap<Arc<str>, Arc<PluginState>>>,
    expected: Mutex<Option<Arc<BTreeSet<Arc<str>>>>>,
    /// Set once the plugins of the start have entered: whether Plugin resources said which.
    are_entered: OnceLock<bool>,
}

/// A plugin that has not come up, and has not said why it cannot.
pub struct StartingPlugin {
    /// Its name.
    pub name: Arc<str>,
    /// Since when.
    pub since: Instant,
    /// Its lanes, as far as they are known.
    pub lanes: Vec<Arc<Lane>>,
}

/// A look at one plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginSummary {
    /// Its name.
    pub name: Arc<str>,
    /// The version that runs.
    pub version: Option<String>,
    /// The digest of its component, in hexadecimal digits.
    pub digest: Option<String>,
    /// The reason of its condition `Ready`, if that is true.
    pub ready: Option<&'static str>,
    /// Its condition `Ready`.
    pub condition: ConditionState,
    /// What keeps the version that runs from working in full.
    pub warnings: Vec<String>,
    /// Whether its code is mapped.
    pub is_awake: bool,
}

impl PluginRegistry {
    fn enter(&self, name: Arc<str>, plugin_state: Arc<PluginState>) {
        self.plugin_states.lock().insert(name, plugin_state);
    }

    fn leave(&self, name: &str) {
        self.plugin_states.lock().remove(name);
    }

    /// These plugins are wanted, and no others.
    pub fn expect(&self, names: BTreeSet<Arc<str>>) {
        *self.expected.lock() = Some(Arc::new(names));
    }

    /// The plugins that are wanted, whether they run, start, are suspended or were stopped; none before all are known.
    pub fn expected(&self) -> Option<Arc<BTreeSet<Arc<str>>>> {
        self.expected.lock().clone()
    }

    /// Whether a plugin is wanted; none before all are known.
    pub fn expects(&self, name: &str) -> Option<bool> {
        self.expected().map(|expected| expected.contains(name))
    }

    /// The plugins of the start have entered, as Plugin resources say or as the command line does.
    pub fn are_entered(&self, by_resources: bool) {
        let _ = self.are_entered.set(by_resources);
    }

    /// Whether Plugin resources say which plugins there are, and have been listed.
    pub fn follows_resources(&self) -> bool {
        self.are_entered.get() == Some(&true)
    }

    /// The plugins that are on their way up; none before all are known.
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

    /// Says something in the status of a plugin's resource, beside what its own life says; none takes it back.
    pub fn warn(&self, name: &str, warning: Option<ConditionState>) {
        if let Some(plugin_state) = self.plugin_states.lock().get(name)
            && plugin_state.known().warning != warning
        {
            plugin_state.set(|known| known.warning = warning);
        }
    }

    /// Whether there is a plugin, or none is wanted, and none is on its way to something else.
    pub fn is_settled(&self) -> bool {
        let none_is_wanted = self.expected().is_some_and(|expected| expected.is_empty());
        let registry = self.plugin_states.lock();
        (!registry.is_empty() || none_is_wanted)
            && registry
                .values()
                .all(|plugin_state| plugin_state.known().busy.is_none())
    }

    /// A look at each.
    pub fn look(&self) -> Vec<PluginSummary> {
        let registry = self.plugin_states.lock();
        let look = |(name, plugin_state): (&Arc<str>, &Arc<PluginState>)| {
            let known = plugin_state.known();
            let ready = known.fact(StartupStep::Ready);
            PluginSummary {
                name: name.clone(),
                ready: (ready.holds == Some(true)).then_some(ready.reason),
                condition: ready.clone(),
                warnings: known
                    .lanes
                    .first()
                    .map(|lane| lane.health.warnings())
                    .unwrap_or_default(),
                is_awake: known.lanes.iter().any(|lane| lane.component.is_awake()),
                version: known.version,
                digest: known.digest,
            }
        };
        registry.iter().map(look).collect()
    }
}
