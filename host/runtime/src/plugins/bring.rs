//! Owns the way of one version of a plugin to where it can take over: loaded, described, allowed, its CRDs there, and, if
//! another version runs, its kinds listed and its first calls tried. Whatever is given up on the way leaves nothing behind.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pilothouse_cluster::error::chain;
use pilothouse_cluster::install::install_crd;
use pilothouse_core::Blame;
use pilothouse_core::exclusive::Claim;
use pilothouse_sandbox::{LoadError, Plugin};
use tokio::time::Instant;

use super::Fleet;
use super::life::{KIND_TAKEN, Life, Running};
use super::prepare::{Described, describe};
use super::rights::RECHECK;
use super::source::{Found, SourceError};
use super::standing::{Fact, Step};
use super::talk::without_object;
use super::wanted::{Order, Source, Wanted};
use crate::lane::Lane;
use crate::reconcile::try_out;

/// The waits between two looks for what is missing.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// Primaries of each controller on which a new version is tried before it takes over.
const TRIED: usize = 10;

/// A component that is loaded, and the file that it came from.
#[derive(Clone)]
pub struct Loaded {
    /// The component.
    pub component: Plugin,
    /// Its file; none if it was loaded before.
    pub found: Option<Found>,
}

/// A version that can take over.
pub struct Arrival {
    /// What it was brought for.
    pub order: Arc<Order>,
    /// Where it came from.
    pub loaded: Loaded,
    /// What it says of itself.
    pub described: Described,
    /// Its lanes, watched for already if another version runs.
    pub lanes: Candidates,
}

/// Why a plugin does not run as it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The step that failed.
    pub step: Step,
    /// The reason of the condition.
    pub reason: &'static str,
    /// What failed, why, and what to do.
    pub message: String,
}

impl Problem {
    fn new(step: Step, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            step,
            reason,
            message: message.into(),
        }
    }
}

/// Lanes for which the cache is widened before they take over. What is not taken is not watched for any more.
pub struct Candidates {
    fleet: Arc<Fleet>,
    lanes: Vec<Arc<Lane>>,
    watched: bool,
}

impl Candidates {
    /// The lanes, and whether they are watched for already, under their own numbers.
    pub fn take(mut self) -> (Vec<Arc<Lane>>, bool) {
        (std::mem::take(&mut self.lanes), self.watched)
    }

    /// The lanes.
    pub fn lanes(&self) -> &[Arc<Lane>] {
        &self.lanes
    }
}

impl Drop for Candidates {
    fn drop(&mut self) {
        if self.watched {
            for lane in &self.lanes {
                self.fleet.watches.remove(lane);
            }
        }
    }
}

impl Life {
    /// Brings what is wanted as far as it can come without taking over; none if it runs already.
    pub async fn bring(
        &self,
        running: Option<&Running>,
        order: &Arc<Order>,
        wanted: &Wanted,
    ) -> Result<Option<Arrival>, Problem> {
        let loaded = self
            .load(&wanted.source, running.map(|running| &running.loaded))
            .await?;
        let is_same = |running: &Running| {
            running.order.is_same(order) && running.loaded.component.digest() == loaded.component.digest()
        };
        if running.is_some_and(is_same) {
            return Ok(None);
        }
        let described = self.describe(&loaded, wanted).await?;
        self.claim(running, wanted, &described)?;
        self.install(wanted, &described).await;
        self.mind_the_end(wanted, &described).await;
        let lanes = if let Some(running) = running {
            let lanes = self.candidates(wanted, &described);
            self.listed(lanes.lanes()).await;
            self.try_out(running, lanes.lanes()).await?;
            lanes
        } else {
            Candidates {
                fleet: self.fleet.clone(),
                lanes: self.lanes(wanted, &described),
                watched: false,
            }
        };
        self.remember(lanes.lanes()).await;
        Ok(Some(Arrival {
            order: order.clone(),
            loaded,
            described,
            lanes,
        }))
    }

    /// Lanes that are not in the hub, for which the cache is widened.
    pub fn candidates(&self, wanted: &Wanted, described: &Described) -> Candidates {
        let lanes = self.lanes(wanted, described);
        for lane in &lanes {
            self.fleet.watches.add(lane);
        }
        Candidates {
            fleet: self.fleet.clone(),
            lanes,
            watched: true,
        }
    }

    pub fn lanes(&self, wanted: &Wanted, described: &Described) -> Vec<Arc<Lane>> {
        described.lanes(&self.identity, wanted, &self.known(), &self.fleet.hub)
    }

    /// Asks a component what it is.
    pub async fn describe(&self, loaded: &Loaded, wanted: &Wanted) -> Result<Described, Problem> {
        let (component, config, limits) = (loaded.component.clone(), wanted.config.clone(), wanted.limits.clone());
        let (name, account) = (self.identity.name.clone(), self.identity.account.clone());
        let log = move || without_object(name.clone(), account.clone());
        let _turn = self.fleet.describing.acquire().await;
        let blocking = &self.fleet.options.blocking;
        blocking
            .run(move || describe(&component, config.as_ref(), &limits, log))
            .await
            .map_err(|error| Problem::new(Step::Ready, "HostFault", format!("its describe call was lost: {error}")))?
            .map_err(|error| Problem::new(Step::Ready, error.reason(), error.to_string()))
    }

    /// Loads a component, unless it is the one that is known.
    pub async fn load(&self, source: &Source, known: Option<&Loaded>) -> Result<Loaded, Problem> {
        let (path, digest) = match source {
            Source::Loaded(component) => {
                return Ok(Loaded {
                    component: component.clone(),
                    found: None,
                });
            }
            Source::File { path, digest } => (path, digest.clone()),
        };
        let Some(library) = &self.fleet.library else {
            return Err(Problem::new(
                Step::Fetched,
                "FetchFailed",
                "this host has no plugin directory",
            ));
        };
        let failed = |error: SourceError| Problem::new(Step::Fetched, "FetchFailed", error.to_string());
        let looks = &self.fleet.looks;
        let found = looks.find(&library.directory, path).await.map_err(failed)?;
        let is_known = |known: &&Loaded| {
            known.found.as_ref() == Some(&found)
                && digest
                    .as_deref()
                    .is_none_or(|digest| digest == known.component.digest())
        };
        if let Some(known) = known.filter(is_known) {
            return Ok(known.clone());
        }
        let file = &found.file;
        let hung = |hung| {
            failed(SourceError::Hung {
                path: file.clone(),
                hung,
            })
        };
        let (sandbox, path, expected) = (library.sandbox.clone(), file.clone(), digest.clone());
        let compiled_before = looks.at(file, move || sandbox.load_known(&path, expected.as_deref()));
        let known = compiled_before.await.map_err(hung)?;
        let component = if let Some(component) = known.map_err(|error| load_problem(&error))? {
            component
        } else {
            let _turn = self.fleet.compiling.acquire().await;
            let (sandbox, path) = (library.sandbox.clone(), file.clone());
            let read = looks.at(file, move || sandbox.read(&path, digest.as_deref()));
            let read = read.await.map_err(hung)?.map_err(|error| load_problem(&error))?;
            let sandbox = library.sandbox.clone();
            self.fleet
                .options
                .blocking
                .run(move || sandbox.load_read(&read))
                .await
                .map_err(|error| Problem::new(Step::Compiled, "HostFault", format!("loading it was lost: {error}")))?
                .map_err(|error| load_problem(&error))?
        };
        let digest = component.digest();
        self.standing.set(|known| {
            known.set(
                Step::Fetched,
                Fact::yes("Fetched", format!("{} has sha256:{digest}", found.file.display())),
            );
            known.set(Step::Compiled, Fact::yes("Compiled", compiled(&component)));
        });
        Ok(Loaded {
            component,
            found: Some(found),
        })
    }

    /// Asks for the kinds whose CRDs the plugin brings. If somebody older has one, a version that runs keeps what it has.
    fn claim(&self, running: Option<&Running>, wanted: &Wanted, described: &Described) -> Result<(), Problem> {
        let claim = |crds, wanted: &Wanted| Claim {
            age: wanted.age.clone(),
            crds,
            namespaces: wanted.namespaces.clone(),
        };
        let name = &self.identity.name;
        let Err(taken) = self.fleet.claims.want(name, &claim(described.exclusive(), wanted)) else {
            return Ok(());
        };
        if let Some((running, wanted)) = running.and_then(|it| Some((it, it.order.wanted.as_ref().ok()?))) {
            let _ = self.fleet.claims.want(name, &claim(running.crds.clone(), wanted));
        }
        Err(Problem::new(
            Step::Ready,
            KIND_TAKEN,
            format!(
                "it brings the CRD of {}, which plugin {} brings already; run one of them",
                taken.kind, taken.holder
            ),
        ))
    }

    async fn install(&self, wanted: &Wanted, described: &Described) {
        let (client, name) = (&self.fleet.client, &self.identity.name);
        if self.fleet.options.install_crds {
            let told: Mutex<Option<Instant>> = Mutex::default();
            for crd in &described.crds {
                let installed = self.until_done(|| async {
                    let turn = self.fleet.starting.acquire().await;
                    let error = match install_crd(client, crd).await {
                        Ok(wrote) => return Ok(wrote),
                        Err(error) => error,
                    };
                    drop(turn);
                    let is_due = |told: Option<Instant>| told.is_none_or(|told| told.elapsed() >= RECHECK);
                    if error.is_forbidden() && is_due(*told.lock()) {
                        *told.lock() = Some(Instant::now());
                        // In a box of its own: every plugin that begins has room for this, and few ever come here.
                        Box::pin(self.tell_missing_rights_to_begin(wanted, described)).await;
                    }
                    Err(chain(&error))
                });
                if installed.await {
                    tracing::info!(plugin = &**name, crd = crd.name, "installed the CRD");
                }
            }
        }
        self.until_done(|| async {
            let _turn = self.fleet.starting.acquire().await;
            self.identity.recorder.recall().await.map_err(|error| error.to_string())
        })
        .await;
    }

    /// Waits until the cache has all that lanes need which are not in the hub.
    pub async fn listed(&self, lanes: &[Arc<Lane>]) {
        loop {
            let settled = self.fleet.hub.settled.notified();
            let missing = self.fleet.hub.missing(lanes);
            if missing.is_empty() {
                return;
            }
            let mut why = format!("the new version waits until {missing} is served and listed");
            if self.fleet.hub.is_forbidden(lanes)
                && let Some(rights) = Box::pin(self.missing_rights(lanes)).await
            {
                why = format!("{why}; {rights}");
            }
            self.waits(&why);
            settled.await;
        }
    }

    /// Lets the new version answer for primaries that the old one can answer for. Plugins are pure: a call changes
    /// nothing.
    async fn try_out(&self, running: &Running, lanes: &[Arc<Lane>]) -> Result<(), Problem> {
        let hub = &self.fleet.hub;
        for lane in lanes {
            let Some(old) = running.lane_for(lane) else { continue };
            for name in hub.some_primaries(lane, TRIED) {
                let Some(failure) = try_out(hub, lane, &name)
                    .await
                    .filter(|failure| failure.blame == Blame::Guest)
                else {
                    continue;
                };
                let is_new = try_out(hub, old, &name)
                    .await
                    .is_none_or(|failure| failure.blame != Blame::Guest);
                if is_new {
                    return Err(Problem::new(
                        Step::Ready,
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

    /// Tries until it is done, with back-off; a message comes whenever the cause changes, not at each try.
    pub async fn until_done<T, F: Future<Output = Result<T, String>>>(&self, mut attempt: impl FnMut() -> F) -> T {
        let mut wait = FIRST_WAIT;
        let mut said = None;
        loop {
            match attempt().await {
                Ok(done) => {
                    if said.is_some() {
                        tracing::info!(plugin = &*self.identity.name, "what was missing is there");
                    }
                    return done;
                }
                Err(problem) => {
                    if said.as_ref() != Some(&problem) {
                        tracing::warn!(plugin = &*self.identity.name, "waiting: {problem}");
                        self.waits(&problem);
                        said = Some(problem);
                    }
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }
}

/// What is said of compiled code.
fn compiled(component: &Plugin) -> String {
    let bytes = component.code_bytes();
    match component.kept_in_memory_because() {
        None => format!("{bytes} bytes of machine code"),
        Some(why) => format!("{bytes} bytes of machine code, in memory until the host ends: {why}"),
    }
}

fn load_problem(error: &LoadError) -> Problem {
    let (step, reason) = match error {
        LoadError::Read { .. } | LoadError::TooLarge { .. } => (Step::Fetched, "FetchFailed"),
        LoadError::Digest { .. } => (Step::Fetched, "DigestMismatch"),
        LoadError::Refused { .. } => (Step::Compiled, "Refused"),
        LoadError::Compile { .. } => (Step::Compiled, "CompileFailed"),
        _ => (Step::Compiled, "HostFault"),
    };
    Problem::new(step, reason, chain(error))
}
