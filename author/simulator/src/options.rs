//! Options of a simulated cluster.

use crate::clock::Clock;

/// Default count of past changes that a watch may start from.
const DEFAULT_HISTORY: usize = 10_000;

/// Controllers of the control plane that run.
#[derive(Debug, Clone)]
pub struct Controllers {
    /// Deletes objects whose owners are gone, and handles foreground and orphaning deletion.
    pub garbage_collector: bool,
    /// Empties and removes namespaces that are being deleted, and gives new ones their `default` service account and
    /// `kube-root-ca.crt`.
    pub namespace: bool,
    /// Handling of Deployments, StatefulSets, DaemonSets and Jobs.
    pub workloads: Workloads,
}

/// Handling of Deployments, StatefulSets, DaemonSets and Jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workloads {
    /// Ignored: no controller runs.
    Ignored,
    /// Their pods are made and counted, but none becomes ready by itself, as on a real control plane without nodes.
    NeverReady,
    /// The same, and pods become ready at once, or succeed if they do not restart always.
    Ready,
}

impl Default for Controllers {
    fn default() -> Self {
        Self {
            garbage_collector: true,
            namespace: true,
            workloads: Workloads::Ready,
        }
    }
}

/// Options of a simulated cluster.
#[derive(Debug, Clone)]
pub struct Options {
    /// Controllers that run.
    pub controllers: Controllers,
    /// Source of timestamps.
    pub clock: Clock,
    /// Seed of uids, generated names, node ports and faults.
    pub seed: u64,
    /// Count of remembered changes of objects: a watch from before gets 410 Gone.
    pub history: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            controllers: Controllers::default(),
            clock: Clock::default(),
            seed: 1,
            history: DEFAULT_HISTORY,
        }
    }
}
