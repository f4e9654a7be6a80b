//! Registry of resources: the built-in ones, as generated from a real server, and those that CRDs add.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::apply::types::Type;
use crate::apply::update::Versions;
use crate::fields::Set;
pub(crate) use crate::resource::{Resource, Storage, Subresource, group_version, split_group_version};
use crate::schema::{self, Node};

const RESOURCES: &str = include_str!("../schemas/resources.json");

/// Everything that is served.
#[derive(Debug, Clone)]
pub(crate) struct Kinds {
    by_path: BTreeMap<(String, String, String), Arc<Resource>>,
}

impl Kinds {
    pub(crate) fn builtin() -> Self {
        static BUILTIN: LazyLock<Kinds> = LazyLock::new(|| {
            let entries: Vec<Value> = serde_json::from_str(RESOURCES).expect("the generated resources are JSON");
            let mut kinds = Kinds {
                by_path: BTreeMap::new(),
            };
            entries
                .iter()
                .flat_map(read_group_version)
                .for_each(|resource| kinds.add(resource));
            kinds
        });
        BUILTIN.clone()
    }

    pub(crate) fn add(&mut self, resource: Resource) {
        let path = (
            resource.group.clone(),
            resource.version.clone(),
            resource.plural.clone(),
        );
        self.by_path.insert(path, Arc::new(resource));
    }

    /// Removes every version of a custom resource.
    pub(crate) fn remove(&mut self, group: &str, plural: &str) {
        self.by_path
            .retain(|_, resource| resource.custom.is_none() || resource.group != group || resource.plural != plural);
    }

    pub(crate) fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_path
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.by_path.values()
    }

    /// Any one resource of a group that has the kind.
    pub(crate) fn of_group_kind(&self, group: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.all()
            .find(|resource| resource.group == group && resource.kind == kind)
    }

    /// The resource through which a storage is written.
    pub(crate) fn of_storage(&self, storage: &Storage) -> Option<&Arc<Resource>> {
        self.all().find(|resource| {
            resource.storage == *storage
                && resource.group == storage.group
                && resource
                    .custom
                    .as_ref()
                    .is_none_or(|custom| custom.storage_version == resource.version)
        })
    }

    /// The versions of a group, the preferred one first.
    pub(crate) fn versions(&self, group: &str) -> Vec<&str> {
        let mut versions: Vec<&str> = self
            .all()
            .filter(|resource| resource.group == group)
            .map(|resource| resource.version.as_str())
            .collect();
        versions.sort_by_key(|version| std::cmp::Reverse(version_priority(version)));
        versions.dedup();
        versions
    }

    /// Groups other than the core one, in the order of their names.
    pub(crate) fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<&str> = self
            .all()
            .map(|resource| resource.group.as_str())
            .filter(|group| !group.is_empty())
            .collect();
        groups.dedup();
        groups
    }

    /// The views of one resource that field ownership needs.
    pub(crate) fn views<'a>(&'a self, resource: &'a Resource, subresource: &'a str) -> Views<'a> {
        Views {
            kinds: self,
            resource,
            subresource,
        }
    }
}

/// Stable before beta before alpha, higher numbers first, names that are no versions last.
pub(crate) fn version_priority(version: &str) -> (u8, u64, u64, String) {
    let parsed = || {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let major: u64 = rest[..digits].parse().ok()?;
        let tail = &rest[digits..];
        if tail.is_empty() {
            return Some((3, major, 0));
        }
        let (rank, number) = match tail.strip_prefix("beta") {
            Some(number) => (2, number),
            None => (1, tail.strip_prefix("alpha")?),
        };
        Some((rank, major, number.parse().ok()?))
    };
    // Names that are no versions sort the other way round among themselves; nobody depends on it here.
    parsed().map_or_else(
        || (0, 0, 0, version.to_owned()),
        |(rank, major, minor)| (rank, major, minor, String::new()),
    )
}

/// One resource in all its versions, through one of its parts.
pub(crate) struct Views<'a> {
    kinds: &'a Kinds,
    resource: &'a Resource,
    subresource: &'a str,
}

impl Views<'_> {
    fn at(&self, version: &str) -> Option<&Resource> {
        if version == self.resource.api_version() {
            return Some(self.resource);
        }
        let (group, version) = split_group_version(version);
        self.kinds
            .all()
            .find(|other| other.storage == self.resource.storage && other.group == group && other.version == version)
            .map(|resource| &**resource)
    }
}

impl Versions for Views<'_> {
    fn kind(&self, version: &str) -> Option<Type<'_>> {
        self.at(version).map(|resource| Type::of(resource.schema()))
    }

    fn convert<'v>(&self, object: &'v Value, version: &str) -> Cow<'v, Value> {
        if object["apiVersion"] == version {
            return Cow::Borrowed(object);
        }
        let Some(target) = self.at(version) else {
            return Cow::Borrowed(object);
        };
        let stored = match object["apiVersion"].as_str().and_then(|own| self.at(own)) {
            Some(source) => source.store(object.clone()),
            None => object.clone(),
        };
        Cow::Owned(target.show(&stored).into_owned())
    }

    fn nothing(&self, version: &str) -> Value {
        self.at(version).unwrap_or(self.resource).nothing()
    }

    fn ignored(&self, version: &str) -> &Set {
        self.at(version).unwrap_or(self.resource).reset(self.subresource)
    }
}

fn read_group_version(entry: &Value) -> Vec<Resource> {
    let (group, version) = split_group_version(entry["groupVersion"].as_str().unwrap_or_default());
    let list = entry["resources"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut resources: Vec<Resource> = Vec::new();
    for text in list {
        let name = text["name"].as_str().unwrap_or_default();
        let Some((parent, part)) = name.split_once('/') else {
            resources.push(read_resource(group, version, text));
            continue;
        };
        let own_group = || Some((text["group"].as_str()?.to_owned(), text["version"].as_str()?.to_owned()));
        if let Some(resource) = resources.iter_mut().find(|resource| resource.plural == parent) {
            resource.subresources.push(Subresource {
                name: part.to_owned(),
                kind: text["kind"].as_str().unwrap_or_default().to_owned(),
                group_version: own_group(),
                verbs: words(&text["verbs"]),
            });
        }
    }
    resources
}

fn read_resource(group: &str, version: &str, text: &Value) -> Resource {
    let word = |name: &str| text[name].as_str().unwrap_or_default().to_owned();
    let kind = word("kind");
    let plural = word("name");
    // Both event groups show the same objects.
    let storage_group = if plural == "events" { "" } else { group };
    Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        singular: word("singularName"),
        list_kind: format!("{kind}List"),
        namespaced: text["namespaced"].as_bool().unwrap_or(false),
        short_names: words(&text["shortNames"]),
        categories: words(&text["categories"]),
        verbs: words(&text["verbs"]),
        subresources: Vec::new(),
        schema: Node::Named(definition_name(group, version, &kind)),
        storage: Storage::new(storage_group, &plural),
        custom: None,
        kind,
        plural,
    }
}

/// The definition that carries the kind.
pub(crate) fn definition_name(group: &str, version: &str, kind: &str) -> String {
    static NAMES: LazyLock<BTreeMap<(String, String, String), String>> = LazyLock::new(|| {
        let mut names = BTreeMap::new();
        for (name, text) in schema::TEXTS.iter() {
            for kind in text["x-kubernetes-group-version-kind"].as_array().into_iter().flatten() {
                let word = |name: &str| kind[name].as_str().unwrap_or_default().to_owned();
                names.insert((word("group"), word("version"), word("kind")), name.clone());
            }
        }
        names
    });
    NAMES
        .get(&(group.to_owned(), version.to_owned(), kind.to_owned()))
        .cloned()
        .unwrap_or_default()
}

fn words(list: &Value) -> Vec<String> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deployments_have_schema_status_and_a_foreign_scale() {
        let kinds = Kinds::builtin();
        let deployments = kinds.get("apps", "v1", "deployments").expect("deployments are served");
        assert!(deployments.has_status());
        assert!(deployments.schema().properties.contains_key("spec"));
        let scale = deployments.subresource("scale").expect("deployments scale");
        assert_eq!(scale.group_version, Some(("autoscaling".to_owned(), "v1".to_owned())));
    }

    #[test]
    fn stable_versions_come_before_beta_and_alpha() {
        let mut versions = ["v1alpha1", "v2", "v1beta2", "v10", "v1"];
        versions.sort_by_key(|version| std::cmp::Reverse(version_priority(version)));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta2", "v1alpha1"]);
    }
}
