//! Answers the imports of version 0.1.0: each call is counted, then passed to the call's [`Imports`].
//!
//! [`Imports`]: pilothouse_core::plugin::contract::Imports

use pilothouse_core::Kind;
use pilothouse_core::plugin::contract;
use pilothouse_core::plugin::contract::LogLevel;

use super::bindings::pilothouse::plugin::{clock, cluster, log, types};
use crate::outcome::Stop;
use crate::state::CallState;

impl types::Host for CallState {}

impl cluster::Host for CallState {
    fn get(
        &mut self,
        kind: types::GroupVersionKind,
        namespace: Option<String>,
        name: String,
    ) -> wasmtime::Result<Option<String>> {
        self.begin_read()?;
        let kind = Kind::from(kind);
        let imports = self.imports("cluster.get")?;
        let answer = imports.get(&kind, namespace.as_deref(), &name).map_err(Stop::Failure)?;
        self.end_read(answer.as_ref().map_or(0, String::len))?;
        Ok(answer)
    }

    fn list(&mut self, kind: types::GroupVersionKind, options: types::ListOptions) -> wasmtime::Result<Vec<String>> {
        self.begin_read()?;
        let (kind, options) = (Kind::from(kind), contract::ListOptions::from(options));
        let left = self.read_bytes_left();
        let imports = self.imports("cluster.list")?;
        let answer = imports.list(&kind, &options, left).map_err(Stop::Failure)?;
        self.end_read(answer.iter().map(String::len).sum())?;
        Ok(answer)
    }
}

impl log::Host for CallState {
    fn log(&mut self, level: log::Level, message: String, fields: Vec<(String, String)>) -> wasmtime::Result<()> {
        CallState::log(self, level.into(), &message, &fields);
        Ok(())
    }
}

impl clock::Host for CallState {
    fn now(&mut self, granularity: u64) -> wasmtime::Result<u64> {
        self.begin_read()?;
        Ok(self.imports("clock.now")?.now(granularity.max(LEAST_GRANULARITY)))
    }

    fn reached(&mut self, moment: u64) -> wasmtime::Result<bool> {
        self.begin_read()?;
        Ok(self.imports("clock.reached")?.reached(moment))
    }
}

/// Least granularity in milliseconds, as the contract promises; a finer one would requeue objects all the time.
const LEAST_GRANULARITY: u64 = 1000;

impl From<types::GroupVersionKind> for Kind {
    fn from(kind: types::GroupVersionKind) -> Self {
        let types::GroupVersionKind { group, version, kind } = kind;
        Self { group, version, kind }
    }
}

impl From<types::ListOptions> for contract::ListOptions {
    fn from(options: types::ListOptions) -> Self {
        let types::ListOptions {
            namespace,
            label_selector,
            field_selector,
            limit,
        } = options;
        Self {
            namespace,
            label_selector,
            field_selector,
            limit,
        }
    }
}

impl From<log::Level> for LogLevel {
    fn from(level: log::Level) -> Self {
        match level {
            log::Level::Trace => Self::Trace,
            log::Level::Debug => Self::Debug,
            log::Level::Info => Self::Info,
            log::Level::Warn => Self::Warn,
            log::Level::Error => Self::Error,
        }
    }
}
