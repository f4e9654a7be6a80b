//! Sets of namespaces and names, in pairs: a reader of one name in one namespace and another name in another namespace
//! does not get the first name in the second namespace.

use std::collections::{BTreeMap, BTreeSet};

/// Names of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// Every name.
    All,
    /// These names.
    Only(BTreeSet<String>),
}

/// Namespaces and names. The two parts do not overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// The names in every namespace.
    everywhere: Names,
    /// Further names by namespace; none of the values is empty.
    within: BTreeMap<String, Names>,
}

impl Names {
    pub(super) const NONE: Self = Self::Only(BTreeSet::new());

    /// Makes a set of names; none means every name.
    pub(super) fn new(names: Option<BTreeSet<String>>) -> Self {
        names.map_or(Self::All, Self::Only)
    }

    fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(name),
        }
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Only(one), Self::Only(other)) => Self::Only(one.union(other).cloned().collect()),
            _ => Self::All,
        }
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::All, names) | (names, Self::All) => names.clone(),
            (Self::Only(one), Self::Only(other)) => Self::Only(one.intersection(other).cloned().collect()),
        }
    }

    pub(super) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (Self::Only(own), Self::Only(other)) => own.is_superset(other),
            (Self::Only(_), Self::All) => false,
        }
    }

    /// Each name by itself; none stands for every name.
    fn each(&self) -> Vec<Option<String>> {
        match self {
            Self::All => vec![None],
            Self::Only(names) => names.iter().cloned().map(Some).collect(),
        }
    }
}

impl Places {
    /// These names in these namespaces; none means every namespace.
    pub(super) fn new(namespaces: Option<&BTreeSet<String>>, names: &Names) -> Self {
        match namespaces {
            None => Self::normal(names.clone(), BTreeMap::new()),
            Some(namespaces) => {
                let within = namespaces.iter().map(|namespace| (namespace.clone(), names.clone()));
                Self::normal(Names::NONE, within.collect())
            }
        }
    }

    /// Normalises the set. If every name of one namespace and some names everywhere are in it, it becomes the set of
    /// everything: otherwise a watch of the namespace and one of the name would both show the object of that name
    /// there.
    fn normal(everywhere: Names, mut within: BTreeMap<String, Names>) -> Self {
        let overlaps = !everywhere.is_empty() && within.values().any(|names| *names == Names::All);
        if overlaps || everywhere == Names::All {
            return Self {
                everywhere: Names::All,
                within: BTreeMap::new(),
            };
        }
        if let Names::Only(everywhere) = &everywhere {
            for names in within.values_mut() {
                if let Names::Only(names) = names {
                    names.retain(|name| !everywhere.contains(name));
                }
            }
        }
        within.retain(|_, names| !names.is_empty());
        Self { everywhere, within }
    }

    /// The names in a namespace.
    fn names_in(&self, namespace: &str) -> Names {
        match self.within.get(namespace) {
            None => self.everywhere.clone(),
            Some(names) => names.union(&self.everywhere),
        }
    }

    /// Combines the names of both sets, everywhere and in each namespace that one of them lists.
    fn combined(&self, other: &Self, combine: fn(&Names, &Names) -> Names) -> Self {
        let namespaces = self.within.keys().chain(other.within.keys());
        let within = namespaces.map(|namespace| {
            let names = combine(&self.names_in(namespace), &other.names_in(namespace));
            (namespace.clone(), names)
        });
        Self::normal(combine(&self.everywhere, &other.everywhere), within.collect())
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        self.combined(other, Names::union)
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        self.combined(other, Names::intersection)
    }

    pub(super) fn covers(&self, other: &Self) -> bool {
        let covers_within = |(namespace, names): (&String, &Names)| self.names_in(namespace).covers(names);
        self.everywhere.covers(&other.everywhere) && other.within.iter().all(covers_within)
    }

    pub(super) fn contains(&self, namespace: &str, name: &str) -> bool {
        let within = self.within.get(namespace);
        self.everywhere.contains(name) || within.is_some_and(|names| names.contains(name))
    }

    /// Each namespace and name by itself; none stands for all. If there would be more than `most`, they are merged over
    /// names, then over namespaces.
    pub(super) fn each(&self, most: usize) -> Vec<(Option<String>, Option<String>)> {
        let Self { everywhere, within } = self;
        let everywhere = everywhere.each().into_iter().map(|name| (None, name));
        let within_each = within.iter().flat_map(|(namespace, names)| {
            let names = names.each().into_iter();
            names.map(|name| (Some(namespace.clone()), name))
        });
        let each: Vec<_> = everywhere.chain(within_each).collect();
        if each.len() <= most {
            return each;
        }
        if self.everywhere.is_empty() && within.len() <= most {
            return within.keys().map(|namespace| (Some(namespace.clone()), None)).collect();
        }
        vec![(None, None)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(values: &[&str]) -> BTreeSet<String> {
        values.iter().map(|it| (*it).to_owned()).collect()
    }

    /// The places of a manifest: an empty list restricts nothing.
    fn places(namespaces: &[&str], names: &[&str]) -> Places {
        let given = |values: &[&str]| (!values.is_empty()).then(|| set(values));
        Places::new(given(namespaces).as_ref(), &Names::new(given(names)))
    }

    /// Each place as `namespace/name`, with * for all.
    fn each(places: &Places) -> Vec<String> {
        let part = |part: Option<String>| part.unwrap_or_else(|| "*".to_owned());
        let each = places.each(32).into_iter();
        each.map(|(namespace, name)| format!("{}/{}", part(namespace), part(name)))
            .collect()
    }

    const NAMESPACES: [&str; 3] = ["a", "b", "c"];
    const NAMES: [&str; 3] = ["x", "y", "z"];

    fn some() -> Vec<Places> {
        let pairs = places(&["a"], &["x"]).union(&places(&["b"], &["y"]));
        let mixed = places(&["a", "b"], &["x"]).union(&places(&[], &["z"]));
        vec![
            places(&[], &[]),
            places(&["a"], &[]),
            places(&[], &["x"]),
            places(&[], &["x", "y"]),
            places(&["a"], &["x"]),
            places(&["a", "b"], &["x", "z"]),
            places(&["b"], &["y"]),
            Places::new(Some(&BTreeSet::new()), &Names::All),
            pairs,
            mixed,
        ]
    }

    fn members(places: &Places) -> BTreeSet<(&'static str, &'static str)> {
        let pairs = NAMESPACES
            .iter()
            .flat_map(|namespace| NAMES.map(|name| (*namespace, name)));
        pairs
            .filter(|(namespace, name)| places.contains(namespace, name))
            .collect()
    }

    #[test]
    fn names_of_one_namespace_are_not_looked_at_in_another() {
        let both = places(&["a"], &["x"]).union(&places(&["b"], &["y"]));
        assert_eq!(each(&both), ["a/x", "b/y"]);
        assert!(both.contains("b", "y") && !both.contains("a", "y") && !both.contains("b", "x"));
        let more = both.union(&places(&[], &["x"]));
        assert_eq!(each(&more), ["*/x", "b/y"]);
        let whole = both.union(&places(&["b"], &[]));
        assert_eq!(each(&whole), ["a/x", "b/*"]);
    }

    #[test]
    fn no_object_is_at_two_places() {
        let both = places(&["b"], &[]).union(&places(&[], &["x"]));
        assert_eq!(each(&both), ["*/*"], "b/x would be seen twice");
        for one in some() {
            for other in some() {
                let each = one.union(&other).each(32);
                for (namespace, name) in members(&one.union(&other)) {
                    let is_at = |(in_namespace, of_name): &&(Option<String>, Option<String>)| {
                        in_namespace.as_deref().is_none_or(|it| it == namespace)
                            && of_name.as_deref().is_none_or(|it| it == name)
                    };
                    assert_eq!(each.iter().filter(is_at).count(), 1, "{namespace}/{name}: {each:?}");
                }
            }
        }
    }

    #[test]
    fn unions_and_intersections_have_what_is_in_either_and_in_both() {
        for one in some() {
            for other in some() {
                let (of_one, of_other) = (members(&one), members(&other));
                let (union, both) = (one.union(&other), one.intersection(&other));
                let about = format!("{one:?}, {other:?}");
                assert!(
                    members(&union).is_superset(&of_one.union(&of_other).copied().collect()),
                    "{about}"
                );
                assert!(union.covers(&one) && union.covers(&other), "{about}");
                assert_eq!(
                    members(&both),
                    of_one.intersection(&of_other).copied().collect(),
                    "{about}"
                );
                assert!(one.covers(&both) && other.covers(&both), "{about}");
                assert!(!one.covers(&other) || of_one.is_superset(&of_other), "{about}");
                assert_eq!(union, other.union(&one), "{about}");
            }
        }
    }

    #[test]
    fn too_many_places_are_not_told_apart() {
        let many: Vec<String> = (0..=32).map(|it| it.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(each(&places(&["a", "b"], &many)), ["a/*", "b/*"]);
        assert_eq!(each(&places(&many, &["x"])), ["*/*"]);
        assert_eq!(each(&places(&["a"], &many).union(&places(&[], &["x"]))), ["*/*"]);
        assert!(each(&Places::new(Some(&BTreeSet::new()), &Names::All)).is_empty());
    }
}
