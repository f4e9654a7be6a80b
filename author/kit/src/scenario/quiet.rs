//! Decides from the cluster's log of requests whether a host has settled, what it watches, and how much it writes. No
//! host has to be trusted for it.

use std::{collections::BTreeSet, time::Duration};

use thiserror::Error;
// The clock of the runtime, so that a test may pause it.
use tokio::time::Instant;

use super::form::{ExpectWrites, Trigger};
use super::manner::Manner;
use crate::{
    cluster::{Cluster, ClusterError, Mark},
    host::{HostError, SteeredHost, SteeredPlugin},
    requests::Request,
    workloads::Nodes,
};

/// A host that has not asked for anything for so long has settled.
const QUIET: Duration = Duration::from_secs(1);

/// A host that has not settled by then never will.
const SETTLE_WITHIN: Duration = Duration::from_secs(30);

/// Time limit for a restarted host to watch everything again.
const WATCH_WITHIN: Duration = Duration::from_secs(30);

/// Interval between two polls of the log.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum count of requests in an error.
const SHOWN_REQUESTS: usize = 20;

/// Errors of a host that is not quiet.
#[derive(Debug, Error)]
pub enum QuietError {
    /// The host went on sending requests.
    #[error("the host has not settled after {} s; its last requests:\n{}", .after.as_secs(), lines(.requests))]
    Restless {
        /// Time that was waited.
        after: Duration,
        /// Its last requests.
        requests: Vec<Request>,
    },
    /// The host wrote more than allowed.
    #[error("expected at most {at_most} writes of the host {after}, found {}:\n{}", .writes.len(), lines(.writes))]
    Writes {
        /// Maximum count of writes.
        at_most: usize,
        /// Trigger before the count.
        after: &'static str,
        /// Its writes.
        writes: Vec<Request>,
    },
    /// The host does not watch all that it watched before.
    #[error("{} s after its restart the host does not watch {}", .after.as_secs(), .missing.join(", "))]
    Unwatched {
        /// Time that was waited.
        after: Duration,
        /// Missing watches.
        missing: Vec<String>,
    },
    /// The host failed.
    #[error("steer the host: {0}")]
    Host(HostError),
    /// The host ended by itself.
    #[error("{0}")]
    Ended(String),
    /// The host did not end as it should.
    #[error("the host did not end in order: {}", .0.join("; "))]
    Left(Vec<String>),
    /// The cluster failed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

/// A running host with all that it takes to start it again.
pub(super) struct Running<'run, H> {
    pub(super) cluster: &'run Cluster,
    pub(super) host: &'run mut H,
    pub(super) nodes: Option<&'run Nodes>,
    pub(super) plugins: &'run [SteeredPlugin],
    /// Mark before its start.
    pub(super) since: Mark,
    pub(super) manner: &'run Manner,
}

/// Waits until the host has asked for nothing for a while, and no pod is still to become ready.
pub(super) async fn settle<H: SteeredHost>(running: &mut Running<'_, H>) -> Result<(), QuietError> {
    let Running {
        cluster,
        host,
        nodes,
        manner,
        ..
    } = running;
    let within = manner.within(SETTLE_WITHIN);
    let mark = cluster.mark()?;
    let (begun, mut last_change, mut count) = (Instant::now(), Instant::now(), 0);
    loop {
        let requests = host_requests(cluster, mark)?;
        if requests.len() != count || host.is_idle() == Some(false) || nodes.is_some_and(Nodes::is_busy) {
            (count, last_change) = (requests.len(), Instant::now());
        }
        if last_change.elapsed() >= QUIET {
            return Ok(());
        }
        if begun.elapsed() >= within {
            let after = within;
            return Err(QuietError::Restless { after, requests });
        }
        alive(*host)?;
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Stops the host and starts it again; returns when it watches everything again and has settled.
pub(super) async fn restart<H: SteeredHost>(running: &mut Running<'_, H>) -> Result<(), QuietError> {
    let left = running.host.stop().await.map_err(QuietError::Host)?;
    if !left.is_empty() {
        return Err(QuietError::Left(left));
    }
    start(running).await
}

/// Starts the stopped host; returns when it watches everything again and has settled.
async fn start<H: SteeredHost>(running: &mut Running<'_, H>) -> Result<(), QuietError> {
    let cluster = running.cluster;
    let within = running.manner.within(WATCH_WITHIN);
    let watched = watched(&cluster.requests_since(running.since)?);
    let mark = cluster.mark()?;
    let started = running.host.start(cluster, running.plugins).await;
    started.map_err(QuietError::Host)?;
    let begun = Instant::now();
    loop {
        let again = self::watched(&cluster.requests_since(mark)?);
        let missing: Vec<String> = watched.difference(&again).cloned().collect();
        if missing.is_empty() {
            return settle(running).await;
        }
        if begun.elapsed() >= within {
            let after = within;
            return Err(QuietError::Unwatched { after, missing });
        }
        alive(running.host)?;
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Counts the writes of a settled host after a trigger, until it has settled again.
pub(super) async fn expect_writes<H: SteeredHost>(
    mut running: Running<'_, H>,
    namespace: &str,
    expect: &ExpectWrites,
) -> Result<(), QuietError> {
    let cluster = running.cluster;
    if matches!(expect.after, Some(Trigger::Resync | Trigger::Restart)) {
        settle(&mut running).await?;
    }
    let (mark, begun) = (cluster.mark()?, Instant::now());
    let after = match expect.after {
        Some(Trigger::Start) => {
            start(&mut running).await?;
            "after its start"
        }
        Some(Trigger::Restart) => {
            restart(&mut running).await?;
            "after a restart"
        }
        Some(Trigger::Resync) => {
            running.host.resync().await.map_err(QuietError::Host)?;
            settle(&mut running).await?;
            "after a resync"
        }
        None => "while nothing was done",
    };
    while begun.elapsed() < expect.during {
        alive(running.host)?;
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    let counts = |resource: &String| expect.resources.is_empty() || expect.resources.contains(resource);
    let writes: Vec<Request> = host_requests(cluster, mark)?
        .into_iter()
        .filter(|request| request.is_write() && counts(&request.resource))
        .filter(|request| request.namespace.is_empty() || request.namespace == namespace)
        .collect();
    if writes.len() > expect.at_most {
        return Err(QuietError::Writes {
            at_most: expect.at_most,
            after,
            writes,
        });
    }
    Ok(())
}

fn host_requests(cluster: &Cluster, mark: Mark) -> Result<Vec<Request>, QuietError> {
    let requests = cluster.requests_since(mark)?;
    Ok(requests
        .into_iter()
        .filter(|request| request.is_by_host() && !request.is_lease())
        .collect())
}

fn watched(requests: &[Request]) -> BTreeSet<String> {
    let watches = requests
        .iter()
        .filter(|request| request.is_by_host() && request.verb == "watch" && !request.is_lease());
    watches
        .map(|request| format!("{}.{}", request.resource, request.group))
        .collect()
}

fn alive<H: SteeredHost>(host: &mut H) -> Result<(), QuietError> {
    host.failure().map_or(Ok(()), |reason| Err(QuietError::Ended(reason)))
}

fn lines(requests: &[Request]) -> String {
    let shown = &requests[requests.len().saturating_sub(SHOWN_REQUESTS)..];
    shown
        .iter()
        .map(|request| format!("  {request}"))
        .collect::<Vec<_>>()
        .join("\n")
}
