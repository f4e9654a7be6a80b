//! Decides which plugin owns a kind exclusively: the plugin that brings its CRD, within its namespaces. If several
//! plugins bring the same kind, the running one keeps it; if none runs, the oldest gets it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

/// The age of a plugin: creationTimestamp, then a tie-breaker. The smaller, the older.
pub type PluginAge = (Arc<str>, Arc<str>);

/// The kinds that one plugin requests exclusively.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExclusiveKindRequest {
    /// The age of the plugin.
    pub age: PluginAge,
    /// The CRDs that it brings: their names, and the kinds for messages.
    pub crds: BTreeMap<Arc<str>, Arc<str>>,
    /// The namespaces; none means all.
    pub namespaces: Vec<String>,
    /// Set if the plugin has all rights that it needs. A plugin without them takes no kind from one with them.
    pub is_granted: bool,
    /// The plugin for which this one waited before the host started.
    pub waited_for: Option<Arc<str>>,
}

impl ExclusiveKindRequest {
    /// Reports whether this is a part of another request by the same plugin.
    pub fn is_within(&self, other: &Self) -> bool {
        let has = |namespace: &String| other.namespaces.contains(namespace);
        let is_in_namespaces =
            other.namespaces.is_empty() || (!self.namespaces.is_empty() && self.namespaces.iter().all(has));
        is_in_namespaces && self.crds.keys().all(|crd| other.crds.contains_key(crd))
    }
}

/// The annotation of a Plugin that waits for a kind of a running plugin; its value is that plugin's name. It preserves
/// the order of the two when the host starts, or another replica becomes leader.
pub const WAITS_ANNOTATION: &str = "pilothouse.dev/waits-for-plugin";

/// The annotation of a Plugin that records the CRDs that its installed version brings: their names, separated by commas.
/// `status.crds` has those of the version that runs.
pub const BRINGS_ANNOTATION: &str = "pilothouse.dev/brings";

/// Another Plugin that brings a CRD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharer {
    /// The Plugin's name.
    pub plugin: String,
    /// Set if it acts in namespaces in which the other one is to act, too.
    pub overlaps: bool,
}

/// The first Plugin, of all in a cluster, that shares a CRD with the Plugin `own`, whose namespaces are given. One that
/// acts in the same namespaces precedes others.
pub fn sharer(plugins: &[Value], own: &str, namespaces: &[String], crd: &str) -> Option<Sharer> {
    let texts = |list: &Value| -> Vec<String> {
        let texts = list.as_array().into_iter().flatten();
        texts.filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let brings = |plugin: &&Value| {
        let recorded = plugin["metadata"]["annotations"][BRINGS_ANNOTATION].as_str();
        let is_recorded = recorded.is_some_and(|names| names.split(',').any(|name| name == crd));
        plugin["metadata"]["name"] != own
            && (is_recorded || texts(&plugin["status"]["crds"]).iter().any(|name| name == crd))
    };
    let sharers = plugins.iter().filter(brings).map(|plugin| Sharer {
        plugin: plugin["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        overlaps: plugin["spec"]["mode"] != "Suspended" && overlap(namespaces, &texts(&plugin["spec"]["namespaces"])),
    });
    sharers.min_by_key(|sharer| (!sharer.overlaps, sharer.plugin.clone()))
}

/// The standing of a plugin among those that request the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// The plugin has the kind, or was first seen at the start of the host, so it may have run before.
    Holds,
    /// The plugin was suspended or refused, or requests more than it has: it takes nothing from those that hold.
    Waits,
}

/// A kind that another plugin has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindTaken {
    /// The kind.
    pub kind: Arc<str>,
    /// The plugin that has it.
    pub holder: Arc<str>,
}

/// Decides for each plugin whether it may run, given the requests of all. A plugin that may not run blocks no other.
pub fn decide(
    claims: &BTreeMap<Arc<str>, (ExclusiveKindRequest, Standing)>,
) -> BTreeMap<Arc<str>, Result<(), KindTaken>> {
    let mut by_rank: Vec<_> = claims.iter().collect();
    by_rank.sort_by_key(|(name, (claim, standing))| (!claim.is_granted, *standing, &claim.age, *name));
    // Who has each CRD, the first of them first.
    let mut granted: BTreeMap<&Arc<str>, Vec<(&Arc<str>, &ExclusiveKindRequest)>> = BTreeMap::new();
    let mut decided = BTreeMap::new();
    for (name, (claim, _)) in by_rank {
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

/// Reports whether two lists of namespaces overlap; an empty one means all.
fn overlap(one: &[String], other: &[String]) -> bool {
    one.is_empty() || other.is_empty() || one.iter().any(|namespace| other.contains(namespace))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plugins_share_a_crd_by_annotation_or_status() {
        let plugin = |name: &str, recorded: &str, runs: &[&str], namespaces: &[&str]| {
            json!({
                "metadata": {"name": name, "annotations": {BRINGS_ANNOTATION: recorded}},
                "spec": {"namespaces": namespaces}, "status": {"crds": runs},
            })
        };
        let plugins = [
            plugin("own", "a.x,b.x", &["a.x"], &["one"]),
            plugin("installed", "b.x", &[], &["two"]),
            plugin("runs", "", &["b.x", "c.x"], &["one", "two"]),
            json!({"metadata": {"name": "by-hand"}, "spec": {}}),
        ];
        let shared = |namespaces: &[&str], crd: &str| {
            let namespaces: Vec<String> = namespaces.iter().map(|&name| name.to_owned()).collect();
            sharer(&plugins, "own", &namespaces, crd).map(|it| (it.plugin, it.overlaps))
        };
        assert_eq!(shared(&["one"], "a.x"), None);
        assert_eq!(shared(&["one"], "b.x"), Some(("runs".to_owned(), true)));
        assert_eq!(shared(&["three"], "b.x"), Some(("installed".to_owned(), false)));
        assert_eq!(shared(&[], "c.x"), Some(("runs".to_owned(), true)), "none are all");
        let mut suspended = plugins.clone();
        suspended[2]["spec"]["mode"] = json!("Suspended");
        let found = sharer(&suspended, "own", &[], "c.x");
        assert_eq!(found.map(|it| it.overlaps), Some(false));
    }

    fn request(name: &str, age: &str, crds: &[&str], namespaces: &[&str]) -> ExclusiveKindRequest {
        ExclusiveKindRequest {
            age: (Arc::from(age), Arc::from(name)),
            crds: crds.iter().map(|crd| (Arc::from(*crd), Arc::from("Kind"))).collect(),
            namespaces: namespaces.iter().map(|&namespace| namespace.to_owned()).collect(),
            is_granted: true,
            waited_for: None,
        }
    }

    fn decided(claims: &[(&str, &str, &[&str], &[&str])]) -> BTreeMap<String, Option<String>> {
        let claims = claims.iter().map(|(name, age, crds, namespaces)| {
            let claim = request(name, age, crds, namespaces);
            (Arc::from(*name), (claim, Standing::Holds))
        });
        names(&claims.collect())
    }

    fn names(claims: &BTreeMap<Arc<str>, (ExclusiveKindRequest, Standing)>) -> BTreeMap<String, Option<String>> {
        decide(claims)
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
    fn who_runs_keeps_a_kind_and_who_lacks_rights_takes_none() {
        use Standing::{Holds, Waits};
        let with = |old: (bool, Standing), young: (bool, Standing)| {
            let claim = |name: &str, age: &str, (is_granted, standing): (bool, Standing)| {
                let claim = ExclusiveKindRequest {
                    is_granted,
                    ..request(name, age, &["a"], &[])
                };
                (Arc::<str>::from(name), (claim, standing))
            };
            let decided = names(&[claim("old", "1", old), claim("young", "2", young)].into());
            let winners = decided.into_iter().filter(|(_, taken)| taken.is_none());
            winners.map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(with((true, Waits), (true, Holds)), ["young"]);
        assert_eq!(with((true, Waits), (true, Waits)), ["old"], "nobody runs");
        assert_eq!(with((true, Holds), (true, Holds)), ["old"], "the host starts");
        for standing in [Holds, Waits] {
            assert_eq!(with((false, Holds), (true, standing)), ["young"]);
        }
        assert_eq!(with((false, Waits), (false, Waits)), ["old"]);
    }

    #[test]
    fn a_part_of_a_request_is_within_it() {
        let all = request("p", "1", &["a", "b"], &[]);
        let some = request("p", "1", &["a"], &["x"]);
        let more = request("p", "1", &["a"], &["x", "y"]);
        assert!(some.is_within(&all) && some.is_within(&more) && all.is_within(&all));
        assert!(!all.is_within(&some) && !more.is_within(&some) && !request("p", "1", &["a"], &[]).is_within(&more));
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
