//! Metrics of reconciles and calls. The series of a plugin exist as long as the plugin.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::label::{LabelText, closed_set};

/// Buckets in seconds: a reconcile that writes takes some milliseconds, and one that waits for a claim takes seconds.
const RECONCILE_BUCKETS: [f64; 12] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];

/// Buckets in seconds: an object of a host with free capacity is reconciled within a second, and a queue may take minutes.
const LATENCY_BUCKETS: [f64; 9] = [0.05, 0.25, 1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0];

/// Buckets in seconds: a call takes some microseconds, and ends after five seconds unless the limits say otherwise.
const CALL_BUCKETS: [f64; 12] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.005, 0.025, 0.1, 1.0, 5.0,
];

closed_set! {
    /// Outcome of a reconcile. A failure counts by who can fix it.
    ReconcileOutcome {
        /// Success.
        Success = "success",
        /// The object no longer existed.
        Gone = "gone",
        /// Failure of the plugin.
        Guest = "guest_failure",
        /// Failure of the user who wrote the object or the configuration.
        User = "user_failure",
        /// Failure of the API server, or of an object in it.
        Cluster = "cluster_failure",
        /// Failure of the host.
        Host = "host_failure",
    }
}

closed_set! {
    /// Function of the plugin that is called.
    CallFunction {
        /// Describe the plugin.
        Describe = "describe",
        /// Reconcile an object.
        Reconcile = "reconcile",
        /// Finalize an object.
        Finalize = "finalize",
        /// Fill in defaults.
        ApplyDefaults = "apply_defaults",
        /// Validate an object.
        Validate = "validate",
        /// Convert an object.
        Convert = "convert",
    }
}

closed_set! {
    /// Faults of a plugin that end a call without an answer. Most are limits, by their names in a limits file.
    GuestFault {
        /// A trap, such as a panic.
        Trap = "trap",
        /// Too much time.
        Time = "callMilliseconds",
        /// Too much memory.
        Memory = "memoryBytes",
        /// Too large a table.
        Table = "tableElements",
        /// Too deep a recursion.
        Stack = "stackBytes",
        /// Too much data passed to the host at once.
        Transfer = "transferBytes",
        /// Too large an answer, or one with too many objects.
        Output = "output",
        /// Too many reads.
        Reads = "reads",
        /// Too many bytes read.
        ReadBytes = "readBytes",
        /// A forbidden read or call, or an answer that breaks the contract.
        Contract = "contract",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    plugin: LabelText,
    controller: LabelText,
    result: ReconcileOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabels {
    plugin: LabelText,
    controller: LabelText,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    plugin: LabelText,
    function: CallFunction,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FaultLabels {
    plugin: LabelText,
    kind: GuestFault,
}

/// Metric families of plugins, and the plugins that have series in them. A clone is the same.
#[derive(Clone, Debug)]
pub struct PluginMetrics {
    families: Arc<PluginFamilies>,
    plugins: Arc<Mutex<BTreeMap<Arc<str>, PluginSeries>>>,
}

#[derive(Debug)]
struct PluginFamilies {
    reconciles: Family<ReconcileLabels, Counter>,
    reconcile_durations: Family<ReconcileLabels, Histogram>,
    latencies: Family<ControllerLabels, Histogram>,
    call_durations: Family<CallLabels, Histogram>,
    faults: Family<FaultLabels, Counter>,
}

impl Default for PluginFamilies {
    fn default() -> Self {
        Self {
            reconciles: Family::default(),
            reconcile_durations: Family::new_with_constructor(|| Histogram::new(RECONCILE_BUCKETS)),
            latencies: Family::new_with_constructor(|| Histogram::new(LATENCY_BUCKETS)),
            call_durations: Family::new_with_constructor(|| Histogram::new(CALL_BUCKETS)),
            faults: Family::default(),
        }
    }
}

/// Series of one plugin.
#[derive(Debug)]
struct PluginSeries {
    calls: CallMetrics,
    controllers: BTreeMap<String, ControllerSeries>,
}

/// Series of one controller, by [`ReconcileOutcome`].
#[derive(Debug)]
struct ControllerSeries {
    reconciles: Vec<Counter>,
    /// Histograms, each made when the first such reconcile ends: one prints as many lines as all counters together.
    durations: Vec<OnceLock<Histogram>>,
    /// Histogram of the times from the queue to the end, made with the first reconcile that counts.
    latency: OnceLock<Histogram>,
}

/// Metrics of the calls of one plugin. Calls that end after the plugin is removed appear nowhere.
#[derive(Clone, Debug)]
pub struct CallMetrics(Arc<CallSeries>);

#[derive(Debug)]
struct CallSeries {
    plugin: LabelText,
    families: Arc<PluginFamilies>,
    /// Histograms, with a mark that the plugin was removed, so that no more series are made.
    durations: Mutex<CallDurations>,
    faults: Vec<Counter>,
}

/// Histograms by [`CallFunction`], each made with the first such call.
#[derive(Debug)]
struct CallDurations {
    histograms: Vec<Option<Histogram>>,
    is_gone: bool,
}

impl PluginMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let families = PluginFamilies::default();
        let PluginFamilies {
            reconciles,
            reconcile_durations,
            latencies,
            call_durations,
            faults,
        } = &families;
        registry.register(
            "reconciles",
            "Number of reconciles that ended, by result; a failure counts by who can fix it",
            reconciles.clone(),
        );
        registry.register(
            "reconcile_duration_seconds",
            "Time from the start of a reconcile to its end, in seconds, waiting for claims included",
            reconcile_durations.clone(),
        );
        registry.register(
            "reconcile_latency_seconds",
            "Time from when an object was queued to the end of its reconcile, in seconds, unless the cluster or the host failed",
            latencies.clone(),
        );
        registry.register(
            "guest_call_duration_seconds",
            "Time of a call of a plugin, in seconds, its reads included",
            call_durations.clone(),
        );
        registry.register(
            "guest_traps",
            "Number of calls that ended without an answer because the plugin trapped, broke a limit or broke the contract",
            faults.clone(),
        );
        Self {
            families: Arc::new(families),
            plugins: Arc::default(),
        }
    }

    /// Adds a plugin. Returns the metrics of its calls.
    pub fn enter(&self, plugin: &Arc<str>) -> CallMetrics {
        let mut plugins = self.plugins.lock();
        let series = plugins.entry(plugin.clone()).or_insert_with(|| PluginSeries {
            calls: CallMetrics::new(plugin, self.families.clone()),
            controllers: BTreeMap::new(),
        });
        series.calls.clone()
    }

    /// Removes a plugin with all of its series.
    pub fn leave(&self, plugin: &str) {
        let Some(PluginSeries { calls, controllers }) = self.plugins.lock().remove(plugin) else {
            return;
        };
        for controller in controllers.keys() {
            self.remove_controller(plugin, controller);
        }
        calls.remove();
    }

    /// Adds a controller of a plugin.
    pub fn enter_controller(&self, plugin: &str, controller: &str) {
        let mut plugins = self.plugins.lock();
        if let Some(series) = plugins.get_mut(plugin) {
            series.controllers.entry(controller.to_owned()).or_insert_with(|| {
                let labels = reconcile_labels(plugin, controller);
                ControllerSeries {
                    reconciles: labels
                        .map(|labels| self.families.reconciles.get_or_create_owned(&labels))
                        .collect(),
                    durations: ReconcileOutcome::ALL.iter().map(|_| OnceLock::new()).collect(),
                    latency: OnceLock::new(),
                }
            });
        }
    }

    /// Removes the controllers of a plugin that are not in this set.
    pub fn keep_controllers(&self, plugin: &str, controllers: &BTreeSet<&str>) {
        let mut plugins = self.plugins.lock();
        if let Some(series) = plugins.get_mut(plugin) {
            series.controllers.retain(|controller, _| {
                let is_kept = controllers.contains(&**controller);
                if !is_kept {
                    self.remove_controller(plugin, controller);
                }
                is_kept
            });
        }
    }

    /// Counts a reconcile that has ended, after this time in the queue and this time since then. Ignored if its plugin or
    /// controller was removed.
    pub fn reconciled(
        &self,
        plugin: &str,
        controller: &str,
        outcome: ReconcileOutcome,
        waited: Duration,
        took: Duration,
    ) {
        let plugins = self.plugins.lock();
        let series = plugins
            .get(plugin)
            .and_then(|plugin| plugin.controllers.get(controller));
        let Some(ControllerSeries {
            reconciles,
            durations,
            latency,
        }) = series
        else {
            return;
        };
        reconciles[outcome as usize].inc();
        let histogram = durations[outcome as usize].get_or_init(|| {
            let labels = ReconcileLabels {
                plugin: plugin.into(),
                controller: controller.into(),
                result: outcome,
            };
            self.families.reconcile_durations.get_or_create_owned(&labels)
        });
        histogram.observe(took.as_secs_f64());
        // A failure of the plugin or of a user is the result that they asked for.
        if !matches!(outcome, ReconcileOutcome::Cluster | ReconcileOutcome::Host) {
            let histogram = latency.get_or_init(|| {
                let labels = controller_labels(plugin, controller);
                self.families.latencies.get_or_create_owned(&labels)
            });
            histogram.observe((waited + took).as_secs_f64());
        }
    }

    fn remove_controller(&self, plugin: &str, controller: &str) {
        self.families.latencies.remove(&controller_labels(plugin, controller));
        for labels in reconcile_labels(plugin, controller) {
            self.families.reconciles.remove(&labels);
            self.families.reconcile_durations.remove(&labels);
        }
    }
}

impl CallMetrics {
    fn new(plugin: &str, families: Arc<PluginFamilies>) -> Self {
        let plugin = LabelText::from(plugin);
        let fault = |kind: &GuestFault| {
            let labels = FaultLabels {
                plugin: plugin.clone(),
                kind: *kind,
            };
            families.faults.get_or_create_owned(&labels)
        };
        Self(Arc::new(CallSeries {
            faults: GuestFault::ALL.iter().map(fault).collect(),
            durations: Mutex::new(CallDurations {
                histograms: vec![None; CallFunction::ALL.len()],
                is_gone: false,
            }),
            plugin,
            families,
        }))
    }

    /// Counts a call that has ended after this long.
    pub fn ended(&self, function: CallFunction, took: Duration, fault: Option<GuestFault>) {
        let CallSeries {
            plugin,
            families,
            durations,
            faults,
        } = &*self.0;
        if let Some(fault) = fault {
            faults[fault as usize].inc();
        }
        let mut durations = durations.lock();
        if durations.is_gone {
            return;
        }
        let histogram = durations.histograms[function as usize].get_or_insert_with(|| {
            let plugin = plugin.clone();
            families
                .call_durations
                .get_or_create_owned(&CallLabels { plugin, function })
        });
        histogram.observe(took.as_secs_f64());
    }

    fn remove(&self) {
        let CallSeries {
            plugin,
            families,
            durations,
            faults: _,
        } = &*self.0;
        durations.lock().is_gone = true;
        for kind in GuestFault::ALL {
            let (plugin, kind) = (plugin.clone(), *kind);
            families.faults.remove(&FaultLabels { plugin, kind });
        }
        for function in CallFunction::ALL {
            let (plugin, function) = (plugin.clone(), *function);
            families.call_durations.remove(&CallLabels { plugin, function });
        }
    }
}

fn controller_labels(plugin: &str, controller: &str) -> ControllerLabels {
    ControllerLabels {
        plugin: plugin.into(),
        controller: controller.into(),
    }
}

fn reconcile_labels(plugin: &str, controller: &str) -> impl Iterator<Item = ReconcileLabels> {
    let (plugin, controller) = (LabelText::from(plugin), LabelText::from(controller));
    ReconcileOutcome::ALL.iter().map(move |result| ReconcileLabels {
        plugin: plugin.clone(),
        controller: controller.clone(),
        result: *result,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Metrics, StateFigures};

    const TOOK: Duration = Duration::from_millis(2);

    fn lines(metrics: &Metrics, plugin: &str) -> Vec<String> {
        let text = metrics.print(&StateFigures::default());
        let label = format!("plugin=\"{plugin}\"");
        text.lines()
            .filter(|line| line.contains(&label))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn the_series_of_a_plugin_go_with_it_and_none_comes_back() {
        let metrics = Metrics::default();
        let plugins = metrics.plugins();
        let calls = ["a", "b"].map(|plugin| {
            let calls = plugins.enter(&plugin.into());
            plugins.enter_controller(plugin, "c");
            plugins.reconciled(plugin, "c", ReconcileOutcome::Guest, TOOK, TOOK);
            calls.ended(CallFunction::Reconcile, TOOK, Some(GuestFault::Trap));
            calls
        });
        let of_b = lines(&metrics, "b");
        let counted = [
            "pilothouse_reconciles_total{plugin=\"b\",controller=\"c\",result=\"guest_failure\"} 1",
            "pilothouse_reconciles_total{plugin=\"b\",controller=\"c\",result=\"success\"} 0",
            "pilothouse_reconcile_latency_seconds_sum{plugin=\"b\",controller=\"c\"} 0.004",
            "pilothouse_guest_traps_total{plugin=\"b\",kind=\"trap\"} 1",
            "pilothouse_guest_call_duration_seconds_count{plugin=\"b\",function=\"reconcile\"} 1",
        ];
        for line in counted {
            assert!(of_b.iter().any(|it| it == line), "{line} is missing in {of_b:#?}");
        }
        plugins.leave("a");
        // A reconcile that ends later is not counted for the next plugin of this name.
        plugins.reconciled("a", "c", ReconcileOutcome::Success, TOOK, TOOK);
        plugins.enter_controller("a", "c");
        calls[0].ended(CallFunction::Validate, TOOK, Some(GuestFault::Time));
        assert_eq!(lines(&metrics, "a"), [""; 0]);
        let mut after = lines(&metrics, "b");
        let mut before = of_b;
        before.sort();
        after.sort();
        assert_eq!(after, before);
        plugins.enter(&"a".into()).ended(CallFunction::Validate, TOOK, None);
        assert!(
            lines(&metrics, "a").contains(&"pilothouse_guest_traps_total{plugin=\"a\",kind=\"trap\"} 0".to_owned())
        );
    }

    #[test]
    fn a_controller_that_a_new_version_does_not_have_is_gone() {
        let metrics = Metrics::default();
        let plugins = metrics.plugins();
        plugins.enter(&"a".into());
        for controller in ["old", "kept"] {
            plugins.enter_controller("a", controller);
            plugins.reconciled("a", controller, ReconcileOutcome::Success, TOOK, TOOK);
        }
        plugins.keep_controllers("a", &BTreeSet::from(["kept", "never"]));
        plugins.reconciled("a", "old", ReconcileOutcome::Success, TOOK, TOOK);
        plugins.reconciled("a", "kept", ReconcileOutcome::Success, TOOK, TOOK);
        let lines = lines(&metrics, "a");
        assert!(!lines.iter().any(|line| line.contains("old")), "{lines:#?}");
        let kept = "pilothouse_reconciles_total{plugin=\"a\",controller=\"kept\",result=\"success\"} 2".to_owned();
        assert!(lines.contains(&kept), "{lines:#?}");
    }

    #[test]
    fn a_failure_of_the_cluster_is_no_latency() {
        let metrics = Metrics::default();
        let plugins = metrics.plugins();
        plugins.enter(&"a".into());
        plugins.enter_controller("a", "c");
        for outcome in ReconcileOutcome::ALL {
            plugins.reconciled("a", "c", *outcome, TOOK, TOOK);
        }
        let counted = "pilothouse_reconcile_latency_seconds_count{plugin=\"a\",controller=\"c\"} 4".to_owned();
        assert!(lines(&metrics, "a").contains(&counted));
    }
}
