//! State of the inert set of WASI during one call: its clock, random numbers, pollables, and unfinished lines.

use pilothouse_core::plugin::contract::LogLevel;

use crate::outcome::{MAX_GUEST_WORDS, Stop, shorten};
use crate::state::CallState;

/// Offset of the wall clock from the monotonic clock, in nanoseconds since 1970: 2000-01-01T00:00:00Z.
pub(super) const WALL_CLOCK_START: u64 = 946_684_800 * 1_000_000_000;

/// First value of the monotonic clock, in nanoseconds. Not 0, which Go's runtime takes for a broken clock.
const MONOTONIC_START: u64 = 1_000_000_000;

/// Advance of the clock with each reading, in nanoseconds, so that a loop that waits for time to pass ends.
pub(super) const CLOCK_STEP: u64 = 1_000;

/// The seed of the random numbers of every call.
const SEED: u64 = 0x7069_6c6f_7468_6f75;

/// Length from which on an unfinished line is logged.
const LINE_BYTES: usize = 8 * 1024;

/// Moments that can be waited for at once; handles are limited besides.
const MAX_MOMENTS: usize = 1000;

/// Standard stream for output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standard {
    Output,
    Error,
}

impl Standard {
    pub(super) fn handle(self) -> u32 {
        match self {
            Self::Output => 1,
            Self::Error => 2,
        }
    }

    pub(super) fn of_handle(handle: u32) -> Self {
        if handle == Self::Output.handle() {
            Self::Output
        } else {
            Self::Error
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Output => "stdout",
            Self::Error => "stderr",
        }
    }

    fn level(self) -> LogLevel {
        match self {
            Self::Output => LogLevel::Info,
            Self::Error => LogLevel::Warn,
        }
    }
}

/// State of the inert set during one call.
#[derive(Debug)]
pub(crate) struct WasiState {
    /// The monotonic clock, in nanoseconds.
    clock: u64,
    random: u64,
    /// Moments that pollables wait for, by their handles; none for a free handle.
    moments: Vec<Option<u64>>,
    /// The line that is being written to standard output.
    output: Vec<u8>,
    /// The line that is being written to standard error.
    error: Vec<u8>,
    /// First and last line on standard error: runtimes differ in where a message has its cause.
    first_words: Option<String>,
    last_words: Option<String>,
}

impl Default for WasiState {
    fn default() -> Self {
        Self {
            clock: MONOTONIC_START,
            random: SEED,
            moments: Vec::new(),
            output: Vec::new(),
            error: Vec::new(),
            first_words: None,
            last_words: None,
        }
    }
}

impl WasiState {
    /// Reads the monotonic clock.
    pub(super) fn monotonic(&mut self) -> u64 {
        self.clock = self.clock.saturating_add(CLOCK_STEP);
        self.clock
    }

    /// Returns the next number of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
    pub(super) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn random_bytes(&mut self, length: u64) -> Vec<u8> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let mut bytes = Vec::with_capacity(length.saturating_add(8));
        while bytes.len() < length {
            bytes.extend(self.random().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }

    /// Returns the handle of a new pollable that is ready at a moment of the monotonic clock.
    pub(super) fn wait_until(&mut self, moment: u64) -> Result<u32, Stop> {
        let free = self.moments.iter().position(Option::is_none);
        let at = match free {
            Some(free) => free,
            None if self.moments.len() < MAX_MOMENTS => {
                self.moments.push(None);
                self.moments.len() - 1
            }
            None => {
                return Err(Stop::Inert(format!(
                    "wasi:io/poll pollable for more than {MAX_MOMENTS} moments"
                )));
            }
        };
        self.moments[at] = Some(moment);
        Ok(u32::try_from(at).expect("a thousand fits in a u32"))
    }

    /// Frees the handle of a pollable.
    pub(super) fn forget(&mut self, handle: u32) {
        if let Some(moment) = self.moments.get_mut(handle as usize) {
            *moment = None;
        }
    }

    pub(super) fn is_due(&self, handle: u32) -> bool {
        self.moment(handle) <= self.clock
    }

    /// Advances the clock to the first of some moments, and returns which of them have come then.
    pub(super) fn wait_for_first(&mut self, handles: &[u32]) -> Vec<u32> {
        let first = handles.iter().map(|handle| self.moment(*handle)).min();
        self.clock = self.clock.max(first.unwrap_or_default());
        let indices = 0_u32..;
        let due = indices.zip(handles).filter(|(_, handle)| self.is_due(**handle));
        due.map(|(index, _)| index).collect()
    }

    fn moment(&self, handle: u32) -> u64 {
        self.moments.get(handle as usize).copied().flatten().unwrap_or_default()
    }

    /// Returns the first and last line of standard error, shortened.
    pub(crate) fn last_words(&self) -> Option<String> {
        let first = self.first_words.as_ref()?;
        Some(match &self.last_words {
            Some(last) => format!("{first} ... {last}"),
            None => first.clone(),
        })
    }

    fn line(&mut self, stream: Standard) -> &mut Vec<u8> {
        match stream {
            Standard::Output => &mut self.output,
            Standard::Error => &mut self.error,
        }
    }
}

impl CallState {
    /// Logs the complete lines, and keeps the rest.
    pub(super) fn write(&mut self, stream: Standard, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let line = self.wasi.line(stream);
            line.extend(part);
            if part.ends_with(b"\n") || line.len() >= LINE_BYTES {
                self.log_line(stream);
            }
        }
    }

    /// Logs the unfinished lines.
    pub(crate) fn end_streams(&mut self) {
        self.log_line(Standard::Output);
        self.log_line(Standard::Error);
    }

    fn log_line(&mut self, stream: Standard) {
        let line = std::mem::take(self.wasi.line(stream));
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        if line.is_empty() {
            return;
        }
        if stream == Standard::Error {
            let words = Some(shorten(line.trim(), MAX_GUEST_WORDS / 4));
            if self.wasi.first_words.is_none() {
                self.wasi.first_words = words;
            } else {
                self.wasi.last_words = words;
            }
        }
        let fields = [("stream".to_owned(), stream.name().to_owned())];
        self.log(stream.level(), line, &fields);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_has_the_same_time_and_the_same_random_numbers() {
        let (mut one, mut other) = (WasiState::default(), WasiState::default());
        assert_eq!(one.random_bytes(13), other.random_bytes(13));
        assert_ne!(one.random(), one.random());
        assert_eq!(one.monotonic(), other.monotonic());
        assert!(one.monotonic() > other.clock);
    }

    #[test]
    fn waiting_moves_the_clock_to_the_first_moment() {
        let mut state = WasiState::default();
        let late = state.wait_until(9_000_000_000).unwrap();
        let early = state.wait_until(5_000_000_000).unwrap();
        assert!(!state.is_due(early));
        assert_eq!(state.wait_for_first(&[late, early]), [1]);
        assert_eq!(state.clock, 5_000_000_000);
        assert_eq!(state.wait_for_first(&[early, late, early]), [0, 2]);
        assert_eq!(state.wait_for_first(&[late]), [0]);
        assert_eq!(state.clock, 9_000_000_000);
    }

    #[test]
    fn handles_are_used_again_and_bounded() {
        let mut state = WasiState::default();
        let first = state.wait_until(1).unwrap();
        state.forget(first);
        assert_eq!(state.wait_until(2).unwrap(), first);
        while state.moments.len() < MAX_MOMENTS {
            state.wait_until(3).unwrap();
        }
        assert!(state.wait_until(4).is_err());
    }
}
