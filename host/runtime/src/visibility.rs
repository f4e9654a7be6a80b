//! Decides for whom a change of an object is visible: which lanes see it, and which queries it enters, leaves or
//! changes within.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pilothouse_cluster::object::CachedObject;
use pilothouse_cluster::store::ObjectChange;
use pilothouse_core::dependencies::ChangedObject;
use pilothouse_core::depth::Bounded;
use pilothouse_core::path::FieldPath;
use pilothouse_core::query::{CheckedQuery, values_at};
use serde_json::Value;

use crate::lane::{Lane, metadata};
use crate::lanes::Lanes;
use crate::primary::{LaneId, PrimaryRef};
use crate::queue::Cause;

/// A change as readers see it; what is compared is computed once for all readers of a lane.
pub struct ChangeVisibility<'a> {
    lanes: &'a Lanes,
    change: &'a ObjectChange,
    differs: OnceCell<bool>,
    visible: RefCell<HashMap<LaneId, bool>>,
    status: OnceCell<bool>,
    values: OnceCell<[Option<Value>; 2]>,
}

impl<'a> ChangeVisibility<'a> {
    /// A change, before anybody has looked at it.
    pub fn new(lanes: &'a Lanes, change: &'a ObjectChange) -> Self {
        Self {
            lanes,
            change,
            differs: OnceCell::new(),
            visible: RefCell::default(),
            status: OnceCell::new(),
            values: OnceCell::new(),
        }
    }

    /// Whether anything differs that anybody may see.
    fn differs(&self) -> bool {
        *self.differs.get_or_init(|| match (&self.change.old, &self.change.new) {
            (Some(old), Some(new)) => !old.has_text_of(new),
            _ => true,
        })
    }

    /// Whether a primary differs for its lane: in what the plugin sees, or because it goes.
    pub fn primary_differs(&self, lane: &Lane) -> bool {
        match (&self.change.old, &self.change.new) {
            (Some(old), Some(new)) => {
                old.deleting != new.deleting || (self.differs() && lane.show_primary(old) != lane.show_primary(new))
            }
            _ => true,
        }
    }

    /// Whether the status differs.
    pub fn status_differs(&self) -> bool {
        *self.status.get_or_init(|| match (&self.change.old, &self.change.new) {
            (Some(old), Some(new)) => self.differs() && status(old) != status(new),
            _ => true,
        })
    }

    /// Whose doing the change of a primary is, if a write of ours is what it may show.
    ///
    /// The host writes no spec, no label and no annotation of a primary but where a plugin owns it or contributes to it,
    /// and that shows in the fields that the plugin's manager holds.
    pub fn cause(&self, by_us: bool) -> Cause {
        let otherwise = if by_us { Cause::Ours } else { Cause::Others };
        match (&self.change.old, &self.change.new) {
            (Some(old), Some(new)) if old.deleting != new.deleting => Cause::Edit,
            (Some(old), Some(new)) if !old.is_held_like(new, |_| true) => Cause::Ours,
            (Some(old), Some(new)) if old.generation != new.generation => Cause::Edit,
            (Some(old), Some(new)) if self.differs() => {
                let [old, new] = [old, new].map(|object| metadata(object));
                let is_relabelled = old["labels"] != new["labels"] || old["annotations"] != new["annotations"];
                // Kinds without a generation have no status either: what differs is what somebody wrote.
                let has_no_generation = self.change.new.as_ref().is_some_and(|new| new.generation.is_none());
                if is_relabelled || (has_no_generation && !by_us) {
                    Cause::Edit
                } else {
                    otherwise
                }
            }
            (None, Some(_)) if !by_us => Cause::Edit,
            _ => otherwise,
        }
    }

    /// The object before and after, parsed.
    fn values(&self) -> &[Option<Value>; 2] {
        let ObjectChange { kind: _, old, new } = self.change;
        self.values
            .get_or_init(|| [old, new].map(|object| object.as_ref().map(|object| object.value())))
    }

    fn is_found(&self, object: Option<&Value>, query: &CheckedQuery) -> bool {
        object.is_some_and(|object| query.matches(self.change.name(), object))
    }
}

/// The status that the cache has of an object.
pub fn status(object: &CachedObject) -> Option<Value> {
    #[derive(serde::Deserialize)]
    struct Head {
        status: Option<Bounded>,
    }
    let Head { status } = serde_json::from_str(&object.text()).expect("the text was read through when it came");
    status.map(|Bounded(status)| status)
}

impl ChangedObject<PrimaryRef> for ChangeVisibility<'_> {
    fn is_visible_to(&self, lane: &LaneId) -> bool {
        *self.visible.borrow_mut().entry(*lane).or_insert_with(|| {
            let Some(lane) = self.lanes.get(*lane) else {
                return false;
            };
            let show = |object: &Option<Arc<CachedObject>>| {
                object
                    .as_ref()
                    .and_then(|object| lane.show_read(&self.change.kind, object))
            };
            self.differs() && show(&self.change.old) != show(&self.change.new)
        })
    }

    fn matched(&self, query: &CheckedQuery) -> bool {
        self.is_found(self.values()[0].as_ref(), query)
    }

    fn matches(&self, query: &CheckedQuery) -> bool {
        self.is_found(self.values()[1].as_ref(), query)
    }

    fn values(&self, path: &FieldPath) -> BTreeSet<String> {
        let objects = self.values().iter().flatten();
        objects
            .flat_map(|object| values_at(path, object).map(std::borrow::Cow::into_owned))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use pilothouse_core::Kind;
    use pilothouse_core::path::Projection;
    use serde_json::json;

    use super::*;

    fn stored(change: impl FnOnce(&mut Value)) -> Arc<CachedObject> {
        let mut object = json!({"metadata": {
            "name": "x", "namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 1, "labels": {"a": "b"}},
            "spec": {"size": 1}, "status": {"text": "a"}});
        change(&mut object);
        let stored = CachedObject::read(&object.to_string(), &kind(), &Projection::whole());
        Arc::new(stored.unwrap())
    }

    fn kind() -> Kind {
        Kind::new("x.dev", "v1", "X")
    }

    /// Whose doing a change is, without a write of ours under way and with one.
    fn causes(old: Option<Arc<CachedObject>>, new: Option<Arc<CachedObject>>) -> [Cause; 2] {
        let kind = Arc::new(kind());
        let (lanes, change) = (Lanes::default(), ObjectChange { kind, old, new });
        let seen = ChangeVisibility::new(&lanes, &change);
        [seen.cause(false), seen.cause(true)]
    }

    #[test]
    fn an_edit_is_told_from_a_status_and_from_our_own_writes() {
        let before = || Some(stored(|_| {}));
        let edits: [fn(&mut Value); 4] = [
            |object| object["metadata"]["generation"] = json!(2),
            |object| object["metadata"]["labels"] = json!({"a": "c"}),
            |object| object["metadata"]["annotations"] = json!({"a": "c"}),
            |object| object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
        ];
        for edit in edits {
            let after = Some(stored(edit));
            assert_eq!(
                causes(before(), after),
                [Cause::Edit; 2],
                "also while we write the status"
            );
        }
        let status = Some(stored(|object| object["status"]["text"] = json!("b")));
        assert_eq!(causes(before(), status), [Cause::Others, Cause::Ours]);
        assert_eq!(causes(None, before()), [Cause::Edit, Cause::Ours]);
        let by_a_plugin = Some(stored(|object| {
            object["metadata"]["generation"] = json!(2);
            object["metadata"]["managedFields"] = json!([{
                "manager": "pilothouse/other", "operation": "Apply", "apiVersion": "x.dev/v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:size": {}}}}]);
        }));
        assert_eq!(causes(before(), by_a_plugin), [Cause::Ours; 2]);
    }
}
