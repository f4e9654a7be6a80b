//! Lists pending waits, and ends one that nothing else has ended. [`crate::watches::watchdog`] decides which.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pilothouse_cluster::object::CachedObject;
use pilothouse_core::Key;
use tokio::time::Instant;

use crate::lanes::lane::Lane;
use crate::lanes::primary::PrimaryRef;
use crate::queue::{Priority, TriggerReason};
use crate::state::tables::claims::TargetId;
use crate::state::tables::echo::AwaitedEcho;
use crate::state::{SharedState, Tables};

/// A pending wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PendingWait {
    /// A primary waits for the cache to show one of its writes.
    Echo(Key, PrimaryRef, AwaitedEcho),
    /// A primary waits for the cache to show what was contributed for it.
    Contributed(TargetId, PrimaryRef, Box<str>),
    /// Primaries wait for the settlement of a target that was not started.
    Claims(TargetId),
    /// A write waits for its response.
    Write(Key, PrimaryRef, Instant),
    /// A primary is held without a known reason: its holds exceed the reasons by this number.
    Held(PrimaryRef, u32),
}

impl SharedState {
    /// All pending waits.
    pub fn pending_waits(&self) -> HashSet<PendingWait> {
        self.tables.read().pending_waits()
    }

    /// Ends a wait and requeues its primary.
    pub fn end_wait(&self, wait: &PendingWait) {
        let mut tables = self.tables.write();
        let Tables {
            queue,
            own_writes,
            contributions,
            ..
        } = &mut *tables;
        let primary_ref = match wait {
            PendingWait::Echo(key, primary_ref, _) => {
                own_writes.forget_awaited(queue, key);
                Some(primary_ref)
            }
            PendingWait::Contributed(id, primary_ref, version) => {
                contributions.forget_unseen(queue, id, primary_ref, version);
                Some(primary_ref)
            }
            PendingWait::Claims(id) => {
                contributions.mark(id.clone());
                None
            }
            PendingWait::Write(_, primary_ref, _) => {
                own_writes.abandon(primary_ref);
                Some(primary_ref)
            }
            PendingWait::Held(primary_ref, surplus) => {
                for _ in 0..*surplus {
                    queue.release(primary_ref.lane, &primary_ref.name);
                }
                Some(primary_ref)
            }
        };
        if let Some(primary_ref) = primary_ref
            && tables.lanes.get(primary_ref.lane).is_some()
        {
            tables.queue.push(
                primary_ref.lane,
                &primary_ref.name,
                Priority::Change,
                TriggerReason::Watchdog,
            );
        }
        drop(tables);
        self.work.notify_one();
        self.claims.notify_one();
    }

    /// Lane of a primary, and an object as cached.
    pub fn lane_and_object(
        &self,
        primary_ref: &PrimaryRef,
        key: &Key,
    ) -> (Option<Arc<Lane>>, Option<Arc<CachedObject>>) {
        let tables = self.tables.read();
        let object = tables.store.get(&key.kind, &key.name).cloned();
        (tables.lanes.get(primary_ref.lane).cloned(), object)
    }
}

impl Tables {
    fn pending_waits(&self) -> HashSet<PendingWait> {
        let mut reasons: HashMap<&PrimaryRef, u32> = HashMap::new();
        let mut waits = HashSet::new();
        for (key, awaited, primary_ref) in self.own_writes.awaited() {
            *reasons.entry(primary_ref).or_default() += 1;
            waits.insert(PendingWait::Echo(key.clone(), primary_ref.clone(), awaited.clone()));
        }
        for (id, version, primary_ref) in self.contributions.unseen() {
            *reasons.entry(primary_ref).or_default() += 1;
            waits.insert(PendingWait::Contributed(id, primary_ref.clone(), version.into()));
        }
        waits.extend(self.contributions.awaited_settlements().map(PendingWait::Claims));
        let in_flight = self.own_writes.in_flight();
        waits.extend(
            in_flight.map(|(key, primary_ref, since)| PendingWait::Write(key.clone(), primary_ref.clone(), since)),
        );
        for (lane, name, held) in self.queue.held() {
            let primary_ref = PrimaryRef::new(lane, name.clone());
            let surplus = held.saturating_sub(reasons.get(&primary_ref).copied().unwrap_or_default());
            if surplus > 0 {
                waits.insert(PendingWait::Held(primary_ref, surplus));
            }
        }
        waits
    }
}
