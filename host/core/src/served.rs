//! Owns how a cluster serves a kind: what a request for its objects has to know.

use std::sync::Arc;

use crate::key::{Kind, Name};

/// What the host knows of a kind that the cluster serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindFacts {
    /// Whether its objects stand in namespaces.
    pub namespaced: bool,
    /// Whether it has the status subresource.
    pub has_status: bool,
}

/// A kind that the cluster serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedKind {
    /// The kind.
    pub kind: Arc<Kind>,
    /// The resource's name, such as `deployments`.
    pub plural: String,
    /// Scope and subresources.
    pub facts: KindFacts,
}

impl ServedKind {
    /// The path of one object, or of the collection that it stands in.
    pub fn path(&self, namespace: Option<&str>, name: Option<&str>) -> String {
        let root = if self.kind.group.is_empty() { "/api" } else { "/apis" };
        let mut path = format!("{root}/{}", self.kind.api_version());
        if let Some(namespace) = namespace {
            path.push_str("/namespaces/");
            path.push_str(namespace);
        }
        path.push('/');
        path.push_str(&self.plural);
        if let Some(name) = name {
            path.push('/');
            path.push_str(name);
        }
        path
    }

    /// The path of one object.
    pub fn object_path(&self, name: &Name) -> String {
        self.path(name.namespace.as_deref(), Some(&name.name))
    }
}
