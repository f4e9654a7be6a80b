//! Owns whose claims stand against fields that other managers hold.

use std::collections::{BTreeMap, HashMap};

use super::union::Claim;

/// The most fields of a refusal around which claims are looked for.
const MOST_NEAR: usize = 32;

/// A field that another manager holds, in the server's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldField {
    /// Who holds it.
    pub manager: String,
    /// The path.
    pub path: String,
}

/// The claims that want fields which others hold, each with one of these fields.
///
/// A path is matched as it is written. Only if no claim has any of them are those taken that lie around or within: the
/// server names what it holds as a whole, and a dot in a name looks like one between two.
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
