//! Decides what to do about one owned object: create, apply, leave, wait, or report that it belongs to someone else.
//!
//! For each owned object, in this order:
//!
//! 1. **Canonical form** (`canonical`): no null members, no metadata that the server sets, a Secret's `stringData` as `data`. An owner
//!    reference is added where Kubernetes allows one, else a label ([`crate::ownership`]).
//! 2. **Digest.** The annotation `pilothouse.dev/desired` has a digest of the body and the owner's uid. A different digest in the cache
//!    means apply, and so does an entry in another apiVersion.
//! 3. **Field ownership.** When somebody else changes one of the host's fields, the server moves it out of the host's Apply entry. So each
//!    leaf of the desired body must be in that entry, and its list items must stand in the desired order; else the object has drifted.
//!    Where an entry alone does not show whether a map was emptied, the kind's OpenAPI does, which is read once per kind.
//! 4. **Values** (`kubernetes/values`). A webhook of others may change values within the host's own request, and anybody may apply under
//!    the host's name. So the cache keeps a fingerprint of the values at the host's fields. It has to be that of the body, or the one that
//!    the server made of the last apply. Where it is neither after a start, one GET compares the values themselves.
//!
//! The host remembers what a server does not keep as it was applied: a dropped field costs one request for each start, and a rewritten
//! value one more for each resync.

pub mod canonical;
pub mod contest;
pub mod emptied;
pub mod order;
pub mod preview;
pub mod yielding;

use serde_json::{Map, Value};

use crate::answer::desired::DesiredObject;
use crate::diff::canonical::{DESIRED_ANNOTATION, digest};
use crate::diff::yielding::Location;
use crate::kubernetes::fields::{FieldSet, LeafSemantics, Missing};
use crate::kubernetes::key::Kind;
use crate::kubernetes::types::Types;
use crate::kubernetes::values;
use crate::ownership::once::ONCE_ANNOTATION;
use crate::ownership::{self, AFTER_ANNOTATION, CurrentOwner, Owner, OwnerLink, YIELD_ANNOTATION};
use crate::plugin::contract::Propagation;

/// The cached state of a live object, as far as ownership is concerned.
#[derive(Clone, Debug)]
pub struct LiveOwnership<'a> {
    /// The owner that the object records, if any.
    pub holder: Option<CurrentOwner<'a>>,
    /// Set if the object is being deleted.
    pub deleting: bool,
    /// The propagation of its deletion that was applied.
    pub propagation: Option<Propagation>,
    /// The value of [`DESIRED_ANNOTATION`].
    pub digest: Option<&'a str>,
    /// Our manager's Apply entry for the main resource.
    pub entry: Option<LiveEntry<'a>>,
    /// Fields that are left to other managers. The body does not have them.
    pub yielded: &'a [Location],
    /// Another plugin that applies the object.
    pub rival: Option<CompetingPlugin<'a>>,
}

/// Another plugin with an Apply entry on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompetingPlugin<'a> {
    /// Its field manager.
    pub manager: &'a str,
    /// Set if it may still apply the object: it selects the owner, or its selection is not known.
    pub claims: bool,
}

/// One entry of managedFields.
#[derive(Clone, Copy, Debug)]
pub struct LiveEntry<'a> {
    /// The apiVersion of the entry.
    pub api_version: &'a str,
    /// Its fields.
    pub fields: &'a FieldSet,
    /// The merge rules of the kind, if they were requested.
    pub types: Option<&'a Types>,
    /// The fingerprint of the live values at its fields ([`values::fingerprint`]).
    pub values: u64,
    /// Set if the object is as our last apply of the same digest left it: entry, values and annotation.
    pub as_we_left_it: bool,
}

/// The next action for a desired object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing: the object is as desired.
    Nothing,
    /// Create: the object does not exist.
    Create,
    /// Apply: the object exists, is ours, and differs.
    Apply(Difference),
    /// Report: the object exists and belongs to someone else.
    Foreign,
    /// Take over the object: it belongs to nobody, and the plugin asks for that.
    AdoptUnowned,
    /// Report: the object exists, and another plugin with this field manager applies it.
    CompetingPlugin(String),
    /// Apply, and take over the fields of this field manager: the object is the owner's, and the plugin that applied it
    /// no longer has to do with the owner.
    Adopt(String),
    /// Write the owner only: the object is ours and must not be changed, but it does not record the desired owner, or the
    /// desired propagation of its deletion.
    Rebind,
    /// Wait: the object is being deleted. Its successor can be created once it is gone.
    Wait,
    /// Wait: the object belongs to a predecessor of the owner and will be garbage collected. Its successor can be
    /// created once it is gone.
    Inherited,
}

/// The reason for an apply of an object of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The desired object is not the last applied one.
    Desired,
    /// Another manager took these fields, or changed the order of their items.
    Drift(Vec<String>),
    /// Another manager holds these fields, too, and the object yields them.
    Yield(Vec<String>),
    /// Fields of ours may have other values than were applied, though they are still ours.
    Values,
    /// Our entry was written in another apiVersion of the kind.
    ApiVersion,
    /// The entry does not show whether fields were taken, because the types of the kind are not known. With the types
    /// the decision is made again; if they are not available, applying is safe.
    Unclear,
}

/// The rank of a kind in the order of applying: kinds that others need come first. Deletes use the reverse order.
pub fn rank(kind: &Kind) -> u8 {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace") => 0,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => 1,
        _ => 2,
    }
}

/// The body to apply, taken out of the desired object: the object, its owner, and the digest's annotation.
///
/// The digest covers the owner too, so that an object made for a predecessor of the same name is not taken for ours.
pub fn body(desired: &mut DesiredObject, owner: &Owner) -> (Map<String, Value>, String) {
    let mut body = std::mem::take(&mut desired.body);
    let bond = OwnerLink::of(desired, owner);
    ownership::bind(&mut body, owner, bond, desired.lifecycle.propagation);
    let mut value = Value::Object(body);
    if !desired.yields.is_empty() {
        let paths = serde_json::to_string(&desired.yields).expect("paths are text");
        ownership::set(&mut value["metadata"], "annotations", YIELD_ANNOTATION, paths);
    }
    if !desired.after.is_empty() {
        let after = order::annotation(&desired.after);
        ownership::set(&mut value["metadata"], "annotations", AFTER_ANNOTATION, after);
    }
    if let Some(token) = &desired.once {
        ownership::set(&mut value["metadata"], "annotations", ONCE_ANNOTATION, token.clone());
    }
    let digest = digest(&value);
    ownership::set(
        &mut value["metadata"],
        "annotations",
        DESIRED_ANNOTATION,
        digest.clone(),
    );
    let Value::Object(body) = value else {
        unreachable!("it was made from an object four lines above")
    };
    (body, digest)
}

/// Decides what to do about one owned object, given the body to apply and the digest of the whole one.
pub fn decide(
    desired: &DesiredObject,
    body: &Map<String, Value>,
    digest: &str,
    owner: &Owner,
    live: Option<&LiveOwnership<'_>>,
) -> Action {
    let Some(live) = live else {
        return Action::Create;
    };
    let holder = match live.holder {
        Some(holder) if holder.uid == owner.uid => holder,
        // Kubernetes' garbage collector deletes the dependents of a predecessor. Those that it does not collect belong
        // to the successor: an owner that was restored from a backup finds its objects again.
        Some(holder) if holder.is_namesake && holder.bond == OwnerLink::Reference => return Action::Inherited,
        Some(holder) if holder.is_namesake => holder,
        None if desired.lifecycle.adopt && live.deleting => return Action::Wait,
        None if desired.lifecycle.adopt => return Action::AdoptUnowned,
        _ => return Action::Foreign,
    };
    match live.rival {
        Some(rival) if !rival.claims => return Action::Adopt(rival.manager.to_owned()),
        Some(rival) if live.entry.is_none() => return Action::CompetingPlugin(rival.manager.to_owned()),
        _ => {}
    }
    if live.deleting {
        return Action::Wait;
    }
    if desired.lifecycle.create_only {
        let is_bound = holder.uid == owner.uid
            && holder.bond == OwnerLink::of(desired, owner)
            && live.propagation == desired.lifecycle.propagation;
        return if is_bound { Action::Nothing } else { Action::Rebind };
    }
    let Some(entry) = live.entry else {
        return Action::Apply(Difference::Desired);
    };
    let held = live.yielded.iter().filter(|field| entry.fields.has(field));
    let held: Vec<String> = held.map(yielding::display).collect();
    if !held.is_empty() {
        return Action::Apply(Difference::Yield(held));
    }
    if entry.as_we_left_it {
        return Action::Nothing;
    }
    if live.digest != Some(digest) {
        return Action::Apply(Difference::Desired);
    }
    if entry.api_version != desired.kind().api_version() {
        return Action::Apply(Difference::ApiVersion);
    }
    match entry
        .fields
        .missing(body, LeafSemantics::of(desired.kind(), entry.types))
    {
        Missing { paths, .. } if !paths.is_empty() => Action::Apply(Difference::Drift(paths)),
        Missing { unclear: true, .. } => Action::Apply(Difference::Unclear),
        Missing { .. } if values::fingerprint(entry.fields, body, desired.kind()) == entry.values => Action::Nothing,
        Missing { .. } => Action::Apply(Difference::Values),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::kubernetes::key::Name;
    use crate::kubernetes::served::{KindFacts, ServedKind};
    use crate::plugin::contract::Lifecycle;

    const OURS: CurrentOwner<'static> = CurrentOwner {
        uid: "u1",
        is_namesake: true,
        bond: OwnerLink::Reference,
    };

    fn owner() -> Owner {
        Owner {
            kind: Kind::new("x.dev", "v1", "X"),
            name: Name::new(Some("a"), "x"),
            uid: "u1".into(),
        }
    }

    fn served(group: &str, kind: &str) -> ServedKind {
        ServedKind {
            short_names: Vec::new(),
            kind: Arc::new(Kind::new(group, "v1", kind)),
            plural: format!("{}s", kind.to_lowercase()),
            facts: KindFacts {
                namespaced: true,
                has_status: false,
            },
        }
    }

    fn desired() -> DesiredObject {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap",
                          "metadata": {"name": "c", "namespace": "a"}, "data": {"k": "v"}});
        DesiredObject {
            served: served("", "ConfigMap"),
            name: Name::new(Some("a"), "c"),
            body: body.as_object().unwrap().clone(),
            lifecycle: Lifecycle::default(),
            yields: Vec::new(),
            after: Vec::new(),
            once: None,
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

    fn decide_for(change: impl FnOnce(&mut LiveOwnership<'_>, &mut DesiredObject)) -> Action {
        let mut desired = desired();
        let (body, applied) = body(&mut desired.clone(), &owner());
        let fields = entry();
        let values = values::fingerprint(&fields, &body, desired.kind());
        let mut live = LiveOwnership {
            holder: Some(OURS),
            deleting: false,
            propagation: None,
            digest: Some(&applied),
            entry: Some(LiveEntry {
                api_version: "v1",
                fields: &fields,
                types: None,
                values,
                as_we_left_it: false,
            }),
            yielded: &[],
            rival: None,
        };
        change(&mut live, &mut desired);
        decide(&desired, &body, &applied, &owner(), Some(&live))
    }

    #[test]
    fn an_object_that_is_held_as_it_was_applied_is_left_alone() {
        assert_eq!(decide_for(|_, _| {}), Action::Nothing);
    }

    #[test]
    fn other_values_in_fields_of_ours_are_applied_again() {
        let changed = |live: &mut LiveOwnership<'_>, _: &mut DesiredObject| live.entry.as_mut().unwrap().values += 1;
        assert_eq!(decide_for(changed), Action::Apply(Difference::Values));
        let left = |live: &mut LiveOwnership<'_>, _: &mut DesiredObject| {
            let entry = live.entry.as_mut().unwrap();
            entry.values += 1;
            entry.as_we_left_it = true;
            live.digest = None;
        };
        assert_eq!(decide_for(left), Action::Nothing, "the server rewrites what is applied");
    }

    #[test]
    fn an_absent_object_is_created() {
        let (body, digest) = body(&mut desired(), &owner());
        assert_eq!(decide(&desired(), &body, &digest, &owner(), None), Action::Create);
    }

    #[test]
    fn a_foreign_object_is_never_applied() {
        let theirs = CurrentOwner {
            uid: "u2",
            is_namesake: false,
            bond: OwnerLink::Reference,
        };
        let unheld = |live: &mut LiveOwnership<'_>| (live.holder, live.entry) = (None, None);
        assert_eq!(decide_for(|live, _| unheld(live)), Action::Foreign);
        assert_eq!(decide_for(|live, _| live.holder = Some(theirs)), Action::Foreign);
        assert_eq!(
            decide_for(|live, _| {
                unheld(live);
                live.deleting = true;
            }),
            Action::Foreign
        );
    }

    #[test]
    fn a_predecessors_object_is_adopted_unless_garbage_collected() {
        let left = |bond| CurrentOwner {
            uid: "u0",
            is_namesake: true,
            bond,
        };
        let decide = |bond| {
            decide_for(|live, _| {
                live.holder = Some(left(bond));
                live.digest = Some("its");
            })
        };
        assert_eq!(decide(OwnerLink::Reference), Action::Inherited);
        for bond in [OwnerLink::Label, OwnerLink::Kept] {
            assert_eq!(decide(bond), Action::Apply(Difference::Desired));
        }
    }

    #[test]
    fn an_object_of_another_plugin_is_left_until_it_is_released() {
        let rival = |claims| CompetingPlugin {
            manager: "pilothouse/other",
            claims,
        };
        let unheld = |claims| {
            decide_for(|live, _| {
                live.rival = Some(rival(claims));
                live.entry = None;
            })
        };
        assert_eq!(unheld(true), Action::CompetingPlugin("pilothouse/other".to_owned()));
        assert_eq!(unheld(false), Action::Adopt("pilothouse/other".to_owned()));
        let held = |claims| decide_for(|live, _| live.rival = Some(rival(claims)));
        assert_eq!(held(true), Action::Nothing, "two that held it before stay as they are");
        assert_eq!(held(false), Action::Adopt("pilothouse/other".to_owned()));
    }

    #[test]
    fn what_others_need_comes_first() {
        let mut kinds = [
            Kind::new("apps", "v1", "Deployment"),
            Kind::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
            Kind::new("x.dev", "v1", "Namespace"),
            Kind::new("", "v1", "Namespace"),
        ];
        kinds.sort_by_key(rank);
        let order: Vec<_> = kinds.iter().map(|kind| kind.group.as_str()).collect();
        assert_eq!(order, ["", "apiextensions.k8s.io", "apps", "x.dev"]);
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
        let in_beta = |live: &mut LiveOwnership<'_>, _: &mut DesiredObject| {
            live.entry.as_mut().unwrap().api_version = "v1beta1";
        };
        assert_eq!(decide_for(in_beta), Action::Apply(Difference::ApiVersion));
        let empty = FieldSet::default();
        let (applied, digest) = body(&mut desired(), &owner());
        let live = LiveOwnership {
            propagation: None,
            yielded: &[],
            holder: Some(OURS),
            deleting: false,
            digest: Some(&digest),
            entry: Some(LiveEntry {
                api_version: "v1",
                fields: &empty,
                types: None,
                values: 0,
                as_we_left_it: false,
            }),
            rival: None,
        };
        let Action::Apply(Difference::Drift(missing)) = decide(&desired(), &applied, &digest, &owner(), Some(&live))
        else {
            panic!("drift expected");
        };
        assert!(missing.contains(&".data".to_owned()) && missing.contains(&".metadata.ownerReferences".to_owned()));
    }

    #[test]
    fn whether_a_member_of_a_map_was_emptied_hangs_on_the_types() {
        let mut desired = desired();
        desired.served = served("x.dev", "Map");
        desired.body["data"] = json!({"k": {"weight": 1}});
        let (body, digest) = body(&mut desired.clone(), &owner());
        let fields = entry();
        let decide_by = |types| {
            let live = LiveOwnership {
                propagation: None,
                yielded: &[],
                holder: Some(OURS),
                deleting: false,
                digest: Some(&digest),
                entry: Some(LiveEntry {
                    api_version: "x.dev/v1",
                    fields: &fields,
                    types,
                    values: 0,
                    as_we_left_it: false,
                }),
                rival: None,
            };
            decide(&desired, &body, &digest, &owner(), Some(&live))
        };
        assert_eq!(decide_by(None), Action::Apply(Difference::Unclear));
        assert_eq!(
            decide_by(Some(&Types::default())),
            Action::Apply(Difference::Drift(vec![".data.k.weight".to_owned()]))
        );
    }

    #[test]
    fn an_unpersisted_apply_is_not_applied_again() {
        let empty = FieldSet::default();
        let (applied, digest) = body(&mut desired(), &owner());
        let live = LiveOwnership {
            propagation: None,
            yielded: &[],
            holder: Some(OURS),
            deleting: false,
            digest: Some(&digest),
            entry: Some(LiveEntry {
                api_version: "v1",
                fields: &empty,
                types: None,
                values: 0,
                as_we_left_it: true,
            }),
            rival: None,
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
        let changed = |live: &mut LiveOwnership<'_>, desired: &mut DesiredObject| {
            live.digest = None;
            desired.lifecycle.create_only = true;
        };
        assert_eq!(decide_for(changed), Action::Nothing);
    }

    #[test]
    fn create_only_with_another_bond_is_bound_anew_and_not_applied() {
        let kept = |live: &mut LiveOwnership<'_>, desired: &mut DesiredObject| {
            live.digest = None;
            desired.lifecycle.create_only = true;
            desired.lifecycle.keep = true;
        };
        assert_eq!(decide_for(kept), Action::Rebind);
    }

    #[test]
    fn create_only_with_another_propagation_is_bound_anew_and_not_applied() {
        let changed = |live: &mut LiveOwnership<'_>, desired: &mut DesiredObject| {
            live.digest = None;
            desired.lifecycle.create_only = true;
            desired.lifecycle.propagation = Some(Propagation::Foreground);
        };
        assert_eq!(decide_for(changed), Action::Rebind);
    }

    #[test]
    fn a_yielded_field_that_we_hold_too_is_given_up() {
        let decide_for = |field: &str| {
            let yielded = vec![["data", field].map(str::to_owned).to_vec()].leak();
            decide_for(|live, _| live.yielded = yielded)
        };
        let difference = Difference::Yield(vec![".data.k".to_owned()]);
        assert_eq!(decide_for("k"), Action::Apply(difference));
        assert_eq!(decide_for("z"), Action::Nothing);
    }

    #[test]
    fn an_object_of_nobody_is_adopted_only_if_the_plugin_asks() {
        let unowned = |adopt: bool, deleting: bool| {
            decide_for(|live: &mut LiveOwnership<'_>, desired: &mut DesiredObject| {
                (live.holder, live.entry, live.deleting) = (None, None, deleting);
                desired.lifecycle.adopt = adopt;
            })
        };
        assert_eq!(unowned(false, false), Action::Foreign);
        assert_eq!(unowned(true, false), Action::AdoptUnowned);
        assert_eq!(unowned(true, true), Action::Wait, "its successor is created");
        let theirs = |live: &mut LiveOwnership<'_>, desired: &mut DesiredObject| {
            live.holder = Some(CurrentOwner {
                uid: "u2",
                is_namesake: false,
                bond: OwnerLink::Reference,
            });
            desired.lifecycle.adopt = true;
        };
        assert_eq!(decide_for(theirs), Action::Foreign);
    }

    #[test]
    fn the_digest_depends_on_the_owner() {
        let heir = Owner {
            uid: "u2".into(),
            ..owner()
        };
        assert_ne!(body(&mut desired(), &owner()).1, body(&mut desired(), &heir).1);
    }
}
