//! Owns what a guest sees during a call: the cache through its grants, and the time. Every read is recorded.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use pilothouse_cluster::store::Store;
use pilothouse_core::contract::{Imports, LogLevel, Query};
use pilothouse_core::dependencies::Read;
use pilothouse_core::failure::reason;
use pilothouse_core::grants::Grant;
use pilothouse_core::query::CheckedQuery;
use pilothouse_core::reach::Reach;
use pilothouse_core::{Failure, Kind, Name};

use crate::clock;
use crate::hub::Hub;
use crate::lane::Lane;

/// The finest granularity of `clock.now`, in milliseconds.
const FINEST_GRANULARITY: u64 = 1000;

/// What a read was answered.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// The count of the kind's changes at that moment; as long as it stands, so does the answer.
    changes: u64,
    fingerprint: u64,
}

impl Answered {
    /// Whether the answer would be another by now.
    pub fn is_outdated(self, store: &Store, lane: &Lane, read: &Read) -> bool {
        store.changes(read.kind()) != self.changes && fingerprint(store, lane, read) != self.fingerprint
    }
}

/// The cache and the clock as one call sees them, and what it asked.
pub struct View {
    hub: Arc<Hub>,
    lane: Arc<Lane>,
    primary: Name,
    now: u64,
    /// What was read, with what was answered.
    pub reads: BTreeMap<Read, Answered>,
    /// The moment (milliseconds since the epoch) at which an answer about time would be another.
    pub wake_at: Option<u64>,
}

impl View {
    /// A view for one call. Time stands still during it.
    pub fn new(hub: Arc<Hub>, lane: Arc<Lane>, primary: Name) -> Self {
        let now = hub.clock.now();
        Self {
            hub,
            lane,
            primary,
            now,
            reads: BTreeMap::new(),
            wake_at: None,
        }
    }

    /// Remembers a read. The first answer counts: if a later one differs, the object runs again.
    fn note(&mut self, read: Read, changes: u64, hash: impl FnOnce(&mut DefaultHasher)) {
        let mut hasher = DefaultHasher::new();
        hash(&mut hasher);
        let fingerprint = hasher.finish();
        self.reads.entry(read).or_insert(Answered { changes, fingerprint });
    }

    fn wake_at(&mut self, moment: u64) {
        self.wake_at = Some(self.wake_at.map_or(moment, |earlier| earlier.min(moment)));
    }

    /// The kind, if the cache can answer for it: all that was declared is listed, or it is optional and not served.
    fn known(&self, kind: &Kind, grant: &Grant) -> Result<Arc<Kind>, Failure> {
        if grant.touch.optional && self.hub.served.is_missing(kind) {
            return Ok(Arc::new(kind.clone()));
        }
        let reach = Reach::of(&grant.touch);
        match self.lane.served(kind) {
            Some(served) if self.hub.state.read().store.has(kind, &grant.projection, &reach) => Ok(served.kind),
            _ => Err(Failure::cluster(
                reason::NOT_SYNCED,
                format!("{kind} is read, but the cache has not listed it yet"),
            )),
        }
    }
}

impl Imports for View {
    fn get(&mut self, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Option<String>, Failure> {
        let grant = self.lane.grants.check_get(kind, namespace, name)?;
        let kind = self.known(kind, grant)?;
        let name = Name::new(namespace, name);
        let state = self.hub.state.read();
        let object = state.store.get(&kind, &name);
        let text = object.and_then(|object| self.lane.show_read(&kind, object));
        let changes = state.store.changes(&kind);
        drop(state);
        self.note(Read::Get(kind, name), changes, |hasher| text.hash(hasher));
        Ok(text)
    }

    fn find(&mut self, kind: &Kind, query: &Query) -> Result<Vec<String>, Failure> {
        let (grant, query) = self.lane.grants.check_find(kind, query)?;
        let kind = self.known(kind, grant)?;
        if !self.hub.state.read().store.is_indexed(&kind, &query) {
            self.hub.state.write().store.add_index(&kind, &query);
        }
        let state = self.hub.state.read();
        let found: Vec<_> = state.store.find(&kind, &query).collect();
        let texts: Vec<String> = found
            .iter()
            .filter_map(|object| self.lane.show_read(&kind, object))
            .collect();
        let is_full = query.limit.is_some_and(|limit| found.len() == limit as usize);
        let last = found.last().filter(|_| is_full);
        let query = CheckedQuery {
            until: last.map(|last| last.name.clone()),
            ..query
        };
        let changes = state.store.changes(&kind);
        drop(state);
        self.note(Read::Find(kind, Arc::new(query)), changes, |hasher| {
            for text in &texts {
                text.hash(hasher);
            }
        });
        Ok(texts)
    }

    fn now(&mut self, granularity: u64) -> u64 {
        let granularity = granularity.max(FINEST_GRANULARITY);
        let now = self.now - self.now % granularity;
        self.wake_at(now.saturating_add(granularity));
        now
    }

    fn reached(&mut self, moment: u64) -> bool {
        if self.now < moment {
            self.wake_at(clock::next_look(self.now, moment));
        }
        self.now >= moment
    }

    fn log(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        let is_asked_for = match level {
            LogLevel::Trace => tracing::enabled!(target: "pilothouse::plugin", tracing::Level::TRACE),
            LogLevel::Debug => tracing::enabled!(target: "pilothouse::plugin", tracing::Level::DEBUG),
            LogLevel::Info => tracing::enabled!(target: "pilothouse::plugin", tracing::Level::INFO),
            LogLevel::Warn => tracing::enabled!(target: "pilothouse::plugin", tracing::Level::WARN),
            LogLevel::Error => tracing::enabled!(target: "pilothouse::plugin", tracing::Level::ERROR),
        };
        if !is_asked_for {
            return;
        }
        let bytes = fields
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum::<usize>()
            + message.len();
        let talk = &self.lane.account.talk;
        let may_log = talk.may_log(bytes);
        talk.tell(&self.lane.plugin);
        if !may_log {
            return;
        }
        let mut said = message.to_owned();
        for (name, value) in fields {
            write!(said, " {name}={value:?}").expect("writing to a String cannot fail");
        }
        let (plugin, object) = (&*self.lane.plugin, &self.primary);
        match level {
            LogLevel::Trace => tracing::trace!(target: "pilothouse::plugin", plugin, %object, "{said}"),
            LogLevel::Debug => tracing::debug!(target: "pilothouse::plugin", plugin, %object, "{said}"),
            LogLevel::Info => tracing::info!(target: "pilothouse::plugin", plugin, %object, "{said}"),
            LogLevel::Warn => tracing::warn!(target: "pilothouse::plugin", plugin, %object, "{said}"),
            LogLevel::Error => tracing::error!(target: "pilothouse::plugin", plugin, %object, "{said}"),
        }
    }
}

/// A fingerprint of what a read would be answered now: of the bytes that the plugin would see.
pub fn fingerprint(store: &Store, lane: &Lane, read: &Read) -> u64 {
    let mut hasher = DefaultHasher::new();
    match read {
        Read::Get(kind, name) | Read::Obstacle(kind, name) => {
            let object = store.get(kind, name);
            object.and_then(|object| lane.show_read(kind, object)).hash(&mut hasher);
        }
        Read::Find(kind, query) => store
            .find(kind, query)
            .filter_map(|object| lane.show_read(kind, object))
            .for_each(|text| text.hash(&mut hasher)),
    }
    hasher.finish()
}
