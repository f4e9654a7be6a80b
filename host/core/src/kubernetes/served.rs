//! Describes a kind as the cluster serves it: what a request for its objects needs.

use std::sync::Arc;

use crate::kubernetes::key::{Kind, Name};
use crate::plugin::manifest::BroughtCrd;

/// Scope and subresources of a served kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindFacts {
    /// Set if its objects are namespaced.
    pub namespaced: bool,
    /// Set if it has the status subresource.
    pub has_status: bool,
}

/// A kind that the cluster serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedKind {
    /// The kind.
    pub kind: Arc<Kind>,
    /// The resource's name, such as `deployments`.
    pub plural: String,
    /// Short names, such as `deploy`.
    pub short_names: Vec<String>,
    /// Scope and subresources.
    pub facts: KindFacts,
}

impl ServedKind {
    /// The kind as this CRD will serve it once installed; none if the CRD has another kind, or lacks the version.
    pub fn of_crd(crd: &BroughtCrd, kind: &Kind) -> Option<Self> {
        let spec = &crd.definition["spec"];
        let mut versions = spec["versions"].as_array()?.iter();
        let version = versions.find(|version| version["name"] == *kind.version)?;
        let is_of_kind = crd.group == kind.group && crd.kind == kind.kind;
        Some(Self {
            kind: Arc::new(kind.clone()),
            plural: spec["names"]["plural"].as_str().filter(|_| is_of_kind)?.to_owned(),
            short_names: serde_json::from_value(spec["names"]["shortNames"].clone()).unwrap_or_default(),
            facts: KindFacts {
                namespaced: spec["scope"] == "Namespaced",
                has_status: version["subresources"]["status"].is_object(),
            },
        })
    }

    /// The path of one object, or of a collection.
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

    /// Reports whether a user who writes this text means the kind: its name, the plural or a short name, with or without the group, in
    /// upper or lower case.
    pub fn is_called(&self, text: &str) -> bool {
        is_called(&self.kind, self.short_names.iter().chain([&self.plural]), text)
    }
}

/// The same for a kind with these other names.
pub fn is_called<'a>(kind: &'a Kind, others: impl Iterator<Item = &'a String>, text: &str) -> bool {
    others.chain([&kind.kind]).any(|name| {
        let full = format!("{name}.{}", kind.group);
        !name.is_empty() && (name.eq_ignore_ascii_case(text) || full.eq_ignore_ascii_case(text))
    })
}
