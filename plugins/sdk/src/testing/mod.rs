//! Replaces the host in native tests: a cluster of objects given as JSON, with the manifest's rules in force.
//!
//! The plugin is called in the same way as by the host, from JSON to JSON. It sees only declared fields, so one
//! that is forgotten there is missing in a test and not in a cluster. The first call checks the plugin's description,
//! like `pilothouse build`: a CRD whose status cannot hold the host's fields, a field that the CRD does not have or a
//! finalizer that is not exported fails the test.
//!
//! ```
//! use pilothouse_plugin::testing::FakeCluster;
//! # use pilothouse_plugin::*;
//! # use serde_json::json;
//! # struct Greeter;
//! # #[derive(serde::Deserialize)] struct Greeting { metadata: ObjectMeta, spec: Spec }
//! # #[derive(serde::Deserialize)] struct Spec { text: String }
//! # impl Resource for Greeting { const KIND: Kind = Kind::new("example.com", "v1", "Greeting"); }
//! # impl Plugin for Greeter {
//! #     type Config = NoConfig;
//! #     type Controllers = Self;
//! #     fn manifest(_: &NoConfig) -> Manifest {
//! #         Manifest::new("greeter", "0.1.0", "Greets.").controller(
//! #             ControllerManifest::of::<Greeting>("greeter").fields([".spec"]),
//! #         )
//! #     }
//! # }
//! # impl Controller for Greeter {
//! #     type Config = NoConfig;
//! #     type Object = Greeting;
//! #     fn reconcile(request: Request<Greeting>, _: &Cluster) -> Result<Outcome, Failure> {
//! #         Ok(Outcome::new().status(json!({"said": request.object.spec.text})))
//! #     }
//! # }
//! export!(Greeter);
//!
//! let greeting = json!({
//!     "apiVersion": "example.com/v1", "kind": "Greeting",
//!     "metadata": {"name": "hello", "namespace": "default"},
//!     "spec": {"text": "Hello!"},
//! });
//! let answer = FakeCluster::new().reconcile::<Greeter>(greeting).unwrap();
//! assert_eq!(answer.status, Some(json!({"said": "Hello!"})));
//! ```

mod answer;
mod description;
mod fields;
mod grants;
mod optional;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use serde_json::{Value, json};

pub use self::answer::{Answer, DesiredObject, Ownership};
use self::fields::FieldPath;
use self::grants::Grants;
pub use self::optional::Finalized;
use crate::cluster::{Cluster, Fake};
use crate::dispatch;
use crate::optional::ExportedPlugin;
use crate::outcome::Failure;
use crate::raw::types;
use crate::selector::LabelSelector;
use crate::time::Moment;

/// Default time of the clock: 2025-01-01T00:00:00Z.
const START: Moment = Moment::from_millis(1_735_689_600_000);

/// Returns the manifest as the host gets it, or the reason why the configuration can't be used.
pub fn describe<P: ExportedPlugin>(configuration: Option<&Value>) -> Result<Value, String> {
    let manifest = dispatch::describe::<P>(configuration.map(ToString::to_string).as_deref())?;
    serde_json::from_str(&manifest).map_err(|error| format!("the manifest is not JSON: {error}"))
}

/// A cluster that answers a plugin in a native test. Clones share their objects, their clock and their recorded reads.
#[derive(Clone, Debug, Default)]
pub struct FakeCluster {
    state: Rc<RefCell<State>>,
}

#[derive(Debug)]
struct State {
    /// Objects by kind, namespace and name, which is the order in which they are listed.
    objects: BTreeMap<(KindKey, Option<String>, String), Value>,
    now: Moment,
    configuration: Value,
    /// Set if the description of a plugin is checked before it is called.
    is_checked: bool,
    /// Names of findings of that check that are accepted.
    accepted: BTreeSet<String>,
    reads: Vec<Read>,
    /// Rights of the manifest; none, and so no limits, while no plugin is called.
    grants: Option<Rc<Grants>>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            now: START,
            configuration: Value::Null,
            is_checked: true,
            accepted: BTreeSet::new(),
            reads: Vec::new(),
            grants: None,
        }
    }
}

/// Group, version and kind.
type KindKey = (String, String, String);

/// A read, on which the answer therefore depends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Read {
    /// One object.
    Get {
        /// `apiVersion` and kind, for example `apps/v1 Deployment`.
        kind: String,
        /// Namespace.
        namespace: Option<String>,
        /// Name.
        name: String,
    },
    /// All objects that match.
    List {
        /// `apiVersion` and kind.
        kind: String,
        /// Namespace.
        namespace: Option<String>,
        /// The label selector.
        label_selector: Option<String>,
        /// The conditions on fields.
        field_selector: Vec<(String, String)>,
    },
    /// The time, with this granularity in milliseconds.
    Now(u64),
    /// A comparison of the time with a moment.
    Reached(Moment),
}

impl fmt::Display for Read {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get { kind, namespace, name } => match namespace {
                Some(namespace) => write!(formatter, "get {kind} {namespace}/{name}"),
                None => write!(formatter, "get {kind} {name}"),
            },
            Self::List {
                kind,
                namespace,
                label_selector,
                field_selector,
            } => {
                write!(formatter, "list {kind}")?;
                if let Some(namespace) = namespace {
                    write!(formatter, " in {namespace}")?;
                }
                if let Some(labels) = label_selector {
                    write!(formatter, " labelled {labels}")?;
                }
                field_selector
                    .iter()
                    .try_for_each(|(path, value)| write!(formatter, " with {path}={value}"))
            }
            Self::Now(granularity) => write!(formatter, "now to {granularity} ms"),
            Self::Reached(moment) => write!(formatter, "whether {moment} has come"),
        }
    }
}

impl FakeCluster {
    /// Returns a cluster without objects. Its clock stands at 2025-01-01T00:00:00Z.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an object, or replaces the one of this kind, namespace and name.
    ///
    /// # Panics
    ///
    /// When the object has no apiVersion, kind or name.
    #[must_use]
    pub fn with(self, object: Value) -> Self {
        let key = key_of(&object);
        self.state.borrow_mut().objects.insert(key, object);
        self
    }

    /// Removes an object.
    ///
    /// # Panics
    ///
    /// When there is no such object.
    #[must_use]
    pub fn without(self, api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Self {
        let key = (
            kind_key(api_version, kind),
            namespace.map(str::to_owned),
            name.to_owned(),
        );
        let gone = self.state.borrow_mut().objects.remove(&key);
        assert!(gone.is_some(), "there is no {api_version} {kind} {name} to take away");
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn at(self, now: Moment) -> Self {
        self.state.borrow_mut().now = now;
        self
    }

    /// Sets the plugin's configuration.
    #[must_use]
    pub fn configuration(self, configuration: Value) -> Self {
        self.state.borrow_mut().configuration = configuration;
        self
    }

    /// Skips the check of the plugin's description, for a plugin with an intended contradiction. For a warning,
    /// [`accepting`](Self::accepting) skips less.
    #[must_use]
    pub fn unchecked(self) -> Self {
        self.state.borrow_mut().is_checked = false;
        self
    }

    /// Accepts warnings of that check by their names, for a CRD that others publish. All other findings still count,
    /// and a name without a warning fails the test.
    ///
    /// ```
    /// # use pilothouse_plugin::testing::FakeCluster;
    /// let cluster = FakeCluster::new().accepting(["status-fields"]);
    /// # drop(cluster);
    /// ```
    #[must_use]
    pub fn accepting(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.state
            .borrow_mut()
            .accepted
            .extend(names.into_iter().map(Into::into));
        self
    }

    /// Adds an object that another one owns, with the owner reference that the host gives its children.
    ///
    /// # Panics
    ///
    /// Like [`with`](Self::with), and when the owner has no uid.
    #[must_use]
    pub fn with_child(self, owner: &Value, mut child: Value) -> Self {
        let uid = &owner["metadata"]["uid"];
        assert!(uid.is_string(), "the owner has no metadata.uid: {owner}");
        child["metadata"]["ownerReferences"] = json!([{
            "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"], "uid": uid,
            "controller": true,
        }]);
        self.with(child)
    }

    /// Returns the reads so far, in order.
    pub fn reads(&self) -> Vec<Read> {
        self.state.borrow().reads.clone()
    }

    /// Returns the cluster for tests that call a controller directly. Every field of every object is visible.
    pub fn cluster(&self) -> Cluster {
        Cluster::of_fake(self.clone())
    }

    /// Calls the plugin for an object, like the host: with the configuration, and the declared fields.
    ///
    /// # Panics
    ///
    /// When the plugin reads or desires an object that its manifest does not declare, so that the host would refuse the
    /// call; when the plugin cannot be described under the configuration; when its manifest, its CRDs and the
    /// interfaces that it exports do not agree.
    pub fn reconcile<P: ExportedPlugin>(&self, object: Value) -> Result<Answer, Failure> {
        self.reconcile_after::<P>(object, 0)
    }

    /// Calls the plugin like [`reconcile`](Self::reconcile), after so many consecutive failures.
    pub fn reconcile_after<P: ExportedPlugin>(&self, object: Value, attempt: u32) -> Result<Answer, Failure> {
        let (request, grants) = self.request::<P>(&object, attempt);
        let outcome = self.granted(&grants, || dispatch::reconcile::<P>(&request, &self.cluster()));
        let answer = Answer::read(outcome?);
        answer.desired.iter().for_each(|desired| grants.check_desired(desired));
        Ok(answer)
    }

    /// Returns the plugin's input for an object, and its rights in the call.
    fn request<P: ExportedPlugin>(&self, object: &Value, attempt: u32) -> (types::Request, Rc<Grants>) {
        let grants = self.grants::<P>(object);
        let request = types::Request {
            object: grants.visible_of_primary(object).to_string(),
            configuration: self.configuration_json(),
            attempt,
            extensions: "{}".to_owned(),
        };
        (request, grants)
    }

    /// Returns the manifest's rights of the controller for an object's kind.
    fn grants<P: ExportedPlugin>(&self, object: &Value) -> Rc<Grants> {
        let (_, _, name) = key_of(object);
        let configuration = self.state.borrow().configuration.clone();
        if self.state.borrow().is_checked {
            description::check::<P>(&configuration.to_string(), &self.state.borrow().accepted);
        }
        let manifest =
            describe::<P>(Some(&configuration)).unwrap_or_else(|error| panic!("the plugin refuses: {error}"));
        let grants = Grants::of(&manifest, object).unwrap_or_else(|| {
            panic!("under this configuration the manifest has no controller for the kind of {name}")
        });
        Rc::new(grants)
    }

    fn configuration_json(&self) -> String {
        match &self.state.borrow().configuration {
            Value::Null => "{}".to_owned(),
            configuration => configuration.to_string(),
        }
    }

    /// Makes a call with the manifest's rights in force.
    fn granted<Answer>(&self, grants: &Rc<Grants>, call: impl FnOnce() -> Answer) -> Answer {
        self.state.borrow_mut().grants = Some(grants.clone());
        let answer = call();
        self.state.borrow_mut().grants = None;
        answer
    }
}

impl Fake for FakeCluster {
    fn now(&self, granularity: u64) -> u64 {
        let mut state = self.state.borrow_mut();
        state.reads.push(Read::Now(granularity));
        state.now.as_millis() / granularity * granularity
    }

    fn reached(&self, moment: u64) -> bool {
        let mut state = self.state.borrow_mut();
        state.reads.push(Read::Reached(Moment::from_millis(moment)));
        state.now.as_millis() >= moment
    }

    fn get(&self, kind: &types::GroupVersionKind, namespace: Option<&str>, name: &str) -> Option<String> {
        let mut state = self.state.borrow_mut();
        let namespace = namespace.map(str::to_owned);
        state.reads.push(Read::Get {
            kind: shown(kind),
            namespace: namespace.clone(),
            name: name.to_owned(),
        });
        let object = state.objects.get(&(key(kind), namespace.clone(), name.to_owned()));
        match &state.grants {
            None => object.map(ToString::to_string),
            Some(grants) => {
                let touch = grants.readable(kind);
                grants.check_place(touch, namespace.as_deref(), &format!("{} {name} is read", shown(kind)));
                touch.check_name(name);
                object
                    .and_then(|object| touch.visible(object))
                    .map(|object| object.to_string())
            }
        }
    }

    fn list(&self, kind: &types::GroupVersionKind, options: &types::ListOptions) -> Vec<String> {
        let types::ListOptions {
            namespace,
            label_selector,
            field_selector,
            limit,
        } = options;
        let mut state = self.state.borrow_mut();
        state.reads.push(Read::List {
            kind: shown(kind),
            namespace: namespace.clone(),
            label_selector: label_selector.clone(),
            field_selector: field_selector.clone(),
        });
        let touch = state.grants.as_ref().map(|grants| {
            let touch = grants.readable(kind);
            grants.check_place(touch, namespace.as_deref(), &format!("{} is listed", shown(kind)));
            touch
        });
        let conditions: Vec<_> = field_selector
            .iter()
            .map(|(path, value)| {
                if let Some(touch) = touch {
                    touch.check_field(path);
                }
                (FieldPath::parse(path).unwrap_or_else(|error| panic!("{error}")), value)
            })
            .collect();
        // The host would refuse the call.
        let selector: LabelSelector = match label_selector.as_deref().unwrap_or_default().parse() {
            Ok(selector) => selector,
            Err(error) => panic!("{error}"),
        };
        let matches = |object: &Value| {
            conditions.iter().all(|(path, value)| path.has_value(object, value))
                && selector.matches_with(labels(object))
        };
        state
            .objects
            .iter()
            .filter(|((of_kind, in_namespace, _), object)| {
                *of_kind == key(kind) && (namespace.is_none() || in_namespace == namespace) && matches(object)
            })
            .filter_map(|(_, object)| match touch {
                None => Some(object.clone()),
                Some(touch) => touch.visible(object),
            })
            .take(limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX)))
            .map(|object| object.to_string())
            .collect()
    }
}

/// Returns the labels of an object, by name.
fn labels<'a>(object: &'a Value) -> impl Fn(&str) -> Option<&'a str> {
    move |name| object["metadata"]["labels"].get(name).and_then(Value::as_str)
}

/// Returns the key of an object given by a test.
fn key_of(object: &Value) -> (KindKey, Option<String>, String) {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let needed = |pointer| text(pointer).unwrap_or_else(|| panic!("the object has no {pointer}: {object}"));
    let kind = kind_key(needed("/apiVersion"), needed("/kind"));
    (
        kind,
        text("/metadata/namespace").map(str::to_owned),
        needed("/metadata/name").to_owned(),
    )
}

fn kind_key(api_version: &str, kind: &str) -> KindKey {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    (group.to_owned(), version.to_owned(), kind.to_owned())
}

fn key(kind: &types::GroupVersionKind) -> KindKey {
    (kind.group.clone(), kind.version.clone(), kind.kind.clone())
}

fn shown(kind: &types::GroupVersionKind) -> String {
    let types::GroupVersionKind { group, version, kind } = kind;
    if group.is_empty() {
        format!("{version} {kind}")
    } else {
        format!("{group}/{version} {kind}")
    }
}

#[cfg(test)]
mod tests;
