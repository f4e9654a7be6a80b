//! Determines the rights that the host needs for a plugin, and reports all missing ones as soon as one request is
//! denied. Until then the host's rights are not reviewed. The rights of the plugin's account are reviewed by `access`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::error::chain;
use pilothouse_cluster::write::identity::Impersonation;
use pilothouse_cluster::write::permissions::{Permission, has, listed, user};
use pilothouse_core::Kind;
use pilothouse_core::plugin::manifest::{Access, ONCE};
use pilothouse_core::rights::{Confinement, KindUse};
use tokio::time::Instant;

use super::prepare::DescribedPlugin;
use crate::lanes::lane::{Lane, RunMode};
use crate::plugins::access::named_source;
use crate::plugins::plugin::{PluginTask, RunningVersion};
use crate::plugins::resource::desired::DesiredPlugin;

/// The most rights that are reviewed at once: a plugin that names many namespaces needs very many.
const MOST_ASKED: usize = 500;

/// Minimum time between two reviews.
const LEAST_WAIT: Duration = Duration::from_secs(30);

/// Interval of the reviews while some rights are missing.
pub const RECHECK: Duration = Duration::from_mins(5);

/// Subject of the warning.
const RIGHTS: &str = "rights";

impl PluginTask {
    /// Watches the host's rights for a running version, for ever.
    pub async fn watch_permissions(&self, running: &RunningVersion) {
        let (host, health, recorder) = (&self.context.host, &self.identity.health, &self.identity.recorder);
        let mut looked: Option<Instant> = None;
        let mut is_asked = false;
        // Another version may have run before.
        let mut are_missing = health.has_warning(RIGHTS);
        // Without the right to impersonate nothing is written, so an idle plugin would not notice.
        let mut may_not_act = self.may_not_act(running).await;
        is_asked |= may_not_act;
        self.report_impersonation(running, may_not_act).await;
        loop {
            let settled = host.kinds.settled();
            is_asked |= host.kinds.is_forbidden(&running.lanes);
            let next = match looked {
                None => Instant::now(),
                Some(looked) => looked + if is_asked { LEAST_WAIT } else { RECHECK },
            };
            tokio::select! {
                () = settled => {}
                () = recorder.denied.notified() => is_asked = true,
                () = health.forbidden.notified() => is_asked = true,
                () = tokio::time::sleep(LEAST_WAIT), if may_not_act => is_asked |= self.may_act(running).await == Some(true),
                () = tokio::time::sleep_until(next), if is_asked || are_missing => {
                    looked = Some(Instant::now());
                    is_asked = false;
                    // Boxed: the future of every running plugin would reserve space for it, and it runs rarely.
                    are_missing = Box::pin(self.report_missing_permissions(running)).await;
                    may_not_act = self.may_not_act(running).await;
                    self.report_impersonation(running, may_not_act).await;
                }
            }
        }
    }

    /// Returns `true` if the host may not act as the account of a running version. If the review fails, the first write
    /// tells.
    async fn may_not_act(&self, running: &RunningVersion) -> bool {
        self.may_act(running).await == Some(false)
    }

    /// Returns whether the host may act as the account of a running version; `None` if the review fails, or nothing is
    /// written.
    async fn may_act(&self, running: &RunningVersion) -> Option<bool> {
        let lane = running.lanes.first().filter(|lane| lane.mode != RunMode::Preview)?;
        let account = lane.writer.identity()?;
        has(&self.context.client, &account.permission()).await.ok()
    }

    /// Has the host's rights reviewed if its right to act as the account of a running version has changed.
    pub async fn review_acting(&self, running: &RunningVersion) {
        let Some(may_act) = self.may_act(running).await else {
            return;
        };
        if may_act == self.plugin_state.known().cannot_act.is_some() {
            self.identity.health.forbidden.notify_one();
        }
    }

    /// Reports that a plugin is not ready if the host may not act as its account, with all missing rights as the
    /// reason.
    async fn report_impersonation(&self, running: &RunningVersion, may_not_act: bool) {
        let account = running.lanes.first().and_then(|lane| lane.writer.identity());
        let missing = match account.filter(|_| may_not_act) {
            None => None,
            Some(account) => match self.identity.health.warning(RIGHTS) {
                None => {
                    let right = BTreeSet::from([account.permission()]);
                    Box::pin(self.missing_of_host(&right, Some(running))).await
                }
                missing => missing,
            },
        };
        self.plugin_state.set(|known| known.cannot_act = missing);
        self.report_ready(Some(running));
    }

    /// Reports all missing rights of a version whose CRDs the host may not install: those on CRDs, and those on all
    /// kinds.
    pub async fn report_rights_to_start(&self, wanted: &DesiredPlugin, described: &DescribedPlugin) {
        let lanes = self.lanes(wanted, described);
        let served = self.look_up(&lanes, Some(described)).await;
        let served = |_: &Lane, kind: &Kind| served.get(kind).cloned().flatten();
        self.report_missing_rights(&self.needed(&lanes, served), None).await;
    }

    async fn report_missing_permissions(&self, running: &RunningVersion) -> bool {
        // At the start no kind is watched yet.
        let served = self.look_up(&running.lanes, None).await;
        let needed = self.needed(&running.lanes, |_, kind| served.get(kind).cloned().flatten());
        self.report_missing_rights(&needed, Some(running)).await
    }

    async fn report_missing_rights(&self, needed: &BTreeSet<Permission>, running: Option<&RunningVersion>) -> bool {
        let health = &self.identity.health;
        let name = &*self.identity.name;
        if let Some(missing) = self.missing_of_host(needed, running).await {
            if health.warn(RIGHTS, &missing) {
                tracing::warn!(plugin = name, "{missing}");
            }
            return true;
        }
        if health.clear(RIGHTS) {
            tracing::info!(plugin = name, "the host has all permissions that the plugin needs");
        }
        false
    }

    /// Message about all rights that lanes need and the host lacks; `None` if there are none, or the review fails.
    pub async fn missing_permissions(&self, lanes: &[Arc<Lane>]) -> Option<String> {
        self.missing_of_host(&self.needed(lanes, Lane::served), None).await
    }

    /// Rights that lanes need, given how their kinds are served.
    fn needed(&self, lanes: &[Arc<Lane>], served: impl Fn(&Lane, &Kind) -> Option<ServedKind>) -> BTreeSet<Permission> {
        let mut rights = needed(lanes, served);
        if let Some(identity) = lanes.first().and_then(|lane| lane.writer.identity()) {
            rights.retain(|right| !is_of_account(right));
            rights.insert(identity.permission());
        }
        if self.context.options.install_crds.has_those_of_plugins() && lanes.iter().any(|lane| lane.brings_crd) {
            rights.extend(["get", "patch"].map(|verb| Permission {
                group: "apiextensions.k8s.io".to_owned(),
                resource: "customresourcedefinitions".to_owned(),
                namespace: None,
                name: None,
                verb,
            }));
        }
        rights
    }

    /// The last report of rights that the running version lacks.
    pub fn told_missing(&self) -> Option<String> {
        self.identity.health.warning(RIGHTS)
    }

    async fn missing_of_host(&self, needed: &BTreeSet<Permission>, running: Option<&RunningVersion>) -> Option<String> {
        let client = &self.context.client;
        let mut missing = Vec::new();
        let _turn = self.context.starting.acquire().await;
        for right in needed.iter().take(MOST_ASKED) {
            match has(client, right).await {
                Ok(true) => {}
                Ok(false) => missing.push(right.clone()),
                Err(error) => {
                    let problem = chain(&error);
                    tracing::debug!(
                        plugin = &*self.identity.name,
                        problem,
                        "cannot ask for the host's rights"
                    );
                    return None;
                }
            }
        }
        if missing.is_empty() {
            return None;
        }
        let user = user(client).await;
        let command = running.and_then(|running| self.command_for_host(user.as_deref()?, running));
        let who = user.map_or_else(|| "the host".to_owned(), |user| format!("user {user:?}"));
        let more = match needed.len().saturating_sub(MOST_ASKED) {
            0 => String::new(),
            more => format!(" ({more} more were not asked about)"),
        };
        let command = command.map(|command| format!(": {command}")).unwrap_or_default();
        Some(format!(
            "{who} may not {}{more}; grant these rights{command}",
            listed(&missing)
        ))
    }

    /// The command that grants the rights, if the host has a ServiceAccount.
    fn command_for_host(&self, user: &str, running: &RunningVersion) -> Option<String> {
        let account = user.strip_prefix("system:serviceaccount:")?;
        let (namespace, name) = account.split_once(':')?;
        let wanted = running.request.wanted.as_ref().ok()?;
        let identity = running.lanes.first().and_then(|lane| lane.writer.identity());
        let identity = identity.map_or("none", Impersonation::mode);
        let source = named_source(&self.identity.name, wanted, Some(&running.loaded));
        let host = format!("--host-namespace {namespace} --host-account {name} --identity {identity}");
        if self.own.is_some() {
            return Some(format!("pilothouse upgrade {source} {host}"));
        }
        Some(format!(
            "pilothouse rights {source} {host} | kubectl apply --server-side --force-conflicts -f -"
        ))
    }
}

/// Returns `true` if a right belongs to the plugin's account, if it has one. Watches, events and CRDs are handled by
/// the host.
fn is_of_account(right: &Permission) -> bool {
    let is_watch = matches!(right.verb, "list" | "watch");
    !is_watch && !matches!(right.resource.as_str(), "events" | "customresourcedefinitions")
}

/// Rights that lanes need on the served kinds, and on events.
fn needed(lanes: &[Arc<Lane>], served: impl Fn(&Lane, &Kind) -> Option<ServedKind>) -> BTreeSet<Permission> {
    let mut rights = BTreeSet::new();
    for lane in lanes {
        for kind in lane.kinds().map(|(kind, _)| kind) {
            if let Some(served) = served(lane, &kind) {
                of_kind(lane, &served, &mut rights);
            }
        }
    }
    let narrow = lanes.iter().map(|lane| lane.grants.confinement());
    let narrow = narrow.filter(|confinement| confinement.narrows_watches());
    let seen: BTreeSet<String> = narrow.flat_map(Confinement::reached).collect();
    let mut places: Vec<Option<String>> = seen.into_iter().map(Some).collect();
    if places.is_empty() {
        places.push(None);
    }
    let mut events = |group: &str, verb| {
        for namespace in &places {
            rights.insert(Permission {
                group: group.to_owned(),
                resource: "events".to_owned(),
                namespace: namespace.clone(),
                name: None,
                verb,
            });
        }
    };
    events("", "list");
    if lanes.iter().any(|lane| lane.mode != RunMode::Preview) {
        events("events.k8s.io", "create");
    }
    rights
}

/// Namespaces that the host sees if it may see no more than the plugin. `None`: none at all; an empty list: all.
fn within(namespaces: Vec<String>, confinement: &Confinement) -> Option<Vec<String>> {
    if !confinement.narrows_watches() {
        return Some(namespaces);
    }
    let mut seen: Vec<String> = confinement.reached().into_iter().collect();
    if !namespaces.is_empty() {
        seen.retain(|namespace| namespaces.contains(namespace));
    }
    (!seen.is_empty()).then_some(seen)
}

/// Rights that a lane needs on one kind.
fn of_kind(lane: &Lane, served: &ServedKind, rights: &mut BTreeSet<Permission>) {
    let kind = &*served.kind;
    let is_primary = kind == lane.grants.primary();
    let grant = lane.grants.get(kind);
    let declared = grant.map(|grant| grant.touch.namespaces.clone()).unwrap_or_default();
    let places = |namespaces: &[String]| -> Vec<Option<String>> {
        if namespaces.is_empty() || !served.facts.namespaced {
            return vec![None];
        }
        namespaces.iter().cloned().map(Some).collect()
    };
    let mut add = |subresource: &str, places: Vec<Option<String>>, names: &[Option<String>], verbs: &[&'static str]| {
        for namespace in places {
            for (name, verb) in names.iter().flat_map(|name| verbs.iter().map(move |verb| (name, verb))) {
                rights.insert(Permission {
                    group: kind.group.clone(),
                    resource: format!("{}{subresource}", served.plural),
                    namespace: namespace.clone(),
                    name: name.clone(),
                    verb,
                });
            }
        }
    };
    let every = [None];
    let names: Vec<Option<String>> = match grant.map(|grant| &grant.touch.names) {
        Some(names) if !is_primary && !names.is_empty() => names.iter().cloned().map(Some).collect(),
        _ => every.to_vec(),
    };
    // Primaries are watched in all namespaces.
    let watched = if is_primary { Vec::new() } else { declared.clone() };
    let watched = within(watched, lane.grants.confinement());
    if let Some(watched) = watched.or_else(|| (!served.facts.namespaced).then(Vec::new)) {
        add("", places(&watched), &names, &["list", "watch"]);
    }
    let written = if declared.is_empty() {
        &lane.namespaces
    } else {
        &declared
    };
    let allows = |access| grant.is_some_and(|grant| grant.allows(access));
    let kind_use = KindUse {
        is_primary,
        is_marked: lane.finalizer.is_some() || !lane.former_finalizers.is_empty() || lane.grants.lists_option(ONCE),
        is_owned: allows(Access::Owned),
        is_contributed: allows(Access::Contributed) || lane.gives_up(kind),
    };
    let mut verbs: Vec<&'static str> = kind_use.verbs().iter().map(|verb| verb.as_str()).collect();
    // Leftovers of an earlier version are deleted.
    if lane.is_only_former(kind) && !is_primary {
        verbs.extend(["get", "delete"]);
    }
    if lane.mode == RunMode::Preview {
        verbs.retain(|verb| *verb == "get");
        add("", places(written), &names, &verbs);
        return;
    }
    add("", places(written), &names, &verbs);
    if is_primary && lane.brings_crd && served.facts.has_status {
        add("/status", places(&lane.namespaces), &every, &["patch"]);
    }
}
