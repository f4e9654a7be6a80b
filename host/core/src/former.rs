//! Owns which kinds a plugin has made objects of: what is remembered of its versions, and which of that the one that runs
//! does not declare any more. Its objects of those kinds are to go; keeping the memory and deleting are left to others.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::grants::Grants;
use crate::key::Kind;
use crate::manifest::{Access, Touch};
use crate::reach::Reach;
use crate::selector::Selector;

/// A kind of which a plugin has made objects, or may have, for the primaries of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OwnedKind {
    /// The kind of the primaries.
    pub primary: Kind,
    /// The kind of the objects, as the version that made them declared it.
    pub kind: Kind,
    /// Only in these namespaces; none means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Only objects of these names; none means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Only objects that this label selector matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Selector>,
}

/// A kind that a controller does not own any more, or not as far as it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Former {
    /// The kind.
    pub kind: Kind,
    /// Where there may be objects of it.
    pub reach: Reach,
}

impl OwnedKind {
    fn of(primary: &Kind, touch: &Touch) -> Self {
        Self {
            primary: primary.clone(),
            kind: touch.kind.clone(),
            namespaces: touch.namespaces.clone(),
            names: touch.names.clone(),
            labels: touch.labels.clone(),
        }
    }

    fn reach(&self) -> Reach {
        Reach::within(&self.namespaces, &self.names, self.labels.as_ref())
    }

    /// Whether it was remembered of a controller of the same primaries, and that controller sees such objects no more.
    fn is_former_of(&self, grants: &Grants) -> bool {
        let reach = self.reach();
        let sees = |touch: &Touch| touch.kind.same_kind(&self.kind) && Reach::of(touch).covers(&reach);
        self.primary.same_kind(grants.primary()) && !owned(grants).any(sees)
    }
}

/// What is to be remembered before controllers make objects: what they own, and what else is known.
pub fn remember<'a>(known: &[OwnedKind], controllers: impl IntoIterator<Item = &'a Grants>) -> Vec<OwnedKind> {
    let mut remembered: BTreeSet<_> = known.iter().cloned().collect();
    for grants in controllers {
        let primary = grants.primary();
        // Of other primaries nothing is said, and what this controller owns is told by its own words.
        remembered.retain(|kind| !kind.primary.same_kind(primary) || kind.is_former_of(grants));
        remembered.extend(owned(grants).map(|touch| OwnedKind::of(primary, touch)));
    }
    remembered.into_iter().collect()
}

/// The kinds of which a controller may have objects that it does not see any more, each once.
pub fn former(known: &[OwnedKind], grants: &Grants) -> Vec<Former> {
    let mut kinds: BTreeMap<&Kind, Reach> = BTreeMap::new();
    for owned in known.iter().filter(|kind| kind.is_former_of(grants)) {
        let reach = owned.reach();
        let all = match kinds.remove(&owned.kind) {
            Some(before) => before.union(&reach),
            None => reach,
        };
        kinds.insert(&owned.kind, all);
    }
    let former = kinds.into_iter().map(|(kind, reach)| Former {
        kind: kind.clone(),
        reach,
    });
    former.collect()
}

/// What is still known when a controller has no object left of a kind that it does not own any more.
pub fn forget(known: &[OwnedKind], grants: &Grants, gone: &Kind) -> Vec<OwnedKind> {
    let stays = |owned: &&OwnedKind| owned.kind != *gone || !owned.is_former_of(grants);
    known.iter().filter(stays).cloned().collect()
}

/// What is known when a kind that a controller does not own any more is served in another version instead.
pub fn moved(known: &[OwnedKind], grants: &Grants, from: &Kind, to: &Kind) -> Vec<OwnedKind> {
    let follow = |owned: &OwnedKind| {
        let is_meant = owned.kind == *from && owned.is_former_of(grants);
        let kind = if is_meant { to } else { &owned.kind };
        OwnedKind {
            kind: kind.clone(),
            ..owned.clone()
        }
    };
    let known: BTreeSet<_> = known.iter().map(follow).collect();
    known.into_iter().collect()
}

fn owned(grants: &Grants) -> impl Iterator<Item = &Touch> {
    let owned = grants.touched().filter(|grant| grant.allows(Access::Owned));
    owned.map(|grant| &grant.touch)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn kind(kind: &str) -> Kind {
        Kind::new("", "v1", kind)
    }

    /// A controller of one primary kind that touches these kinds.
    fn grants(primary: &str, touches: &Value) -> Grants {
        let controller = json!({"name": "c", "kind": kind(primary), "touches": touches});
        Grants::new(&serde_json::from_value(controller).unwrap())
    }

    fn owning(primary: &str, kinds: &[&str]) -> Grants {
        let touches: Vec<_> = kinds
            .iter()
            .map(|it| json!({"kind": kind(it), "access": ["owned"]}))
            .collect();
        grants(primary, &json!(touches))
    }

    fn kinds(former: &[Former]) -> Vec<&str> {
        former.iter().map(|former| former.kind.kind.as_str()).collect()
    }

    #[test]
    fn what_a_new_version_does_not_own_is_known_until_it_is_forgotten() {
        let known = remember(&[], [&owning("P", &["A", "B"])]);
        let next = grants(
            "P",
            &json!([{"kind": kind("A"), "access": ["owned"]}, {"kind": kind("B"), "access": ["read"]}]),
        );
        assert_eq!(kinds(&former(&known, &next)), ["B"]);
        let known = remember(&known, [&next]);
        assert_eq!(kinds(&former(&known, &next)), ["B"]);
        assert_eq!(
            kinds(&former(&known, &owning("P", &["A", "B"]))),
            [""; 0],
            "it is owned again"
        );
        let known = forget(&known, &next, &kind("B"));
        assert_eq!(known, remember(&[], [&owning("P", &["A"])]));
        assert_eq!(forget(&known, &next, &kind("A")), known, "it is owned");
    }

    #[test]
    fn controllers_are_told_apart_by_their_primaries_and_one_that_went_is_remembered() {
        let both = [owning("P", &["A"]), owning("Q", &["B"])];
        let known = remember(&[], &both);
        assert_eq!(former(&known, &both[0]), []);
        let known = remember(&known, [&owning("P", &["C"])]);
        assert_eq!(kinds(&former(&known, &both[0])), ["C"]);
        assert_eq!(kinds(&former(&known, &owning("Q", &[]))), ["B"]);
    }

    #[test]
    fn another_version_is_the_same_kind_and_a_narrower_look_is_not_enough() {
        let wide = grants("P", &json!([{"kind": kind("A"), "access": ["owned"]}]));
        let newer = grants(
            "P",
            &json!([{"kind": {"group": "", "version": "v2", "kind": "A"}, "access": ["owned"]}]),
        );
        let known = remember(&[], [&wide]);
        assert_eq!(former(&known, &newer), []);
        let narrow = grants(
            "P",
            &json!([{"kind": kind("A"), "access": ["owned"], "namespaces": ["n"]}]),
        );
        let left = former(&known, &narrow);
        assert_eq!((kinds(&left), &left[0].reach), (vec!["A"], &Reach::all()));
        let known = remember(&known, [&narrow]);
        assert_eq!(
            (known.len(), former(&known, &wide)),
            (2, Vec::new()),
            "the wide look shows both"
        );
        assert_eq!(
            forget(&known, &narrow, &kind("A")),
            remember(&[], [&narrow]),
            "what is owned now stays"
        );
    }

    #[test]
    fn what_is_left_is_looked_for_in_the_version_that_is_served() {
        let (before, next) = (owning("P", &["A", "B"]), owning("P", &["A"]));
        let known = remember(&[], [&before]);
        let other = |name: &str| Kind::new("", "v2", name);
        let moved_on = moved(&known, &next, &kind("B"), &other("B"));
        assert_eq!(former(&moved_on, &next)[0].kind, other("B"));
        assert_eq!(moved(&known, &next, &kind("A"), &other("A")), known, "it is owned");
    }

    #[test]
    fn what_is_remembered_is_read_back() {
        let narrow = grants(
            "P",
            &json!([{"kind": kind("A"), "access": ["owned"], "names": ["x"], "labels": "app=web"}]),
        );
        let known = remember(&[], [&narrow]);
        let text = serde_json::to_string(&known).unwrap();
        assert_eq!(serde_json::from_str::<Vec<OwnedKind>>(&text).unwrap(), known);
    }
}
