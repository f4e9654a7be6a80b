//! Objects for the store's tests, and look-ups of them.

use pilothouse_core::kubernetes::path::{FieldPath, Projection};
use pilothouse_core::kubernetes::selector::Selector;
use pilothouse_core::reads::query::CheckedQuery;
use serde_json::value::RawValue;

use super::*;
use crate::cache::decoding::NoDecoding;

pub fn kind() -> Arc<Kind> {
    Arc::new(Kind::new("", "v1", "ConfigMap"))
}

pub fn codec(paths: &[&str]) -> Arc<ObjectCodec> {
    let paths: Vec<_> = paths.iter().map(|path| FieldPath::parse(path).unwrap()).collect();
    Arc::new(ObjectCodec::new(kind(), Projection::new(&paths)))
}

pub fn raw(namespace: &str, name: &str, uid: &str, version: &str, rest: &str) -> Box<RawValue> {
    RawValue::from_string(format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{version}"{rest}}}"#
    ))
    .unwrap()
}

pub fn object(namespace: &str, name: &str, uid: &str, version: &str, owner: Option<&str>) -> CachedObject {
    let owners = owner.map_or(String::new(), |uid| {
        format!(r#","ownerReferences":[{{"apiVersion":"v1","kind":"X","name":"x","uid":"{uid}","controller":true}}]"#)
    });
    codec(&[])
        .read(&raw(namespace, name, uid, version, &format!("{owners}}}")))
        .unwrap()
}

pub fn opened(store: &mut Store) -> WatchSource {
    store.open(codec(&[]), Reach::all(), true).remove(0)
}

pub fn names<'a>(objects: impl Iterator<Item = &'a Arc<CachedObject>>) -> Vec<String> {
    objects.map(|object| object.name.to_string()).collect()
}

pub fn config(name: &str, version: &str, value: &str) -> Box<RawValue> {
    let rest = format!(r#","labels":{{"tier":"{value}"}}}},"data":{{"key":"{value}"}}"#);
    raw("a", name, name, version, &rest)
}

pub fn by(labels: &str, field: Option<&str>) -> CheckedQuery {
    let key = FieldPath::parse(".data.key").unwrap();
    CheckedQuery {
        labels: Selector::parse(labels).unwrap(),
        fields: field.map(|value| (key, value.to_owned())).into_iter().collect(),
        ..CheckedQuery::default()
    }
}

pub fn found(store: &Store, query: &CheckedQuery) -> Vec<String> {
    names(store.candidates(&kind(), query).found(query))
}

/// Takes in an object as the host does: its values are read before.
pub fn put(store: &mut Store, source: &WatchSource, object: CachedObject) -> Vec<ObjectChange> {
    let object = Arc::new(object);
    let paths = store.paths_to_index(&source.kind, &object);
    let values = match &paths[..] {
        [] => IndexValues::default(),
        _ => IndexValues::of(&object.value(), paths),
    };
    let _guard = NoDecoding::begin();
    store.upsert(source, object, &values)
}
