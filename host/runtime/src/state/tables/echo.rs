//! Read-your-writes: tracks own writes that the cache does not show yet, and recognizes the watch event that echoes
//! one. A primary is held in the queue until the cache shows what it wrote.
//!
//! A wait starts only if a watch covers the object, and ends with that watch.

use std::collections::HashMap;
use std::sync::Arc;

use pilothouse_cluster::cache::store::{ObjectChange, Store, WatchSource};
use pilothouse_cluster::object::CachedObject;
use pilothouse_cluster::watch::reflector::is_before;
use pilothouse_core::{Key, Kind};
use tokio::time::Instant;

use crate::lanes::primary::{LaneId, PrimaryRef};
use crate::lanes::snapshot::Lanes;
use crate::queue::{Priority, Trigger, TriggerReason, WorkQueue};

/// Echo of an own write that the cache does not show yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AwaitedEcho {
    /// The object in this resourceVersion or a later one.
    Version(Box<str>),
    /// The object of this UID being deleted, or deleted.
    Deletion(Arc<str>),
}

/// Own writes, from the request until the cache shows them.
#[derive(Default)]
pub struct OwnWrites {
    in_flight: WritesInFlight,
    awaited: HashMap<Key, (AwaitedEcho, PrimaryRef)>,
}

/// Origin of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeOrigin {
    /// A write of ours, or possibly one in flight, made for this primary.
    Ours(PrimaryRef),
    /// Another writer.
    Others,
}

/// Own writes in flight. An object may have several writers, such as the plugin whose primary it is and the plugin that
/// made it.
#[derive(Default)]
struct WritesInFlight(HashMap<Key, Vec<WriteInFlight>>);

struct WriteInFlight {
    primary_ref: PrimaryRef,
    since: Instant,
    /// State that a watch showed meanwhile: only the response tells whether that was this write.
    seen: Option<ObservedDuringWrite>,
}

/// State of an object that a watch showed while it was being written.
struct ObservedDuringWrite {
    /// The last version; empty if the object was deleted.
    last: Box<str>,
    /// The last version in which the object existed. A created object may be shown and deleted again before the
    /// response arrives.
    reached: Box<str>,
}

impl OwnWrites {
    /// Records that a write of an object starts.
    pub fn begin(&mut self, key: Key, primary_ref: &PrimaryRef) {
        self.in_flight.begin(key, primary_ref);
    }

    /// Ends a write of an object. If it succeeded, its primary waits for the cache to show it. Returns `true` if the
    /// object was seen to be deleted meanwhile, by another writer.
    pub fn end(
        &mut self,
        store: &Store,
        lanes: &Lanes,
        queue: &mut WorkQueue,
        key: Key,
        awaited: Option<AwaitedEcho>,
        primary_ref: &PrimaryRef,
    ) -> bool {
        let seen = self.in_flight.end(&key, primary_ref);
        if lanes.get(primary_ref.lane).is_none() {
            return false;
        }
        let has_gone = !matches!(awaited, Some(AwaitedEcho::Deletion(_)))
            && seen.as_ref().is_some_and(|seen| seen.last.is_empty());
        match (&awaited, seen) {
            (Some(AwaitedEcho::Version(version)), Some(seen)) if seen.last == *version => return has_gone,
            (Some(AwaitedEcho::Version(version)), Some(seen))
                if seen.reached == *version || is_before(version, &seen.reached) =>
            {
                queue_overtaken(queue, primary_ref, &key);
                return has_gone;
            }
            (_, Some(_)) => queue_overtaken(queue, primary_ref, &key),
            (_, None) => {}
        }
        if let Some(awaited) = awaited {
            self.await_echo(store, lanes, queue, key, awaited, primary_ref);
        }
        has_gone
    }

    /// Holds a primary until the cache shows a write.
    pub fn await_echo(
        &mut self,
        store: &Store,
        lanes: &Lanes,
        queue: &mut WorkQueue,
        key: Key,
        awaited: AwaitedEcho,
        primary_ref: &PrimaryRef,
    ) {
        let object = store.get(&key.kind, &key.name);
        let is_awaited = !is_seen(&awaited, object.map(|object| &**object))
            && store.is_followed(&key.kind, &key.name)
            && lanes.get(primary_ref.lane).is_some();
        if !is_awaited {
            return;
        }
        queue.hold(primary_ref.lane, &primary_ref.name);
        if let Some((_, before)) = self.awaited.insert(key, (awaited, primary_ref.clone())) {
            queue.release(before.lane, &before.name);
        }
    }

    /// Applies a change in the cache: releases the primary that waits for it. Returns the origin of the change.
    pub fn observe(&mut self, lanes: &Lanes, queue: &mut WorkQueue, change: &ObjectChange) -> ChangeOrigin {
        let writer = self.take_echo(lanes, queue, change);
        let writer = writer.or_else(|| self.in_flight.record(change));
        writer.map_or(ChangeOrigin::Others, ChangeOrigin::Ours)
    }

    /// Returns the primary for which an object was written, if the change shows exactly that write.
    fn take_echo(&mut self, lanes: &Lanes, queue: &mut WorkQueue, change: &ObjectChange) -> Option<PrimaryRef> {
        if self.awaited.is_empty() {
            return None;
        }
        let key = Key::new(change.kind.clone(), change.name().clone());
        let (awaited, primary_ref) = self.awaited.get(&key)?;
        let new = change.new.as_deref();
        if !is_seen(awaited, new) {
            return None;
        }
        let exact = match awaited {
            AwaitedEcho::Version(version) => new.is_some_and(|new| new.resource_version == *version),
            AwaitedEcho::Deletion(_) => true,
        };
        if !exact && !is_primary(lanes, primary_ref, &key) {
            // The written version was never shown: the object may have been replaced by another one of the same name.
            queue_overtaken(queue, primary_ref, &key);
        }
        queue.release(primary_ref.lane, &primary_ref.name);
        let (_, primary_ref) = self.awaited.remove(&key)?;
        exact.then_some(primary_ref)
    }

    /// Releases the waits that the watches of a kind can no longer end, because they have ended or were restricted.
    pub fn watch_ends(&mut self, store: &Store, queue: &mut WorkQueue, kind: &Kind) {
        let is_lost = |key: &Key| *key.kind == *kind && !store.is_followed(kind, &key.name);
        for (_, (_, primary_ref)) in self.awaited.extract_if(|key, _| is_lost(key)) {
            queue.release(primary_ref.lane, &primary_ref.name);
        }
    }

    /// Ends the wait for a write of an object that cannot be decoded, or that was read live.
    pub fn forget_awaited(&mut self, queue: &mut WorkQueue, key: &Key) {
        if let Some((_, primary_ref)) = self.awaited.remove(key) {
            queue.release(primary_ref.lane, &primary_ref.name);
        }
    }

    /// Ends the waits that a complete list settles: an older write that it does not show was undone since. Neither its
    /// creation nor its deletion was seen, so its primary is queued again.
    pub fn list_ends(&mut self, store: &Store, queue: &mut WorkQueue, source: &WatchSource, listed: &str) {
        let about = |key: &Key| key.kind == source.kind && source.scope.has(&key.name);
        let is_overtaken = |key: &Key, awaited: &AwaitedEcho| {
            let object = store.get(&key.kind, &key.name).map(|object| &**object);
            let undone = |version: &str| object.is_none() && !is_before(listed, version);
            is_seen(awaited, object) || matches!(awaited, AwaitedEcho::Version(version) if undone(version))
        };
        let overtaken = self
            .awaited
            .extract_if(|key, (awaited, _)| about(key) && is_overtaken(key, awaited));
        for (key, (awaited, primary_ref)) in overtaken {
            if matches!(awaited, AwaitedEcho::Version(_)) && store.get(&key.kind, &key.name).is_none() {
                queue_overtaken(queue, &primary_ref, &key);
            }
            queue.release(primary_ref.lane, &primary_ref.name);
        }
    }

    /// Ends all writes of a reconcile that is over, also if it was cancelled.
    pub fn abandon(&mut self, primary_ref: &PrimaryRef) {
        self.in_flight.abandon(primary_ref);
    }

    /// Forgets the waits of a removed lane.
    pub fn remove_lane(&mut self, lane: LaneId) {
        self.awaited.retain(|_, (_, primary_ref)| primary_ref.lane != lane);
    }

    /// Returns `true` if the cache does not show a write of an object yet.
    pub fn is_awaited(&self, key: &Key) -> bool {
        self.awaited.contains_key(key)
    }

    /// Awaited echoes, each with the primary that waits for it.
    pub fn awaited(&self) -> impl Iterator<Item = (&Key, &AwaitedEcho, &PrimaryRef)> {
        let awaited = self.awaited.iter();
        awaited.map(|(key, (awaited, primary_ref))| (key, awaited, primary_ref))
    }

    /// Writes in flight, each with its start.
    pub fn in_flight(&self) -> impl Iterator<Item = (&Key, &PrimaryRef, Instant)> {
        self.in_flight.iter()
    }
}

/// Queues a primary whose write had another effect than intended.
fn queue_overtaken(queue: &mut WorkQueue, primary_ref: &PrimaryRef, key: &Key) {
    let trigger = Trigger::of(TriggerReason::WriteOvertaken, Arc::new(key.clone()));
    queue.push(primary_ref.lane, &primary_ref.name, Priority::Change, trigger);
}

/// Returns `true` if an object is the primary itself, whose visible changes requeue it anyway.
fn is_primary(lanes: &Lanes, primary_ref: &PrimaryRef, key: &Key) -> bool {
    let lane = lanes.get(primary_ref.lane);
    key.name == primary_ref.name && lane.is_some_and(|lane| *lane.grants.primary() == *key.kind)
}

impl WritesInFlight {
    /// Records that a write starts.
    fn begin(&mut self, key: Key, primary_ref: &PrimaryRef) {
        let primary_ref = primary_ref.clone();
        self.0.entry(key).or_default().push(WriteInFlight {
            primary_ref,
            since: Instant::now(),
            seen: None,
        });
    }

    /// Ends a write. Returns what a watch showed while it was in flight.
    fn end(&mut self, key: &Key, primary_ref: &PrimaryRef) -> Option<ObservedDuringWrite> {
        let writes = self.0.get_mut(key)?;
        let ours = writes.iter().position(|write| write.primary_ref == *primary_ref)?;
        let WriteInFlight {
            primary_ref: _,
            since: _,
            seen,
        } = writes.swap_remove(ours);
        if writes.is_empty() {
            self.0.remove(key);
        }
        seen
    }

    /// Ends all writes of a reconcile that is over, also if it was cancelled.
    fn abandon(&mut self, primary_ref: &PrimaryRef) {
        self.0.retain(|_, writes| {
            writes.retain(|write| write.primary_ref != *primary_ref);
            !writes.is_empty()
        });
    }

    /// Writes in flight, each with its start.
    fn iter(&self) -> impl Iterator<Item = (&Key, &PrimaryRef, Instant)> {
        let writes = self.0.iter();
        writes.flat_map(|(key, writes)| writes.iter().map(move |write| (key, &write.primary_ref, write.since)))
    }

    /// Records a change of an object that is being written. Returns its writer; only the response tells the change's
    /// origin.
    fn record(&mut self, change: &ObjectChange) -> Option<PrimaryRef> {
        if self.0.is_empty() {
            return None;
        }
        let key = Key::new(change.kind.clone(), change.name().clone());
        let writes = self.0.get_mut(&key)?;
        let writer = writes.first()?.primary_ref.clone();
        let version =
            |object: Option<&Arc<CachedObject>>| object.map_or_else(Box::default, |it| it.resource_version.clone());
        for write in writes {
            write.seen = Some(ObservedDuringWrite {
                last: version(change.new.as_ref()),
                reached: version(change.new.as_ref().or(change.old.as_ref())),
            });
        }
        Some(writer)
    }
}

/// Returns `true` if a cached object shows a write: in that version, or in a later one if versions have an order.
fn is_seen(awaited: &AwaitedEcho, object: Option<&CachedObject>) -> bool {
    match (awaited, object) {
        (AwaitedEcho::Version(_), None) => false,
        (AwaitedEcho::Version(version), Some(object)) => {
            object.resource_version == *version || is_before(version, &object.resource_version)
        }
        (AwaitedEcho::Deletion(_), None) => true,
        (AwaitedEcho::Deletion(uid), Some(object)) => object.deleting || object.uid != *uid,
    }
}

#[cfg(test)]
mod tests {
    use pilothouse_core::Name;
    use pilothouse_core::kubernetes::path::Projection;

    use super::*;

    fn shown(version: &str) -> ObjectChange {
        let kind = Kind::new("", "v1", "ConfigMap");
        let text = format!(r#"{{"metadata":{{"name":"x","uid":"u","resourceVersion":"{version}"}}}}"#);
        let object = CachedObject::read(&text, &kind, &Projection::default()).unwrap();
        ObjectChange {
            kind: Arc::new(kind),
            old: None,
            new: Some(Arc::new(object)),
        }
    }

    #[test]
    fn what_is_shown_while_two_write_an_object_is_told_to_both() {
        let [maker, owner] = [1, 2].map(|lane| PrimaryRef {
            lane: LaneId(lane),
            name: Name::new(None, "p"),
        });
        let key = Key::new(Arc::new(Kind::new("", "v1", "ConfigMap")), Name::new(None, "x"));
        let mut writing = WritesInFlight::default();
        assert_eq!(writing.record(&shown("1")), None);
        writing.begin(key.clone(), &maker);
        assert_eq!(writing.record(&shown("2")).as_ref(), Some(&maker));
        writing.begin(key.clone(), &owner);
        let last = |shown: Option<ObservedDuringWrite>| shown.map(|shown| shown.last.to_string());
        assert_eq!(
            last(writing.end(&key, &maker)).as_deref(),
            Some("2"),
            "the other's beginning takes nothing away"
        );
        assert!(writing.record(&shown("3")).is_some(), "the other is still at it");
        assert_eq!(last(writing.end(&key, &owner)).as_deref(), Some("3"));
        assert!(writing.record(&shown("4")).is_none() && writing.0.is_empty());
    }

    #[test]
    fn a_create_and_delete_during_a_write_counts_as_seen() {
        let primary_ref = PrimaryRef {
            lane: LaneId(1),
            name: Name::new(None, "p"),
        };
        let key = Key::new(Arc::new(Kind::new("", "v1", "ConfigMap")), Name::new(None, "x"));
        let mut writing = WritesInFlight::default();
        writing.begin(key.clone(), &primary_ref);
        let made = shown("2");
        let gone = ObjectChange {
            kind: made.kind.clone(),
            old: made.new.clone(),
            new: None,
        };
        assert!(writing.record(&made).is_some() && writing.record(&gone).is_some());
        let ObservedDuringWrite { last, reached } = writing.end(&key, &primary_ref).unwrap();
        assert_eq!((&*last, &*reached), ("", "2"));
    }
}
