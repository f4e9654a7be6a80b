//! Fuzz targets: each passes bytes to one of the host's readers, and panics if the result breaks a promise of the host.
//! libFuzzer (`main.rs`, `cargo xtask fuzz`) finds the bytes; the tests also play the corpora.
//!
//! The promises: no panic, memory within [`targets::Target::memory`], and a refusal that says what is wrong with what.
#![forbid(unsafe_code)]

mod cluster;
mod generate;
mod plugin;
pub mod targets;

use std::fmt::Display;

/// The longest refusal: it goes into a condition, an event and a line of the log.
const LONGEST_REFUSAL: usize = 32 * 1024;

/// Checks that a refusal of the host names the refused object.
///
/// # Panics
///
/// If it does not.
fn refused(problem: &dyn Display, named: &str) {
    let words = problem.to_string();
    assert!(words.contains(named), "the refusal does not name {named:?}: {words:?}");
    assert!(
        words.len() > named.len() + 4,
        "the refusal of {named:?} says nothing: {words:?}"
    );
    assert!(
        words.len() <= LONGEST_REFUSAL,
        "the refusal of {named:?} has {} bytes",
        words.len()
    );
}
