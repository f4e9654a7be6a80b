//! The cached form of an object: read once from the server's JSON and trimmed to the fields that plugins may see, with
//! the ownership data that the host needs (`object/controller_ref.rs`, `object/apply_entry.rs`).
//!
//! A [`CachedObject`] is its trimmed JSON and, beside it, identity, controller, deletion, digest, facts, and the Apply entries of
//! `pilothouse/` managers with the order of their list items.

pub(crate) mod apply_entry;
pub(crate) mod controller_ref;
pub mod facts;
pub(crate) mod raw;

use std::borrow::Cow;
use std::sync::Arc;

use pilothouse_core::kubernetes::fields::FieldSet;
use pilothouse_core::kubernetes::path::Projection;
use pilothouse_core::kubernetes::selector::Selector;
use pilothouse_core::ownership::{AFTER_ANNOTATION, PROPAGATION_ANNOTATION};
use pilothouse_core::plugin::contract::Propagation;
use pilothouse_core::text::depth::{Bounded, is_plain, is_too_deep};
use pilothouse_core::{Kind, Name};
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cache::codec::{ObjectCodec, ObjectLayout, pack, packed_bytes, unpack};
use crate::cache::decoding;
pub use crate::object::apply_entry::MANAGER_PREFIX;
use crate::object::apply_entry::{ApplyEntry, ReadEntries, is_applier, read_entries, read_taken};
pub use crate::object::controller_ref::ControllerRef;
use crate::object::controller_ref::OwnerParts;
use crate::object::facts::{FactKeys, MetadataFacts, fingerprint};
use crate::object::raw::{BorrowedText, RawObject};

/// An object in the cache.
#[derive(Clone, Debug)]
pub struct CachedObject {
    /// Its namespace and name.
    pub name: Name,
    /// Its uid.
    pub uid: Arc<str>,
    /// Its resourceVersion, only to be compared for equality or sent back.
    pub resource_version: Box<str>,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Set if it has a deletionTimestamp.
    pub deleting: bool,
    /// Its controller.
    pub controller: Option<Box<ControllerRef>>,
    /// The annotation with the digest of the applied object.
    pub digest: Option<Box<str>>,
    /// The annotation with the propagation of its deletion, whoever wrote it.
    propagation: Option<Propagation>,
    /// Fields of other clients among those that it yields, as a JSON list of field sets.
    taken: Option<Box<str>>,
    /// The annotation with the objects that it comes after, whoever wrote it.
    after: Option<Box<str>>,
    /// The reason why it is not Current ([`pilothouse_core::status::kstatus::pending`]); none if a plugin does not apply it.
    pending: Option<Box<str>>,
    /// Set if the visible part nests too deep to be read ([`pilothouse_core::text::depth`]).
    is_too_deep: bool,
    /// The host's entries of managedFields.
    entries: Arc<[ApplyEntry]>,
    /// The fingerprint of the values of each entry.
    values: Box<[u64]>,
    facts: Arc<MetadataFacts>,
    /// The hash of the labels and annotations, for comparisons.
    marks: u64,
    /// The hash of the status, for comparisons.
    status: u64,
    /// The visible part of the object as compressed JSON.
    packed: Box<[u8]>,
    layout: Arc<ObjectLayout>,
}

/// An object that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be read: {source}", titled(kind, name.as_ref()))]
pub struct ObjectError {
    kind: Kind,
    /// The object's namespace and name, as far as they can be read.
    pub name: Option<Name>,
    #[source]
    source: serde_json::Error,
}

impl ObjectError {
    /// The same error with the object's namespace and name, if its text has them: perhaps nothing else can be read.
    pub(crate) fn named_by(mut self, text: &str) -> Self {
        #[derive(Deserialize)]
        struct Head {
            metadata: Identity,
        }
        #[derive(Deserialize)]
        struct Identity {
            name: String,
            namespace: Option<String>,
        }
        if self.name.is_none() {
            let head = serde_json::from_str(text).ok();
            self.name = head.map(|Head { metadata }| Name::new(metadata.namespace.as_deref(), &metadata.name));
        }
        self
    }
}

fn titled(kind: &Kind, name: Option<&Name>) -> String {
    match name {
        Some(name) => format!("{kind} {name}"),
        None => format!("an object of kind {kind}"),
    }
}

impl CachedObject {
    /// Reads an object of a known kind, trimmed to a projection.
    pub fn read(text: &str, kind: &Kind, projection: &Projection) -> Result<Self, ObjectError> {
        let codec = ObjectCodec::new(Arc::new(kind.clone()), projection.clone());
        Self::read_with(serde_json::from_str(text), kind, &codec)
    }

    /// Reads an object with the codec of its kind.
    pub(crate) fn read_with(
        parts: Result<RawObject<'_>, serde_json::Error>,
        kind: &Kind,
        codec: &ObjectCodec,
    ) -> Result<Self, ObjectError> {
        let failed = |name, source| ObjectError {
            kind: kind.clone(),
            name,
            source,
        };
        let parts = parts.map_err(|source| failed(None, source))?;
        Self::try_read(&parts, kind, codec).map_err(|source| failed(parts.name(), source))
    }

    fn try_read(parts: &RawObject<'_>, kind: &Kind, codec: &ObjectCodec) -> Result<Self, serde_json::Error> {
        let RawObject { metadata, others } = parts;
        let text = |name| -> Result<Option<Cow<'_, str>>, serde_json::Error> {
            Ok(metadata.parse(name)?.map(|BorrowedText(text)| text))
        };
        let name = text("name")?.ok_or_else(|| serde_json::Error::missing_field("name"))?;
        let name: Arc<str> = Arc::from(name.as_ref());
        let namespace = text("namespace")?;
        let uid = text("uid")?;
        let OwnerParts {
            controller,
            digest,
            propagation,
            yields,
            after,
        } = OwnerParts::read(metadata, &name, codec)?;
        let ReadEntries {
            entries,
            values,
            pending,
        } = read_entries(
            parts,
            kind,
            &name,
            controller.as_deref().map(|controller| &*controller.uid),
        )?;
        let layout = codec.layout();
        let visible = layout
            .projection()
            .project_parts(Some(&metadata.others), others, kind)?;
        // Checked once: afterwards every reader can parse the cached text, or it is known to be too deep.
        let is_too_deep = !is_plain(&visible) && is_too_deep(&visible)?;
        let object = Self {
            name: Name {
                namespace: namespace.as_deref().map(|namespace| codec.text(namespace)),
                name,
            },
            uid: Arc::from(uid.as_deref().unwrap_or_default()),
            resource_version: metadata.resource_version.as_ref().into(),
            generation: metadata.parse("generation")?,
            deleting: metadata.get("deletionTimestamp").is_some(),
            controller,
            digest,
            propagation,
            taken: read_taken(metadata, &yields),
            after,
            pending: pending.map(String::into_boxed_str),
            is_too_deep,
            entries: codec.entries(&entries),
            values: values.into_boxed_slice(),
            facts: codec.facts(&metadata.facts(codec.keys())),
            marks: fingerprint(&[metadata.get("labels"), metadata.get("annotations")]),
            status: fingerprint(&[parts.get("status")]),
            packed: Box::default(),
            layout: layout.clone(),
        };
        let packed = pack(&visible, &layout, &object.own());
        Ok(Self { packed, ..object })
    }

    /// The same object with another visible part.
    pub(crate) fn with_text(&self, text: &str, layout: Arc<ObjectLayout>) -> Self {
        Self {
            packed: pack(text, &layout, &self.own()),
            layout,
            is_too_deep: self.is_too_deep && is_too_deep(text).unwrap_or(true),
            ..self.clone()
        }
    }

    /// The same object with the facts that a codec extracts now.
    pub(crate) fn with_facts(&self, codec: &ObjectCodec) -> Self {
        let text = self.text();
        let parts: RawObject<'_> = serde_json::from_str(&text).expect("the text was read through when it came");
        Self {
            facts: codec.facts(&parts.metadata.facts(codec.keys())),
            ..self.clone()
        }
    }

    /// The bytes that a walk through it reads: its visible part, and the host's entries of managedFields.
    pub fn bytes(&self) -> usize {
        let entries: usize = self.entries.iter().map(ApplyEntry::bytes).sum();
        packed_bytes(&self.packed) + entries
    }

    /// The extracted labels and annotations.
    pub(crate) fn fact_keys(&self) -> &FactKeys {
        &self.facts.keys
    }

    /// Its finalizers.
    pub fn finalizers(&self) -> &[Box<str>] {
        &self.facts.finalizers
    }

    /// Reports whether a selector matches its labels. Nothing is decoded if the codec extracts them.
    pub fn has_labels(&self, selector: &Selector) -> bool {
        if self.facts.keys.has_labels(selector) {
            return self.facts.matches(selector);
        }
        let value = self.value();
        selector.matches(|key| value["metadata"]["labels"].get(key).and_then(Value::as_str))
    }

    /// Reports whether it has an annotation, of any value. Nothing is decoded if the codec extracts it.
    pub fn has_annotation(&self, annotation: &str) -> bool {
        if self.facts.keys.has_annotation(annotation) {
            return self.facts.has_annotation(annotation);
        }
        self.value()["metadata"]["annotations"].get(annotation).is_some()
    }

    /// The text of an annotation, cut off where it is very long. Nothing is decoded if the codec extracts it.
    pub fn annotation(&self, annotation: &str) -> Option<Cow<'_, str>> {
        if self.facts.keys.has_text(annotation) {
            return self.facts.text(annotation).map(Cow::Borrowed);
        }
        let value = self.value();
        let text = value["metadata"]["annotations"].get(annotation)?.as_str()?;
        Some(Cow::Owned(text.to_owned()))
    }

    /// Reports whether this is the same object in the same state.
    pub fn is_version_of(&self, other: &Self) -> bool {
        self.uid == other.uid && self.resource_version == other.resource_version
    }

    /// Reports whether this is the same object in the same state, trimmed in the same way.
    pub(crate) fn is_kept_like(&self, other: &Self) -> bool {
        self.is_version_of(other) && self.projection() == other.projection()
    }

    /// Reports whether two states of an object have the same labels and annotations.
    pub fn is_marked_like(&self, other: &Self) -> bool {
        self.marks == other.marks
    }

    /// Reports whether two states of an object have the same status, as the server wrote it.
    pub fn has_status_of(&self, other: &Self) -> bool {
        self.status == other.status
    }

    /// The object's values that are stored beside its text, so that the text need not repeat them.
    fn own(&self) -> [&str; 4] {
        let owner = self.controller.as_ref().map_or("", |controller| &controller.uid);
        [
            owner,
            self.digest.as_deref().unwrap_or_default(),
            &self.name.name,
            &self.uid,
        ]
    }

    /// Reports whether the object's controller has this uid.
    pub fn is_controlled_by(&self, uid: &str) -> bool {
        self.controller
            .as_ref()
            .is_some_and(|controller| *controller.uid == *uid)
    }

    /// The visible part of the object as JSON.
    #[track_caller]
    pub fn text(&self) -> Cow<'_, str> {
        decoding::check();
        unpack(&self.packed, &self.layout, &self.own())
    }

    /// The visible part of the object, parsed; levels that are too deep are null.
    pub fn value(&self) -> Value {
        let Bounded(value) = serde_json::from_str(&self.text()).expect("the text was read through when it came");
        value
    }

    /// Reports whether the visible part nests deeper than a plugin can read. Parts of it may be shallow enough.
    pub fn is_too_deep(&self) -> bool {
        self.is_too_deep
    }

    /// Reports whether two states of an object have the same visible part.
    pub fn has_text_of(&self, other: &Self) -> bool {
        let same = Arc::ptr_eq(&self.layout, &other.layout) && self.own() == other.own();
        if same {
            // The same text is packed in the same way.
            return self.packed == other.packed;
        }
        // Once for each object, after the kind is listed in another form.
        decoding::allowed(|| self.text() == other.text())
    }

    /// The visible fields of the object.
    pub fn projection(&self) -> &Projection {
        self.layout.projection()
    }

    /// The object's memory in bytes, without parts shared with others of its kind.
    pub fn held_bytes(&self) -> usize {
        let Name { namespace, name } = &self.name;
        let texts = [
            namespace.as_ref().map_or(0, |namespace| namespace.len()),
            name.len(),
            self.uid.len(),
            self.resource_version.len(),
            self.digest.as_ref().map_or(0, |digest| digest.len()),
            self.taken.as_ref().map_or(0, |taken| taken.len()),
            self.after.as_ref().map_or(0, |after| after.len()),
            self.pending.as_ref().map_or(0, |pending| pending.len()),
            self.packed.len(),
        ];
        size_of::<Self>() + size_of_val(&*self.values) + texts.iter().sum::<usize>()
    }

    /// The memory of the visible part, in bytes.
    pub fn packed_bytes(&self) -> usize {
        self.packed.len()
    }

    /// The Apply entry of a manager, of the status subresource or of the rest.
    pub fn entry(&self, manager: &str, of_status: bool) -> Option<AppliedFields<'_>> {
        let mut entries = self.entries.iter().zip(&self.values);
        let (entry, values) = entries.find(|(entry, _)| &*entry.manager == manager && entry.of_status == of_status)?;
        Some(AppliedFields::new(self, entry, *values))
    }

    /// The propagation with which a manager deletes the object, if it has applied one.
    pub fn propagation(&self, manager: &str) -> Option<Propagation> {
        let policy = self.propagation?;
        self.has_applied(manager, PROPAGATION_ANNOTATION).then_some(policy)
    }

    /// The annotation with the objects that it comes after, if a manager has applied one.
    pub fn after(&self, manager: &str) -> Option<&str> {
        let after = self.after.as_deref()?;
        self.has_applied(manager, AFTER_ANNOTATION).then_some(after)
    }

    /// The reason why it is not Current by kstatus; none if it is, or if no plugin applies it.
    pub fn pending(&self) -> Option<&str> {
        self.pending.as_deref()
    }

    fn has_applied(&self, manager: &str, annotation: &str) -> bool {
        let applied = self.entry(manager, false).map(|entry| entry.field_set());
        let annotations = applied
            .as_ref()
            .and_then(|set| set.below("metadata")?.below("annotations"));
        annotations.is_some_and(|annotations| annotations.below(annotation).is_some())
    }

    /// The fields of other managers at the paths that the object yields, by its annotation.
    pub fn taken(&self, manager: &str) -> Vec<FieldSet> {
        let taken: Option<Vec<FieldSet>> = self.taken.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let plugins = self.appliers().filter(|other| *other != manager);
        let plugins = plugins.filter_map(|other| Some(self.entry(other, false)?.field_set()));
        taken.into_iter().flatten().chain(plugins).collect()
    }

    /// The field managers of plugins that apply the object, without those that contribute.
    pub fn appliers(&self) -> impl Iterator<Item = &str> {
        let main = self.entries.iter().filter(|entry| !entry.of_status);
        main.map(|entry| &*entry.manager).filter(|manager| is_applier(manager))
    }

    /// Reports whether ownership is unchanged: the controller, the digest, the deletion, the yielded fields of others, and the
    /// fields with their values of the managers that `is_asked` selects. Nothing else affects whether an object is as desired.
    pub fn is_held_like(&self, other: &Self, is_asked: impl Fn(&str) -> bool) -> bool {
        let is_asked = |(entry, _): &(&ApplyEntry, &u64)| !entry.of_status && is_asked(&entry.manager);
        let entries = self.entries.iter().zip(&self.values).filter(is_asked);
        self.uid == other.uid
            && self.controller == other.controller
            && self.deleting == other.deleting
            && self.digest == other.digest
            && self.taken == other.taken
            && entries.eq(other.entries.iter().zip(&other.values).filter(is_asked))
    }
}

/// One entry of an object.
#[derive(Clone, Copy, Debug)]
pub struct AppliedFields<'a> {
    /// The apiVersion of the entry.
    pub api_version: &'a str,
    /// A fingerprint of the values that the object has at its fields ([`fingerprint`](pilothouse_core::kubernetes::values::fingerprint)).
    pub values: u64,
    object: &'a CachedObject,
    entry: &'a ApplyEntry,
}

impl<'a> AppliedFields<'a> {
    pub(crate) fn new(object: &'a CachedObject, entry: &'a ApplyEntry, values: u64) -> Self {
        Self {
            api_version: entry.api_version(),
            values,
            object,
            entry,
        }
    }

    /// The field set as text, its list items in the order of the live object.
    pub fn fields(&self) -> String {
        let CachedObject { name, controller, .. } = self.object;
        let controller = controller.as_ref().map_or("", |controller| &controller.uid);
        self.entry.fields_of(controller, &name.name)
    }

    /// The field set.
    pub fn field_set(&self) -> FieldSet {
        serde_json::from_str(&self.fields()).expect("the text was written from a field set")
    }
}

impl ObjectCodec {
    /// Reports whether an earlier object has all the facts that are extracted now.
    pub(crate) fn has_facts_of(&self, object: &CachedObject) -> bool {
        object.fact_keys().covers(&self.keys())
    }

    /// An earlier object with the facts that are extracted now.
    pub fn with_facts(&self, object: &CachedObject) -> CachedObject {
        object.with_facts(self)
    }

    /// Reads an object from the server's JSON.
    pub fn read(&self, text: &RawValue) -> Result<CachedObject, ObjectError> {
        let read = CachedObject::read_with(serde_json::from_str(text.get()), self.kind(), self);
        read.map_err(|error| error.named_by(text.get()))
    }

    /// Reads an object that has been split already.
    pub(crate) fn read_parts(&self, parts: RawObject<'_>) -> Result<CachedObject, ObjectError> {
        CachedObject::read_with(Ok(parts), self.kind(), self)
    }

    /// An earlier object as it would be read now; the projection may only have become narrower.
    pub fn again(&self, object: &CachedObject) -> CachedObject {
        let text = object.text();
        let raw: &RawValue = serde_json::from_str(&text).expect("the text was read through when it came");
        let layout = self.layout();
        let text = layout
            .projection()
            .project(raw, self.kind())
            .expect("a path is less deep than what was read through");
        object.with_text(&text, layout)
    }
}

#[cfg(test)]
mod tests {
    use pilothouse_core::ownership::OwnerLink;
    use serde_json::value::RawValue;

    use super::*;

    const TEXT: &str = r#"{"metadata":{"name":"c","namespace":"a","uid":"u","resourceVersion":"12","generation":2,
        "annotations":{"pilothouse.dev/desired":"abc","other":"x"},
        "ownerReferences":[{"apiVersion":"x.dev/v1","kind":"X","name":"x","uid":"o","controller":true},
                           {"apiVersion":"v1","kind":"Y","name":"y","uid":"p"}],
        "managedFields":[
          {"manager":"pilothouse/p","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1",
           "fieldsV1":{"f:list":{"k:{\"n\":1}":{".":{}},"k:{\"n\":2}":{".":{}}}}},
          {"manager":"pilothouse/p","operation":"Update","apiVersion":"v1","fieldsV1":{"f:x":{}}},
          {"manager":"kubectl","operation":"Apply","apiVersion":"v1","fieldsV1":{"f:y":{}}}]},
        "list":[{"n":2},{"n":1}],"spec":{"b":1},"status":{"c":2}}"#;

    fn stored() -> CachedObject {
        let spec = pilothouse_core::kubernetes::path::FieldPath::parse(".spec").unwrap();
        CachedObject::read(TEXT, &Kind::new("x.dev", "v1", "C"), &Projection::new([&spec])).unwrap()
    }

    #[test]
    fn finalizers_labels_and_status_are_known_without_decoding() {
        let selector = Selector::parse("app=web").unwrap();
        let codec = ObjectCodec::new(Arc::new(Kind::new("x.dev", "v1", "C")), Projection::default());
        codec.ask(&FactKeys::default().with_labels(&selector));
        let read = |metadata: &str, status: &str| {
            let text =
                format!(r#"{{"metadata":{{"name":"c","uid":"u","resourceVersion":"1"{metadata}}},"status":{status}}}"#);
            codec.read(&RawValue::from_string(text).unwrap()).unwrap()
        };
        let before = read(r#","labels":{"app":"web"},"finalizers":["x.dev/a"]"#, r#"{"ready":1}"#);
        let relabelled = read(
            r#","labels":{"app":"db"},"finalizers":["x.dev/a","x.dev/b"]"#,
            r#"{"ready":1}"#,
        );
        let reported = read(r#","labels":{"app":"web"},"finalizers":["x.dev/a"]"#, r#"{"ready":2}"#);
        let released = read(r#","labels":{"app":"web"}"#, r#"{"ready":1}"#);

        let _guard = decoding::NoDecoding::begin();
        let finalizers = |object: &CachedObject| object.finalizers().join(" ");
        assert_eq!(
            [&before, &relabelled, &released].map(finalizers),
            ["x.dev/a", "x.dev/a x.dev/b", ""]
        );
        assert!(before.has_labels(&selector) && !relabelled.has_labels(&selector));
        assert!(!before.is_marked_like(&relabelled) && before.is_marked_like(&reported));
        assert!(before.has_status_of(&relabelled) && !before.has_status_of(&reported));
    }

    #[test]
    fn what_the_host_needs_is_read_beside_the_visible_part() {
        let stored = stored();
        assert_eq!(stored.name, Name::new(Some("a"), "c"));
        assert_eq!(
            (&*stored.uid, &*stored.resource_version, stored.generation),
            ("u", "12", Some(2))
        );
        assert_eq!(stored.digest.as_deref(), Some("abc"));
        assert_eq!(stored.controller.as_ref().map(|it| &*it.uid), Some("o"));
        let visible = stored.value();
        assert_eq!(visible["spec"]["b"], 1);
        assert_eq!(
            visible["apiVersion"], "x.dev/v1",
            "items of built-in lists come without it"
        );
        assert!(visible.get("status").is_none() && visible["metadata"].get("managedFields").is_none());
    }

    #[test]
    fn an_object_without_controller_belongs_to_the_labelled_owner() {
        let read = |metadata: &str| {
            let text = format!(r#"{{"metadata":{{"name":"c","namespace":"b",{metadata}}}}}"#);
            CachedObject::read(&text, &Kind::new("", "v1", "C"), &Projection::default())
                .unwrap()
                .controller
        };
        let label = r#""labels":{"pilothouse.dev/owner":"u"}"#;
        let owner = read(&format!(
            r#"{label},"annotations":{{"pilothouse.dev/owner-name":"x.dev/X/a/x"}}"#
        ))
        .unwrap();
        assert_eq!(
            (owner.bond, owner.namespace.as_deref(), &*owner.name, &*owner.uid),
            (OwnerLink::Label, Some("a"), "x", "u")
        );
        let kept = r#""annotations":{"pilothouse.dev/owner-name":"x.dev/X/a/x","pilothouse.dev/keep":"true"}"#;
        assert_eq!(read(&format!("{label},{kept}")).unwrap().bond, OwnerLink::Kept);
        assert_eq!(read(label), None, "a label alone does not say enough");
        let reference = r#""ownerReferences":[{"apiVersion":"v1","kind":"Y","name":"y","uid":"p","controller":true}]"#;
        assert_eq!(read(&format!("{label},{kept},{reference}")).unwrap().uid, "p".into());
    }

    #[test]
    fn stripped_owner_reference_is_read_from_our_entry() {
        let digest = r#""annotations":{"pilothouse.dev/desired":"d"}"#;
        let applied = |manager: &str| {
            let fields = r#"{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"u\"}":{}}}}"#;
            format!(
                r#""managedFields":[{{"manager":"{manager}","operation":"Apply","apiVersion":"v1","fieldsV1":{fields}}}]"#
            )
        };
        let read = |metadata: &[&str]| {
            let text = format!(
                r#"{{"metadata":{{"name":"c","namespace":"b",{}}}}}"#,
                metadata.join(",")
            );
            let object = CachedObject::read(&text, &Kind::new("", "v1", "C"), &Projection::default());
            object.unwrap().controller.map(|it| (it.bond, it.uid.to_string()))
        };
        let ours = applied("pilothouse/p");
        assert_eq!(read(&[digest, &ours]), Some((OwnerLink::Stripped, "u".to_owned())));
        assert_eq!(read(&[&ours]), None, "the annotation is gone, too");
        for others in ["kubectl", "pilothouse/p/contributed"] {
            assert_eq!(read(&[digest, &applied(others)]), None);
        }
        let reference = r#""ownerReferences":[{"apiVersion":"v1","kind":"Y","name":"y","uid":"p","controller":true}]"#;
        assert_eq!(read(&[digest, &ours, reference]).unwrap().1, "p");
    }

    #[test]
    fn only_our_apply_entries_are_kept_in_live_list_order() {
        let stored = stored();
        assert_eq!(stored.entries.len(), 1);
        assert_eq!(
            stored.entry("pilothouse/p", false).unwrap().fields(),
            r#"{"f:list":{"k:{\"n\":2}":{".":{}},"k:{\"n\":1}":{".":{}}}}"#
        );
    }

    #[test]
    fn a_change_of_what_others_write_is_no_change_of_how_it_is_held() {
        let one = stored();
        let other = CachedObject {
            resource_version: "13".into(),
            ..one.with_text("{}", one.layout.clone())
        };
        let is_held_like = |other: CachedObject| one.is_held_like(&other, |_| true);
        assert!(is_held_like(other));
        assert!(!is_held_like(CachedObject {
            deleting: true,
            ..one.clone()
        }));
        assert!(!is_held_like(CachedObject {
            digest: None,
            ..one.clone()
        }));
        let released = CachedObject {
            entries: Arc::new([]),
            ..one.clone()
        };
        assert!(!one.is_held_like(&released, |manager| manager == "pilothouse/p"));
        assert!(one.is_held_like(&released, |manager| manager == "pilothouse/other"));
    }

    #[test]
    fn why_a_plugins_object_is_not_current_is_kept_beside_it() {
        let read = |manager: &str, status: &str| {
            let text = format!(
                r#"{{"metadata":{{"name":"web","generation":2,"annotations":{{"pilothouse.dev/after":"[\"batch/Job/a/x\"]"}},
                "managedFields":[{{"manager":"{manager}","operation":"Apply","apiVersion":"v1",
                "fieldsV1":{{"f:metadata":{{"f:annotations":{{"f:pilothouse.dev/after":{{}}}}}}}}}}]}},"status":{status}}}"#
            );
            CachedObject::read(&text, &Kind::new("x.dev", "v1", "X"), &Projection::default()).unwrap()
        };
        let waiting = read("pilothouse/p", r#"{"observedGeneration":1}"#);
        assert!(
            waiting.pending().unwrap().starts_with("InProgress: "),
            "{:?}",
            waiting.pending()
        );
        assert_eq!(read("pilothouse/p", r#"{"observedGeneration":2}"#).pending(), None);
        for other in ["kubectl", "pilothouse/p/contributed"] {
            assert_eq!(read(other, r#"{"observedGeneration":1}"#).pending(), None, "{other}");
        }
        assert_eq!(waiting.after("pilothouse/p"), Some(r#"["batch/Job/a/x"]"#));
        assert_eq!(waiting.after("pilothouse/other"), None, "somebody else's has no effect");
    }

    #[test]
    fn what_is_not_an_object_is_an_error_that_names_the_kind() {
        let error = CachedObject::read("[]", &Kind::new("", "v1", "Pod"), &Projection::default()).unwrap_err();
        assert!(error.to_string().contains("v1 Pod"), "{error}");
    }

    #[test]
    fn children_that_differ_in_name_and_controller_share_entries() {
        let codec = ObjectCodec::new(Arc::new(Kind::new("", "v1", "Service")), Projection::default());
        let child = |name: &str, owner: &str, label: &str| {
            let text = format!(
                r#"{{"metadata":{{"name":"{name}","uid":"u-{name}","ownerReferences":[{{"apiVersion":"x.dev/v1","kind":"X","name":"{name}","uid":"{owner}","controller":true}}],
                "managedFields":[{{"manager":"pilothouse/p","operation":"Apply","apiVersion":"v1","fieldsV1":{{"f:metadata":{{"f:labels":{{"f:{label}":{{}}}},"f:ownerReferences":{{"k:{{\"uid\":\"{owner}\"}}":{{}}}}}},
                "f:spec":{{"f:containers":{{"k:{{\"name\":\"{name}\"}}":{{"f:image":{{}}}}}}}}}}}}]}},
                "spec":{{"containers":[{{"name":"{name}"}}]}}}}"#
            );
            codec.read(&RawValue::from_string(text).unwrap()).unwrap()
        };
        let one = child("one", "6f0e2c51-93c0-4c0e-b5a1-000000000001", "app");
        let two = child("two", "6f0e2c51-93c0-4c0e-b5a1-000000000002", "app");
        assert!(Arc::ptr_eq(&one.entries, &two.entries));
        assert!(!Arc::ptr_eq(&one.entries, &child("one", "6f0e2c51", "other").entries));
        let fields = two.entry("pilothouse/p", false).unwrap().fields();
        assert!(
            fields.contains(r#"k:{\"uid\":\"6f0e2c51-93c0-4c0e-b5a1-000000000002\"}"#)
                && fields.contains(r#"k:{\"name\":\"two\"}"#),
            "{fields}"
        );
    }
}
