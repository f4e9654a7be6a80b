//! Owns the lock of the shared state. In debug builds no object may be decoded while it is held: watches wait for it.

use std::ops::{Deref, DerefMut};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use pilothouse_cluster::decoding::NoDecoding;

/// A lock under which nothing is decoded.
pub struct StateLock<T>(RwLock<T>);

/// What a guard gives access to, until it is dropped.
pub struct StateGuard<G> {
    guard: G,
    _no_decoding: NoDecoding,
}

impl<T> StateLock<T> {
    /// A lock that nobody holds.
    pub fn new(state: T) -> Self {
        Self(RwLock::new(state))
    }

    /// Waits until nobody writes.
    pub fn read(&self) -> StateGuard<RwLockReadGuard<'_, T>> {
        StateGuard::new(self.0.read())
    }

    /// Waits until nobody reads or writes.
    pub fn write(&self) -> StateGuard<RwLockWriteGuard<'_, T>> {
        StateGuard::new(self.0.write())
    }
}

impl<G> StateGuard<G> {
    fn new(guard: G) -> Self {
        Self {
            guard,
            _no_decoding: NoDecoding::begin(),
        }
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
