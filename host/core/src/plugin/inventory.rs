//! Keeps the inventory of a plugin's versions: the kinds that they own, the kinds that they contribute to, the
//! finalizers that they set, and which of these the running version no longer declares. Storing the inventory and
//! pruning are left to host/runtime.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kubernetes::key::Kind;
use crate::kubernetes::selector::Selector;
use crate::plugin::grants::Grants;
use crate::plugin::manifest::{Access, Controller, Filter, Touch};
use crate::reads::reach::Reach;

/// A kind of which a plugin has made objects, or to whose objects it contributes, or may have, for the primaries of one
/// kind.
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

/// A finalizer that a plugin sets on the primaries of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetFinalizer {
    /// The kind of the primaries.
    pub primary: Kind,
    /// The finalizer.
    pub finalizer: String,
}

/// The inventory of a plugin's versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Kinds of which they may have created objects.
    pub owned: Vec<OwnedKind>,
    /// Kinds to whose objects they may have contributed.
    pub contributed: Vec<OwnedKind>,
    /// Finalizers that they may have set.
    pub finalizers: Vec<SetFinalizer>,
}

/// The way in which a controller writes a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Made {
    /// Objects.
    Owned,
    /// Fields in others' objects.
    Contributed,
}

impl Made {
    /// Both ways.
    pub const ALL: [Self; 2] = [Self::Owned, Self::Contributed];

    fn access(self) -> Access {
        match self {
            Self::Owned => Access::Owned,
            Self::Contributed => Access::Contributed,
        }
    }
}

/// A kind that a controller no longer writes as it did, or in fewer places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerKind {
    /// The kind.
    pub kind: Kind,
    /// The reach of objects that may have been created.
    pub owned: Option<Reach>,
    /// The reach of objects that may have been contributed to.
    pub contributed: Option<Reach>,
}

impl FormerKind {
    /// The union of both reaches.
    pub fn reach(&self) -> Reach {
        match (&self.owned, &self.contributed) {
            (Some(owned), Some(contributed)) => owned.clone().union(contributed),
            (Some(reach), None) | (None, Some(reach)) => reach.clone(),
            (None, None) => Reach::default(),
        }
    }

    /// The reach of what was written in this way.
    pub fn reach_of(&self, made: Made) -> Option<&Reach> {
        match made {
            Made::Owned => self.owned.as_ref(),
            Made::Contributed => self.contributed.as_ref(),
        }
    }
}

fn entries<T: DeserializeOwned>(list: &Value) -> Vec<T> {
    let entries = list.as_array().into_iter().flatten();
    entries.filter_map(|entry| T::deserialize(entry).ok()).collect()
}

/// A controller of an earlier version, for finding what it left: it touches nothing.
pub fn former_controller(primary: &Kind) -> Controller {
    Controller {
        name: format!("former-{}", primary.kind.to_lowercase()),
        kind: primary.clone(),
        optional: false,
        fields: Vec::new(),
        filter: Filter::default(),
        finalizer: None,
        defaulter: None,
        validator: None,
        admission: None,
        failure_reason: None,
        touches: Vec::new(),
        options: Vec::new(),
    }
}

impl OwnedKind {
    fn of(primary: &Kind, touch: &Touch) -> Self {
        Self {
            primary: primary.clone(),
            kind: touch.kind.clone(),
            namespaces: touch.namespaces.clone(),
            names: touch.names.clone(),
            labels: touch.label_selector.clone(),
        }
    }

    fn reach(&self) -> Reach {
        Reach::within(&self.namespaces, &self.names, self.labels.as_ref())
    }

    /// Reports whether the entry is of a controller of the same primaries, and `grants` no longer covers it.
    fn is_former_of(&self, grants: &Grants, made: Made) -> bool {
        let reach = self.reach();
        let sees = |touch: &Touch| touch.kind.same_kind(&self.kind) && Reach::of(touch).covers(&reach);
        self.primary.same_kind(grants.primary()) && !touched(grants, made).any(sees)
    }
}

impl Inventory {
    /// The inventory in the status of a Plugin. Entries in the form of another host version are skipped.
    pub fn of_status(status: &Value) -> Self {
        Self {
            owned: entries(&status["ownedKinds"]),
            contributed: entries(&status["contributedKinds"]),
            finalizers: entries(&status["finalizers"]),
        }
    }

    fn kinds(&self, made: Made) -> &Vec<OwnedKind> {
        match made {
            Made::Owned => &self.owned,
            Made::Contributed => &self.contributed,
        }
    }

    fn kinds_mut(&mut self, made: Made) -> &mut Vec<OwnedKind> {
        match made {
            Made::Owned => &mut self.owned,
            Made::Contributed => &mut self.contributed,
        }
    }

    /// The inventory to store before controllers write anything: it includes what they will write, and their
    /// finalizers.
    #[must_use]
    pub fn and<'a>(&self, controllers: impl IntoIterator<Item = (&'a Grants, Option<&'a str>)>) -> Self {
        let mut memory = self.clone();
        for (grants, finalizer) in controllers {
            let primary = grants.primary();
            for made in Made::ALL {
                let kinds = memory.kinds_mut(made);
                let mut remembered: BTreeSet<_> = std::mem::take(kinds).into_iter().collect();
                // Entries of other primaries stay, and those of this controller are replaced by its present
                // declarations.
                remembered.retain(|kind| !kind.primary.same_kind(primary) || kind.is_former_of(grants, made));
                remembered.extend(touched(grants, made).map(|touch| OwnedKind::of(primary, touch)));
                kinds.extend(remembered);
            }
            if let Some(finalizer) = finalizer {
                memory.finalizers.push(SetFinalizer {
                    primary: primary.clone(),
                    finalizer: finalizer.to_owned(),
                });
            }
        }
        memory.finalizers.sort();
        memory.finalizers.dedup();
        memory
    }

    /// Reports whether the inventory covers everything that these controllers write, in whatever API version: an object
    /// is found by any version of its kind. Otherwise two hosts that run two versions of a plugin would overwrite each
    /// other's entries without end.
    pub fn covers<'a>(&self, controllers: impl IntoIterator<Item = (&'a Grants, Option<&'a str>)>) -> bool {
        controllers.into_iter().all(|(grants, finalizer)| {
            let primary = grants.primary();
            let is_remembered = |made: Made, touch: &Touch| {
                self.kinds(made).iter().any(|known| {
                    known.primary.same_kind(primary)
                        && known.kind.same_kind(&touch.kind)
                        && known.reach().covers(&Reach::of(touch))
                })
            };
            let is_held = |finalizer: &str| {
                let mut finalizers = self.finalizers.iter();
                finalizers.any(|set| set.primary.same_kind(primary) && set.finalizer == finalizer)
            };
            Made::ALL
                .into_iter()
                .all(|made| touched(grants, made).all(|touch| is_remembered(made, touch)))
                && finalizer.is_none_or(is_held)
        })
    }

    /// The kinds of which a controller may have left something that it no longer sees, each once.
    pub fn former(&self, grants: &Grants) -> Vec<FormerKind> {
        let mut formers: BTreeMap<&Kind, FormerKind> = BTreeMap::new();
        for made in Made::ALL {
            for kind in self.kinds(made).iter().filter(|kind| kind.is_former_of(grants, made)) {
                let former = formers.entry(&kind.kind).or_insert_with(|| FormerKind {
                    kind: kind.kind.clone(),
                    owned: None,
                    contributed: None,
                });
                let reach = match made {
                    Made::Owned => &mut former.owned,
                    Made::Contributed => &mut former.contributed,
                };
                *reach = Some(match reach.take() {
                    Some(before) => before.union(&kind.reach()),
                    None => kind.reach(),
                });
            }
        }
        formers.into_values().collect()
    }

    /// The kinds of primaries in the inventory that none of these controllers has, each once, with a finalizer that may
    /// have been set on them.
    pub fn without_controller<'a>(
        &self,
        controllers: impl IntoIterator<Item = &'a Grants>,
    ) -> Vec<(Kind, Option<String>)> {
        let kinds = Made::ALL.into_iter().flat_map(|made| self.kinds(made));
        let primaries = kinds.map(|kind| &kind.primary);
        let primaries = primaries.chain(self.finalizers.iter().map(|set| &set.primary));
        let steered: Vec<_> = controllers.into_iter().map(Grants::primary).collect();
        let is_steered = |primary: &Kind| steered.iter().any(|steered| steered.same_kind(primary));
        let mut left: Vec<(Kind, Option<String>)> = Vec::new();
        for primary in primaries.filter(|primary| !is_steered(primary)) {
            if left.iter().any(|(known, _)| known.same_kind(primary)) {
                continue;
            }
            let finalizer = self.finalizers.iter().find(|set| set.primary.same_kind(primary));
            left.push((primary.clone(), finalizer.map(|set| set.finalizer.clone())));
        }
        left
    }

    /// Finalizers in the inventory that may have been set on primaries of a kind, beside the one that its controller has.
    pub fn former_finalizers(&self, primary: &Kind, own: Option<&str>) -> Vec<String> {
        let set = self.finalizers.iter().filter(|set| set.primary.same_kind(primary));
        let former = set.filter(|set| own != Some(&*set.finalizer));
        former.map(|set| set.finalizer.clone()).collect()
    }

    /// The inventory without a kind that a controller no longer touches in this way, once nothing of it is left.
    #[must_use]
    pub fn forget(&self, grants: &Grants, gone: &Kind, made: Made) -> Self {
        let mut memory = self.clone();
        let stays = |kind: &OwnedKind| kind.kind != *gone || !kind.is_former_of(grants, made);
        memory.kinds_mut(made).retain(stays);
        memory
    }

    /// The inventory without a finalizer, once no primary has it.
    #[must_use]
    pub fn forget_finalizer(&self, primary: &Kind, finalizer: &str) -> Self {
        let mut memory = self.clone();
        memory
            .finalizers
            .retain(|set| !set.primary.same_kind(primary) || set.finalizer != finalizer);
        memory
    }

    /// The inventory after a kind that a controller no longer touches is served only in another version.
    #[must_use]
    pub fn moved(&self, grants: &Grants, from: &Kind, to: &Kind) -> Self {
        let mut memory = self.clone();
        for made in Made::ALL {
            let follow = |mut kind: OwnedKind| {
                if kind.kind == *from && kind.is_former_of(grants, made) {
                    kind.kind = to.clone();
                }
                kind
            };
            let kinds = memory.kinds_mut(made);
            let moved: BTreeSet<_> = std::mem::take(kinds).into_iter().map(follow).collect();
            kinds.extend(moved);
        }
        memory
    }

    /// The inventory after the primaries of a removed controller are served only in another version.
    #[must_use]
    pub fn primary_moved(&self, from: &Kind, to: &Kind) -> Self {
        let mut memory = self.clone();
        let follow = |primary: &mut Kind| {
            if primary == from {
                *primary = to.clone();
            }
        };
        memory.finalizers.iter_mut().for_each(|set| follow(&mut set.primary));
        for made in Made::ALL {
            let kinds = memory.kinds_mut(made);
            for kind in kinds.iter_mut() {
                follow(&mut kind.primary);
            }
            kinds.sort();
            kinds.dedup();
        }
        memory
    }
}

fn touched(grants: &Grants, made: Made) -> impl Iterator<Item = &Touch> {
    let touched = grants.touched().filter(move |grant| grant.allows(made.access()));
    touched.map(|grant| &grant.touch)
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

    fn remember<'a>(known: &Inventory, controllers: impl IntoIterator<Item = &'a Grants>) -> Inventory {
        known.and(controllers.into_iter().map(|grants| (grants, None)))
    }

    fn none() -> Inventory {
        Inventory::default()
    }

    fn kinds(former: &[FormerKind]) -> Vec<&str> {
        former.iter().map(|former| former.kind.kind.as_str()).collect()
    }

    #[test]
    fn an_undeclared_owned_kind_is_known_until_forgotten() {
        let known = remember(&none(), [&owning("P", &["A", "B"])]);
        let next = grants(
            "P",
            &json!([{"kind": kind("A"), "access": ["owned"]}, {"kind": kind("B"), "access": ["read"]}]),
        );
        assert_eq!(kinds(&known.former(&next)), ["B"]);
        let known = remember(&known, [&next]);
        assert_eq!(kinds(&known.former(&next)), ["B"]);
        assert_eq!(
            kinds(&known.former(&owning("P", &["A", "B"]))),
            [""; 0],
            "it is owned again"
        );
        let known = known.forget(&next, &kind("B"), Made::Owned);
        assert_eq!(known, remember(&none(), [&owning("P", &["A"])]));
        assert_eq!(known.forget(&next, &kind("A"), Made::Owned), known, "it is owned");
    }

    #[test]
    fn controllers_are_told_apart_by_kind_and_remembered() {
        let both = [owning("P", &["A"]), owning("Q", &["B"])];
        let known = remember(&none(), &both);
        assert_eq!(known.former(&both[0]), []);
        let known = remember(&known, [&owning("P", &["C"])]);
        assert_eq!(kinds(&known.former(&both[0])), ["C"]);
        assert_eq!(kinds(&known.former(&owning("Q", &[]))), ["B"]);
    }

    #[test]
    fn another_version_is_the_same_kind_and_a_narrower_reach_is_not() {
        let wide = grants("P", &json!([{"kind": kind("A"), "access": ["owned"]}]));
        let newer = grants(
            "P",
            &json!([{"kind": {"group": "", "version": "v2", "kind": "A"}, "access": ["owned"]}]),
        );
        let known = remember(&none(), [&wide]);
        assert_eq!(known.former(&newer), []);
        let narrow = grants(
            "P",
            &json!([{"kind": kind("A"), "access": ["owned"], "namespaces": ["n"]}]),
        );
        let left = known.former(&narrow);
        assert_eq!((kinds(&left), left[0].owned.clone()), (vec!["A"], Some(Reach::all())));
        let known = remember(&known, [&narrow]);
        assert_eq!(
            (known.owned.len(), known.former(&wide)),
            (2, Vec::new()),
            "the wide look shows both"
        );
        assert_eq!(
            known.forget(&narrow, &kind("A"), Made::Owned),
            remember(&none(), [&narrow]),
            "what is owned now stays"
        );
    }

    #[test]
    fn what_is_left_is_looked_for_in_the_version_that_is_served() {
        let (before, next) = (owning("P", &["A", "B"]), owning("P", &["A"]));
        let known = remember(&none(), [&before]);
        let other = |name: &str| Kind::new("", "v2", name);
        let moved_on = known.moved(&next, &kind("B"), &other("B"));
        assert_eq!(moved_on.former(&next)[0].kind, other("B"));
        assert_eq!(known.moved(&next, &kind("A"), &other("A")), known, "it is owned");
    }

    #[test]
    fn what_is_remembered_is_read_back() {
        let narrow = grants(
            "P",
            &json!([{"kind": kind("A"), "access": ["owned"], "names": ["x"], "labelSelector": "app=web"}]),
        );
        let known = remember(&none(), [&narrow]);
        let text = serde_json::to_string(&known.owned).unwrap();
        assert_eq!(serde_json::from_str::<Vec<OwnedKind>>(&text).unwrap(), known.owned);
    }

    #[test]
    fn an_owned_and_contributed_kind_is_remembered_separately() {
        let before = grants("P", &json!([{"kind": kind("A"), "access": ["owned", "contributed"]}]));
        let next = grants("P", &json!([{"kind": kind("A"), "access": ["read"]}]));
        let known = remember(&none(), [&before]);
        assert_eq!(known.former(&before), []);
        let left = known.former(&next);
        assert_eq!(left.len(), 1);
        assert!(left[0].owned.is_some() && left[0].contributed.is_some());
        let known = known.forget(&next, &kind("A"), Made::Owned);
        let left = known.former(&next);
        assert_eq!(
            (left[0].owned.clone(), left[0].contributed.clone()),
            (None, Some(Reach::all()))
        );
        assert_eq!(known.forget(&next, &kind("A"), Made::Contributed), none());
        let owns = owning("P", &["A"]);
        assert!(
            known.former(&owns)[0].contributed.is_some(),
            "what is owned is not contributed to"
        );
    }

    #[test]
    fn finalizers_of_earlier_versions_are_known_by_primary_kind() {
        let both = [owning("P", &[]), owning("Q", &[])];
        let known = none().and([(&both[0], Some("x.dev/a")), (&both[1], Some("x.dev/q"))]);
        let known = known.and([(&both[0], Some("x.dev/b"))]);
        assert_eq!(known.former_finalizers(&kind("P"), Some("x.dev/b")), ["x.dev/a"]);
        assert_eq!(known.former_finalizers(&kind("P"), None), ["x.dev/a", "x.dev/b"]);
        let newer = Kind::new("", "v2", "Q");
        assert_eq!(known.former_finalizers(&newer, Some("x.dev/q")), [""; 0]);
        let known = known.forget_finalizer(&kind("P"), "x.dev/a");
        assert_eq!(known.former_finalizers(&kind("P"), Some("x.dev/b")), [""; 0]);
    }

    #[test]
    fn leftovers_of_a_removed_controller_are_known_by_primary_kind() {
        let both = [owning("P", &["A"]), owning("Q", &["B"])];
        let known = none().and([(&both[0], None), (&both[1], Some("x.dev/q"))]);
        assert_eq!(known.without_controller(both.iter()), []);
        assert_eq!(
            known.without_controller(both[..1].iter()),
            [(kind("Q"), Some("x.dev/q".to_owned()))]
        );
        let left = Grants::new(&former_controller(&kind("Q")));
        assert_eq!(kinds(&known.former(&left)), ["B"]);
        let newer = Kind::new("", "v2", "Q");
        let known = known.primary_moved(&kind("Q"), &newer);
        assert_eq!(known.without_controller(both[..1].iter())[0].0, newer);
        assert_eq!(
            known.without_controller(both.iter()),
            [],
            "another version is the same kind"
        );
        let known = known.forget(&left, &kind("B"), Made::Owned);
        assert_eq!(
            known.without_controller(both[..1].iter()).len(),
            1,
            "a finalizer is left"
        );
        let known = known.forget_finalizer(&newer, "x.dev/q");
        assert_eq!(known, remember(&none(), [&both[0]]));
    }
}
