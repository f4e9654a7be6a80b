//! Runs the task of one plugin: follows its desired state, replaces versions, supervises the running version, and ends.
//! How a version comes up to where it can take over is `staging`'s matter.

use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::events::EventRecorder;
use pilothouse_cluster::write::FieldManagerClient;
use pilothouse_core::backoff;
use tokio::sync::watch;
use tokio::time::Instant;

use super::PluginContext;
use super::desired::{ComponentSource, DesiredPlugin, PluginRequest};
use super::directory_reader::ReadHung;
use super::inventory_write::InventoryWrite;
use super::plugin::{KIND_TAKEN, PluginResourceHandle, PluginTask, RunningVersion, StartupProblem};
use super::prepare::{PluginIdentity, in_place_of};
use super::source::{ComponentFile, SourceChange};
use super::staging::StagedVersion;
use super::state::{ConditionState, PluginState, StartupStep};
use crate::lane::{Lane, calls_of_a_plugin};

/// How often it is looked whether the plugin is idle.
const SLEEP_LOOK: Duration = Duration::from_secs(10);

/// What is to be done next.
enum NextStep {
    TakeOver(Box<StagedVersion>),
    /// Nothing is to run for now; the way up goes on.
    Leave,
    /// What it remembers of earlier versions has changed.
    FollowMemory,
    /// It was stopped because its calls crash.
    Crashed(Duration, String),
    /// It has been stopped for long enough, or something else is wanted of it.
    TryAgain,
    /// Its resource is being deleted.
    Finish,
    /// It cannot be used, and nothing will change that.
    GiveUp,
}

/// A plugin that was stopped waits before it is tried again, unless something else is wanted of it.
struct CrashBackoff {
    until: Instant,
    request: Arc<PluginRequest>,
    found: Option<ComponentFile>,
}

impl PluginTask {
    /// A plugin of which nothing is known yet.
    pub fn new(context: Arc<PluginContext>, name: Arc<str>, own: Option<PluginResourceHandle>) -> Self {
        let client = &context.client;
        let identity = PluginIdentity {
            writer: FieldManagerClient::new(client.clone(), Lane::manager_of(&name).into()),
            contributor: FieldManagerClient::new(client.clone(), Lane::contributor_of(&name).into()),
            recorder: Arc::new(EventRecorder::new(client.clone(), &name, &context.options.instance)),
            health: Arc::default(),
            calls: calls_of_a_plugin(),
            name: name.clone(),
        };
        let plugin_state = Arc::<PluginState>::default();
        context.hub.plugins.enter(&name);
        context.registry.enter(name, plugin_state.clone());
        Self {
            context,
            identity,
            plugin_state,
            own,
            written: InventoryWrite::default(),
        }
    }

    /// Follows the orders until there is none, or, where there will be no other, until it cannot be carried out. What
    /// happens seldom is on the heap while it does: there may be a thousand of these, and nearly all of them wait.
    pub async fn run(self, mut requests: watch::Receiver<Option<Arc<PluginRequest>>>) {
        let name = self.identity.name.clone();
        let mut running: Option<RunningVersion> = None;
        let mut penalty: Option<CrashBackoff> = None;
        loop {
            let Some(request) = requests.borrow_and_update().clone() else {
                break;
            };
            let next = tokio::select! {
                biased;
                changed = requests.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => break,
                },
                next = self.watch_over(running.as_ref()) => next,
                next = self.advance(running.as_ref(), &request, penalty.as_ref()) => next,
            };
            match next {
                NextStep::TakeOver(arrival) => {
                    penalty = None;
                    running = Some(Box::pin(self.take_over(running.take(), *arrival)).await);
                }
                NextStep::Leave => Box::pin(self.leave(running.take())).await,
                NextStep::FollowMemory => {
                    if let Some(before) = running.take() {
                        running = Some(Box::pin(self.follow_memory(before)).await);
                    }
                }
                NextStep::Crashed(wait, why) => {
                    if let Some(running) = &running {
                        penalty = Some(CrashBackoff {
                            until: Instant::now() + wait,
                            request: running.request.clone(),
                            found: running.loaded.found.clone(),
                        });
                    }
                    self.report_crash(wait, &why);
                }
                NextStep::TryAgain => {
                    penalty = None;
                    self.go_on();
                    for lane in running.iter().flat_map(|running| &running.lanes) {
                        self.context.hub.state.push_all(lane);
                    }
                }
                NextStep::Finish => {
                    self.go_on();
                    Box::pin(self.finish(running.take(), &request)).await;
                    if requests.changed().await.is_err() {
                        break;
                    }
                }
                NextStep::GiveUp => break,
            }
        }
        Box::pin(self.leave(running.take())).await;
        self.context.hub.plugins.leave(&name);
        self.context.hub.state.competing_plugin_left(&name);
        self.context.claims.give_up(&name);
        self.context.registry.leave(&name);
    }

    /// Goes on until something has to be done to be where the order wants the plugin.
    async fn advance(
        &self,
        running: Option<&RunningVersion>,
        request: &Arc<PluginRequest>,
        penalty: Option<&CrashBackoff>,
    ) -> NextStep {
        self.plugin_state.set(|known| known.generation = request.generation());
        if request.resource.as_ref().is_some_and(|resource| resource.deleting) {
            return NextStep::Finish;
        }
        let wanted = match &request.wanted {
            Ok(wanted) => wanted,
            Err(error) => {
                self.refuse(
                    running,
                    &StartupProblem::new(StartupStep::Ready, "InvalidSpec", error.to_string()),
                )
                .await;
                return std::future::pending().await;
            }
        };
        if wanted.is_suspended {
            if running.is_some() {
                return NextStep::Leave;
            }
            self.plugin_state.set(|known| {
                known.set(
                    StartupStep::Ready,
                    ConditionState::no("Suspended", "spec.mode is Suspended; its objects stay as they are"),
                );
                known.busy = None;
            });
            return std::future::pending().await;
        }
        if let Some(penalty) = penalty {
            if penalty.request.is_same(request) {
                tokio::select! {
                    () = tokio::time::sleep_until(penalty.until) => {}
                    () = self.source_changed(wanted, penalty.found.as_ref()) => self.identity.health.reset_crashes(),
                }
            } else {
                self.identity.health.reset_crashes();
            }
            return NextStep::TryAgain;
        }
        let mut failures = 0;
        loop {
            self.plugin_state.set(|known| known.busy = Some(Instant::now()));
            let seen = self.seen(wanted).await;
            match Box::pin(self.stage(running, request, wanted)).await {
                Ok(Some(arrival)) => return NextStep::TakeOver(Box::new(arrival)),
                Ok(None) => {
                    failures = 0;
                    self.report_ready(running);
                    self.source_changed(wanted, seen.as_ref()).await;
                }
                Err(problem) => {
                    self.refuse(running, &problem).await;
                    if request.resource.is_none() {
                        return NextStep::GiveUp;
                    }
                    failures += 1;
                    let waits_for_others = problem.reason == KIND_TAKEN && running.is_none();
                    tokio::select! {
                        () = tokio::time::sleep(backoff::delay(failures, 0)), if !waits_for_others => {}
                        () = self.source_changed(wanted, seen.as_ref()) => failures = 0,
                        () = self.context.claims.granted(&self.identity.name), if waits_for_others => {}
                    }
                }
            }
        }
    }

    /// Looks after the version that runs: whether it has what it needs, whether it is allowed and sound, and whether it
    /// may sleep.
    async fn watch_over(&self, running: Option<&RunningVersion>) -> NextStep {
        let Some(running) = running else {
            return std::future::pending().await;
        };
        tokio::select! {
            (wait, why) = self.identity.health.stop() => NextStep::Crashed(wait, why),
            () = self.context.claims.lost(&self.identity.name) => NextStep::Leave,
            () = self.maintain_inventory(running) => NextStep::FollowMemory,
            () = self.watch_permissions(running) => unreachable!("rights are minded for ever"),
            () = self.follow_kinds(running) => unreachable!("kinds are followed for ever"),
            () = self.let_sleep(running) => unreachable!("it may sleep for ever"),
        }
    }

    /// A new version takes over: from here on each object is the new one's, once what of it is under way has ended.
    async fn take_over(&self, before: Option<RunningVersion>, arrival: StagedVersion) -> RunningVersion {
        let StagedVersion {
            request,
            loaded,
            described,
            lanes,
        } = arrival;
        let (hub, informers) = (&self.context.hub, &self.context.informers);
        let (candidates, watched) = lanes.take();
        let mut left = before.as_ref().map(|before| before.lanes.clone()).unwrap_or_default();
        let mut lanes = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            let same = |lane: &Arc<Lane>| lane.grants.primary().same_kind(candidate.grants.primary());
            if let Some(index) = left.iter().position(same) {
                let old = left.swap_remove(index);
                let lane = in_place_of(&candidate, old.id);
                hub.register_lane(&lane);
                // What the candidate needs is watched already, so none of this asks for a list.
                informers.remove(&old);
                informers.add(&lane);
                informers.remove(&candidate);
                lanes.push(lane);
            } else {
                hub.register_lane(&candidate);
                if !watched {
                    informers.add(&candidate);
                }
                lanes.push(candidate);
            }
        }
        if let Some(before) = &before {
            tracing::info!(
                plugin = &*self.identity.name,
                from = before.loaded.component.digest(),
                to = loaded.component.digest(),
                version = described.version,
                "a new version has taken over"
            );
            self.identity.health.reset_crashes();
        }
        self.go_on();
        self.report_status_gaps(&described);
        self.remove(&left).await;
        self.plugin_state.set(|known| {
            known.lanes.clone_from(&lanes);
            known.digest = Some(loaded.component.digest().to_owned());
            known.version = Some(described.version.clone());
        });
        RunningVersion {
            request,
            loaded,
            crds: described.exclusive(),
            lanes,
        }
    }

    /// Nobody waits any more because calls crashed.
    fn go_on(&self) {
        self.identity.health.resume();
        self.context.hub.state.resume(&self.identity.name);
    }

    /// The version that runs goes; its objects stay.
    pub async fn leave(&self, running: Option<RunningVersion>) {
        let Some(running) = running else { return };
        self.remove(&running.lanes).await;
        self.plugin_state.set(|known| known.lanes.clear());
        tracing::info!(
            plugin = &*self.identity.name,
            "the plugin is unloaded; its objects stay as they are"
        );
    }

    /// Lanes go, once what is under way has ended.
    pub async fn remove(&self, lanes: &[Arc<Lane>]) {
        self.stop(lanes).await;
        for lane in lanes {
            self.context.hub.remove_lane(lane.id);
            self.context.informers.remove(lane);
        }
    }

    /// Nothing of these lanes is begun any more; what is under way has ended.
    pub async fn stop(&self, lanes: &[Arc<Lane>]) {
        let hub = &self.context.hub;
        for lane in lanes {
            hub.state.close_lane(lane.id);
        }
        for lane in lanes {
            hub.state.nothing_runs_in(lane.id).await;
        }
    }

    /// Says whether all kinds are served and listed, as long as it is watched over.
    async fn follow_kinds(&self, running: &RunningVersion) {
        loop {
            let settled = self.context.hub.kinds.settled();
            self.report_ready(Some(running));
            settled.await;
        }
    }

    async fn let_sleep(&self, running: &RunningVersion) {
        let component = &running.loaded.component;
        let after = self.context.options.sleep_after;
        loop {
            tokio::time::sleep(SLEEP_LOOK.min(after)).await;
            self.identity.health.log_limiter.tell(&self.identity.name);
            if component.is_awake() && component.idle() >= after {
                component.sleep();
                tracing::debug!(plugin = &*self.identity.name, "unloaded the code of the idle plugin");
            }
        }
    }

    async fn seen(&self, wanted: &DesiredPlugin) -> Option<ComponentFile> {
        match (&wanted.source, &self.context.library) {
            (ComponentSource::File { path, .. }, Some(library)) => {
                self.context.looks.find(&library.directory, path).await.ok()
            }
            _ => None,
        }
    }

    /// Waits until there is another component. While the file system hangs, the Plugin's status says so, and what runs goes
    /// on.
    async fn source_changed(&self, wanted: &DesiredPlugin, before: Option<&ComponentFile>) {
        let (ComponentSource::File { path, .. }, Some(library)) = (&wanted.source, &self.context.library) else {
            return std::future::pending().await;
        };
        let (directory, name) = (&library.directory, &*self.identity.name);
        let mut trouble: Option<(ReadHung, Option<ConditionState>)> = None;
        loop {
            let hung = trouble.as_ref().map(|(hung, _)| hung);
            let news = self.context.looks.changed(directory, path, before, hung).await;
            match (news, trouble.take()) {
                (SourceChange::Trouble(Some(hung)), _) => {
                    let path = directory.join(path);
                    let why = format!("cannot look at {}: {hung}", path.display());
                    tracing::warn!(
                        plugin = name,
                        problem = why,
                        "the plugin directory does not respond; a new version of the plugin would not be noticed"
                    );
                    let known = self.plugin_state.known();
                    // Where nothing runs, the next try to bring it tells.
                    let fact = (!known.lanes.is_empty()).then(|| known.fact(StartupStep::Fetched).clone());
                    if fact.is_some() {
                        self.plugin_state
                            .set(|known| known.set(StartupStep::Fetched, ConditionState::no("FetchFailed", why)));
                    }
                    trouble = Some((hung, fact));
                }
                (news, told) => {
                    if let Some((_, fact)) = told {
                        tracing::info!(plugin = name, "the plugin directory responds again");
                        if let Some(fact) = fact {
                            self.plugin_state.set(|known| known.set(StartupStep::Fetched, fact));
                        }
                    }
                    if news == SourceChange::Component {
                        return;
                    }
                }
            }
        }
    }
}
