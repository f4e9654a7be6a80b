//! Owns the storm breaker: an object that writes again and again, each time soon after the last, is slowed. Its answer
//! depends on its own write, or somebody takes back what is written; without this that would go on for ever.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use pilothouse_core::{Failure, Name, backoff};
use tokio::time::Instant;

use super::backlog::seed;

/// Runs in a row that may write before an object is slowed.
pub const FREE_RUNS: u32 = 10;

/// After so long without a run that wrote, what comes next is not the same story.
pub const CALM: Duration = Duration::from_secs(10);

/// The longest that an object is slowed by.
pub const LONGEST: Duration = Duration::from_secs(30);

/// Storms that are remembered before the old ones are looked for and forgotten.
const REMEMBERED: usize = 1000;

/// What a job is told of the storm that its object is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Storm {
    /// Who fights over what, as far as an earlier run has found out.
    pub story: Option<Arc<Failure>>,
    /// It has been calm for so long that the storm is over unless this run writes too.
    pub over: bool,
}

/// The brakes of one lane.
#[derive(Debug, Default)]
pub struct Brakes(HashMap<Name, Brake>);

#[derive(Clone, Debug)]
struct Brake {
    /// Runs that wrote.
    runs: u32,
    /// The last of them.
    last: Instant,
    /// How long the next one is held back; nothing while runs are free.
    wait: Duration,
    story: Option<Arc<Failure>>,
}

impl Brake {
    fn is_on(&self) -> bool {
        self.runs >= FREE_RUNS
    }

    fn is_over(&self, now: Instant) -> bool {
        now >= self.calm()
    }

    fn calm(&self) -> Instant {
        self.last + CALM + self.wait
    }

    /// Whether a run that writes now begins another story. In a storm that takes longer: the run that looks whether it is
    /// over comes only when it is calm.
    fn is_forgotten(&self, now: Instant) -> bool {
        now >= self.last + (CALM + self.wait) * if self.is_on() { 2 } else { 1 }
    }
}

impl Brakes {
    /// Until when an object is held back, if it is.
    pub fn until(&self, name: &Name) -> Option<Instant> {
        self.0.get(name).map(|brake| brake.last + brake.wait)
    }

    /// The storm that an object is in.
    pub fn storm(&self, name: &Name, now: Instant) -> Option<Storm> {
        let brake = self.0.get(name)?;
        (brake.is_on() && !brake.is_forgotten(now)).then(|| Storm {
            story: brake.story.clone(),
            over: brake.is_over(now),
        })
    }

    /// An object has run. Says when it has to run again for the storm to be over, if it is in one.
    ///
    /// While runs are free, one that has nothing to write ends the story. After that only calm does: who takes back what
    /// is written may be slower than the run that finds it unharmed.
    pub fn ran(&mut self, name: &Name, wrote: bool, story: Option<&Arc<Failure>>, now: Instant) -> Option<Instant> {
        if !wrote {
            let brake = self.0.get(name)?;
            if brake.is_on() && !brake.is_over(now) {
                return Some(brake.calm());
            }
            self.0.remove(name);
            return None;
        }
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, brake| !brake.is_forgotten(now));
        }
        let before = self.0.get(name).filter(|brake| !brake.is_forgotten(now));
        let runs = before.map_or(0, |brake| brake.runs).saturating_add(1);
        let wait = match runs.checked_sub(FREE_RUNS) {
            None => Duration::ZERO,
            Some(over) => backoff::delay(over.saturating_add(1), seed(name)).min(LONGEST),
        };
        let story = story.cloned().or_else(|| before?.story.clone());
        let brake = Brake {
            runs,
            last: now,
            wait,
            story,
        };
        let calm = brake.is_on().then(|| brake.calm());
        self.0.insert(name.clone(), brake);
        calm
    }
}
