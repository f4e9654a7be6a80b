//! Owns what a guest sees during a call: the cache through its grants, and the time. Every read is recorded.
//!
//! What a query may find is taken from the cache in one moment, under the lock; it is read, filtered and shown without it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use pilothouse_cluster::object::CachedObject;
use pilothouse_cluster::store::{QueryCandidates, Store};
use pilothouse_core::contract::{Imports, LogLevel, Query};
use pilothouse_core::dependencies::Read;
use pilothouse_core::grants::Grant;
use pilothouse_core::query::CheckedQuery;
use pilothouse_core::reach::Reach;
use pilothouse_core::reason::Reason;
use pilothouse_core::{Failure, Kind, Name};

use crate::clock;
use crate::hub::Hub;
use crate::lane::Lane;

/// The finest granularity of `clock.now`, in milliseconds.
const FINEST_GRANULARITY: u64 = 1000;

/// The most objects that one query shows; beyond it the call is stopped.
const MOST_FOUND: usize = 100_000;

/// What a read was answered.
#[derive(Clone, Copy, Debug)]
pub struct ReadFingerprint {
    /// The count of the kind's changes at that moment; as long as it stands, so does the answer.
    changes: u64,
    fingerprint: u64,
    /// How many bytes the answer might have.
    most_bytes: u64,
}

/// A read whose answer may be another by now: what it would be answered from.
pub struct Recheck {
    kind: Arc<Kind>,
    asked: RecheckedRead,
    answered: ReadFingerprint,
}

enum RecheckedRead {
    Object(Option<Arc<CachedObject>>),
    Query(Arc<CheckedQuery>, QueryCandidates),
}

impl ReadFingerprint {
    /// What the read would be answered from now, if that may be something else. Nothing is read of it yet.
    pub fn recheck(self, store: &Store, read: &Read) -> Option<Recheck> {
        let kind = read.kind();
        if store.changes(kind) == self.changes {
            return None;
        }
        let asked = match read {
            Read::Get(kind, name) | Read::Obstacle(kind, name) => RecheckedRead::Object(store.get(kind, name).cloned()),
            Read::Find(kind, query) => RecheckedRead::Query(query.clone(), store.candidates(kind, query)),
            // Nobody reads so; it is what is remembered of reads.
            Read::Some(_) | Read::SomeObstacles(_) => RecheckedRead::Object(None),
        };
        Some(Recheck {
            kind: kind.clone(),
            asked,
            answered: self,
        })
    }
}

/// So many objects are looked at again where the reconcile runs, rather than on a thread of their own.
const FEW: usize = 64;

impl Recheck {
    /// Whether it takes no time worth speaking of.
    pub fn is_quick(&self) -> bool {
        match &self.asked {
            RecheckedRead::Object(_) => true,
            RecheckedRead::Query(_, candidates) => candidates.len() <= FEW,
        }
    }

    /// Whether the answer would be another.
    pub fn is_outdated(&self, lane: &Lane) -> bool {
        let mut hasher = DefaultHasher::new();
        match &self.asked {
            RecheckedRead::Object(object) => {
                let object = object.as_ref();
                let text = object.and_then(|object| lane.show_read(&self.kind, object));
                text.hash(&mut hasher);
            }
            RecheckedRead::Query(query, candidates) => {
                let most_bytes = self.answered.most_bytes;
                show_found(lane, &self.kind, query, candidates, most_bytes, |_, text| {
                    text.hash(&mut hasher);
                });
            }
        }
        hasher.finish() != self.answered.fingerprint
    }
}

/// Shows what a query finds, until it is all, or as many as the query wants, or more than may be shown.
fn show_found(
    lane: &Lane,
    kind: &Kind,
    query: &CheckedQuery,
    candidates: &QueryCandidates,
    most_bytes: u64,
    mut show: impl FnMut(&Arc<CachedObject>, String),
) {
    let shown = candidates
        .found(query)
        .filter_map(|object| Some((object, lane.show_read(kind, object)?)));
    let most = query.limit.map_or(usize::MAX, |limit| limit as usize);
    let mut bytes = 0;
    for (object, text) in shown.take(most.min(MOST_FOUND + 1)) {
        bytes += text.len() as u64;
        show(object, text);
        if bytes > most_bytes {
            return;
        }
    }
}

/// The cache and the clock as one call sees them, and what it asked.
pub struct View {
    hub: Arc<Hub>,
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
    fn note(&mut self, read: Read, changes: u64, most_bytes: u64, hash: impl FnOnce(&mut DefaultHasher)) {
        let mut hasher = DefaultHasher::new();
        hash(&mut hasher);
        let fingerprint = hasher.finish();
        self.reads.entry(read).or_insert(ReadFingerprint {
            changes,
            fingerprint,
            most_bytes,
        });
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
                Reason::NotSynced,
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
        let (object, changes) = {
            let store = &self.hub.state.read().store;
            (store.get(&kind, &name).cloned(), store.changes(&kind))
        };
        let text = object.and_then(|object| self.lane.show_read(&kind, &object));
        self.note(Read::Get(kind, name), changes, u64::MAX, |hasher| text.hash(hasher));
        Ok(text)
    }

    fn find(&mut self, kind: &Kind, query: &Query, most_bytes: u64) -> Result<Vec<String>, Failure> {
        let (grant, query) = self.lane.grants.check_find(kind, query)?;
        let kind = self.known(kind, grant)?;
        let draft = self.hub.state.read().store.draft_index(&kind, &query);
        if let Some(draft) = draft {
            let index = draft.build();
            self.hub.state.write().store.add_index(&kind, index);
        }
        let candidates = self.hub.state.read().store.candidates(&kind, &query);
        let (mut texts, mut last) = (Vec::new(), None);
        show_found(&self.lane, &kind, &query, &candidates, most_bytes, |object, text| {
            texts.push(text);
            last = Some(object.name.clone());
        });
        if texts.len() > MOST_FOUND {
            let problem = format!(
                "the plugin was stopped: its query for {kind} finds more than {MOST_FOUND} objects; narrow the query, or give it a limit"
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
