//! Owns what a plugin may ask: objects, queries and the time, answered by the host or, in native tests, by a fake.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::dispatch;
use crate::locate;
use crate::object::{Kind, ObjectMeta, Resource};
use crate::outcome::Failure;
use crate::raw::types;
use crate::time::Moment;

/// The cluster as a plugin sees it.
///
/// What is asked here, the answer depends on: when a read would give something else, the resource is reconciled again.
/// Only what the manifest declares can be read, and only the declared fields are there.
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

/// The label with the owner's uid, on objects that no owner reference holds.
pub(crate) const OWNER_LABEL: &str = "pilothouse.dev/owner";

/// Who answers.
#[derive(Debug)]
enum Source {
    #[cfg(target_family = "wasm")]
    Host,
    #[cfg(not(target_family = "wasm"))]
    Fake(crate::testing::FakeCluster),
}

impl Cluster {
    #[cfg(target_family = "wasm")]
    pub(crate) fn of_host() -> Self {
        Self { source: Source::Host }
    }

    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn of_fake(fake: crate::testing::FakeCluster) -> Self {
        Self {
            source: Source::Fake(fake),
        }
    }

    /// The object of this name; none when there is none. Kinds of the cluster's scope have the namespace `None`.
    ///
    /// Fails when the object has not the form of `T`, naming object and field.
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

    /// As [`get`](Self::get), without a type.
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

    /// The objects that match, in the order of namespace and name.
    ///
    /// Fails when one of them has not the form of `T`, naming object and field.
    pub fn list<T: Resource + DeserializeOwned>(&self, options: ListOptions) -> Result<Vec<T>, Failure> {
        self.raw_list(&T::KIND, options).iter().map(|json| read(json)).collect()
    }

    /// As [`list`](Self::list), without a type.
    pub fn list_json(&self, kind: &Kind, options: ListOptions) -> Result<Vec<Value>, Failure> {
        self.raw_list(kind, options).iter().map(|json| read(json)).collect()
    }

    /// What the resource with this metadata owns of a kind in its own namespace; for one of cluster scope, in every namespace. In the
    /// order of namespace and name. The host finds it by an index.
    ///
    /// The manifest declares the kind with [`owns`](crate::ControllerManifest::owns) and
    /// [`reads`](crate::ControllerManifest::reads).
    pub fn children<T: Resource + DeserializeOwned>(&self, owner: &ObjectMeta) -> Result<Vec<T>, Failure> {
        self.owned(owner, owner.namespace.as_deref())
    }

    /// As [`children`](Self::children), in every namespace that the manifest declares.
    pub fn children_anywhere<T: Resource + DeserializeOwned>(&self, owner: &ObjectMeta) -> Result<Vec<T>, Failure> {
        self.owned(owner, None)
    }

    /// What an owner reference ties to the owner, and what the host's label does: what is kept, or in another namespace.
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

    /// The time, rounded down to a multiple of the granularity (at least one second). The resource is reconciled again
    /// when it moves on, so ask as coarsely as will do; [`reached`](Self::reached) wakes once.
    pub fn now(&self, granularity: Duration) -> Moment {
        let granularity = u64::try_from(granularity.as_millis()).unwrap_or(u64::MAX).max(1000);
        Moment::from_millis(match &self.source {
            #[cfg(target_family = "wasm")]
            Source::Host => crate::raw::clock::now(granularity),
            #[cfg(not(target_family = "wasm"))]
            Source::Fake(fake) => fake.now(granularity),
        })
    }

    /// Whether a moment has come. If not, the resource is reconciled again when it does.
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

/// Which objects of a kind to list. All conditions must hold; without any it is every object in every namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct ListOptions {
    namespace: Option<String>,
    labels: Option<String>,
    fields: Vec<(String, String)>,
    limit: Option<u32>,
}

impl ListOptions {
    /// All objects of the kind.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only objects in this namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Only objects that this label selector matches, for example `app=web,tier in (a,b)`. A
    /// [`LabelSelector`](crate::LabelSelector) is given as its text.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Only objects that have this value at a declared path: `.field(".spec.listen", 8080)`. With `[]` in the path,
    /// those of which any element has it.
    pub fn field(mut self, path: impl Into<String>, value: impl ToString) -> Self {
        self.fields.push((path.into(), value.to_string()));
        self
    }

    /// At most so many, the first in the order of namespace and name.
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

/// An object of the cache in the author's form.
fn read<T: DeserializeOwned>(json: &str) -> Result<T, Failure> {
    serde_json::from_str(json).map_err(|error| {
        let cause = locate::explain(json, &error);
        Failure::Permanent(format!(
            "{} cannot be read: {cause}; correct the field",
            dispatch::name_of(json)
        ))
    })
}
