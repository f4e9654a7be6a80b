//! Owns the host within a process that is not its own: a test's, or that of an author's command. `host` starts, steers and
//! stops it, `log` keeps what it says. Where components come from is for those who use it.
#![forbid(unsafe_code)]

pub mod host;
pub mod log;

pub use self::host::{Components, RuntimeHost, stop_signal, unhurried, webhooks};
pub use self::log::Tail;
