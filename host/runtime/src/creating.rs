//! Owns what is known of creates whose answer has not come, or was lost: whether the object was there before. An apply
//! puts our owner reference into a foreign object too, so what the object says afterwards tells nothing; what a watch
//! showed first does. That is forgotten with the process.

use std::collections::HashMap;
use std::sync::Arc;

use pilothouse_cluster::object::Stored;
use pilothouse_cluster::store::Change;
use pilothouse_core::{Key, Kind};

use crate::hub::Reader;

/// The creates that are under way, or whose end is not known.
#[derive(Default)]
pub struct Creating(HashMap<Key, Attempt>);

struct Attempt {
    reader: Reader,
    manager: Arc<str>,
    /// The uid of an object of the name that was there without being ours.
    stranger: Option<Arc<str>>,
}

impl Creating {
    /// A create begins; `cached` is the object as the cache has it by now.
    pub fn begin(&mut self, key: Key, reader: &Reader, manager: &str, cached: Option<&Stored>) {
        let attempt = self.0.entry(key).or_insert_with(|| Attempt::new(reader, manager));
        attempt.see(cached);
    }

    /// What became of a create is known.
    pub fn end(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// A primary is gone.
    pub fn forget(&mut self, reader: &Reader) {
        self.0.retain(|_, attempt| attempt.reader != *reader);
    }

    /// The object of this uid was there before the create.
    pub fn note_stranger(&mut self, key: Key, reader: &Reader, manager: &str, uid: &Arc<str>) {
        let attempt = self.0.entry(key).or_insert_with(|| Attempt::new(reader, manager));
        attempt.stranger = Some(uid.clone());
    }

    /// Whether an object was there before the create that seems to have made it.
    pub fn is_strangers(&self, kind: &Arc<Kind>, object: &Stored) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let attempt = self.0.get(&Key::new(kind.clone(), object.name.clone()));
        attempt.is_some_and(|attempt| attempt.stranger.as_ref() == Some(&object.uid))
    }

    /// A watch or a list shows an object. The first time tells who has made it.
    pub fn observe(&mut self, change: &Change) {
        if self.0.is_empty() || change.old.is_some() {
            return;
        }
        let key = Key::new(change.kind.clone(), change.name().clone());
        let Some(attempt) = self.0.get_mut(&key) else { return };
        attempt.see(change.new.as_deref());
        if attempt.stranger.is_none() {
            self.0.remove(&key);
        }
    }
}

impl Attempt {
    fn new(reader: &Reader, manager: &str) -> Self {
        Self {
            reader: reader.clone(),
            manager: manager.into(),
            stranger: None,
        }
    }

    fn see(&mut self, object: Option<&Stored>) {
        if let Some(object) = object.filter(|object| object.entry(&self.manager, false).is_none()) {
            self.stranger = Some(object.uid.clone());
        }
    }
}
