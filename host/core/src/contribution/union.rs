//! Merges the claims of many primaries on one object. Of two conflicting claims, the one whose value is in the object
//! wins; where neither is, the older one.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::leaves::{Leaf, Leaves};
use super::path::{Path, PathElement};

/// The age of a claim's primary: creationTimestamp, then uid.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimAge {
    /// `metadata.creationTimestamp`, which orders as text.
    pub created: String,
    /// The uid.
    pub uid: Arc<str>,
}

/// The fields of one object that one primary contributes. A claim gets all of them or none.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The age of the primary.
    pub age: ClaimAge,
    /// The fields.
    pub leaves: Arc<Leaves>,
    /// The fields with the values that the claim held at its last review. A changed claim keeps the fields that it
    /// still contains, with their new values.
    pub held: Option<Arc<Leaves>>,
}

/// A claim that conflicts with another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostClaim<K> {
    /// The field that both want.
    pub path: Path,
    /// The claim that holds the field. None: the value is in the object, and its claim is not known yet.
    pub holder: Option<K>,
}

/// The fields of an object, each with the claim that holds it: the oldest one with the same value. None: the field's
/// claim is not known yet.
pub type Standing<'a, K> = BTreeMap<&'a [PathElement], (&'a Leaf, Option<&'a K>)>;

/// Finds the holders of an object's fields. Unclaimed fields are left out, unless a primary without a claim yet may
/// claim them. `may_have_held` returns whether a claim with another value for the field may have held it with the
/// former value.
pub fn holders<'a, K: Ord + 'a>(
    stands: &'a Leaves,
    claims: impl IntoIterator<Item = (&'a K, &'a Claim)>,
    may_be_claimed: impl Fn(&Path, &Leaf) -> bool,
    may_have_held: impl Fn(&K, &Path) -> bool,
) -> Standing<'a, K> {
    let mut by_age: Vec<_> = claims.into_iter().collect();
    by_age.sort_by_key(|(name, claim)| (&claim.age, *name));
    let mut standing = Standing::new();
    let mut hold = |name: &'a K, path: &Path, leaf: &Leaf| {
        if let Some((path, stands)) = stands.get_key_value(path).filter(|(_, stands)| *stands == leaf) {
            standing.entry(path.steps()).or_insert((stands, Some(name)));
        }
    };
    for (name, claim) in &by_age {
        claim.leaves.iter().for_each(|(path, leaf)| hold(name, path, leaf));
    }
    for (name, claim) in &by_age {
        let held = claim.held.iter().flat_map(|held| held.iter());
        held.filter(|(path, _)| claim.leaves.contains_key(*path))
            .for_each(|(path, leaf)| hold(name, path, leaf));
    }
    for (path, leaf) in stands {
        if standing.contains_key(path.steps()) {
            continue;
        }
        let claims = || by_age.iter().filter(|(_, claim)| claim.leaves.contains_key(path));
        let has_held = |claim: &Claim| claim.held.as_ref().is_some_and(|held| held.contains_key(path));
        let holder = claims().find(|(_, claim)| has_held(claim));
        if may_be_claimed(path, leaf) {
            standing.insert(path.steps(), (leaf, None));
        } else if let Some((name, _)) = holder.or_else(|| claims().find(|(name, _)| may_have_held(name, path))) {
            standing.insert(path.steps(), (leaf, Some(name)));
        }
    }
    standing
}

/// The union of claims.
#[derive(Clone, Debug, PartialEq)]
pub struct Union<K> {
    /// All fields of the claims that won.
    pub leaves: Leaves,
    /// The claims that lost.
    pub lost: BTreeMap<K, LostClaim<K>>,
}

/// Merges claims into one. Many claims may have the same value for a field. A claim with another value for a held field
/// loses to the holder, regardless of age; among the others the older one wins.
pub fn unite<'a, K: Clone + Ord + 'a>(
    claims: impl IntoIterator<Item = (&'a K, &'a Claim)>,
    standing: &Standing<'_, K>,
) -> Union<K> {
    let mut claims: Vec<_> = claims.into_iter().collect();
    claims.sort_by_key(|(name, claim)| (&claim.age, *name));
    let mut taken: BTreeMap<&[PathElement], (&Leaf, Option<&K>)> = BTreeMap::new();
    let mut paths = BTreeMap::new();
    let mut lost = BTreeMap::new();
    for (name, claim) in claims {
        let against = claim.leaves.iter().find_map(|(path, leaf)| {
            let holder = rival(standing, path, leaf).filter(|holder| *holder != Some(name));
            let holder = holder.or_else(|| rival(&taken, path, leaf))?;
            let (path, holder) = (path.clone(), holder.cloned());
            Some(LostClaim { path, holder })
        });
        if let Some(against) = against {
            lost.insert(name.clone(), against);
            continue;
        }
        for (path, leaf) in claim.leaves.iter() {
            taken.entry(path.steps()).or_insert((leaf, Some(name)));
            paths.entry(path).or_insert(leaf);
        }
    }
    let mut leaves: Leaves = paths
        .into_iter()
        .map(|(path, leaf)| (path.clone(), leaf.clone()))
        .collect();
    drop_filled(&mut leaves);
    Union { leaves, lost }
}

/// The claims that have another value for a field than the object's owner, each with one such field. `owned` are the
/// owner's fields; a claim may have the same value.
///
/// A claim to an empty object claims nothing within it, so the owner's fields there do not conflict.
pub fn overruled<'a, K: Clone + Ord + 'a>(
    claims: impl IntoIterator<Item = (&'a K, &'a Claim)>,
    owned: &Leaves,
) -> BTreeMap<K, Path> {
    let against = |claim: &Claim| {
        let is_otherwise = |path: &Path, leaf: &Leaf| {
            let owned = owned.get(path);
            !leaf.is_container() && owned.is_some_and(|owned| owned != leaf)
        };
        let mut leaves = claim.leaves.iter();
        leaves.find_map(|(path, leaf)| is_otherwise(path, leaf).then(|| path.clone()))
    };
    let claims = claims.into_iter();
    claims
        .filter_map(|(name, claim)| Some((name.clone(), against(claim)?)))
        .collect()
}

/// The holder of a field that excludes this one.
#[expect(clippy::option_option, reason = "no field, or one that nobody known holds")]
fn rival<'a, K>(taken: &Standing<'a, K>, path: &Path, leaf: &Leaf) -> Option<Option<&'a K>> {
    let steps = path.steps();
    if let Some((other, holder)) = taken.get(steps) {
        return (*other != leaf).then_some(*holder);
    }
    let around = (1..steps.len()).find_map(|end| {
        let (other, holder) = taken.get(&steps[..end])?;
        (!other.is_container()).then_some(*holder)
    });
    let within = || {
        let after = (Bound::Excluded(steps), Bound::Unbounded);
        let (other, (_, holder)) = taken.range::<[PathElement], _>(after).next()?;
        (!leaf.is_container() && other.starts_with(steps)).then_some(*holder)
    };
    around.or_else(within)
}

/// Drops empty objects that have fields within: such an object is not empty, and has no holder.
fn drop_filled(leaves: &mut Leaves) {
    let filled: Vec<Path> = leaves
        .iter()
        .zip(leaves.keys().skip(1))
        .filter(|((path, leaf), next)| matches!(leaf, Leaf::Value(_)) && next.steps().starts_with(path.steps()))
        .map(|((path, _), _)| path.clone())
        .collect();
    for path in filled {
        leaves.remove(&path);
    }
}

/// Adds fields that are to stay as they are, except those that exclude a wanted field.
pub fn keep<'a>(wanted: &mut Leaves, kept: impl IntoIterator<Item = (&'a Path, &'a Leaf)>) {
    for (path, leaf) in kept {
        let (around, within) = {
            let steps = path.steps();
            let around =
                (1..=steps.len()).any(|end| wanted.get(&steps[..end]).is_some_and(|other| !other.is_container()));
            let after = (Bound::Excluded(steps), Bound::Unbounded);
            let next = wanted.range::<[PathElement], _>(after).next();
            (around, next.is_some_and(|(other, _)| other.steps().starts_with(steps)))
        };
        if !around && (leaf == &Leaf::Present || !within) {
            wanted.entry(path.clone()).or_insert_with(|| leaf.clone());
        }
    }
}
