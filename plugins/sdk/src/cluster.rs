//! Reads of a plugin: objects, queries and the time, answered by the host or, in native tests, by a fake.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::call;
use crate::locate;
use crate::object::{Kind, ObjectMeta, Resource};
use crate::outcome::Failure;
use crate::raw::types;
use crate::time::Moment;

/// The cluster as a plugin sees it.
///
/// Every read is recorded as a dependency: when it would return something else, the resource is reconciled again. Only
/// kinds that the manifest declares can be read, and objects only have the declared fields.
///
/// ```
/// use pilothouse_plugin::{Cluster, Failure, Kind, ListOptions, ObjectMeta, Resource};
///
/// #[derive(serde::Deserialize)]
/// struct Service {
///     metadata: ObjectMeta,
/// }
///
/// impl Resource for Service {
///     const KIND: Kind = Kind::new("", "v1", "Service");
/// }
///
/// fn exposes_web(cluster: &Cluster) -> Result<bool, Failure> {
///     if cluster.get::<Service>("default", "web")?.is_some() {
///         return Ok(true);
///     }
///     let labelled = ListOptions::new().namespace("default").labels("app=web").field(".spec.type", "NodePort").limit(1);
///     Ok(!cluster.list::<Service>(labelled)?.is_empty())
/// }
/// # exposes_web(&pilothouse_plugin::testing::FakeCluster::new().cluster()).unwrap();
/// ```
#[derive(Debug)]
pub struct Cluster {
    source: Source,
}

/// Label with the owner's uid, on objects without an owner reference.
pub(crate) const OWNER_LABEL: &str = "pilothouse.dev/owner";

/// Source of the answers.
#[derive(Debug)]
enum Source {
    #[cfg(target_family = "wasm")]
    Host,
    #[cfg(not(target_family = "wasm"))]
    Fake(Box<dyn Fake>),
}

/// Answers in place of the host, in tests.
#[cfg(not(target_family = "wasm"))]
pub(crate) trait Fake: std::fmt::Debug {
    fn now(&self, granularity: u64) -> u64;
    fn reached(&self, moment: u64) -> bool;
    fn get(&self, kind: &types::GroupVersionKind, namespace: Option<&str>, name: &str) -> Option<String>;
    fn list(&self, kind: &types::GroupVersionKind, options: &types::ListOptions) -> Vec<String>;
}

impl Cluster {
    #[cfg(target_family = "wasm")]
    pub(crate) fn of_host() -> Self {
        Self { source: Source::Host }
    }

    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn of_fake(fake: impl Fake + 'static) -> Self {
        Self {
            source: Source::Fake(Box::new(fake)),
        }
    }

    /// Returns the object of this name; none if it does not exist. For cluster-scoped kinds the namespace is `None`.
    ///
    /// Fails if the object does not have the form of `T`, naming object and field.
    pub fn get<'a, T: Resource + DeserializeOwned>(
        &self,
        namespace: impl Into<Option<&'a str>>,
        name: &str,
    ) -> Result<Option<T>, Failure> {
        let namespace = namespace.into();
        self.raw_get(&T::KIND, namespace, name)
            .map(|json| read(&json))
            .transpose()
    }

    /// Returns an object like [`get`](Self::get), as JSON.
    pub fn get_json<'a>(
        &self,
        kind: &Kind,
        namespace: impl Into<Option<&'a str>>,
        name: &str,
    ) -> Result<Option<Value>, Failure> {
        self.raw_get(kind, namespace.into(), name)
            .map(|json| read(&json))
            .transpose()
    }

    /// Returns the objects that match, in the order of namespace and name.
    ///
    /// Fails if one of them does not have the form of `T`, naming object and field.
    pub fn list<T: Resource + DeserializeOwned>(&self, options: ListOptions) -> Result<Vec<T>, Failure> {
        self.raw_list(&T::KIND, options).iter().map(|json| read(json)).collect()
    }

    /// Returns objects like [`list`](Self::list), as JSON.
    pub fn list_json(&self, kind: &Kind, options: ListOptions) -> Result<Vec<Value>, Failure> {
        self.raw_list(kind, options).iter().map(|json| read(json)).collect()
    }

    /// Returns the objects of a kind that the resource with this metadata owns in its own namespace (for a
    /// cluster-scoped resource, in every one), in the order of namespace and name. The host finds them by an index.
    ///
    /// The manifest declares the kind with [`owns`](crate::ControllerManifest::owns) and
    /// [`reads`](crate::ControllerManifest::reads).
    pub fn children<T: Resource + DeserializeOwned>(&self, owner: &ObjectMeta) -> Result<Vec<T>, Failure> {
        self.owned(owner, owner.namespace.as_deref())
    }

    /// Returns objects like [`children`](Self::children), in every namespace that the manifest declares.
    pub fn children_anywhere<T: Resource + DeserializeOwned>(&self, owner: &ObjectMeta) -> Result<Vec<T>, Failure> {
        self.owned(owner, None)
    }

    /// Returns the objects with an owner reference to the owner, or the host's label (kept, or in another namespace).
    fn owned<T: Resource + DeserializeOwned>(
        &self,
        owner: &ObjectMeta,
        namespace: Option<&str>,
    ) -> Result<Vec<T>, Failure> {
        #[derive(serde::Deserialize)]
        struct Named {
            metadata: ObjectMeta,
        }
        let ObjectMeta { uid, .. } = owner;
        let place = |options: ListOptions| match namespace {
            Some(namespace) => options.namespace(namespace),
            None => options,
        };
        let referring = place(ListOptions::new().field(".metadata.ownerReferences[].uid", uid));
        let labelled = place(ListOptions::new().labels(format!("{OWNER_LABEL}={uid}")));
        let mut found = self.raw_list(&T::KIND, referring);
        let by_label = self.raw_list(&T::KIND, labelled);
        if !by_label.is_empty() {
            found.extend(by_label);
            let place = |json: &String| {
                let named = serde_json::from_str(json).ok();
                named.map(|Named { metadata }| (metadata.namespace, metadata.name))
            };
            found.sort_by_cached_key(place);
            found.dedup();
        }
        found.iter().map(|json| read(json)).collect()
    }

    /// Returns the time, rounded down to a multiple of the granularity (at least one second). The resource is
    /// reconciled again when the result changes, so use the coarsest granularity that is sufficient;
    /// [`reached`](Self::reached) requeues only once.
    pub fn now(&self, granularity: Duration) -> Moment {
        let granularity = u64::try_from(granularity.as_millis()).unwrap_or(u64::MAX).max(1000);
        Moment::from_millis(match &self.source {
            #[cfg(target_family = "wasm")]
            Source::Host => crate::raw::clock::now(granularity),
            #[cfg(not(target_family = "wasm"))]
            Source::Fake(fake) => fake.now(granularity),
        })
    }

    /// Reports whether a moment has come. If not, the resource is reconciled again when it does.
    pub fn reached(&self, moment: Moment) -> bool {
        match &self.source {
            #[cfg(target_family = "wasm")]
            Source::Host => crate::raw::clock::reached(moment.as_millis()),
            #[cfg(not(target_family = "wasm"))]
            Source::Fake(fake) => fake.reached(moment.as_millis()),
        }
    }

    fn raw_get(&self, kind: &Kind, namespace: Option<&str>, name: &str) -> Option<String> {
        match &self.source {
            #[cfg(target_family = "wasm")]
            Source::Host => crate::raw::cluster::get(&kind.lower(), namespace, name),
            #[cfg(not(target_family = "wasm"))]
            Source::Fake(fake) => fake.get(&kind.lower(), namespace, name),
        }
    }

    fn raw_list(&self, kind: &Kind, options: ListOptions) -> Vec<String> {
        match &self.source {
            #[cfg(target_family = "wasm")]
            Source::Host => crate::raw::cluster::list(&kind.lower(), &options.lower()),
            #[cfg(not(target_family = "wasm"))]
            Source::Fake(fake) => fake.list(&kind.lower(), &options.lower()),
        }
    }
}

impl Kind {
    fn lower(&self) -> types::GroupVersionKind {
        types::GroupVersionKind {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            kind: self.kind.to_owned(),
        }
    }
}

/// Options of a list. All conditions must hold; without any, every object in every namespace matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct ListOptions {
    namespace: Option<String>,
    labels: Option<String>,
    fields: Vec<(String, String)>,
    limit: Option<u32>,
}

impl ListOptions {
    /// Selects all objects of the kind.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects only objects in this namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Selects only objects that this label selector matches, for example `app=web,tier in (a,b)`. A
    /// [`LabelSelector`](crate::LabelSelector) is given as its text.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Selects only objects that have this value at a declared path: `.field(".spec.listen", 8080)`. With `[]` in the
    /// path, those of which any element has it.
    pub fn field(mut self, path: impl Into<String>, value: impl ToString) -> Self {
        self.fields.push((path.into(), value.to_string()));
        self
    }

    /// Limits the number of objects, the first in the order of namespace and name.
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit);
        self
    }

    fn lower(self) -> types::ListOptions {
        let Self {
            namespace,
            labels,
            fields,
            limit,
        } = self;
        types::ListOptions {
            namespace,
            label_selector: labels,
            field_selector: fields,
            limit,
        }
    }
}

/// Deserializes an object of the cache as the author's type.
fn read<T: DeserializeOwned>(json: &str) -> Result<T, Failure> {
    serde_json::from_str(json).map_err(|error| {
        let cause = locate::explain(json, &error);
        Failure::Permanent(format!(
            "{} cannot be read: {cause}; correct the field",
            call::name_of(json)
        ))
    })
}
