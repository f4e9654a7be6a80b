//! Fingerprints of reads, and the check whether a read would return something else now. Its inputs are taken from the
//! cache in one moment, and compared later without it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use pilothouse_cluster::cache::store::{QueryCandidates, Store};
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::Kind;
use pilothouse_core::reads::dependencies::read::Read;
use pilothouse_core::reads::query::CheckedQuery;

use crate::lanes::lane::Lane;

/// The most objects that one query shows; a call that exceeds it is stopped.
pub const MOST_FOUND: usize = 100_000;

/// Fingerprint of the answer to a read.
#[derive(Clone, Copy, Debug)]
pub struct ReadFingerprint {
    /// Count of the kind's changes at that moment; while it is unchanged, so is the answer.
    changes: u64,
    fingerprint: u64,
    /// Upper bound of the answer's size in bytes.
    most_bytes: u64,
}

/// A read whose answer may have changed, with the inputs of a new answer.
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
    /// Makes the fingerprint of the answer that `hash` hashes, at this count of the kind's changes.
    pub fn new(changes: u64, most_bytes: u64, hash: impl FnOnce(&mut DefaultHasher)) -> Self {
        let mut hasher = DefaultHasher::new();
        hash(&mut hasher);
        Self {
            changes,
            fingerprint: hasher.finish(),
            most_bytes,
        }
    }

    /// Captures the inputs of a new answer, if it may differ. Decodes nothing.
    pub fn recheck(self, store: &Store, read: &Read) -> Option<Recheck> {
        let kind = read.kind();
        if store.changes(kind) == self.changes {
            return None;
        }
        let asked = match read {
            Read::Get(kind, name) | Read::Obstacle(kind, name) => RecheckedRead::Object(store.get(kind, name).cloned()),
            Read::List(kind, query) => RecheckedRead::Query(query.clone(), store.candidates(kind, query)),
            // Not a read of its own: the summary of several recorded reads.
            Read::Some(_) | Read::SomeObstacles(_) => RecheckedRead::Object(None),
        };
        Some(Recheck {
            kind: kind.clone(),
            asked,
            answered: self,
        })
    }
}

/// Up to this many objects are compared on the reconcile's thread, more on a thread of their own.
const FEW: usize = 64;

impl Recheck {
    /// Returns `true` if the comparison takes negligible time.
    pub fn is_quick(&self) -> bool {
        match &self.asked {
            RecheckedRead::Object(_) => true,
            RecheckedRead::Query(_, candidates) => candidates.len() <= FEW,
        }
    }

    /// Returns `true` if the answer would differ.
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

/// Shows the results of a query, until it has all, or as many as it wants, or the size limit is exceeded.
pub fn show_found(
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
