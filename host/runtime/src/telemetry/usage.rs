//! Counts each plugin's usage since the host started: reconciles, time, the memory of its calls, and requests. No
//! decision depends on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Usage of one plugin. A clone is a snapshot, except of the shared `requests`.
#[derive(Clone, Debug, Default)]
pub struct PluginUsage {
    /// Reconciles that ended.
    pub reconciles: u64,
    /// Failed reconciles among them.
    pub failures: u64,
    /// Total time of the reconciles.
    pub reconcile_time: Duration,
    /// Total time of the plugin's own code in them.
    pub call_time: Duration,
    /// The largest linear memory of a call, in bytes.
    pub largest_memory: u64,
    /// Requests to the API server in the plugin's name.
    pub requests: Arc<AtomicU64>,
}

/// Usage of all plugins, by name.
#[derive(Debug, Default)]
pub struct UsageBook(Mutex<BTreeMap<Arc<str>, PluginUsage>>);

impl UsageBook {
    /// Counter of a plugin's requests.
    pub fn requests_of(&self, plugin: &Arc<str>) -> Arc<AtomicU64> {
        self.0.lock().entry(plugin.clone()).or_default().requests.clone()
    }

    /// Records a call of a plugin, with the size of its linear memory in bytes.
    pub fn called(&self, plugin: &str, memory: u64) {
        if let Some(usage) = self.0.lock().get_mut(plugin) {
            usage.largest_memory = usage.largest_memory.max(memory);
        }
    }

    /// Records a reconcile, with its duration and the part in the plugin's code.
    pub fn reconciled(&self, plugin: &str, is_failure: bool, took: Duration, called: Duration) {
        if let Some(usage) = self.0.lock().get_mut(plugin) {
            usage.reconciles += 1;
            usage.failures += u64::from(is_failure);
            usage.reconcile_time += took;
            usage.call_time += called;
        }
    }

    /// Forgets a removed plugin.
    pub fn leave(&self, plugin: &str) {
        self.0.lock().remove(plugin);
    }

    /// Usage of a plugin.
    pub fn get(&self, plugin: &str) -> PluginUsage {
        self.0.lock().get(plugin).cloned().unwrap_or_default()
    }
}

impl PluginUsage {
    /// Number of requests in the plugin's name.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_plugin_used_is_added_up_and_goes_with_it() {
        let (book, plugin) = (UsageBook::default(), Arc::<str>::from("a"));
        let requests = book.requests_of(&plugin);
        requests.fetch_add(3, Ordering::Relaxed);
        for (is_failure, memory) in [(false, 20), (true, 10)] {
            book.called("a", memory);
            book.reconciled("a", is_failure, Duration::from_secs(2), Duration::from_secs(1));
        }
        let usage = book.get("a");
        assert_eq!((usage.reconciles, usage.failures, usage.requests()), (2, 1, 3));
        assert_eq!(usage.reconcile_time, Duration::from_secs(4));
        assert_eq!((usage.call_time, usage.largest_memory), (Duration::from_secs(2), 20));
        book.leave("a");
        book.reconciled("a", false, Duration::from_secs(2), Duration::ZERO);
        assert_eq!(book.get("a").reconciles, 0);
    }
}
