//! Finds the objects that a desired object comes after: owned objects of the same answer, without a circle.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::answer::desired::{DesiredObject, PrimaryName, invalid};
use crate::diff::order::sorted;
use crate::kubernetes::key::{Key, Kind, Name};
use crate::plugin::grants::Grants;
use crate::plugin::manifest::{AFTER, MAX_OPTION};
use crate::status::failure::Failure;
use crate::text::printable::shorten;

/// The most objects that one object comes after.
const MAX_AFTER: usize = 32;

/// An object as the option names it. The namespace is that of the primary unless it is given, as for a desired object.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Reference {
    api_version: String,
    kind: String,
    name: String,
    namespace: Option<String>,
}

impl Reference {
    /// Reads the value of the option; none if it is no list of objects, or too long.
    pub(super) fn read_all(value: &Value) -> Option<Vec<Self>> {
        let references: Vec<Self> = Vec::deserialize(value).ok()?;
        (references.len() <= MAX_AFTER).then_some(references)
    }

    fn is(&self, candidate: &Candidate, primary: &PrimaryName<'_>) -> bool {
        let kind = Kind::from_api_version(&self.api_version, &self.kind);
        let home = primary.name.namespace.as_deref();
        let namespace = self.namespace.as_deref().filter(|it| !it.is_empty()).or(home);
        let Name { namespace: place, name } = &candidate.name;
        // Of a cluster-scoped object the namespace does not count.
        let is_there = place.is_none() || place.as_deref() == namespace;
        kind.same_kind(&candidate.kind) && **name == *self.name && is_there
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            api_version: _,
            kind,
            name,
            namespace,
        } = self;
        let name = Name::new(namespace.as_deref(), name);
        formatter.write_str(&shorten(format!("{kind} {name}"), MAX_OPTION))
    }
}

/// A desired object that others may come after.
pub(super) struct Candidate {
    pub(super) kind: Arc<Kind>,
    pub(super) name: Name,
    /// Set if it is owned.
    pub(super) is_owned: bool,
    /// Its place among the owned objects of kinds that the cluster serves.
    pub(super) place: Option<usize>,
    /// The objects that it comes after.
    pub(super) after: Vec<Reference>,
}

impl Candidate {
    fn title(&self) -> String {
        format!("{} {}", self.kind.kind, self.name)
    }
}

/// Tells the owned objects which ones they come after. `candidates` are all desired objects, in the order of the answer.
pub(super) fn resolve(
    candidates: &[Candidate],
    primary: &PrimaryName<'_>,
    grants: &Grants,
    owned: &mut [DesiredObject],
) -> Result<(), Failure> {
    if candidates.iter().all(|candidate| candidate.after.is_empty()) {
        return Ok(());
    }
    let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
    for (place, candidate) in candidates.iter().enumerate().filter(|(_, it)| it.is_owned) {
        by_name.entry(&candidate.name.name).or_default().push(place);
    }
    let mut predecessors = Vec::with_capacity(candidates.len());
    for (position, candidate) in candidates.iter().enumerate() {
        let find = |reference: &Reference| {
            let mut named = by_name.get(&*reference.name).into_iter().flatten();
            let found = named.find(|place| reference.is(&candidates[**place], primary));
            let wrong = |problem: &str| {
                invalid(format!(
                    "controller {}: desired object {position}, {}, has the option {AFTER:?} with {reference}, {problem}",
                    grants.controller(),
                    candidate.title()
                ))
            };
            match found.copied() {
                Some(place) if place == position => Err(wrong("which is the object itself; leave it out")),
                Some(place) => Ok(place),
                None => Err(wrong(
                    "which is not among the owned objects of the answer; return it, too, or leave it out",
                )),
            }
        };
        let mut found = candidate.after.iter().map(find).collect::<Result<Vec<usize>, _>>()?;
        found.sort_unstable();
        found.dedup();
        predecessors.push(found);
    }
    if let Err(circle) = sorted(&predecessors) {
        let mut titles: Vec<String> = circle.iter().map(|place| candidates[*place].title()).collect();
        titles.extend(titles.first().cloned());
        return Err(invalid(format!(
            "controller {}: objects come after each other in a circle by their option {AFTER:?}: {}",
            grants.controller(),
            shorten(titles.join(" after "), 8 * MAX_OPTION)
        )));
    }
    for (candidate, found) in candidates.iter().zip(predecessors) {
        if let Some(object) = candidate.place.and_then(|place| owned.get_mut(place)) {
            let key = |place: usize| Key::new(candidates[place].kind.clone(), candidates[place].name.clone());
            object.after = found.into_iter().map(key).collect();
        }
    }
    Ok(())
}
