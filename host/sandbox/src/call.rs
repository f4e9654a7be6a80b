//! Runs one call of a plugin on a fresh instance, bounded by its limits, and returns its result and usage.

use std::any::Any;
use std::time::{Duration, Instant};

use pilothouse_core::plugin::contract::{
    ConverterResult, DefaulterResult, Finalization, Imports, Request, Review, ValidatorResult,
};
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Failure, Limits};
use pilothouse_metrics::CallFunction;
use wasmtime::Store;

use crate::epoch_ticker::ticks;
use crate::outcome::{Limit, MAX_GUEST_WORDS, shorten};
use crate::plugin::PluginComponent;
use crate::sandbox::{Mapped, stack_size};
use crate::state::{Answers, AnyImports, CallResult, CallState, LogSink, Usage, log_to_tracing};
use crate::stop::{classify, fault_of_answer};

/// Handles of component model resources in one instance. The contract has none, so these are the guest's own.
const MAX_HANDLES: usize = 1000;

impl PluginComponent {
    /// Returns the plugin's manifest as JSON, for a configuration (JSON) or without one. The log is the only import
    /// that is answered; its lines go to tracing's target `pilothouse::plugin`.
    ///
    /// A configuration that the plugin refuses is the user's failure.
    pub fn describe(&self, config: Option<&str>, limits: &Limits) -> Result<String, Failure> {
        self.describe_with_log(config, limits, Box::new(log_to_tracing))
    }

    /// [`PluginComponent::describe`], with the guest's log lines given to `log`.
    pub fn describe_with_log(&self, config: Option<&str>, limits: &Limits, log: LogSink) -> Result<String, Failure> {
        let (result, _, _) = self.call(CallFunction::Describe, limits, Answers::Log(log), |mapped, store| {
            let described = mapped.adapter.describe(store, config)?;
            let is_too_large = |manifest: &String| manifest.len() as u64 > limits.output_bytes;
            if described.as_ref().is_ok_and(is_too_large) {
                return Ok(Err(Limit::OutputBytes.failure(limits)));
            }
            Ok(Ok(described))
        });
        result?.map_err(|words| {
            Failure::user(
                Reason::Failure,
                format!(
                    "the plugin refuses its configuration: {}",
                    shorten(&words, MAX_GUEST_WORDS)
                ),
            )
        })
    }

    /// Runs one reconcile on a fresh instance.
    ///
    /// Like every call, it runs on this thread, which needs `limits.stack_bytes` of stack beside its own use.
    pub fn reconcile<I: Imports + 'static>(&self, request: &Request, limits: &Limits, imports: I) -> CallResult<I> {
        self.call_with(CallFunction::Reconcile, limits, imports, |mapped, store| {
            mapped.adapter.reconcile(store, request)
        })
    }

    /// Runs one finalize on a fresh instance. The plugin must export `finalizer`: see [`PluginComponent::optional`].
    pub fn finalize<I: Imports + 'static>(
        &self,
        request: &Request,
        limits: &Limits,
        imports: I,
    ) -> CallResult<I, Finalization> {
        self.call_with(CallFunction::Finalize, limits, imports, |mapped, store| {
            mapped.adapter.finalize(store, request)
        })
    }

    /// Fills in defaults, on a fresh instance. The plugin must export `defaulter`.
    pub fn apply_defaults<I: Imports + 'static>(
        &self,
        review: &Review,
        limits: &Limits,
        imports: I,
    ) -> CallResult<I, DefaulterResult> {
        self.call_with(CallFunction::ApplyDefaults, limits, imports, |mapped, store| {
            mapped.adapter.apply_defaults(store, review)
        })
    }

    /// Validates an object, on a fresh instance. The plugin must export `validator`.
    pub fn validate<I: Imports + 'static>(
        &self,
        review: &Review,
        limits: &Limits,
        imports: I,
    ) -> CallResult<I, ValidatorResult> {
        self.call_with(CallFunction::Validate, limits, imports, |mapped, store| {
            mapped.adapter.validate(store, review)
        })
    }

    /// Converts one object, on a fresh instance. The plugin must export `converter`.
    ///
    /// Answers no import but the log, as in [`PluginComponent::describe`]: the cache is listed through conversion.
    pub fn convert(&self, object: &str, api_version: &str, limits: &Limits) -> CallResult<(), ConverterResult> {
        self.convert_with_log(object, api_version, limits, Box::new(log_to_tracing))
    }

    /// [`PluginComponent::convert`], with the guest's log lines given to `log`.
    pub fn convert_with_log(
        &self,
        object: &str,
        api_version: &str,
        limits: &Limits,
        log: LogSink,
    ) -> CallResult<(), ConverterResult> {
        let (result, usage, _) = self.call(CallFunction::Convert, limits, Answers::Log(log), |mapped, store| {
            mapped.adapter.convert(store, object, api_version)
        });
        CallResult {
            result,
            imports: (),
            usage,
        }
    }

    fn call_with<I: Imports + 'static, A>(
        &self,
        function: CallFunction,
        limits: &Limits,
        imports: I,
        call: impl FnOnce(&Mapped, &mut Store<CallState>) -> wasmtime::Result<Result<A, Failure>>,
    ) -> CallResult<I, A> {
        let (result, usage, imports) = self.call(function, limits, Answers::All(Box::new(imports)), call);
        let imports: Box<dyn Any> = imports.expect("a call gives back the imports that it was given");
        let imports = imports
            .downcast()
            .expect("a call gives back the imports that it was given");
        CallResult {
            result,
            imports: *imports,
            usage,
        }
    }

    fn call<R>(
        &self,
        function: CallFunction,
        limits: &Limits,
        answers: Answers,
        call: impl FnOnce(&Mapped, &mut Store<CallState>) -> wasmtime::Result<Result<R, Failure>>,
    ) -> (Result<R, Failure>, Usage, Option<Box<dyn AnyImports>>) {
        let state = CallState::new(limits.clone(), answers);
        if let Err(error) = limits.check() {
            let (usage, imports) = state.finish(Duration::ZERO, None);
            return (
                Err(Failure::user(Reason::GuestLimit, error.to_string())),
                usage,
                imports,
            );
        }
        let (mapped, wake) = match self.wake(stack_size(limits)) {
            Ok(awake) => awake,
            Err(error) => {
                let (usage, imports) = state.finish(Duration::ZERO, None);
                return (Err(Failure::host(Reason::HostFault, error.to_string())), usage, imports);
            }
        };
        let start = Instant::now();
        let mut store = Store::new(&mapped.engine, state);
        store.limiter(|state| &mut state.growth);
        store.set_hostcall_fuel(usize::try_from(limits.transfer_bytes).unwrap_or(usize::MAX));
        store.set_max_component_handles(MAX_HANDLES);
        let running = self.inner.shared.ticker.run();
        // Before instantiating: a start function is the guest's code too.
        store.set_epoch_deadline(ticks(limits.call_time()));
        let result = call(&mapped, &mut store);
        drop(running);
        store.data_mut().end_streams();
        let (result, fault) = match result {
            Ok(Ok(answer)) => (Ok(answer), None),
            Ok(Err(failure)) => {
                let fault = fault_of_answer(&failure);
                (Err(failure), fault)
            }
            Err(error) => {
                let (failure, fault) = classify(&error, store.data());
                (Err(failure), fault)
            }
        };
        // The instance is wiped with the store, which is part of what a call costs.
        let state = store.into_data();
        let took = start.elapsed();
        if let Some(calls) = &self.calls {
            calls.ended(function, took, fault);
        }
        let (usage, imports) = state.finish(took, wake);
        (result, usage, imports)
    }
}
