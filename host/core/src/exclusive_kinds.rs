//! Decides which plugin owns a kind exclusively: the plugin that brings its CRD, within its namespaces. If several
//! plugins bring the same kind, the oldest wins.

use std::collections::BTreeMap;
use std::sync::Arc;

/// How old a plugin is: when it was made, and what tells those apart that were made at the same time. The less, the older.
pub type PluginAge = (Arc<str>, Arc<str>);

/// What one plugin wants to itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExclusiveKindRequest {
    /// How old the plugin is.
    pub age: PluginAge,
    /// The CRDs that it brings: their names, and the kinds for people.
    pub crds: BTreeMap<Arc<str>, Arc<str>>,
    /// Only in these namespaces; none means all.
    pub namespaces: Vec<String>,
}

/// A kind that somebody older has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindTaken {
    /// The kind.
    pub kind: Arc<str>,
    /// Who has it.
    pub holder: Arc<str>,
}

/// Decides for each plugin whether it may run, given what all of them want. A plugin that may not run keeps nobody else
/// from it.
pub fn decide(claims: &BTreeMap<Arc<str>, ExclusiveKindRequest>) -> BTreeMap<Arc<str>, Result<(), KindTaken>> {
    let mut by_age: Vec<_> = claims.iter().collect();
    by_age.sort_by(|(one, first), (other, second)| (&first.age, one).cmp(&(&second.age, other)));
    // Who has each CRD, the oldest first.
    let mut granted: BTreeMap<&Arc<str>, Vec<(&Arc<str>, &ExclusiveKindRequest)>> = BTreeMap::new();
    let mut decided = BTreeMap::new();
    for (name, claim) in by_age {
        let taken = claim.crds.iter().find_map(|(crd, kind)| {
            let holders = granted.get(crd)?;
            let (holder, _) = holders
                .iter()
                .find(|(_, held)| overlap(&claim.namespaces, &held.namespaces))?;
            Some(KindTaken {
                kind: kind.clone(),
                holder: (*holder).clone(),
            })
        });
        if taken.is_none() {
            for crd in claim.crds.keys() {
                granted.entry(crd).or_default().push((name, claim));
            }
        }
        decided.insert(name.clone(), taken.map_or(Ok(()), Err));
    }
    decided
}

/// Whether two choices of namespaces have one in common; none means all.
fn overlap(one: &[String], other: &[String]) -> bool {
    one.is_empty() || other.is_empty() || one.iter().any(|namespace| other.contains(namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(claims: &[(&str, &str, &[&str], &[&str])]) -> BTreeMap<String, Option<String>> {
        let claims = claims
            .iter()
            .map(|(name, age, crds, namespaces)| {
                let claim = ExclusiveKindRequest {
                    age: (Arc::from(*age), Arc::from(*name)),
                    crds: crds.iter().map(|crd| (Arc::from(*crd), Arc::from("Kind"))).collect(),
                    namespaces: namespaces.iter().map(|&namespace| namespace.to_owned()).collect(),
                };
                (Arc::from(*name), claim)
            })
            .collect();
        decide(&claims)
            .into_iter()
            .map(|(name, result)| (name.to_string(), result.err().map(|taken| taken.holder.to_string())))
            .collect()
    }

    #[test]
    fn the_oldest_has_a_kind_and_the_others_know_who() {
        let decided = decided(&[
            ("young", "2", &["a"], &[]),
            ("old", "1", &["a", "b"], &[]),
            ("other", "3", &["c"], &[]),
        ]);
        assert_eq!(decided["old"], None);
        assert_eq!(decided["young"].as_deref(), Some("old"));
        assert_eq!(decided["other"], None);
    }

    #[test]
    fn namespaces_that_do_not_overlap_are_no_conflict() {
        let decided = decided(&[
            ("one", "1", &["a"], &["x", "y"]),
            ("two", "2", &["a"], &["z"]),
            ("three", "3", &["a"], &["y"]),
            ("everywhere", "4", &["a"], &[]),
        ]);
        assert_eq!(decided["two"], None);
        assert_eq!(decided["three"].as_deref(), Some("one"));
        assert_eq!(decided["everywhere"].as_deref(), Some("one"));
    }

    #[test]
    fn one_that_may_not_run_stands_in_nobodys_way() {
        let decided = decided(&[
            ("a", "1", &["x"], &[]),
            ("b", "2", &["x", "y"], &[]),
            ("c", "3", &["y"], &[]),
        ]);
        assert_eq!(decided["b"].as_deref(), Some("a"));
        assert_eq!(decided["c"], None);
    }

    #[test]
    fn those_that_bring_no_crd_coexist() {
        assert!(
            decided(&[("a", "1", &[], &[]), ("b", "1", &[], &[])])
                .values()
                .all(Option::is_none)
        );
    }
}
