//! Logging: lines that the host writes with the plugin's name and the resource as fields.
//!
//! Natively they go to standard error, where `cargo test` shows them with a failed test.

/// Level of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Every step; off by default.
    Trace,
    /// Details that help to find a fault.
    Debug,
    /// Events in normal operation.
    Info,
    /// Problems that need attention.
    Warn,
    /// Errors.
    Error,
}

/// Writes one line with fields. The macros [`info!`](crate::info) and so on are shorter.
pub fn log(level: Level, message: &str, fields: &[(String, String)]) {
    #[cfg(target_family = "wasm")]
    {
        use crate::bindings::pilothouse::plugin::log;
        let level = match level {
            Level::Trace => log::Level::Trace,
            Level::Debug => log::Level::Debug,
            Level::Info => log::Level::Info,
            Level::Warn => log::Level::Warn,
            Level::Error => log::Level::Error,
        };
        log::log(level, message, fields);
    }
    #[cfg(not(target_family = "wasm"))]
    {
        let fields: Vec<_> = fields.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        eprintln!("{level:?} {message}{}", fields.concat());
    }
}

/// Logs at a [`Level`](crate::Level): fields first, then arguments of `format!`.
///
/// ```
/// use pilothouse_plugin::{Level, log};
///
/// log!(Level::Info, port = 8080, protocol = "TCP", "opened for {}", "shop");
/// ```
#[macro_export]
macro_rules! log {
    ($level:expr, $format:literal $($arguments:tt)*) => {
        $crate::log($level, &::std::format!($format $($arguments)*), &[])
    };
    ($level:expr, $($name:ident = $value:expr),+, $format:literal $($arguments:tt)*) => {
        $crate::log(
            $level,
            &::std::format!($format $($arguments)*),
            &[$((::std::string::String::from(::core::stringify!($name)), ::std::string::ToString::to_string(&$value))),+],
        )
    };
}

/// Logs a step; off by default. See [`log!`](crate::log!).
#[macro_export]
macro_rules! trace {
    ($($arguments:tt)+) => { $crate::log!($crate::Level::Trace, $($arguments)+) };
}

/// Logs a detail that helps to find a fault. See [`log!`](crate::log!).
#[macro_export]
macro_rules! debug {
    ($($arguments:tt)+) => { $crate::log!($crate::Level::Debug, $($arguments)+) };
}

/// Logs an event in normal operation. See [`log!`](crate::log!).
#[macro_export]
macro_rules! info {
    ($($arguments:tt)+) => { $crate::log!($crate::Level::Info, $($arguments)+) };
}

/// Logs a problem that needs attention. See [`log!`](crate::log!).
#[macro_export]
macro_rules! warn {
    ($($arguments:tt)+) => { $crate::log!($crate::Level::Warn, $($arguments)+) };
}

/// Logs an error. See [`log!`](crate::log!).
#[macro_export]
macro_rules! error {
    ($($arguments:tt)+) => { $crate::log!($crate::Level::Error, $($arguments)+) };
}
