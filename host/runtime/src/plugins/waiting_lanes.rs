//! Says on the objects of a controller that it waits for a kind: one whose CRD is missing, or whose API group does not
//! answer. The controller does not run, so the condition and the event of its objects say why nothing happens.
//!
//! What takes no longer than a start is not told, and each object is told once. When the controller opens, it reconciles all
//! of its objects, which ends the condition.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::object::CachedObject;
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Failure, Retry};
use tokio::time::{Instant, sleep};

use crate::context::HostContext;
use crate::lanes::lane::{Lane, RunMode};
use crate::lanes::primary::{LaneId, PrimaryRef};
use crate::queue::{Cause, TriggerReason};
use crate::reconcile::report_waiting;

/// The time that a controller waits before its objects say so.
const GRACE: Duration = Duration::from_secs(10);

/// The time between two looks.
const LOOK: Duration = Duration::from_secs(5);

/// A controller that waits.
struct WaitingLane {
    since: Instant,
    words: String,
    /// The objects that say so, each by its uid and generation.
    told: HashSet<(Arc<str>, Option<i64>)>,
}

/// Looks for controllers that wait, for ever.
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
                tell(&host, &lane, wait).await;
            }
        }
    }
}

async fn tell(host: &HostContext, lane: &Arc<Lane>, wait: &mut WaitingLane) {
    for object in host.state.primaries_of(lane) {
        let version = (object.uid.clone(), object.generation);
        if !is_told_of(host, lane, &object) || wait.told.contains(&version) {
            continue;
        }
        let failure = Failure::cluster(Reason::NotSynced, wait.words.clone()).retry(Retry::Backoff);
        let primary_ref = PrimaryRef::new(lane.id, object.name.clone());
        match report_waiting(host, lane, &primary_ref, object, failure).await {
            // The server takes nothing now; the next look tries again.
            Some(refused) if refused.retry == Retry::Backoff => return,
            _ => wait.told.insert(version),
        };
        if host.state.is_open(lane.id) {
            // What was written last is not what holds.
            host.state.requeue(&primary_ref, Cause::Others, TriggerReason::Started);
            return;
        }
    }
}

fn is_told_of(host: &HostContext, lane: &Lane, object: &CachedObject) -> bool {
    !object.deleting && lane.reconciles(object) && host.state.owns(lane, &object.name)
}

impl HostContext {
    /// Whether this replica writes: it leads, or has a part of the work.
    fn writes(&self) -> bool {
        self.leadership.leads() || self.shards.lock().is_some()
    }

    /// The words for what a controller waits for, if it is closed because kinds other than its own are not served.
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
            // It is being listed.
            None => None,
        });
        let causes: Vec<String> = causes.collect();
        (!causes.is_empty()).then(|| format!("the controller {} waits: {}", lane.title(), causes.join("; ")))
    }
}
