//! Sources of the objects of a kind: samples, the schema of the plugin's own CRD, and the manifest. `generate` makes
//! values that fit a schema.

use std::collections::BTreeMap;

use fastrand::Rng;
use pilothouse_core::Kind;
use pilothouse_core::kubernetes::path::FieldStep;
use pilothouse_core::plugin::manifest::{CheckedManifest, Controller, Filter};
use pilothouse_simulator::built_in_definitions;
use serde_json::{Map, Value, json};

use super::generate::{self, Drawing, Origin};
use crate::documents::Document;

/// The largest object that is made, in bytes. etcd takes requests of 1.5 MiB, which hold managed fields, too.
const LARGEST: usize = 1_400_000;

/// Source of the objects of a kind.
pub(super) struct Source<'a> {
    pub(super) kind: &'a Kind,
    pub(super) schema: Option<Value>,
    pub(super) samples: Vec<&'a Value>,
    pub(super) is_namespaced: bool,
    /// Annotations and labels that the manifest names.
    pub(super) marks: BTreeMap<&'static str, Vec<String>>,
    /// The manifest's filter of primaries.
    pub(super) filter: &'a Filter,
}

impl Source<'_> {
    pub(super) fn has_any(&self) -> bool {
        self.schema.is_some() || !self.samples.is_empty()
    }

    /// Generates a new object.
    pub(super) fn object(&self, random: &mut Rng) -> Value {
        let mut object = self.drawn(&mut Drawing::new(random));
        if object.to_string().len() > LARGEST {
            object = self.drawn(&mut Drawing::small(random));
        }
        self.mark(&mut object, random);
        object
    }

    fn drawn(&self, drawing: &mut Drawing<'_>) -> Value {
        match (self.samples.as_slice(), &self.schema) {
            ([], schema) => self.generated(schema.as_ref().unwrap_or(&Value::Null), drawing),
            (_, Some(schema)) if drawing.random.bool() => self.generated(schema, drawing),
            (samples, schema) => {
                let mut object = samples[drawing.random.usize(..samples.len())].clone();
                for _ in 0..drawing.random.usize(1..=3) {
                    Self::change(&mut object, schema.as_ref(), drawing);
                }
                object
            }
        }
    }

    fn generated(&self, schema: &Value, drawing: &mut Drawing<'_>) -> Value {
        let mut object = generate::drawn(schema, drawing);
        if !object.is_object() {
            object = json!({});
        }
        object["apiVersion"] = json!(self.kind.api_version());
        object["kind"] = json!(self.kind.kind);
        object["metadata"] = json!({"name": name(drawing.random)});
        if self.is_namespaced {
            let is_long = drawing.random.u8(..16) == 0;
            let namespace = if is_long {
                longest_label('n')
            } else {
                "default".to_owned()
            };
            object["metadata"]["namespace"] = json!(namespace);
        }
        if let Some(members) = object.as_object_mut() {
            members.remove("status");
        }
        object
    }

    /// Changes one place below a member of the object that is its own matter.
    fn change(object: &mut Value, schema: Option<&Value>, drawing: &mut Drawing<'_>) {
        let Some(members) = object.as_object_mut() else { return };
        let own = |name: &String| !["apiVersion", "kind", "metadata", "status"].contains(&name.as_str());
        let names: Vec<String> = members.keys().filter(|name| own(name)).cloned().collect();
        let annotations = members["metadata"].get("annotations").cloned().unwrap_or_default();
        let choices = names.len() + usize::from(annotations.is_object());
        if choices == 0 {
            return;
        }
        if let Some(name) = names.get(drawing.random.usize(..choices)) {
            let below = schema.map_or(Value::Null, |schema| schema["properties"][name.as_str()].clone());
            generate::change(&mut members[name.as_str()], &below, drawing);
        } else {
            let texts = json!({"additionalProperties": {"type": "string"}});
            generate::change(&mut members["metadata"]["annotations"], &texts, drawing);
        }
    }

    /// Adds annotations and labels that the manifest names.
    fn mark(&self, object: &mut Value, random: &mut Rng) {
        for (place, names) in &self.marks {
            for name in names {
                if random.u8(..3) > 0 {
                    continue;
                }
                set_mark(object, place, name, generate::value(&json!({"type": "string"}), random));
            }
        }
        let has = |object: &Value, name: &str| object["metadata"]["annotations"].get(name).is_some();
        let any = &self.filter.annotations;
        let has_any = any.is_empty() || any.iter().any(|name| has(object, name));
        let any = (!has_any).then(|| &any[random.usize(..any.len())]);
        let lacking: Vec<&String> = self
            .filter
            .annotation
            .iter()
            .filter(|name| !has(object, name))
            .chain(any)
            .collect();
        for name in lacking {
            let text = generate::value(&json!({"type": "string"}), random);
            set_mark(object, "annotations", name, text);
        }
        if let Some(labels) = self
            .filter
            .label_selector
            .as_ref()
            .filter(|_| !self.filter.selects_value(object))
        {
            for expression in labels.expressions() {
                satisfy(object, &expression, random);
            }
        }
    }
}

/// The longest name of an object, a DNS subdomain, and of a namespace, a DNS label.
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

/// A name that an object can have: one in eight is as long as a label or a subdomain may be.
fn name(random: &mut Rng) -> String {
    match random.u8(..16) {
        0 => longest_label('l'),
        1 => {
            let mut name = [longest_label('s'), longest_label('s'), longest_label('s')].join(".");
            name.push('.');
            name.extend(std::iter::repeat_n('s', LONGEST_NAME - name.len()));
            name
        }
        _ => ["web", "a", "example-1", "a.b"][random.usize(..4)].to_owned(),
    }
}

fn longest_label(letter: char) -> String {
    std::iter::repeat_n(letter, LONGEST_LABEL).collect()
}

/// Adds labels that satisfy one expression of a label selector.
fn satisfy(object: &mut Value, expression: &Value, random: &mut Rng) {
    let key = expression["key"].as_str().unwrap_or_default();
    let values = expression["values"].as_array().map(Vec::as_slice).unwrap_or_default();
    match expression["operator"].as_str() {
        Some("In") if !values.is_empty() => {
            set_mark(object, "labels", key, values[random.usize(..values.len())].clone());
        }
        Some("Exists") => set_mark(object, "labels", key, json!("")),
        // A label that is not there is none of the values.
        Some("DoesNotExist" | "NotIn") => {
            if let Some(labels) = object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
                labels.remove(key);
            }
        }
        _ => {}
    }
}

fn set_mark(object: &mut Value, place: &str, name: &str, value: Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        let marks = metadata.entry(place).or_insert_with(|| Value::Object(Map::new()));
        if let Some(marks) = marks.as_object_mut() {
            marks.insert(name.to_owned(), value);
        }
    }
}

pub(super) fn sources<'a>(manifest: &'a CheckedManifest, samples: &'a [(&Document, Value)]) -> Vec<Source<'a>> {
    let source = |controller: &'a Controller| {
        let kind = &controller.kind;
        let own = samples
            .iter()
            .filter(|(document, _)| document.kind == *kind)
            .map(|(_, object)| object);
        let own: Vec<&Value> = own.collect();
        let crd = manifest
            .crds
            .iter()
            .find(|crd| crd.group == kind.group && crd.kind == kind.kind);
        let is_namespaced = crd.is_none_or(|crd| crd.definition["spec"]["scope"] == "Namespaced");
        let mut marks = BTreeMap::new();
        for place in ["annotations", "labels"] {
            let named = controller.fields.iter().filter_map(|path| match path.steps() {
                [
                    FieldStep::Field(metadata),
                    FieldStep::Field(its),
                    FieldStep::Field(name),
                ] if metadata == "metadata" && its == place => Some(name.clone()),
                _ => None,
            });
            marks.insert(place, named.collect());
        }
        Source {
            kind,
            schema: schema_of(manifest, &json!({"apiVersion": kind.api_version(), "kind": kind.kind})),
            samples: own,
            is_namespaced,
            marks,
            filter: &controller.filter,
        }
    };
    manifest.manifest.controllers.iter().map(source).collect()
}

/// Schemas of objects: the plugin's CRDs, those given as part of the cluster, and Kubernetes' own.
pub(super) struct Schemas<'a> {
    pub(super) manifest: &'a CheckedManifest,
    pub(super) cluster: &'a [Document],
}

impl Schemas<'_> {
    /// Reorders lists whose order has no meaning. Returns `true` if there was one.
    pub(super) fn reorder(&self, object: &mut Value) -> bool {
        if let Some(schema) = schema_of(self.manifest, object).or_else(|| self.given(object)) {
            return generate::reorder(object, &schema, Origin::Crd);
        }
        built_in(object).is_some_and(|schema| generate::reorder(object, schema, Origin::BuiltIn))
    }

    fn given(&self, object: &Value) -> Option<Value> {
        let (group, version) = object["apiVersion"].as_str()?.split_once('/')?;
        let is_it = |spec: &Value| spec["group"] == group && spec["names"]["kind"] == object["kind"];
        let definitions = self.cluster.iter().map(|document| &document.object["spec"]);
        let spec = definitions.into_iter().find(|spec| is_it(spec))?;
        version_schema(spec, version)
    }
}

/// The schema of a version, given the spec of a CRD.
pub(super) fn version_schema(spec: &Value, version: &str) -> Option<Value> {
    let mut versions = spec["versions"].as_array()?.iter();
    let version = versions.find(|known| known["name"] == version)?;
    Some(version["schema"]["openAPIV3Schema"].clone())
}

/// Returns `true` if a kind is one of Kubernetes' own.
pub(super) fn is_built_in(kind: &Kind) -> bool {
    built_in(&json!({"apiVersion": kind.api_version(), "kind": kind.kind})).is_some()
}

/// Kubernetes' definition of an object's kind.
fn built_in(object: &Value) -> Option<&'static Value> {
    let version = object["apiVersion"].as_str()?;
    let (group, version) = version.split_once('/').unwrap_or(("core", version));
    // A group of somebody else may begin with the same word.
    let group = match group.split_once('.') {
        None => group,
        Some((first, _)) if group.ends_with(".k8s.io") => first,
        Some(_) => return None,
    };
    let kind = object["kind"].as_str()?;
    built_in_definitions().get(&format!("io.k8s.api.{group}.{version}.{kind}"))
}

/// The schema that the plugin's own CRD gives an object; none for kinds of others.
fn schema_of(manifest: &CheckedManifest, object: &Value) -> Option<Value> {
    let kind = Kind::from_api_version(object["apiVersion"].as_str()?, object["kind"].as_str()?);
    let crd = manifest
        .crds
        .iter()
        .find(|crd| crd.group == kind.group && crd.kind == kind.kind)?;
    version_schema(&crd.definition["spec"], &kind.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_objects_have_the_labels_that_the_filter_asks_for() {
        for selector in [
            "app",
            "app=web",
            "app in (web,db),!old",
            "tier!=a,app",
            "old notin (x),app==db",
        ] {
            let filter: Filter = serde_json::from_value(
                json!({"annotation": "on", "annotations": ["a", "b"], "labelSelector": selector}),
            )
            .unwrap();
            let source = Source {
                kind: &Kind::new("x.dev", "v1", "X"),
                schema: None,
                samples: Vec::new(),
                is_namespaced: true,
                marks: BTreeMap::from([("labels", vec!["old".to_owned(), "tier".to_owned()])]),
                filter: &filter,
            };
            let mut random = Rng::with_seed(7);
            for _ in 0..50 {
                let object = source.object(&mut random);
                assert!(filter.selects_value(&object), "{selector}: {object}");
            }
        }
    }

    #[test]
    fn some_names_are_as_long_as_names_can_be() {
        let mut random = Rng::with_seed(7);
        let lengths: Vec<usize> = (0..200).map(|_| name(&mut random).len()).collect();
        let count = |length: usize| lengths.iter().filter(|it| **it == length).count();
        assert!(count(LONGEST_LABEL) > 3 && count(LONGEST_NAME) > 3, "{lengths:?}");
        assert!(lengths.iter().all(|length| *length <= LONGEST_NAME));
    }
}
