//! Finds the resources of a plugin's kinds: from the CRDs that it brings, the table of built-in kinds, and for the rest
//! the cluster's discovery.

use std::collections::BTreeMap;

use super::built_in;
use crate::kubernetes::key::Kind;
use crate::kubernetes::served::ServedKind;
use crate::plugin::manifest::CheckedManifest;

/// The resources of a plugin's kinds, as far as they are known.
#[derive(Clone, Debug, Default)]
pub struct Resources {
    /// The resource; none if the cluster does not serve the kind.
    known: BTreeMap<Kind, Option<ServedKind>>,
}

impl Resources {
    /// The resources that are known without a cluster.
    pub fn of(checked: &CheckedManifest) -> Self {
        let mut known = BTreeMap::new();
        for (kind, _) in kinds(checked) {
            let mut crds = checked.crds.iter();
            // No plugin defines the resources of built-in kinds.
            let brought = || crds.find_map(|crd| ServedKind::of_crd(crd, kind));
            if let Some(served) = built_in::served(kind).or_else(brought) {
                known.insert(kind.clone(), Some(served));
            }
        }
        Self { known }
    }

    /// The kinds among these that only a cluster knows, given whether each is optional.
    pub fn unknown<'a>(&self, kinds: impl IntoIterator<Item = (&'a Kind, bool)>) -> Vec<Kind> {
        let mut unknown: Vec<Kind> = Vec::new();
        for (kind, is_optional) in kinds {
            let is_known = match self.known.get(kind) {
                Some(served) => served.is_some() || is_optional,
                None => false,
            };
            if !is_known && !unknown.contains(kind) {
                unknown.push(kind.clone());
            }
        }
        unknown
    }

    /// Adds a cluster's resource for a kind: none if it does not serve it.
    pub fn learn(&mut self, kind: Kind, served: Option<ServedKind>) {
        self.known.insert(kind, served);
    }

    /// The resource of a kind; none if it is not served.
    pub fn get(&self, kind: &Kind) -> Option<&ServedKind> {
        self.known.get(kind)?.as_ref()
    }
}

/// Every kind that a plugin names, and whether it is optional.
pub fn kinds(checked: &CheckedManifest) -> impl Iterator<Item = (&Kind, bool)> {
    checked.manifest.controllers.iter().flat_map(|controller| {
        // A controller that waits for its own kind needs no other.
        let touched = controller.touches.iter();
        let touched = touched.map(|touch| (&touch.kind, touch.optional || controller.optional));
        std::iter::once((&controller.kind, controller.optional)).chain(touched)
    })
}
