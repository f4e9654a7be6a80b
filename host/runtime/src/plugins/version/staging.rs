//! Stages a version of a plugin: loads and describes it, claims its kinds, waits for its CRDs and, if another version
//! runs, lists its kinds and tries its first calls. An abandoned version leaves nothing behind.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pilothouse_cluster::error::chain;
use pilothouse_cluster::resources::install::{CrdPolicy, install_crd};
use pilothouse_cluster::write::identity::Impersonation;
use pilothouse_core::plugin::exclusive_kinds::{ExclusiveKindRequest, WAITS_ANNOTATION};
use pilothouse_core::rights::objects::account_name;
use pilothouse_core::{Blame, Kind};
use pilothouse_sandbox::{LoadError, PluginComponent};
use tokio::time::Instant;

use super::permissions::RECHECK;
use super::prepare::{DescribedPlugin, describe};
use crate::lanes::health::without_object;
use crate::lanes::lane::Lane;
use crate::options::Identity;
use crate::plugins::fetch::source::SourceError;
use crate::plugins::life_cycle::{LifeEvent, LifeState};
use crate::plugins::plugin::{LoadedComponent, PluginTask, RunningVersion, SourceStamp};
use crate::plugins::resource::desired::{ComponentSource, DesiredPlugin, PluginRequest};
use crate::plugins::resource::state::{ConditionState, KIND_TAKEN, StartupProblem, StartupStep};
use crate::plugins::{Library, PluginContext};
use crate::reconcile::try_out;

/// Bounds of the wait between two attempts.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// Primaries of each controller on which a new version is tried before it takes over.
const TRIED: usize = 10;

/// A version that is ready to take over.
pub struct StagedVersion {
    /// Request that it fulfils.
    pub request: Arc<PluginRequest>,
    /// Its component and source.
    pub loaded: LoadedComponent,
    /// Its description.
    pub described: DescribedPlugin,
    /// Its lanes, already watched if another version runs.
    pub lanes: StagedLanes,
    /// Set if it is not the desired version, but the one of an earlier process, which runs until the desired one may.
    pub is_earlier: bool,
}

/// Lanes whose needs are cached before they take over. If they are dropped, their watches end.
pub struct StagedLanes {
    context: Arc<PluginContext>,
    lanes: Vec<Arc<Lane>>,
    watched: bool,
}

impl StagedLanes {
    /// Takes the lanes, and whether they are already watched under their own numbers.
    pub fn take(mut self) -> (Vec<Arc<Lane>>, bool) {
        (std::mem::take(&mut self.lanes), self.watched)
    }

    /// The lanes.
    pub fn lanes(&self) -> &[Arc<Lane>] {
        &self.lanes
    }
}

impl Drop for StagedLanes {
    fn drop(&mut self) {
        if self.watched {
            for lane in &self.lanes {
                self.context.informers.remove(lane);
            }
        }
    }
}

impl PluginTask {
    /// Prepares the desired version to take over, and brings `life` through the stages of a startup; `None` if it
    /// already runs.
    pub async fn stage(
        &self,
        life: &mut LifeState,
        running: Option<&RunningVersion>,
        request: &Arc<PluginRequest>,
        wanted: &DesiredPlugin,
    ) -> Result<Option<StagedVersion>, StartupProblem> {
        let loaded = self.load(wanted, running.map(|running| &running.loaded)).await?;
        let is_same = |running: &RunningVersion| {
            running.request.is_same(request) && running.loaded.component.digest() == loaded.component.digest()
        };
        if running.is_some_and(is_same) {
            self.plugin_state.set(|known| known.not_granted = None);
            // Another manifest may have the same component.
            self.report_artifact(&loaded).await;
            return Ok(None);
        }
        self.enter(life, LifeEvent::Loaded);
        let described = self.describe(&loaded, wanted).await?;
        let mut version = (loaded, described);
        self.report_wanted(&version);
        let mut is_earlier = false;
        if running.is_none()
            && let Some(earlier) = self.earlier_version(&version, wanted).await
        {
            version = earlier;
            is_earlier = true;
        }
        let (loaded, described) = version;
        self.enter(life, LifeEvent::Described);
        if let Some(running) = running {
            let lanes = self.lanes(wanted, &described);
            let served = self.look_up(&lanes, Some(&described)).await;
            let served = |_: &Lane, kind: &Kind| served.get(kind).cloned().flatten();
            self.check_access(running, &lanes, wanted, &loaded, served).await?;
        }
        self.claim(running, wanted, &described).await?;
        self.enter(life, LifeEvent::KindsClaimed);
        if self.context.options.install_crds.has_those_of_plugins() {
            self.install(wanted, &described).await;
        } else {
            self.wait_for_crds(wanted, &described, &loaded).await;
        }
        self.recall_events().await;
        self.enter(life, LifeEvent::CrdsInstalled);
        self.sync_plugin_finalizer(wanted, &described).await;
        self.enter(life, LifeEvent::FinalizerUpdated);
        let lanes = if let Some(running) = running {
            let lanes = self.candidates(wanted, &described);
            self.listed(lanes.lanes()).await;
            self.enter(life, LifeEvent::KindsListed);
            // All kinds are known now, and nothing of the version has been called for an object.
            let checked = async {
                self.check_consent(Some(running), &described, lanes.lanes())?;
                self.check_access(running, lanes.lanes(), wanted, &loaded, Lane::served)
                    .await?;
                self.try_out(running, lanes.lanes()).await
            };
            checked.await.inspect_err(|_| self.claim_for(running))?;
            self.enter(life, LifeEvent::TrialPassed);
            lanes
        } else {
            self.first_lanes(wanted, &described).await?
        };
        self.remember(lanes.lanes()).await;
        Ok(Some(StagedVersion {
            request: request.clone(),
            loaded,
            described,
            lanes,
            is_earlier,
        }))
    }

    /// The lanes of the first version that runs. If earlier versions had other controllers, waits until their objects
    /// are listed.
    async fn first_lanes(
        &self,
        wanted: &DesiredPlugin,
        described: &DescribedPlugin,
    ) -> Result<StagedLanes, StartupProblem> {
        let lanes = self.lanes(wanted, described);
        if !lanes.iter().any(|lane| lane.is_former) {
            return Ok(StagedLanes {
                context: self.context.clone(),
                lanes,
                watched: false,
            });
        }
        let lanes = self.candidates(wanted, described);
        let former = lanes.lanes().iter().filter(|lane| lane.is_former).cloned();
        self.listed(&former.collect::<Vec<_>>()).await;
        self.check_consent(None, described, lanes.lanes())?;
        Ok(lanes)
    }

    /// Lanes that are not registered yet, whose needs are cached.
    pub fn candidates(&self, wanted: &DesiredPlugin, described: &DescribedPlugin) -> StagedLanes {
        let lanes = self.lanes(wanted, described);
        for lane in &lanes {
            self.context.informers.add(lane);
        }
        StagedLanes {
            context: self.context.clone(),
            lanes,
            watched: true,
        }
    }

    pub fn lanes(&self, wanted: &DesiredPlugin, described: &DescribedPlugin) -> Vec<Arc<Lane>> {
        let acting = self.acting(wanted);
        described.lanes(
            &self.identity,
            wanted,
            acting.as_ref(),
            &self.known(),
            &self.context.host,
        )
    }

    /// The account in whose name a version writes; `None`: the host's own.
    fn acting(&self, wanted: &DesiredPlugin) -> Option<Impersonation> {
        let Identity::ServiceAccounts { namespace, tokens } = &self.context.options.identity else {
            return None;
        };
        let named_after = || account_name(&self.identity.name);
        let account = wanted.service_account.clone().unwrap_or_else(named_after);
        let acting = Impersonation::of_service_account(namespace, &account, tokens.as_ref());
        Some(acting.expect("the names of plugins, accounts and namespaces are checked before"))
    }

    /// Describes a component.
    pub async fn describe(
        &self,
        loaded: &LoadedComponent,
        wanted: &DesiredPlugin,
    ) -> Result<DescribedPlugin, StartupProblem> {
        let (component, config, limits) = (loaded.component.clone(), wanted.config.clone(), wanted.limits.clone());
        let (name, health) = (self.identity.name.clone(), self.identity.health.clone());
        let log = move || without_object(name.clone(), health.clone());
        let _turn = self.context.describing.acquire().await;
        let blocking = &self.context.options.blocking;
        blocking
            .run(move || describe(&component, config.as_ref(), &limits, log))
            .await
            .map_err(|error| {
                StartupProblem::new(
                    StartupStep::Ready,
                    "HostFault",
                    format!("its describe call was lost: {error}"),
                )
            })?
            .map_err(|error| StartupProblem::new(StartupStep::Ready, error.reason(), error.to_string()))
    }

    /// Loads a component, unless it is the known one. Its calls are counted for the plugin.
    pub async fn load(
        &self,
        wanted: &DesiredPlugin,
        known: Option<&LoadedComponent>,
    ) -> Result<LoadedComponent, StartupProblem> {
        self.counted(self.load_uncounted(wanted, known).await?, wanted)
    }

    /// Checks the component's WASI imports, and counts its calls for the plugin.
    pub fn counted(&self, loaded: LoadedComponent, wanted: &DesiredPlugin) -> Result<LoadedComponent, StartupProblem> {
        // The known component may have been loaded with another grant.
        let granted = loaded.component.check_wasi(wanted.wasi);
        granted.map_err(|error| load_problem(&error))?;
        Ok(LoadedComponent {
            component: loaded.component.counted_by(&self.identity.call_metrics),
            ..loaded
        })
    }

    async fn load_uncounted(
        &self,
        wanted: &DesiredPlugin,
        known: Option<&LoadedComponent>,
    ) -> Result<LoadedComponent, StartupProblem> {
        let source = &wanted.source;
        let is_artifact = matches!(source, ComponentSource::Artifact(_));
        if self.plugin_state.known().is_artifact != is_artifact {
            self.plugin_state.set(|known| known.is_artifact = is_artifact);
        }
        if let ComponentSource::Loaded(component) = source {
            return Ok(LoadedComponent {
                component: component.clone(),
                found: None,
                artifact: None,
            });
        }
        let library = &self.library(wanted)?;
        match source {
            ComponentSource::Loaded(_) => unreachable!("returned above"),
            ComponentSource::File { path, digest } => self.load_file(library, path, digest.clone(), known).await,
            ComponentSource::Artifact(request) => self.load_artifact(library, request, known).await,
        }
    }

    /// The library, with a sandbox that grants the WASI of the Plugin.
    pub fn library(&self, wanted: &DesiredPlugin) -> Result<Library, StartupProblem> {
        let Some(library) = &self.context.library else {
            return Err(StartupProblem::new(
                StartupStep::Fetched,
                "FetchFailed",
                "this host has no plugin directory",
            ));
        };
        Ok(Library {
            sandbox: library.sandbox.granting(wanted.wasi),
            ..library.clone()
        })
    }

    /// Loads a component from the plugin directory, unless it is the known one.
    async fn load_file(
        &self,
        library: &Library,
        path: &Path,
        digest: Option<String>,
        known: Option<&LoadedComponent>,
    ) -> Result<LoadedComponent, StartupProblem> {
        let failed = |error: SourceError| StartupProblem::new(StartupStep::Fetched, "FetchFailed", error.to_string());
        let looks = &self.context.looks;
        let found = looks.find(&library.directory, path).await.map_err(failed)?;
        let stamp = SourceStamp::File(found.clone());
        let is_known = |known: &&LoadedComponent| {
            known.found.as_ref() == Some(&stamp)
                && digest
                    .as_deref()
                    .is_none_or(|digest| digest == known.component.digest())
        };
        if let Some(known) = known.filter(is_known) {
            return Ok(known.clone());
        }
        let component = self.compile(library, &found.file, digest).await?;
        let fetched = format!("{} has sha256:{}", found.file.display(), component.digest());
        self.plugin_state.set(|known| {
            known.set(StartupStep::Fetched, ConditionState::yes("Fetched", fetched));
            known.set(
                StartupStep::Compiled,
                ConditionState::yes("Compiled", compiled(&component)),
            );
        });
        Ok(LoadedComponent {
            component,
            found: Some(stamp),
            artifact: None,
        })
    }

    /// Loads the component in a file, if it has this digest; compiles it unless that was done before.
    pub async fn compile(
        &self,
        library: &Library,
        file: &Path,
        digest: Option<String>,
    ) -> Result<PluginComponent, StartupProblem> {
        let looks = &self.context.looks;
        let hung = |hung| {
            let path = file.to_owned();
            let error = SourceError::Hung { path, hung };
            StartupProblem::new(StartupStep::Fetched, "FetchFailed", error.to_string())
        };
        let (sandbox, path, expected) = (library.sandbox.clone(), file.to_owned(), digest.clone());
        let compiled_before = looks.at(file, move || sandbox.load_known(&path, expected.as_deref()));
        let known = compiled_before.await.map_err(hung)?;
        if let Some(component) = known.map_err(|error| load_problem(&error))? {
            return Ok(component);
        }
        let _turn = self.context.compiling.acquire().await;
        let (sandbox, path) = (library.sandbox.clone(), file.to_owned());
        let read = looks.at(file, move || sandbox.read(&path, digest.as_deref()));
        let read = read.await.map_err(hung)?.map_err(|error| load_problem(&error))?;
        let sandbox = library.sandbox.clone();
        self.context
            .options
            .blocking
            .run(move || sandbox.load_read(&read))
            .await
            .map_err(|error| {
                StartupProblem::new(
                    StartupStep::Compiled,
                    "HostFault",
                    format!("loading it was lost: {error}"),
                )
            })?
            .map_err(|error| load_problem(&error))
    }

    /// Claims the kinds whose CRDs the plugin brings. If another plugin has one, the running version keeps its claim.
    async fn claim(
        &self,
        running: Option<&RunningVersion>,
        wanted: &DesiredPlugin,
        described: &DescribedPlugin,
    ) -> Result<(), StartupProblem> {
        let crds = described.exclusive();
        let is_granted = running.is_some() || crds.is_empty() || self.has_all_rights(described, wanted).await;
        let mut claim = exclusive_kinds(crds, wanted, is_granted);
        if running.is_none() {
            claim.waited_for = self.waited_for();
        }
        let name = &self.identity.name;
        let running = running.and_then(claimed_by);
        let taken = self.context.claims.want(name, &claim, running.as_ref()).err();
        if running.is_none() {
            self.annotate_waiting(taken.as_ref().map(|taken| &*taken.holder)).await;
        }
        let Some(taken) = taken else {
            return Ok(());
        };
        Err(StartupProblem::new(
            StartupStep::Ready,
            KIND_TAKEN,
            format!(
                "it brings the CRD of {}, which plugin {} brings already; run one of them",
                taken.kind, taken.holder
            ),
        ))
    }

    /// The plugin for which this one waited according to its annotation, if there is one of that name.
    fn waited_for(&self) -> Option<Arc<str>> {
        let live = self.own.as_ref()?.live.borrow();
        let holder = live.annotations[WAITS_ANNOTATION].as_str()?;
        self.context.host.plugins.may_have(holder).then(|| holder.into())
    }

    /// Annotates the Plugin with the plugin for which it waits, so that it also waits after a restart.
    async fn annotate_waiting(&self, holder: Option<&str>) {
        let Some(own) = &self.own else { return };
        let live = own.live.borrow().clone();
        if live.annotations[WAITS_ANNOTATION].as_str() == holder {
            return;
        }
        if let Err(error) = own.kind.set_annotation(&live, WAITS_ANNOTATION, holder).await {
            let problem = chain(&error);
            tracing::warn!(
                plugin = &*self.identity.name,
                problem,
                "cannot annotate the Plugin with what it waits for"
            );
        }
    }

    /// Reduces the claim to that of the running version.
    fn claim_for(&self, running: &RunningVersion) {
        if let Some(claim) = claimed_by(running) {
            let _ = self.context.claims.want(&self.identity.name, &claim, None);
        }
    }

    async fn install(&self, wanted: &DesiredPlugin, described: &DescribedPlugin) {
        let (client, name) = (&self.context.client, &self.identity.name);
        let told: Mutex<Option<Instant>> = Mutex::default();
        for crd in &described.crds {
            let installed = self.until_done(|| async {
                let turn = self.context.starting.acquire().await;
                let sharer = self.context.claims.sharer(name, &crd.name);
                let error = match install_crd(client, crd, CrdPolicy::Leave, sharer.as_deref()).await {
                    Ok(wrote) => return Ok(wrote),
                    Err(error) => error,
                };
                drop(turn);
                let is_due = |told: Option<Instant>| told.is_none_or(|told| told.elapsed() >= RECHECK);
                if error.is_forbidden() && is_due(*told.lock()) {
                    *told.lock() = Some(Instant::now());
                    // Boxed: the future of every starting plugin would reserve space for it, and it runs rarely.
                    Box::pin(self.report_rights_to_start(wanted, described)).await;
                }
                Err(chain(&error))
            });
            if installed.await {
                tracing::info!(plugin = &**name, crd = crd.name, "installed the CRD");
            }
        }
    }

    /// Reads back the events of earlier processes, so that none is emitted twice.
    async fn recall_events(&self) {
        self.until_done(|| async {
            let _turn = self.context.starting.acquire().await;
            self.identity.recorder.recall().await.map_err(|error| error.to_string())
        })
        .await;
    }

    /// Waits until the cache has all that these unregistered lanes need.
    pub async fn listed(&self, lanes: &[Arc<Lane>]) {
        loop {
            let settled = self.context.host.kinds.settled();
            let missing = self.context.host.missing(lanes);
            if missing.is_empty() {
                return;
            }
            let mut why = format!("the new version waits until {missing} is served and listed");
            if self.context.host.kinds.is_forbidden(lanes)
                && let Some(rights) = Box::pin(self.missing_permissions(lanes)).await
            {
                why = format!("{why}; {rights}");
            }
            self.report_waiting(&why);
            settled.await;
        }
    }

    /// Calls the new version for primaries that the old one handles. Plugins are pure: a call changes nothing.
    async fn try_out(&self, running: &RunningVersion, lanes: &[Arc<Lane>]) -> Result<(), StartupProblem> {
        let host = &self.context.host;
        for lane in lanes {
            let Some(old) = running.lane_for(lane) else { continue };
            for name in host.state.sample_primaries(lane, TRIED) {
                let Some(failure) = try_out(host, lane, &name)
                    .await
                    .filter(|failure| failure.blame == Blame::Guest)
                else {
                    continue;
                };
                let is_new = try_out(host, old, &name)
                    .await
                    .is_none_or(|failure| failure.blame != Blame::Guest);
                if is_new {
                    return Err(StartupProblem::new(
                        StartupStep::Ready,
                        "TrialFailed",
                        format!(
                            "the new version fails for {} {name}: {}",
                            lane.grants.primary().kind,
                            failure.message
                        ),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Retries until it succeeds, with back-off; logs whenever the cause changes, not at each attempt.
    pub async fn until_done<T, F: Future<Output = Result<T, String>>>(&self, mut attempt: impl FnMut() -> F) -> T {
        let mut wait = FIRST_WAIT;
        let mut said = None;
        let mut leadership = self.context.host.leadership.follow();
        loop {
            match attempt().await {
                Ok(done) => {
                    if said.is_some() {
                        tracing::info!(plugin = &*self.identity.name, "the missing kind is served now");
                    }
                    return done;
                }
                Err(problem) => {
                    // Replicas that do not lead wait for the leader's writes.
                    if self.context.host.leadership.leads() && said.as_ref() != Some(&problem) {
                        tracing::warn!(plugin = &*self.identity.name, "waiting: {problem}");
                        self.report_waiting(&problem);
                        said = Some(problem);
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(LONGEST_WAIT),
                // A replica that does not lead mostly waits to become leader.
                _ = leadership.changed() => wait = FIRST_WAIT,
            }
        }
    }
}

fn exclusive_kinds(
    crds: BTreeMap<Arc<str>, Arc<str>>,
    wanted: &DesiredPlugin,
    is_granted: bool,
) -> ExclusiveKindRequest {
    ExclusiveKindRequest {
        age: wanted.age.clone(),
        crds,
        namespaces: wanted.namespaces.clone(),
        is_granted,
        waited_for: None,
    }
}

/// The claim of a running version.
fn claimed_by(running: &RunningVersion) -> Option<ExclusiveKindRequest> {
    let wanted = running.request.wanted.as_ref().ok()?;
    Some(exclusive_kinds(running.crds.clone(), wanted, true))
}

/// Message about compiled code.
pub fn compiled(component: &PluginComponent) -> String {
    let bytes = component.code_bytes();
    match component.kept_in_memory_because() {
        None => format!("{bytes} bytes of machine code"),
        Some(why) => format!("{bytes} bytes of machine code, in memory until the host ends: {why}"),
    }
}

fn load_problem(error: &LoadError) -> StartupProblem {
    let (step, reason) = match error {
        LoadError::Read { .. } | LoadError::TooLarge { .. } => (StartupStep::Fetched, "FetchFailed"),
        LoadError::Digest { .. } => (StartupStep::Fetched, "DigestMismatch"),
        LoadError::Refused { .. } => (StartupStep::Compiled, "Refused"),
        LoadError::Compile { .. } => (StartupStep::Compiled, "CompileFailed"),
        _ => (StartupStep::Compiled, "HostFault"),
    };
    StartupProblem::new(step, reason, chain(error))
}
