//! Runs one plugin by itself: its component under the host's own sandbox and limits, on a given cache of objects. Its
//! answer is checked as the host checks it.
//!
//! ```no_run
//! # fn test() -> Result<(), Box<dyn std::error::Error>> {
//! use pilothouse_testkit::isolation::{Admission, Isolated};
//! use serde_json::json;
//!
//! let app = json!({
//!     "apiVersion": "kosmos.io/v1",
//!     "kind": "AppService",
//!     "metadata": {"name": "web", "namespace": "shop", "uid": "1"},
//!     "spec": {"size": 2, "image": "web:1"}
//! });
//! let plugin = Isolated::load("target/plugins/app-service.wasm")?
//!     .at(1_767_225_600_000)
//!     .with(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}))?;
//!
//! let reconciled = plugin.reconcile(&app)?;
//! assert_eq!(reconciled.object("Deployment", "web").unwrap()["spec"]["replicas"], 2);
//! // A partial object: the message of a test that fails has the difference, and the objects that are there.
//! reconciled.assert_matches("Deployment", "web", &json!({"spec": {"replicas": 2}}));
//!
//! // What the host does before it stores or reconciles an object, for plugins that export the interface.
//! let refused = plugin.validate(&app, &Admission::update(&app).by("jane", ["developers"]));
//! // And the whole of it, in the host's order: defaults, validation, then reconcile or finalize.
//! let run = plugin.run(&app)?;
//! # let _ = (refused, run);
//! # Ok(())
//! # }
//! ```

mod admission;
mod cache;
mod kinds;
mod result;
mod run;
mod shuffle;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use pilothouse_core::answer;
use pilothouse_core::answer::desired::PrimaryName;
use pilothouse_core::plugin::contract::{Finalization, Outcome, Request};
use pilothouse_core::plugin::grants::Grants;
use pilothouse_core::plugin::manifest;
use pilothouse_core::plugin::manifest::{CheckedManifest, ManifestError};
use pilothouse_core::plugin::wasi::Wasi;
use pilothouse_core::rights::AdmissionExports;
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Failure, Kind, Limits, Name};
pub use pilothouse_sandbox::Usage;
use pilothouse_sandbox::{CallResult, Compiler, LoadError, Optional, PluginComponent, Sandbox, SandboxOptions};
use serde_json::Value;
use thiserror::Error;

use self::cache::{Cache, Objects, StoredObject};
pub use self::{
    admission::Admission,
    cache::{LogLine, Reads, Shown},
    result::{Answered, Failed, Finalized, NoSuchObject, Reconciled},
    run::{FinalizerAnswer, Run},
};
use crate::{
    documents::{self, Document},
    environment,
};

/// Tests share machines, so a call gets the most time that can be given; every other limit is the default.
const CALL_MILLISECONDS: u64 = 10_000;

/// Attempts of a call that exceeds its time limit.
const TRIES: u32 = 3;

/// Errors of running a plugin in isolation.
#[derive(Debug, Error)]
pub enum IsolationError {
    /// The sandbox could not be made.
    #[error("make a sandbox: {0}")]
    Sandbox(String),
    /// The component can't be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The plugin did not describe itself, or refuses its configuration.
    #[error("describe {}: {failure}", .component.display())]
    Describe {
        /// The component.
        component: PathBuf,
        /// The cause.
        failure: Failure,
    },
    /// The manifest is not one that the host accepts.
    #[error("check the manifest of {}: {source}", .component.display())]
    Manifest {
        /// The component.
        component: PathBuf,
        /// The error.
        source: ManifestError,
    },
    /// A given object is invalid.
    #[error("{problem} in {object}; an object has apiVersion, kind and metadata.name")]
    Object {
        /// Missing part.
        problem: String,
        /// The object, as far as it can be named.
        object: String,
    },
}

/// One plugin on a pretended cache. Everything is set up by methods that give it back, `reconcile` is called at the end, as
/// often as is needed.
#[derive(Clone)]
pub struct Isolated {
    component: PathBuf,
    plugin: PluginComponent,
    manifest: Arc<CheckedManifest>,
    configuration: Option<Value>,
    objects: Arc<Objects>,
    now: u64,
    attempt: u32,
    limits: Limits,
    shown: Shown,
    calls: Calls,
    /// The longest time of a call, where it is looked at.
    longest: Option<Duration>,
}

/// Count of attempts of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Calls {
    /// Once, as by the host.
    Once,
    /// Twice, because the same inputs must give the same answer.
    Twice,
}

impl Isolated {
    /// Loads a component from a file and has it describe itself.
    pub fn load(component: impl AsRef<Path>) -> Result<Self, IsolationError> {
        Self::load_granting(component, Wasi::None)
    }

    /// Loads a component that imports interfaces of WASI.
    pub fn load_granting(component: impl AsRef<Path>, wasi: Wasi) -> Result<Self, IsolationError> {
        let component = component.as_ref().to_owned();
        let plugin = sandbox()?.granting(wasi).load(&component)?;
        Self::of(component, plugin, None)
    }

    /// Loads a component from memory. Messages call it by `name`.
    pub fn from_bytes(name: &str, component: &[u8]) -> Result<Self, IsolationError> {
        let plugin = sandbox()?.load_bytes(name, component)?;
        Self::of(name.into(), plugin, None)
    }

    /// A component that was loaded into another sandbox, with its configuration.
    pub fn of(
        component: PathBuf,
        plugin: PluginComponent,
        configuration: Option<Value>,
    ) -> Result<Self, IsolationError> {
        let limits = Limits {
            call_milliseconds: CALL_MILLISECONDS,
            ..Limits::default()
        };
        let manifest = Arc::new(describe(&component, &plugin, configuration.as_ref(), &limits)?);
        let objects = Arc::default();
        Ok(Self {
            component,
            plugin,
            manifest,
            configuration,
            objects,
            now: 0,
            attempt: 0,
            limits,
            shown: Shown::Declared,
            calls: Calls::Twice,
            longest: None,
        })
    }

    /// Configures the plugin, which then describes itself again.
    pub fn configured(mut self, configuration: Value) -> Result<Self, IsolationError> {
        self.manifest = Arc::new(describe(
            &self.component,
            &self.plugin,
            Some(&configuration),
            &self.limits,
        )?);
        self.configuration = Some(configuration);
        Ok(self)
    }

    /// Adds an object to the cache, in place of one of the same kind and name.
    pub fn with(mut self, object: Value) -> Result<Self, IsolationError> {
        let key = identity(&object)?;
        Arc::make_mut(&mut self.objects).insert(key, StoredObject::new(object));
        Ok(self)
    }

    /// Adds all of these to the cache.
    pub fn with_all(self, objects: impl IntoIterator<Item = Value>) -> Result<Self, IsolationError> {
        objects.into_iter().try_fold(self, Self::with)
    }

    /// Adds objects to the cache that were read with [`documents::read`].
    #[must_use]
    pub fn with_documents(mut self, documents: &[Document]) -> Self {
        let objects = Arc::make_mut(&mut self.objects);
        for Document { object, kind, name, .. } in documents {
            objects.insert((kind.clone(), name.clone()), StoredObject::new(object.clone()));
        }
        self
    }

    /// Removes all objects from the cache.
    #[must_use]
    pub fn emptied(mut self) -> Self {
        self.objects = Arc::default();
        self
    }

    /// Sets the form in which the plugin sees objects; by default the host's.
    #[must_use]
    pub fn showing(mut self, shown: Shown) -> Self {
        self.shown = shown;
        self
    }

    /// Makes each call once. By default each is made twice, because the same inputs must give the same answer.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.calls = Calls::Once;
        self
    }

    /// Sets the clock, in milliseconds since 1970-01-01T00:00:00Z; by default 0.
    #[must_use]
    pub fn at(mut self, now: u64) -> Self {
        self.now = now;
        self
    }

    /// Sets the count of consecutive failures before the call; by default none.
    #[must_use]
    pub fn after_failures(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// Sets other limits. Otherwise they are the host's defaults, but with time enough for a loaded machine.
    #[must_use]
    pub fn limited(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the limits of the host with time enough for a loaded machine, and has a call fail that takes longer than they allow,
    /// also when it is made again.
    #[must_use]
    pub fn timed(mut self, limits: &Limits) -> Self {
        self.longest = Some(limits.call_time());
        self.limited(Limits {
            call_milliseconds: CALL_MILLISECONDS,
            ..limits.clone()
        })
    }

    /// Returns the plugin's checked manifest.
    pub fn manifest(&self) -> &CheckedManifest {
        &self.manifest
    }

    /// The component's file.
    pub fn component(&self) -> &Path {
        &self.component
    }

    /// Returns the component, with its digest and exports.
    pub fn plugin(&self) -> &PluginComponent {
        &self.plugin
    }

    /// Returns the optional interfaces that the plugin exports.
    pub fn optional(&self) -> Optional {
        self.plugin.optional()
    }

    /// Reconciles a primary, without the host's steps before. The call is made twice, because the same inputs must give
    /// the same answer.
    pub fn reconcile(&self, primary: &Value) -> Result<Reconciled, Box<Failed>> {
        let about = self.about(primary)?;
        let request = self.request(about.shown.clone());
        let answered = self.call(&about, |cache| self.plugin.reconcile(&request, &self.limits, cache))?;
        self.check(&about, answered)
    }

    /// Finalizes a primary, twice as well. The plugin must export `finalizer`.
    pub fn finalize(&self, primary: &Value) -> Result<Finalized, Box<Failed>> {
        self.needs("finalizer", self.plugin.optional().finalizer)?;
        let about = self.about(primary)?;
        let request = self.request(about.shown.clone());
        let answered = self.call(&about, |cache| self.plugin.finalize(&request, &self.limits, cache))?;
        match &answered.answer {
            Finalization::Done => Ok(Finalized::Done),
            Finalization::Pending(outcome) => {
                let outcome = outcome.clone();
                let pending = self.check(&about, answered.map(|_| outcome))?;
                Ok(Finalized::Pending(Box::new(pending)))
            }
        }
    }

    /// Prepares the inputs of a call about this object.
    fn about(&self, object: &Value) -> Result<About, Box<Failed>> {
        let before = |failure| Box::new(Failed::before_the_call(failure));
        let user = |message: String| before(Failure::user(Reason::Failure, message));
        let (kind, name) = identity(object).map_err(|error| user(error.to_string()))?;
        let controllers = &self.manifest.manifest.controllers;
        let controller = controllers
            .iter()
            .find(|controller| controller.kind == kind)
            .ok_or_else(|| {
                user(format!(
                    "the plugin has no controller for {kind}, only for {}",
                    self.kind_names()
                ))
            })?;
        let grants = Arc::new(Grants::new(controller));
        let Optional {
            defaulter, validator, ..
        } = self.plugin.optional();
        let asked = AdmissionExports { defaulter, validator }.about(controller);
        let shown = cache::project(grants.primary_projection(), object, &kind, self.shown).map_err(before)?;
        Ok(About {
            kind,
            name,
            grants,
            asked,
            shown,
        })
    }

    fn request(&self, object: String) -> Request {
        Request {
            object,
            configuration: self.configuration(),
            attempt: self.attempt,
        }
    }

    fn configuration(&self) -> String {
        self.configuration
            .as_ref()
            .map_or_else(|| "{}".to_owned(), Value::to_string)
    }

    /// Makes a call, twice by default, and refuses two different answers.
    fn call<A: PartialEq>(
        &self,
        about: &About,
        call: impl Fn(Cache) -> CallResult<Cache, A>,
    ) -> Result<Answered<A>, Box<Failed>> {
        let once = || {
            let cache = Cache {
                objects: self.objects.clone(),
                grants: about.grants.clone(),
                primary: about.name.clone(),
                now: self.now,
                shown: self.shown,
                reads: Reads::default(),
                log: Vec::new(),
            };
            let call = call(cache);
            let Cache { reads, log, .. } = call.imports;
            match call.result {
                Ok(answer) => Ok(Answered {
                    answer,
                    reads,
                    log,
                    usage: call.usage,
                }),
                Err(failure) => Err(Box::new(Failed {
                    failure,
                    log,
                    reads,
                    is_impure: false,
                })),
            }
        };
        let mut first = once();
        if let (Some(longest), true) = (self.longest, first.is_ok()) {
            first = Ok(within(longest, first?, once)?);
        }
        if self.calls == Calls::Once {
            return first;
        }
        let second = once();
        let is_same = match (&first, &second) {
            (Ok(first), Ok(second)) => first.answer == second.answer,
            (Err(first), Err(second)) => first.failure.reason == second.failure.reason,
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
        };
        if is_same {
            return first;
        }
        let message = "two calls with the same inputs gave different answers; a plugin must be a pure function";
        let failure = Failure::guest(Reason::InvalidAnswer, message);
        let (log, reads) = match first {
            Ok(Answered { log, reads, .. }) => (log, reads),
            Err(failed) => (failed.log, failed.reads),
        };
        Err(Box::new(Failed {
            failure,
            log,
            reads,
            is_impure: true,
        }))
    }

    /// Checks an answer as the host does.
    fn check(&self, about: &About, answered: Answered<Outcome>) -> Result<Reconciled, Box<Failed>> {
        let primary = PrimaryName {
            kind: &about.kind,
            name: &about.name,
        };
        let Answered {
            answer,
            reads,
            log,
            usage,
        } = answered;
        match answer::check(answer, &primary, &about.grants, &self.limits, |kind| {
            Some(self.served(kind))
        }) {
            Ok(answer) => Ok(Reconciled {
                answer,
                reads,
                log,
                usage,
            }),
            Err(failure) => Err(Box::new(Failed {
                failure,
                log,
                reads,
                is_impure: false,
            })),
        }
    }
}

/// A call, made again where it took too long: other processes may have been busy.
fn within<A>(
    longest: Duration,
    mut answered: Answered<A>,
    again: impl Fn() -> Result<Answered<A>, Box<Failed>>,
) -> Result<Answered<A>, Box<Failed>> {
    for _ in 1..TRIES {
        if answered.usage.time <= longest {
            break;
        }
        answered.usage.time = answered.usage.time.min(again()?.usage.time);
    }
    let time = answered.usage.time;
    if time <= longest {
        return Ok(answered);
    }
    let failure = Failure::guest(
        Reason::GuestLimit,
        format!(
            "the call took {time:.1?}, and the host ends it after {longest:?} (callMilliseconds); read and make less, or set \
             spec.limits.callMilliseconds of the Plugin"
        ),
    );
    Err(Box::new(answered.refused(failure)))
}

/// The object that a call is about.
struct About {
    kind: Kind,
    name: Name,
    grants: Arc<Grants>,
    /// Admission functions that are called before the reconcile.
    asked: AdmissionExports,
    /// The object as the plugin sees it.
    shown: String,
}

/// One for the process: plugins are compiled once, and the compiled code is kept for the next process.
pub fn sandbox() -> Result<&'static Sandbox, IsolationError> {
    static SANDBOX: OnceLock<Result<Sandbox, String>> = OnceLock::new();
    let made = SANDBOX.get_or_init(|| {
        let cache = environment::cache().ok_or("set HOME or XDG_CACHE_HOME, for the compiled plugins")?;
        let folder = cache.join("pilothouse").join("testkit");
        std::fs::create_dir_all(&folder).map_err(|error| format!("make {}: {error}", folder.display()))?;
        let options = SandboxOptions::new(folder.join("compiled"), Compiler::InProcess);
        Sandbox::new(options).map_err(|error| error.to_string())
    });
    made.as_ref().map_err(|reason| IsolationError::Sandbox(reason.clone()))
}

fn describe(
    component: &Path,
    plugin: &PluginComponent,
    configuration: Option<&Value>,
    limits: &Limits,
) -> Result<CheckedManifest, IsolationError> {
    let text = plugin
        .describe(configuration.map(Value::to_string).as_deref(), limits)
        .map_err(|failure| IsolationError::Describe {
            component: component.to_owned(),
            failure,
        })?;
    manifest::parse_configured(&text, configuration).map_err(|source| IsolationError::Manifest {
        component: component.to_owned(),
        source,
    })
}

fn identity(object: &Value) -> Result<(Kind, Name), IsolationError> {
    documents::identity(object).map_err(|problem| {
        let named = ["/kind", "/metadata/name"].map(|pointer| object.pointer(pointer).and_then(Value::as_str));
        let named: Vec<&str> = named.into_iter().flatten().collect();
        let object = if named.is_empty() {
            "an object without kind and name".to_owned()
        } else {
            named.join(" ")
        };
        IsolationError::Object { problem, object }
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn called(milliseconds: u64) -> Answered<()> {
        Answered {
            answer: (),
            reads: Reads::default(),
            log: Vec::new(),
            usage: Usage {
                time: Duration::from_millis(milliseconds),
                ..Usage::default()
            },
        }
    }

    #[test]
    fn a_call_fails_that_takes_too_long_each_time() {
        let longest = Duration::from_millis(100);
        let calls = Cell::new(0);
        let timed = |first: u64, others: [u64; 2]| {
            calls.set(0);
            let again = || {
                calls.set(calls.get() + 1);
                Ok(called(others[calls.get() - 1]))
            };
            within(longest, called(first), again).map(|answered| answered.usage.time.as_millis())
        };
        assert_eq!((timed(99, [0, 0]).unwrap(), calls.get()), (99, 0));
        assert_eq!((timed(900, [90, 0]).unwrap(), calls.get()), (90, 1));
        assert_eq!((timed(900, [190, 100]).unwrap(), calls.get()), (100, 2));
        let failed = timed(140, [120, 110]).unwrap_err();
        assert_eq!(failed.failure.reason, Reason::GuestLimit);
        let words = "the call took 110.0ms, and the host ends it after 100ms (callMilliseconds)";
        assert!(failed.failure.message.starts_with(words), "{}", failed.failure.message);
    }
}
