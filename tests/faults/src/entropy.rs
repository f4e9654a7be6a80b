//! Replaces the randomness of this program by a constant. The standard library, and with it the order of every
//! `HashMap` and the branch that `tokio::select!` tries first, calls the C library's `getrandom`, which it looks up by
//! a weak symbol so that a program can replace it. Here every thread gets the same bytes, so that a seed repeats a run
//! exactly.

#![allow(unsafe_code, reason = "a symbol of the C library is replaced")]

use std::cell::Cell;

thread_local! {
    static STATE: Cell<u64> = const { Cell::new(0x5EED) };
}

/// Fills a buffer with bytes that are the same in every run.
///
/// # Safety
///
/// As of the C library's function: the buffer must be writable for so many bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    // SAFETY: the caller says so.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, length) };
    STATE.with(|state| {
        for byte in bytes {
            // Knuth's MMIX generator; its upper bits are good enough for keys of hash maps.
            let next = state
                .get()
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state.set(next);
            *byte = (next >> 56) as u8;
        }
    });
    isize::try_from(length).unwrap_or(isize::MAX)
}
