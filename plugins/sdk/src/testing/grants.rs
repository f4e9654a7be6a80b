//! Rights of a manifest, so that a test fails if the host would refuse.

use serde_json::Value;

use super::answer::{DesiredObject, Ownership};
use super::fields::{self, FieldPath};
use super::{kind_key, labels, shown};
use crate::raw::types;
use crate::selector::LabelSelector;

/// Rights of the controller of one kind.
#[derive(Debug)]
pub(super) struct Grants {
    /// The finalizer's name.
    pub(super) finalizer: Option<String>,
    /// The options that objects may have.
    options: Vec<String>,
    /// Namespace of the primary.
    home: Option<String>,
    fields: Vec<FieldPath>,
    touches: Vec<Touch>,
}

/// A kind that may be read or written.
#[derive(Debug)]
pub(super) struct Touch {
    kind: Value,
    access: Vec<String>,
    fields: Vec<FieldPath>,
    labels: Option<LabelSelector>,
    is_anywhere: bool,
    namespaces: Vec<String>,
    names: Vec<String>,
}

/// Panics if the host would not reconcile the object because of the controller's filter.
fn check_filter(filter: &Value, object: &Value) {
    let has = |name: &str| object["metadata"]["annotations"].get(name).is_some();
    let any = texts(&filter["annotations"]);
    let mut wanted = Vec::new();
    let mut is_selected = true;
    if let Some(name) = filter["annotation"].as_str() {
        is_selected &= has(name);
        wanted.push(format!("the annotation {name}"));
    }
    if !any.is_empty() {
        is_selected &= any.iter().any(|name| has(name));
        wanted.push(format!("one of the annotations {}", any.join(", ")));
    }
    if let Some(labels_wanted) = selector(&filter["labelSelector"]) {
        is_selected &= labels_wanted.matches_with(labels(object));
        wanted.push(format!("labels that match {labels_wanted}"));
    }
    assert!(
        is_selected,
        "the host would not ask about this object: the manifest's filter asks for {}, and it is {object}",
        wanted.join(" and ")
    );
}

impl Grants {
    /// Returns the rights of the manifest's controller for an object's kind; none if there is no such controller.
    pub(super) fn of(manifest: &Value, object: &Value) -> Option<Self> {
        let controllers = manifest["controllers"].as_array()?;
        let controller = controllers
            .iter()
            .find(|controller| is_of(object, &controller["kind"]))?;
        let touches = controller["touches"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|touch| Touch {
                kind: touch["kind"].clone(),
                access: texts(&touch["access"]),
                fields: paths(&touch["fields"]),
                labels: selector(&touch["labelSelector"]),
                is_anywhere: touch["scope"] == "Any",
                namespaces: texts(&touch["namespaces"]),
                names: texts(&touch["names"]),
            });
        check_filter(&controller["filter"], object);
        Some(Self {
            options: texts(&controller["options"]),
            finalizer: controller["finalizer"].as_str().map(str::to_owned),
            home: object["metadata"]["namespace"].as_str().map(str::to_owned),
            fields: paths(&controller["fields"]),
            touches: touches.collect(),
        })
    }

    /// Returns the primary as the plugin sees it.
    pub(super) fn visible_of_primary(&self, object: &Value) -> Value {
        fields::visible(object, &self.fields)
    }

    /// Returns the declaration under which a kind is read.
    pub(super) fn readable(&self, kind: &types::GroupVersionKind) -> &Touch {
        let types::GroupVersionKind {
            group,
            version,
            kind: name,
        } = kind;
        let wanted = serde_json::json!({"group": group, "version": version, "kind": name});
        self.touches
            .iter()
            .find(|touch| touch.kind == wanted && touch.allows("read"))
            .unwrap_or_else(|| {
                panic!(
                    "{} is read, and the manifest does not declare it: add .read(..)",
                    shown(kind)
                )
            })
    }

    /// Checks that the manifest declares a desired object: its kind, its namespace, its name and its labels.
    pub(super) fn check_desired(&self, desired: &DesiredObject) {
        let access = match desired.ownership {
            Ownership::Owned => "owned",
            Ownership::Contributed => "contributed",
        };
        let object = &desired.object;
        let declared = self
            .touches
            .iter()
            .find(|touch| is_of(object, &touch.kind) && touch.allows(access))
            .unwrap_or_else(|| {
                panic!("the answer has this object as {access}, which the manifest does not declare: {object}")
            });
        // The host fills in the namespace. Only a cluster knows which kinds have none.
        let namespace = object["metadata"]["namespace"].as_str().or(self.home.as_deref());
        self.check_place(declared, namespace, &format!("the answer has {object}"));
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        assert!(
            declared.names.is_empty() || declared.names.iter().any(|one| one == name),
            "the answer has {object}, and the manifest declares only the names {:?}: add it to .named(..)",
            declared.names
        );
        for option in desired.lifecycle.options().keys() {
            assert!(
                self.options.iter().any(|listed| listed == option),
                "the answer has {object} with the option {option}, which the manifest does not list: add .options([{option:?}])"
            );
        }
        // The labels of a foreign object are not ours.
        if let (Ownership::Owned, Some(selector)) = (&desired.ownership, &declared.labels) {
            assert!(
                selector.matches_with(labels(object)),
                "the answer has {object}, whose labels do not match {selector}, which the manifest declares: give it these labels"
            );
        }
    }

    /// Checks that objects in a namespace (none: in every one, or cluster-scoped) may be read or written.
    pub(super) fn check_place(&self, touch: &Touch, namespace: Option<&str>, what: &str) {
        let home = self.home.as_deref();
        assert!(
            touch.is_anywhere || (namespace.is_some() && namespace == home),
            "{what} in namespace {namespace:?}, and the manifest declares the kind for the resource's own namespace \
             {home:?}: add .anywhere() or .in_namespaces(..)"
        );
        let listed = &touch.namespaces;
        assert!(
            listed.is_empty() || namespace.is_some_and(|namespace| listed.iter().any(|one| one == namespace)),
            "{what} in namespace {namespace:?}, and the manifest declares only {listed:?}"
        );
    }
}

impl Touch {
    /// Returns the visible part of an object; none if the object is not declared.
    pub(super) fn visible(&self, object: &Value) -> Option<Value> {
        let listed = |list: &[String], text: &Value| {
            list.is_empty() || text.as_str().is_some_and(|text| list.iter().any(|one| one == text))
        };
        let metadata = &object["metadata"];
        let visible = listed(&self.namespaces, &metadata["namespace"])
            && listed(&self.names, &metadata["name"])
            && self
                .labels
                .as_ref()
                .is_none_or(|selector| selector.matches_with(labels(object)));
        visible.then(|| fields::visible(object, &self.fields))
    }

    /// Checks that an object of this name may be read.
    pub(super) fn check_name(&self, name: &str) {
        assert!(
            self.names.is_empty() || self.names.iter().any(|one| one == name),
            "{name} is read, and the manifest declares only {:?}",
            self.names
        );
    }

    /// Checks that objects may be found by this field.
    pub(super) fn check_field(&self, path: &str) {
        let wanted = FieldPath::parse(path).unwrap_or_else(|error| panic!("{error}"));
        let metadata = FieldPath::parse(".metadata").expect("this is a path");
        let declared = self.fields.iter().chain([&metadata]).any(|field| field.covers(&wanted));
        assert!(
            declared,
            "objects are found by {path}, which the manifest does not declare: add it to .read(..)"
        );
    }

    fn allows(&self, access: &str) -> bool {
        self.access.iter().any(|one| one == access)
    }
}

fn is_of(object: &Value, kind: &Value) -> bool {
    let (Some(api_version), Some(name)) = (object["apiVersion"].as_str(), object["kind"].as_str()) else {
        return false;
    };
    let (group, version, name) = kind_key(api_version, name);
    kind["group"] == group && kind["version"] == version && kind["kind"] == name
}

fn selector(text: &Value) -> Option<LabelSelector> {
    let parse = |text: &str| text.parse().unwrap_or_else(|error| panic!("in the manifest: {error}"));
    text.as_str().map(parse)
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn paths(list: &Value) -> Vec<FieldPath> {
    let parse = |path: String| FieldPath::parse(&path).unwrap_or_else(|error| panic!("in the manifest: {error}"));
    texts(list).into_iter().map(parse).collect()
}
