//! Gauges: figures of the host's state at one moment, which the runtime collects at each scrape.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

use crate::PREFIX;
use crate::label::{LabelText, closed_set};
use crate::process::ProcessFigures;

/// State of a host at one moment. Unknown parts are not printed.
#[derive(Clone, Debug, Default)]
pub struct StateFigures {
    /// The version of the host.
    pub version: &'static str,
    /// Time since the main loop's last turn; none before it begins and after it ends.
    pub main_loop_age: Option<Duration>,
    /// The process, if the system reports it.
    pub process: Option<ProcessFigures>,
    /// True if it is the leader; none without leader election.
    pub is_leader: Option<bool>,
    /// Number of shards that it holds, and number of all shards; none without sharding.
    pub shards: Option<(u64, u64)>,
    /// Bugs of the host that it has noticed and recovered from.
    pub mistakes: u64,
    /// The plugins.
    pub plugins: Vec<PluginFigures>,
    /// Their controllers.
    pub controllers: Vec<ControllerFigures>,
    /// The kinds that are cached.
    pub kinds: Vec<KindFigures>,
}

closed_set! {
    /// Step of getting an artifact.
    ArtifactStep {
        /// Resolve its reference and fetch it.
        Fetch = "fetch",
        /// Verify its signature.
        Verify = "verify",
    }
}

/// A plugin.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a gauge of its own")]
pub struct PluginFigures {
    /// Name.
    pub name: String,
    /// Version that runs, if one does.
    pub version: Option<String>,
    /// SHA-256 of its component, in hexadecimal digits.
    pub digest: Option<String>,
    /// Version and SHA-256 of the component that is wanted, as far as it could be loaded.
    pub wanted: Option<(String, String)>,
    /// True if the wanted version runs, or none is wanted.
    pub runs_wanted: bool,
    /// True if the wanted version is refused.
    pub is_stalled: bool,
    /// Steps that failed when its artifact was asked for last; none if it has no artifact.
    pub artifact_failures: Option<Vec<ArtifactStep>>,
    /// True if its condition `Ready` is true.
    pub is_ready: bool,
    /// True if its code is mapped.
    pub is_awake: bool,
    /// Events that were dropped because there were too many; none while it does not run.
    pub dropped_events: Option<u64>,
}

/// A controller of a plugin.
#[derive(Clone, Debug, Default)]
pub struct ControllerFigures {
    /// Its plugin.
    pub plugin: String,
    /// Name in the manifest.
    pub controller: String,
    /// True if all its kinds are listed, so that it reconciles.
    pub is_synced: bool,
    /// Objects that are ready to be reconciled.
    pub queued: u64,
    /// Time that the oldest of them has been ready.
    pub oldest: Duration,
    /// Objects that are being reconciled.
    pub running: u64,
    /// Objects that are requeued for a later time.
    pub delayed: u64,
    /// Objects that wait for the cache to show their own writes.
    pub held: u64,
    /// Objects whose last reconcile failed.
    pub failing: u64,
    /// Those of them that are not reconciled again before something changes.
    pub stalled: u64,
    /// Paused objects: they are neither reconciled nor written.
    pub paused: u64,
    /// Recorded reads; a change of an object that was read requeues the reader.
    pub dependencies: u64,
    /// Estimated memory of the recorded reads, in bytes.
    pub dependency_bytes: u64,
}

/// A kind that is cached.
#[derive(Clone, Debug, Default)]
pub struct KindFigures {
    /// Kind as kubectl spells it: `Deployment.v1.apps`.
    pub kind: String,
    /// Number of its objects.
    pub objects: u64,
    /// Memory of the objects, in bytes.
    pub bytes: u64,
    /// Objects in which the API server stores other values than the host applied.
    pub rewritten: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PluginLabel {
    plugin: LabelText,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PluginInfo {
    plugin: LabelText,
    version: LabelText,
    digest: LabelText,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabels {
    plugin: LabelText,
    controller: LabelText,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ArtifactLabels {
    plugin: LabelText,
    step: ArtifactStep,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: LabelText,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildInfo {
    version: LabelText,
}

/// A gauge that is registered for one print.
type Integers<L> = Family<L, Gauge<u64, AtomicU64>>;
type Seconds<L> = Family<L, Gauge<f64, AtomicU64>>;

impl StateFigures {
    pub(crate) fn registry(&self) -> Registry {
        let Self {
            version,
            main_loop_age,
            process: _,
            is_leader,
            shards,
            mistakes,
            plugins,
            controllers,
            kinds,
        } = self;
        let mut registry = Registry::with_prefix(PREFIX);
        let build = Integers::default();
        let info = BuildInfo {
            version: (*version).into(),
        };
        build.get_or_create(&info).set(1);
        registry.register("build_info", "The version of the host; the value is always 1", build);
        if let Some(age) = main_loop_age {
            let help = "Time since the main loop turned last, in seconds; it turns at least once a second";
            registry.register("main_loop_age_seconds", help, ConstGauge::new(age.as_secs_f64()));
        }
        if let Some(is_leader) = is_leader {
            let help = "Whether this replica leads, so that it writes; only with --leader-election";
            registry.register("leader", help, ConstGauge::new(u64::from(*is_leader)));
        }
        if let Some((held, of)) = shards {
            registry.register("shards", "Number of shards; only with --shards", ConstGauge::new(*of));
            let help = "Number of shards that this replica holds; only with --shards";
            registry.register("shards_held", help, ConstGauge::new(*held));
        }
        registry.register(
            "internal_errors",
            "Number of mistakes of the host itself that it noticed and recovered from; the log names each",
            ConstCounter::new(*mistakes),
        );
        register_plugins(&mut registry, plugins);
        register_controllers(&mut registry, controllers);
        register_kinds(&mut registry, kinds);
        registry
    }
}

fn register_plugins(registry: &mut Registry, plugins: &[PluginFigures]) {
    let (info, wanted_info) = (Integers::default(), Integers::default());
    let (runs_wanted, stalled, ready, awake) = <(Integers<_>, Integers<_>, Integers<_>, Integers<_>)>::default();
    let artifact_failing = Integers::default();
    let dropped = Family::<PluginLabel, Counter>::default();
    for figures in plugins {
        let PluginFigures {
            name,
            version,
            digest,
            wanted,
            runs_wanted: runs_wanted_now,
            is_stalled,
            artifact_failures,
            is_ready,
            is_awake,
            dropped_events,
        } = figures;
        let plugin = LabelText::from(&**name);
        let labels = |version: &str, digest: &str| PluginInfo {
            plugin: plugin.clone(),
            version: LabelText::from(version),
            digest: LabelText::from(&*format!("sha256:{digest}")),
        };
        if let (Some(version), Some(digest)) = (version, digest) {
            info.get_or_create(&labels(version, digest)).set(1);
        }
        if let Some((version, digest)) = wanted {
            wanted_info.get_or_create(&labels(version, digest)).set(1);
        }
        for (step, failures) in ArtifactStep::ALL
            .iter()
            .filter_map(|step| Some((*step, artifact_failures.as_ref()?)))
        {
            let plugin = plugin.clone();
            let label = ArtifactLabels { plugin, step };
            artifact_failing
                .get_or_create(&label)
                .set(u64::from(failures.contains(&step)));
        }
        let label = PluginLabel { plugin };
        runs_wanted.get_or_create(&label).set(u64::from(*runs_wanted_now));
        stalled.get_or_create(&label).set(u64::from(*is_stalled));
        ready.get_or_create(&label).set(u64::from(*is_ready));
        awake.get_or_create(&label).set(u64::from(*is_awake));
        if let Some(events) = dropped_events {
            dropped.get_or_create(&label).inc_by(*events);
        }
    }
    let help = "The version of a plugin that runs and the digest of its component; the value is always 1";
    registry.register("plugin_info", help, info);
    let help = "The version of a plugin that is wanted and the digest of its component, as far as it could be loaded; the value is always 1";
    registry.register("plugin_wanted_info", help, wanted_info);
    let help = "Whether the wanted version of a plugin runs, or none is wanted";
    registry.register("plugin_wanted_version_runs", help, runs_wanted);
    let help = "Whether the wanted version of a plugin is refused, as the condition Stalled says";
    registry.register("plugin_stalled", help, stalled);
    let help = "Whether the last attempt to fetch or to verify the artifact of a plugin failed";
    registry.register("plugin_artifact_failing", help, artifact_failing);
    let help = "Whether the condition Ready of a plugin is true";
    registry.register("plugin_ready", help, ready);
    let help = "Whether the code of a plugin is mapped into memory; an idle plugin is asleep";
    registry.register("plugin_awake", help, awake);
    let help = "Number of Kubernetes events that were not emitted because the plugin or the object had too many";
    registry.register("events_dropped", help, dropped);
}

fn register_controllers(registry: &mut Registry, controllers: &[ControllerFigures]) {
    let (synced, queued, running, delayed) = <(Integers<_>, Integers<_>, Integers<_>, Integers<_>)>::default();
    let (held, failing, dependencies, bytes) = <(Integers<_>, Integers<_>, Integers<_>, Integers<_>)>::default();
    let (stalled, paused) = <(Integers<_>, Integers<_>)>::default();
    let ages = Seconds::default();
    for figures in controllers {
        let ControllerFigures {
            plugin,
            controller,
            is_synced,
            queued: queued_now,
            oldest,
            running: running_now,
            delayed: delayed_now,
            held: held_now,
            failing: failing_now,
            stalled: stalled_now,
            paused: paused_now,
            dependencies: dependencies_now,
            dependency_bytes,
        } = figures;
        let labels = ControllerLabels {
            plugin: LabelText::from(&**plugin),
            controller: LabelText::from(&**controller),
        };
        let values = [
            (&synced, u64::from(*is_synced)),
            (&queued, *queued_now),
            (&running, *running_now),
            (&delayed, *delayed_now),
            (&held, *held_now),
            (&failing, *failing_now),
            (&stalled, *stalled_now),
            (&paused, *paused_now),
            (&dependencies, *dependencies_now),
            (&bytes, *dependency_bytes),
        ];
        for (family, value) in values {
            family.get_or_create(&labels).set(value);
        }
        ages.get_or_create(&labels).set(oldest.as_secs_f64());
    }
    let help = "Whether all kinds that a controller needs are listed, so that it reconciles, or its optional kind is not served";
    registry.register("controller_synced", help, synced);
    let help = "Number of objects that are ready to be reconciled";
    registry.register("queue_depth", help, queued);
    let help = "Time for which the oldest object in the queue has been ready, in seconds";
    registry.register("queue_oldest_age_seconds", help, ages);
    let help = "Number of objects that are being reconciled";
    registry.register("reconciles_running", help, running);
    let help = "Number of objects that wait for a time: for the back-off, or because the plugin asked for it";
    registry.register("queue_delayed_objects", help, delayed);
    let help = "Number of objects that wait until a watch shows the host's own writes";
    registry.register("queue_held_objects", help, held);
    let help = "Number of objects whose last reconcile failed";
    registry.register("failing_objects", help, failing);
    let help =
        "Number of objects whose last reconcile failed, and that are not reconciled again before something changes";
    registry.register("stalled_objects", help, stalled);
    let help = "Number of objects that are paused by an annotation: they are neither reconciled nor written";
    registry.register("paused_objects", help, paused);
    let help = "Number of recorded reads; a change of what was read wakes the object that read it";
    registry.register("dependencies", help, dependencies);
    let help = "Estimated memory of the recorded reads, in bytes";
    registry.register("dependencies_bytes", help, bytes);
}

fn register_kinds(registry: &mut Registry, kinds: &[KindFigures]) {
    let (objects, bytes, rewritten) = (Integers::default(), Integers::default(), Integers::default());
    for figures in kinds {
        let KindFigures {
            kind,
            objects: objects_now,
            bytes: bytes_now,
            rewritten: rewritten_now,
        } = figures;
        let label = KindLabel {
            kind: LabelText::from(&**kind),
        };
        objects.get_or_create(&label).set(*objects_now);
        bytes.get_or_create(&label).set(*bytes_now);
        rewritten.get_or_create(&label).set(*rewritten_now);
    }
    registry.register("cached_objects", "Number of objects of a kind in the cache", objects);
    let help = "Memory of the cached objects of a kind, in bytes: their compressed JSON and what is kept beside it";
    registry.register("cached_bytes", help, bytes);
    let help = "Number of objects of a kind in which the API server stores other values than the host applied";
    registry.register("rewritten_objects", help, rewritten);
}
