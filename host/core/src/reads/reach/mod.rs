//! Decides which objects of a kind to watch: the union of the controllers' declarations, as a set of lists and watches.

mod places;

use std::collections::BTreeSet;

use self::places::{Names, Places};
use crate::kubernetes::key::Name;
use crate::kubernetes::selector::Selector;
use crate::plugin::manifest::Touch;
use crate::replicas::shards::HashRanges;

/// The highest number of lists and watches of one kind; each holds a connection to an HTTP/1.1 server. Where more would
/// be needed, they are merged over names, then over namespaces.
pub const MAX_SCOPES: usize = 32;

/// A set of objects of a kind. All conditions must hold; the default is every object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The namespaces and names, for a namespaced kind.
    places: Places,
    /// The names, for a cluster-scoped kind: namespaces do not matter.
    names: Names,
    /// The hashes of namespaces; none means all. Ignored for a cluster-scoped kind.
    hashes: Option<HashRanges>,
    /// The label selector; an empty one matches all.
    labels: Selector,
}

impl Default for Reach {
    fn default() -> Self {
        Self {
            places: Places::new(None, &Names::All),
            names: Names::All,
            hashes: None,
            labels: Selector::default(),
        }
    }
}

/// The objects of one list and watch. The scopes of a reach have no object in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// The namespace; none for every namespace, or a cluster-scoped kind.
    pub namespace: Option<String>,
    /// The name; none means every name.
    pub name: Option<String>,
    /// The hashes of namespaces; none means all.
    pub hashes: Option<HashRanges>,
    /// The label selector; an empty one matches all.
    pub labels: Selector,
}

impl Reach {
    /// Every object.
    pub fn all() -> Self {
        Self::default()
    }

    /// Every object in these namespaces; in all, if none is given.
    pub fn namespaces<'a>(namespaces: impl IntoIterator<Item = &'a String>) -> Self {
        Self {
            places: Places::new(set(namespaces).as_ref(), &Names::All),
            ..Self::default()
        }
    }

    /// The reach that a controller declares for a kind.
    pub fn of(touch: &Touch) -> Self {
        Self::within(&touch.namespaces, &touch.names, touch.label_selector.as_ref())
    }

    /// Objects in these namespaces, with these names and labels. An empty condition restricts nothing.
    pub fn within(namespaces: &[String], names: &[String], labels: Option<&Selector>) -> Self {
        let names = Names::new(set(names));
        Self {
            places: Places::new(set(namespaces).as_ref(), &names),
            names,
            hashes: None,
            labels: labels.cloned().unwrap_or_default(),
        }
    }

    /// Restricts the reach to namespaces with these hashes.
    #[must_use]
    pub fn within_hashes(self, hashes: HashRanges) -> Self {
        let hashes = match &self.hashes {
            Some(before) => before.intersection(&hashes),
            None => hashes,
        };
        Self {
            hashes: Some(hashes),
            ..self
        }
    }

    /// Restricts the reach to these namespaces. A cluster-scoped kind is not restricted.
    #[must_use]
    pub fn within_namespaces(self, namespaces: &BTreeSet<String>) -> Self {
        Self {
            places: self.places.intersection(&Places::new(Some(namespaces), &Names::All)),
            ..self
        }
    }

    /// The union of two reaches. Labels stay a condition only where both have the same: an object may leave one
    /// selection and stay in another, and a watch distinguishes the two only if it has one selector.
    #[must_use]
    pub fn union(self, other: &Self) -> Self {
        Self {
            places: self.places.union(&other.places),
            names: self.names.union(&other.names),
            hashes: self
                .hashes
                .zip(other.hashes.as_ref())
                .map(|(one, other)| one.union(other)),
            labels: if self.labels == other.labels {
                self.labels
            } else {
                Selector::default()
            },
        }
    }

    /// The intersection; none if it would take two label selectors.
    pub fn common(&self, other: &Self) -> Option<Self> {
        let labels = match (self.labels.is_empty(), other.labels.is_empty()) {
            (_, true) => &self.labels,
            (true, _) => &other.labels,
            _ if self.labels == other.labels => &self.labels,
            _ => return None,
        };
        Some(Self {
            places: self.places.intersection(&other.places),
            names: self.names.intersection(&other.names),
            hashes: match (&self.hashes, &other.hashes) {
                (Some(one), Some(other)) => Some(one.intersection(other)),
                (one, other) => one.clone().or_else(|| other.clone()),
            },
            labels: labels.clone(),
        })
    }

    /// Reports whether every object of `other` is in this reach.
    pub fn covers(&self, other: &Self) -> bool {
        let covers_hashes = match (&self.hashes, &other.hashes) {
            (None, _) => true,
            (Some(own), Some(asked)) => own.covers(asked),
            (Some(_), None) => false,
        };
        self.places.covers(&other.places)
            && self.names.covers(&other.names)
            && covers_hashes
            && (self.labels.is_empty() || self.labels == other.labels)
    }

    /// Reports whether an object of this name is in the reach whatever its content, so that its absence from the cache
    /// means that it does not exist.
    pub fn holds(&self, name: &Name) -> bool {
        let is_there = match &name.namespace {
            Some(namespace) => self.places.contains(namespace, &name.name),
            None => self.names.contains(&name.name),
        };
        is_there && has_hash(self.hashes.as_ref(), name) && self.labels.is_empty()
    }

    /// The lists and watches that the reach needs.
    pub fn scopes(&self, namespaced: bool) -> Vec<Scope> {
        let places = if namespaced {
            self.places.each(MAX_SCOPES)
        } else {
            Places::new(None, &self.names).each(MAX_SCOPES)
        };
        if places.is_empty() {
            // Nothing is listed, and that is known of the kind.
            return vec![Scope {
                hashes: Some(HashRanges::default()),
                ..Scope::default()
            }];
        }
        let hashes = self.hashes.as_ref().filter(|_| namespaced);
        let scope = |(namespace, name)| Scope {
            namespace,
            name,
            hashes: hashes.cloned(),
            labels: self.labels.clone(),
        };
        places.into_iter().map(scope).collect()
    }
}

impl Scope {
    /// Reports whether a list of this scope contains the object, if its labels match.
    pub fn has(&self, name: &Name) -> bool {
        self.namespace
            .as_deref()
            .is_none_or(|namespace| name.namespace.as_deref() == Some(namespace))
            && self.name.as_deref().is_none_or(|wanted| *name.name == *wanted)
            && has_hash(self.hashes.as_ref(), name)
    }

    /// Reports whether no object can be in the scope.
    pub fn is_empty(&self) -> bool {
        let namespace = self.namespace.as_deref();
        let has_some = |hashes: &HashRanges| !hashes.is_empty() && hashes.has_object_in(namespace);
        !self.hashes.as_ref().is_none_or(has_some)
    }
}

fn has_hash(hashes: Option<&HashRanges>, name: &Name) -> bool {
    hashes.is_none_or(|hashes| hashes.has_object_in(name.namespace.as_deref()))
}

fn set<'a>(values: impl IntoIterator<Item = &'a String>) -> Option<BTreeSet<String>> {
    let set: BTreeSet<String> = values.into_iter().cloned().collect();
    (!set.is_empty()).then_some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_outside_of_the_namespaces_is_not_listed() {
        let within = |reach: Reach, namespaces: &[&str]| {
            reach.within_namespaces(&namespaces.iter().map(|it| (*it).to_owned()).collect())
        };
        let scopes = within(Reach::all(), &["a", "b"]).scopes(true);
        let places: Vec<_> = scopes.into_iter().map(|scope| scope.namespace.unwrap()).collect();
        assert_eq!(places, ["a", "b"]);
        assert_eq!(
            within(Reach::all(), &["a"]).scopes(false),
            [Scope::default()],
            "of cluster scope"
        );
        let outside = within(reach(&["edge"], &["x"], ""), &["a"]);
        let scopes = outside.scopes(true);
        assert!(scopes.len() == 1 && scopes[0].is_empty(), "{scopes:?}");
        let both = outside.union(&within(Reach::all(), &["a"])).scopes(true);
        assert!(both.len() == 1 && both[0].namespace.as_deref() == Some("a"), "{both:?}");
    }

    fn reach(namespaces: &[&str], names: &[&str], labels: &str) -> Reach {
        let owned = |values: &[&str]| values.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        Reach::within(
            &owned(namespaces),
            &owned(names),
            Some(&Selector::parse(labels).unwrap()),
        )
    }

    #[test]
    fn a_union_covers_both_and_is_narrow_only_where_both_are() {
        let one = reach(&["a"], &["x"], "app=web");
        let other = reach(&["b"], &["y"], "app=web");
        let both = one.clone().union(&other);
        assert!(both.covers(&one) && both.covers(&other) && !one.covers(&both));
        assert!(!both.covers(&reach(&["a"], &["y"], "app=web")), "no role grants that");
        let places = both.scopes(true).into_iter().map(|scope| (scope.namespace, scope.name));
        let place = |namespace: &str, name: &str| (Some(namespace.to_owned()), Some(name.to_owned()));
        assert_eq!(places.collect::<Vec<_>>(), [place("a", "x"), place("b", "y")]);
        assert_eq!(
            both.union(&reach(&["a", "b"], &[], "app=db")),
            reach(&["a", "b"], &[], "")
        );
        assert!(Reach::all().covers(&one) && !one.covers(&Reach::all()));
    }

    #[test]
    fn a_label_leaves_it_open_whether_an_object_is_there() {
        let name = Name::new(Some("a"), "x");
        assert!(Reach::all().holds(&name) && reach(&["a"], &["x"], "").holds(&name));
        assert!(!reach(&["b"], &[], "").holds(&name) && !reach(&[], &["y"], "").holds(&name));
        assert!(!reach(&[], &[], "app=web").holds(&name));
    }

    #[test]
    fn hashes_narrow_what_is_looked_at() {
        let both = HashRanges::of_namespace("a").union(&HashRanges::of_namespace("b"));
        let one = Reach::all().within_hashes(HashRanges::of_namespace("a"));
        let wide = Reach::all().within_hashes(both.clone());
        assert!(wide.covers(&one) && !one.covers(&wide) && Reach::all().covers(&wide) && !wide.covers(&Reach::all()));
        assert_eq!(one.clone().union(&wide), wide);
        assert_eq!(one.clone().union(&Reach::all()), Reach::all());
        let [of_b, of_c] = ["b", "c"].map(|name| Reach::all().within_hashes(HashRanges::of_namespace(name)));
        let overlapping = of_b.clone().union(&of_c);
        assert_eq!(wide.common(&overlapping), Some(of_b));
        assert_eq!(
            (wide.common(&one), Reach::all().common(&wide)),
            (Some(one.clone()), Some(wide.clone()))
        );
        assert_eq!(
            one.common(&of_c),
            Some(Reach::all().within_hashes(HashRanges::default()))
        );
        let common = reach(&["a", "b"], &[], "app=web").common(&reach(&["b", "c"], &["x"], ""));
        assert_eq!(common, Some(reach(&["b"], &["x"], "app=web")));
        assert_eq!(reach(&[], &[], "app=web").common(&reach(&[], &[], "app=db")), None);
        let (of_a, of_c) = (Name::new(Some("a"), "x"), Name::new(Some("c"), "x"));
        assert!(wide.holds(&of_a) && !wide.holds(&of_c));
        let scopes = wide.scopes(true);
        assert_eq!((scopes.len(), &scopes[0].hashes), (1, &Some(both)));
        assert!(scopes[0].has(&of_a) && !scopes[0].has(&of_c) && !scopes[0].is_empty());
        assert_eq!(wide.scopes(false), [Scope::default()]);
        assert!(Reach::all().within_hashes(HashRanges::default()).scopes(true)[0].is_empty());
        let named = reach(&["c"], &[], "").within_hashes(HashRanges::of_namespace("a"));
        assert!(named.scopes(true)[0].is_empty());
    }

    #[test]
    fn each_place_has_a_watch_until_there_are_too_many() {
        let scopes = reach(&["a", "b"], &["x"], "").scopes(true);
        assert_eq!(scopes.len(), 2);
        assert!(scopes[0].has(&Name::new(Some("a"), "x")) && !scopes[1].has(&Name::new(Some("a"), "x")));
        assert_eq!(reach(&["a", "b"], &[], "").scopes(false), [Scope::default()]);
        let many: Vec<String> = (0..=MAX_SCOPES).map(|it| it.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(reach(&["a", "b"], &many, "").scopes(true).len(), 2);
        assert_eq!(reach(&many, &[], "").scopes(true), [Scope::default()]);
    }
}
