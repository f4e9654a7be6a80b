//! Runs the host: starts plugins and lanes, hands out jobs, and at the end finishes or abandons running jobs within a
//! deadline.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pilothouse_cluster::Client;
use pilothouse_cluster::apart::WeighedTask;
use pilothouse_core::diff::preview::Preview;
use pilothouse_core::replicas::lease::LeaseTimes;
use pilothouse_core::{Blame, Kind, Name};
use pilothouse_metrics::{ControllerFigures, KindFigures, PluginFigures, ReconcileOutcome, StateFigures};
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, timeout};

use crate::admission;
use crate::context::HostContext;
use crate::context::too_deep;
use crate::election::leadership;
use crate::election::leadership::Leadership;
use crate::lanes::lane::{Lane, StaticPlugin};
use crate::options::HostOptions;
use crate::plugins::resource::{no_host, resources};
use crate::plugins::waiting_lanes;
use crate::plugins::{Library, PluginContext, PluginRegistry, PluginSummary, static_plugins};
use crate::process::clock::{JUMP_LOOK, JumpWatch, sleep_until};
use crate::process::heartbeat::BEAT;
use crate::process::idle::IdleTimer;
use crate::queue::{Capacity, Depth, Job, JobResult, ReconcileResult};
use crate::reconcile::contribute;
use crate::reconcile::reconcile;
use crate::serve::readiness;
use crate::sharding;
use crate::state::queries::previewed::LanePreview;
use crate::state::{KindSize, LaneFigures};
use crate::telemetry::recording::Recordings;
use crate::telemetry::traces::Traces;
use crate::watches::definitions;
use crate::watches::namespaces;
use crate::watches::watchdog;

/// Reason why a host did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No plugin can be used.
    #[error("none of the plugins can be used; see the errors above")]
    NothingToRun,
}

/// Work that a host had not finished when it stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnfinishedWork {
    /// Reconciles that were abandoned: lane and object.
    pub abandoned: Vec<(String, String)>,
    /// Objects that were queued.
    pub queued: usize,
}

/// Handle to inspect a running host, and to requeue its objects.
#[derive(Clone)]
pub struct Handle {
    context: Arc<HostContext>,
    registry: Arc<PluginRegistry>,
    client: Client,
}

/// Progress of the preview of a plugin.
pub struct PluginPreview {
    /// Its controllers, and those of earlier versions. None while the plugin has not started.
    pub controllers: Vec<PreviewedController>,
    /// Message of its condition `Ready`; `None` if there is no such plugin.
    pub condition: Option<String>,
}

/// Progress of the preview of one controller.
pub struct PreviewedController {
    /// Its name.
    pub controller: String,
    /// The kind of its objects.
    pub kind: Kind,
    /// Set if only an earlier version had it.
    pub is_former: bool,
    /// Number of its objects, and of those that it has looked at.
    pub preview: LanePreview,
}

impl PluginPreview {
    /// Returns `true` if every controller has looked at all of its objects.
    pub fn is_complete(&self) -> bool {
        let is_complete = |it: &LanePreview| it.is_open && it.looked_at == it.objects;
        !self.controllers.is_empty() && self.controllers.iter().all(|it| is_complete(&it.preview))
    }
}

/// Parts that the API reads.
#[derive(Clone)]
pub struct HostParts {
    /// Parts that every component of the host shares.
    pub context: Arc<HostContext>,
    /// The plugins.
    pub registry: Arc<PluginRegistry>,
    /// Client of the cluster.
    pub client: Client,
}

impl Handle {
    /// Reconciles every object again.
    pub fn resync(&self) {
        for lane in self.context.state.lanes().iter() {
            self.context.state.push_all(lane);
        }
    }

    /// Returns `true` if every plugin is settled, every lane is open and no object is queued, running or waiting for
    /// the cache.
    pub fn is_idle(&self) -> bool {
        self.registry.is_settled() && self.context.state.is_idle()
    }

    /// Primaries of a plugin that must be reconciled before unclaimed fields are released, by controller.
    pub fn waited_for(&self, plugin: &str) -> Vec<(String, String)> {
        let waited_for = self.context.state.waited_for(plugin).into_iter();
        waited_for
            .map(|(controller, name)| (controller, name.to_string()))
            .collect()
    }

    /// Changes that the primaries of a plugin in preview would make, by controller, kind and primary.
    pub fn previews(&self, plugin: &str) -> Vec<(String, Kind, Name, Preview)> {
        let lanes = self.context.state.lanes();
        let of_lane = |lane: &Arc<Lane>| {
            let previews = self.context.state.previews(lane).into_iter();
            let of_kind = |(name, preview)| (lane.controller.clone(), lane.grants.primary().clone(), name, preview);
            previews.map(of_kind).collect::<Vec<_>>()
        };
        lanes
            .iter()
            .filter(|lane| &*lane.plugin == plugin)
            .flat_map(of_lane)
            .collect()
    }

    /// Progress of the preview of a plugin, controller by controller.
    pub fn preview(&self, plugin: &str) -> PluginPreview {
        let lanes = self.context.state.lanes();
        let of_plugin = lanes.iter().filter(|lane| &*lane.plugin == plugin);
        let controllers = of_plugin.map(|lane| PreviewedController {
            controller: lane.controller.clone(),
            kind: lane.grants.primary().clone(),
            is_former: lane.is_former,
            preview: self.context.state.lane_preview(lane),
        });
        let summary = self
            .registry
            .summaries()
            .into_iter()
            .find(|summary| &*summary.name == plugin);
        PluginPreview {
            controllers: controllers.collect(),
            condition: summary.map(|summary| summary.condition.message),
        }
    }

    /// Number of internal errors that the host has recovered from since its start: waits that nothing would have ended,
    /// and panics of watches. The log names each.
    pub fn stuck(&self) -> u64 {
        self.context.internal_errors()
    }

    /// Summaries of all plugins.
    pub fn plugins(&self) -> Vec<PluginSummary> {
        self.registry.summaries()
    }

    /// Depth of each lane's queue, by `plugin/controller`.
    pub fn depths(&self) -> Vec<(String, Depth)> {
        let depths = self.context.state.depths().into_iter();
        depths.map(|(lane, depth)| (lane.title(), depth)).collect()
    }

    /// Figures for metrics.
    pub fn figures(&self) -> StateFigures {
        let (lanes, kinds) = self.context.state.figures();
        let dropped = lanes.iter().map(|figures| &figures.lane);
        let dropped: HashMap<Arc<str>, u64> = dropped
            .map(|lane| (lane.plugin.clone(), lane.recorder.dropped()))
            .collect();
        let plugins = self.registry.summaries().into_iter();
        StateFigures {
            version: "",
            main_loop_age: None,
            process: None,
            is_leader: self.context.leadership.elected(),
            shards: self
                .context
                .shards
                .lock()
                .as_ref()
                .map(|share| (share.held as u64, share.of as u64)),
            mistakes: self.context.internal_errors(),
            plugins: plugins.map(|summary| plugin_figures(summary, &dropped)).collect(),
            controllers: lanes.into_iter().map(controller_figures).collect(),
            kinds: kinds.into_iter().map(kind_figures).collect(),
        }
    }

    /// Parts that the API reads.
    pub(crate) fn parts(&self) -> HostParts {
        HostParts {
            context: self.context.clone(),
            registry: self.registry.clone(),
            client: self.client.clone(),
        }
    }

    /// Reasons why the host is not ready yet, in words: its caches have to sync, and its plugins have to start, or to
    /// report why they do not.
    pub fn missing_for_readiness(&self) -> Vec<String> {
        readiness::missing(&self.context, &self.registry)
    }

    /// Reasons why a rollout has to wait for this replica, in words: plugins that others run cannot be started here.
    pub fn held_back(&self) -> Vec<String> {
        readiness::held_back(&self.context)
    }

    /// Reason why a host that was ready no longer is, in words: it is idle, and its caches may be old.
    pub fn lost_readiness(&self) -> Option<String> {
        readiness::lost(&self.context)
    }
}

fn plugin_figures(summary: PluginSummary, dropped_events: &HashMap<Arc<str>, u64>) -> PluginFigures {
    let PluginSummary {
        name,
        version,
        digest,
        ready,
        condition: _,
        obstacle: _,
        wanted,
        runs_wanted,
        is_stalled,
        artifact_failures,
        warnings: _,
        is_awake,
    } = summary;
    PluginFigures {
        dropped_events: dropped_events.get(&name).copied(),
        name: name.to_string(),
        version,
        digest,
        wanted: wanted.map(|wanted| (wanted.version, wanted.digest)),
        runs_wanted,
        is_stalled,
        artifact_failures,
        is_ready: ready.is_some(),
        is_awake,
    }
}

fn controller_figures(figures: LaneFigures) -> ControllerFigures {
    let LaneFigures {
        lane,
        is_synced,
        depth,
        paused,
        reads: (reads, read_bytes),
    } = figures;
    let Depth {
        ready,
        running,
        delayed,
        unseen,
        failing,
        stalled,
        oldest,
    } = depth;
    ControllerFigures {
        plugin: lane.plugin.to_string(),
        controller: lane.controller.clone(),
        is_synced,
        queued: ready as u64,
        oldest,
        running: running as u64,
        delayed: delayed as u64,
        held: unseen as u64,
        failing: failing as u64,
        stalled: stalled as u64,
        paused: paused as u64,
        dependencies: reads as u64,
        dependency_bytes: read_bytes as u64,
    }
}

fn kind_figures(size: KindSize) -> KindFigures {
    let KindSize {
        kind,
        objects,
        bytes,
        rewritten,
    } = size;
    KindFigures {
        kind: kind.title(),
        objects: objects as u64,
        bytes: bytes as u64,
        rewritten: rewritten as u64,
    }
}

/// A host that has not started.
pub struct Host {
    client: Client,
    options: HostOptions,
    context: Arc<HostContext>,
    registry: Arc<PluginRegistry>,
}

impl Host {
    /// Makes a host for a cluster, without any request.
    pub fn new(client: Client, options: HostOptions) -> Self {
        let capacity = Capacity {
            workers: options.workers,
            per_plugin: options.plugin_workers,
        };
        let (clock, blocking) = (options.clock.clone(), options.blocking.clone());
        let leadership = match &options.election {
            Some(_) => Leadership::by_election(),
            None => Leadership::without_election(),
        };
        let metrics = options.metrics.clone();
        let traces = Traces::new(options.traces.clone(), &clock);
        let mut context = HostContext::new(client.clone(), clock, blocking, capacity, leadership, metrics, traces);
        context.recordings = Recordings::new(options.allow_recording);
        context.state.keep_previews(options.previews);
        let context = Arc::new(context);
        Self {
            client,
            options,
            context,
            registry: Arc::default(),
        }
    }

    /// A handle that stays valid while the host runs.
    pub fn handle(&self) -> Handle {
        Handle {
            context: self.context.clone(),
            registry: self.registry.clone(),
            client: self.client.clone(),
        }
    }

    /// Runs the given plugins, until `stop` resolves.
    ///
    /// A plugin that cannot be used is reported and skipped; the others continue.
    pub async fn run(
        self,
        plugins: Vec<StaticPlugin>,
        stop: impl Future<Output = ()>,
    ) -> Result<UnfinishedWork, StartError> {
        let context = self.context(None);
        let mut plugin_tasks = static_plugins::start(&context, plugins);
        let all_end = async move {
            while let Some(ended) = plugin_tasks.join_next().await {
                if let Err(error) = ended {
                    tracing::error!(%error, "the task of a plugin ended; restart the host");
                }
            }
        };
        self.dispatch(with_caches(context, all_end), stop, false).await
    }

    /// Runs the cluster's Plugin resources, with components from a library, until `stop` resolves.
    pub async fn run_resources(
        self,
        library: Library,
        stop: impl Future<Output = ()>,
    ) -> Result<UnfinishedWork, StartError> {
        let context = self.context(Some(library));
        let follow = with_caches(context.clone(), resources::follow(context));
        Box::pin(self.dispatch(follow, stop, true)).await
    }

    fn context(&self, library: Option<Library>) -> Arc<PluginContext> {
        Arc::new(PluginContext::new(
            self.client.clone(),
            self.options.clone(),
            self.context.clone(),
            self.registry.clone(),
            library,
        ))
    }

    /// Takes part in the election, if there is one, while the host runs.
    async fn dispatch(
        self,
        plugins: impl Future<Output = ()>,
        stop: impl Future<Output = ()>,
        has_resources: bool,
    ) -> Result<UnfinishedWork, StartError> {
        let (client, host_options, leads) = (
            self.client.clone(),
            self.options.clone(),
            self.context.leadership.clone(),
        );
        let options = host_options.election.as_ref();
        let HostContext {
            clock,
            leadership,
            contact,
            ..
        } = &*self.context;
        let election = options.map(|options| {
            leadership::start(
                &self.client,
                options,
                clock.clone(),
                leadership.clone(),
                contact.clone(),
            )
        });
        let shards = options.and_then(|options| Some((options, options.shards?)));
        let address = self
            .options
            .webhooks
            .as_ref()
            .and_then(|webhooks| webhooks.peer_address);
        let shards = shards
            .map(|(options, shards)| sharding::start(&self.client, options, shards, address, self.context.clone()));
        let ended = Box::pin(self.hand_out_jobs(plugins, stop)).await;
        if let Some(shards) = shards {
            shards.stop().await;
        }
        if let (Some(election), Some(options)) = (election, options) {
            let led = leads.leads();
            election.stop().await;
            if led && has_resources {
                Box::pin(no_host::report(&client, &host_options, options)).await;
            }
        }
        ended
    }

    /// Hands out jobs while the replica works, until `stop` resolves, or until all plugins have ended by themselves.
    async fn hand_out_jobs(
        self,
        plugins: impl Future<Output = ()>,
        stop: impl Future<Output = ()>,
    ) -> Result<UnfinishedWork, StartError> {
        let handle = self.handle();
        let Self {
            client,
            options,
            context,
            registry,
        } = self;
        let mut background = JoinSet::new();
        background.spawn(contribute::run(context.clone()));
        background.spawn(watchdog::run(context.clone()));
        background.spawn(waiting_lanes::run(context.clone()));
        let told = context.clone();
        background.spawn(async move { too_deep::run(&told.too_deep, &told.clock).await });
        let told = context.clone();
        background.spawn(async move { told.failure_log.run().await });
        background.spawn(definitions::follow(client.clone(), context.clone()));
        background.spawn(namespaces::follow(client.clone(), context.clone()));
        match options.webhooks.clone() {
            Some(webhooks) => {
                context.waits_for_webhooks.store(true, Ordering::Relaxed);
                background.spawn(admission::keep(client, context.clone(), registry, webhooks))
            }
            None => background.spawn(admission::look_for_strays(client, context.clone(), registry)),
        };
        let mut jobs = Jobs {
            running: JoinSet::new(),
            who: HashMap::new(),
        };
        let mut resync = tokio::time::interval_at(Instant::now() + options.resync, options.resync);
        let mut quiet = IdleTimer::new(options.give_back_after);
        let mut jumps = JumpWatch::new(context.clock.clone());
        let mut look = tokio::time::interval(JUMP_LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut leadership = context.leadership.follow();
        // The resync and due times are late, if they occur at all, while a host is idle.
        let mut beat = tokio::time::interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let heartbeat = options.heartbeat;
        // If the work is divided, the queue only has this replica's part.
        let is_divided = options
            .election
            .as_ref()
            .is_some_and(|election| election.shards.is_some());
        tokio::pin!(stop, plugins);
        loop {
            if let Some(heartbeat) = &heartbeat {
                heartbeat.turn();
            }
            let is_working = *leadership.borrow_and_update() || is_divided;
            if is_working {
                jobs.hand_out(&context);
            }
            let (due, waits_for_clock) = context.state.next_due();
            let due = due.filter(|_| is_working);
            tokio::select! {
                () = &mut stop => break,
                () = context.state.wait_for_work() => quiet.restart(),
                Some(ended) = jobs.running.join_next_with_id(), if !jobs.running.is_empty() => {
                    quiet.restart();
                    jobs.end(&context, ended);
                }
                () = sleep_until(quiet.due()), if quiet.due().is_some() && jobs.running.is_empty() => {
                    quiet.acknowledge();
                    // Nothing waits for it.
                    tokio::task::spawn_blocking(pilothouse_sandbox::give_back_code);
                }
                // The host keeps the sender.
                _ = leadership.changed() => {}
                () = sleep_until(due), if due.is_some() => {}
                _ = look.tick(), if waits_for_clock => if jumps.take_jump() {
                    tracing::info!("the wall clock has jumped; requeued the objects that wait for a time of day");
                    context.state.clock_jumped();
                },
                _ = beat.tick(), if heartbeat.is_some() => {}
                _ = resync.tick() => handle.resync(),
                () = &mut plugins => return Err(StartError::NothingToRun),
            }
        }
        heartbeat.as_ref().inspect(|heartbeat| heartbeat.stop());
        let deadline = Instant::now() + options.grace;
        let unfinished = jobs.stop(&context, deadline).await;
        // The other tasks still run, and are dropped when none of their writes is in flight.
        if let Some(election) = &options.election {
            let LeaseTimes { retry_period, .. } = election.times;
            if timeout(retry_period / 2, election.fence.stop_when_idle())
                .await
                .is_err()
            {
                let _ = tokio::time::timeout_at(deadline, election.fence.stop()).await;
            }
        }
        Ok(unfinished)
    }
}

/// Lets the caches follow the namespaces that replicas agree on, while plugins run.
async fn with_caches(context: Arc<PluginContext>, plugins: impl Future<Output = ()>) {
    tokio::select! {
        () = context.follow_cached_namespaces() => {}
        () = plugins => {}
    }
}

/// The running reconciles.
struct Jobs {
    running: JoinSet<JobResult>,
    /// Job and lane of each, with its start.
    who: HashMap<Id, (Job, Arc<Lane>, Instant)>,
}

impl Jobs {
    fn hand_out(&mut self, context: &Arc<HostContext>) {
        while let Some((job, lane)) = context.state.take_job() {
            let (context, ours, task) = (context.clone(), lane.clone(), job.clone());
            let id = self
                .running
                .spawn(WeighedTask::new(async move { reconcile(&context, &ours, &task).await }))
                .id();
            self.who.insert(id, (job, lane, Instant::now()));
        }
    }

    fn end(&mut self, context: &HostContext, ended: Result<(Id, JobResult), tokio::task::JoinError>) {
        let (id, ended, outcome) = match ended {
            Ok((id, ended)) => {
                let outcome = outcome(&ended);
                (id, ended, outcome)
            }
            Err(error) => {
                tracing::error!(%error, "a reconcile panicked; this is a bug of the host");
                let verdict = ReconcileResult::Retry {
                    at_least: Duration::ZERO,
                    edited: Duration::ZERO,
                };
                (error.id(), JobResult::unchanged(verdict), ReconcileOutcome::Host)
            }
        };
        if let Some((job, lane, since)) = self.who.remove(&id) {
            let plugins = context.metrics.plugins();
            let took = since.elapsed();
            plugins.reconciled(&lane.plugin, &lane.controller, outcome, job.waited, took);
            let is_failure = ended.failure.is_some();
            context.usage.reconciled(&lane.plugin, is_failure, took, ended.used);
            context.state.finish(&lane, &job, &ended, &context.clock);
        }
    }

    /// Waits for running jobs, then abandons them.
    async fn stop(mut self, context: &HostContext, deadline: Instant) -> UnfinishedWork {
        while !self.running.is_empty() {
            match tokio::time::timeout_at(deadline, self.running.join_next_with_id()).await {
                Ok(Some(ended)) => self.end(context, ended),
                Ok(None) | Err(_) => break,
            }
        }
        self.running.shutdown().await;
        let abandoned = self
            .who
            .values()
            .map(|(job, lane, _)| (lane.title(), job.name.to_string()))
            .collect();
        UnfinishedWork {
            abandoned,
            queued: context.state.queued(),
        }
    }
}

/// Outcome of a reconcile in the metrics.
fn outcome(ended: &JobResult) -> ReconcileOutcome {
    match (&ended.failure, &ended.verdict) {
        (Some(failure), _) => match failure.blame {
            Blame::Guest => ReconcileOutcome::Guest,
            Blame::User => ReconcileOutcome::User,
            Blame::Cluster => ReconcileOutcome::Cluster,
            Blame::Host => ReconcileOutcome::Host,
        },
        (None, ReconcileResult::Gone) => ReconcileOutcome::Gone,
        (None, _) => ReconcileOutcome::Success,
    }
}
