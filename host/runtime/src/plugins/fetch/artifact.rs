//! Obtains the component of a Plugin from an OCI artifact: resolves the reference, reads the pull secret, reports in
//! conditions and events, and notices another artifact. Registries are accessed by [`crate::artifacts`].
//!
//! A host that starts uses the artifact recorded in the Plugin's status, if that needs no network, and asks the
//! registry afterwards: so a registry that is down, slow or hostile does not prevent a plugin from starting.
//!
//! Among several replicas only the leader resolves tags. The others run the artifact that the Plugin's status records
//! for the leader, so that two versions run side by side only as long as a download takes.

use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::error::chain;
use pilothouse_cluster::resources::pull_secret::read_pull_secret;
use pilothouse_core::plugin::contract::EventType;
use pilothouse_core::status::backoff;
use pilothouse_crds::plugin::{ArtifactStatus, PluginStatus};

use crate::artifacts::{
    ArtifactProblem, ArtifactRequest, ArtifactStore, ArtifactUpdate, FetchedArtifact, PullCredentials, ResolvedArtifact,
};
use crate::plugins::Library;
use crate::plugins::plugin::{LoadedArtifact, LoadedComponent, PluginTask};
use crate::plugins::resource::desired::DesiredPlugin;
use crate::plugins::resource::state::{ConditionState, RunningArtifact, StartupProblem, StartupStep, UNSIGNED};
use crate::plugins::version::staging::compiled;

/// Time until the registry is queried after a start without it.
const FIRST_LOOK: Duration = Duration::from_secs(2);

impl PluginTask {
    /// Loads the component of the desired artifact, unless it is the known one. Its signature is verified either way:
    /// the trust policy may have changed.
    pub async fn load_artifact(
        &self,
        library: &Library,
        request: &Arc<ArtifactRequest>,
        known: Option<&LoadedComponent>,
    ) -> Result<LoadedComponent, StartupProblem> {
        let store = store(library)?;
        let trust = store.trust_number();
        let running = known.and_then(|known| known.artifact.as_deref());
        let stays = running.filter(|running| running.request.is_same_choice(request) && !self.artifact.has_moved());
        let fetched = match (stays, known) {
            (Some(running), _) => {
                self.fetch_again(store, request, &running.fetched.resolved, trust)
                    .await?
            }
            (None, known) => match (self.leaders(request), known) {
                (Some(leaders), _) => self.fetch_leaders(store, request, leaders, trust).await?,
                (None, None) if !self.artifact.has_moved() => self.fetch_first(store, request, trust).await?,
                (None, _) => self.fetch(store, request, trust).await?,
            },
        };
        // A move stays recorded until the artifact takes over, so that each retry loads the same one.
        let before = running.map(|running| running.fetched.resolved.digest.clone());
        let before = before.or_else(|| self.recorded(request).map(|recorded| recorded.digest));
        self.artifact
            .record_move(before.is_some_and(|before| before != fetched.resolved.digest));
        self.report_fetched(request, &fetched);
        let is_known = |known: &&LoadedComponent| known.component.digest() == fetched.component_digest;
        let component = if let Some(known) = known.filter(is_known) {
            known.component.clone()
        } else {
            let digest = Some(fetched.component_digest.clone());
            let compiled = self.compile(library, &fetched.file, digest).await;
            compiled.map_err(|problem| of_artifact(problem, request, &fetched))?
        };
        self.plugin_state.set(|known| {
            known.set(
                StartupStep::Compiled,
                ConditionState::yes("Compiled", compiled(&component)),
            );
        });
        let request = request.clone();
        let artifact = LoadedArtifact { request, fetched };
        Ok(LoadedComponent::of_artifact(component, artifact, trust))
    }

    /// Loads the component of an artifact that ran before.
    pub async fn load_recorded(
        &self,
        request: ArtifactRequest,
        resolved: ResolvedArtifact,
        wanted: &DesiredPlugin,
    ) -> Result<LoadedComponent, StartupProblem> {
        let library = self.library(wanted)?;
        let store = store(&library)?;
        let trust = store.trust_number();
        let fetched = self.fetch_recorded(store, &request, &resolved).await?;
        let digest = Some(fetched.component_digest.clone());
        let compiled = self.compile(&library, &fetched.file, digest).await;
        let component = compiled.map_err(|problem| of_artifact(problem, &request, &fetched))?;
        let request = Arc::new(request);
        let artifact = LoadedArtifact { request, fetched };
        self.counted(LoadedComponent::of_artifact(component, artifact, trust), wanted)
    }

    /// Waits until the reference resolves to another artifact, or the trust policy changes. While the registry does not
    /// answer, the Plugin's status says so, and the running version continues.
    pub async fn artifact_changed(
        &self,
        library: &Library,
        request: &ArtifactRequest,
        before: Option<&str>,
        trust: u64,
    ) {
        let Some(store) = library.artifacts.as_deref() else {
            return std::future::pending().await;
        };
        tokio::select! {
            () = store.trust_changed(trust) => {}
            () = self.another_is_meant(store, request, before) => {}
        }
    }

    async fn another_is_meant(&self, store: &dyn ArtifactStore, request: &ArtifactRequest, before: Option<&str>) {
        // The life cycle retries a reference that could not be resolved.
        let (Some(before), ArtifactUpdate::Tag | ArtifactUpdate::SemVer(_)) = (before, &request.update) else {
            return std::future::pending().await;
        };
        let mut leadership = self.context.host.leadership.follow();
        // The condition before the registry failed to answer.
        let mut told: Option<ConditionState> = None;
        loop {
            let leads = *leadership.borrow_and_update();
            tokio::select! {
                () = self.registry_means_another(store, request, before, &mut told), if leads => break,
                () = self.leader_runs_another(request, before), if !leads => break,
                _ = leadership.changed() => {}
            }
        }
        self.artifact.record_move(true);
    }

    /// Waits until the Plugin's status records that the leader runs another artifact of the same reference.
    async fn leader_runs_another(&self, request: &ArtifactRequest, before: &str) {
        let Some(own) = &self.own else {
            return std::future::pending().await;
        };
        let mut live = own.live.clone();
        loop {
            live.mark_unchanged();
            if self.recorded(request).is_some_and(|leaders| leaders.digest != before) {
                return;
            }
            if live.changed().await.is_err() {
                // The Plugin is deleted, and its task ends.
                return std::future::pending().await;
            }
        }
    }

    /// Polls the registry until the reference resolves to another artifact.
    async fn registry_means_another(
        &self,
        store: &dyn ArtifactStore,
        request: &ArtifactRequest,
        before: &str,
        told: &mut Option<ConditionState>,
    ) {
        let name = &*self.identity.name;
        let mut wait = if self.artifact.is_unasked() {
            FIRST_LOOK + spread(FIRST_LOOK, name)
        } else {
            request.interval.saturating_sub(spread(request.interval, name))
        };
        let mut failures = 0;
        loop {
            tokio::time::sleep(wait).await;
            match self.resolve(store, request).await {
                Ok(resolved) => {
                    failures = 0;
                    wait = request.interval.saturating_sub(spread(request.interval, name));
                    if self.artifact.is_unasked() {
                        self.artifact.record_resolved();
                        let is_same = resolved.digest == before;
                        // Another artifact is reported when it is tried.
                        self.plugin_state.set(|known| known.is_unasked &= !is_same);
                    }
                    if let Some(fact) = told.take() {
                        tracing::info!(
                            plugin = name,
                            reference = request.reference,
                            "the registry answers again"
                        );
                        self.plugin_state.set(|known| known.set(StartupStep::Fetched, fact));
                    }
                    if resolved.digest != before {
                        return;
                    }
                }
                Err(problem) => {
                    failures += 1;
                    wait = backoff::delay(failures, seed(name))
                        .max(FIRST_LOOK)
                        .min(request.interval);
                    let StartupProblem { step, reason, message } = problem;
                    if step == StartupStep::Verified {
                        // A changed trust policy is reported when the running version is verified.
                        continue;
                    }
                    let known = self.plugin_state.known();
                    let fact = known.fact(StartupStep::Fetched);
                    if fact.message != message && !known.lanes.is_empty() {
                        tracing::warn!(
                            plugin = name,
                            problem = message,
                            "cannot ask which artifact the plugin is to run; what runs goes on"
                        );
                        told.get_or_insert_with(|| fact.clone());
                        let fact = ConditionState::no(reason, message);
                        self.plugin_state.set(|known| known.set(StartupStep::Fetched, fact));
                    }
                }
            }
        }
    }

    /// The artifact recorded in the Plugin's status.
    pub fn told(&self) -> Option<ArtifactStatus> {
        self.told_status()?.artifact
    }

    /// The Plugin's status.
    pub fn told_status(&self) -> Option<PluginStatus> {
        let status = self.own.as_ref()?.live.borrow().status.clone();
        serde_json::from_value(status).ok()
    }

    /// The artifact that an earlier process ran for the same reference.
    fn recorded(&self, request: &ArtifactRequest) -> Option<ResolvedArtifact> {
        let ArtifactStatus {
            reference, tag, digest, ..
        } = self.told()?;
        let is_meant = reference == request.reference && request.may_mean(tag.as_deref());
        is_meant.then_some(ResolvedArtifact { digest, tag })
    }

    /// The artifact that the leader runs for the same reference, if another replica leads.
    fn leaders(&self, request: &ArtifactRequest) -> Option<ResolvedArtifact> {
        if self.context.host.leadership.leads() {
            return None;
        }
        self.recorded(request)
    }

    /// Fetches the artifact that the leader runs. The registry is only asked for its bytes; the tag is resolved once
    /// this replica leads.
    async fn fetch_leaders(
        &self,
        store: &dyn ArtifactStore,
        request: &ArtifactRequest,
        leaders: ResolvedArtifact,
        trust: u64,
    ) -> Result<FetchedArtifact, StartupProblem> {
        self.artifact.set(Some(leaders.clone()), trust, true);
        self.fetch_again(store, request, &leaders, trust).await
    }

    /// Fetches the artifact of a plugin that does not run: the recorded one, from the cache or by its digest. The
    /// reference is resolved afterwards, and a new artifact gets its trial beside the old one: it may need rights that
    /// are not granted.
    async fn fetch_first(
        &self,
        store: &dyn ArtifactStore,
        request: &ArtifactRequest,
        trust: u64,
    ) -> Result<FetchedArtifact, StartupProblem> {
        if let Some(recorded) = self.recorded(request) {
            match self.fetch_recorded(store, request, &recorded).await {
                Ok(fetched) => {
                    self.artifact.set(Some(recorded), trust, true);
                    return Ok(fetched);
                }
                Err(problem) => tracing::warn!(
                    plugin = &*self.identity.name,
                    problem = %problem.message,
                    "the artifact that ran before cannot be used; asking the registry"
                ),
            }
        }
        self.fetch(store, request, trust).await
    }

    /// Fetches an artifact that ran before: from the cache, or by its digest.
    async fn fetch_recorded(
        &self,
        store: &dyn ArtifactStore,
        request: &ArtifactRequest,
        recorded: &ResolvedArtifact,
    ) -> Result<FetchedArtifact, StartupProblem> {
        match store.fetch_offline(request, recorded).await {
            Ok(None) => self.fetch_resolved(store, request, recorded).await,
            Ok(Some(fetched)) => Ok(fetched),
            Err(problem) => Err(startup_problem(problem)),
        }
    }

    /// Fetches the running artifact again: the trust policy or the configuration may have changed. The registry is
    /// asked only if its signature is rejected, because there may be a new one by now.
    async fn fetch_again(
        &self,
        store: &dyn ArtifactStore,
        request: &ArtifactRequest,
        running: &ResolvedArtifact,
        trust: u64,
    ) -> Result<FetchedArtifact, StartupProblem> {
        let is_unasked = self.artifact.is_unasked();
        self.artifact.set(Some(running.clone()), trust, is_unasked);
        let refusal = match store.fetch_offline(request, running).await {
            Ok(Some(fetched)) => return Ok(fetched),
            Err(problem) if problem.is_about_trust => Some(problem),
            Ok(None) | Err(_) => None,
        };
        match (self.fetch_resolved(store, request, running).await, refusal) {
            // A rejected signature of the running artifact matters more than a registry that cannot be asked.
            (Err(problem), Some(refusal)) if problem.step != StartupStep::Verified => Err(startup_problem(refusal)),
            (fetched, _) => fetched,
        }
    }

    /// Fetches the artifact that the reference resolves to.
    async fn fetch(
        &self,
        store: &dyn ArtifactStore,
        request: &ArtifactRequest,
        trust: u64,
    ) -> Result<FetchedArtifact, StartupProblem> {
        self.artifact.set(None, trust, false);
        let resolved = self.resolve(store, request).await?;
        self.artifact.set(Some(resolved.clone()), trust, false);
        // A pinned artifact in the cache needs neither the registry nor the Secret.
        if request.update == ArtifactUpdate::Pinned
            && let Ok(Some(fetched)) = store.fetch_offline(request, &resolved).await
        {
            return Ok(fetched);
        }
        self.fetch_resolved(store, request, &resolved).await
    }

    async fn fetch_resolved(
        &self,
        store: &dyn ArtifactStore,
        request: &ArtifactRequest,
        resolved: &ResolvedArtifact,
    ) -> Result<FetchedArtifact, StartupProblem> {
        let credentials = self.credentials(request).await?;
        let turn = self.context.fetching.acquire().await;
        let fetched = store.fetch(request, resolved, credentials.as_ref()).await;
        drop(turn);
        fetched.map_err(|problem| {
            if problem.is_about_trust {
                // The bytes were fetched; only the signature is rejected.
                let message = format!("{} is {}", request.reference, resolved.digest);
                self.plugin_state
                    .set(|known| known.set(StartupStep::Fetched, ConditionState::yes("Resolved", message)));
            }
            startup_problem(problem)
        })
    }

    async fn resolve(
        &self,
        store: &dyn ArtifactStore,
        request: &ArtifactRequest,
    ) -> Result<ResolvedArtifact, StartupProblem> {
        let credentials = match request.update {
            ArtifactUpdate::Pinned => None,
            _ => self.credentials(request).await?,
        };
        let _turn = self.context.resolving.acquire().await;
        let resolved = store.resolve(request, credentials.as_ref()).await;
        resolved.map_err(startup_problem)
    }

    /// Reads the pull secret. It is read each time, so that a renewal or deletion takes effect at once.
    async fn credentials(&self, request: &ArtifactRequest) -> Result<Option<PullCredentials>, StartupProblem> {
        let Some(name) = &request.pull_secret else {
            return Ok(None);
        };
        let failed = |message: String| {
            let message = format!("cannot fetch {}: {message}", request.reference);
            StartupProblem::new(StartupStep::Fetched, "PullSecret", message)
        };
        let Some(namespace) = &self.context.options.namespace else {
            return Err(failed(
                "spec.source.oci.pullSecret is in the host's namespace, which is not known; start the host with --namespace"
                    .to_owned(),
            ));
        };
        let read = read_pull_secret(&self.context.client, namespace, name).await;
        read.map(|value| Some(PullCredentials(value)))
            .map_err(|error| failed(chain(&error)))
    }

    fn report_fetched(&self, request: &ArtifactRequest, fetched: &FetchedArtifact) {
        let ResolvedArtifact { digest, tag } = &fetched.resolved;
        let reference = &request.reference;
        let named = match tag {
            Some(tag) if !reference.ends_with(&format!(":{tag}")) => format!("{reference}, tag {tag}, is {digest}"),
            Some(_) => format!("{reference} is {digest}"),
            None => reference.clone(),
        };
        let message = format!("{named}; its component has {} bytes", fetched.size);
        let verification = &fetched.verification;
        let verified = match &verification.signer {
            Some(signer) => ConditionState::yes(
                "Verified",
                format!("{digest} is signed by {signer}; {}", verification.detail),
            ),
            None => ConditionState::no(
                UNSIGNED,
                format!(
                    "{digest} is accepted without a verified signature; {}",
                    verification.detail
                ),
            ),
        };
        self.plugin_state.set(|known| {
            known.set(StartupStep::Fetched, ConditionState::yes("Fetched", message));
            known.set(StartupStep::Verified, verified);
        });
    }

    /// Records the artifact of a version that has taken over or continues in the status, and emits an event if it
    /// moved.
    pub async fn report_artifact(&self, loaded: &LoadedComponent) {
        self.artifact.record_move(false);
        let Some(artifact) = &loaded.artifact else {
            self.plugin_state.set(|known| known.artifact = RunningArtifact::None);
            return;
        };
        let LoadedArtifact { request, fetched } = &**artifact;
        let now = ArtifactStatus {
            reference: request.reference.clone(),
            tag: fetched.resolved.tag.clone(),
            digest: fetched.resolved.digest.clone(),
            size: fetched.size,
            signer: fetched.verification.signer.clone(),
        };
        let before = match self.plugin_state.known().artifact {
            RunningArtifact::Known(before) => Some(before),
            RunningArtifact::None => None,
            RunningArtifact::Unknown => self.told(),
        };
        let has_moved = before.as_ref().is_none_or(|before| before.digest != now.digest);
        if has_moved {
            let message = moved(before.as_ref(), &now);
            tracing::info!(plugin = &*self.identity.name, "{message}");
            self.plugin_state
                .set(|known| known.artifact = RunningArtifact::Known(now));
            // Only the leader emits the event: the Plugin has moved once.
            if self.context.host.leadership.leads() {
                self.emit(EventType::Normal, "ArtifactMoved", message).await;
            }
        } else {
            self.plugin_state
                .set(|known| known.artifact = RunningArtifact::Known(now));
        }
    }
}

fn store(library: &Library) -> Result<&dyn ArtifactStore, StartupProblem> {
    let no_store = || {
        StartupProblem::new(
            StartupStep::Fetched,
            "FetchFailed",
            "this host fetches no artifacts; give the component as spec.source.file",
        )
    };
    library.artifacts.as_deref().ok_or_else(no_store)
}

/// Message of the event about a move.
fn moved(before: Option<&ArtifactStatus>, now: &ArtifactStatus) -> String {
    let ArtifactStatus {
        reference,
        tag,
        digest,
        size,
        signer,
    } = now;
    let tag = tag.as_ref().map(|tag| format!(", tag {tag}")).unwrap_or_default();
    let signer = match signer {
        Some(signer) => format!("signed by {signer}"),
        None => "without a verified signature".to_owned(),
    };
    let before = match before {
        Some(before) => format!("; before it ran {}", before.digest),
        None => String::new(),
    };
    format!("now runs {digest} from {reference}{tag}, {size} bytes, {signer}{before}")
}

/// Adds the artifact to a problem of its component, in place of a file name that means nothing to the user.
fn of_artifact(problem: StartupProblem, request: &ArtifactRequest, fetched: &FetchedArtifact) -> StartupProblem {
    let StartupProblem { step, reason, message } = problem;
    let (reference, digest) = (&request.reference, &fetched.resolved.digest);
    let message = format!("the component of {reference}, which is {digest}, cannot be used: {message}");
    StartupProblem::new(step, reason, message)
}

fn startup_problem(problem: ArtifactProblem) -> StartupProblem {
    let ArtifactProblem {
        is_about_trust,
        reason,
        message,
    } = problem;
    let step = if is_about_trust {
        StartupStep::Verified
    } else {
        StartupStep::Fetched
    };
    StartupProblem::new(step, reason, message)
}

/// Up to a tenth of a wait, which spreads plugins that started together.
fn spread(wait: Duration, name: &str) -> Duration {
    wait.mul_f64(f64::from(u8::try_from(seed(name) % 256).unwrap_or(0)) / 2560.0)
}

/// Seed that spreads the retries of many plugins.
pub fn seed(name: &str) -> u64 {
    let add = |seed: u64, byte: u8| seed.wrapping_mul(31).wrapping_add(u64::from(byte));
    name.bytes().fold(7, add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(digest: &str, tag: Option<&str>, signer: Option<&str>) -> ArtifactStatus {
        ArtifactStatus {
            reference: "example.com/a".to_owned(),
            tag: tag.map(str::to_owned),
            digest: digest.to_owned(),
            size: 5,
            signer: signer.map(str::to_owned),
        }
    }

    #[test]
    fn a_move_names_both_digests_the_tag_the_size_and_the_signer() {
        let before = artifact("sha256:a", None, None);
        let now = artifact("sha256:b", Some("1.2.0"), Some("release"));
        assert_eq!(
            moved(Some(&before), &now),
            "now runs sha256:b from example.com/a, tag 1.2.0, 5 bytes, signed by release; before it ran sha256:a"
        );
        assert_eq!(
            moved(None, &before),
            "now runs sha256:a from example.com/a, 5 bytes, without a verified signature"
        );
    }

    #[test]
    fn a_problem_of_trust_is_about_the_signature() {
        let problem = |is_about_trust| ArtifactProblem {
            is_about_trust,
            reason: "R",
            message: "m".to_owned(),
        };
        assert_eq!(startup_problem(problem(true)).step, StartupStep::Verified);
        assert_eq!(startup_problem(problem(false)).step, StartupStep::Fetched);
    }
}
