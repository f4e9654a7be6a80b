//! Reviews the rights of a plugin's account: before a new version takes over, when a version starts, every few minutes,
//! and after a denied request. A lane runs only while its account has all rights that it needs.
//! `pilothouse_core::rights` decides which rights these are.
//!
//! Watches are shared and made in the host's own name. So the host has to request the checks that API servers make for
//! a client with watches of its own. These reviews are the one exception to "no change, no request".

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::error::{RequestError, chain};
use pilothouse_cluster::write::identity::Impersonation;
use pilothouse_cluster::write::permissions::{Permission, account_has, listed};
use pilothouse_core::Kind;
use pilothouse_core::plugin::manifest::ONCE;
use pilothouse_core::rights::objects::account_name;
use pilothouse_core::rights::resources::Resources;
use pilothouse_core::rights::rules::{Place, Verb};
use pilothouse_core::rights::{AdmissionExports, ControllerNeeds, Rights, RightsError};
use pilothouse_core::text::printable::shorten;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::plugin::{LoadedComponent, PluginTask, RunningVersion};
use crate::lanes::access::{LaneAccess, ReviewedAccess};
use crate::lanes::lane::{Lane, RunMode};
use crate::plugins::resource::desired::{ComponentSource, DesiredPlugin};
use crate::plugins::resource::state::{ConditionState, NOT_GRANTED, StartupProblem, StartupStep};
use crate::plugins::version::prepare::DescribedPlugin;

/// Interval of the reviews while all rights are granted. A revoked right ends within five minutes; the difference is
/// left for the review itself.
const INTERVAL: Duration = Duration::from_mins(4);

/// Validity of rights that cannot be reviewed any more, unless a review itself takes longer than a minute.
const HOLDS: Duration = Duration::from_mins(5);

/// Interval of the reviews while some rights are missing.
const MISSING_INTERVAL: Duration = Duration::from_secs(30);

/// Minimum time between two reviews after a denied request.
const LEAST_WAIT: Duration = Duration::from_secs(10);

/// Time until the next review after a failed one.
const RETRY: Duration = Duration::from_secs(15);

/// Number of concurrent reviews.
pub const REVIEWS_AT_ONCE: usize = 16;

/// The longest list of missing rights, in bytes: the command that grants them comes after it.
const LONGEST_LIST: usize = 1200;

/// The most namespaces that a command names.
const MOST_NAMED: usize = 20;

/// Reason of `Granted` if the rights are not known.
const REVIEW_FAILED: &str = "ReviewFailed";

/// Rights that the account of one lane needs.
struct LaneNeeds {
    /// Rights without which the lane does not run.
    rights: BTreeSet<Permission>,
    /// Rights for being called at admission (default and validate), without which it runs.
    defaults: BTreeSet<Permission>,
    validates: BTreeSet<Permission>,
    /// Served kinds that these rights are about.
    kinds: BTreeSet<Kind>,
}

/// Outcome of a review.
struct AccessReview {
    /// Outcome by lane; `None` if the lane's rights cannot be determined.
    outcomes: Vec<Option<ReviewedAccess>>,
    /// Missing rights.
    missing: BTreeSet<Permission>,
    /// Missing rights for being called at admission.
    unasked: BTreeSet<Permission>,
    /// Reasons why the rights of some lanes cannot be determined.
    errors: Vec<RightsError>,
}

/// The last review of a version. The plugin keeps it across interruptions of [`PluginTask::watch_access`].
pub struct LastReview {
    /// The reviewed lanes, identified by the access of the first.
    of: Arc<LaneAccess>,
    /// Resources of their kinds when they were reviewed.
    served: BTreeMap<Kind, String>,
    begun: Instant,
    took: Duration,
    /// Deadline until which the last review stays valid; `None`: it is no longer valid.
    holds_until: Option<Instant>,
    outcome: LastOutcome,
}

/// Result of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastOutcome {
    Granted,
    Missing,
    Failed,
}

impl LastReview {
    /// Returns when the next review is due, given the kinds that are served now.
    fn next(&self, served: &BTreeMap<Kind, String>, is_asked: bool) -> Instant {
        if self.served != *served {
            return Instant::now();
        }
        let wait = match self.outcome {
            LastOutcome::Failed => self.took + RETRY,
            _ if is_asked => LEAST_WAIT,
            LastOutcome::Missing => MISSING_INTERVAL,
            // The next review ends with the interval, if it takes as long as this one.
            LastOutcome::Granted => INTERVAL.saturating_sub(self.took).max(self.took + LEAST_WAIT),
        };
        self.begun + wait
    }
}

impl PluginTask {
    /// Reviews the rights of a running version, for ever.
    pub async fn watch_access(&self, running: &RunningVersion) {
        let Some(first) = running.lanes.first() else {
            return std::future::pending().await;
        };
        let Some(account) = first.writer.identity() else {
            return std::future::pending().await;
        };
        let (host, health) = (&self.context.host, &self.identity.health);
        self.last_review
            .lock()
            .take_if(|last| !Arc::ptr_eq(&last.of, &first.access));
        let mut is_asked = false;
        loop {
            let settled = host.kinds.settled();
            let served = served_kinds(&running.lanes);
            let (due, took, held_until) = match &*self.last_review.lock() {
                Some(last) => (last.next(&served, is_asked), last.took, last.holds_until),
                None => (Instant::now(), Duration::ZERO, None),
            };
            tokio::select! {
                () = settled => {}
                () = health.account_forbidden.notified() => is_asked = true,
                () = tokio::time::sleep_until(due) => {
                    is_asked = false;
                    let begun = Instant::now();
                    let patience = patience(took);
                    // Boxed: the future of every running plugin would reserve space for it.
                    let review = Box::pin(self.review(account, &running.lanes, Lane::served));
                    let review = tokio::time::timeout(patience, review).await;
                    let until = counts_until(begun);
                    let review = review.map_err(|_| format!("the reviews take longer than {} s", patience.as_secs()));
                    let (outcome, holds_until) = match review.and_then(|review| review.map_err(|error| chain(&error))) {
                        Ok(review) => {
                            // While a kind is awaited, no review is complete.
                            let counts = review.errors.is_empty().then_some(until);
                            let outcome = self.report_access(running, account, &review, until);
                            self.review_acting(running).await;
                            (outcome, counts)
                        }
                        Err(problem) => {
                            // Otherwise the next attempt would come too late.
                            let still = held_until.filter(|until| Instant::now() + RETRY < *until);
                            self.report_unreviewed(running, account, &problem, still.is_none());
                            (LastOutcome::Failed, still)
                        }
                    };
                    *self.last_review.lock() = Some(LastReview {
                        of: first.access.clone(),
                        served,
                        begun,
                        took: begun.elapsed(),
                        holds_until,
                        outcome,
                    });
                }
            }
        }
    }

    /// Reviews the rights of lanes once, and opens or stops them. A lane that cannot be reviewed does not run.
    pub async fn review_once(&self, lanes: &[Arc<Lane>]) {
        let Some(account) = lanes.first().and_then(|lane| lane.writer.identity()) else {
            return;
        };
        let begun = Instant::now();
        match self.review(account, lanes, Lane::served).await {
            Ok(review) => self.settle_access(lanes, &review.outcomes, counts_until(begun)),
            Err(error) => {
                let problem = chain(&error);
                tracing::warn!(
                    plugin = &*self.identity.name,
                    problem,
                    "cannot review the rights of the plugin's account"
                );
                self.settle_access(lanes, &vec![None; lanes.len()], begun);
            }
        }
    }

    /// Refuses a new version whose account lacks rights that it needs, before anything of it is called.
    pub async fn check_access(
        &self,
        running: &RunningVersion,
        lanes: &[Arc<Lane>],
        wanted: &DesiredPlugin,
        loaded: &LoadedComponent,
        served: impl Fn(&Lane, &Kind) -> Option<ServedKind>,
    ) -> Result<(), StartupProblem> {
        let refused = |reason, message: String| {
            self.plugin_state.set(|known| known.not_granted = Some(message.clone()));
            Err(StartupProblem::new(StartupStep::Ready, reason, message))
        };
        let Some(account) = lanes.first().and_then(|lane| lane.writer.identity()) else {
            return Ok(());
        };
        let begun = Instant::now();
        let review = match self.review(account, lanes, served).await {
            Ok(review) => review,
            Err(error) => {
                let problem = chain(&error);
                let user = account.user();
                return refused(
                    REVIEW_FAILED,
                    format!("cannot review the rights of user {user:?}: {problem}"),
                );
            }
        };
        // A right that the running version lacks in a namespace is no reason to refuse: neither version acts there. So
        // a namespace that is being deleted, with its roles, does not block an update.
        let denied: BTreeSet<String> = running.lanes.iter().flat_map(|lane| lane.access.denied()).collect();
        let is_new = |right: &&Permission| {
            right
                .namespace
                .as_ref()
                .is_none_or(|namespace| !denied.contains(namespace))
        };
        let missing: BTreeSet<Permission> = review.missing.iter().filter(is_new).cloned().collect();
        if !missing.is_empty() {
            let problem = self.missing(account, &missing, wanted, Some(loaded));
            return refused(
                NOT_GRANTED,
                format!("the new version needs more than is granted: {problem}"),
            );
        }
        // A kind that is not served yet is awaited, and reviewed then.
        let mut errors = review.errors.iter().filter(|error| !is_wait(error));
        if let Some(error) = errors.next() {
            return refused(
                NOT_GRANTED,
                format!("the rights of the new version cannot be reviewed: {error}"),
            );
        }
        for (lane, outcome) in lanes.iter().zip(&review.outcomes) {
            lane.access.set(outcome.clone(), counts_until(begun));
        }
        self.plugin_state.set(|known| known.not_granted = None);
        Ok(())
    }

    /// Returns `true` if the account of lanes has all rights that they need, as far as known: what cannot be reviewed
    /// now is reviewed when they run.
    pub async fn lacks_nothing(
        &self,
        lanes: &[Arc<Lane>],
        served: impl Fn(&Lane, &Kind) -> Option<ServedKind>,
    ) -> bool {
        let Some(account) = lanes.first().and_then(|lane| lane.writer.identity()) else {
            return true;
        };
        let review = self.review(account, lanes, served).await;
        review.map_or(true, |review| review.missing.is_empty())
    }

    /// Returns how the cluster serves the kinds of lanes, including those that are not watched yet.
    pub async fn look_up(
        &self,
        lanes: &[Arc<Lane>],
        described: Option<&DescribedPlugin>,
    ) -> HashMap<Kind, Option<ServedKind>> {
        let mut served = HashMap::new();
        for lane in lanes {
            for (kind, _) in lane.kinds() {
                if served.contains_key(&kind) {
                    continue;
                }
                let known = lane
                    .served(&kind)
                    .or_else(|| described.and_then(|described| described.serves(&kind)));
                let found = match known {
                    None => self.context.informers.find(&kind).await.ok().flatten(),
                    known => known,
                };
                served.insert(kind, found);
            }
        }
        served
    }

    async fn review(
        &self,
        account: &Impersonation,
        lanes: &[Arc<Lane>],
        served: impl Fn(&Lane, &Kind) -> Option<ServedKind>,
    ) -> Result<AccessReview, RequestError> {
        let has_webhooks = self.context.options.webhooks.is_some();
        let mut review = AccessReview {
            outcomes: Vec::with_capacity(lanes.len()),
            missing: BTreeSet::new(),
            unasked: BTreeSet::new(),
            errors: Vec::new(),
        };
        let mut known = BTreeMap::new();
        for lane in lanes {
            let needs = match needs(lane, has_webhooks, &served) {
                Ok(needs) => needs,
                Err(error) => {
                    review.outcomes.push(None);
                    review.errors.push(error);
                    continue;
                }
            };
            let mut missing = self.denied(account, &needs.rights, &mut known).await?;
            let is_denied_everywhere = missing.iter().any(|right| right.namespace.is_none());
            let denied: BTreeSet<String> = missing.iter().filter_map(|right| right.namespace.clone()).collect();
            let own = lane.grants.confinement().namespaces();
            let has_place = own.is_empty() || own.iter().any(|namespace| !denied.contains(namespace));
            review.missing.append(&mut missing);
            let mut may = [false; 2];
            for (may, rights) in may.iter_mut().zip([&needs.defaults, &needs.validates]) {
                let mut missing = self.denied(account, rights, &mut known).await?;
                *may = !rights.is_empty() && missing.is_empty();
                review.unasked.append(&mut missing);
            }
            let [defaults, validates] = may;
            review.outcomes.push(Some(ReviewedAccess {
                is_granted: !is_denied_everywhere && has_place,
                denied,
                kinds: needs.kinds,
                defaults,
                validates,
            }));
        }
        Ok(review)
    }

    /// Returns the rights that the account lacks. Rights that several lanes need are reviewed once.
    async fn denied(
        &self,
        account: &Impersonation,
        rights: &BTreeSet<Permission>,
        known: &mut BTreeMap<Permission, bool>,
    ) -> Result<BTreeSet<Permission>, RequestError> {
        // Each namespace is reviewed by itself: an authorizer may deny in one what a ClusterRole grants in all.
        let unknown = rights.iter().filter(|right| !known.contains_key(right));
        let unknown = unknown.cloned().collect();
        self.ask(account, unknown, known).await?;
        Ok(rights
            .iter()
            .filter(|right| known.get(right) != Some(&true))
            .cloned()
            .collect())
    }

    /// Reviews rights of the account, several at once.
    async fn ask(
        &self,
        account: &Impersonation,
        rights: Vec<Permission>,
        known: &mut BTreeMap<Permission, bool>,
    ) -> Result<(), RequestError> {
        let (mut rights, mut reviews) = (rights.into_iter(), JoinSet::new());
        loop {
            while reviews.len() < REVIEWS_AT_ONCE
                && let Some(right) = rights.next()
            {
                let turn = self.context.reviewing.clone().acquire_owned().await;
                let (client, account) = (self.context.client.clone(), account.clone());
                reviews.spawn(async move {
                    let has = account_has(&client, &account, &right).await;
                    drop(turn);
                    has.map(|has| (right, has))
                });
            }
            let Some(ended) = reviews.join_next().await else { break };
            let (right, has) = ended.expect("a review neither panics nor is cancelled")?;
            known.insert(right, has);
        }
        Ok(())
    }

    /// Opens or stops lanes by the outcome of a review.
    fn settle_access(&self, lanes: &[Arc<Lane>], outcomes: &[Option<ReviewedAccess>], until: Instant) {
        for (lane, outcome) in lanes.iter().zip(outcomes) {
            let host = &self.context.host;
            if lane.access.set(outcome.clone(), until) {
                // Objects that were denied before are reconciled, and objects that are denied now get a status.
                if host.state.is_open(lane.id) && lane.access.is_granted() {
                    host.state.push_all(lane);
                }
                host.open_if_synced(lane);
            }
        }
    }

    fn report_access(
        &self,
        running: &RunningVersion,
        account: &Impersonation,
        review: &AccessReview,
        until: Instant,
    ) -> LastOutcome {
        let AccessReview {
            outcomes,
            missing,
            unasked,
            errors,
        } = review;
        let user = account.user();
        self.report_unasked(running, account, unasked);
        let waits = errors.iter().find(|error| is_wait(error));
        let problem = errors.iter().find(|error| !is_wait(error));
        let condition = match (missing.is_empty(), problem, waits) {
            (false, ..) => {
                let wanted = running.request.wanted.as_ref().expect("a version that runs was wanted");
                ConditionState::no(
                    NOT_GRANTED,
                    self.missing(account, missing, wanted, Some(&running.loaded)),
                )
            }
            (true, Some(error), _) => ConditionState::no(NOT_GRANTED, error.to_string()),
            (true, None, Some(error)) => ConditionState {
                holds: None,
                reason: "Waiting",
                message: format!("the rights of user {user:?} are reviewed when all kinds are served: {error}"),
            },
            (true, None, None) => {
                ConditionState::yes("Granted", format!("user {user:?} has all rights that the plugin needs"))
            }
        };
        let is_granted = condition.holds == Some(true);
        if is_granted {
            self.context.claims.confirm(&self.identity.name);
        }
        self.report_granted(condition);
        self.settle_access(&running.lanes, outcomes, until);
        self.report_ready(Some(running));
        if is_granted || errors.iter().all(is_wait) && missing.is_empty() {
            LastOutcome::Granted
        } else {
            LastOutcome::Missing
        }
    }

    /// Reports that the rights could not be reviewed. If `is_over`, the last review is no longer valid and the plugin
    /// stops.
    fn report_unreviewed(&self, running: &RunningVersion, account: &Impersonation, problem: &str, is_over: bool) {
        let user = account.user();
        tracing::debug!(
            plugin = &*self.identity.name,
            user,
            problem,
            "cannot review the rights of the plugin's account"
        );
        if !is_over {
            return;
        }
        let right = listed(&[Permission::to_review()]);
        self.report_granted(ConditionState {
            holds: None,
            reason: REVIEW_FAILED,
            message: format!(
                "the rights of user {user:?} cannot be reviewed, so the plugin does not run: {problem}; if that is a right that \
                 the host lacks, grant it: {right}"
            ),
        });
        self.settle_access(&running.lanes, &vec![None; running.lanes.len()], Instant::now());
        self.report_ready(Some(running));
    }

    /// Reports the rights of the account in the log and in the status of the Plugin.
    fn report_granted(&self, condition: ConditionState) {
        let before = self.plugin_state.known().granted;
        if before.as_ref() == Some(&condition) {
            return;
        }
        let plugin = &*self.identity.name;
        match condition.holds {
            Some(true) if before.is_some_and(|before| before.holds == Some(false)) => {
                tracing::info!(plugin, "{}", condition.message);
            }
            None if condition.reason == REVIEW_FAILED => tracing::warn!(plugin, "{}", condition.message),
            Some(false) => tracing::warn!(plugin, "{}", condition.message),
            Some(true) | None => tracing::debug!(plugin, "{}", condition.message),
        }
        self.plugin_state.set(|known| known.granted = Some(condition));
    }

    /// Reports the objects for which API servers do not call the plugin.
    fn report_unasked(&self, running: &RunningVersion, account: &Impersonation, unasked: &BTreeSet<Permission>) {
        let health = &self.identity.health;
        if unasked.is_empty() {
            health.clear(ADMISSION);
            return;
        }
        let wanted = running.request.wanted.as_ref().expect("a version that runs was wanted");
        let missing = self.missing(account, unasked, wanted, Some(&running.loaded));
        let warning = format!("API servers do not ask the plugin at admission: {missing}");
        if health.warn(ADMISSION, &warning) {
            tracing::warn!(plugin = &*self.identity.name, "{warning}");
        }
    }

    /// Message about missing rights, with the command that grants them.
    fn missing(
        &self,
        account: &Impersonation,
        missing: &BTreeSet<Permission>,
        wanted: &DesiredPlugin,
        loaded: Option<&LoadedComponent>,
    ) -> String {
        let rights: Vec<Permission> = missing.iter().cloned().collect();
        let rights = shorten(listed(&rights), LONGEST_LIST);
        let command = grant_command(&self.identity.name, account, wanted, loaded);
        format!(
            "user {:?} may not {rights}; grant these rights: {command}",
            account.user()
        )
    }
}

/// Time limit of a review, given the duration of the last one.
fn patience(took: Duration) -> Duration {
    HOLDS.saturating_sub(INTERVAL).max(took * 2)
}

/// Deadline until which a review is valid that began at `begun` and has just ended: the latest end of the next one.
fn counts_until(begun: Instant) -> Instant {
    let took = begun.elapsed();
    begun + INTERVAL.max(took) + patience(took)
}

/// Subject of the warning.
const ADMISSION: &str = "admission";

/// Returns `true` if the rights are unknown only because a kind is not served yet.
fn is_wait(error: &RightsError) -> bool {
    matches!(error, RightsError::Unknown(_))
}

/// Served kinds that lanes declare, with their resources.
fn served_kinds(lanes: &[Arc<Lane>]) -> BTreeMap<Kind, String> {
    let declared = lanes.iter().filter(|lane| !lane.is_former).flat_map(|lane| {
        let kinds =
            declared_kinds(lane).filter_map(|kind| lane.served(kind).map(|served| (kind.clone(), served.plural)));
        kinds.collect::<Vec<_>>()
    });
    declared.collect()
}

fn declared_kinds(lane: &Lane) -> impl Iterator<Item = &Kind> {
    std::iter::once(lane.grants.primary()).chain(lane.grants.touched().map(|grant| &grant.touch.kind))
}

/// Rights that the account of a lane needs, given how its kinds are served.
fn needs(
    lane: &Lane,
    has_webhooks: bool,
    served: &impl Fn(&Lane, &Kind) -> Option<ServedKind>,
) -> Result<LaneNeeds, RightsError> {
    let mut needs = LaneNeeds {
        rights: BTreeSet::new(),
        defaults: BTreeSet::new(),
        validates: BTreeSet::new(),
        kinds: BTreeSet::new(),
    };
    // Cleaning up after a former controller takes rights that no manifest declares.
    if lane.is_former {
        return Ok(needs);
    }
    let mut resources = Resources::default();
    for kind in declared_kinds(lane) {
        let found = served(lane, kind);
        if found.is_some() {
            needs.kinds.insert(kind.clone());
        }
        resources.learn(kind.clone(), found);
    }
    let is_asked = has_webhooks && lane.admission.is_some() && lane.mode == RunMode::Active;
    let controller = ControllerNeeds {
        name: &lane.controller,
        kind: lane.grants.primary(),
        is_optional: lane.is_optional,
        is_marked: lane.finalizer.is_some() || lane.grants.lists_option(ONCE),
        brings_crd: lane.brings_crd,
        asked: if is_asked {
            lane.asked
        } else {
            AdmissionExports::default()
        },
        touches: lane.grants.touched().map(|grant| &grant.touch).collect(),
    };
    let rights = Rights::of(&[controller], lane.grants.confinement(), &resources)?;
    for (place, resource, verb) in rights.account.each() {
        let set = match verb {
            Verb::Default => &mut needs.defaults,
            Verb::Validate => &mut needs.validates,
            // Nothing is written in preview.
            Verb::Create | Verb::Patch | Verb::Delete if lane.mode == RunMode::Preview => continue,
            Verb::Get | Verb::List | Verb::Watch | Verb::Create | Verb::Patch | Verb::Delete => &mut needs.rights,
        };
        let names: Vec<Option<&String>> = if resource.names.is_empty() {
            vec![None]
        } else {
            resource.names.iter().map(Some).collect()
        };
        for name in names {
            set.insert(Permission {
                group: resource.group.clone(),
                resource: resource.resource.clone(),
                namespace: match place {
                    Place::Cluster => None,
                    Place::Namespace(namespace) => Some(namespace.clone()),
                },
                name: name.cloned(),
                verb: verb.as_str(),
            });
        }
    }
    Ok(needs)
}

/// The command that grants the rights that a plugin needs. Its arguments come from the author of the Plugin, so they
/// are quoted.
fn grant_command(
    plugin: &str,
    account: &Impersonation,
    wanted: &DesiredPlugin,
    loaded: Option<&LoadedComponent>,
) -> String {
    let mut command = format!(
        "pilothouse rights {} --host-namespace {}",
        named_source(plugin, wanted, loaded),
        account.namespace()
    );
    let confinement = &wanted.confinement;
    for (option, namespaces) in [
        ("--namespaces", confinement.namespaces()),
        ("--access-namespaces", confinement.access()),
    ] {
        if namespaces.len() > MOST_NAMED {
            let _ = write!(command, " {option} NAMES-OF-THE-PLUGIN");
        } else if !namespaces.is_empty() {
            let names: Vec<&str> = namespaces.iter().map(String::as_str).collect();
            let _ = write!(command, " {option} {}", names.join(","));
        }
    }
    if account.name() != account_name(plugin) {
        let _ = write!(command, " --service-account {}", account.name());
    }
    if wanted.config.is_some() {
        command.push_str(" --config FILE-WITH-ITS-CONFIGURATION");
    }
    if loaded.is_some_and(|loaded| !loaded.component.wasi_imports().is_empty()) {
        command.push_str(" --wasi inert");
    }
    // `pilothouse install` may have applied the same objects as another field manager.
    command.push_str(" | kubectl apply --server-side --force-conflicts -f -");
    command
}

/// A plugin with its component as a command-line argument: `NAME=FILE` or `NAME=REF`.
pub fn named_source(plugin: &str, wanted: &DesiredPlugin, loaded: Option<&LoadedComponent>) -> String {
    let source = match &wanted.source {
        ComponentSource::Loaded(component) => component.name().to_owned(),
        ComponentSource::File { path, .. } => path.display().to_string(),
        ComponentSource::Artifact(request) => {
            let artifact = loaded.and_then(|loaded| loaded.artifact.as_ref());
            let digest = artifact.map(|artifact| artifact.fetched.resolved.digest.as_str());
            reference(&request.reference, digest)
        }
    };
    quoted(&format!("{plugin}={source}"))
}

/// An artifact as a command-line argument.
fn reference(reference: &str, digest: Option<&str>) -> String {
    let is_layout = reference.starts_with("oci-");
    let scheme = if is_layout { "" } else { "oci://" };
    let (repository, last) = reference
        .rsplit_once('/')
        .map_or(("", reference), |(path, last)| (path, last));
    match digest {
        Some(digest) if !is_layout && !reference.contains('@') => {
            let name = last.split(':').next().unwrap_or_default();
            let separator = if repository.is_empty() { "" } else { "/" };
            format!("{scheme}{repository}{separator}{name}@{digest}")
        }
        _ => format!("{scheme}{reference}"),
    }
}

/// A word quoted for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_./:@=,+".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_plugin_are_words_of_the_command_and_nothing_else() {
        assert_eq!(quoted("web=app-service.wasm"), "web=app-service.wasm");
        assert_eq!(quoted("a b; rm -rf 'x'"), r"'a b; rm -rf '\''x'\'''");
    }

    #[test]
    fn an_artifact_is_named_by_its_digest() {
        let digest = Some("sha256:1");
        assert_eq!(
            reference("ghcr.io/acme/web:1.0", digest),
            "oci://ghcr.io/acme/web@sha256:1"
        );
        assert_eq!(
            reference("localhost:5000/web", digest),
            "oci://localhost:5000/web@sha256:1"
        );
        assert_eq!(reference("ghcr.io/web@sha256:2", digest), "oci://ghcr.io/web@sha256:2");
        assert_eq!(reference("ghcr.io/acme/web:1.0", None), "oci://ghcr.io/acme/web:1.0");
        assert_eq!(reference("oci-layout:web:1", digest), "oci-layout:web:1");
    }
}
