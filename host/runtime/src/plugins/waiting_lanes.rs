//! Reports on the objects of a controller that it waits for a kind: one whose CRD is missing, or whose API group does
//! not answer. The controller does not run, so a condition and an event on its objects give the reason.
//!
//! A wait that is no longer than a start is not reported, and each object is reported once. When the controller opens,
//! it reconciles all of its objects, which ends the condition.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::object::CachedObject;
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Failure, Retry};
use tokio::time::{Instant, sleep};

use crate::context::HostContext;
use crate::lanes::lane::{Lane, RunMode};
use crate::lanes::pause::is_paused;
use crate::lanes::primary::{LaneId, PrimaryRef};
use crate::queue::{Cause, TriggerReason};
use crate::reconcile::report_waiting;

/// Time that a controller waits before its objects report it.
const GRACE: Duration = Duration::from_secs(10);

/// Interval of the checks.
const LOOK: Duration = Duration::from_secs(5);

/// A waiting controller.
struct WaitingLane {
    since: Instant,
    words: String,
    /// Objects that report it, each by UID and generation.
    told: HashSet<(Arc<str>, Option<i64>)>,
}

/// Checks for waiting controllers, for ever.
pub async fn run(host: Arc<HostContext>) {
    let mut waiting: HashMap<LaneId, WaitingLane> = HashMap::new();
    loop {
        sleep(LOOK).await;
        let now = Instant::now();
        let lanes = host.state.lanes();
        let found: Vec<(Arc<Lane>, String)> = lanes
            .iter()
            .filter_map(|lane| Some((lane.clone(), host.waits_for(lane)?)))
            .collect();
        waiting.retain(|id, _| found.iter().any(|(lane, _)| lane.id == *id));
        for (lane, words) in found {
            let wait = waiting.entry(lane.id).or_insert_with(|| WaitingLane {
                since: now,
                words: words.clone(),
                told: HashSet::new(),
            });
            if wait.words != words {
                wait.words = words;
                wait.told.clear();
            }
            if now >= wait.since + GRACE && host.writes() {
                report_on_objects(&host, &lane, wait).await;
            }
        }
    }
}

async fn report_on_objects(host: &HostContext, lane: &Arc<Lane>, wait: &mut WaitingLane) {
    for object in host.state.primaries_of(lane) {
        let version = (object.uid.clone(), object.generation);
        if !is_told_of(host, lane, &object) || wait.told.contains(&version) {
            continue;
        }
        let failure = Failure::cluster(Reason::NotSynced, wait.words.clone()).retry(Retry::Backoff);
        let primary_ref = PrimaryRef::new(lane.id, object.name.clone());
        match report_waiting(host, lane, &primary_ref, object, failure).await {
            // The server rejects writes at present; the next check retries.
            Some(refused) if refused.retry == Retry::Backoff => return,
            _ => wait.told.insert(version),
        };
        if host.state.is_open(lane.id) {
            // The controller has opened meanwhile, so the last report is wrong.
            host.state.requeue(&primary_ref, Cause::Others, TriggerReason::Started);
            return;
        }
    }
}

fn is_told_of(host: &HostContext, lane: &Lane, object: &CachedObject) -> bool {
    !object.deleting && !is_paused(object) && lane.reconciles(object) && host.state.owns(lane, &object.name)
}

impl HostContext {
    /// Returns `true` if this replica writes: it leads, or has a part of the work.
    fn writes(&self) -> bool {
        self.leadership.leads() || self.shards.lock().is_some()
    }

    /// Message about the kinds that a controller waits for, if it is closed because kinds other than its own are not
    /// served.
    fn waits_for(&self, lane: &Lane) -> Option<String> {
        let primary = lane.grants.primary();
        let has = |kind: &_, optional| {
            self.kinds
                .has(lane, kind, optional, |need| self.state.has_listed_need(kind, need))
        };
        if lane.mode != RunMode::Active || lane.is_former || self.state.is_open(lane.id) || !has(primary, false) {
            return None;
        }
        let waits = lane.kinds().filter(|(kind, optional)| !has(kind, *optional));
        let causes = waits.filter_map(|(kind, _)| match self.kinds.trouble(&kind) {
            Some(trouble) => Some(format!("the API server does not show {kind} ({trouble})")),
            None if self.kinds.is_missing(&kind) => Some(format!(
                "the cluster does not serve {kind}; install what brings it, such as its CRD"
            )),
            // The kind is being listed.
            None => None,
        });
        let causes: Vec<String> = causes.collect();
        (!causes.is_empty()).then(|| format!("the controller {} waits: {}", lane.title(), causes.join("; ")))
    }
}
