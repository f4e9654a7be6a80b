//! Stored objects after their CustomResourceDefinition was replaced: the fields that an API server would no longer
//! show, and those that it would refuse at the next write.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::custom::definition::resources;
use crate::custom::{CustomKind, Nulls};

/// One served version of a CustomResourceDefinition.
pub struct CustomSchema(Arc<CustomKind>);

/// Errors of a stored object under a schema.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Objections {
    /// Fields that it does not specify, and that therefore vanish, and fields that it does not accept, as the API
    /// server words them.
    pub errors: BTreeSet<String>,
    /// Validation rules of which only an API server knows whether the object keeps them: they use CEL functions of Kubernetes.
    pub unevaluated: BTreeSet<String>,
}

impl CustomSchema {
    /// The schema of a version; none if the definition does not serve it.
    pub fn of(definition: &Value, version: &str) -> Option<Self> {
        let mut served = resources(definition).into_iter();
        let served = served.find(|resource| resource.version == version)?;
        served.custom.map(Self)
    }

    /// Checks an object that was stored before this schema took the place of another one: the objections that the other
    /// one did not have. A field with that one's default is no data that vanishes. Transition rules, which compare with an
    /// earlier state, do not count.
    pub fn objections_after(&self, before: &Self, object: &Value) -> Objections {
        let mut set = object.clone();
        before.0.undefault(&mut set);
        let vanishing = self.0.prune(&mut set);
        self.objections(object, vanishing)
            .beyond(&before.objections(object, before.0.prune(&mut object.clone())))
    }

    fn objections(&self, object: &Value, pruned: Vec<String>) -> Objections {
        let mut object = object.clone();
        self.0.prune(&mut object);
        self.0.default(&mut object, Nulls::Dropped);
        let vanishing = pruned
            .into_iter()
            .map(|path| format!("{path}: unknown field, which would be dropped"));
        let invalid = self.0.validate(&object, None).into_iter();
        Objections {
            errors: vanishing.chain(invalid.map(|error| error.to_string())).collect(),
            unevaluated: self.0.unevaluated_rules(&object),
        }
    }
}

impl Objections {
    /// Returns the objections that were not there before.
    fn beyond(mut self, before: &Self) -> Self {
        self.errors.retain(|error| !before.errors.contains(error));
        self.unevaluated.retain(|rule| !before.unevaluated.contains(rule));
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(spec: &Value) -> CustomSchema {
        let definition = json!({
            "metadata": {"name": "sites.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"kind": "Site", "plural": "sites", "singular": "site", "listKind": "SiteList"},
                "versions": [
                    {"name": "v1", "served": true, "storage": true,
                     "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}},
                    {"name": "v0", "served": false, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
                ],
            },
        });
        assert!(CustomSchema::of(&definition, "v0").is_none(), "it is not served");
        CustomSchema::of(&definition, "v1").unwrap()
    }

    fn site(spec: &Value) -> Value {
        json!({"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "a", "namespace": "b"}, "spec": spec})
    }

    /// Returns the objections of a schema that takes the place of one that accepts everything.
    fn objections(spec: &Value, object: &Value) -> Objections {
        let open = schema(&json!({"x-kubernetes-preserve-unknown-fields": true}));
        schema(spec).objections_after(&open, &site(object))
    }

    fn errors(spec: &Value, object: &Value) -> Vec<String> {
        objections(spec, object).errors.into_iter().collect()
    }

    #[test]
    fn what_vanishes_and_what_would_be_refused_is_named() {
        let spec = json!({"type": "object", "required": ["host"], "properties": {
            "host": {"type": "string", "pattern": "^[a-z]+$"},
            "size": {"type": "integer", "minimum": 1, "default": 1},
        }});
        assert_eq!(errors(&spec, &json!({"host": "web"})), Vec::<String>::new());
        assert_eq!(
            errors(&spec, &json!({"host": "Web", "note": "of a user"})),
            [
                "spec.host: Invalid value: \"Web\": spec.host in body should match '^[a-z]+$'",
                "spec.note: unknown field, which would be dropped",
            ]
        );
    }

    #[test]
    fn rules_count_but_not_those_about_a_change() {
        let rules = json!([
            {"rule": "self.least <= self.most", "message": "least must not exceed most"},
            {"rule": "self.most == oldSelf.most", "message": "most cannot change"},
            {"rule": "quantity(string(self.least)).isInteger()", "message": "not a quantity"},
        ]);
        let number = json!({"type": "integer"});
        let spec = json!({"type": "object", "properties": {"least": number, "most": number}, "x-kubernetes-validations": rules});
        let found = objections(&spec, &json!({"least": 2, "most": 1}));
        assert_eq!(
            Vec::from_iter(found.errors),
            ["spec: Invalid value: least must not exceed most"]
        );
        assert_eq!(
            Vec::from_iter(found.unevaluated),
            ["quantity(string(self.least)).isInteger()"]
        );
    }

    #[test]
    fn what_was_wrong_before_is_no_news() {
        let (loose, strict) = (
            json!({"type": "object", "properties": {"host": {"type": "string", "maxLength": 2}}}),
            json!({"type": "object", "properties": {"host": {"type": "string", "maxLength": 2}, "size": {"type": "string"}}}),
        );
        let object = site(&json!({"host": "long", "size": 1}));
        let after = schema(&strict).objections_after(&schema(&loose), &object);
        assert_eq!(after.errors.len(), 1, "{after:?}");
        assert!(after.errors.first().unwrap().starts_with("spec.size:"), "{after:?}");
    }

    #[test]
    fn a_field_with_its_default_is_no_data() {
        let number = |default: i64| json!({"type": "integer", "default": default});
        let ports = json!({"type": "array", "items": {"type": "object", "properties": {
            "port": {"type": "integer"}, "weight": number(1),
        }}});
        let before = schema(&json!({"type": "object", "properties": {
            "host": {"type": "string"}, "size": number(3), "ports": ports,
            "tuning": {"type": "object", "default": {}, "properties": {"level": number(7)}},
        }}));
        let ports = json!({"type": "array", "items": {"type": "object", "properties": {"port": {"type": "integer"}}}});
        let after = schema(&json!({"type": "object", "required": ["host"], "properties": {
            "host": {"type": "string"}, "ports": ports,
        }}));
        let lost = |size: i64, level: i64, weight: i64| -> Vec<String> {
            let ports = json!([{"port": 80, "weight": weight}]);
            let object = site(&json!({"host": "a", "size": size, "ports": ports, "tuning": {"level": level}}));
            let errors = after.objections_after(&before, &object).errors;
            errors
                .iter()
                .map(|error| error.split(':').next().unwrap().to_owned())
                .collect()
        };
        assert_eq!(lost(3, 7, 1), Vec::<String>::new());
        assert_eq!(lost(4, 7, 1), ["spec.size"]);
        assert_eq!(lost(3, 8, 2), ["spec.ports[0].weight", "spec.tuning"]);
    }
}
