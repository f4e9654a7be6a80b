//! Reads and writes the owner of an object: a controller reference where Kubernetes allows one, else a label with the
//! owner's uid and an annotation that names the owner.
//!
//! `decide` in [`crate::diff`] looks at the owner that an object names, and at the plugins that apply it:
//!
//! | the object | action |
//! |---|---|
//! | names the primary, by uid | applied, where it differs |
//! | names a predecessor (same kind, namespace and name, another uid) by label | adopted: an owner that was restored from a backup finds its objects |
//! | names a predecessor by owner reference | waited for: the garbage collector deletes it |
//! | names the primary, and another plugin applies it that selects the primary | `ForeignObject`, naming that plugin, until that plugin lets go |
//! | the same, but that plugin does not select the primary any more, or is gone | its entry of managedFields is taken over, then applied |
//! | names no owner, and the plugin asks to adopt it | taken over, unless another manager applies a field that is to be set |
//! | is `create-only`, and does not name its owner as desired | only owner reference, labels and annotations are patched |
//! | anything else | `ForeignObject` |
//!
//! A host with Plugin resources knows all plugins of the cluster. To a host with `--plugin`, a plugin that it does not run counts as one
//! that still applies its objects. An object to be deleted that another plugin applies loses the entry of this plugin only.

pub mod adoption;
pub mod consent;
pub mod once;
pub mod recreate;
pub mod takeover;

use serde_json::{Map, Value, json};

use crate::answer::desired::DesiredObject;
use crate::diff::canonical::DESIRED_ANNOTATION;
use crate::kubernetes::key::{Kind, Name};
use crate::plugin::contract::Propagation;

/// The label with the owner's uid, on objects that no owner reference can hold.
pub const OWNER_LABEL: &str = "pilothouse.dev/owner";

/// The annotation beside it, which names the owner: `group/Kind/namespace/name`, with nothing between two slashes where
/// there is no group or no namespace. No part can have a slash.
pub const OWNER_ANNOTATION: &str = "pilothouse.dev/owner-name";

/// The annotation of an object that stays when it is no longer desired; its value is `true`.
pub const KEEP_ANNOTATION: &str = "pilothouse.dev/keep";

/// The annotation with the propagation with which the host deletes an object: once the object is no longer desired, only
/// the cluster remembers it.
pub const PROPAGATION_ANNOTATION: &str = "pilothouse.dev/propagation";

/// The annotation with the paths that an object yields, a JSON list: the cache keeps who else sets these fields.
pub const YIELD_ANNOTATION: &str = "pilothouse.dev/yield";

/// The annotation with the objects that an object comes after, a JSON list: they are deleted after it.
pub const AFTER_ANNOTATION: &str = "pilothouse.dev/after";

/// The annotations of the host on a child. A plugin cannot set them.
pub const ANNOTATIONS: [&str; 7] = [
    DESIRED_ANNOTATION,
    OWNER_ANNOTATION,
    KEEP_ANNOTATION,
    PROPAGATION_ANNOTATION,
    YIELD_ANNOTATION,
    AFTER_ANNOTATION,
    once::ONCE_ANNOTATION,
];

/// The finalizer of an object whose deletion orphans its dependents: Kubernetes' garbage collector removes the owner
/// references first, and then the finalizer.
pub const ORPHAN_FINALIZER: &str = "orphan";

/// The owner of a plugin's objects, as an owner reference names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace and name.
    pub name: Name,
    /// Its uid.
    pub uid: String,
}

/// The link between an object and its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OwnerLink {
    /// A controller reference: Kubernetes' garbage collector deletes the object with its owner.
    Reference,
    /// A controller reference that another party's webhook strips on each write. Our entry in managedFields still has
    /// it, with the owner's uid and nothing else. An edit that removes a reference removes it from the entry, too.
    Stripped,
    /// The label: the host deletes the object once the server reports that the owner is gone.
    Label,
    /// The label; the object is never deleted.
    Kept,
}

impl OwnerLink {
    /// The link between a desired object and its owner. An owner reference cannot cross namespaces, nor go from a
    /// cluster-scoped object to a namespaced owner: the garbage collector would delete the object.
    pub fn of(desired: &DesiredObject, owner: &Owner) -> Self {
        let reachable = owner.name.namespace.is_none() || owner.name.namespace == desired.name.namespace;
        match (desired.lifecycle.keep, reachable) {
            (true, _) => Self::Kept,
            (false, true) => Self::Reference,
            (false, false) => Self::Label,
        }
    }
}

/// The owner of a live object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentOwner<'a> {
    /// The owner's uid.
    pub uid: &'a str,
    /// Set if the owner has the kind and the name of the desiring object: it is that object or its predecessor.
    pub is_namesake: bool,
    /// The link from the object to the owner.
    pub bond: OwnerLink,
}

/// The value of [`OWNER_ANNOTATION`].
pub fn owner_name(kind: &Kind, name: &Name) -> String {
    let namespace = name.namespace.as_deref().unwrap_or_default();
    format!("{}/{}/{namespace}/{}", kind.group, kind.kind, name.name)
}

/// The group, kind, namespace and name in an [`OWNER_ANNOTATION`]; none if it was not written by a host.
pub fn parse_owner_name(text: &str) -> Option<(&str, &str, Name)> {
    let mut parts = text.split('/');
    let (group, kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
    (parts.next().is_none() && !name.is_empty()).then(|| (group, kind, Name::new(namespace, name)))
}

/// Writes the owner, and the propagation of its deletion, into a desired object.
pub fn bind(body: &mut Map<String, Value>, owner: &Owner, bond: OwnerLink, propagation: Option<Propagation>) {
    let metadata = body.entry("metadata").or_insert_with(|| json!({}));
    if let Some(propagation) = propagation {
        let policy = propagation.as_str().to_owned();
        set(metadata, "annotations", PROPAGATION_ANNOTATION, policy);
    }
    if bond == OwnerLink::Reference {
        metadata["ownerReferences"] = json!([{
            "apiVersion": owner.kind.api_version(),
            "kind": owner.kind.kind,
            "name": &*owner.name.name,
            "uid": owner.uid,
            "controller": true,
        }]);
        return;
    }
    set(metadata, "labels", OWNER_LABEL, owner.uid.clone());
    set(
        metadata,
        "annotations",
        OWNER_ANNOTATION,
        owner_name(&owner.kind, &owner.name),
    );
    if bond == OwnerLink::Kept {
        set(metadata, "annotations", KEEP_ANNOTATION, "true".to_owned());
    }
}

/// The metadata members of a live object that must change so that it belongs to the owner by this link, and is deleted with
/// this propagation. Other entries in them stay. A member to remove is null.
pub fn rebind(
    metadata: &Value,
    owner: &Owner,
    bond: OwnerLink,
    propagation: Option<Propagation>,
) -> Vec<(&'static str, Value)> {
    let mut body = Map::new();
    bind(&mut body, owner, bond, propagation);
    let bound = &body["metadata"];
    let references = metadata["ownerReferences"].as_array().into_iter().flatten();
    let references = references.filter(|reference| reference["controller"] != true);
    let ours = bound["ownerReferences"].as_array().into_iter().flatten();
    let references: Vec<Value> = references.chain(ours).cloned().collect();
    let merged = |map: &str, reserved: &[&str]| {
        let mut members = metadata[map].as_object().cloned().unwrap_or_default();
        members.retain(|name, _| !reserved.contains(&name.as_str()));
        members.extend(bound[map].as_object().cloned().unwrap_or_default());
        Value::Object(members)
    };
    let members = [
        ("ownerReferences", Value::Array(references)),
        ("labels", merged("labels", &[OWNER_LABEL])),
        (
            "annotations",
            merged(
                "annotations",
                &[OWNER_ANNOTATION, KEEP_ANNOTATION, PROPAGATION_ANNOTATION],
            ),
        ),
    ];
    changed(metadata, members)
}

/// The part of a desired object that says whose it is, without its content.
pub fn without_content(body: &Map<String, Value>) -> Map<String, Value> {
    let mut ties = body.clone();
    ties.retain(|name, _| ["apiVersion", "kind", "metadata"].contains(&name.as_str()));
    let Some(Value::Object(metadata)) = ties.get_mut("metadata") else {
        return ties;
    };
    metadata.retain(|name, map| match (name.as_str(), map) {
        ("labels" | "annotations", Value::Object(map)) => {
            map.retain(|name, _| name == OWNER_LABEL || ANNOTATIONS.contains(&name.as_str()));
            !map.is_empty()
        }
        (name, _) => ["name", "namespace", "ownerReferences"].contains(&name),
    });
    ties
}

/// The metadata members of a live object that must change so that nothing in them refers to the owner with this uid, or
/// was applied for it. Other entries in them stay. A member to remove is null.
pub fn unbind(metadata: &Value, uid: &str) -> Vec<(&'static str, Value)> {
    let references = metadata["ownerReferences"].as_array().into_iter().flatten();
    let references = references.filter(|reference| reference["uid"] != uid);
    let without = |map: &str, is_to_go: &dyn Fn(&str, &Value) -> bool| {
        let mut members = metadata[map].as_object().cloned().unwrap_or_default();
        members.retain(|name, value| !is_to_go(name, value));
        Value::Object(members)
    };
    let members = [
        ("ownerReferences", Value::Array(references.cloned().collect())),
        (
            "labels",
            without("labels", &|name, value| name == OWNER_LABEL && value == uid),
        ),
        (
            "annotations",
            without("annotations", &|name, _| {
                name != KEEP_ANNOTATION && ANNOTATIONS.contains(&name)
            }),
        ),
    ];
    changed(metadata, members)
}

/// The given members that differ from the object's metadata; null where a member is to be removed.
fn changed(metadata: &Value, members: [(&'static str, Value); 3]) -> Vec<(&'static str, Value)> {
    let is_empty =
        |value: &Value| value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty);
    let changed = members.into_iter().filter_map(|(name, value)| {
        let before = metadata.get(name).filter(|before| !before.is_null());
        match before {
            None if is_empty(&value) => None,
            Some(before) if *before == value => None,
            Some(_) if is_empty(&value) => Some((name, Value::Null)),
            _ => Some((name, value)),
        }
    });
    changed.collect()
}

/// Sets a label or an annotation. If the plugin's answer has no object at `map`, the value stays, and the server
/// refuses it with its own message.
pub(crate) fn set(metadata: &mut Value, map: &str, name: &str, value: String) {
    if let Value::Object(metadata) = metadata
        && let Value::Object(map) = metadata.entry(map).or_insert_with(|| json!({}))
    {
        map.insert(name.to_owned(), Value::String(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::contract::Lifecycle;
    use crate::rights::built_in;

    fn owner(namespace: Option<&str>) -> Owner {
        Owner {
            kind: Kind::new("x.dev", "v1", "X"),
            name: Name::new(namespace, "x"),
            uid: "u1".into(),
        }
    }

    fn desired(namespace: Option<&str>, keep: bool) -> DesiredObject {
        DesiredObject {
            served: built_in::served(&Kind::new("", "v1", "ConfigMap")).expect("it is in the table"),
            name: Name::new(namespace, "c"),
            body: json!({"metadata": {"name": "c", "labels": {"a": "b"}}})
                .as_object()
                .unwrap()
                .clone(),
            lifecycle: Lifecycle {
                keep,
                ..Lifecycle::default()
            },
            yields: Vec::new(),
            after: Vec::new(),
            once: None,
        }
    }

    #[test]
    fn a_reference_is_taken_only_where_kubernetes_lets_it_reach() {
        let bond = |desired_in, owner_in, keep| OwnerLink::of(&desired(desired_in, keep), &owner(owner_in));
        assert_eq!(bond(Some("a"), Some("a"), false), OwnerLink::Reference);
        assert_eq!(bond(Some("a"), None, false), OwnerLink::Reference);
        assert_eq!(bond(None, None, false), OwnerLink::Reference);
        assert_eq!(bond(Some("b"), Some("a"), false), OwnerLink::Label);
        assert_eq!(bond(None, Some("a"), false), OwnerLink::Label);
        assert_eq!(bond(Some("a"), Some("a"), true), OwnerLink::Kept);
    }

    #[test]
    fn what_no_reference_holds_has_a_label_and_the_owners_name() {
        let mut body = desired(Some("b"), false).body;
        bind(&mut body, &owner(Some("a")), OwnerLink::Label, None);
        let metadata = &body["metadata"];
        assert_eq!(metadata["labels"], json!({"a": "b", "pilothouse.dev/owner": "u1"}));
        assert_eq!(
            metadata["annotations"],
            json!({"pilothouse.dev/owner-name": "x.dev/X/a/x"})
        );
        assert!(metadata.get("ownerReferences").is_none());

        let mut kept = desired(Some("a"), true).body;
        bind(&mut kept, &owner(Some("a")), OwnerLink::Kept, None);
        assert_eq!(kept["metadata"]["annotations"]["pilothouse.dev/keep"], "true");
        assert!(kept["metadata"].get("ownerReferences").is_none());
    }

    #[test]
    fn an_object_is_bound_anew_and_keeps_what_others_wrote_beside() {
        let theirs = json!({"apiVersion": "v1", "kind": "Y", "name": "y", "uid": "p"});
        let ours = json!({"apiVersion": "x.dev/v1", "kind": "X", "name": "x", "uid": "u1", "controller": true});
        let referred = json!({"ownerReferences": [ours, theirs], "labels": {"a": "b"}});
        assert_eq!(
            rebind(&referred, &owner(Some("a")), OwnerLink::Kept, None),
            [
                ("ownerReferences", json!([theirs])),
                ("labels", json!({"a": "b", "pilothouse.dev/owner": "u1"})),
                (
                    "annotations",
                    json!({"pilothouse.dev/owner-name": "x.dev/X/a/x", "pilothouse.dev/keep": "true"})
                ),
            ]
        );
        let kept = json!({
            "labels": {"pilothouse.dev/owner": "u1"},
            "annotations": {"pilothouse.dev/owner-name": "x.dev/X/a/x", "pilothouse.dev/keep": "true", "c": "d"},
        });
        assert_eq!(
            rebind(&kept, &owner(Some("a")), OwnerLink::Reference, None),
            [
                ("ownerReferences", json!([ours])),
                ("labels", Value::Null),
                ("annotations", json!({"c": "d"})),
            ]
        );
        assert_eq!(rebind(&kept, &owner(Some("a")), OwnerLink::Kept, None), []);
    }

    #[test]
    fn an_object_without_its_content_says_only_whose_it_is() {
        let mut body = desired(Some("a"), false).body;
        body.insert("data".into(), json!({"k": "v"}));
        body["metadata"]["annotations"] = json!({"c": "d"});
        bind(
            &mut body,
            &owner(Some("a")),
            OwnerLink::Reference,
            Some(Propagation::Orphan),
        );
        let ties = without_content(&body);
        let metadata = &ties["metadata"];
        assert_eq!((ties.len(), metadata.get("labels")), (1, None));
        assert_eq!(metadata["annotations"], json!({PROPAGATION_ANNOTATION: "Orphan"}));
        assert_eq!(metadata["ownerReferences"][0]["uid"], "u1");
    }

    #[test]
    fn an_orphan_keeps_what_others_wrote_and_nothing_of_its_owner() {
        let reference = |uid: &str| json!({"apiVersion": "v1", "kind": "Y", "name": "y", "uid": uid});
        let near = json!({
            "ownerReferences": [reference("u1"), reference("p")], "annotations": {"pilothouse.dev/desired": "d"},
        });
        assert_eq!(
            unbind(&near, "u1"),
            [
                ("ownerReferences", json!([reference("p")])),
                ("annotations", Value::Null)
            ]
        );
        let mut far = json!({"labels": {"a": "b"}, "annotations": {"c": "d", "pilothouse.dev/desired": "d"}});
        far["labels"][OWNER_LABEL] = json!("u1");
        far["annotations"][OWNER_ANNOTATION] = json!("x.dev/X/a/x");
        assert_eq!(
            unbind(&far, "u1"),
            [("labels", json!({"a": "b"})), ("annotations", json!({"c": "d"}))]
        );
        assert_eq!(unbind(&json!({"labels": {OWNER_LABEL: "u2"}}), "u1"), []);
    }

    #[test]
    fn the_owners_name_is_read_as_it_was_written() {
        for (kind, name) in [
            (Kind::new("x.dev", "v1", "X"), Name::new(Some("a"), "x")),
            (Kind::new("", "v1", "Node"), Name::new(None, "n.example.com")),
        ] {
            let text = owner_name(&kind, &name);
            assert_eq!(
                parse_owner_name(&text),
                Some((kind.group.as_str(), kind.kind.as_str(), name)),
                "{text}"
            );
        }
        for nonsense in ["", "a/b", "a/b/c/", "a/b/c/d/e"] {
            assert_eq!(parse_owner_name(nonsense), None, "{nonsense}");
        }
    }
}
