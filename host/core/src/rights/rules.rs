//! Models RBAC's rules as values: verbs on a resource, in a place. Rules covered by another one are left out.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// A verb of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Read one object.
    Get,
    /// List objects.
    List,
    /// Watch objects.
    Watch,
    /// Create an object.
    Create,
    /// Change an object.
    Patch,
    /// Delete an object.
    Delete,
    /// Default objects at admission. A verb of Pilothouse: only the host checks it.
    Default,
    /// Validate objects at admission. A verb of Pilothouse, like the one above.
    Validate,
}

/// The place where rules hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Every namespace, and cluster-scoped objects.
    Cluster,
    /// One namespace.
    Namespace(String),
}

/// The objects of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource {
    /// The API group.
    pub group: String,
    /// The resource, such as `deployments`, with its subresource, such as `deployments/status`.
    pub resource: String,
    /// The names of the objects; empty means all.
    pub names: BTreeSet<String>,
}

/// Rules by place and resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(BTreeMap<Place, BTreeMap<Resource, BTreeSet<Verb>>>);

impl Verb {
    /// The verb as RBAC spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::Default => "pilothouse-default",
            Self::Validate => "pilothouse-validate",
        }
    }
}

impl Verb {
    /// Parses a verb of RBAC; none for a verb that no plugin needs.
    pub fn parse(text: &str) -> Option<Self> {
        let all = [
            Self::Get,
            Self::List,
            Self::Watch,
            Self::Create,
            Self::Patch,
            Self::Delete,
            Self::Default,
            Self::Validate,
        ];
        all.into_iter().find(|verb| verb.as_str() == text)
    }
}

impl Resource {
    /// A resource, restricted to objects of these names if there are any.
    pub fn new(group: &str, resource: String, names: &[String]) -> Self {
        Self {
            group: group.to_owned(),
            resource,
            names: names.iter().cloned().collect(),
        }
    }

    /// Reports whether every object of another resource is one of this.
    fn covers(&self, other: &Self) -> bool {
        self.group == other.group
            && self.resource == other.resource
            && (self.names.is_empty() || (!other.names.is_empty() && self.names.is_superset(&other.names)))
    }
}

impl Rules {
    /// Adds verbs on a resource.
    pub fn add(&mut self, place: Place, resource: Resource, verbs: &[Verb]) {
        if verbs.is_empty() {
            return;
        }
        let rules = self.0.entry(place).or_default();
        rules.entry(resource).or_default().extend(verbs);
    }

    /// Adds the rules of a role in a place. Rules that no plugin needs are ignored.
    pub fn add_role(&mut self, place: &Place, role: &Value) {
        let texts = |value: &Value| -> Vec<String> {
            let values = value.as_array().into_iter().flatten();
            values.filter_map(|value| value.as_str().map(str::to_owned)).collect()
        };
        for rule in role["rules"].as_array().into_iter().flatten() {
            let verbs: Vec<Verb> = texts(&rule["verbs"])
                .iter()
                .filter_map(|verb| Verb::parse(verb))
                .collect();
            let names = texts(&rule["resourceNames"]);
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    self.add(place.clone(), Resource::new(&group, resource, &names), &verbs);
                }
            }
        }
    }

    /// Each place with its rules.
    pub fn places(&self) -> impl Iterator<Item = (&Place, &BTreeMap<Resource, BTreeSet<Verb>>)> {
        self.0.iter()
    }

    /// Each verb on each resource, in each place.
    pub fn each(&self) -> impl Iterator<Item = (&Place, &Resource, Verb)> {
        self.0.iter().flat_map(|(place, rules)| {
            let verbs = rules
                .iter()
                .flat_map(|(resource, verbs)| verbs.iter().map(move |verb| (resource, *verb)));
            verbs.map(move |(resource, verb)| (place, resource, verb))
        })
    }

    /// Reports whether nothing is allowed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same without verbs that another rule allows: for more names, or for the whole cluster.
    #[must_use]
    pub fn simplified(&self) -> Self {
        self.beyond(&Self::default())
    }

    /// The rules that these others do not allow.
    #[must_use]
    pub fn beyond(&self, others: &Self) -> Self {
        let mut left = Self::default();
        for (place, rules) in &self.0 {
            for (resource, verbs) in rules {
                let covered = |verb: &Verb| {
                    others.allows(place, resource, *verb, None)
                        || self.allows(place, resource, *verb, Some((place, resource)))
                };
                let verbs: Vec<Verb> = verbs.iter().copied().filter(|verb| !covered(verb)).collect();
                left.add(place.clone(), resource.clone(), &verbs);
            }
        }
        left
    }

    /// Reports whether a verb is allowed by some rule other than that of `except`.
    fn allows(&self, place: &Place, resource: &Resource, verb: Verb, except: Option<(&Place, &Resource)>) -> bool {
        let places = [&Place::Cluster, place];
        // The cluster is one place.
        let places = if *place == Place::Cluster {
            &places[..1]
        } else {
            &places[..]
        };
        places.iter().any(|place| {
            let rules = self.0.get(*place).into_iter().flatten();
            let mut rules = rules.filter(|(other, _)| except != Some((*place, *other)));
            rules.any(|(other, verbs)| other.covers(resource) && verbs.contains(&verb))
        })
    }
}

/// The rules of one place, in the form of a Role.
pub fn as_json(rules: &BTreeMap<Resource, BTreeSet<Verb>>) -> Vec<Value> {
    let rule = |(resource, verbs): (&Resource, &BTreeSet<Verb>)| {
        let Resource { group, resource, names } = resource;
        let verbs: Vec<_> = verbs.iter().map(|verb| verb.as_str()).collect();
        let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
        if !names.is_empty() {
            rule["resourceNames"] = json!(names);
        }
        rule
    };
    rules.iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(names: &[&str]) -> Resource {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Resource::new("", "configmaps".to_owned(), &names)
    }

    fn here() -> Place {
        Place::Namespace("a".to_owned())
    }

    #[test]
    fn what_a_wider_rule_allows_is_left_out() {
        let mut rules = Rules::default();
        rules.add(Place::Cluster, resource(&[]), &[Verb::List]);
        rules.add(here(), resource(&["x"]), &[Verb::List, Verb::Patch]);
        rules.add(here(), resource(&["x", "y"]), &[Verb::Patch]);
        rules.add(here(), resource(&["z"]), &[Verb::List]);
        let mut least = Rules::default();
        least.add(Place::Cluster, resource(&[]), &[Verb::List]);
        least.add(here(), resource(&["x", "y"]), &[Verb::Patch]);
        assert_eq!(rules.simplified(), least);
    }

    #[test]
    fn a_rule_for_names_or_a_namespace_covers_no_more_than_these() {
        let mut rules = Rules::default();
        rules.add(here(), resource(&["x"]), &[Verb::List]);
        let mut more = Rules::default();
        more.add(here(), resource(&[]), &[Verb::List]);
        more.add(Place::Cluster, resource(&["x"]), &[Verb::List]);
        more.add(Place::Namespace("b".to_owned()), resource(&["x", "y"]), &[Verb::List]);
        more.add(here(), resource(&["x"]), &[Verb::Watch]);
        assert_eq!(more.beyond(&rules), more);
        assert!(rules.beyond(&more).is_empty());
    }

    #[test]
    fn rules_are_read_as_they_are_written() {
        let mut rules = Rules::default();
        rules.add(here(), resource(&["x"]), &[Verb::Watch, Verb::List, Verb::Validate]);
        let (_, written) = rules.places().next().unwrap();
        let mut read = Rules::default();
        read.add_role(&here(), &json!({"rules": as_json(written)}));
        assert_eq!(read, rules);
        read.add_role(
            &here(),
            &json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["escalate"]}]}),
        );
        assert_eq!(read, rules);
    }

    #[test]
    fn a_rule_is_written_as_a_role_has_it() {
        let mut rules = Rules::default();
        rules.add(here(), resource(&["x"]), &[Verb::Watch, Verb::List]);
        let (_, rules) = rules.places().next().unwrap();
        assert_eq!(
            as_json(rules),
            [json!({
                "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["x"], "verbs": ["list", "watch"],
            })]
        );
    }
}
