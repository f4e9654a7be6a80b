//! Desired objects of an answer after their check.

use std::collections::HashSet;
use std::iter;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::kubernetes::key::{Key, Kind, Name};
use crate::kubernetes::path::FieldPath;
use crate::kubernetes::served::ServedKind;
use crate::plugin::contract::{Lifecycle, Ownership};
use crate::status::failure::Failure;
use crate::status::reason::Reason;

/// An object that should exist, in canonical form.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredObject {
    /// The cluster's description of the object's kind at the time of the check.
    pub served: ServedKind,
    /// The object's namespace and name.
    pub name: Name,
    /// The object, with `apiVersion`, `kind`, namespace and name filled in.
    pub body: Map<String, Value>,
    /// The lifecycle options of the object.
    pub lifecycle: Lifecycle,
    /// The fields that are left to another manager as soon as one sets them: paths through members of objects.
    pub yields: Vec<FieldPath>,
    /// The objects of the same answer that it comes after: they are Current before it is made or changed, and it is gone
    /// before they are deleted.
    pub after: Vec<Key>,
    /// The token with which it is made once: if it is gone, it is not made again with the same one.
    pub once: Option<String>,
}

impl DesiredObject {
    /// Its kind.
    pub fn kind(&self) -> &Kind {
        &self.served.kind
    }

    /// The object's title in messages: `Deployment a/web`.
    pub fn title(&self) -> String {
        format!("{} {}", self.kind().kind, self.name)
    }
}

/// The object that an answer is about.
#[derive(Clone, Debug)]
pub struct PrimaryName<'a> {
    /// Its kind.
    pub kind: &'a Kind,
    /// The namespace and name of the object.
    pub name: &'a Name,
}

/// A failure for an answer that breaks the contract. Only the plugin's author can mend it.
pub(crate) fn invalid(problem: impl std::fmt::Display) -> Failure {
    Failure::guest(Reason::InvalidAnswer, format!("{problem}; fix the plugin"))
}

pub(crate) fn first_twice<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = HashSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}

/// An object that should exist, of a kind that the plugin can do without and the cluster does not serve.
#[derive(Clone, Debug, PartialEq)]
pub struct UnservedObject {
    /// Its kind.
    pub kind: Arc<Kind>,
    /// Its name; without a namespace in the answer, in that of the primary.
    pub name: Name,
    /// Set where the answer gives no namespace, so that it stands nowhere if the kind is cluster-scoped.
    pub may_be_cluster_scoped: bool,
    /// Owned or contributed.
    pub ownership: Ownership,
    /// The failure of this object alone. It waits until the kind is served.
    pub failure: Failure,
}

impl UnservedObject {
    /// The keys that it may get; none of a contribution, which is an object of others.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        let without_namespace = self.may_be_cluster_scoped.then(|| Name::new(None, &self.name.name));
        let names = iter::once(self.name.clone()).chain(without_namespace.filter(|name| *name != self.name));
        let names = names.filter(|_| self.ownership == Ownership::Owned);
        names.map(|name| Key::new(self.kind.clone(), name))
    }
}
