//! Owns in which namespaces a Plugin may touch anything, and which of them its host sees.

use std::collections::BTreeSet;
use std::fmt;

use super::rules::Place;
use super::{MAX_NAMESPACES, RightsError, listed};
use crate::plugin::manifest::is_label;
use crate::reads::reach::Reach;
/// The namespaces that a Plugin is confined to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    namespaces: BTreeSet<String>,
    access: BTreeSet<String>,
    /// Whether the host, too, sees nothing outside of these, so that the shared watches reach no further.
    narrows_watches: bool,
}

impl Confinement {
    /// The namespaces of `spec.namespaces` and `spec.accessNamespaces`; without any of the first, nothing is confined.
    pub fn new(namespaces: &[String], access: &[String]) -> Result<Self, RightsError> {
        if let Some(name) = namespaces.iter().chain(access).find(|name| !is_label(name)) {
            return Err(RightsError::Namespace(name.clone()));
        }
        let most = namespaces.len().max(access.len());
        if most > MAX_NAMESPACES {
            return Err(RightsError::TooMany(most));
        }
        if namespaces.is_empty() && !access.is_empty() {
            return Err(RightsError::NothingConfined);
        }
        Ok(Self {
            namespaces: namespaces.iter().cloned().collect(),
            access: access.iter().cloned().collect(),
            narrows_watches: false,
        })
    }

    /// The same at a host that sees these namespaces only; none if that leaves nothing.
    pub fn within(&self, seen: &BTreeSet<String>) -> Option<Self> {
        let within = |own: &BTreeSet<String>| own.intersection(seen).cloned().collect::<BTreeSet<_>>();
        let namespaces = if self.is_confined() {
            within(&self.namespaces)
        } else {
            seen.clone()
        };
        (!namespaces.is_empty()).then(|| Self {
            namespaces,
            access: within(&self.access),
            narrows_watches: true,
        })
    }

    /// Whether the shared watches reach no further either.
    pub fn narrows_watches(&self) -> bool {
        self.narrows_watches
    }

    /// What of this the host sees.
    #[must_use]
    pub fn seen(&self, reach: Reach) -> Reach {
        if self.narrows_watches {
            reach.within_namespaces(&self.reached())
        } else {
            reach
        }
    }

    /// All namespaces in which something may be touched; none means all.
    pub fn reached(&self) -> BTreeSet<String> {
        self.namespaces.union(&self.access).cloned().collect()
    }

    /// The namespaces whose primaries are reconciled; none means all.
    pub fn namespaces(&self) -> &BTreeSet<String> {
        &self.namespaces
    }

    /// The namespaces that are reached besides.
    pub fn access(&self) -> &BTreeSet<String> {
        &self.access
    }

    pub(super) fn is_confined(&self) -> bool {
        !self.namespaces.is_empty()
    }

    /// Whether something in a namespace may be touched.
    pub fn reaches(&self, namespace: &str) -> bool {
        !self.is_confined() || self.namespaces.contains(namespace) || self.access.contains(namespace)
    }

    /// Where primaries are.
    pub(super) fn own(&self) -> Vec<Place> {
        places(&self.namespaces)
    }

    /// Where everything is that may be touched.
    pub(super) fn whole(&self) -> Vec<Place> {
        places(self.namespaces.union(&self.access))
    }
}

/// For people: which namespaces these are.
impl fmt::Display for Confinement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", listed(&self.namespaces))?;
        if !self.access.is_empty() {
            write!(formatter, " and {}", listed(&self.access))?;
        }
        Ok(())
    }
}

/// These namespaces; the whole cluster where there are none.
fn places<'a>(namespaces: impl IntoIterator<Item = &'a String>) -> Vec<Place> {
    let places: Vec<Place> = namespaces.into_iter().cloned().map(Place::Namespace).collect();
    if places.is_empty() {
        vec![Place::Cluster]
    } else {
        places
    }
}
