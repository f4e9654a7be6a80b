//! The lock of the shared state. In debug builds no object may be decoded while it is held, because watches wait for
//! it. A thread that holds it must not lock it again: a second read waits for a writer that waits for the first read.

#[cfg(debug_assertions)]
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use pilothouse_cluster::cache::decoding::NoDecoding;

#[cfg(debug_assertions)]
thread_local! {
    /// Addresses of the locks that this thread holds.
    static HELD: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A lock under which nothing is decoded, and that a thread does not lock twice.
pub struct StateLock<T>(RwLock<T>);

/// Guard of the locked state.
pub struct StateGuard<G> {
    guard: G,
    _no_decoding: NoDecoding,
    _held: HeldLock,
}

/// Records that this thread holds a lock, as long as it lives.
struct HeldLock(#[cfg(debug_assertions)] usize);

impl<T> StateLock<T> {
    /// Makes an unlocked lock.
    pub fn new(state: T) -> Self {
        Self(RwLock::new(state))
    }

    /// Locks for reading.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read(&self) -> StateGuard<RwLockReadGuard<'_, T>> {
        let held = HeldLock::begin(&self.0);
        StateGuard::new(self.0.read(), held)
    }

    /// Locks for writing.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write(&self) -> StateGuard<RwLockWriteGuard<'_, T>> {
        let held = HeldLock::begin(&self.0);
        StateGuard::new(self.0.write(), held)
    }
}

impl<G> StateGuard<G> {
    fn new(guard: G, held: HeldLock) -> Self {
        Self {
            guard,
            _no_decoding: NoDecoding::begin(),
            _held: held,
        }
    }
}

impl HeldLock {
    #[cfg(debug_assertions)]
    #[track_caller]
    fn begin<T>(lock: &RwLock<T>) -> Self {
        let address = std::ptr::from_ref(lock).addr();
        HELD.with_borrow_mut(|held| {
            assert!(!held.contains(&address), "this thread holds the lock already");
            held.push(address);
        });
        Self(address)
    }

    #[cfg(not(debug_assertions))]
    fn begin<T>(_: &RwLock<T>) -> Self {
        Self()
    }
}

#[cfg(debug_assertions)]
impl Drop for HeldLock {
    fn drop(&mut self) {
        HELD.with_borrow_mut(|held| held.retain(|address| *address != self.0));
    }
}

impl<G: Deref> Deref for StateGuard<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for StateGuard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_thread_that_takes_the_lock_twice_is_stopped() {
        let (lock, other) = (StateLock::new(1), StateLock::new(2));
        let twice = catch_unwind(AssertUnwindSafe(|| {
            let first = lock.read();
            *first + *lock.read()
        }));
        let panic = twice.unwrap_err();
        assert_eq!(*panic.downcast::<&str>().unwrap(), "this thread holds the lock already");
        assert_eq!(*lock.write() + *other.read(), 3, "both are free");
    }
}
