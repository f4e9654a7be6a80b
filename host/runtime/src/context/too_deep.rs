//! Warns about objects that nest too deep to be shown to plugins: a log line and an event on each, for every plugin
//! that would read it. A primary's own condition reports it instead.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pilothouse_cluster::error::chain;
use pilothouse_cluster::object::CachedObject;
use pilothouse_cluster::write::events::Regarding;
use pilothouse_core::Kind;
use pilothouse_core::plugin::contract::{Event, EventType};
use pilothouse_core::status::reason::Reason;
use pilothouse_core::text::depth::MAX_DEPTH;
use tokio::sync::Notify;

use crate::lanes::lane::Lane;
use crate::process::clock::WallClock;

/// The most objects that wait for their report; further ones are only counted.
const MOST_WAITING: usize = 256;

/// The most objects that are named in the log at once; further ones are only counted.
const MOST_NAMED: usize = 20;

/// Time between two reports, so that a flood of such objects is reported at once.
const PAUSE: Duration = Duration::from_secs(5);

/// Collects the objects to report.
#[derive(Default)]
pub struct TooDeepReporter {
    found: Mutex<TooDeepObjects>,
    news: Notify,
}

#[derive(Default)]
struct TooDeepObjects {
    hidden: Vec<Hidden>,
    more: usize,
}

/// An object that is hidden from a plugin.
struct Hidden {
    lane: Arc<Lane>,
    kind: Arc<Kind>,
    object: Arc<CachedObject>,
}

impl TooDeepReporter {
    /// Records an object that nests too deep, for these open lanes.
    pub fn seen(&self, kind: &Arc<Kind>, object: &Arc<CachedObject>, lanes: &[Arc<Lane>]) {
        for lane in lanes {
            self.add(lane, kind, object);
        }
    }

    /// Records the objects that are hidden from a lane that opens.
    pub fn open_lane(&self, lane: &Arc<Lane>, objects: &[(Arc<Kind>, Arc<CachedObject>)]) {
        for (kind, object) in objects {
            self.add(lane, kind, object);
        }
    }

    fn add(&self, lane: &Arc<Lane>, kind: &Arc<Kind>, object: &Arc<CachedObject>) {
        if !lane.hides(kind, object) {
            return;
        }
        let mut found = self.found.lock();
        if found.hidden.len() < MOST_WAITING {
            found.hidden.push(Hidden {
                lane: lane.clone(),
                kind: kind.clone(),
                object: object.clone(),
            });
        } else {
            found.more += 1;
        }
        self.news.notify_one();
    }
}

/// Reports such objects; runs until it is dropped.
pub async fn run(reporter: &TooDeepReporter, clock: &WallClock) {
    loop {
        reporter.news.notified().await;
        let TooDeepObjects { hidden, more } = std::mem::take(&mut *reporter.found.lock());
        let unnamed = more + hidden.len().saturating_sub(MOST_NAMED);
        for (index, hidden) in hidden.iter().enumerate() {
            report(clock, hidden, index < MOST_NAMED).await;
        }
        if unnamed > 0 {
            tracing::warn!(
                objects = unnamed,
                "more objects nest deeper than {MAX_DEPTH} levels, and are not shown to plugins that would read them"
            );
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn report(clock: &WallClock, hidden: &Hidden, is_named: bool) {
    let Hidden { lane, kind, object } = hidden;
    let problem = format!(
        "it nests deeper than {MAX_DEPTH} levels in a field that the plugin {} reads, and is not shown to it: make it shallower",
        lane.plugin
    );
    if is_named {
        tracing::warn!(lane = lane.title(), %kind, object = %object.name, problem, "an object is hidden from the plugin");
    }
    let regarding = Regarding {
        kind,
        name: &object.name,
        uid: &object.uid,
    };
    let event = Event {
        type_: EventType::Warning,
        reason: Reason::TooDeep.to_string(),
        message: problem,
    };
    let told = lane.recorder.record(&regarding, &event, &clock.microseconds()).await;
    if let Err(error) = told {
        tracing::debug!(%kind, object = %object.name, error = chain(&error), "cannot emit an event about an object that nests too deep");
    }
}
