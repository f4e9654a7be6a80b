//! Confines a Plugin to namespaces, and its host's watches to those that the host sees.

use std::collections::BTreeSet;
use std::fmt;

use super::rules::Place;
use super::{MAX_NAMESPACES, RightsError, listed};
use crate::plugin::manifest::is_label;
use crate::reads::reach::Reach;
/// The namespaces to which a Plugin is confined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    namespaces: BTreeSet<String>,
    access: BTreeSet<String>,
    /// Set if the host, too, sees nothing outside of these, so that the shared watches are restricted to them.
    narrows_watches: bool,
}

impl Confinement {
    /// Parses `spec.namespaces` and `spec.accessNamespaces`; without any of the first, nothing is confined.
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

    /// The same at a host that sees only these namespaces; none if nothing is left.
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

    /// Reports whether the shared watches are restricted, too.
    pub fn narrows_watches(&self) -> bool {
        self.narrows_watches
    }

    /// The part of a reach that the host sees.
    #[must_use]
    pub fn seen(&self, reach: Reach) -> Reach {
        if self.narrows_watches {
            reach.within_namespaces(&self.reached())
        } else {
            reach
        }
    }

    /// All namespaces that may be accessed; empty means all.
    pub fn reached(&self) -> BTreeSet<String> {
        self.namespaces.union(&self.access).cloned().collect()
    }

    /// The namespaces whose primaries are reconciled; empty means all.
    pub fn namespaces(&self) -> &BTreeSet<String> {
        &self.namespaces
    }

    /// The further namespaces that may be accessed.
    pub fn access(&self) -> &BTreeSet<String> {
        &self.access
    }

    pub(super) fn is_confined(&self) -> bool {
        !self.namespaces.is_empty()
    }

    /// Reports whether a namespace may be accessed.
    pub fn reaches(&self, namespace: &str) -> bool {
        !self.is_confined() || self.namespaces.contains(namespace) || self.access.contains(namespace)
    }

    /// The namespaces of primaries.
    pub(super) fn own(&self) -> Vec<Place> {
        places(&self.namespaces)
    }

    /// All namespaces that may be accessed.
    pub(super) fn whole(&self) -> Vec<Place> {
        places(self.namespaces.union(&self.access))
    }
}

/// Lists the namespaces, for messages.
impl fmt::Display for Confinement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", listed(&self.namespaces))?;
        if !self.access.is_empty() {
            write!(formatter, " and {}", listed(&self.access))?;
        }
        Ok(())
    }
}

/// These namespaces; the whole cluster if there are none.
fn places<'a>(namespaces: impl IntoIterator<Item = &'a String>) -> Vec<Place> {
    let places: Vec<Place> = namespaces.into_iter().cloned().map(Place::Namespace).collect();
    if places.is_empty() {
        vec![Place::Cluster]
    } else {
        places
    }
}
