//! The CustomResourceDefinition of a type, made from the type: the feature `crd`.
//!
//! The derive [`Resource`] takes names, columns and rules from the attribute `#[crd]`; schemars'
//! `JsonSchema` gives the schema of the spec and the status, with descriptions from the doc comments:
//!
//! ```
//! use pilothouse_plugin::{ObjectMeta, Resource};
//! use schemars::JsonSchema;
//!
//! /// A Site is a page that somebody sees.
//! #[derive(serde::Deserialize, Resource)]
//! #[resource(group = "example.com", version = "v1", kind = "Site")]
//! #[crd(
//!     plural = "sites",
//!     shortname = "st",
//!     status = SiteStatus,
//!     printcolumn(name = "Host", type_ = "string", json_path = ".spec.host"),
//!     validation(rule = "self.metadata.name.size() <= 63", message = "give it a name of at most 63 characters"),
//! )]
//! struct Site {
//!     metadata: ObjectMeta,
//!     #[resource(whole)]
//!     spec: SiteSpec,
//! }
//!
//! /// Desired page.
//! #[derive(serde::Deserialize, JsonSchema)]
//! struct SiteSpec {
//!     /// The host's name.
//!     #[schemars(length(min = 1), extend("x-kubernetes-validations" = [{"rule": "self == oldSelf"}]))]
//!     host: String,
//!     /// Number of replicas.
//!     #[serde(default = "two")]
//!     replicas: i32,
//! }
//!
//! fn two() -> i32 {
//!     2
//! }
//!
//! /// Observed page.
//! #[derive(serde::Serialize, JsonSchema)]
//! struct SiteStatus {
//!     /// Address of the page.
//!     url: String,
//! }
//!
//! let definition = pilothouse_plugin::crd::<Site>();
//! let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
//! assert_eq!(definition["metadata"]["name"], "sites.example.com");
//! assert_eq!(schema["description"], "A Site is a page that somebody sees.");
//! assert_eq!(schema["properties"]["spec"]["properties"]["replicas"]["default"], 2);
//! ```
//!
//! | in `#[crd]` | |
//! |---|---|
//! | `plural`, `singular` | the names; by default the kind in lower case, with and without an `s` |
//! | `shortname`, `category` | each may be repeated |
//! | `scope = "Cluster"` | for a kind without namespaces |
//! | `status = Type` | the status; conditions and observedGeneration ([`ConditionsOnly`]) by default |
//! | `scale(spec_replicas_path = "..", status_replicas_path = "..", label_selector_path = "..")` | the subresource |
//! | `printcolumn(name = "..", type_ = "..", json_path = "..", description = "..", priority = 1)` | may be repeated |
//! | `validation(rule = "..", message = "..")` | a CEL rule for the whole object; may be repeated |
//! | `selectable = ".spec.host"` | a field for field selectors; may be repeated |
//! | `filtered` | for a controller with a filter: objects that no host has seen are not `InProgress` |
//!
//! The default of the status is `observedGeneration: -1`, so that [kstatus] takes an object that no host has seen for
//! `InProgress`. It is left out where a status has other required members or rules, which such a default would break.
//!
//! [kstatus]: https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus
//!
//! A member that is one of the builders of `k8s`, such as `Vec<Toleration>` or `Option<Affinity>`, has the API server's own
//! schema, without descriptions. That of a `PodTemplateSpec` is large; [`any_object`] is a schema without any rules:
//!
//! ```
//! # #[cfg(feature = "k8s-core")] {
//! use pilothouse_plugin::k8s::core::v1::{PodTemplateSpec, ResourceRequirements};
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct WorkerSpec {
//!     resources: Option<ResourceRequirements>,
//!     #[schemars(schema_with = "pilothouse_plugin::crd::any_object")]
//!     template: PodTemplateSpec,
//! }
//! # }
//! ```
//!
//! A test of the plugin compares the definition with the file that the manifest brings (`keep`), so that none of this code
//! is in the component. A CEL rule below the root is an extension of schemars, as above.

#[cfg(feature = "k8s-meta")]
pub(crate) mod built_in;
mod conditions;
#[cfg(not(target_family = "wasm"))]
mod keep;
mod structural;

use schemars::generate::SchemaSettings;
use schemars::transform::AddNullable;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

pub use self::conditions::{Condition, ConditionStatus, ConditionsOnly};
#[cfg(not(target_family = "wasm"))]
pub use self::keep::{CONFIGURATION, keep, keep_configuration};
use self::structural::make_structural;
use crate::object::{Kind, Resource};

/// Returns the CustomResourceDefinition of a type whose derive has the attribute `#[crd]`; see the [module](self).
pub fn crd<T: CustomResource>() -> Value {
    T::definition().finish()
}

/// Returns the schema of any object, for `#[schemars(schema_with = "pilothouse_plugin::crd::any_object")]`: the API
/// server stores every member of it, and checks none.
pub fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A resource whose definition is made from its type. Implemented by the derive [`Resource`].
pub trait CustomResource: Resource {
    /// Returns the definition.
    #[doc(hidden)]
    fn definition() -> Definition;
}

/// Builder that the derive calls to describe a definition.
#[doc(hidden)]
#[derive(Debug)]
pub struct Definition {
    kind: Kind,
    names: Map<String, Value>,
    scope: &'static str,
    version: Map<String, Value>,
    schema: Map<String, Value>,
    subresources: Map<String, Value>,
    is_filtered: bool,
}

#[doc(hidden)]
impl Definition {
    pub fn new(kind: Kind, plural: &str, singular: &str, scope: &'static str, description: &str) -> Self {
        let Value::Object(names) = json!({"kind": kind.kind, "plural": plural, "singular": singular}) else {
            unreachable!("it is an object");
        };
        let mut schema = Map::new();
        schema.insert("type".to_owned(), "object".into());
        if !description.is_empty() {
            schema.insert("description".to_owned(), description.into());
        }
        Self {
            kind,
            names,
            scope,
            version: Map::new(),
            schema,
            subresources: Map::new(),
            is_filtered: false,
        }
    }

    /// States that the controller has a filter, so that not every object gets a status.
    #[must_use]
    pub fn filtered(mut self) -> Self {
        self.is_filtered = true;
        self
    }

    /// Adds a short name or a category.
    #[must_use]
    pub fn name(mut self, list: &str, name: &str) -> Self {
        push(&mut self.names, list, name.into());
        self
    }

    /// Adds a member of the object.
    #[must_use]
    pub fn member<T: JsonSchema>(mut self, name: &str, required: bool) -> Self {
        self.property(name, schema_of::<T>());
        if required {
            push(&mut self.schema, "required", name.into());
        }
        self
    }

    /// Sets the status.
    #[must_use]
    pub fn status<T: JsonSchema>(mut self) -> Self {
        let mut schema = schema_of::<T>();
        schema["nullable"] = true.into();
        self.property("status", schema);
        self.subresources.insert("status".to_owned(), json!({}));
        self
    }

    /// Sets the subresource `scale`.
    #[must_use]
    pub fn scale(mut self, paths: &[(&str, &str)]) -> Self {
        self.subresources.insert("scale".to_owned(), object(paths));
        self
    }

    /// Adds a printer column.
    #[must_use]
    pub fn column(mut self, members: &[(&str, &str)], priority: Option<i32>) -> Self {
        let mut column = object(members);
        if let Some(priority) = priority {
            column["priority"] = priority.into();
        }
        push(&mut self.version, "additionalPrinterColumns", column);
        self
    }

    /// Adds a CEL rule for the whole object.
    #[must_use]
    pub fn validation(mut self, members: &[(&str, &str)]) -> Self {
        push(&mut self.schema, "x-kubernetes-validations", object(members));
        self
    }

    /// Adds a field for field selectors.
    #[must_use]
    pub fn selectable(mut self, path: &str) -> Self {
        push(&mut self.version, "selectableFields", json!({"jsonPath": path}));
        self
    }

    fn property(&mut self, name: &str, schema: Value) {
        let properties = self.schema.entry("properties").or_insert_with(|| json!({}));
        properties[name] = schema;
    }

    fn finish(self) -> Value {
        let Self {
            kind,
            names,
            scope,
            mut version,
            mut schema,
            subresources,
            is_filtered,
        } = self;
        if let Some(status) = schema.get_mut("properties").and_then(|it| it.get_mut("status"))
            && !is_filtered
        {
            default_unobserved(status);
        }
        version.insert("name".to_owned(), kind.version.into());
        version.insert("served".to_owned(), true.into());
        version.insert("storage".to_owned(), true.into());
        version.insert("subresources".to_owned(), subresources.into());
        version.insert("schema".to_owned(), json!({"openAPIV3Schema": schema}));
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{}.{}", names["plural"].as_str().unwrap_or_default(), kind.group)},
            "spec": {"group": kind.group, "names": names, "scope": scope, "versions": [version]},
        })
    }
}

/// Sets the default of a status: the generation -1 was examined, which no object has. The API server refuses a default
/// that its own schema does not accept.
fn default_unobserved(status: &mut Value) {
    let observed = &status["properties"]["observedGeneration"];
    let is_integer = observed["type"] == "integer" && observed["minimum"].as_f64().is_none_or(|least| least <= -1.0);
    let is_free = ["default", "required", "minProperties", "x-kubernetes-validations"]
        .iter()
        .all(|rule| status.get(rule).is_none());
    if is_integer && is_free {
        status["default"] = json!({"observedGeneration": -1});
    }
}

/// Returns the structural schema of a type.
fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(AddNullable::default());
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    make_structural(&mut schema);
    schema
}

fn object(members: &[(&str, &str)]) -> Value {
    let members = members
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).into()));
    Value::Object(members.collect())
}

fn push(members: &mut Map<String, Value>, list: &str, item: Value) {
    let list = members.entry(list).or_insert_with(|| json!([]));
    list.as_array_mut().expect("only this function makes it").push(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status of a plugin that always says where its object is.
    #[derive(serde::Serialize, JsonSchema)]
    struct Placed {
        #[serde(rename = "observedGeneration")]
        observed_generation: i64,
    }

    fn default_of(definition: Definition) -> Value {
        let definition = definition.finish();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        schema["properties"]["status"]["default"].clone()
    }

    #[test]
    fn an_unseen_object_is_in_progress_where_the_status_admits_it() {
        let new = || {
            Definition::new(
                Kind::new("example.com", "v1", "Site"),
                "sites",
                "site",
                "Namespaced",
                "",
            )
        };
        let unobserved = json!({"observedGeneration": -1});
        assert_eq!(default_of(new().status::<ConditionsOnly>()), unobserved);
        assert_eq!(default_of(new().status::<ConditionsOnly>().filtered()), Value::Null);
        assert_eq!(
            default_of(new().status::<Placed>()),
            Value::Null,
            "it has a required member"
        );
        assert_eq!(default_of(new().status::<Value>()), Value::Null, "it declares nothing");
        for (member, rule) in [
            ("minProperties", json!(2)),
            ("x-kubernetes-validations", json!([{"rule": "has(self.url)"}])),
            ("default", json!({})),
        ] {
            let mut status = schema_of::<ConditionsOnly>();
            status[member] = rule.clone();
            default_unobserved(&mut status);
            assert_ne!(status["default"], unobserved, "{member}");
        }
        let mut status = schema_of::<ConditionsOnly>();
        status["properties"]["observedGeneration"]["minimum"] = json!(0);
        default_unobserved(&mut status);
        assert_eq!(status["default"], Value::Null, "the API server would refuse the CRD");
    }
}
