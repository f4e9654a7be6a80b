//! Reads the owner of an object: its controller reference, or the owner in the host's label and annotations.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use pilothouse_core::Kind;
use pilothouse_core::diff::canonical::DESIRED_ANNOTATION;
use pilothouse_core::kubernetes::path::FieldPath;
use pilothouse_core::ownership::{
    AFTER_ANNOTATION, KEEP_ANNOTATION, OWNER_ANNOTATION, OWNER_LABEL, OwnerLink, PROPAGATION_ANNOTATION,
    YIELD_ANNOTATION, parse_owner_name,
};
use pilothouse_core::plugin::contract::Propagation;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::cache::codec::ObjectCodec;
use crate::object::apply_entry::is_applier;
use crate::object::raw::RawMetadata;

/// The owner of an object: the owner reference with `controller: true`, else the host's label, else the owner reference
/// that a plugin has applied. Of the last one only the uid is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ControllerRef {
    /// The link from the object to the owner.
    pub bond: OwnerLink,
    /// The API group of the owner.
    pub group: Arc<str>,
    /// The kind of the owner.
    pub kind: Arc<str>,
    /// The owner's namespace; none if it has none, and for a reference, which does not record it.
    pub namespace: Option<Arc<str>>,
    /// The owner's name.
    pub name: Arc<str>,
    /// The owner's uid.
    pub uid: Arc<str>,
}

/// The owner in an object's metadata, and the digest of the object applied for it.
pub(crate) struct OwnerParts {
    pub(crate) controller: Option<Box<ControllerRef>>,
    /// The annotation with the digest of the applied object.
    pub(crate) digest: Option<Box<str>>,
    /// The annotation with the propagation of its deletion.
    pub(crate) propagation: Option<Propagation>,
    /// The paths in the annotation of fields that it yields.
    pub(crate) yields: Vec<FieldPath>,
    /// The annotation with the objects that it comes after.
    pub(crate) after: Option<Box<str>>,
}

impl OwnerParts {
    /// Reads them for an object of this name.
    pub(crate) fn read(
        metadata: &RawMetadata<'_>,
        name: &Arc<str>,
        codec: &ObjectCodec,
    ) -> Result<Self, serde_json::Error> {
        let annotations: Option<Annotations<'_>> = metadata.parse("annotations")?;
        let labels: Option<Labels<'_>> = metadata.parse("labels")?;
        let owner_references: Vec<OwnerReference<'_>> = metadata.parse("ownerReferences")?.unwrap_or_default();
        let controller = owner_references
            .into_iter()
            .find(|it| it.controller == Some(true))
            .map(|reference| {
                let owner = Kind::from_api_version(&reference.api_version, &reference.kind);
                ControllerRef {
                    bond: OwnerLink::Reference,
                    group: codec.text(&owner.group),
                    kind: codec.text(&owner.kind),
                    namespace: None,
                    // A child often has its owner's name.
                    name: if *reference.name == **name {
                        name.clone()
                    } else {
                        Arc::from(reference.name.as_ref())
                    },
                    uid: Arc::from(reference.uid.as_ref()),
                }
            })
            .or_else(|| labelled_owner(labels.as_ref()?, annotations.as_ref()?, codec));
        let propagation = annotations.as_ref().and_then(|it| it.propagation.as_deref());
        let propagation = propagation.and_then(Propagation::parse);
        let yields = annotations.as_ref().and_then(|it| it.yields.as_deref());
        // Another client may have written anything.
        let yields = yields
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let (digest, after) = annotations.map_or((None, None), |it| (it.desired, it.after));
        let stripped = || digest.as_ref().and_then(|_| stripped_owner(metadata, codec));
        Ok(Self {
            controller: controller.or_else(stripped).map(Box::new),
            digest,
            propagation,
            yields,
            after,
        })
    }
}

/// The only annotations that are parsed.
#[derive(Deserialize)]
struct Annotations<'a> {
    #[serde(rename = "pilothouse.dev/desired", default)]
    desired: Option<Box<str>>,
    #[serde(rename = "pilothouse.dev/owner-name", borrow, default)]
    owner_name: Option<Cow<'a, str>>,
    #[serde(rename = "pilothouse.dev/keep", borrow, default)]
    keep: Option<Cow<'a, str>>,
    #[serde(rename = "pilothouse.dev/propagation", borrow, default)]
    propagation: Option<Cow<'a, str>>,
    #[serde(rename = "pilothouse.dev/yield", borrow, default)]
    yields: Option<Cow<'a, str>>,
    #[serde(rename = "pilothouse.dev/after", default)]
    after: Option<Box<str>>,
}

const _: () = assert!(matches!(DESIRED_ANNOTATION.as_bytes(), b"pilothouse.dev/desired"));
const _: () = assert!(matches!(OWNER_ANNOTATION.as_bytes(), b"pilothouse.dev/owner-name"));
const _: () = assert!(matches!(KEEP_ANNOTATION.as_bytes(), b"pilothouse.dev/keep"));
const _: () = assert!(matches!(
    PROPAGATION_ANNOTATION.as_bytes(),
    b"pilothouse.dev/propagation"
));
const _: () = assert!(matches!(YIELD_ANNOTATION.as_bytes(), b"pilothouse.dev/yield"));
const _: () = assert!(matches!(AFTER_ANNOTATION.as_bytes(), b"pilothouse.dev/after"));

/// The only label that is parsed.
#[derive(Deserialize)]
struct Labels<'a> {
    #[serde(rename = "pilothouse.dev/owner", borrow, default)]
    owner: Option<Cow<'a, str>>,
}

const _: () = assert!(matches!(OWNER_LABEL.as_bytes(), b"pilothouse.dev/owner"));

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerReference<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(default)]
    controller: Option<bool>,
}

/// The part of a field set about owner references.
#[derive(Deserialize)]
struct AppliedOwners<'a> {
    #[serde(rename = "f:metadata", borrow)]
    metadata: AppliedMetadata<'a>,
}

#[derive(Deserialize)]
struct AppliedMetadata<'a> {
    #[serde(rename = "f:ownerReferences", borrow)]
    #[expect(clippy::zero_sized_map_values, reason = "JSON has no sets")]
    owner_references: BTreeMap<Cow<'a, str>, IgnoredAny>,
}

#[derive(Deserialize)]
struct AppliedOwner {
    uid: String,
}

/// The owner in an Apply entry of a plugin whose reference the object itself lacks.
fn stripped_owner(metadata: &RawMetadata<'_>, codec: &ObjectCodec) -> Option<ControllerRef> {
    let entries = metadata.managed_fields.iter();
    let mut applied = entries.filter(|entry| {
        let is_apply = entry.operation.as_deref() == Some("Apply") && entry.subresource.is_none();
        is_apply && entry.manager.as_deref().is_some_and(is_applier)
    });
    let uid = applied.find_map(|entry| {
        let AppliedOwners { metadata } = serde_json::from_str(entry.fields_v1?.get()).ok()?;
        let mut keys = metadata.owner_references.into_keys();
        keys.find_map(|key| serde_json::from_str::<AppliedOwner>(key.strip_prefix("k:")?).ok())
    });
    let nothing = codec.text("");
    uid.map(|AppliedOwner { uid }| ControllerRef {
        bond: OwnerLink::Stripped,
        group: nothing.clone(),
        kind: nothing.clone(),
        namespace: None,
        name: nothing,
        uid: uid.into(),
    })
}

/// The owner in the host's label and annotations.
fn labelled_owner(labels: &Labels<'_>, annotations: &Annotations<'_>, codec: &ObjectCodec) -> Option<ControllerRef> {
    let uid = labels.owner.as_deref()?;
    let (group, kind, name) = parse_owner_name(annotations.owner_name.as_deref()?)?;
    let kept = annotations.keep.as_deref() == Some("true");
    Some(ControllerRef {
        bond: if kept { OwnerLink::Kept } else { OwnerLink::Label },
        group: codec.text(group),
        kind: codec.text(kind),
        namespace: name.namespace.as_deref().map(|namespace| codec.text(namespace)),
        name: name.name,
        uid: Arc::from(uid),
    })
}
