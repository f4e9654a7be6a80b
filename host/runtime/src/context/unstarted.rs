//! Plugins that this replica cannot start although another replica runs them. They hold its readiness back, and it takes
//! no shards: a rollout would end replicas that work for one that does not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pilothouse_cluster::resources::host_resources::HostResource;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::election::leadership::Leadership;

/// Maximum time after the start for which they do so: one plugin must not keep a cluster from getting another version
/// of the host for ever. It is longer than rollouts are awaited, so that somebody notices.
pub const LONGEST_HOLD: Duration = Duration::from_hours(1);

/// The plugins that do not run here although they are to.
pub struct UnstartedPlugins {
    plugins: Mutex<BTreeMap<Arc<str>, UnstartedPlugin>>,
    /// Set once all plugins of the start are known.
    are_known: AtomicBool,
    begun: Instant,
}

struct UnstartedPlugin {
    live: watch::Receiver<Arc<HostResource>>,
    /// Reason why it could not be started; `None` during the first attempt.
    problem: Option<String>,
}

impl UnstartedPlugin {
    /// The leader writes into a Plugin's status which component runs.
    fn runs_somewhere(&self) -> bool {
        self.live.borrow().status["digest"].is_string()
    }
}

impl Default for UnstartedPlugins {
    fn default() -> Self {
        Self {
            plugins: Mutex::default(),
            are_known: AtomicBool::new(false),
            begun: Instant::now(),
        }
    }
}

impl UnstartedPlugins {
    /// Records that all plugins of the start are known.
    pub fn set_known(&self) {
        self.are_known.store(true, Ordering::Relaxed);
    }

    /// Records that a plugin is to start.
    pub fn enter(&self, name: &Arc<str>, live: watch::Receiver<Arc<HostResource>>) {
        let plugin = UnstartedPlugin { live, problem: None };
        self.plugins.lock().insert(name.clone(), plugin);
    }

    /// Records that no version of a plugin could be started.
    pub fn refuse(&self, name: &Arc<str>, live: &watch::Receiver<Arc<HostResource>>, problem: &str) {
        let (live, problem) = (live.clone(), Some(problem.to_owned()));
        self.plugins
            .lock()
            .insert(name.clone(), UnstartedPlugin { live, problem });
    }

    /// Records that a version runs, or that none is to.
    pub fn leave(&self, name: &str) {
        self.plugins.lock().remove(name);
    }

    /// The plugins that another replica runs, with the reasons why this one cannot start them. For a replica that leads
    /// there are none, and when it cannot start a plugin either, its status says so, and there are none for the others.
    pub fn run_elsewhere(&self, leadership: &Leadership) -> Vec<(Arc<str>, String)> {
        if self.is_over(leadership) {
            return Vec::new();
        }
        let plugins = self.plugins.lock();
        let elsewhere = plugins.iter().filter(|(_, plugin)| plugin.runs_somewhere());
        elsewhere
            .filter_map(|(name, plugin)| Some((name.clone(), plugin.problem.clone()?)))
            .collect()
    }

    /// Returns `true` if another replica runs this plugin, which has not started here.
    pub fn runs_elsewhere(&self, name: &str, leadership: &Leadership) -> bool {
        let plugins = self.plugins.lock();
        !self.is_over(leadership) && plugins.get(name).is_some_and(UnstartedPlugin::runs_somewhere)
    }

    /// Returns `true` if this replica has not started all plugins that others run, as far as it knows, so that their objects
    /// are better off with the others.
    pub fn lacks_any(&self, leadership: &Leadership) -> bool {
        if self.is_over(leadership) {
            return false;
        }
        let plugins = self.plugins.lock();
        !self.are_known.load(Ordering::Relaxed) || plugins.values().any(UnstartedPlugin::runs_somewhere)
    }

    fn is_over(&self, leadership: &Leadership) -> bool {
        leadership.leads() || self.begun.elapsed() >= LONGEST_HOLD
    }
}
