//! Owns what has to be done for one owned object: create, apply, leave, wait, or say that it is somebody else's.

use serde_json::{Map, Value, json};

use crate::answer::DesiredObject;
use crate::canonical::{DESIRED_ANNOTATION, digest};
use crate::fields::FieldSet;
use crate::key::{Kind, Name};

/// The owner of a plugin's objects, as an owner reference names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its kind.
    pub kind: Kind,
    /// Its place.
    pub name: Name,
    /// Its uid.
    pub uid: String,
}

/// What the cache knows of a live object, as far as ownership goes.
#[derive(Clone, Debug)]
pub struct Live<'a> {
    /// The uid of the owner reference with `controller: true`.
    pub controller: Option<&'a str>,
    /// Whether the object is being deleted.
    pub deleting: bool,
    /// The value of [`DESIRED_ANNOTATION`].
    pub digest: Option<&'a str>,
    /// Our manager's Apply entry for the main resource.
    pub entry: Option<LiveEntry<'a>>,
}

/// One entry of managedFields.
#[derive(Clone, Copy, Debug)]
pub struct LiveEntry<'a> {
    /// The apiVersion that it was written in.
    pub api_version: &'a str,
    /// Its fields.
    pub fields: &'a FieldSet,
    /// Whether the entry is, byte for byte, what our last apply of the same digest left.
    pub as_we_left_it: bool,
}

/// What has to be done for a desired object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is as desired.
    Nothing,
    /// It does not exist.
    Create,
    /// It exists, is ours, and differs.
    Apply(Difference),
    /// It exists and is somebody else's.
    Foreign,
    /// It is being deleted; its successor can be made once it is gone.
    Wait,
}

/// Why an object of ours is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Something else is desired than was applied last.
    Desired,
    /// Somebody took these fields, or changed the order of their items.
    Drift(Vec<String>),
    /// Our entry was written in another apiVersion of the kind.
    ApiVersion,
}

/// The body to apply: the desired object with the owner reference and the digest's annotation.
///
/// The digest covers the owner reference too, so that an object made for a predecessor of the same name is not taken
/// for ours.
pub fn body(desired: &DesiredObject, owner: &Owner) -> (Map<String, Value>, String) {
    let mut body = desired.body.clone();
    let reference = json!({
        "apiVersion": owner.kind.api_version(),
        "kind": owner.kind.kind,
        "name": &*owner.name.name,
        "uid": owner.uid,
        "controller": true,
    });
    let metadata = body.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    metadata["ownerReferences"] = Value::Array(vec![reference]);
    let value = Value::Object(body);
    let digest = digest(&value);
    let Value::Object(mut body) = value else {
        unreachable!("it was made from an object two lines above")
    };
    if let Some(Value::Object(metadata)) = body.get_mut("metadata")
        && let Value::Object(annotations) = metadata
            .entry("annotations")
            .or_insert_with(|| Value::Object(Map::new()))
    {
        annotations.insert(DESIRED_ANNOTATION.to_owned(), Value::String(digest.clone()));
    }
    (body, digest)
}

/// Decides what has to be done for one owned object, given the body to apply.
pub fn decide(
    desired: &DesiredObject,
    body: &Map<String, Value>,
    digest: &str,
    owner: &Owner,
    live: Option<&Live<'_>>,
) -> Action {
    let Some(live) = live else {
        return Action::Create;
    };
    if live.controller != Some(owner.uid.as_str()) {
        return Action::Foreign;
    }
    if live.deleting {
        return Action::Wait;
    }
    if desired.lifecycle.create_only {
        return Action::Nothing;
    }
    let Some(entry) = live.entry else {
        return Action::Apply(Difference::Desired);
    };
    if live.digest != Some(digest) {
        return Action::Apply(Difference::Desired);
    }
    if entry.as_we_left_it {
        return Action::Nothing;
    }
    if entry.api_version != desired.kind.api_version() {
        return Action::Apply(Difference::ApiVersion);
    }
    let missing = entry.fields.missing(body);
    if missing.is_empty() {
        Action::Nothing
    } else {
        Action::Apply(Difference::Drift(missing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Lifecycle;

    fn owner() -> Owner {
        Owner {
            kind: Kind::new("x.dev", "v1", "X"),
            name: Name::new(Some("a"), "x"),
            uid: "u1".into(),
        }
    }

    fn desired() -> DesiredObject {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap",
                          "metadata": {"name": "c", "namespace": "a"}, "data": {"k": "v"}});
        DesiredObject {
            kind: Kind::new("", "v1", "ConfigMap"),
            name: Name::new(Some("a"), "c"),
            body: body.as_object().unwrap().clone(),
            lifecycle: Lifecycle::default(),
        }
    }

    fn entry() -> FieldSet {
        serde_json::from_value(json!({
            "f:data": {"f:k": {}},
            "f:metadata": {"f:annotations": {"f:pilothouse.dev/desired": {}},
                           "f:ownerReferences": {"k:{\"uid\":\"u1\"}": {}}}
        }))
        .unwrap()
    }

    fn decide_for(change: impl FnOnce(&mut Live<'_>, &mut DesiredObject)) -> Action {
        let mut desired = desired();
        let (body, applied) = body(&desired, &owner());
        let fields = entry();
        let mut live = Live {
            controller: Some("u1"),
            deleting: false,
            digest: Some(&applied),
            entry: Some(LiveEntry {
                api_version: "v1",
                fields: &fields,
                as_we_left_it: false,
            }),
        };
        change(&mut live, &mut desired);
        decide(&desired, &body, &applied, &owner(), Some(&live))
    }

    #[test]
    fn an_object_that_is_held_as_it_was_applied_is_left_alone() {
        assert_eq!(decide_for(|_, _| {}), Action::Nothing);
    }

    #[test]
    fn an_absent_object_is_created() {
        let (body, digest) = body(&desired(), &owner());
        assert_eq!(decide(&desired(), &body, &digest, &owner(), None), Action::Create);
    }

    #[test]
    fn a_foreign_object_is_never_applied() {
        assert_eq!(decide_for(|live, _| live.controller = None), Action::Foreign);
        assert_eq!(decide_for(|live, _| live.controller = Some("u2")), Action::Foreign);
        assert_eq!(
            decide_for(|live, _| {
                live.controller = None;
                live.deleting = true;
            }),
            Action::Foreign
        );
    }

    #[test]
    fn each_difference_is_applied() {
        assert_eq!(
            decide_for(|live, _| live.digest = Some("other")),
            Action::Apply(Difference::Desired)
        );
        assert_eq!(
            decide_for(|live, _| live.entry = None),
            Action::Apply(Difference::Desired)
        );
        let in_beta = |live: &mut Live<'_>, _: &mut DesiredObject| {
            live.entry.as_mut().unwrap().api_version = "v1beta1";
        };
        assert_eq!(decide_for(in_beta), Action::Apply(Difference::ApiVersion));
        let empty = FieldSet::default();
        let (applied, digest) = body(&desired(), &owner());
        let live = Live {
            controller: Some("u1"),
            deleting: false,
            digest: Some(&digest),
            entry: Some(LiveEntry {
                api_version: "v1",
                fields: &empty,
                as_we_left_it: false,
            }),
        };
        let Action::Apply(Difference::Drift(missing)) = decide(&desired(), &applied, &digest, &owner(), Some(&live))
        else {
            panic!("drift expected");
        };
        assert!(missing.contains(&".data".to_owned()) && missing.contains(&".metadata.ownerReferences".to_owned()));
    }

    #[test]
    fn what_the_server_did_not_keep_of_our_own_apply_is_not_applied_again() {
        let empty = FieldSet::default();
        let (applied, digest) = body(&desired(), &owner());
        let live = Live {
            controller: Some("u1"),
            deleting: false,
            digest: Some(&digest),
            entry: Some(LiveEntry {
                api_version: "v1",
                fields: &empty,
                as_we_left_it: true,
            }),
        };
        assert_eq!(
            decide(&desired(), &applied, &digest, &owner(), Some(&live)),
            Action::Nothing
        );
    }

    #[test]
    fn an_object_that_is_being_deleted_is_waited_for() {
        assert_eq!(decide_for(|live, _| live.deleting = true), Action::Wait);
    }

    #[test]
    fn create_only_is_never_changed() {
        let changed = |live: &mut Live<'_>, desired: &mut DesiredObject| {
            live.digest = None;
            desired.lifecycle.create_only = true;
        };
        assert_eq!(decide_for(changed), Action::Nothing);
    }

    #[test]
    fn the_digest_depends_on_the_owner() {
        let heir = Owner {
            uid: "u2".into(),
            ..owner()
        };
        assert_ne!(body(&desired(), &owner()).1, body(&desired(), &heir).1);
    }
}
