//! Owns how the kinds of one plugin are called in rules: by the CRDs that it brings, by the table of Kubernetes' own kinds,
//! and by what a cluster says of the rest.

use std::collections::BTreeMap;

use super::built_in;
use crate::kubernetes::key::Kind;
use crate::kubernetes::served::ServedKind;
use crate::plugin::manifest::CheckedManifest;

/// How the kinds of a plugin are served, as far as that is known.
#[derive(Clone, Debug, Default)]
pub struct Resources {
    /// None: the cluster does not serve the kind.
    known: BTreeMap<Kind, Option<ServedKind>>,
}

impl Resources {
    /// What is known without a cluster.
    pub fn of(checked: &CheckedManifest) -> Self {
        let mut known = BTreeMap::new();
        for (kind, _) in kinds(checked) {
            let mut crds = checked.crds.iter();
            // No plugin says how Kubernetes' own kinds are called.
            let brought = || crds.find_map(|crd| ServedKind::of_crd(crd, kind));
            if let Some(served) = built_in::served(kind).or_else(brought) {
                known.insert(kind.clone(), Some(served));
            }
        }
        Self { known }
    }

    /// Which of these kinds only a cluster knows, given whether each can be done without.
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

    /// Takes in what a cluster says of a kind: none if it does not serve it.
    pub fn learn(&mut self, kind: Kind, served: Option<ServedKind>) {
        self.known.insert(kind, served);
    }

    /// How a kind is served; none if it is not.
    pub fn get(&self, kind: &Kind) -> Option<&ServedKind> {
        self.known.get(kind)?.as_ref()
    }
}

/// Every kind that a plugin names, and whether it can do without.
pub fn kinds(checked: &CheckedManifest) -> impl Iterator<Item = (&Kind, bool)> {
    checked.manifest.controllers.iter().flat_map(|controller| {
        let touched = controller.touches.iter().map(|touch| (&touch.kind, touch.optional));
        std::iter::once((&controller.kind, false)).chain(touched)
    })
}
