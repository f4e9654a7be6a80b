//! Clock that interrupts guests: one thread that advances the engines' epochs while calls are under way, and sleeps
//! without waking up while there are none.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use wasmtime::{Engine, EngineWeak};

/// Interval at which a guest's time is checked.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// Ticks without a call before the thread sleeps: a host that is never idle for long pays no wake-up per call.
const LINGER: u32 = 20;

pub(crate) struct EpochTicker {
    shared: Arc<TickerShared>,
}

struct TickerShared {
    /// Calls under way.
    active: AtomicUsize,
    /// True while the thread sleeps; written under `state`, read without it by every call.
    asleep: AtomicBool,
    state: Mutex<TickerState>,
    wake: Condvar,
}

struct TickerState {
    engines: Vec<EngineWeak>,
    closed: bool,
}

/// Guard of a running call: the clock runs until it is dropped.
pub(crate) struct TickerGuard<'a> {
    shared: &'a TickerShared,
}

impl EpochTicker {
    /// Starts the thread, asleep.
    pub(crate) fn start() -> std::io::Result<Self> {
        let shared = Arc::new(TickerShared {
            active: AtomicUsize::new(0),
            asleep: AtomicBool::new(false),
            state: Mutex::new(TickerState {
                engines: Vec::new(),
                closed: false,
            }),
            wake: Condvar::new(),
        });
        let for_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("epoch-ticker".to_owned())
            .spawn(move || for_thread.run())?;
        Ok(Self { shared })
    }

    /// Adds an engine, whose epoch advances from now on.
    pub(crate) fn add(&self, engine: &Engine) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.engines.push(engine.weak());
    }

    /// Keeps the clock running until the guard is dropped.
    pub(crate) fn run(&self) -> TickerGuard<'_> {
        // Sequentially consistent, as is the thread's store to `asleep` before it reads `active`: one of the two
        // sees the other, so no call runs with a sleeping clock.
        self.shared.active.fetch_add(1, Ordering::SeqCst);
        if self.shared.asleep.load(Ordering::SeqCst) {
            let _state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
            self.shared.wake.notify_one();
        }
        TickerGuard { shared: &self.shared }
    }

    /// Reports whether the thread sleeps. Only for tests.
    #[cfg(test)]
    fn is_asleep(&self) -> bool {
        self.shared.asleep.load(Ordering::SeqCst)
    }
}

impl Drop for EpochTicker {
    fn drop(&mut self) {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.shared.wake.notify_one();
    }
}

impl Drop for TickerGuard<'_> {
    fn drop(&mut self) {
        self.shared.active.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns the ticks after which a call of this length is stopped: one more, since the first tick may come at once.
pub(crate) fn ticks(time: Duration) -> u64 {
    u64::try_from(time.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u64::MAX - 1) + 1
}

impl TickerShared {
    fn run(&self) {
        let mut idle = LINGER;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.closed {
            if self.active.load(Ordering::SeqCst) > 0 {
                idle = 0;
            } else {
                idle += 1;
            }
            if idle > LINGER {
                self.asleep.store(true, Ordering::SeqCst);
                if self.active.load(Ordering::SeqCst) == 0 {
                    state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                self.asleep.store(false, Ordering::SeqCst);
                idle = 0;
                continue;
            }
            // Late ticks (a busy machine, a stopped process) are not made up for: only time in which guests run counts.
            (state, _) = self
                .wake
                .wait_timeout_while(state, TICK, |state| !state.closed)
                .unwrap_or_else(PoisonError::into_inner);
            state.engines.retain(|engine| match engine.upgrade() {
                Some(engine) => {
                    engine.increment_epoch();
                    true
                }
                None => false,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
        let start = Instant::now();
        while !holds() {
            assert!(start.elapsed() < Duration::from_secs(30), "waited 30 s for {what}");
            thread::yield_now();
        }
    }

    #[test]
    fn the_clock_sleeps_without_calls_and_runs_with_one() {
        let ticker = EpochTicker::start().unwrap();
        wait_until("the clock to sleep at first", || ticker.is_asleep());
        let call = ticker.run();
        wait_until("the clock to run", || !ticker.is_asleep());
        drop(call);
        wait_until("the clock to sleep again", || ticker.is_asleep());
    }

    #[test]
    fn the_thread_ends_with_its_owner() {
        let ticker = EpochTicker::start().unwrap();
        let shared = Arc::downgrade(&ticker.shared);
        drop(ticker);
        wait_until("the thread to end", || shared.upgrade().is_none());
    }

    #[test]
    fn no_call_is_cut_short() {
        assert_eq!(ticks(Duration::from_millis(10)), 2);
        assert_eq!(ticks(Duration::from_millis(95)), 11);
        assert_eq!(ticks(Duration::from_millis(100)), 11);
    }
}
