//! Owns when a plugin that traps again and again is slowed, stopped, and tried again. Time is given with each call.
//!
//! Only traps that nothing good comes between count, and only where they are not one object's own: an object that cannot
//! be reconciled is that object's trouble, a plugin that cannot reconcile anything is the plugin's.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::backoff;
use crate::key::Name;

/// Traps in a row after which each costs a pause.
const FREE_TRAPS: u32 = 5;

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Traps in a row after which the plugin is stopped.
const LAST_TRAP: u32 = 15;

/// So many different objects must have trapped, or all that there are.
const DIFFERENT_OBJECTS: usize = 3;

/// The wait before the first new try of a plugin that was stopped, doubled with each further stop.
const FIRST_STOP: Duration = Duration::from_secs(10);

/// The longest wait before a new try.
const LONGEST_STOP: Duration = Duration::from_mins(5);

/// Calls that must succeed before a plugin that was stopped counts as sound.
const SOUND: u32 = 5;

/// What to do with the plugin after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Nothing.
    Go,
    /// No call for so long.
    Pause(Duration),
    /// No call until it is tried again after so long.
    Stop(Duration),
}

/// What is remembered of a plugin's calls.
#[derive(Clone, Debug, Default)]
pub struct CrashHistory {
    traps: u32,
    objects: BTreeSet<Name>,
    stops: u32,
    successes: u32,
    slowed: bool,
}

impl CrashHistory {
    /// A call came to its end, whatever it said.
    pub fn ended(&mut self) {
        self.traps = 0;
        self.slowed = false;
        self.objects.clear();
        self.successes = self.successes.saturating_add(1);
        if self.successes >= SOUND {
            self.stops = 0;
        }
    }

    /// A call trapped, of a plugin that steers so many objects.
    pub fn trapped(&mut self, object: &Name, steered: usize) -> Advice {
        self.traps = self.traps.saturating_add(1);
        self.successes = 0;
        if self.objects.len() < DIFFERENT_OBJECTS {
            self.objects.insert(object.clone());
        }
        if self.objects.len() < DIFFERENT_OBJECTS.min(steered.max(1)) {
            return Advice::Go;
        }
        // After a stop, the first traps are enough.
        let (free, last) = if self.stops > 0 {
            (0, 1)
        } else {
            (FREE_TRAPS, LAST_TRAP)
        };
        if self.traps >= last.max(u32::try_from(self.objects.len()).unwrap_or(1)) {
            return self.stop();
        }
        match self.traps.checked_sub(free) {
            None | Some(0) => Advice::Go,
            Some(over) => {
                self.slowed = true;
                Advice::Pause(backoff::delay(over, 0).min(LONGEST_PAUSE))
            }
        }
    }

    /// Whether calls are slowed.
    pub fn is_slowed(&self) -> bool {
        self.slowed
    }

    /// Traps in a row.
    pub fn traps(&self) -> u32 {
        self.traps
    }

    fn stop(&mut self) -> Advice {
        let wait = FIRST_STOP.saturating_mul(1 << self.stops.min(10)).min(LONGEST_STOP);
        self.stops = self.stops.saturating_add(1);
        self.traps = 0;
        self.slowed = false;
        self.objects.clear();
        Advice::Stop(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(index: usize) -> Name {
        Name::new(Some("n"), &format!("object-{index}"))
    }

    /// The advice after each of so many traps of different objects.
    fn advices(history: &mut CrashHistory, traps: usize) -> Vec<Advice> {
        (0..traps).map(|index| history.trapped(&name(index), 100)).collect()
    }

    #[test]
    fn a_plugin_that_traps_on_every_call_is_slowed_and_then_stopped() {
        let mut history = CrashHistory::default();
        let advices = advices(&mut history, 15);
        assert!(advices[..5].iter().all(|advice| *advice == Advice::Go), "{advices:?}");
        assert!(
            advices[5..14].iter().all(|advice| matches!(advice, Advice::Pause(_))),
            "{advices:?}"
        );
        assert_eq!(advices[14], Advice::Stop(FIRST_STOP));
    }

    #[test]
    fn each_new_try_that_traps_waits_longer_up_to_the_longest() {
        let mut history = CrashHistory::default();
        advices(&mut history, 15);
        let mut waits = Vec::new();
        for _ in 0..8 {
            for index in 0.. {
                if let Advice::Stop(wait) = history.trapped(&name(index), 100) {
                    waits.push(wait.as_secs());
                    break;
                }
                assert!(index < 5, "a plugin that was stopped has few tries");
            }
        }
        assert_eq!(waits, [20, 40, 80, 160, 300, 300, 300, 300]);
    }

    #[test]
    fn a_call_that_ends_makes_good_what_was_before() {
        let mut history = CrashHistory::default();
        for _ in 0..100 {
            advices(&mut history, 5);
            history.ended();
        }
        assert!(!history.is_slowed());
        assert!(advices(&mut history, 5).iter().all(|advice| *advice == Advice::Go));
    }

    #[test]
    fn a_plugin_that_is_sound_again_has_its_free_traps_back() {
        let mut history = CrashHistory::default();
        advices(&mut history, 15);
        for _ in 0..SOUND {
            history.ended();
        }
        assert!(advices(&mut history, 5).iter().all(|advice| *advice == Advice::Go));
    }

    #[test]
    fn one_object_that_always_traps_is_not_the_plugins_trouble_unless_it_is_the_only_one() {
        let mut history = CrashHistory::default();
        assert!((0..100).all(|_| history.trapped(&name(1), 2) == Advice::Go));
        let mut history = CrashHistory::default();
        assert!((0..15).any(|_| matches!(history.trapped(&name(1), 1), Advice::Stop(_))));
    }
}
