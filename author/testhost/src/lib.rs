//! The host within another process: a test, or a command for plugin authors. `host` starts, controls and stops it,
//! `log` collects its log. The source of components is up to the caller.
#![forbid(unsafe_code)]

pub mod host;
pub mod log;

pub use self::host::{Components, RuntimeHost, stop_signal, unhurried, webhooks};
pub use self::log::Tail;
