//! Owns the cache's contents: the objects of each watched kind, and who controls whom.
//!
//! A relist updates in place: what is unchanged stays as it is, and what is gone is reported when the list is complete.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use pilothouse_core::{Kind, Name};

use crate::object::Stored;

/// What happened to one object. An object that was deleted and made anew counts as two changes.
#[derive(Clone, Debug)]
pub struct Change {
    /// The object's kind.
    pub kind: Arc<Kind>,
    /// As it was.
    pub old: Option<Arc<Stored>>,
    /// As it is.
    pub new: Option<Arc<Stored>>,
}

impl Change {
    /// The object's place.
    pub fn name(&self) -> &Name {
        let object = self.new.as_ref().or(self.old.as_ref());
        &object.expect("a change has an object before or after it").name
    }
}

#[derive(Debug, Default)]
struct Shelf {
    objects: BTreeMap<Name, Arc<Stored>>,
    children: HashMap<Arc<str>, BTreeSet<Name>>,
    synced: bool,
    /// While a list is coming in: what it has not confirmed yet.
    unconfirmed: Option<BTreeSet<Name>>,
    changes: u64,
}

/// The objects of all watched kinds.
#[derive(Debug, Default)]
pub struct Store {
    shelves: HashMap<Arc<Kind>, Shelf>,
}

impl Store {
    /// Makes room for a kind; it is empty and not synced.
    pub fn add_kind(&mut self, kind: Arc<Kind>) {
        self.shelves.entry(kind).or_default();
    }

    /// Whether the whole of a kind has been listed once.
    pub fn is_synced(&self, kind: &Kind) -> bool {
        self.shelves.get(kind).is_some_and(|shelf| shelf.synced)
    }

    /// How many changes a kind has seen; moves with each of them.
    pub fn changes(&self, kind: &Kind) -> u64 {
        self.shelves.get(kind).map_or(0, |shelf| shelf.changes)
    }

    /// One object.
    pub fn get(&self, kind: &Kind, name: &Name) -> Option<&Arc<Stored>> {
        self.shelves.get(kind)?.objects.get(name)
    }

    /// The objects of a kind by namespace and name, of one namespace or of all.
    pub fn iter<'a>(&'a self, kind: &Kind, namespace: Option<&str>) -> impl Iterator<Item = &'a Arc<Stored>> + use<'a> {
        let shelf = self.shelves.get(kind);
        let from = namespace.map(|namespace| Name::new(Some(namespace), ""));
        let objects = shelf.map(|shelf| match &from {
            Some(from) => shelf.objects.range(from.clone()..),
            None => shelf.objects.range::<Name, _>(..),
        });
        objects
            .into_iter()
            .flatten()
            .map(|(_, object)| object)
            .take_while(move |object| from.as_ref().is_none_or(|from| object.name.namespace == from.namespace))
    }

    /// The objects of a kind whose controller has this uid.
    pub fn children<'a>(&'a self, kind: &Kind, controller: &str) -> impl Iterator<Item = &'a Arc<Stored>> + use<'a> {
        let shelf = self.shelves.get(kind);
        let names = shelf.and_then(|shelf| shelf.children.get(controller));
        names
            .into_iter()
            .flatten()
            .filter_map(move |name| shelf?.objects.get(name))
    }

    /// How many objects of a kind there are.
    pub fn len(&self, kind: &Kind) -> usize {
        self.shelves.get(kind).map_or(0, |shelf| shelf.objects.len())
    }

    /// A list of the kind begins.
    pub fn begin_list(&mut self, kind: &Arc<Kind>) {
        let shelf = self.shelves.entry(kind.clone()).or_default();
        shelf.unconfirmed = Some(shelf.objects.keys().cloned().collect());
    }

    /// An object was listed, added or modified. Nothing is returned for one that is known in this version.
    pub fn upsert(&mut self, kind: &Arc<Kind>, object: Stored) -> Vec<Change> {
        let shelf = self.shelves.entry(kind.clone()).or_default();
        if let Some(unconfirmed) = &mut shelf.unconfirmed {
            unconfirmed.remove(&object.name);
        }
        let old = shelf.objects.get(&object.name).cloned();
        if old
            .as_ref()
            .is_some_and(|old| old.resource_version == object.resource_version && old.uid == object.uid)
        {
            return Vec::new();
        }
        let object = Arc::new(object);
        shelf.changes += 1;
        if let Some(old) = &old {
            shelf.forget_controller(old);
        }
        if let Some(controller) = &object.controller {
            shelf
                .children
                .entry(controller.uid.clone())
                .or_default()
                .insert(object.name.clone());
        }
        shelf.objects.insert(object.name.clone(), object.clone());
        let kind = kind.clone();
        match old {
            Some(old) if old.uid != object.uid => vec![
                Change {
                    kind: kind.clone(),
                    old: Some(old),
                    new: None,
                },
                Change {
                    kind,
                    old: None,
                    new: Some(object),
                },
            ],
            old => vec![Change {
                kind,
                old,
                new: Some(object),
            }],
        }
    }

    /// An object is gone.
    pub fn remove(&mut self, kind: &Arc<Kind>, name: &Name) -> Option<Change> {
        let shelf = self.shelves.get_mut(kind)?;
        if let Some(unconfirmed) = &mut shelf.unconfirmed {
            unconfirmed.remove(name);
        }
        let old = shelf.objects.remove(name)?;
        shelf.changes += 1;
        shelf.forget_controller(&old);
        Some(Change {
            kind: kind.clone(),
            old: Some(old),
            new: None,
        })
    }

    /// The list is complete: what it did not confirm is gone, and the kind is synced.
    pub fn end_list(&mut self, kind: &Arc<Kind>) -> Vec<Change> {
        let shelf = self.shelves.entry(kind.clone()).or_default();
        shelf.synced = true;
        let gone = shelf.unconfirmed.take().unwrap_or_default();
        gone.iter().filter_map(|name| self.remove(kind, name)).collect()
    }
}

impl Shelf {
    fn forget_controller(&mut self, object: &Stored) {
        let Some(controller) = &object.controller else { return };
        if let Some(names) = self.children.get_mut(&controller.uid) {
            names.remove(&object.name);
            if names.is_empty() {
                self.children.remove(&controller.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pilothouse_core::path::Projection;
    use serde_json::value::RawValue;

    use super::*;

    fn kind() -> Arc<Kind> {
        Arc::new(Kind::new("", "v1", "ConfigMap"))
    }

    fn object(namespace: &str, name: &str, uid: &str, version: &str, owner: Option<&str>) -> Stored {
        let owners = owner.map_or(String::new(), |uid| {
            format!(
                r#","ownerReferences":[{{"apiVersion":"v1","kind":"X","name":"x","uid":"{uid}","controller":true}}]"#
            )
        });
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{version}"{owners}}}}}"#
        );
        Stored::read(&RawValue::from_string(text).unwrap(), &kind(), &Projection::default()).unwrap()
    }

    fn names<'a>(objects: impl Iterator<Item = &'a Arc<Stored>>) -> Vec<String> {
        objects.map(|object| object.name.to_string()).collect()
    }

    #[test]
    fn objects_are_found_by_namespace_and_by_controller() {
        let mut store = Store::default();
        for (namespace, name, owner) in [
            ("a", "x", Some("o")),
            ("a", "y", None),
            ("ab", "z", Some("o")),
            ("b", "x", None),
        ] {
            store.upsert(
                &kind(),
                object(namespace, name, &format!("{namespace}{name}"), "1", owner),
            );
        }
        assert_eq!(names(store.iter(&kind(), Some("a"))), ["a/x", "a/y"]);
        assert_eq!(names(store.iter(&kind(), None)), ["a/x", "a/y", "ab/z", "b/x"]);
        assert_eq!(names(store.children(&kind(), "o")), ["a/x", "ab/z"]);
        store.upsert(&kind(), object("a", "x", "ax", "2", None));
        assert_eq!(names(store.children(&kind(), "o")), ["ab/z"]);
        store.remove(&kind(), &Name::new(Some("ab"), "z"));
        assert_eq!(names(store.children(&kind(), "o")), Vec::<String>::new());
    }

    #[test]
    fn a_relist_reports_only_what_differs_and_what_is_gone() {
        let mut store = Store::default();
        let kind = kind();
        store.begin_list(&kind);
        store.upsert(&kind, object("a", "same", "1", "1", None));
        store.upsert(&kind, object("a", "changed", "2", "1", None));
        store.upsert(&kind, object("a", "gone", "3", "1", None));
        assert!(!store.is_synced(&kind));
        assert!(store.end_list(&kind).is_empty());
        assert!(store.is_synced(&kind));

        store.begin_list(&kind);
        assert!(store.upsert(&kind, object("a", "same", "1", "1", None)).is_empty());
        assert_eq!(store.upsert(&kind, object("a", "changed", "2", "5", None)).len(), 1);
        assert!(
            store.is_synced(&kind),
            "what is known stays usable while a list comes in"
        );
        let gone = store.end_list(&kind);
        assert_eq!(gone.len(), 1);
        assert_eq!(gone[0].name().to_string(), "a/gone");
    }

    #[test]
    fn an_object_made_anew_under_its_name_is_two_changes() {
        let mut store = Store::default();
        store.upsert(&kind(), object("a", "x", "1", "1", None));
        let changes = store.upsert(&kind(), object("a", "x", "2", "9", None));
        assert_eq!(changes.len(), 2);
        assert!(changes[0].new.is_none() && changes[1].old.is_none());
    }

    #[test]
    fn an_object_is_not_swept_that_the_watch_brought_during_the_list() {
        let mut store = Store::default();
        let kind = kind();
        store.upsert(&kind, object("a", "x", "1", "1", None));
        store.begin_list(&kind);
        store.remove(&kind, &Name::new(Some("a"), "x"));
        store.upsert(&kind, object("a", "x", "2", "4", None));
        assert!(store.end_list(&kind).is_empty());
    }
}
