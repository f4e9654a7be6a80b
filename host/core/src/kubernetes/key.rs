//! Names of Kubernetes: kinds and object keys.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Kubernetes kind in one version; the core group is "".
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kind {
    /// The API group; "" for the core group.
    pub group: String,
    /// The API version, such as `v1`.
    pub version: String,
    /// The kind, such as `Deployment`.
    pub kind: String,
}

impl Kind {
    /// A kind from its three parts.
    pub fn new(group: impl Into<String>, version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        }
    }

    /// Parses an object's `apiVersion` and `kind`.
    pub fn from_api_version(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self::new(group, version, kind)
    }

    /// The `apiVersion` of the kind's objects: `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The kind in one word, as kubectl accepts it: `Deployment.v1.apps`, or `Secret.v1` for the core group.
    pub fn title(&self) -> String {
        let Self { group, version, kind } = self;
        if group.is_empty() {
            format!("{kind}.{version}")
        } else {
            format!("{kind}.{version}.{group}")
        }
    }

    /// Reports whether group and kind are equal, whatever the version.
    pub fn same_kind(&self, other: &Self) -> bool {
        self.group == other.group && self.kind == other.kind
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            write!(formatter, "{} {}", self.version, self.kind)
        } else {
            write!(formatter, "{}/{} {}", self.group, self.version, self.kind)
        }
    }
}

/// The namespace and name of an object of a known kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// None for cluster-scoped objects.
    pub namespace: Option<Arc<str>>,
    /// The object's name.
    pub name: Arc<str>,
}

impl Name {
    /// A name within a namespace, or without one.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        Self {
            namespace: namespace.map(Arc::from),
            name: Arc::from(name),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(formatter, "{namespace}/{}", self.name),
            None => formatter.write_str(&self.name),
        }
    }
}

/// The tenant to which an object is counted when work is shared fairly: its namespace, because Kubernetes grants users
/// rights by namespace. A cluster-scoped object is a tenant of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tenant {
    /// All objects of this namespace.
    Namespace(Arc<str>),
    /// The cluster-scoped object of this name.
    Object(Arc<str>),
}

impl Tenant {
    /// The tenant of an object.
    pub fn of(name: &Name) -> Self {
        match &name.namespace {
            Some(namespace) => Self::Namespace(namespace.clone()),
            None => Self::Object(name.name.clone()),
        }
    }
}

/// An object in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Its kind.
    pub kind: Arc<Kind>,
    /// Its namespace and name.
    pub name: Name,
}

impl Key {
    /// A key from its parts.
    pub fn new(kind: Arc<Kind>, name: Name) -> Self {
        Self { kind, name }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind.kind, self.name)
    }
}
