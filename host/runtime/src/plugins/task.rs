//! Runs the task of one plugin: produces the events of its life cycle, and carries out the actions of
//! [`super::life_cycle`]. `staging` prepares a version to take over, and `running` supervises the running one.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use pilothouse_cluster::write::FieldManagerClient;
use pilothouse_cluster::write::events::EventRecorder;
use pilothouse_core::status::backoff;
use tokio::sync::watch;
use tokio::time::Instant;

use super::life_cycle::{LifeAction, LifeEvent, LifeState, RefusedUntil, Transition};
use super::plugin::{PluginResourceHandle, PluginTask, RunningVersion, SourceStamp};
use super::{Library, PluginContext};
use crate::lanes::lane::{Lane, calls_of_a_plugin};
use crate::plugins::fetch::artifact::seed;
use crate::plugins::fetch::artifact_memory::ArtifactMemory;
use crate::plugins::fetch::directory_reader::ReadHung;
use crate::plugins::fetch::source::{ComponentFile, SourceChange};
use crate::plugins::resource::desired::{ComponentSource, DesiredPlugin, PluginRequest};
use crate::plugins::resource::inventory_write::InventoryWrite;
use crate::plugins::resource::state::{ConditionState, PluginState, StartupProblem, StartupStep};
use crate::plugins::version::prepare::PluginIdentity;
use crate::plugins::version::staging::StagedVersion;

/// The versions of a plugin, as its task holds them.
#[derive(Default)]
struct TaskVersions {
    /// The loaded version.
    running: Option<RunningVersion>,
    /// The version that is ready to take over.
    staged: Option<Box<StagedVersion>>,
    /// The last crash, until calls are resumed.
    crash: Option<CrashBackoff>,
}

/// A crashed version is not called before `until`, unless the request changes.
struct CrashBackoff {
    until: Instant,
    request: Arc<PluginRequest>,
    found: Option<SourceStamp>,
}

/// Invariant of these states: the request was examined, and asks for a version.
const WANTED: &str = "a version starts, runs or is refused only if the spec asks for it";

impl PluginTask {
    /// Makes the task of a plugin about which nothing is known yet.
    pub fn new(context: Arc<PluginContext>, name: Arc<str>, own: Option<PluginResourceHandle>) -> Self {
        let client = &context.client;
        let requests = context.host.usage.requests_of(&name);
        let writer =
            |manager: String| FieldManagerClient::new(client.clone(), manager.into()).counted_by(requests.clone());
        let recorder = EventRecorder::new(client.clone(), &name, &context.options.instance);
        let recorder = recorder.within(context.options.watch_namespaces.iter().cloned().collect());
        let identity = PluginIdentity {
            writer: writer(Lane::manager_of(&name)),
            contributor: writer(Lane::contributor_of(&name)),
            recorder: Arc::new(recorder),
            health: Arc::default(),
            call_metrics: context.host.metrics.plugins().enter(&name),
            calls: calls_of_a_plugin(),
            name: name.clone(),
        };
        let plugin_state = Arc::<PluginState>::default();
        context.host.plugins.enter(&name);
        if let Some(own) = &own {
            context.host.unstarted.enter(&name, own.live.clone());
        }
        context.registry.enter(name, plugin_state.clone());
        Self {
            context,
            identity,
            plugin_state,
            own,
            written: InventoryWrite::default(),
            artifact: ArtifactMemory::default(),
            last_review: Mutex::default(),
        }
    }

    /// Follows the request until the plugin is removed, or, for a plugin of the command line, until it cannot be used.
    /// Rare work is on the heap while it runs: there may be a thousand of these tasks, and nearly all of them wait.
    pub async fn run(self, mut requests: watch::Receiver<Option<Arc<PluginRequest>>>) {
        let mut life = LifeState::FIRST;
        let mut versions = TaskVersions::default();
        while life != LifeState::Ended {
            let (request, is_news) = {
                let request = requests.borrow_and_update();
                (request.clone(), request.has_changed())
            };
            let transition = match &request {
                None => self.next(life, LifeEvent::Gone),
                Some(_) if is_news => self.next(life, LifeEvent::RequestChanged),
                Some(request) => {
                    let TaskVersions { running, staged, crash } = &mut versions;
                    tokio::select! {
                        biased;
                        changed = requests.changed() => match changed {
                            Ok(()) => self.next(life, LifeEvent::RequestChanged),
                            Err(_) => self.next(life, LifeEvent::Gone),
                        },
                        event = self.watch_over(running.as_ref()) => self.next(life, event),
                        transition = self.work(&mut life, running.as_ref(), request, crash.as_ref(), staged) => transition,
                    }
                }
            };
            life = transition.next;
            for action in transition.actions {
                self.carry_out(action, &mut versions, request.as_ref()).await;
            }
        }
        let name = &*self.identity.name;
        self.context.host.plugins.leave(name);
        self.context.host.unstarted.leave(name);
        self.context.host.state.competing_plugin_left(name);
        self.context.claims.forget(&self.identity.name);
        self.context.registry.leave(name);
        self.context.host.metrics.plugins().leave(name);
        self.context.host.usage.leave(name);
    }

    /// Returns the transition for an event.
    fn next(&self, life: LifeState, event: LifeEvent) -> Transition {
        let plugin = &*self.identity.name;
        match life.on(event) {
            Ok(transition) => {
                tracing::trace!(plugin, from = ?life, to = ?transition.next, "the state of the plugin");
                transition
            }
            Err(error) => {
                debug_assert!(false, "{error}");
                tracing::error!(plugin, %error, "an event of the plugin is ignored");
                let current = life.current();
                Transition {
                    next: LifeState::Examining { current },
                    actions: Vec::new(),
                }
            }
        }
    }

    /// Enters the next stage of a startup.
    pub fn enter(&self, life: &mut LifeState, event: LifeEvent) {
        *life = self.next(*life, event).next;
    }

    /// Does the work of each state, beside the supervision of the running version, until a transition has an action
    /// that does more than report.
    async fn work(
        &self,
        life: &mut LifeState,
        running: Option<&RunningVersion>,
        request: &Arc<PluginRequest>,
        crash: Option<&CrashBackoff>,
        staged: &mut Option<Box<StagedVersion>>,
    ) -> Transition {
        // The component's source before the last startup.
        let mut seen = None;
        loop {
            let event = match *life {
                LifeState::Examining { .. } => self.examine(request),
                LifeState::Starting(startup) => {
                    let wanted = request.wanted.as_ref().expect(WANTED);
                    self.report_startup(startup);
                    seen = self.seen(wanted).await;
                    let staging = Box::pin(self.stage(life, running, request, wanted)).await;
                    if let ComponentSource::Artifact(_) = &wanted.source {
                        // Another artifact than the one that was resolved meanwhile.
                        let last = self.artifact.last();
                        seen = last.map(|(digest, trust)| SourceStamp::Artifact { digest, trust });
                    }
                    match staging {
                        Ok(Some(version)) => {
                            *staged = Some(Box::new(version));
                            LifeEvent::Recorded
                        }
                        Ok(None) => LifeEvent::AlreadyRuns,
                        Err(problem) => LifeEvent::StartupFailed {
                            problem,
                            is_final: request.resource.is_none(),
                        },
                    }
                }
                LifeState::Running => {
                    let wanted = request.wanted.as_ref().expect(WANTED);
                    self.source_changed(wanted, seen.as_ref()).await;
                    LifeEvent::ComponentChanged
                }
                LifeState::Refused { until, .. } => self.wait_for_retry(request, until, seen.as_ref()).await,
                LifeState::CrashBackoff => {
                    let crash = crash.expect("the crash is noted when it is reported");
                    self.wait_after_crash(request, crash).await
                }
                LifeState::Suspended | LifeState::Finishing | LifeState::Ended => std::future::pending().await,
            };
            let transition = self.next(*life, event);
            if transition.next == LifeState::Ended || !transition.actions.iter().all(LifeAction::is_report) {
                return transition;
            }
            *life = transition.next;
            for action in &transition.actions {
                self.report(action, running).await;
            }
        }
    }

    /// Examines the request.
    fn examine(&self, request: &PluginRequest) -> LifeEvent {
        let is_followed = request.wanted.as_ref().is_ok_and(DesiredPlugin::is_followed);
        self.plugin_state.set(|known| {
            known.generation = request.generation();
            known.is_followed = is_followed;
        });
        if request.resource.as_ref().is_some_and(|resource| resource.deleting) {
            return LifeEvent::DeletionWanted;
        }
        match &request.wanted {
            Ok(wanted) if wanted.is_suspended => LifeEvent::SuspensionWanted,
            Ok(_) => LifeEvent::VersionWanted,
            Err(error) => LifeEvent::SpecInvalid(StartupProblem::new(
                StartupStep::Ready,
                "InvalidSpec",
                error.to_string(),
            )),
        }
    }

    async fn wait_for_retry(
        &self,
        request: &PluginRequest,
        until: RefusedUntil,
        seen: Option<&SourceStamp>,
    ) -> LifeEvent {
        if until == RefusedUntil::Changed {
            return std::future::pending().await;
        }
        let component_changed = self.source_changed(request.wanted.as_ref().expect(WANTED), seen);
        let due = async {
            if let RefusedUntil::Retry { failures } = until {
                tokio::time::sleep(backoff::delay(failures, seed(&self.identity.name))).await;
                return LifeEvent::RetryDue;
            }
            self.context.claims.granted(&self.identity.name).await;
            LifeEvent::KindsFreed
        };
        tokio::select! {
            event = due => event,
            () = component_changed => LifeEvent::ComponentChanged,
            // Handled like another component: nothing else is known of the refused one.
            () = self.consent_changed() => LifeEvent::ComponentChanged,
        }
    }

    async fn wait_after_crash(&self, request: &PluginRequest, crash: &CrashBackoff) -> LifeEvent {
        if !crash.request.is_same(request) {
            return LifeEvent::CrashSuperseded;
        }
        let wanted = request.wanted.as_ref().expect(WANTED);
        tokio::select! {
            () = tokio::time::sleep_until(crash.until) => LifeEvent::RetryDue,
            () = self.source_changed(wanted, crash.found.as_ref()) => LifeEvent::CrashSuperseded,
        }
    }

    async fn carry_out(&self, action: LifeAction, versions: &mut TaskVersions, request: Option<&Arc<PluginRequest>>) {
        let TaskVersions { running, staged, crash } = versions;
        match action {
            LifeAction::ReportRefusal(_) | LifeAction::ReportRunning | LifeAction::ReportSuspension => {
                Box::pin(self.report(&action, running.as_ref())).await;
            }
            LifeAction::ReportCrash { wait, why } => {
                *crash = running.as_ref().map(|running| CrashBackoff {
                    until: Instant::now() + wait,
                    request: running.request.clone(),
                    found: match running.loaded.found.clone() {
                        // A trust policy that accepts it since then is no reason to call it again.
                        Some(SourceStamp::Artifact { digest, .. }) => Some(SourceStamp::Artifact {
                            digest,
                            trust: self.artifact.trust(),
                        }),
                        found => found,
                    },
                });
                self.report_crash(wait, &why);
            }
            LifeAction::TakeOver => {
                if let Some(staged) = staged.take() {
                    *running = Some(Box::pin(self.take_over(running.take(), *staged)).await);
                    self.context.host.unstarted.leave(&self.identity.name);
                }
            }
            LifeAction::Unload => Box::pin(self.leave(running.take())).await,
            LifeAction::FollowInventory => {
                if let Some(before) = running.take() {
                    *running = Some(Box::pin(self.follow_memory(before)).await);
                }
            }
            LifeAction::ResetCrashes => self.identity.health.reset_crashes(),
            LifeAction::Resume => {
                *crash = None;
                self.resume_calls();
            }
            LifeAction::Requeue => {
                for lane in running.iter().flat_map(|running| &running.lanes) {
                    self.context.host.state.push_all(lane);
                }
            }
            LifeAction::Finish => {
                self.context.host.unstarted.leave(&self.identity.name);
                if let Some(request) = request {
                    Box::pin(self.finish(running.take(), request)).await;
                }
            }
        }
    }

    /// Carries out an action that only reports.
    async fn report(&self, action: &LifeAction, running: Option<&RunningVersion>) {
        match action {
            LifeAction::ReportRefusal(problem) => self.refuse(running, problem).await,
            LifeAction::ReportRunning => self.report_running(running),
            LifeAction::ReportSuspension => self.report_suspension(),
            _ => {}
        }
    }

    async fn seen(&self, wanted: &DesiredPlugin) -> Option<SourceStamp> {
        match (&wanted.source, &self.context.library) {
            (ComponentSource::File { path, .. }, Some(library)) => {
                let found = self.context.looks.find(&library.directory, path).await;
                found.ok().map(SourceStamp::File)
            }
            _ => None,
        }
    }

    /// Waits until the component changes.
    async fn source_changed(&self, wanted: &DesiredPlugin, before: Option<&SourceStamp>) {
        let Some(library) = &self.context.library else {
            return std::future::pending().await;
        };
        match (&wanted.source, before) {
            (ComponentSource::Loaded(_), _) => std::future::pending().await,
            (ComponentSource::File { path, .. }, Some(SourceStamp::File(before))) => {
                self.file_changed(library, path, Some(before)).await;
            }
            (ComponentSource::File { path, .. }, _) => self.file_changed(library, path, None).await,
            (ComponentSource::Artifact(request), Some(SourceStamp::Artifact { digest, trust })) => {
                self.artifact_changed(library, request, Some(digest), *trust).await;
            }
            (ComponentSource::Artifact(request), _) => {
                let trust = self.artifact.trust();
                self.artifact_changed(library, request, None, trust).await;
            }
        }
    }

    /// Waits until the component in a file changes. While the file system hangs, the Plugin's status says so, and the
    /// running version continues.
    async fn file_changed(&self, library: &Library, path: &Path, before: Option<&ComponentFile>) {
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
                    // If nothing runs, the next attempt to load reports it.
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
