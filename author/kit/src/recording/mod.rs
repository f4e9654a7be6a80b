//! Recordings of calls as tests: reads a file, repeats its calls offline in the host's own sandbox, with the same
//! component or another version, and reports the differences. `pilothouse_core::recording` defines the format;
//! docs/recordings.md describes it.
//!
//! ```no_run
//! use pilothouse_testkit::recording::Recording;
//!
//! # fn test() -> Result<(), Box<dyn std::error::Error>> {
//! let recording = Recording::read("tests/web.recording.jsonl")?;
//! let plugin = recording.load("target/plugins/app-service.wasm")?;
//! let report = recording.replay(&plugin);
//! assert!(report.is_same(), "{report}");
//! # Ok(())
//! # }
//! ```

mod compare;
mod difference;
mod file;
mod reads;
mod replay;

pub use self::difference::{CallReport, Difference, Report};
pub use self::file::{Recording, RecordingError};
