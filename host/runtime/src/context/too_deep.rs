//! Owns the warning about objects that nest too deeply to be shown to plugins: a log line and an event on each, for every
//! plugin that would read it. For a primary, its own condition says so.

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

/// Objects that wait to be told of, at most; more are counted.
const MOST_WAITING: usize = 256;

/// Objects that are named in the log at once; more are counted.
const MOST_NAMED: usize = 20;

/// The time between two tellings, so that a flood of such objects is told of in one.
const PAUSE: Duration = Duration::from_secs(5);

/// Who is to be told of.
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

/// An object that is kept from a plugin.
struct Hidden {
    lane: Arc<Lane>,
    kind: Arc<Kind>,
    object: Arc<CachedObject>,
}

impl TooDeepReporter {
    /// An object has come that nests too deep, or has become so, and these lanes are open.
    pub fn seen(&self, kind: &Arc<Kind>, object: &Arc<CachedObject>, lanes: &[Arc<Lane>]) {
        for lane in lanes {
            self.note(lane, kind, object);
        }
    }

    /// A lane opens: what is there already is kept from it, too.
    pub fn lane_opens(&self, lane: &Arc<Lane>, objects: &[(Arc<Kind>, Arc<CachedObject>)]) {
        for (kind, object) in objects {
            self.note(lane, kind, object);
        }
    }

    fn note(&self, lane: &Arc<Lane>, kind: &Arc<Kind>, object: &Arc<CachedObject>) {
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

/// Tells of such objects; runs until it is dropped.
pub async fn run(reporter: &TooDeepReporter, clock: &WallClock) {
    loop {
        reporter.news.notified().await;
        let TooDeepObjects { hidden, more } = std::mem::take(&mut *reporter.found.lock());
        let unnamed = more + hidden.len().saturating_sub(MOST_NAMED);
        for (index, hidden) in hidden.iter().enumerate() {
            tell(clock, hidden, index < MOST_NAMED).await;
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

async fn tell(clock: &WallClock, hidden: &Hidden, is_named: bool) {
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
