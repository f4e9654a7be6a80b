//! Matches checked queries against objects, and selects the condition by which an index can narrow them.

use std::borrow::Cow;

use serde_json::Value;

use crate::kubernetes::key::Name;
use crate::kubernetes::path::FieldPath;
use crate::kubernetes::selector::Selector;

/// A query whose parts have been parsed and found to be declared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CheckedQuery {
    /// The namespace; none means every namespace.
    pub namespace: Option<String>,
    /// The label selector, including the declaration's; an empty one matches all.
    pub labels: Selector,
    /// Conditions on declared fields; all must hold.
    pub fields: Vec<(FieldPath, String)>,
    /// The names, from the declaration; empty means every name.
    pub names: Vec<String>,
    /// The highest number of results, the first by namespace and name.
    pub limit: Option<u32>,
    /// The last returned object, where the limit left others out: later objects are not part of the result.
    pub until: Option<Name>,
}

/// A condition for an index look-up: one of these values is at this path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// The path.
    pub path: FieldPath,
    /// The values.
    pub values: Vec<String>,
}

impl CheckedQuery {
    /// The most selective condition for an index, if there is one: a field's value, else a label's.
    pub fn anchor(&self) -> Option<Anchor> {
        if let Some((path, value)) = self.fields.first() {
            return Some(Anchor {
                path: path.clone(),
                values: vec![value.clone()],
            });
        }
        let (key, values) = self.labels.equalities().min_by_key(|(_, values)| values.len())?;
        Some(Anchor {
            path: FieldPath::label(key),
            values: values.to_vec(),
        })
    }

    /// The total size of its texts, in bytes.
    pub fn text_bytes(&self) -> usize {
        let Self {
            namespace,
            labels,
            fields,
            names,
            limit: _,
            until,
        } = self;
        let fields = fields.iter().map(|(path, value)| path.to_string().len() + value.len());
        let until = until.as_ref().map_or(0, |until| until.to_string().len());
        namespace.as_ref().map_or(0, String::len)
            + labels.to_string().len()
            + fields.sum::<usize>()
            + names.iter().map(String::len).sum::<usize>()
            + until
    }

    /// Reports whether an object of this name may match.
    pub fn is_within(&self, name: &Name) -> bool {
        self.namespace
            .as_deref()
            .is_none_or(|namespace| name.namespace.as_deref() == Some(namespace))
            && (self.names.is_empty() || self.names.iter().any(|it| **it == *name.name))
            && self.until.as_ref().is_none_or(|last| name <= last)
    }

    /// Reports whether the result depends on more than an object's name.
    pub fn looks_inside(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    /// Reports whether an object of this name and content matches, the limit apart.
    pub fn matches(&self, name: &Name, object: &Value) -> bool {
        let Self {
            namespace: _,
            labels,
            fields,
            names: _,
            limit: _,
            until: _,
        } = self;
        self.is_within(name)
            && labels.matches(|key| object["metadata"]["labels"].get(key).and_then(Value::as_str))
            && fields
                .iter()
                .all(|(path, wanted)| values_at(path, object).any(|found| found == *wanted))
    }
}

/// The scalars at a path, as a query spells them.
pub fn values_at<'a>(path: &FieldPath, object: &'a Value) -> impl Iterator<Item = Cow<'a, str>> {
    path.values(object).into_iter().filter_map(|value| match value {
        Value::String(text) => Some(Cow::Borrowed(text.as_str())),
        Value::Bool(value) => Some(Cow::Borrowed(if *value { "true" } else { "false" })),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn query(labels: &str, fields: &[(&str, &str)]) -> CheckedQuery {
        CheckedQuery {
            labels: Selector::parse(labels).unwrap(),
            fields: fields
                .iter()
                .map(|(path, value)| (FieldPath::parse(path).unwrap(), (*value).to_owned()))
                .collect(),
            ..CheckedQuery::default()
        }
    }

    #[test]
    fn all_conditions_must_hold() {
        let object =
            json!({"metadata": {"labels": {"app": "web"}}, "spec": {"ports": [{"port": 80}, {"port": 81}], "x": true}});
        let name = Name::new(Some("a"), "n");
        for (yes, query) in [
            (true, query("", &[])),
            (
                true,
                query("app=web", &[(".spec.ports[].port", "81"), (".spec.x", "true")]),
            ),
            (false, query("app=web", &[(".spec.ports[].port", "82")])),
            (false, query("app=db", &[(".spec.x", "true")])),
            (false, query("", &[(".spec.ports", "80")])),
        ] {
            assert_eq!(query.matches(&name, &object), yes, "{query:?}");
        }
        let elsewhere = CheckedQuery {
            namespace: Some("b".into()),
            ..CheckedQuery::default()
        };
        let others = CheckedQuery {
            names: vec!["m".into()],
            ..CheckedQuery::default()
        };
        assert!(!elsewhere.matches(&name, &object) && !others.matches(&name, &object));
        for (last, within) in [("m", false), ("n", true), ("o", true)] {
            let limited = CheckedQuery {
                until: Some(Name::new(Some("a"), last)),
                ..CheckedQuery::default()
            };
            assert_eq!(limited.matches(&name, &object), within, "{last}");
        }
    }

    #[test]
    fn a_query_is_looked_up_by_field_or_by_its_rarest_label() {
        let by_field = query("app=web", &[(".spec.x", "1")]).anchor().unwrap();
        assert_eq!(
            (by_field.path.to_string(), by_field.values),
            (".spec.x".into(), vec!["1".into()])
        );
        let by_label = query("tier in (a,b),x.dev/app=web,!old", &[]).anchor().unwrap();
        assert_eq!(by_label.path.to_string(), ".metadata.labels[\"x.dev/app\"]");
        assert_eq!(by_label.values, ["web"]);
        assert_eq!(query("app,!old,tier!=a", &[]).anchor(), None);
    }
}
