//! Shows a kind as an API server will serve it when a CustomResourceDefinition takes the place of the one in the
//! cluster: its versions, and its objects with the new defaults and without the fields that the new schema drops. The
//! requests are sent elsewhere.

use pilothouse_description::defaults::{drop_nulls, fill_in};
use pilothouse_description::schema_pruning::{OF_RESOURCES, prune_undeclared};
use serde_json::{Map, Value, json};

use crate::plugin::manifest::BroughtCrd;

/// Converts an object to an API version, as the plugin's converter does.
pub type Convert<'a> = &'a dyn Fn(&Value, &str) -> Result<Value, String>;

/// A definition that takes the place of the one in the cluster.
#[derive(Clone, Debug)]
pub struct CrdView {
    crd: BroughtCrd,
    live: Option<Value>,
}

impl CrdView {
    /// The view of a definition; `live` is the one in the cluster, if there is one.
    pub fn new(crd: BroughtCrd, live: Option<Value>) -> Self {
        Self { crd, live }
    }

    /// The definition's name: `plural.group`.
    pub fn name(&self) -> &str {
        &self.crd.name
    }

    /// The kind.
    pub fn kind(&self) -> &str {
        &self.crd.kind
    }

    /// The API group.
    pub fn group(&self) -> &str {
        &self.crd.group
    }

    /// The resource's name, such as `websites`.
    pub fn plural(&self) -> &str {
        self.names()["plural"].as_str().unwrap_or_default()
    }

    /// Set if the cluster has no such definition, so that there are no objects.
    pub fn is_new(&self) -> bool {
        self.live.is_none()
    }

    /// The definition as the cluster will have it: with the metadata and the status of the present one.
    pub fn definition(&self) -> Value {
        let mut shown = self.crd.definition.clone();
        if let Some(live) = &self.live {
            for part in ["metadata", "status"] {
                shown[part] = live[part].clone();
            }
        }
        shown
    }

    fn names(&self) -> &Value {
        &self.crd.definition["spec"]["names"]
    }

    /// The resources that discovery will list for a version; none if it will not be served.
    pub fn resources(&self, version: &str) -> Vec<Value> {
        let Some(served) = version_of(&self.crd.definition, version).filter(|it| it["served"] == true) else {
            return Vec::new();
        };
        let names = self.names();
        let namespaced = self.crd.definition["spec"]["scope"] == "Namespaced";
        let resource = |name: String| {
            json!({
                "name": name, "singularName": names["singular"].as_str().unwrap_or_default(), "namespaced": namespaced,
                "kind": self.crd.kind, "shortNames": names["shortNames"],
                "verbs": ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
            })
        };
        let mut resources = vec![resource(self.plural().to_owned())];
        if served["subresources"]["status"].is_object() {
            resources.push(resource(format!("{}/status", self.plural())));
        }
        resources
    }

    /// The version in which objects are read to be shown in another one: that in which they are stored, if it is
    /// served now, else the version itself, else any that is served.
    pub fn read_version(&self, version: &str) -> Option<&str> {
        let versions = || self.live.iter().flat_map(versions).filter(|it| it["served"] == true);
        let found = versions().find(|it| it["storage"] == true);
        let found = found.or_else(|| versions().find(|it| it["name"] == version));
        found.or_else(|| versions().next())?["name"].as_str()
    }

    /// Changes an object that was read into what the API server will show of it in a version. Its defaults are those of
    /// the version in which it is stored; a conversion without a webhook changes nothing but `apiVersion`.
    pub fn show(&self, object: &mut Value, version: &str, convert: Option<Convert<'_>>) -> Result<(), String> {
        if object["kind"] != *self.crd.kind {
            // The metadata alone was asked for.
            return Ok(());
        }
        let definition = &self.crd.definition;
        let read = object["apiVersion"].as_str().and_then(|it| it.rsplit('/').next());
        let read = read.unwrap_or_default().to_owned();
        if let Some(schema) = schema_of(definition, &read) {
            fit(schema, object);
            fill_in(schema, object);
            drop_nulls(schema, object);
        }
        if read == version {
            return Ok(());
        }
        let api_version = format!("{}/{version}", self.crd.group);
        match convert {
            Some(convert) => *object = convert(object, &api_version)?,
            None if definition["spec"]["conversion"]["strategy"] == "Webhook" => {
                return Err(format!(
                    "a webhook converts it from {read} to {version}, and the plugin has no converter that could be asked before"
                ));
            }
            None => object["apiVersion"] = json!(api_version),
        }
        if let Some(schema) = schema_of(definition, version) {
            fit(schema, object);
        }
        Ok(())
    }
}

/// Drops the fields that a schema does not declare.
fn fit(schema: &Value, object: &mut Value) {
    let Some(members) = object.as_object_mut() else { return };
    let kept: Vec<_> = OF_RESOURCES
        .iter()
        .filter_map(|name| members.remove_entry(*name))
        .collect();
    prune_undeclared(schema, object, "");
    if let Some(members) = object.as_object_mut() {
        members.extend(kept.into_iter().collect::<Map<_, _>>());
    }
}

fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition["spec"]["versions"].as_array().into_iter().flatten()
}

fn version_of<'a>(definition: &'a Value, version: &str) -> Option<&'a Value> {
    versions(definition).find(|it| it["name"] == version)
}

fn schema_of<'a>(definition: &'a Value, version: &str) -> Option<&'a Value> {
    version_of(definition, version)?["schema"].get("openAPIV3Schema")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(name: &str, flags: [bool; 2], spec: &Value) -> Value {
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        json!({"name": name, "served": flags[0], "storage": flags[1], "schema": {"openAPIV3Schema": schema}})
    }

    fn definition(versions: &[Value], conversion: &str) -> Value {
        json!({"metadata": {"name": "sites.x.dev"}, "spec": {
            "group": "x.dev", "scope": "Namespaced", "names": {"kind": "Site", "plural": "sites"},
            "conversion": {"strategy": conversion}, "versions": versions}})
    }

    fn view(wanted: Value, live: Option<Value>) -> CrdView {
        let crd = BroughtCrd {
            name: "sites.x.dev".to_owned(),
            group: "x.dev".to_owned(),
            kind: "Site".to_owned(),
            definition: wanted,
        };
        CrdView::new(crd, live)
    }

    fn site(spec: &Value) -> Value {
        json!({"apiVersion": "x.dev/v1", "kind": "Site", "metadata": {"name": "a"}, "spec": spec})
    }

    fn shown(view: &CrdView, version: &str, spec: &Value) -> Value {
        let mut object = site(spec);
        view.show(&mut object, version, None).unwrap();
        object
    }

    fn old() -> Value {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        definition(&[version("v1", [true, true], &open)], "None")
    }

    #[test]
    fn the_new_schema_fills_in_and_drops() {
        let spec = json!({"type": "object", "properties": {
            "size": {"type": "integer", "default": 3},
            "port": {"x-kubernetes-int-or-string": true},
            "template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"data": {"type": "string"}}},
        }});
        let view = view(definition(&[version("v1", [true, true], &spec)], "None"), Some(old()));
        let template = json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "t"}, "data": "x", "more": 1});
        let spec = json!({"old": 1, "port": "http", "template": template});
        let template = json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "t"}, "data": "x"});
        assert_eq!(
            shown(&view, "v1", &spec),
            site(&json!({"size": 3, "port": "http", "template": template}))
        );
    }

    #[test]
    fn without_a_webhook_a_conversion_changes_the_version_alone() {
        let spec = |field: &str| json!({"type": "object", "properties": {"kept": {"type": "string"}, field: {"default": 1, "type": "integer"}}});
        let versions = [
            version("v1", [true, true], &spec("one")),
            version("v2", [true, false], &spec("two")),
        ];
        let view = view(definition(&versions, "None"), Some(old()));
        assert_eq!(view.read_version("v2"), Some("v1"));
        let mut expected = site(&json!({"kept": "x"}));
        expected["apiVersion"] = json!("x.dev/v2");
        assert_eq!(
            shown(&view, "v2", &json!({"kept": "x"})),
            expected,
            "defaults are those of the stored version, and v2 has no field `one`"
        );
        assert_eq!(view.resources("v2")[0]["kind"], "Site");
        assert!(view.resources("v3").is_empty());
    }

    #[test]
    fn a_webhook_conversion_is_the_converters() {
        let spec = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
        let versions = [version("v1", [true, true], &spec), version("v2", [true, false], &spec)];
        let view = view(definition(&versions, "Webhook"), Some(old()));
        let renames = |object: &Value, api_version: &str| {
            let mut object = object.clone();
            object["apiVersion"] = json!(api_version);
            object["spec"] = json!({"b": object["spec"]["a"]});
            Ok(object)
        };
        let mut object = site(&json!({"a": "x"}));
        view.show(&mut object, "v2", Some(&renames)).unwrap();
        assert_eq!(object["spec"], json!({"b": "x"}));
        let mut object = site(&json!({"a": "x"}));
        let problem = view.show(&mut object, "v2", None).unwrap_err();
        assert!(problem.contains("from v1 to v2"), "{problem}");
    }

    #[test]
    fn a_definition_that_the_cluster_lacks_has_no_version_to_read() {
        let view = view(old(), None);
        assert!(view.is_new());
        assert_eq!(view.read_version("v1"), None);
        assert_eq!(view.resources("v1").len(), 1);
    }

    #[test]
    fn metadata_alone_stays_as_it_is() {
        let view = view(
            definition(&[version("v1", [true, true], &json!({"type": "object"}))], "None"),
            Some(old()),
        );
        let mut partial =
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "a"}});
        let before = partial.clone();
        view.show(&mut partial, "v1", None).unwrap();
        assert_eq!(partial, before);
    }
}
