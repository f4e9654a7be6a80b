//! Object members that an apply empties, so that the API server would leave null in place of `{}`.
//!
//! Server-side apply removes from the live object what a manager applied before and no longer applies. If nothing of an
//! object is left then, it leaves null, although the manager applies `{}` there
//! (<https://github.com/kubernetes/kubernetes/issues/135841>): the schema of a custom resource then refuses the apply,
//! and a nullable member becomes null. So a patch first makes such a member `{}`; it removes only fields that the apply
//! would remove, too.

use serde_json::{Map, Value, json};

use crate::kubernetes::fields::{FieldSet, FieldSetElement, ItemIndex, Likeness};

/// Members that a patch has to empty before an apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emptied {
    /// Objects.
    Objects,
    /// Lists that are merged item by item, too: of these the apply leaves nothing, which a schema may require.
    ObjectsAndLists,
}

/// The entry of `metadata.managedFields` that an apply has.
#[derive(Clone, Copy, Debug)]
pub struct ApplyManager<'a> {
    /// The field manager.
    pub name: &'a str,
    /// The subresource that is applied.
    pub subresource: Option<&'a str>,
    /// The apiVersion that is applied.
    pub api_version: &'a str,
}

impl Emptied {
    /// Reports whether a body has an empty member where our entry has fields.
    pub fn is_in(self, body: &Map<String, Value>, ours: &FieldSet) -> bool {
        !self.operations_of(body, None, ours, &[]).is_empty()
    }

    /// The operations of a JSON patch that empties these members in a live object. A member that also has fields of
    /// others is left out: the apply leaves those fields in place.
    pub fn operations(
        self,
        body: &Map<String, Value>,
        live: &Value,
        ours: &FieldSet,
        others: &[FieldSet],
    ) -> Vec<Value> {
        let others: Vec<&FieldSet> = others.iter().collect();
        self.operations_of(body, Some(live), ours, &others)
    }

    /// The same, with the field sets of an object's `metadata.managedFields`.
    pub fn operations_by(
        self,
        manager: &ApplyManager<'_>,
        body: &Map<String, Value>,
        live: &Value,
        entries: &[Value],
    ) -> Vec<Value> {
        let is_ours = |entry: &&Value| {
            entry["manager"] == manager.name
                && entry["operation"] == "Apply"
                && entry["subresource"].as_str() == manager.subresource
                && entry["apiVersion"] == manager.api_version
        };
        let fields = |entry: &Value| serde_json::from_value::<FieldSet>(entry["fieldsV1"].clone()).ok();
        let ours = entries.iter().find(is_ours).and_then(fields);
        let others = entries.iter().filter(|entry| !is_ours(entry)).filter_map(fields);
        let others: Vec<_> = others.collect();
        ours.map_or_else(Vec::new, |ours| self.operations(body, live, &ours, &others))
    }

    fn operations_of(
        self,
        body: &Map<String, Value>,
        live: Option<&Value>,
        ours: &FieldSet,
        others: &[&FieldSet],
    ) -> Vec<Value> {
        let mut walk = Walk {
            emptied: self,
            operations: Vec::new(),
        };
        // Metadata has no members that are null and not empty.
        for (name, value) in body.iter().filter(|(name, _)| *name != "metadata") {
            walk.member(name, value, Place { live, ours, others }, "");
        }
        walk.operations
    }
}

/// A position in the live object, if one is given, and in the field sets.
#[derive(Clone, Copy)]
struct Place<'a> {
    live: Option<&'a Value>,
    ours: &'a FieldSet,
    others: &'a [&'a FieldSet],
}

impl Place<'_> {
    /// Reports whether the apply would remove fields of ours below, and nothing of others would stay.
    fn is_ours_alone(&self) -> bool {
        let Some(live) = self.live else {
            return !self.ours.children().is_empty();
        };
        let has_parts = match live {
            Value::Object(members) => !members.is_empty(),
            Value::Array(items) => !items.is_empty(),
            _ => false,
        };
        has_parts && self.others.iter().all(|it| it.children().is_empty()) && is_covered(live, self.ours)
    }
}

/// Reports whether each member and item of a live value is in a field set.
fn is_covered(live: &Value, set: &FieldSet) -> bool {
    match live {
        Value::Object(members) => members.iter().all(|(name, value)| {
            let below = set.below(name);
            below.is_some_and(|below| below.children().is_empty() || is_covered(value, below))
        }),
        Value::Array(_) => set.names_of_items(live).iter().all(Option::is_some),
        _ => true,
    }
}

struct Walk {
    emptied: Emptied,
    operations: Vec<Value>,
}

impl Walk {
    fn member(&mut self, name: &str, value: &Value, place: Place<'_>, pointer: &str) {
        let Some(ours) = place.ours.below(name) else { return };
        let others: Vec<_> = place.others.iter().filter_map(|it| it.below(name)).collect();
        let below = Place {
            live: place.live.map(|live| &live[name]),
            ours,
            others: &others,
        };
        let name = name.replace('~', "~0").replace('/', "~1");
        self.value(value, below, &format!("{pointer}/{name}"));
    }

    fn value(&mut self, value: &Value, place: Place<'_>, pointer: &str) {
        match value {
            Value::Object(members) if members.is_empty() => self.empty(value, place, pointer),
            Value::Array(items) if items.is_empty() && self.emptied == Emptied::ObjectsAndLists => {
                self.empty(value, place, pointer);
            }
            Value::Object(members) => {
                for (name, value) in members {
                    self.member(name, value, place, pointer);
                }
            }
            Value::Array(_) => self.items(value, place, pointer),
            _ => {}
        }
    }

    fn items(&mut self, list: &Value, place: Place<'_>, pointer: &str) {
        let mut live = ItemIndex::new(place.live);
        let held: Vec<_> = place.others.iter().map(|it| it.by_item()).collect();
        let items = list.as_array().into_iter().flatten();
        for (item, position) in items.zip(place.ours.positions(Some(list))) {
            let Some((element @ FieldSetElement::Key(_), ours)) = position.map(|it| &place.ours.children()[it]) else {
                continue;
            };
            let text = element.text();
            let others: Vec<_> = held.iter().filter_map(|it| it.get(&text).copied()).collect();
            let found = live.find(element, Likeness::Exact);
            let below = Place {
                live: place.live.map(|live| found.map_or(&Value::Null, |index| &live[index])),
                ours,
                others: &others,
            };
            self.value(item, below, &format!("{pointer}/{}", found.unwrap_or_default()));
        }
    }

    fn empty(&mut self, value: &Value, place: Place<'_>, pointer: &str) {
        if place.is_ours_alone() {
            self.operations
                .push(json!({"op": "replace", "path": pointer, "value": value}));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(fields: &Value) -> FieldSet {
        serde_json::from_value(fields.clone()).unwrap()
    }

    /// The places that are emptied before an apply of this spec.
    fn emptied(which: Emptied, spec: &Value, live: &Value, ours: &Value, others: &[Value]) -> Vec<String> {
        let body = json!({"metadata": {"labels": {}}, "spec": spec});
        let body = body.as_object().unwrap();
        let ours = set(&json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": ours}));
        let others: Vec<_> = others.iter().map(|fields| set(&json!({"f:spec": fields}))).collect();
        let operations = which.operations(body, &json!({"spec": live}), &ours, &others);
        let places: Vec<_> = operations
            .iter()
            .map(|it| it["path"].as_str().unwrap().to_owned())
            .collect();
        assert!(places.is_empty() || which.is_in(body, &ours));
        places
    }

    #[test]
    fn a_member_is_emptied_where_all_that_stands_in_it_is_ours() {
        let of = |spec: Value, live: Value, ours: Value| emptied(Emptied::Objects, &spec, &live, &ours, &[]);
        let (empty, live, ours) = (json!({"a": {}}), json!({"a": {"b": 1}}), json!({"f:a": {"f:b": {}}}));
        assert_eq!(of(empty.clone(), live.clone(), ours.clone()), ["/spec/a"]);
        assert!(of(json!({"a": {"b": 2}}), live.clone(), ours.clone()).is_empty());
        assert!(
            of(empty.clone(), json!({"a": {}}), json!({"f:a": {}})).is_empty(),
            "it is empty already"
        );
        assert!(
            of(empty.clone(), json!({"a": {"b": 1, "mode": "x"}}), ours.clone()).is_empty(),
            "a default stays"
        );
        let deep = json!({"f:a": {"f:b": {"f:c": {}, "f:d": {"k:{\"n\":\"x\"}": {".": {}, "f:n": {}}}}}});
        let live = json!({"a": {"b": {"c": [1, 2], "d": [{"n": "x", "filled": 1}]}}});
        assert_eq!(of(empty, live.clone(), deep.clone()), ["/spec/a"]);
        assert_eq!(of(json!({"a": {"b": {}}}), live, deep), ["/spec/a/b"]);
        assert_eq!(
            of(json!({}), json!({"b": 1}), json!({"f:b": {}})),
            ["/spec"],
            "the spec itself"
        );
    }

    #[test]
    fn a_member_of_which_others_hold_a_part_is_left_to_the_apply() {
        let (empty, live, ours) = (
            json!({"a": {}}),
            json!({"a": {"b": 1, "c": 2}}),
            json!({"f:a": {"f:b": {}}}),
        );
        let theirs = json!({"f:a": {"f:c": {}}});
        assert!(emptied(Emptied::Objects, &empty, &live, &ours, &[theirs]).is_empty());
        let shared = json!({"f:a": {"f:b": {}}});
        let live = json!({"a": {"b": 1}});
        assert!(emptied(Emptied::Objects, &empty, &live, &ours, &[shared]).is_empty());
        assert_eq!(
            emptied(Emptied::Objects, &empty, &live, &ours, &[json!({"f:a": {}})]),
            ["/spec/a"]
        );
    }

    #[test]
    fn members_of_list_items_are_found_at_their_live_position() {
        let live = json!({"l/t~": [{"n": "theirs"}, {"n": "x", "cfg": {"v": 1}}]});
        let ours = json!({"f:l/t~": {"k:{\"n\":\"x\"}": {".": {}, "f:n": {}, "f:cfg": {"f:v": {}}}}});
        let spec = json!({"l/t~": [{"n": "x", "cfg": {}}]});
        assert_eq!(
            emptied(Emptied::Objects, &spec, &live, &ours, &[]),
            ["/spec/l~1t~0/1/cfg"]
        );
        let gone = json!({"l/t~": [{"n": "theirs"}]});
        assert!(emptied(Emptied::Objects, &spec, &gone, &ours, &[]).is_empty());
    }

    #[test]
    fn a_list_is_emptied_only_on_request() {
        let (spec, live) = (json!({"l": []}), json!({"l": ["x"]}));
        let ours = json!({"f:l": {"v:\"x\"": {}}});
        assert!(emptied(Emptied::Objects, &spec, &live, &ours, &[]).is_empty());
        assert_eq!(emptied(Emptied::ObjectsAndLists, &spec, &live, &ours, &[]), ["/spec/l"]);
        assert!(
            emptied(Emptied::ObjectsAndLists, &spec, &live, &json!({"f:l": {}}), &[]).is_empty(),
            "an atomic list"
        );
    }
}
