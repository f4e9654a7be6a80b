//! Owns read-your-writes: which of our own writes the cache has not seen yet, and which watch event is the echo of one.
//! A primary is held in the queue until the cache has seen what it wrote.
//!
//! A wait is begun only where a watch is about the object, and ends with the watch: what nobody will see is not awaited.

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

/// A write of our own that the cache has not seen yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AwaitedEcho {
    /// The object in this resourceVersion, or later.
    Version(Box<str>),
    /// The object of this uid being deleted, or gone.
    Deletion(Arc<str>),
}

/// Writes of our own, from the request to the moment at which the cache has seen them.
#[derive(Default)]
pub struct OwnWrites {
    in_flight: WritesInFlight,
    awaited: HashMap<Key, (AwaitedEcho, PrimaryRef)>,
}

/// Whose doing a change is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeOrigin {
    /// A write of ours, or perhaps one that is under way, on behalf of this primary.
    Ours(PrimaryRef),
    /// Somebody else's.
    Others,
}

/// Writes of our own that are under way. An object may have several writers, such as the plugin whose primary it is and
/// the one that made it.
#[derive(Default)]
struct WritesInFlight(HashMap<Key, Vec<WriteInFlight>>);

struct WriteInFlight {
    primary_ref: PrimaryRef,
    since: Instant,
    /// What a watch showed meanwhile: whether that was this write is known only once the answer is there.
    seen: Option<ObservedDuringWrite>,
}

/// What a watch showed of an object while a write of it was under way.
struct ObservedDuringWrite {
    /// The last version; empty if the object went.
    last: Box<str>,
    /// The last version in which there was an object. What a write makes may be shown and be gone again before its answer
    /// is there.
    reached: Box<str>,
}

impl OwnWrites {
    /// A write of an object begins.
    pub fn begin(&mut self, key: Key, primary_ref: &PrimaryRef) {
        self.in_flight.begin(key, primary_ref);
    }

    /// A write of an object is over. When it had success, its primary waits for the cache to see it. Says whether the
    /// object was seen to go meanwhile, though it was not this write that deleted it.
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

    /// Waits for the cache to see a write before its primary runs again.
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

    /// The cache has taken a change in: whoever waits to see it is released. Says whose doing it is.
    pub fn observe(&mut self, lanes: &Lanes, queue: &mut WorkQueue, change: &ObjectChange) -> ChangeOrigin {
        let writer = self.take_echo(lanes, queue, change);
        let writer = writer.or_else(|| self.in_flight.note(change));
        writer.map_or(ChangeOrigin::Others, ChangeOrigin::Ours)
    }

    /// The primary for which an object was written, if a change shows exactly that and nothing more.
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
            // It was never seen as it was written: it may be somebody else's by now, made anew under its name.
            queue_overtaken(queue, primary_ref, &key);
        }
        queue.release(primary_ref.lane, &primary_ref.name);
        let (_, primary_ref) = self.awaited.remove(&key)?;
        exact.then_some(primary_ref)
    }

    /// The watches of a kind have ended, or are about less than before: whoever waits to see what they do not show any
    /// more waits in vain.
    pub fn watch_ends(&mut self, store: &Store, queue: &mut WorkQueue, kind: &Kind) {
        let is_lost = |key: &Key| *key.kind == *kind && !store.is_followed(kind, &key.name);
        for (_, (_, primary_ref)) in self.awaited.extract_if(|key, _| is_lost(key)) {
            queue.release(primary_ref.lane, &primary_ref.name);
        }
    }

    /// Nobody waits for the cache to see a write of an object: it cannot be read, or was looked at past the cache.
    pub fn forget_awaited(&mut self, queue: &mut WorkQueue, key: &Key) {
        if let Some((_, primary_ref)) = self.awaited.remove(key) {
            queue.release(primary_ref.lane, &primary_ref.name);
        }
    }

    /// A complete list has come: writes from before it that it does not show were undone by somebody since. What was not
    /// seen coming is not seen going either, so whoever made it runs again.
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

    /// A reconcile is over, and so are its writes, also where it did not come to their end.
    pub fn abandon(&mut self, primary_ref: &PrimaryRef) {
        self.in_flight.abandon(primary_ref);
    }

    /// A lane is gone: nobody waits on its behalf.
    pub fn remove_lane(&mut self, lane: LaneId) {
        self.awaited.retain(|_, (_, primary_ref)| primary_ref.lane != lane);
    }

    /// Whether a write of an object was not seen yet.
    pub fn is_awaited(&self, key: &Key) -> bool {
        self.awaited.contains_key(key)
    }

    /// What is awaited, and on whose behalf.
    pub fn awaited(&self) -> impl Iterator<Item = (&Key, &AwaitedEcho, &PrimaryRef)> {
        let awaited = self.awaited.iter();
        awaited.map(|(key, (awaited, primary_ref))| (key, awaited, primary_ref))
    }

    /// The writes that are under way, and since when.
    pub fn in_flight(&self) -> impl Iterator<Item = (&Key, &PrimaryRef, Instant)> {
        self.in_flight.iter()
    }
}

/// Queues a primary of which a write had another effect than it was meant to have.
fn queue_overtaken(queue: &mut WorkQueue, primary_ref: &PrimaryRef, key: &Key) {
    let trigger = Trigger::of(TriggerReason::WriteOvertaken, Arc::new(key.clone()));
    queue.push(primary_ref.lane, &primary_ref.name, Priority::Change, trigger);
}

/// Whether an object is the primary itself, of which every visible change is looked at anyway.
fn is_primary(lanes: &Lanes, primary_ref: &PrimaryRef, key: &Key) -> bool {
    let lane = lanes.get(primary_ref.lane);
    key.name == primary_ref.name && lane.is_some_and(|lane| *lane.grants.primary() == *key.kind)
}

impl WritesInFlight {
    /// A write begins.
    fn begin(&mut self, key: Key, primary_ref: &PrimaryRef) {
        let primary_ref = primary_ref.clone();
        self.0.entry(key).or_default().push(WriteInFlight {
            primary_ref,
            since: Instant::now(),
            seen: None,
        });
    }

    /// A write is over. Says what a watch showed while it was under way.
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

    /// A reconcile is over, and so are its writes, also where it did not come to their end.
    fn abandon(&mut self, primary_ref: &PrimaryRef) {
        self.0.retain(|_, writes| {
            writes.retain(|write| write.primary_ref != *primary_ref);
            !writes.is_empty()
        });
    }

    /// The writes that are under way, and since when.
    fn iter(&self) -> impl Iterator<Item = (&Key, &PrimaryRef, Instant)> {
        let writes = self.0.iter();
        writes.flat_map(|(key, writes)| writes.iter().map(move |write| (key, &write.primary_ref, write.since)))
    }

    /// The primary for which the object is being written, if it is; whose the change is will be known when that is over.
    fn note(&mut self, change: &ObjectChange) -> Option<PrimaryRef> {
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

/// Whether an object as the cache has it shows a write: in that version or a later one, where versions have an order.
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
        assert_eq!(writing.note(&shown("1")), None);
        writing.begin(key.clone(), &maker);
        assert_eq!(writing.note(&shown("2")).as_ref(), Some(&maker));
        writing.begin(key.clone(), &owner);
        let last = |shown: Option<ObservedDuringWrite>| shown.map(|shown| shown.last.to_string());
        assert_eq!(
            last(writing.end(&key, &maker)).as_deref(),
            Some("2"),
            "the other's beginning takes nothing away"
        );
        assert!(writing.note(&shown("3")).is_some(), "the other is still at it");
        assert_eq!(last(writing.end(&key, &owner)).as_deref(), Some("3"));
        assert!(writing.note(&shown("4")).is_none() && writing.0.is_empty());
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
        assert!(writing.note(&made).is_some() && writing.note(&gone).is_some());
        let ObservedDuringWrite { last, reached } = writing.end(&key, &primary_ref).unwrap();
        assert_eq!((&*last, &*reached), ("", "2"));
    }
}
