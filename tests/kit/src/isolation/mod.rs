//! Owns running one plugin by itself: its component under the host's own sandbox and limits, on a pretended cache of
//! objects, with its answer checked as the host checks it. Leaves what becomes of the answer to scenarios.
//!
//! ```no_run
//! # fn test() -> Result<(), Box<dyn std::error::Error>> {
//! use pilothouse_testkit::isolation::Isolated;
//! use serde_json::json;
//!
//! let reconciled = Isolated::load("target/plugins/app-service.wasm")?.reconcile(&json!({
//!     "apiVersion": "kosmos.io/v1",
//!     "kind": "AppService",
//!     "metadata": {"name": "web", "namespace": "shop", "uid": "1"},
//!     "spec": {"size": 2, "image": "web:1"}
//! }))?;
//! assert_eq!(reconciled.object("Deployment", "web").unwrap()["spec"]["replicas"], 2);
//! # Ok(())
//! # }
//! ```

mod admission;
mod cache;
mod result;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use pilothouse_core::{
    Failure, Kind, Limits, Name,
    answer::{self, KindFacts, PrimaryName},
    contract::{Finalization, Outcome, Request},
    grants::Grants,
    manifest::{self, CheckedManifest, ManifestError},
    reason::Reason,
    served::ServedKind,
    wasi::Wasi,
};
use pilothouse_sandbox::{CallResult, Compiler, LoadError, PluginComponent, Sandbox, SandboxOptions};
use serde_json::Value;
use thiserror::Error;

use self::cache::{Cache, Objects};
pub use self::{
    cache::LogLine,
    result::{Answered, Failed, Finalized, Reconciled},
};
use crate::environment;

/// Tests share machines, so a call gets the most time that can be given; every other limit is the default.
const CALL_MILLISECONDS: u64 = 10_000;

/// The kinds of Kubernetes itself that have no namespace. Of other kinds only the plugin's own CRDs are known.
const CLUSTER_SCOPED: [(&str, &str); 17] = [
    ("", "Namespace"),
    ("", "Node"),
    ("", "PersistentVolume"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "APIService"),
    ("certificates.k8s.io", "CertificateSigningRequest"),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
    ("networking.k8s.io", "IngressClass"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "StorageClass"),
];

/// Why a plugin could not be run in isolation.
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
        /// Why not.
        failure: Failure,
    },
    /// The manifest is not one that the host accepts.
    #[error("check the manifest of {}: {source}", .component.display())]
    Manifest {
        /// The component.
        component: PathBuf,
        /// What is wrong.
        source: ManifestError,
    },
    /// What was given as an object is none.
    #[error("an object has no {member}: {object}")]
    Object {
        /// What it lacks.
        member: &'static str,
        /// The whole of it.
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
}

impl Isolated {
    /// Loads a component and has it describe itself.
    pub fn load(component: impl AsRef<Path>) -> Result<Self, IsolationError> {
        Self::load_granting(component, Wasi::None)
    }

    /// Loads a component that imports interfaces of WASI.
    pub fn load_granting(component: impl AsRef<Path>, wasi: Wasi) -> Result<Self, IsolationError> {
        let component = component.as_ref().to_owned();
        let plugin = sandbox()?.granting(wasi).load(&component)?;
        let limits = Limits {
            call_milliseconds: CALL_MILLISECONDS,
            ..Limits::default()
        };
        let manifest = Arc::new(describe(&component, &plugin, None, &limits)?);
        let objects = Arc::default();
        Ok(Self {
            component,
            plugin,
            manifest,
            configuration: None,
            objects,
            now: 0,
            attempt: 0,
            limits,
        })
    }

    /// Gives the plugin a configuration, with which it describes itself anew.
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

    /// Puts an object into the cache, in place of one of the same kind and name.
    pub fn with(mut self, object: Value) -> Result<Self, IsolationError> {
        let key = identity(&object)?;
        Arc::make_mut(&mut self.objects).insert(key, object);
        Ok(self)
    }

    /// Sets the clock, in milliseconds since 1970-01-01T00:00:00Z; it stands at 0 otherwise.
    #[must_use]
    pub fn at(mut self, now: u64) -> Self {
        self.now = now;
        self
    }

    /// Says how many failures in a row came before the call; none otherwise.
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

    /// What the plugin says of itself, checked.
    pub fn manifest(&self) -> &CheckedManifest {
        &self.manifest
    }

    /// Reconciles a primary. The call is made twice, because the same inputs must give the same answer.
    pub fn reconcile(&self, primary: &Value) -> Result<Reconciled, Box<Failed>> {
        let about = self.about(primary)?;
        let request = self.request(about.shown.clone());
        let answered = self.twice(&about, |cache| self.plugin.reconcile(&request, &self.limits, cache))?;
        self.check(&about, answered)
    }

    /// Finalizes a primary, twice as well. The plugin must export `finalizer`.
    pub fn finalize(&self, primary: &Value) -> Result<Finalized, Box<Failed>> {
        let about = self.about(primary)?;
        let request = self.request(about.shown.clone());
        let answered = self.twice(&about, |cache| self.plugin.finalize(&request, &self.limits, cache))?;
        let Answered {
            answer,
            reads,
            log,
            usage,
        } = answered;
        match answer {
            Finalization::Done => Ok(Finalized::Done),
            Finalization::Pending(answer) => {
                let answered = Answered {
                    answer,
                    reads,
                    log,
                    usage,
                };
                self.check(&about, answered).map(Box::new).map(Finalized::Pending)
            }
        }
    }

    /// What a call about this object is made of.
    fn about(&self, object: &Value) -> Result<About, Box<Failed>> {
        let before = |failure| Box::new(Failed::before_the_call(failure));
        let user = |message: String| before(Failure::user(Reason::Failure, message));
        let (kind, name) = identity(object).map_err(|error| user(error.to_string()))?;
        let controllers = &self.manifest.manifest.controllers;
        let controller = controllers
            .iter()
            .find(|controller| controller.kind == kind)
            .ok_or_else(|| {
                let kinds: Vec<String> = controllers
                    .iter()
                    .map(|controller| controller.kind.to_string())
                    .collect();
                user(format!(
                    "the plugin has no controller for {kind}, only for {}",
                    kinds.join(", ")
                ))
            })?;
        let grants = Arc::new(Grants::new(controller));
        let shown = cache::project(grants.primary_projection(), object, &kind).map_err(before)?;
        Ok(About {
            kind,
            name,
            grants,
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

    /// Makes a call twice, and refuses two answers.
    fn twice<A: PartialEq>(
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
                reads: BTreeSet::new(),
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
                Err(failure) => Err(Box::new(Failed { failure, log, reads })),
            }
        };
        let (first, second) = (once()?, once()?);
        if first.answer == second.answer {
            return Ok(first);
        }
        let message = "two calls with the same inputs gave different answers; a plugin must be a pure function";
        Err(Box::new(first.refused(Failure::guest(Reason::InvalidAnswer, message))))
    }

    /// Holds an answer against what the host accepts.
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
            Err(failure) => Err(Box::new(Failed { failure, log, reads })),
        }
    }

    /// What a cluster would say of a kind.
    fn served(&self, kind: &Kind) -> ServedKind {
        let own = self
            .manifest
            .crds
            .iter()
            .find(|crd| crd.group == kind.group && crd.kind == kind.kind);
        let namespaced = match own {
            Some(crd) => crd.definition.pointer("/spec/scope").and_then(Value::as_str) == Some("Namespaced"),
            None => !CLUSTER_SCOPED.contains(&(kind.group.as_str(), kind.kind.as_str())),
        };
        ServedKind {
            kind: Arc::new(kind.clone()),
            plural: format!("{}s", kind.kind.to_lowercase()),
            facts: KindFacts {
                namespaced,
                has_status: true,
            },
        }
    }
}

/// The object that a call is about.
struct About {
    kind: Kind,
    name: Name,
    grants: Arc<Grants>,
    /// What the plugin sees of it.
    shown: String,
}

/// One for the process: plugins are compiled once, and the compiled code is kept for the next process.
fn sandbox() -> Result<&'static Sandbox, IsolationError> {
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
    let configuration = configuration.map(Value::to_string);
    let text = plugin
        .describe(configuration.as_deref(), limits)
        .map_err(|failure| IsolationError::Describe {
            component: component.to_owned(),
            failure,
        })?;
    manifest::parse(&text).map_err(|source| IsolationError::Manifest {
        component: component.to_owned(),
        source,
    })
}

fn identity(object: &Value) -> Result<(Kind, Name), IsolationError> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let missing = |member| IsolationError::Object {
        member,
        object: object.to_string(),
    };
    let api_version = text("/apiVersion").ok_or_else(|| missing("apiVersion"))?;
    let kind = text("/kind").ok_or_else(|| missing("kind"))?;
    let name = text("/metadata/name").ok_or_else(|| missing("metadata.name"))?;
    Ok((
        Kind::from_api_version(api_version, kind),
        Name::new(text("/metadata/namespace"), name),
    ))
}
