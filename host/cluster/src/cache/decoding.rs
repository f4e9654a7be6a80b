//! Checks in debug builds that no object is decoded while the host holds the lock for which its watches wait.

use std::marker::PhantomData;

#[cfg(debug_assertions)]
thread_local! {
    static FORBIDDEN: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// A guard that forbids decoding objects on this thread: a debug build panics.
#[derive(Debug)]
pub struct NoDecoding(PhantomData<*const ()>);

impl NoDecoding {
    /// Forbids decoding until the guard is dropped.
    #[must_use]
    pub fn begin() -> Self {
        #[cfg(debug_assertions)]
        FORBIDDEN.with(|forbidden| forbidden.set(forbidden.get() + 1));
        Self(PhantomData)
    }
}

impl Drop for NoDecoding {
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        FORBIDDEN.with(|forbidden| forbidden.set(forbidden.get() - 1));
    }
}

/// Decodes despite a guard. Each use is an exception with a stated reason.
pub fn allowed<T>(decode: impl FnOnce() -> T) -> T {
    #[cfg(debug_assertions)]
    {
        struct Restored(u32);
        impl Drop for Restored {
            fn drop(&mut self) {
                FORBIDDEN.set(self.0);
            }
        }
        let _restored = Restored(FORBIDDEN.replace(0));
        decode()
    }
    #[cfg(not(debug_assertions))]
    decode()
}

/// Checks that decoding is allowed.
#[track_caller]
pub(crate) fn check() {
    #[cfg(debug_assertions)]
    assert!(
        FORBIDDEN.get() == 0,
        "an object is decoded while the host's state is locked; use its facts, or decode it before"
    );
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn decoding_is_forbidden_as_long_as_a_guard_lives() {
        let outer = NoDecoding::begin();
        drop(NoDecoding::begin());
        assert!(std::panic::catch_unwind(check).is_err(), "the outer guard still lives");
        allowed(check);
        assert!(std::panic::catch_unwind(check).is_err(), "the exception is over");
        drop(outer);
        check();
    }
}
