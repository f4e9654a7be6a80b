//! The data of one call's store: its remaining limits and its usage.

use std::any::Any;
use std::time::Duration;

use pilothouse_core::plugin::contract::{Imports, LogLevel, Outcome};
use pilothouse_core::{Failure, Limits};
use wasmtime::ResourceLimiter;

use crate::outcome::{Limit, MAX_GUEST_WORDS, Stop, shorten};
use crate::wasi::WasiState;

/// A call that has ended, with its imports given back.
#[derive(Debug)]
pub struct CallResult<I, A = Outcome> {
    /// The guest's answer, or the failure.
    pub result: Result<A, Failure>,
    /// The imports after the call, with the reads that it made.
    pub imports: I,
    /// The call's usage.
    pub usage: Usage,
}

/// Usage of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time from the first instruction to the last, with imports, without waking up.
    pub time: Duration,
    /// Time it took to map the plugin's code again; none if it was awake.
    pub wake: Option<Duration>,
    /// Largest size of linear memory.
    pub memory_bytes: u64,
    /// `cluster.get` and `cluster.list` calls.
    pub reads: u64,
    /// Bytes that these calls returned to the guest.
    pub read_bytes: u64,
    /// Bytes of log messages and fields that were passed on.
    pub log_bytes: u64,
    /// Log lines that were dropped because they were over the limit.
    pub log_lines_dropped: u64,
}

/// Imports that can be returned as their concrete type.
pub(crate) trait AnyImports: Imports + Any {}

impl<I: Imports + Any> AnyImports for I {}

/// Sink of log lines of a call that belongs to no object: a level, a message and fields.
pub type LogSink = Box<dyn FnMut(LogLevel, &str, &[(String, String)]) + Send>;

/// Imports that are answered during one call.
pub(crate) enum Answers {
    /// Everything that the contract imports.
    All(Box<dyn AnyImports>),
    /// Only the log: the plugin describes itself, or converts.
    Log(LogSink),
}

/// The data of one call's store.
pub(crate) struct CallState {
    pub(crate) limits: Limits,
    pub(crate) growth: GrowthLimiter,
    answers: Answers,
    /// The last line that the guest logged as an error, shortened: a panic hook logs its message this way. Kept even if
    /// the line itself is over the limit.
    pub(crate) last_error: Option<String>,
    /// State of the inert set of WASI.
    pub(crate) wasi: WasiState,
    reads: u64,
    read_bytes: u64,
    log_bytes: u64,
    log_lines_dropped: u64,
}

impl CallState {
    pub(crate) fn new(limits: Limits, answers: Answers) -> Self {
        let growth = GrowthLimiter::new(&limits);
        Self {
            limits,
            growth,
            answers,
            last_error: None,
            wasi: WasiState::default(),
            reads: 0,
            read_bytes: 0,
            log_bytes: 0,
            log_lines_dropped: 0,
        }
    }

    /// Returns the usage, and the imports that were given to [`CallState::new`].
    pub(crate) fn finish(self, time: Duration, wake: Option<Duration>) -> (Usage, Option<Box<dyn AnyImports>>) {
        let Self {
            limits: _,
            growth,
            answers,
            last_error: _,
            wasi: _,
            reads,
            read_bytes,
            log_bytes,
            log_lines_dropped,
        } = self;
        let usage = Usage {
            time,
            wake,
            memory_bytes: growth.memory_bytes,
            reads,
            read_bytes,
            log_bytes,
            log_lines_dropped,
        };
        let imports = match answers {
            Answers::All(imports) => Some(imports),
            Answers::Log(_) => None,
        };
        (usage, imports)
    }

    /// Returns the imports, or the end of the call if it has none.
    pub(crate) fn imports(&mut self, import: &'static str) -> Result<&mut dyn AnyImports, Stop> {
        match &mut self.answers {
            Answers::All(imports) => Ok(&mut **imports),
            Answers::Log(_) => Err(Stop::Unavailable(import)),
        }
    }

    /// Counts one more read, if the limit allows.
    pub(crate) fn begin_read(&mut self) -> Result<(), Stop> {
        if self.reads >= self.limits.reads {
            return Err(Stop::Limit(Limit::Reads));
        }
        self.reads += 1;
        Ok(())
    }

    /// Returns the bytes that reads may still return.
    pub(crate) fn read_bytes_left(&self) -> u64 {
        self.limits.read_bytes.saturating_sub(self.read_bytes)
    }

    /// Counts the bytes of a read's result.
    pub(crate) fn end_read(&mut self, bytes: usize) -> Result<(), Stop> {
        self.read_bytes = self.read_bytes.saturating_add(bytes as u64);
        if self.read_bytes > self.limits.read_bytes {
            return Err(Stop::Limit(Limit::ReadBytes));
        }
        Ok(())
    }

    /// Passes one log line on as far as the limit allows.
    pub(crate) fn log(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        if level == LogLevel::Error {
            self.last_error = Some(shorten(message, MAX_GUEST_WORDS));
        }
        // A line costs a little even when it is empty, so that empty lines end too.
        let bytes = 1
            + message.len()
            + fields
                .iter()
                .map(|(name, value)| name.len() + value.len())
                .sum::<usize>();
        let total = self.log_bytes.saturating_add(bytes as u64);
        if total > self.limits.log_bytes {
            self.log_lines_dropped += 1;
            return;
        }
        self.log_bytes = total;
        match &mut self.answers {
            Answers::All(imports) => imports.log(level, message, fields),
            Answers::Log(log) => log(level, message, fields),
        }
    }
}

/// Writes a log line that belongs to no object to tracing's target `pilothouse::plugin`.
pub(crate) fn log_to_tracing(level: LogLevel, message: &str, fields: &[(String, String)]) {
    match level {
        LogLevel::Trace => tracing::trace!(target: "pilothouse::plugin", ?fields, "{message}"),
        LogLevel::Debug => tracing::debug!(target: "pilothouse::plugin", ?fields, "{message}"),
        LogLevel::Info => tracing::info!(target: "pilothouse::plugin", ?fields, "{message}"),
        LogLevel::Warn => tracing::warn!(target: "pilothouse::plugin", ?fields, "{message}"),
        LogLevel::Error => tracing::error!(target: "pilothouse::plugin", ?fields, "{message}"),
    }
}

/// Limits of the memories and tables of an instance, all together.
pub(crate) struct GrowthLimiter {
    memory_limit: u64,
    table_limit: u64,
    memory_bytes: u64,
    table_elements: u64,
    refused: Option<Limit>,
}

impl GrowthLimiter {
    fn new(limits: &Limits) -> Self {
        Self {
            memory_limit: limits.memory_bytes,
            table_limit: limits.table_elements,
            memory_bytes: 0,
            table_elements: 0,
            refused: None,
        }
    }

    /// Returns the limit that the guest reached, if it did.
    pub(crate) fn refused(&self) -> Option<Limit> {
        self.refused
    }
}

impl ResourceLimiter for GrowthLimiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let total = self.memory_bytes.saturating_add(desired.saturating_sub(current) as u64);
        if total > self.memory_limit {
            self.refused = Some(Limit::Memory);
            return Ok(false);
        }
        // Beyond the maximum that the guest itself declares, growing fails anyway, and is not ours to report.
        if maximum.is_none_or(|maximum| desired <= maximum) {
            self.memory_bytes = total;
        }
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let total = self
            .table_elements
            .saturating_add(desired.saturating_sub(current) as u64);
        if total > self.table_limit {
            self.refused = Some(Limit::Table);
            return Ok(false);
        }
        if maximum.is_none_or(|maximum| desired <= maximum) {
            self.table_elements = total;
        }
        Ok(true)
    }
}
