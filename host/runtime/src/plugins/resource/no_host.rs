//! Reports on the Plugin resources that no host runs them any more, when the last replica ends in order. The state of a replica that
//! dies is in its Lease: a heartbeat in every status would be a write without a change.

use std::time::Duration;

use pilothouse_cluster::Client;
use pilothouse_cluster::error::chain;
use pilothouse_cluster::resources::host_resources::{HostResource, HostResourceApi, HostResources, MANAGER};
use pilothouse_cluster::resources::lease::LeaseApi;
use pilothouse_core::Kind;
use pilothouse_crds::plugin::{GROUP, PluginStatus, VERSION};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::resources::PLURAL;
use super::status_writer::written_part;
use crate::election::leadership::ElectionOptions;
use crate::options::HostOptions;

/// Reason of the condition `Ready`.
const NO_HOST: &str = "NoHost";

/// Time between two looks at the Lease.
const LOOK: Duration = Duration::from_millis(250);

/// Sets `Ready` of the selected Plugins to Unknown, unless another replica takes the Lease that this one has given back. Each
/// status is written only in the state in which it was found: a replica that starts meanwhile reports what it runs.
pub async fn report(client: &Client, options: &HostOptions, election: &ElectionOptions) {
    let patience = election.times.renew_deadline;
    if !has_no_successor(client, election).await {
        return;
    }
    if timeout(patience, write_all(client, options)).await.is_err() {
        tracing::warn!("this was the last replica, and the status of Plugins could not be written in time");
    }
}

/// Waits as long as a standby may take to notice that the Lease is free.
async fn has_no_successor(client: &Client, election: &ElectionOptions) -> bool {
    let ElectionOptions {
        namespace, name, times, ..
    } = election;
    let lease = LeaseApi::new(
        client.clone(),
        namespace.clone(),
        name.clone(),
        times.renew_deadline / 2,
    );
    let deadline = Instant::now() + times.retry_period * 2;
    loop {
        match lease.read().await {
            Ok(Some(live)) if live.record.holder.is_empty() => {}
            // Another replica holds it, it has to end by itself, or nothing is known of it.
            _ => return false,
        }
        if Instant::now() >= deadline {
            return true;
        }
        tokio::time::sleep(LOOK.min(times.retry_period)).await;
    }
}

async fn write_all(client: &Client, options: &HostOptions) {
    // The fence has closed, and no other replica leads.
    let kind = HostResourceApi::new(client.clone(), Kind::new(GROUP, VERSION, "Plugin"), PLURAL).unfenced();
    let (sender, mut known) = watch::channel::<HostResources>(None);
    tokio::select! {
        () = kind.follow(sender, |_| {}) => return,
        _ = known.wait_for(Option::is_some) => {}
    }
    let resources = known.borrow().clone();
    let mut reported = 0;
    for resource in resources.iter().flat_map(|resources| resources.values()) {
        let labels = &resource.labels;
        if !options
            .plugin_selector
            .matches(|key| labels.get(key).map(String::as_str))
        {
            continue;
        }
        let Some(status) = without_host(resource, &options.instance, &options.clock.seconds()) else {
            continue;
        };
        match kind.apply_unchanged_status(resource, &status, MANAGER).await {
            Ok(_) => reported += 1,
            Err(error) if error.is_not_found() || error.code() == Some(409) => {}
            Err(error) => {
                tracing::warn!(
                    plugin = &*resource.name,
                    error = chain(&error),
                    "this was the last replica, and the status of the Plugin cannot be written"
                );
                // The other writes would fail alike: the account goes with the release.
                return;
            }
        }
    }
    if reported > 0 {
        tracing::info!(
            plugins = reported,
            "this was the last replica; no host runs the Plugins now"
        );
    }
}

/// The status of a Plugin that no host runs, unless it says so already, or was never reported.
fn without_host(resource: &HostResource, instance: &str, now: &str) -> Option<Value> {
    let mut status: PluginStatus = serde_json::from_value(resource.status.clone()).ok()?;
    let ready = status
        .conditions
        .iter_mut()
        .find(|condition| condition.kind == "Ready")?;
    if ready.reason == NO_HOST {
        return None;
    }
    "Unknown".clone_into(&mut ready.status);
    NO_HOST.clone_into(&mut ready.reason);
    now.clone_into(&mut ready.last_transition_time);
    ready.message = format!("no host runs it: the last replica, {instance}, has ended; start a host");
    Some(written_part(&status))
}
