//! Discovery: groups, versions and resources, in the old form and in the aggregated one.

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::kinds::{Kinds, Resource, group_version};

/// Media type of aggregated discovery.
pub(crate) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Returns `true` if the client requests aggregated discovery.
pub(crate) fn wants_aggregated(accept: &str) -> bool {
    accept
        .split(',')
        .any(|part| part.contains("as=APIGroupDiscoveryList") && part.split(';').any(|word| word.trim() == "v=v2"))
}

/// `/api` and `/apis` in the old form.
pub(crate) fn groups(kinds: &Kinds, core: bool) -> Value {
    if core {
        return json!({
            "kind": "APIVersions",
            "versions": kinds.versions(""),
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
        });
    }
    let groups: Vec<Value> = kinds
        .groups()
        .into_iter()
        .map(|group| group_entry(kinds, group))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group_entry(kinds: &Kinds, group: &str) -> Value {
    let versions: Vec<Value> = kinds
        .versions(group)
        .into_iter()
        .map(|version| json!({"groupVersion": group_version(group, version), "version": version}))
        .collect();
    json!({"name": group, "preferredVersion": versions.first(), "versions": versions})
}

/// `/apis/GROUP`.
pub(crate) fn group(kinds: &Kinds, group: &str) -> Option<Value> {
    if kinds.versions(group).is_empty() {
        return None;
    }
    let mut entry = group_entry(kinds, group);
    entry["kind"] = json!("APIGroup");
    entry["apiVersion"] = json!("v1");
    Some(entry)
}

/// `/apis/GROUP/VERSION`.
pub(crate) fn resources(kinds: &Kinds, group: &str, version: &str) -> Result<Value, Failure> {
    let mut resources = Vec::new();
    for resource in kinds
        .all()
        .filter(|resource| resource.group == group && resource.version == version)
    {
        resources.push(resource_entry(resource));
        for part in &resource.subresources {
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, part.name),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": part.kind,
                "verbs": part.verbs,
            });
            if let Some((group, version)) = &part.group_version {
                entry["group"] = json!(group);
                entry["version"] = json!(version);
            }
            resources.push(entry);
        }
    }
    if resources.is_empty() {
        return Err(Failure::no_such_resource());
    }
    Ok(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version(group, version),
        "resources": resources,
    }))
}

fn resource_entry(resource: &Resource) -> Value {
    let mut entry = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.verbs,
        "storageVersionHash": hash(&[&resource.group, &resource.version, &resource.kind]),
    });
    for (name, words) in [
        ("shortNames", &resource.short_names),
        ("categories", &resource.categories),
    ] {
        if !words.is_empty() {
            entry[name] = json!(words);
        }
    }
    entry
}

/// Returns a hash of the parts.
pub(crate) fn hash(parts: &[&str]) -> String {
    use base64::Engine as _;
    // FNV-1a.
    let mut state: u64 = 0xCBF2_9CE4_8422_2325;
    for byte in parts.join("\u{0}").bytes() {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    }
    base64::engine::general_purpose::STANDARD.encode(state.to_be_bytes())
}

/// `/api` and `/apis` in the aggregated form.
pub(crate) fn aggregated(kinds: &Kinds, core: bool) -> Value {
    let groups: Vec<&str> = if core { vec![""] } else { kinds.groups() };
    let items: Vec<Value> = groups
        .into_iter()
        .map(|group| {
            let versions: Vec<Value> = kinds
                .versions(group)
                .into_iter()
                .map(|version| aggregated_version(kinds, group, version))
                .collect();
            let metadata = if group.is_empty() {
                json!({})
            } else {
                json!({"name": group})
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

fn aggregated_version(kinds: &Kinds, group: &str, version: &str) -> Value {
    let of_version = kinds
        .all()
        .filter(|resource| resource.group == group && resource.version == version);
    let resources: Vec<Value> = of_version.map(|resource| aggregated_resource(resource)).collect();
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let scope = if resource.namespaced { "Namespaced" } else { "Cluster" };
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": kind(&resource.group, &resource.version, &resource.kind),
        "scope": scope,
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    for (name, words) in [
        ("shortNames", &resource.short_names),
        ("categories", &resource.categories),
    ] {
        if !words.is_empty() {
            entry[name] = json!(words);
        }
    }
    let parts: Vec<Value> = resource
        .subresources
        .iter()
        .map(|part| {
            let (group, version) = part.group_version.as_ref().map_or(
                (resource.group.as_str(), resource.version.as_str()),
                |(group, version)| (group, version),
            );
            json!({"subresource": part.name, "responseKind": kind(group, version, &part.kind), "verbs": part.verbs})
        })
        .collect();
    if !parts.is_empty() {
        entry["subresources"] = json!(parts);
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_discovery_list_the_same_resources() {
        let kinds = Kinds::builtin();
        let plain = resources(&kinds, "apps", "v1").expect("apps/v1 is served");
        let aggregated = aggregated(&kinds, false);
        let apps = aggregated["items"]
            .as_array()
            .expect("a list")
            .iter()
            .find(|item| item["metadata"]["name"] == "apps");
        let names: Vec<&Value> = apps.expect("apps is served")["versions"][0]["resources"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|entry| &entry["resource"])
            .collect();
        let plain: Vec<&Value> = plain["resources"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|entry| &entry["name"])
            .filter(|name| !name.as_str().unwrap_or_default().contains('/'))
            .collect();
        assert_eq!(names, plain);
    }

    #[test]
    fn kubectl_asks_for_the_aggregated_form() {
        assert!(wants_aggregated(&format!("{AGGREGATED},application/json")));
        assert!(!wants_aggregated("application/json"));
    }
}
