//! Owns read-your-writes: which writes of our own the cache has not seen yet, and which change shows one of them. A
//! primary is held in the queue until the cache has seen what it wrote.

use std::sync::Arc;

use pilothouse_cluster::object::Stored;
use pilothouse_cluster::store::{Change, Source};
use pilothouse_cluster::watch::is_before;
use pilothouse_core::Key;

use crate::hub::{Reader, State};
use crate::queue::Priority;

/// A write of our own that the cache has not seen yet.
#[derive(Clone, Debug)]
pub enum Awaited {
    /// The object in this resourceVersion, or later.
    Version(Box<str>),
    /// The object of this uid being deleted, or gone.
    Deletion(Arc<str>),
}

impl State {
    /// A write of an object begins.
    pub fn begin_write(&mut self, key: Key) {
        self.writing.insert(key, None);
    }

    /// A write of an object is over. When it had success, its primary waits for the cache to see it.
    pub fn end_write(&mut self, key: Key, awaited: Option<Awaited>, reader: &Reader) {
        let seen = self.writing.remove(&key).flatten();
        match (&awaited, seen) {
            (Some(Awaited::Version(version)), Some(seen)) if seen == *version => return,
            (_, Some(_)) => self.queue.push(reader.lane, &reader.name, Priority::Change),
            (_, None) => {}
        }
        if let Some(awaited) = awaited {
            self.await_echo(key, awaited, reader);
        }
    }

    /// Whether a write of the object is under way; whose the change is will be known when it is over.
    pub fn note_while_writing(&mut self, change: &Change) -> bool {
        let key = Key::new(change.kind.clone(), change.name().clone());
        let Some(seen) = self.writing.get_mut(&key) else {
            return false;
        };
        *seen = Some(
            change
                .new
                .as_ref()
                .map_or_else(Box::default, |new| new.resource_version.clone()),
        );
        true
    }

    /// Waits for the cache to see a write before its primary runs again.
    pub fn await_echo(&mut self, key: Key, awaited: Awaited, reader: &Reader) {
        let object = self.store.get(&key.kind, &key.name);
        if is_seen(&awaited, object.map(|object| &**object)) {
            return;
        }
        self.queue.hold(reader.lane, &reader.name);
        if let Some((_, before)) = self.awaited.insert(key, (awaited, reader.clone())) {
            self.queue.release(before.lane, &before.name);
        }
    }

    /// Whether a change shows a write of ours. Says whose, when it shows exactly that write and nothing more.
    pub fn take_echo(&mut self, change: &Change) -> Option<Reader> {
        let key = Key::new(change.kind.clone(), change.name().clone());
        let (awaited, _) = self.awaited.get(&key)?;
        let new = change.new.as_deref();
        if !is_seen(awaited, new) {
            return None;
        }
        let exact = match awaited {
            Awaited::Version(version) => new.is_some_and(|new| new.resource_version == *version),
            Awaited::Deletion(_) => true,
        };
        let (_, reader) = self.awaited.remove(&key)?;
        self.queue.release(reader.lane, &reader.name);
        exact.then_some(reader)
    }

    /// A complete list has come: writes from before it that it does not show were undone by somebody since.
    pub fn forget_awaited(&mut self, source: &Source, listed: &str) {
        let about = |key: &Key| key.kind == source.kind && source.scope.has(&key.name);
        let overtaken: Vec<_> = self
            .awaited
            .iter()
            .filter(|(key, _)| about(key))
            .filter(|(key, (awaited, _))| {
                let object = self.store.get(&key.kind, &key.name).map(|object| &**object);
                let undone = |version: &str| object.is_none() && !is_before(listed, version);
                is_seen(awaited, object) || matches!(awaited, Awaited::Version(version) if undone(version))
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in overtaken {
            if let Some((_, reader)) = self.awaited.remove(&key) {
                self.queue.release(reader.lane, &reader.name);
            }
        }
    }
}

/// Whether an object as the cache has it shows a write: in that version or a later one, where versions have an order.
fn is_seen(awaited: &Awaited, object: Option<&Stored>) -> bool {
    match (awaited, object) {
        (Awaited::Version(_), None) => false,
        (Awaited::Version(version), Some(object)) => {
            object.resource_version == *version || is_before(version, &object.resource_version)
        }
        (Awaited::Deletion(_), None) => true,
        (Awaited::Deletion(uid), Some(object)) => object.deleting || object.uid != *uid,
    }
}
