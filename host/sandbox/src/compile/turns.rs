//! Decides which component is compiled next, and for how long: one at a time, because a compiler takes much memory and all
//! processors. A component that takes long must not keep usual ones waiting, so each gets a short slice of processor time
//! first. One that needs more is compiled again with a longer slice, behind all that have had fewer, and gives way to them
//! while it is being compiled. One that does not compile in the longest slice is refused for a while.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Processor time of one compilation, in seconds. A plugin of usual size takes less than a second, one in Python about five.
const SLICES: [u64; 4] = [2, 10, 40, 100];

/// Number of times that one compilation gives way to shorter ones; without a bound, it could starve.
const MOST_YIELDS: u32 = 10;

/// Time for which a component that did not compile in the longest slice is refused.
const REFUSED: Duration = Duration::from_hours(1);

/// Number of components about which something is remembered.
const MOST_REMEMBERED: usize = 1024;

/// Interval at which a waiting compilation checks whether another process has made its code meanwhile.
const LOOK: Duration = Duration::from_millis(500);

/// The turns of one cache.
#[derive(Default)]
pub(crate) struct CompileTurns {
    state: Mutex<TurnState>,
    changed: Condvar,
}

#[derive(Default)]
struct TurnState {
    /// The component that is being compiled, with its slice.
    running: Option<(String, usize)>,
    /// Waiting compilations, by slice and number, which is the order of their turns.
    waiting: Vec<(usize, u64)>,
    next: u64,
    known: HashMap<String, Known>,
}

/// Record of earlier compilations of a component that took long.
#[derive(Clone, Copy)]
struct Known {
    slice: usize,
    yields: u32,
    refused: Option<Instant>,
    since: Instant,
}

/// A turn to compile a component; it ends when this is dropped.
pub(crate) struct CompileTurn<'a> {
    turns: &'a CompileTurns,
    digest: String,
    slice: usize,
}

/// End of a turn without code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SliceEnd {
    /// The component has to wait for another turn.
    Again,
    /// The longest turn was too short.
    Never,
}

/// Error: the component was refused a short time ago, because it takes more than so many seconds of processor time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TakesTooLong(pub(crate) u64);

impl CompileTurns {
    /// Waits for the turn of a component. If `found` returns its code meanwhile, that is returned in place of a turn.
    pub(crate) fn wait<T>(
        &self,
        digest: &str,
        found: impl Fn() -> Option<T>,
    ) -> Result<Result<CompileTurn<'_>, T>, TakesTooLong> {
        let mut state = self.lock();
        let known = state.known.get(digest).copied();
        if let Some(Known {
            refused: Some(since), ..
        }) = known
            && since.elapsed() < REFUSED
        {
            return Err(TakesTooLong(SLICES[SLICES.len() - 1]));
        }
        let slice = known.map_or(0, |known| known.slice);
        let place = (slice, state.next);
        state.next += 1;
        state.waiting.push(place);
        // A compilation with a longer slice may have to give way.
        self.changed.notify_all();
        loop {
            if state.running.is_none() && state.waiting.iter().min() == Some(&place) {
                break;
            }
            let (waited, time) = self
                .changed
                .wait_timeout(state, LOOK)
                .unwrap_or_else(PoisonError::into_inner);
            state = waited;
            if time.timed_out() {
                drop(state);
                if let Some(found) = found() {
                    self.lock().waiting.retain(|other| *other != place);
                    self.changed.notify_all();
                    return Ok(Err(found));
                }
                state = self.lock();
            }
        }
        state.waiting.retain(|other| *other != place);
        state.running = Some((digest.to_owned(), slice));
        drop(state);
        let (turns, digest) = (self, digest.to_owned());
        Ok(Ok(CompileTurn { turns, digest, slice }))
    }

    fn lock(&self) -> MutexGuard<'_, TurnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CompileTurn<'_> {
    /// Processor time of the turn, in seconds.
    pub(crate) fn seconds(&self) -> u64 {
        SLICES[self.slice]
    }

    /// Reports whether a compilation with a shorter slice waits, to which this one has to give way.
    pub(crate) fn gives_way(&self) -> bool {
        let state = self.turns.lock();
        let yields = state.known.get(&self.digest).map_or(0, |known| known.yields);
        yields < MOST_YIELDS && state.waiting.iter().any(|(slice, _)| *slice < self.slice)
    }

    /// Records that the slice was too short.
    pub(crate) fn record_slice_over(&self) -> SliceEnd {
        let mut state = self.turns.lock();
        let known = state.known(&self.digest, self.slice);
        if self.slice + 1 == SLICES.len() {
            known.refused = Some(Instant::now());
            return SliceEnd::Never;
        }
        known.slice = self.slice + 1;
        SliceEnd::Again
    }

    /// Records that the compilation has given way.
    pub(crate) fn record_yield(&self) {
        self.turns.lock().known(&self.digest, self.slice).yields += 1;
    }

    /// Records that the component compiled, and does not take long.
    pub(crate) fn compiled(&self) {
        self.turns.lock().known.remove(&self.digest);
    }
}

impl TurnState {
    fn known(&mut self, digest: &str, slice: usize) -> &mut Known {
        if self.known.len() >= MOST_REMEMBERED && !self.known.contains_key(digest) {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.since);
            if let Some(oldest) = oldest.map(|(digest, _)| digest.clone()) {
                self.known.remove(&oldest);
            }
        }
        let new = || Known {
            slice,
            yields: 0,
            refused: None,
            since: Instant::now(),
        };
        self.known.entry(digest.to_owned()).or_insert_with(new)
    }
}

impl Drop for CompileTurn<'_> {
    fn drop(&mut self) {
        self.turns.lock().running = None;
        self.turns.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn turn<'a>(turns: &'a CompileTurns, digest: &str) -> CompileTurn<'a> {
        let Ok(Ok(turn)) = turns.wait(digest, || None::<()>) else {
            panic!("{digest} gets a turn")
        };
        turn
    }

    /// Compiles components that need so many seconds each, all started at the same moment. Returns the order in which
    /// they were done, and the seconds of compiling that had passed by then.
    fn compiled(turns: &CompileTurns, needs: &[(&str, u64)]) -> Vec<(String, u64)> {
        let (done, clock) = (Mutex::new(Vec::new()), Mutex::new(0));
        let held = turn(turns, "first");
        thread::scope(|scope| {
            for (digest, need) in needs {
                let (done, clock) = (&done, &clock);
                scope.spawn(move || {
                    while let Ok(Ok(turn)) = turns.wait(digest, || None::<()>) {
                        *clock.lock().unwrap() += turn.seconds().min(*need);
                        if *need <= turn.seconds() {
                            turn.compiled();
                            done.lock()
                                .unwrap()
                                .push(((*digest).to_owned(), *clock.lock().unwrap()));
                            return;
                        }
                        if turn.record_slice_over() == SliceEnd::Never {
                            return;
                        }
                    }
                });
            }
            let waits = |(digest, _): &&(&str, u64)| {
                let known = turns.lock().known.get(*digest).copied();
                known.is_none_or(|known| known.refused.is_none())
            };
            let waiting = needs.iter().filter(waits).count();
            while turns.lock().waiting.len() < waiting {
                thread::sleep(Duration::from_millis(1));
            }
            drop(held);
        });
        done.into_inner().unwrap()
    }

    #[test]
    fn a_usual_component_waits_for_a_short_slice_of_each_new_one() {
        let turns = CompileTurns::default();
        let bad: Vec<String> = (0..20).map(|number| format!("bad{number}")).collect();
        let tried: Vec<_> = bad.iter().map(|bad| (&**bad, 1000)).collect();
        assert_eq!(compiled(&turns, &tried), []);
        let mut needs = tried;
        needs.extend([
            ("new1", 1000),
            ("new2", 1000),
            ("new3", 1000),
            ("new4", 1000),
            ("python", 5),
            ("usual", 1),
        ]);
        let done = compiled(&turns, &needs);
        let after = |digest: &str| {
            done.iter()
                .find(|(done, _)| done == digest)
                .map(|(_, seconds)| *seconds)
        };
        assert!(after("usual").unwrap() <= 11, "{done:?}");
        assert!(after("python").unwrap() <= 11 + 5 * 10, "{done:?}");
    }

    #[test]
    fn a_long_compilation_gives_way_to_a_new_component() {
        let turns = CompileTurns::default();
        assert_eq!(turn(&turns, "bad").record_slice_over(), SliceEnd::Again);
        let long = turn(&turns, "bad");
        assert!(long.seconds() == 10 && !long.gives_way());
        thread::scope(|scope| {
            let usual = scope.spawn(|| turn(&turns, "usual").seconds());
            while !long.gives_way() {
                thread::sleep(Duration::from_millis(1));
            }
            long.record_yield();
            drop(long);
            assert_eq!(usual.join().unwrap(), 2);
        });
        assert_eq!(turn(&turns, "bad").seconds(), 10, "its turn comes again");
    }

    #[test]
    fn who_waits_for_the_same_component_finds_it() {
        let turns = CompileTurns::default();
        let _held = turn(&turns, "a");
        assert_eq!(turns.wait("a", || Some(7)).unwrap().err(), Some(7));
        assert!(turns.lock().waiting.is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let turns = CompileTurns::default();
        for number in 0..2 * MOST_REMEMBERED {
            turn(&turns, &number.to_string()).record_slice_over();
        }
        assert_eq!(turns.lock().known.len(), MOST_REMEMBERED);
    }
}
