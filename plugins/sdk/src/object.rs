//! Kinds, and the metadata that all objects have.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A Kubernetes kind; the core group is "".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Kind {
    /// The API group, for example `apps`; empty for the core group.
    pub group: &'static str,
    /// The version, for example `v1`.
    pub version: &'static str,
    /// The kind, for example `Deployment`.
    pub kind: &'static str,
}

impl Kind {
    /// Returns a kind from its group, version and name.
    ///
    /// ```
    /// use pilothouse_plugin::Kind;
    ///
    /// const DEPLOYMENT: Kind = Kind::new("apps", "v1", "Deployment");
    /// assert_eq!(DEPLOYMENT.api_version(), "apps/v1");
    /// assert_eq!(Kind::new("", "v1", "Service").to_string(), "v1 Service");
    /// ```
    pub const fn new(group: &'static str, version: &'static str, kind: &'static str) -> Self {
        Self { group, version, kind }
    }

    /// Returns the `apiVersion` of objects of this kind.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Reports whether an object with this `apiVersion` and `kind` is of this kind.
    pub(crate) fn is(&self, api_version: &str, kind: &str) -> bool {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.kind == kind && self.version == version && self.group == group
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.group.is_empty() {
            write!(formatter, "{}/", self.group)?;
        }
        write!(formatter, "{} {}", self.version, self.kind)
    }
}

/// A Rust type for the objects of a Kubernetes kind.
///
/// The type has the fields that the plugin reads; all others are skipped when an object is read. The derive takes the
/// kind from its attribute and the fields from the type, so that a field that is read is declared:
///
/// ```
/// use pilothouse_plugin::{Fields, Kind, ObjectMeta, Resource};
///
/// #[derive(serde::Deserialize, Resource)]
/// #[resource(group = "kosmos.io", version = "v1", kind = "AppService")]
/// struct AppService {
///     metadata: ObjectMeta,
///     spec: AppServiceSpec,
/// }
///
/// #[derive(serde::Deserialize, Fields)]
/// struct AppServiceSpec {
///     size: u32,
/// }
///
/// assert_eq!(AppService::KIND, Kind::new("kosmos.io", "v1", "AppService"));
/// assert_eq!(AppService::fields(), [".spec.size"]);
/// ```
///
/// An implementation by hand only needs the kind. Then the manifest lists the fields: with
/// [`ControllerManifest::fields`](crate::ControllerManifest::fields) for the primary, with
/// [`Touch::read`](crate::Touch::read) for other kinds.
pub trait Resource {
    /// Kind of the type's objects.
    const KIND: Kind;

    /// Returns the paths of the fields that the type reads, beside the metadata; empty if the type does not list them.
    fn fields() -> Vec<String> {
        Vec::new()
    }
}

#[cfg(feature = "k8s-openapi")]
impl<T: k8s_openapi::Resource> Resource for T {
    const KIND: Kind = Kind::new(T::GROUP, T::VERSION, T::KIND);
}

/// Metadata that plugins read, without the members that only the host uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct ObjectMeta {
    /// The object's name.
    pub name: String,
    /// The object's namespace; none for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// The server's identity of the object: another object of the same name has another uid.
    pub uid: String,
    /// Number of the spec's version, increased with each change.
    pub generation: i64,
    /// Time at which the server created the object, RFC 3339.
    pub creation_timestamp: Option<String>,
    /// Time at which the object's deletion was requested, RFC 3339; none before.
    pub deletion_timestamp: Option<String>,
    /// The object's labels.
    pub labels: BTreeMap<String, String>,
    /// The object's annotations.
    pub annotations: BTreeMap<String, String>,
    /// Owners of the object.
    pub owner_references: Vec<OwnerReference>,
}

impl ObjectMeta {
    /// Reports whether the owner with this uid controls the object, that is, whether it is one of our own children.
    ///
    /// Check this before you use an object that was found by its name: it can belong to another owner.
    pub fn is_controlled_by(&self, uid: &str) -> bool {
        self.owner_references
            .iter()
            .any(|owner| owner.controller && owner.uid == uid)
    }
}

/// One owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct OwnerReference {
    /// The owner's `apiVersion`.
    pub api_version: String,
    /// The owner's kind.
    pub kind: String,
    /// The owner's name.
    pub name: String,
    /// The owner's uid.
    pub uid: String,
    /// True if this owner is the controller, which manages the object.
    pub controller: bool,
}
