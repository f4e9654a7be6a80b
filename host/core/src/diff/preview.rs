//! Owns what a plugin in preview would do, as data: which objects it would create, change and delete, and which fields
//! with which values. Everything is bounded, and values of Secrets are not shown.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::contribution::{IndexedObject, Leaf, Leaves};
use crate::kubernetes::fields::FieldSet;
use crate::kubernetes::key::Kind;
use crate::text::printable::shorten;

/// The most changes of one primary that are kept.
const MAX_CHANGES: usize = 20;

/// The most fields of one change that are kept.
const MAX_FIELDS: usize = 20;

/// The most that is shown of a path, in bytes.
const MAX_PATH: usize = 512;

/// The longest value that is shown, in bytes.
const MAX_VALUE: usize = 200;

/// The most primaries whose changes are kept, over all plugins, unless the host is told otherwise.
pub const MAX_PRIMARIES: usize = 1000;

/// What is shown of a value that nobody should see.
const MASKED: &str = "***";

/// What would be done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PreviewAction {
    /// It would be made.
    Create,
    /// Its fields would be applied.
    Update,
    /// Fields would be put into an object that is somebody else's.
    Contribute,
    /// It would be deleted.
    Delete,
}

/// One field that would change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldChange {
    /// Where, such as `.spec.ports[0].port`.
    pub path: String,
    /// The value now, as JSON; none where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The value then, as JSON; none where it would go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// One object that would change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PreviewedChange {
    /// What would be done.
    pub act: PreviewAction,
    /// Which object: `Deployment default/web`.
    pub object: String,
    /// The fields of an update or a contribution, the first 20.
    pub fields: Vec<FieldChange>,
    /// How many more fields there are.
    pub more_fields: usize,
    /// A digest of all that is wanted of the object, masked and shortened values included: two versions of a plugin for which
    /// it is the same want the same.
    #[serde(skip)]
    pub digest: String,
}

/// For people, on one line.
impl fmt::Display for PreviewedChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            act,
            object,
            fields,
            more_fields,
            digest: _,
        } = self;
        write!(formatter, "{act:?} {object}")?;
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
    /// An object that would be made or deleted.
    pub fn whole(act: PreviewAction, object: String) -> Self {
        Self {
            act,
            object,
            fields: Vec::new(),
            more_fields: 0,
            digest: String::new(),
        }
    }

    /// The same with the digest of what is wanted.
    #[must_use]
    pub fn wanting(self, digest: String) -> Self {
        Self { digest, ..self }
    }

    /// An object that would be applied over what is live; `applied` is what was applied before.
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
        let gone = applied.map(|applied| applied.surplus(desired)).unwrap_or_default();
        fields.extend(gone.into_iter().map(|path| FieldChange {
            path,
            from: None,
            to: None,
        }));
        Self::of_fields(PreviewAction::Update, object, kind, fields)
    }

    /// What would be contributed to what is live; none where all of it is there.
    pub fn contribution(object: String, kind: &Kind, live: &Value, claim: &Leaves) -> Option<Self> {
        let mut live = IndexedObject::new(live);
        let mut fields = Vec::new();
        for (path, leaf) in claim {
            let from = live.value(path);
            let to = match leaf {
                Leaf::Value(wanted) if from != Some(wanted) => shown(wanted),
                // An item of a list: its key stands in the path.
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

/// What is desired and is not so. What the live object has besides does not matter.
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

/// What the plugins that are in preview would do, by primary.
#[derive(Debug)]
pub struct Previews<R> {
    known: BTreeMap<R, Preview>,
    most: usize,
}

/// What one primary would have done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preview {
    /// A digest of what the changes were made from: the same gives the same changes.
    pub basis: String,
    /// The first 20 changes.
    pub changes: Vec<PreviewedChange>,
    /// How many more there are.
    pub more: usize,
}

impl Preview {
    /// A preview with as many changes as are kept.
    pub fn new(basis: String, mut changes: Vec<PreviewedChange>) -> Self {
        let more = changes.len().saturating_sub(MAX_CHANGES);
        changes.truncate(MAX_CHANGES);
        Self { basis, changes, more }
    }
}

impl<R: Ord + Clone> Previews<R> {
    /// Keeps the changes of at most so many primaries.
    pub fn of_at_most(most: usize) -> Self {
        Self {
            known: BTreeMap::new(),
            most,
        }
    }

    /// What a primary would have done, as far as it is known.
    pub fn get(&self, primary: &R) -> Option<&Preview> {
        self.known.get(primary)
    }

    /// A primary would have this done. Of more primaries than are kept, the first in order are.
    pub fn put(&mut self, primary: R, preview: Preview) {
        self.known.insert(primary, preview);
        if self.known.len() > self.most {
            self.known.pop_last();
        }
    }

    /// A primary is gone, or its plugin acts.
    pub fn forget(&mut self, primary: &R) {
        self.known.remove(primary);
    }

    /// All of them in order.
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
                field(".spec.paused", None, None),
            ]
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
