//! Decides whether the host is ready: its caches have synced, each desired plugin runs or reports why not, and webhooks
//! are served, if configured. A plugin that another replica runs has to run here, too
//! ([`crate::context::unstarted`]).
//!
//! Once the host has been ready, a plugin that starts or changes later does not affect readiness: it must not take the
//! others' webhooks out of their Service. A replica that does not lead is ready by the same rule, because it answers
//! webhooks, too; but only as long as the API server responds, because its caches get old otherwise.

use std::sync::atomic::Ordering;
use std::time::Duration;

use pilothouse_core::Kind;

use crate::context::HostContext;
use crate::context::unstarted::LONGEST_HOLD;
use crate::lanes::lane::Lane;
use crate::plugins::{PluginRegistry, StartingPlugin};

/// Maximum time for which a plugin may delay readiness by steps that may fail for it alone: fetching, compiling, the
/// requests of its start, and listing a kind that the server cannot list.
const LONGEST_START: Duration = Duration::from_mins(5);

/// Time without a response of the API server after which a replica that neither leads nor holds shards is no longer
/// ready. A silent watch, without even a bookmark, is reopened earlier. If all replicas lose the API server for longer
/// than this, none is ready, which harms nothing: an API server that does not answer calls no webhooks.
const LONGEST_SILENCE: Duration = Duration::from_mins(3);

/// Reason why a host that was ready no longer is.
pub fn lost(host: &HostContext) -> Option<String> {
    let holds_shards = host.shards.lock().as_ref().is_some_and(|share| share.held > 0);
    let silence = host.contact.silence();
    let is_lost = !host.leadership.leads() && !holds_shards && silence > LONGEST_SILENCE;
    is_lost.then(|| {
        format!(
            "this replica does not lead, and the API server has answered nothing for {} s, so its caches may be old; the log \
             says why",
            silence.as_secs()
        )
    })
}

/// Reasons why a rollout has to wait for this replica: plugins that run elsewhere and cannot be started here.
pub fn held_back(host: &HostContext) -> Vec<String> {
    let held = host.unstarted.run_elsewhere(&host.leadership).into_iter();
    let reason = |(name, problem)| {
        format!(
            "another replica runs plugin {name}, and this one cannot start it: {problem}; mend that, or suspend or delete the \
             Plugin; {} min after its start this replica is ready without it",
            LONGEST_HOLD.as_secs() / 60
        )
    };
    held.map(reason).collect()
}

/// Reasons why the host is not ready yet; empty if it is ready.
pub fn missing(host: &HostContext, registry: &PluginRegistry) -> Vec<String> {
    let Some(starting) = registry.starting() else {
        return vec!["the Plugin resources have not been listed yet".to_owned()];
    };
    let lanes = host.state.lanes();
    let works = registry.follows_resources() || lanes.iter().any(|lane| host.state.is_open(lane.id));
    let of_plugin = |plugin: &StartingPlugin| {
        let StartingPlugin { name, since, lanes } = plugin;
        let is_late = since.elapsed() >= LONGEST_START;
        if lanes.is_empty() {
            let is_awaited = !is_late || !works || host.unstarted.runs_elsewhere(name, &host.leadership);
            return is_awaited.then(|| format!("plugin {name} is starting"));
        }
        let mut unlisted: Vec<String> = lanes
            .iter()
            .filter(|lane| !host.state.is_open(lane.id))
            .flat_map(|lane| unlisted(host, lane, is_late))
            .map(|kind| kind.to_string())
            .collect();
        unlisted.sort_unstable();
        unlisted.dedup();
        let kinds = unlisted.join(", ");
        if !unlisted.is_empty() {
            return Some(format!("plugin {name} waits for the list of {kinds}"));
        }
        let is_unreviewed = !is_late && lanes.iter().any(|lane| lane.access.is_unreviewed());
        is_unreviewed.then(|| format!("plugin {name} waits until the rights of its account are reviewed"))
    };
    let webhooks = host.waits_for_webhooks.load(Ordering::Relaxed);
    let webhooks = webhooks.then(|| "the webhooks are not served yet; the log says why".to_owned());
    let starting = starting.iter().filter_map(of_plugin).chain(webhooks);
    starting.chain(held_back(host)).collect()
}

/// Kinds that a lane waits for and that will be listed. The plugin's status reports those that the cluster does not
/// serve, or does not let the host see.
fn unlisted(host: &HostContext, lane: &Lane, is_late: bool) -> Vec<Kind> {
    let kinds = lane.kinds().filter(|(kind, optional)| {
        let is_listed = |need: &_| host.state.has_listed_need(kind, need);
        !host.kinds.has(lane, kind, *optional, is_listed)
            && !host.kinds.is_missing(kind)
            && !host.kinds.is_refused(kind, is_late)
    });
    kinds.map(|(kind, _)| kind).collect()
}
