//! Owns the form in which an object goes through the host: read once from the server's JSON, trimmed to what plugins
//! may see, with what the host needs to know of ownership beside it.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicResourceScope};
use pilothouse_core::canonical::DESIRED_ANNOTATION;
use pilothouse_core::fields::FieldSet;
use pilothouse_core::path::Projection;
use pilothouse_core::{Kind, Name};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// Field managers of the host begin with this; the rest is the Plugin's name.
pub const MANAGER_PREFIX: &str = "pilothouse/";

/// An object as the server sent it: the text, and the little metadata that kube's watcher asks for.
#[derive(Clone, Debug)]
pub struct RawObject {
    meta: ObjectMeta,
    text: Box<RawValue>,
}

impl RawObject {
    /// The JSON text.
    pub fn text(&self) -> &RawValue {
        &self.text
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Head<'a> {
            #[serde(borrow)]
            metadata: Meta<'a>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Meta<'a> {
            #[serde(borrow)]
            name: Cow<'a, str>,
            #[serde(borrow, default)]
            namespace: Option<Cow<'a, str>>,
            #[serde(borrow, default)]
            resource_version: Option<Cow<'a, str>>,
        }
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let head: Head<'_> = serde_json::from_str(text.get()).map_err(serde::de::Error::custom)?;
        let meta = ObjectMeta {
            name: Some(head.metadata.name.into_owned()),
            namespace: head.metadata.namespace.map(Cow::into_owned),
            resource_version: head.metadata.resource_version.map(Cow::into_owned),
            ..ObjectMeta::default()
        };
        Ok(Self { meta, text })
    }
}

impl kube::Resource for RawObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.kind)
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.group)
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.version)
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.plural)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

/// The owner reference with `controller: true`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Controller {
    /// The API group of the owner.
    pub group: String,
    /// The kind of the owner.
    pub kind: String,
    /// The owner's name.
    pub name: Arc<str>,
    /// The owner's uid.
    pub uid: Arc<str>,
}

/// What the host keeps of one entry of managedFields; only entries of its own managers are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The manager, such as `pilothouse/app-service`.
    pub manager: Box<str>,
    /// The version that it was written in.
    pub api_version: Box<str>,
    /// Whether it is of the status subresource.
    pub of_status: bool,
    /// The field set as text, its list items in the order of the live object.
    pub fields: Box<str>,
}

impl Entry {
    /// The field set.
    pub fn field_set(&self) -> FieldSet {
        serde_json::from_str(&self.fields).expect("the text was written from a field set")
    }
}

/// An object as the cache holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its place.
    pub name: Name,
    /// Its uid.
    pub uid: Arc<str>,
    /// Its resourceVersion, to be compared for equality or sent back.
    pub resource_version: Box<str>,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Whether it has a deletionTimestamp.
    pub deleting: bool,
    /// Its controller.
    pub controller: Option<Controller>,
    /// The annotation with the digest of what was applied.
    pub digest: Option<Box<str>>,
    /// The host's entries of managedFields.
    pub entries: Box<[Entry]>,
    /// The visible part of the object as JSON.
    pub text: Box<str>,
}

/// An object that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("an object of kind {kind} cannot be read: {source}")]
pub struct ObjectError {
    kind: Kind,
    #[source]
    source: serde_json::Error,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    uid: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    resource_version: Option<Cow<'a, str>>,
    #[serde(default)]
    generation: Option<i64>,
    #[serde(default)]
    deletion_timestamp: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    annotations: Option<Annotations>,
    #[serde(borrow, default)]
    owner_references: Vec<OwnerReference<'a>>,
    #[serde(borrow, default)]
    managed_fields: Vec<ManagedFields<'a>>,
}

/// Only the one annotation that the host needs is read.
#[derive(Deserialize)]
struct Annotations {
    #[serde(rename = "pilothouse.dev/desired", default)]
    desired: Option<Box<str>>,
}

const _: () = assert!(matches!(DESIRED_ANNOTATION.as_bytes(), b"pilothouse.dev/desired"));

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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagedFields<'a> {
    #[serde(borrow, default)]
    manager: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    operation: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    api_version: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    subresource: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    fields_v1: Option<&'a RawValue>,
}

impl Stored {
    /// Reads an object of a known kind and keeps what the projection shows.
    pub fn read(text: &RawValue, kind: &Kind, projection: &Projection) -> Result<Self, ObjectError> {
        Self::try_read(text, kind, projection).map_err(|source| ObjectError {
            kind: kind.clone(),
            source,
        })
    }

    fn try_read(text: &RawValue, kind: &Kind, projection: &Projection) -> Result<Self, serde_json::Error> {
        let Head { metadata } = serde_json::from_str(text.get())?;
        let Meta {
            name,
            namespace,
            uid,
            resource_version,
            generation,
            deletion_timestamp,
            annotations,
            owner_references,
            managed_fields,
        } = metadata;
        let controller = owner_references
            .into_iter()
            .find(|it| it.controller == Some(true))
            .map(|reference| {
                let owner = Kind::from_api_version(&reference.api_version, &reference.kind);
                Controller {
                    group: owner.group,
                    kind: owner.kind,
                    name: Arc::from(reference.name.as_ref()),
                    uid: Arc::from(reference.uid.as_ref()),
                }
            });
        Ok(Self {
            name: Name::new(namespace.as_deref(), &name),
            uid: Arc::from(uid.as_deref().unwrap_or_default()),
            resource_version: resource_version.as_deref().unwrap_or_default().into(),
            generation,
            deleting: deletion_timestamp.is_some(),
            controller,
            digest: annotations.and_then(|it| it.desired),
            entries: read_entries(text, managed_fields)?,
            text: projection.project(text, kind)?.into_boxed_str(),
        })
    }

    /// A manager's Apply entry, of the status subresource or of the rest.
    pub fn entry(&self, manager: &str, of_status: bool) -> Option<&Entry> {
        self.entries
            .iter()
            .find(|entry| &*entry.manager == manager && entry.of_status == of_status)
    }

    /// Whether an object is held in another way than before: who controls it, what was applied, which fields are held,
    /// whether it goes. Nobody who only wants to know whether an object is as desired needs to look at anything else.
    pub fn is_held_like(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.controller == other.controller
            && self.deleting == other.deleting
            && self.digest == other.digest
            && self
                .entries
                .iter()
                .filter(|it| !it.of_status)
                .eq(other.entries.iter().filter(|it| !it.of_status))
    }
}

fn read_entries(text: &RawValue, managed: Vec<ManagedFields<'_>>) -> Result<Box<[Entry]>, serde_json::Error> {
    let mut entries = Vec::new();
    // Parsed only where an entry of ours needs to know the order of lists.
    let mut live: Option<Value> = None;
    for ManagedFields {
        manager,
        operation,
        api_version,
        subresource,
        fields_v1,
    } in managed
    {
        let (Some(manager), Some(fields)) = (manager, fields_v1) else {
            continue;
        };
        if !manager.starts_with(MANAGER_PREFIX) || operation.as_deref() != Some("Apply") {
            continue;
        }
        let mut set: FieldSet = serde_json::from_str(fields.get())?;
        if live.is_none() {
            live = Some(serde_json::from_str(text.get())?);
        }
        if let Some(live) = &live {
            set.order_as(live);
        }
        entries.push(Entry {
            manager: manager.into(),
            api_version: api_version.unwrap_or_default().into(),
            of_status: subresource.as_deref() == Some("status"),
            fields: serde_json::to_string(&set)?.into_boxed_str(),
        });
    }
    Ok(entries.into_boxed_slice())
}

#[cfg(test)]
mod tests {
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

    fn stored() -> Stored {
        let raw = RawValue::from_string(TEXT.to_owned()).unwrap();
        let spec = pilothouse_core::path::FieldPath::parse(".spec").unwrap();
        Stored::read(&raw, &Kind::new("x.dev", "v1", "C"), &Projection::new([&spec])).unwrap()
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
        let visible: Value = serde_json::from_str(&stored.text).unwrap();
        assert_eq!(visible["spec"]["b"], 1);
        assert_eq!(
            visible["apiVersion"], "x.dev/v1",
            "items of built-in lists come without it"
        );
        assert!(visible.get("status").is_none() && visible["metadata"].get("managedFields").is_none());
    }

    #[test]
    fn only_our_apply_entries_are_kept_in_the_order_of_the_live_lists() {
        let stored = stored();
        assert_eq!(stored.entries.len(), 1);
        assert_eq!(
            &*stored.entries[0].fields,
            r#"{"f:list":{"k:{\"n\":2}":{".":{}},"k:{\"n\":1}":{".":{}}}}"#
        );
    }

    #[test]
    fn a_change_of_what_others_write_is_no_change_of_how_it_is_held() {
        let one = stored();
        let other = Stored {
            resource_version: "13".into(),
            text: "{}".into(),
            ..one.clone()
        };
        assert!(one.is_held_like(&other));
        assert!(!one.is_held_like(&Stored {
            deleting: true,
            ..one.clone()
        }));
        assert!(!one.is_held_like(&Stored {
            digest: None,
            ..one.clone()
        }));
        assert!(!one.is_held_like(&Stored {
            entries: Box::new([]),
            ..one.clone()
        }));
    }

    #[test]
    fn what_is_not_an_object_is_an_error_that_names_the_kind() {
        let raw = RawValue::from_string("[]".to_owned()).unwrap();
        let error = Stored::read(&raw, &Kind::new("", "v1", "Pod"), &Projection::default()).unwrap_err();
        assert!(error.to_string().contains("v1 Pod"), "{error}");
    }
}
