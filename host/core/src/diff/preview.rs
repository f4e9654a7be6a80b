//! Describes what a plugin in preview would do: the objects that it would create, change and delete, and the changed
//! fields with their values. Everything is bounded, and values of Secrets are not shown.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::contribution::{IndexedObject, Leaf, Leaves};
use crate::diff::canonical::DESIRED_ANNOTATION;
use crate::kubernetes::fields::FieldSet;
use crate::kubernetes::key::Kind;
use crate::text::printable::shorten;

/// The highest number of stored changes of one primary.
const MAX_CHANGES: usize = 20;

/// The highest number of stored deletions of one primary: each is named to the user.
const MAX_DELETES: usize = 1000;

/// The highest number of stored fields of one change.
const MAX_FIELDS: usize = 20;

/// The longest shown part of a path, in bytes.
const MAX_PATH: usize = 512;

/// The longest shown value, in bytes.
const MAX_VALUE: usize = 200;

/// The highest number of primaries whose changes are stored, over all plugins, by default.
pub const MAX_PRIMARIES: usize = 1000;

/// The placeholder for a secret value.
const MASKED: &str = "***";

/// The change that would be made to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PreviewAction {
    /// The object would be created.
    Create,
    /// The object belongs to nobody, and would be taken over: its fields would be applied.
    Adopt,
    /// Its fields would be applied.
    Update,
    /// Fields would be applied to an object with another owner.
    Contribute,
    /// The object would be deleted.
    Delete,
}

/// One field that would change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldChange {
    /// The field's path, such as `.spec.ports[0].port`.
    pub path: String,
    /// The value now, as JSON; none where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The value after the change, as JSON; none if it would be removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// One object that would change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PreviewedChange {
    /// The action.
    pub act: PreviewAction,
    /// The object: `Deployment default/web`.
    pub object: String,
    /// The fields of an update or a contribution, the first 20.
    pub fields: Vec<FieldChange>,
    /// The number of further fields.
    pub more_fields: usize,
    /// The objects that have to be Current first: `Job default/migrate`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// A digest of all desired fields, including masked and shortened values. Two versions of a plugin with the same
    /// digest want the same.
    #[serde(skip)]
    pub digest: String,
}

/// Formats the change for people, on one line.
impl fmt::Display for PreviewedChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            act,
            object,
            fields,
            more_fields,
            after,
            digest: _,
        } = self;
        write!(formatter, "{act:?} {object}")?;
        if !after.is_empty() {
            write!(formatter, ", after {}", after.join(", "))?;
        }
        for FieldChange { path, from, to } in fields {
            let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
            write!(formatter, "; {path}: {} becomes {}", shown(from), shown(to))?;
        }
        if *more_fields > 0 {
            write!(formatter, "; and {more_fields} more fields")?;
        }
        Ok(())
    }
}

impl PreviewedChange {
    /// An object that would be created or deleted.
    pub fn whole(act: PreviewAction, object: String) -> Self {
        Self {
            act,
            object,
            fields: Vec::new(),
            more_fields: 0,
            after: Vec::new(),
            digest: String::new(),
        }
    }

    /// The order in which deletions are listed: what holds data that nothing restores comes first, then by name.
    pub fn deletion_order(&self) -> (u8, &str) {
        let kind = self.object.split(' ').next().unwrap_or_default();
        let rank = match kind {
            "PersistentVolumeClaim" => 0,
            "Secret" => 1,
            _ => 2,
        };
        (rank, &self.object)
    }

    /// The same change with the digest of the desired fields.
    #[must_use]
    pub fn wanting(self, digest: String) -> Self {
        Self { digest, ..self }
    }

    /// An object that would be applied over the live one; `applied` is the last applied one.
    pub fn update(
        object: String,
        kind: &Kind,
        live: &Value,
        desired: &Map<String, Value>,
        applied: Option<&FieldSet>,
    ) -> Self {
        let mut fields = Vec::new();
        for (name, value) in desired {
            differences(live.get(name), value, &format!(".{name}"), &mut fields);
        }
        let gone = applied
            .map(|applied| applied.removed(desired, live))
            .unwrap_or_default();
        fields.extend(gone.into_iter().map(|(path, from)| FieldChange {
            path,
            from: from.as_ref().map(shown),
            to: None,
        }));
        // The host's own note of the desired object says nothing that the other fields do not.
        let note = format!(".metadata.annotations[{DESIRED_ANNOTATION:?}]");
        fields.retain(|field| field.path != note);
        Self::of_fields(PreviewAction::Update, object, kind, fields)
    }

    /// The contribution to a live object; none if all its fields are there.
    pub fn contribution(object: String, kind: &Kind, live: &Value, claim: &Leaves) -> Option<Self> {
        let mut live = IndexedObject::new(live);
        let mut fields = Vec::new();
        for (path, leaf) in claim {
            let from = live.value(path);
            let to = match leaf {
                Leaf::Value(wanted) if from != Some(wanted) => shown(wanted),
                // An item of a list: its key is in the path.
                Leaf::Present if from.is_none() => "an item".to_owned(),
                Leaf::Value(_) | Leaf::Present => continue,
            };
            fields.push(FieldChange {
                path: path.to_string(),
                from: from.map(shown),
                to: Some(to),
            });
        }
        (!fields.is_empty()).then(|| Self::of_fields(PreviewAction::Contribute, object, kind, fields))
    }

    fn of_fields(act: PreviewAction, object: String, kind: &Kind, mut fields: Vec<FieldChange>) -> Self {
        if kind.group.is_empty() && kind.kind == "Secret" {
            fields.iter_mut().for_each(mask);
        }
        let more_fields = fields.len().saturating_sub(MAX_FIELDS);
        fields.truncate(MAX_FIELDS);
        Self {
            act,
            object,
            fields,
            more_fields,
            after: Vec::new(),
            digest: String::new(),
        }
    }
}

fn mask(field: &mut FieldChange) {
    if field.path.starts_with(".data") || field.path.starts_with(".stringData") {
        for value in [&mut field.from, &mut field.to].into_iter().flatten() {
            MASKED.clone_into(value);
        }
    }
}

/// Collects the desired fields that the live object lacks. Other live fields do not matter.
fn differences(live: Option<&Value>, desired: &Value, path: &str, fields: &mut Vec<FieldChange>) {
    match (live, desired) {
        (Some(Value::Object(live)), Value::Object(desired)) => {
            for (name, value) in desired {
                differences(live.get(name), value, &shorten(member(path, name), MAX_PATH), fields);
            }
        }
        (Some(Value::Array(live)), Value::Array(desired)) if live.len() == desired.len() => {
            for (index, (live, desired)) in live.iter().zip(desired).enumerate() {
                differences(
                    Some(live),
                    desired,
                    &shorten(format!("{path}[{index}]"), MAX_PATH),
                    fields,
                );
            }
        }
        (Some(live), desired) if live == desired => {}
        (live, desired) => fields.push(FieldChange {
            path: path.to_owned(),
            from: live.map(shown),
            to: Some(shown(desired)),
        }),
    }
}

fn member(path: &str, name: &str) -> String {
    if name.contains(['.', '/', '[']) {
        format!("{path}[{name:?}]")
    } else {
        format!("{path}.{name}")
    }
}

fn shown(value: &Value) -> String {
    shorten(value.to_string(), MAX_VALUE)
}

/// Previews of the plugins in preview, by primary.
#[derive(Debug)]
pub struct Previews<R> {
    known: BTreeMap<R, Preview>,
    most: usize,
}

/// The preview of one primary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preview {
    /// A digest of the inputs: equal inputs give equal changes.
    pub basis: String,
    /// All deletions, up to 1000, then changes, up to 20 in all.
    pub changes: Vec<PreviewedChange>,
    /// The number of further changes.
    pub more: usize,
    /// The number of deletions among all changes.
    pub deletes: usize,
    /// The reason why the changes are not known.
    pub failure: Option<String>,
}

impl Preview {
    /// A preview with a limited number of changes, deletions first.
    pub fn new(basis: String, changes: Vec<PreviewedChange>) -> Self {
        let (mut kept, mut others): (Vec<_>, Vec<_>) = changes
            .into_iter()
            .partition(|change| change.act == PreviewAction::Delete);
        let deletes = kept.len();
        kept.sort_by(|one, other| one.deletion_order().cmp(&other.deletion_order()));
        kept.truncate(MAX_DELETES);
        let most = MAX_CHANGES.saturating_sub(kept.len());
        let more = (deletes - kept.len()) + others.len().saturating_sub(most);
        others.truncate(most);
        kept.append(&mut others);
        Self {
            basis,
            changes: kept,
            more,
            deletes,
            failure: None,
        }
    }

    /// The preview of a primary whose changes are not known.
    pub fn failed(failure: String) -> Self {
        Self {
            failure: Some(failure),
            ..Self::default()
        }
    }
}

impl<R: Ord + Clone> Previews<R> {
    /// Keeps the changes of at most this many primaries.
    pub fn of_at_most(most: usize) -> Self {
        Self {
            known: BTreeMap::new(),
            most,
        }
    }

    /// The preview of a primary, if one is stored.
    pub fn get(&self, primary: &R) -> Option<&Preview> {
        self.known.get(primary)
    }

    /// Stores the preview of a primary. Beyond the limit, the first primaries in order are kept.
    pub fn put(&mut self, primary: R, preview: Preview) {
        self.known.insert(primary, preview);
        if self.known.len() > self.most {
            self.known.pop_last();
        }
    }

    /// Removes the preview of a primary that is deleted, or whose plugin acts.
    pub fn forget(&mut self, primary: &R) {
        self.known.remove(primary);
    }

    /// All previews, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&R, &Preview)> {
        self.known.iter()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::contribution::{Path, PathElement};

    fn update(kind: &str, live: &Value, desired: &Value, applied: Option<&Value>) -> PreviewedChange {
        let applied: Option<FieldSet> = applied.map(|set| serde_json::from_value(set.clone()).unwrap());
        let kind = Kind::new("", "v1", kind);
        PreviewedChange::update("it".into(), &kind, live, desired.as_object().unwrap(), applied.as_ref())
    }

    fn field(path: &str, from: Option<&str>, to: Option<&str>) -> FieldChange {
        FieldChange {
            path: path.into(),
            from: from.map(str::to_owned),
            to: to.map(str::to_owned),
        }
    }

    #[test]
    fn an_update_does_not_show_the_hosts_note() {
        let noted =
            |digest: &str, size: u8| json!({"metadata": {"annotations": {DESIRED_ANNOTATION: digest}}, "size": size});
        let shown = update("Thing", &noted("a", 1), &noted("b", 2), None);
        assert_eq!(shown.fields, [field(".size", Some("1"), Some("2"))]);
    }

    #[test]
    fn an_update_shows_what_differs_and_what_goes() {
        let live = json!({"spec": {"replicas": 1, "paused": true, "ports": [{"port": 80, "protocol": "TCP"}]},
                          "metadata": {"labels": {}}});
        let desired = json!({"spec": {"replicas": 2, "ports": [{"port": 80}]}, "metadata": {"labels": {"a/b": "c"}}});
        let applied = json!({"f:spec": {"f:replicas": {}, "f:paused": {}}});
        assert_eq!(
            update("Thing", &live, &desired, Some(&applied)).fields,
            [
                field(r#".metadata.labels["a/b"]"#, None, Some(r#""c""#)),
                field(".spec.replicas", Some("1"), Some("2")),
                field(".spec.paused", Some("true"), None),
            ]
        );
    }

    #[test]
    fn a_field_that_goes_shows_what_it_was() {
        let live = json!({"data": {"a": "1", "b": "2", "of-others": "3"}, "spec": {"ports": [
            {"port": 80, "name": "http"}, {"port": 81, "name": "more"}], "set": ["x", "y"]}});
        let applied = json!({
            "f:data": {"f:a": {}, "f:b": {}},
            "f:spec": {
                "f:ports": {"k:{\"port\":80}": {".": {}, "f:port": {}}, "k:{\"port\":81}": {".": {}, "f:port": {}, "f:name": {}}},
                "f:set": {"v:\"x\"": {}, "v:\"y\"": {}},
                "f:absent": {},
            },
        });
        let desired = json!({"spec": {"ports": [{"port": 80}], "set": ["x"]}});
        let change = update("Thing", &live, &desired, Some(&applied));
        let gone: Vec<_> = change.fields.iter().filter(|field| field.to.is_none()).collect();
        let shown: Vec<_> = gone.iter().map(|it| (&*it.path, it.from.as_deref())).collect();
        assert_eq!(
            shown,
            [
                (".data", Some(r#"{"a":"1","b":"2"}"#)),
                (".spec.absent", None),
                (r#".spec.ports[{"port":81}]"#, Some(r#"{"name":"more","port":81}"#)),
                (r#".spec.set["y"]"#, Some(r#""y""#)),
            ],
            "without what others have in it"
        );
        assert!(
            change
                .to_string()
                .contains(r#".data: {"a":"1","b":"2"} becomes nothing"#),
            "{change}"
        );
        let secret = update("Secret", &live, &json!({}), Some(&json!({"f:data": {"f:a": {}}})));
        assert_eq!(secret.fields, [field(".data", Some("***"), None)]);
    }

    #[test]
    fn a_change_shows_what_it_comes_after() {
        let change = PreviewedChange {
            after: vec!["Job a/migrate".into(), "Secret a/key".into()],
            ..update("Thing", &json!({"size": 1}), &json!({"size": 2}), None)
        };
        assert_eq!(
            change.to_string(),
            "Update it, after Job a/migrate, Secret a/key; .size: 1 becomes 2"
        );
    }

    #[test]
    fn values_of_secrets_are_not_shown() {
        let change = update(
            "Secret",
            &json!({"data": {"key": "b2xk"}, "type": "a"}),
            &json!({"data": {"key": "bmV3"}, "type": "b"}),
            None,
        );
        assert_eq!(
            change.fields,
            [
                field(".data.key", Some("***"), Some("***")),
                field(".type", Some(r#""a""#), Some(r#""b""#)),
            ]
        );
        let whole = update("Secret", &json!({}), &json!({"data": {"key": "bmV3"}}), None);
        assert_eq!(whole.fields, [field(".data", None, Some("***"))]);
    }

    #[test]
    fn a_contribution_preview_shows_what_is_new_and_masks_secrets() {
        let path = |name: &str| Path::default().to_field("data").to_field(name);
        let claim = Leaves::from([
            (path("a"), Leaf::Value(json!("MQ=="))),
            (path("b"), Leaf::Value(json!("Mg=="))),
            (path("c"), Leaf::Value(json!("Mw=="))),
        ]);
        let live = json!({"data": {"a": "MQ==", "b": "b2xk"}});
        let change = |kind: &str| {
            let kind = Kind::new("", "v1", kind);
            PreviewedChange::contribution("it".into(), &kind, &live, &claim)
        };
        assert_eq!(
            change("ConfigMap").unwrap().fields,
            [
                field(".data.b", Some(r#""b2xk""#), Some(r#""Mg==""#)),
                field(".data.c", None, Some(r#""Mw==""#)),
            ]
        );
        assert_eq!(
            change("Secret").unwrap().fields,
            [
                field(".data.b", Some("***"), Some("***")),
                field(".data.c", None, Some("***")),
            ]
        );
        let there = json!({"data": {"a": "MQ==", "b": "Mg==", "c": "Mw=="}});
        let kind = Kind::new("", "v1", "ConfigMap");
        assert_eq!(PreviewedChange::contribution("it".into(), &kind, &there, &claim), None);

        let port = Path::default()
            .to_field("spec")
            .to_field("ports")
            .to(PathElement::key([(&"port".to_owned(), &json!(80))]));
        let claim = Leaves::from([(port, Leaf::Present)]);
        let kind = Kind::new("", "v1", "Service");
        let there = json!({"spec": {"ports": [{"port": 81}, {"port": 80}]}});
        assert_eq!(PreviewedChange::contribution("it".into(), &kind, &there, &claim), None);
        let change = PreviewedChange::contribution("it".into(), &kind, &json!({"spec": {}}), &claim).unwrap();
        assert_eq!(change.fields, [field(".spec.ports[port=80]", None, Some("an item"))]);
    }

    #[test]
    fn deletions_come_first_and_those_of_data_before_others() {
        let whole = |act, object: &str| PreviewedChange::whole(act, object.to_owned());
        let deletes = [
            "Service a/b",
            "Secret a/z",
            "ConfigMap a/c",
            "PersistentVolumeClaim a/y",
            "Secret a/a",
        ];
        let mut changes = vec![whole(PreviewAction::Create, "Service a/a"); 30];
        changes.extend(deletes.map(|object| whole(PreviewAction::Delete, object)));
        let preview = Preview::new(String::new(), changes);
        let first: Vec<_> = preview.changes.iter().take(6).map(|it| &*it.object).collect();
        let expected = [
            "PersistentVolumeClaim a/y",
            "Secret a/a",
            "Secret a/z",
            "ConfigMap a/c",
            "Service a/b",
            "Service a/a",
        ];
        assert_eq!(first, expected);
        assert_eq!(
            (preview.deletes, preview.changes.len(), preview.more),
            (5, MAX_CHANGES, 15)
        );
        let many = vec![whole(PreviewAction::Delete, "Service a/a"); MAX_DELETES + 1];
        let preview = Preview::new(String::new(), many);
        assert_eq!(
            (preview.deletes, preview.changes.len(), preview.more),
            (MAX_DELETES + 1, MAX_DELETES, 1)
        );
    }

    #[test]
    fn everything_is_bounded() {
        let desired: Map<String, Value> = (0..50).map(|n| (format!("f{n}"), json!("x".repeat(1000)))).collect();
        let change = update("Thing", &json!({}), &Value::Object(desired), None);
        assert_eq!((change.fields.len(), change.more_fields), (MAX_FIELDS, 30));
        assert!(change.fields[0].to.as_ref().unwrap().len() <= MAX_VALUE);
        let changes = vec![PreviewedChange::whole(PreviewAction::Create, "it".into()); 30];
        let preview = Preview::new(String::new(), changes);
        assert_eq!((preview.changes.len(), preview.more), (MAX_CHANGES, 10));
        let mut previews = Previews::of_at_most(MAX_PRIMARIES);
        for primary in 0..MAX_PRIMARIES + 5 {
            previews.put(primary, preview.clone());
        }
        assert_eq!(previews.iter().count(), MAX_PRIMARIES);
    }
}
