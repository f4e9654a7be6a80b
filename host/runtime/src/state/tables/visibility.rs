//! Decides who sees a change of an object: the lanes to which it is visible, and the queries that it enters, leaves or
//! changes within.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pilothouse_cluster::cache::decoding;
use pilothouse_cluster::cache::store::ObjectChange;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::Failure;
use pilothouse_core::kubernetes::path::FieldPath;
use pilothouse_core::plugin::manifest::Access;
use pilothouse_core::reads::dependencies::Interest;
use pilothouse_core::reads::dependencies::read::ChangedObject;
use pilothouse_core::reads::query::{CheckedQuery, values_at};
use pilothouse_core::status::host_conditions::{HostConditions, RECONCILED};
use pilothouse_core::text::depth::Bounded;
use serde_json::Value;

use crate::lanes::lane::Lane;
use crate::lanes::primary::{LaneId, PrimaryRef};
use crate::lanes::snapshot::Lanes;
use crate::queue::Cause;

/// A change as readers see it; comparisons are made once for all readers of a lane.
///
/// Visibility depends on a lane's grants, and is no fact of an object. A watch compares the object with
/// [`ChangeVisibility::decode`] before it takes the host's lock. Only what that could not foresee is decoded under the
/// lock: one object that was first read at that moment, that changed twice at once, or that a relist did not find.
pub struct ChangeVisibility {
    lanes: Lanes,
    change: ObjectChange,
    differs: OnceCell<bool>,
    primary: RefCell<HashMap<LaneId, bool>>,
    visible: RefCell<HashMap<LaneId, bool>>,
    status: OnceCell<bool>,
    before: OnceCell<Option<Value>>,
    after: OnceCell<Option<Value>>,
}

impl ChangeVisibility {
    /// Makes a change that nothing has been compared of.
    pub fn new(lanes: &Lanes, change: &ObjectChange) -> Self {
        Self {
            lanes: lanes.clone(),
            change: change.clone(),
            differs: OnceCell::new(),
            primary: RefCell::default(),
            visible: RefCell::default(),
            status: OnceCell::new(),
            before: OnceCell::new(),
            after: OnceCell::new(),
        }
    }

    /// Compares the object as the lanes see it, and parses it if queries need that, before the lock is taken.
    pub fn decode(&self, interest: Interest) {
        let ObjectChange { kind, old, new } = &self.change;
        for lane in self.lanes.of_kind(kind) {
            let mut objects = [old, new].into_iter().flatten();
            if lane.grants.primary() == &**kind && objects.any(|object| lane.reconciles(object)) {
                self.primary_differs(lane);
            }
            let reads = || lane.grants.get(kind).is_some_and(|grant| grant.allows(Access::Read));
            if interest.is_read && reads() {
                self.is_visible_to(&lane.id);
            }
        }
        if interest.is_queried {
            self.before();
            self.after();
        }
    }

    /// Returns `true` if this is that change for these lanes: both may have changed before the lock was taken.
    pub fn is_of(&self, lanes: &Lanes, change: &ObjectChange) -> bool {
        let is_same = |one: &Option<Arc<CachedObject>>, other: &Option<Arc<CachedObject>>| match (one, other) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        self.lanes.is_same(lanes) && is_same(&self.change.old, &change.old) && is_same(&self.change.new, &change.new)
    }

    /// Returns `true` if anything visible differs.
    fn differs(&self) -> bool {
        *self.differs.get_or_init(|| match (&self.change.old, &self.change.new) {
            (Some(old), Some(new)) => !old.has_text_of(new),
            _ => true,
        })
    }

    /// Returns `true` if a primary differs for its lane: in what the plugin sees, or because it is deleted.
    pub fn primary_differs(&self, lane: &Lane) -> bool {
        match (&self.change.old, &self.change.new) {
            (Some(old), Some(new)) => {
                let shown = || decoding::allowed(|| lane.show_primary(old) != lane.show_primary(new));
                let mut known = self.primary.borrow_mut();
                old.deleting != new.deleting || (self.differs() && *known.entry(lane.id).or_insert_with(shown))
            }
            _ => true,
        }
    }

    /// Returns `true` if the status differs.
    pub fn status_differs(&self) -> bool {
        *self.status.get_or_init(|| match (&self.change.old, &self.change.new) {
            (Some(old), Some(new)) => !old.has_status_of(new),
            _ => true,
        })
    }

    /// Cause of a primary's change. `by_us` is set if it may show a write of ours.
    ///
    /// The host writes spec, labels and annotations of a primary only if a plugin owns or contributes to it, and that
    /// shows in the fields that the plugin's manager holds.
    pub fn cause(&self, by_us: bool) -> Cause {
        let otherwise = if by_us { Cause::Ours } else { Cause::Others };
        match (&self.change.old, &self.change.new) {
            (Some(old), Some(new)) if old.deleting != new.deleting => Cause::Edit,
            (Some(old), Some(new)) if !old.is_held_like(new, |_| true) => Cause::Ours,
            (Some(old), Some(new)) if old.generation != new.generation => Cause::Edit,
            (Some(old), Some(new)) if self.differs() => {
                let is_relabelled = !old.is_marked_like(new);
                // Kinds without a generation have no status either: the difference was written by another writer.
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

    /// The object before the change, parsed.
    fn before(&self) -> Option<&Value> {
        parsed(&self.before, self.change.old.as_ref())
    }

    /// The object after the change, parsed.
    pub fn after(&self) -> Option<&Value> {
        parsed(&self.after, self.change.new.as_ref())
    }

    fn is_found(&self, object: Option<&Value>, query: &CheckedQuery) -> bool {
        object.is_some_and(|object| query.matches(self.change.name(), object))
    }
}

fn parsed<'a>(value: &'a OnceCell<Option<Value>>, object: Option<&Arc<CachedObject>>) -> Option<&'a Value> {
    value
        .get_or_init(|| decoding::allowed(|| object.map(|object| object.value())))
        .as_ref()
}

/// The status of a cached object.
pub fn status(object: &CachedObject) -> Option<Value> {
    #[derive(serde::Deserialize)]
    struct StatusOnly {
        status: Option<Bounded>,
    }
    let StatusOnly { status } = serde_json::from_str(&object.text()).expect("the text was read through when it came");
    status.map(|Bounded(status)| status)
}

/// The message of the condition `Reconciled` of a cached primary.
pub fn reconciled_message(primary: &CachedObject) -> Option<String> {
    let status = status(primary)?;
    let mut conditions = status["conditions"].as_array()?.iter();
    let reconciled = conditions.find(|condition| condition["type"] == RECONCILED)?;
    Some(reconciled["message"].as_str()?.to_owned())
}

/// Returns `true` if a primary's status already reports exactly this failure.
pub fn is_reported(lane: &Lane, primary: &CachedObject, failure: &Failure) -> bool {
    let conditions = HostConditions::failed(failure, lane.failure_reason.as_deref());
    let mut failed = conditions.iter().filter(|it| it.type_ == RECONCILED);
    let reported = reconciled_message(primary);
    failed.any(|failed| reported.as_ref() == Some(&failed.message))
}

impl ChangedObject<PrimaryRef> for ChangeVisibility {
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
            self.differs() && decoding::allowed(|| show(&self.change.old) != show(&self.change.new))
        })
    }

    fn matched(&self, query: &CheckedQuery) -> bool {
        self.is_found(self.before(), query)
    }

    fn matches(&self, query: &CheckedQuery) -> bool {
        self.is_found(self.after(), query)
    }

    fn values(&self, path: &FieldPath) -> BTreeSet<String> {
        let objects = [self.before(), self.after()].into_iter().flatten();
        objects
            .flat_map(|object| values_at(path, object).map(std::borrow::Cow::into_owned))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use pilothouse_core::Kind;
    use pilothouse_core::kubernetes::path::Projection;
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

    #[test]
    fn what_is_asked_later_is_decoded_before_if_there_are_queries() {
        let change = ObjectChange {
            kind: Arc::new(kind()),
            old: Some(stored(|_| {})),
            new: Some(stored(|object| object["spec"]["size"] = json!(2))),
        };
        let decoded = |is_queried| {
            let seen = ChangeVisibility::new(&Lanes::default(), &change);
            seen.decode(Interest {
                is_read: true,
                is_queried,
            });
            [&seen.before, &seen.after].map(|value| value.get().is_some())
        };
        assert_eq!([decoded(false), decoded(true)], [[false; 2], [true; 2]]);
    }

    #[test]
    fn a_comparison_is_valid_for_its_own_objects_and_lanes_only() {
        let (old, new) = (stored(|_| {}), stored(|_| {}));
        let change = |old: &Arc<CachedObject>, new: Option<&Arc<CachedObject>>| ObjectChange {
            kind: Arc::new(kind()),
            old: Some(old.clone()),
            new: new.cloned(),
        };
        let lanes = Lanes::default();
        let seen = ChangeVisibility::new(&lanes, &change(&old, Some(&new)));
        assert!(seen.is_of(&lanes, &change(&old, Some(&new))));
        assert!(
            !seen.is_of(&lanes, &change(&new, Some(&new))),
            "the cache has another state"
        );
        assert!(!seen.is_of(&lanes, &change(&old, Some(&old))));
        assert!(!seen.is_of(&lanes, &change(&old, None)));
        assert!(!seen.is_of(&Lanes::default(), &change(&old, Some(&new))), "a lane came");
    }

    /// Causes of a change, without a write of ours in flight and with one.
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
