//! Options of a simulated cluster.

use crate::clock::Clock;

/// How many changes can be watched from the past unless told otherwise.
const DEFAULT_HISTORY: usize = 10_000;

/// Which of the control plane's controllers run.
#[derive(Debug, Clone)]
pub struct Controllers {
    /// Deletes objects whose owners are gone, and handles foreground and orphaning deletion.
    pub garbage_collector: bool,
    /// Empties and removes namespaces that are being deleted, and gives new ones their `default` service account and
    /// `kube-root-ca.crt`.
    pub namespace: bool,
    /// What becomes of Deployments, StatefulSets, DaemonSets and Jobs.
    pub workloads: Workloads,
}

/// What becomes of Deployments, StatefulSets, DaemonSets and Jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workloads {
    /// Nothing: no controller runs.
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
    /// Which controllers run.
    pub controllers: Controllers,
    /// Where timestamps come from.
    pub clock: Clock,
    /// What uids, generated names, node ports and faults are drawn from.
    pub seed: u64,
    /// How many changes of objects are remembered: a watch from before gets 410 Gone.
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
