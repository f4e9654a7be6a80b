//! Compares stored values with applied ones in the way of the server's types: a quantity, a time or base64 may have
//! another form, an empty value may be omitted, and items of a list that is held as a whole may have got defaults.
//!
//! managedFields record the owner of a field, but not that its value is the applied one: another party's mutating
//! webhook may have changed it within our own request, and any client may apply under our name.

mod normal;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use normal::{Context, normal};
use serde_json::{Map, Value};

use crate::kubernetes::fields::{FieldSet, FieldSetElement, Trail, step};
use crate::kubernetes::key::Kind;
use crate::text::printable::shorten;

/// The longest shown part of a value, in bytes.
const SHOWN_BYTES: usize = 64;

/// The highest number of reported differences of one object.
const MOST_DIFFERENCES: usize = 8;

/// A stored value that differs from the applied one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueDifference {
    /// The field.
    pub path: String,
    /// The applied value, masked where secret.
    pub applied: String,
    /// The stored value, masked where secret.
    pub stored: String,
}

/// A fingerprint of an object's values at the fields of a set, whatever the order of fields and the form of values.
pub fn fingerprint(set: &FieldSet, object: &Map<String, Value>, kind: &Kind) -> u64 {
    let mut sum = 0_u64;
    let mut each = |place: &Place<'_>, value: Option<&Value>, _: Option<&Value>| {
        let mut hasher = DefaultHasher::new();
        place.hash.hash(&mut hasher);
        let value = value.map_or(Value::Null, |value| normal(value, place.context));
        value.hash(&mut hasher);
        sum = sum.wrapping_add(hasher.finish());
    };
    for (name, below) in members(set) {
        walk(below, object.get(name), None, &Place::of(kind, name), &mut each);
    }
    sum
}

/// The first differences between an applied body and the stored object, at the fields of a set.
pub fn differences(set: &FieldSet, body: &Map<String, Value>, stored: &Value, kind: &Kind) -> Vec<ValueDifference> {
    let mut found = Vec::new();
    let mut each = |place: &Place<'_>, applied: Option<&Value>, stored: Option<&Value>| {
        if found.len() == MOST_DIFFERENCES {
            return;
        }
        let of = |value: Option<&Value>| value.map_or(Value::Null, |value| normal(value, place.context));
        let (before, after) = (of(applied), of(stored));
        if !is_covered(&before, &after, false) {
            let path = place.trail.path();
            let shown = |value: Option<&Value>| show(value, &path, kind);
            let (applied, stored) = (shown(applied), shown(stored));
            found.push(ValueDifference { path, applied, stored });
        }
    };
    for (name, below) in members(set) {
        walk(
            below,
            body.get(name),
            stored.get(name),
            &Place::of(kind, name),
            &mut each,
        );
    }
    found
}

fn members(set: &FieldSet) -> impl Iterator<Item = (&str, &FieldSet)> {
    set.children().iter().filter_map(|(element, below)| match element {
        FieldSetElement::Field(name) => Some((name.as_str(), below)),
        _ => None,
    })
}

/// The position of a walk.
struct Place<'a> {
    trail: Trail<'a>,
    /// The hash of the trail.
    hash: u64,
    context: Context,
}

impl<'a> Place<'a> {
    fn of(kind: &Kind, name: &'a str) -> Self {
        let trail = Trail::root(name);
        Self {
            hash: trail.hash_after(0),
            trail,
            context: Context::of(kind).below(name),
        }
    }

    fn below(&self, trail: Trail<'a>, context: Context) -> Self {
        let hash = trail.hash_after(self.hash);
        Self { trail, hash, context }
    }
}

/// Called with a field and the values of two objects there.
type Visit<'a> = dyn FnMut(&Place<'_>, Option<&Value>, Option<&Value>) + 'a;

/// Visits the leaves of a set with the values of one object, or two, there.
fn walk(set: &FieldSet, one: Option<&Value>, other: Option<&Value>, place: &Place<'_>, each: &mut Visit<'_>) {
    if set.children().is_empty() {
        each(place, one, other);
        return;
    }
    let (ours, theirs) = (items(set, one), items(set, other));
    for (index, (element, below)) in set.children().iter().enumerate() {
        step();
        let Place { trail, context, .. } = place;
        let FieldSetElement::Field(name) = element else {
            let text = element.text();
            let text = text.split_once(':').map_or(&*text, |(_, text)| text);
            let (first, second) = (ours[index], theirs[index]);
            let at = place.below(trail.item(text), *context);
            // Of an item without members of its own, and of one in a set, only its presence is ours.
            if below.children().is_empty() {
                let present = |value: Option<&Value>| value.map(|_| &Value::Bool(true));
                each(&at, present(first), present(second));
            } else {
                walk(below, first, second, &at, each);
            }
            continue;
        };
        let (first, second) = (
            one.and_then(|one| one.get(name)),
            other.and_then(|other| other.get(name)),
        );
        let at = place.below(trail.member(name), context.below(name));
        walk(below, first, second, &at, each);
    }
}

/// The items of a list by the children of a set; empty for a set of members, which come first.
fn items<'a>(set: &FieldSet, value: Option<&'a Value>) -> Vec<Option<&'a Value>> {
    if let Some((FieldSetElement::Field(_), _)) = set.children().last() {
        return Vec::new();
    }
    let mut found = vec![None; set.children().len()];
    let items = value.and_then(Value::as_array).into_iter().flatten();
    for (item, position) in items.zip(set.positions(value)) {
        if let Some(position) = position {
            found[position] = Some(item);
        }
    }
    found
}

/// Reports whether a stored value equals the applied one. An item of a list that is held as a whole may have more
/// members: the server sets defaults there.
fn is_covered(applied: &Value, stored: &Value, in_list: bool) -> bool {
    match (applied, stored) {
        (Value::Object(applied), Value::Object(stored)) => {
            let has =
                |(name, value): (&String, &Value)| is_covered(value, stored.get(name).unwrap_or(&Value::Null), in_list);
            applied.iter().all(has) && (in_list || applied.len() == stored.len())
        }
        (Value::Array(applied), Value::Array(stored)) => {
            applied.len() == stored.len()
                && applied
                    .iter()
                    .zip(stored)
                    .all(|(applied, stored)| is_covered(applied, stored, true))
        }
        // A member that holds nothing of its own: others may have added to it.
        (Value::Null, Value::Object(_)) => true,
        (Value::Null, _) if in_list => true,
        _ => applied == stored,
    }
}

/// A value as a condition may show it; values of Secrets are masked.
fn show(value: Option<&Value>, path: &str, kind: &Kind) -> String {
    let Some(value) = value else { return "absent".to_owned() };
    let is_secret = kind.group.is_empty() && kind.kind == "Secret";
    if is_secret && !path.starts_with(".metadata") && path != ".type" {
        return "(hidden)".to_owned();
    }
    let text = match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    shorten(text, SHOWN_BYTES)
}

/// Equality of values that the server may have stored in another form: 1.0 as 1, and a number beyond 64 bits with a sign as a
/// floating-point one.
pub(crate) fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => match (one.as_i64(), other.as_i64()) {
            (Some(one), Some(other)) => one == other,
            _ => one.as_f64() == other.as_f64(),
        },
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let has = |(name, value): (&String, &Value)| other.get(name).is_some_and(|other| is_equal(value, other));
            one.len() == other.len() && one.iter().all(has)
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kubernetes::fields::tests::wide;
    use crate::kubernetes::fields::{FEW_AND_MANY, assert_linear};

    fn kind(group: &str, kind: &str) -> Kind {
        Kind::new(group, "v1", kind)
    }

    fn map(value: &Value) -> &Map<String, Value> {
        value.as_object().unwrap()
    }

    /// Compares in both ways, which have to agree where nothing was filled in.
    fn differ(set: &Value, applied: &Value, stored: &Value, of: &Kind) -> Vec<String> {
        let set: FieldSet = serde_json::from_value(set.clone()).unwrap();
        let found = differences(&set, map(applied), stored, of);
        if !found.is_empty() {
            let alike = fingerprint(&set, map(applied), of) == fingerprint(&set, map(stored), of);
            assert!(!alike, "{applied} and {stored} have one fingerprint");
        }
        found
            .into_iter()
            .map(|it| format!("{}: {} -> {}", it.path, it.applied, it.stored))
            .collect()
    }

    fn same(set: &Value, applied: &Value, stored: &Value, of: &Kind) {
        assert_eq!(differ(set, applied, stored, of), Vec::<String>::new());
        let set: FieldSet = serde_json::from_value(set.clone()).unwrap();
        assert_eq!(
            fingerprint(&set, map(applied), of),
            fingerprint(&set, map(stored), of),
            "{applied} and {stored}"
        );
    }

    fn container(resources: &Value) -> Value {
        json!({"spec": {"containers": [{"name": "a", "image": "i:1", "resources": resources}]}})
    }

    fn container_set() -> Value {
        json!({"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:image": {},
            "f:resources": {"f:limits": {"f:cpu": {}, "f:memory": {}}}}}}})
    }

    #[test]
    fn another_value_in_a_field_of_ours_is_a_difference() {
        let limits = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        let applied = container(&limits);
        let mut stored = applied.clone();
        stored["spec"]["containers"][0]["image"] = json!("evil:9");
        stored["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .insert(0, json!({"name": "sidecar"}));
        assert_eq!(
            differ(&container_set(), &applied, &stored, &kind("", "Pod")),
            [r#".spec.containers[{"name":"a"}].image: i:1 -> evil:9"#]
        );
    }

    #[test]
    fn another_form_of_a_value_is_no_difference() {
        let set = container_set();
        for (applied, stored) in [
            (
                json!({"cpu": "1000m", "memory": "1024Mi"}),
                json!({"cpu": "1", "memory": "1Gi"}),
            ),
            (
                json!({"cpu": 0.5, "memory": "1e3"}),
                json!({"cpu": "500m", "memory": "1k"}),
            ),
            (
                json!({"cpu": 1, "memory": "0.5Gi"}),
                json!({"cpu": "1", "memory": "512Mi"}),
            ),
        ] {
            let limits = |limits: Value| container(&json!({"limits": limits}));
            same(&set, &limits(applied), &limits(stored), &kind("", "Pod"));
        }
        let leaf = json!({"f:data": {"f:a": {}}});
        let data = |value: Value| json!({"data": {"a": value}});
        same(&leaf, &data(json!("aGk=\n")), &data(json!("aGk=")), &kind("", "Secret"));
        same(&leaf, &data(json!(1.0)), &data(json!(1)), &kind("x.dev", "X"));
        same(&leaf, &data(json!({})), &json!({"data": {}}), &kind("x.dev", "X"));
        let time = |text: &str| data(json!(text));
        same(
            &leaf,
            &time("2026-01-01T01:00:00+01:00"),
            &time("2026-01-01T00:00:00Z"),
            &kind("coordination.k8s.io", "Lease"),
        );
    }

    #[test]
    fn a_text_that_only_looks_like_a_quantity_is_compared_as_text() {
        let leaf = json!({"f:data": {"f:a": {}}});
        let data = |value: &str| json!({"data": {"a": value}});
        assert_eq!(
            differ(&leaf, &data("1000m"), &data("1"), &kind("", "ConfigMap")),
            [".data.a: 1000m -> 1"]
        );
    }

    #[test]
    fn defaults_in_items_of_an_atomic_list_are_no_difference() {
        let set = json!({"f:spec": {"f:ingress": {}}});
        let ports = |port: Value| json!({"spec": {"ingress": [{"ports": [port]}]}});
        let policy = kind("networking.k8s.io", "NetworkPolicy");
        same(
            &set,
            &ports(json!({"port": 80})),
            &ports(json!({"port": 80, "protocol": "TCP"})),
            &policy,
        );
        let custom = kind("x.dev", "X");
        assert_eq!(
            differ(
                &set,
                &ports(json!({"port": 80})),
                &ports(json!({"port": 80, "weight": 1})),
                &custom
            ),
            Vec::<String>::new()
        );
        assert_eq!(
            differ(&set, &ports(json!({"port": 80})), &ports(json!({"port": 81})), &custom).len(),
            1
        );
    }

    #[test]
    fn member_added_to_an_atomic_map_is_a_difference() {
        let set = json!({"f:spec": {"f:selector": {}}});
        let selector = |value: Value| json!({"spec": {"selector": value}});
        let found = differ(
            &set,
            &selector(json!({"a": "b"})),
            &selector(json!({"a": "b", "evil": "x"})),
            &kind("", "Service"),
        );
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn an_owner_reference_that_was_stripped_is_a_difference() {
        let set = json!({"f:metadata": {"f:ownerReferences": {"k:{\"uid\":\"u\"}": {}}}});
        let applied = json!({"metadata": {"ownerReferences": [{"uid": "u", "name": "x"}]}});
        let found = differ(&set, &applied, &json!({"metadata": {}}), &kind("", "ConfigMap"));
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn a_surplus_field_in_our_entry_is_seen_by_the_fingerprint() {
        let set: FieldSet = serde_json::from_value(json!({"f:data": {"f:a": {}, "f:evil": {}}})).unwrap();
        let (applied, stored) = (json!({"data": {"a": "1"}}), json!({"data": {"a": "1", "evil": "2"}}));
        let of = kind("", "ConfigMap");
        assert_ne!(
            fingerprint(&set, map(&applied), &of),
            fingerprint(&set, map(&stored), &of)
        );
        assert_eq!(differences(&set, map(&applied), &stored, &of).len(), 1);
    }

    #[test]
    fn values_of_secrets_are_hidden() {
        let set = json!({"f:data": {"f:a": {}}});
        let data = |value: &str| json!({"data": {"a": value}});
        assert_eq!(
            differ(&set, &data("YQ=="), &data("Yg=="), &kind("", "Secret")),
            [".data.a: (hidden) -> (hidden)"]
        );
    }

    #[test]
    fn values_are_compared_in_a_few_steps_for_each_leaf() {
        let of = kind("x.dev", "X");
        let [few, many] = FEW_AND_MANY.map(wide);
        for (shape, both) in few.iter().zip(&many).enumerate() {
            assert_linear(&format!("shape {shape}"), both.into(), |(set, object)| {
                fingerprint(set, map(object), &of);
                assert_eq!(differences(set, map(object), object, &of), []);
                assert_eq!(differences(set, &Map::new(), object, &of).len(), MOST_DIFFERENCES);
            });
        }
    }
}
