//! Owns what a guest sees during a call: the cache through its grants, and the time. Every read is recorded.
//!
//! What a query may find is taken from the cache in one moment, under the lock; it is read, filtered and shown without it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash};
use std::sync::Arc;

use pilothouse_core::contract::{Imports, ListOptions, LogLevel};
use pilothouse_core::dependencies::Read;
use pilothouse_core::grants::Grant;
use pilothouse_core::query::CheckedQuery;
use pilothouse_core::reach::Reach;
use pilothouse_core::reason::Reason;
use pilothouse_core::{Failure, Kind, Name};

use crate::clock;
use crate::context::HostContext;
use crate::lane::Lane;
use crate::reads::{MOST_FOUND, ReadFingerprint, show_found};

/// The finest granularity of `clock.now`, in milliseconds.
const FINEST_GRANULARITY: u64 = 1000;

/// The cache and the clock as one call sees them, and what it asked.
pub struct View {
    host: Arc<HostContext>,
    lane: Arc<Lane>,
    primary: Name,
    now: u64,
    /// What was read, with what was answered.
    pub reads: BTreeMap<Read, ReadFingerprint>,
    /// The moment (milliseconds since the epoch) at which an answer about time would be another.
    pub wake_at: Option<u64>,
}

impl View {
    /// A view for one call. Time stands still during it.
    pub fn new(host: Arc<HostContext>, lane: Arc<Lane>, primary: Name) -> Self {
        let now = host.clock.now();
        Self {
            host,
            lane,
            primary,
            now,
            reads: BTreeMap::new(),
            wake_at: None,
        }
    }

    /// Remembers a read. The first answer counts: if a later one differs, the object runs again.
    fn note(&mut self, read: Read, changes: u64, most_bytes: u64, hash: impl FnOnce(&mut DefaultHasher)) {
        let answered = ReadFingerprint::new(changes, most_bytes, hash);
        self.reads.entry(read).or_insert(answered);
    }

    fn wake_at(&mut self, moment: u64) {
        self.wake_at = Some(self.wake_at.map_or(moment, |earlier| earlier.min(moment)));
    }

    /// The kind, if the cache can answer for it: all that was declared is listed, or it is optional and not served.
    fn known(&self, kind: &Kind, grant: &Grant) -> Result<Arc<Kind>, Failure> {
        if grant.touch.optional && self.host.kinds.is_missing(kind) {
            return Ok(Arc::new(kind.clone()));
        }
        let reach = Reach::of(&grant.touch);
        match self.lane.served(kind) {
            Some(served) if self.host.state.has_listed(kind, &grant.projection, &reach) => Ok(served.kind),
            _ => Err(Failure::cluster(
                Reason::NotSynced,
                format!("{kind} is read, but the cache has not listed it yet"),
            )),
        }
    }
}

impl Imports for View {
    fn get(&mut self, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Option<String>, Failure> {
        let grant = self.lane.grants.check_get(&self.primary, kind, namespace, name)?;
        let kind = self.known(kind, grant)?;
        let name = Name::new(namespace, name);
        let (object, changes) = self.host.state.get_with_changes(&kind, &name);
        let text = object.and_then(|object| self.lane.show_read(&kind, &object));
        self.note(Read::Get(kind, name), changes, u64::MAX, |hasher| text.hash(hasher));
        Ok(text)
    }

    fn list(&mut self, kind: &Kind, options: &ListOptions, most_bytes: u64) -> Result<Vec<String>, Failure> {
        let (grant, query) = self.lane.grants.check_list(&self.primary, kind, options)?;
        let kind = self.known(kind, grant)?;
        let candidates = self.host.state.candidates(&kind, &query);
        let (mut texts, mut last) = (Vec::new(), None);
        show_found(&self.lane, &kind, &query, &candidates, most_bytes, |object, text| {
            texts.push(text);
            last = Some(object.name.clone());
        });
        if texts.len() > MOST_FOUND {
            let problem = format!(
                "the plugin was stopped: its list of {kind} has more than {MOST_FOUND} objects; narrow it with a selector, or give it a limit"
            );
            return Err(Failure::guest(Reason::GuestLimit, problem));
        }
        let is_full = query.limit.is_some_and(|limit| texts.len() == limit as usize);
        let query = CheckedQuery {
            until: last.filter(|_| is_full),
            ..query
        };
        let read = Read::Find(kind, Arc::new(query));
        self.note(read, candidates.changes, most_bytes, |hasher| {
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
        let (log_limiter, plugin) = (&self.lane.health.log_limiter, &self.lane.plugin);
        log_limiter.log(plugin, Some(&self.primary), level, message, fields);
    }
}
