//! Finds the claims that conflict with fields of other managers.

use std::collections::{BTreeMap, HashMap};

use super::union::Claim;

/// The highest number of fields of a refusal near which claims are searched.
const MOST_NEAR: usize = 32;

/// A field that another manager holds, as the server names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldField {
    /// The field manager.
    pub manager: String,
    /// The path.
    pub path: String,
}

/// The claims to fields that other managers hold, each with one of these fields.
///
/// Paths are matched as they are written. Only if no claim has one of the fields are claims to fields around or within
/// them returned: the server names what it holds as a whole, and a dot in a name looks like one between two names.
pub fn conflicting<'a, 'h, K: Clone + Ord + 'a>(
    claims: impl IntoIterator<Item = (&'a K, &'a Claim)>,
    held: &'h [HeldField],
) -> BTreeMap<K, &'h HeldField> {
    let by_path: HashMap<&str, &HeldField> = held.iter().map(|field| (field.path.as_str(), field)).collect();
    let claims: Vec<_> = claims.into_iter().collect();
    let exact = |claim: &Claim| {
        let mut paths = claim.leaves.keys();
        paths.find_map(|path| by_path.get(path.to_string().as_str()).copied())
    };
    let near = |claim: &Claim| {
        held.iter()
            .take(MOST_NEAR)
            .find(|field| claim.leaves.keys().any(|path| path.touches(&field.path)))
    };
    let found = |find: &dyn Fn(&Claim) -> Option<&'h HeldField>| -> BTreeMap<K, &'h HeldField> {
        let found = claims
            .iter()
            .filter_map(|(name, claim)| Some(((*name).clone(), find(claim)?)));
        found.collect()
    };
    let exactly = found(&exact);
    if exactly.is_empty() { found(&near) } else { exactly }
}
