//! Plugins that this replica cannot start although another replica runs them. They hold its readiness back, and it takes
//! no shards: a rollout would end replicas that work for one that does not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pilothouse_cluster::resources::host_resources::HostResource;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::election::leadership::Leadership;

/// Maximum time after the start for which they do so: one plugin must not keep a cluster from getting another version
/// of the host for ever. It is longer than rollouts are awaited, so that somebody notices.
pub const LONGEST_HOLD: Duration = Duration::from_hours(1);

/// The plugins that could not be started, with the reasons.
pub struct UnstartedPlugins {
    plugins: Mutex<BTreeMap<Arc<str>, UnstartedPlugin>>,
    begun: Instant,
}

struct UnstartedPlugin {
    live: watch::Receiver<Arc<HostResource>>,
    problem: String,
}

impl Default for UnstartedPlugins {
    fn default() -> Self {
        Self {
            plugins: Mutex::default(),
            begun: Instant::now(),
        }
    }
}

impl UnstartedPlugins {
    /// Records that no version of a plugin could be started.
    pub fn enter(&self, name: &Arc<str>, live: &watch::Receiver<Arc<HostResource>>, problem: &str) {
        let (live, problem) = (live.clone(), problem.to_owned());
        self.plugins
            .lock()
            .insert(name.clone(), UnstartedPlugin { live, problem });
    }

    /// Records that a version runs, or that none is to.
    pub fn leave(&self, name: &str) {
        self.plugins.lock().remove(name);
    }

    /// The plugins that another replica runs, with the reasons why this one cannot start them. The leader writes into a
    /// Plugin's status which component runs. So none is held back for the replica that leads, and when it cannot start
    /// the plugin either, for no other.
    pub fn run_elsewhere(&self, leadership: &Leadership) -> Vec<(Arc<str>, String)> {
        if leadership.leads() || self.begun.elapsed() >= LONGEST_HOLD {
            return Vec::new();
        }
        let plugins = self.plugins.lock();
        let elsewhere = plugins
            .iter()
            .filter(|(_, plugin)| plugin.live.borrow().status["digest"].is_string());
        elsewhere
            .map(|(name, plugin)| (name.clone(), plugin.problem.clone()))
            .collect()
    }
}
