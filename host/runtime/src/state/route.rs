//! Decides which primaries a change of an object requeues: the primary itself, the owner of a child, the primaries that
//! have read the object, and those that have claims on it.

use std::collections::BTreeSet;
use std::sync::Arc;

use pilothouse_cluster::cache::store::ObjectChange;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::ownership::OwnerLink;
use pilothouse_core::reads::dependencies::Woken;
use pilothouse_core::{Key, Kind, Name};

use super::Tables;
use crate::lanes::custody::{
    Custody, children_of, custody, is_labelled, is_orphaning, is_ours, is_primary_of, is_stripped, is_unbound,
};
use crate::lanes::lane::Lane;
use crate::lanes::pause::{is_pause_changed, is_paused, is_requested};
use crate::lanes::primary::{LaneId, PrimaryRef};
use crate::lanes::snapshot::Lanes;
use crate::queue::{Cause, Priority, Trigger, TriggerReason};
use crate::state::tables::echo::ChangeOrigin;
use crate::state::tables::orphans::Witness;
use crate::state::tables::refusals::RefusedPart;
use crate::state::tables::visibility::ChangeVisibility;

impl Tables {
    /// Enqueues every primary that a change affects.
    pub(super) fn route(&mut self, lanes: &Lanes, change: &ObjectChange, seen: &ChangeVisibility) {
        let writer = match self.own_writes.observe(lanes, &mut self.queue, change) {
            ChangeOrigin::Ours(writer) => Some(writer),
            ChangeOrigin::Others => None,
        };
        let by_us = writer.is_some();
        for lane in lanes.of_kind(&change.kind) {
            if !self.queue.is_open(lane.id) {
                continue;
            }
            let is_primary = *lane.grants.primary() == *change.kind;
            if is_primary {
                self.count_selected(lane, change);
                for object in [&change.old, &change.new].into_iter().flatten() {
                    if is_orphaning(object) {
                        self.orphans.orphan(&object.uid);
                    }
                }
            }
            // Another replica reconciles it, or the cache does not hold all that is needed for it yet.
            if !self.queue.works_at(lane.id, change.name()) {
                if is_primary && change.new.is_none() {
                    let primary_ref = PrimaryRef::new(lane.id, change.name().clone());
                    self.forget_primary(lane, &primary_ref);
                }
                continue;
            }
            if is_primary {
                self.route_primary(lane, change, seen, by_us);
            }
            if is_touched(lane, change) && !is_held_alike(lane, change) {
                self.route_child(lane, change, by_us);
            }
        }
        self.contributions.target_changed(&mut self.queue, change);
        self.wake_readers(change, seen, writer.as_ref());
        if change.new.is_none() {
            // A new object of the same name is not judged by what is remembered of this one.
            let key = Key::new(change.kind.clone(), change.name().clone());
            for part in RefusedPart::OF_STATUS {
                self.refusals.forget(key.clone(), part);
            }
            self.unpersisted.forget(&key);
        }
    }

    fn count_selected(&mut self, lane: &Lane, change: &ObjectChange) {
        let [was_selected, is_selected] = selection(lane, change);
        if let Some(count) = self.selected.get_mut(&lane.id) {
            *count = *count + usize::from(is_selected) - usize::from(was_selected);
        }
    }

    fn route_primary(&mut self, lane: &Lane, change: &ObjectChange, seen: &ChangeVisibility, by_us: bool) {
        let name = change.name();
        let [was_selected, is_selected] = selection(lane, change);
        let Some(new) = &change.new else {
            return self.primary_gone(lane, name, change.old.as_deref());
        };
        if lane.is_former {
            if self.has_left_something(lane, new) {
                self.queue
                    .push(lane.id, name, Priority::Resync, TriggerReason::ObjectChanged);
            }
            return;
        }
        let (is_switched, is_requested) = (is_pause_changed(change), is_requested(change));
        // A paused object that has left the filter is cleaned up when it is resumed.
        if !is_selected && !was_selected && !is_switched {
            return;
        }
        if is_paused(new) {
            self.pause(lane, &PrimaryRef::new(lane.id, name.clone()), is_selected);
        } else {
            self.paused.remove(lane.id, name);
        }
        let is_steered = is_switched || is_requested;
        let status_drifts = || lane.brings_crd && !by_us && seen.status_differs();
        if is_steered || seen.primary_differs(lane) || status_drifts() {
            let cause = if is_steered && !by_us {
                Cause::Edit
            } else {
                seen.cause(by_us)
            };
            let trigger = if is_requested {
                TriggerReason::Requested
            } else {
                TriggerReason::ObjectChanged
            };
            self.queue.push_for(lane.id, name, Priority::Change, cause, trigger);
        }
    }

    /// Forgets what wakes a paused primary beside changes of its own, and treats its claims as unknown. `is_counted` is set if it
    /// is one of the lane's.
    pub(super) fn pause(&mut self, lane: &Lane, primary_ref: &PrimaryRef, is_counted: bool) {
        self.forget_wakers(primary_ref);
        self.contributions.suspend(lane, primary_ref);
        if is_counted {
            self.paused.insert(primary_ref);
        } else {
            self.paused.remove(primary_ref.lane, &primary_ref.name);
        }
    }

    fn primary_gone(&mut self, lane: &Lane, name: &Name, old: Option<&CachedObject>) {
        let primary_ref = PrimaryRef::new(lane.id, name.clone());
        self.forget_primary(lane, &primary_ref);
        self.queue.forget(lane.id, name);
        self.history.forget(&primary_ref);
        lane.health.gone(lane.id, name);
        if let Some(old) = old
            && lane.selects(name)
            && self.has_left_children(lane, &old.uid)
        {
            let witness = self.orphans.witness(lane.id, &old.uid);
            self.orphans.add(primary_ref, old.uid.clone(), witness);
            self.queue
                .push(lane.id, name, Priority::Change, TriggerReason::ObjectChanged);
        } else if let Some(old) = old {
            self.orphans.collected(&primary_ref, &old.uid);
        }
    }

    /// Returns `true` if a deleted primary has children that the garbage collector does not delete, or not all of them.
    fn has_left_children(&self, lane: &Lane, uid: &str) -> bool {
        let is_orphaned = self.orphans.is_orphaned(uid);
        let mut children = children_of(&self.store, lane, uid);
        children.any(|(_, child)| is_orphaned || is_labelled(child) || is_stripped(child))
            || self.orphans.unbound(lane.id, uid).next().is_some()
    }

    /// Requeues the owner of a child, unless by its own write. A child whose owner is gone has to be collected, whoever
    /// wrote it: the owner may have been deleted while the child was being created.
    fn route_child(&mut self, lane: &Lane, change: &ObjectChange, by_us: bool) {
        let (mut woken, mut key) = (BTreeSet::new(), None);
        for child in [change.old.as_ref(), change.new.as_ref()].into_iter().flatten() {
            if let Some(Custody::Living(owner)) = custody(&self.store, lane, child)
                && !by_us
            {
                woken.insert(owner);
            }
        }
        if let Some(child) = &change.new
            && let Some(Custody::Orphaned(owner, uid)) = custody(&self.store, lane, child)
        {
            let primary_ref = PrimaryRef::new(lane.id, owner.clone());
            self.orphans.add(primary_ref, uid, Witness::Unseen);
            woken.insert(owner);
        }
        woken.extend(self.unbind(lane, change));
        for owner in woken {
            if change.new.is_none() {
                self.orphans.lose_child(PrimaryRef::new(lane.id, owner.clone()));
            }
            let child = key.get_or_insert_with(|| key_of(change)).clone();
            let trigger = Trigger::of(TriggerReason::ChildChanged, child);
            self.queue.push(lane.id, &owner, Priority::Change, trigger);
        }
    }

    /// Records that a child has lost its owner reference, as every child of an owner does that is deleted with orphan
    /// propagation. Returns the owner's name.
    fn unbind(&mut self, lane: &Lane, change: &ObjectChange) -> Option<Name> {
        let (old, new) = (change.old.as_ref()?, change.new.as_ref()?);
        let controller = old.controller.as_ref().filter(|it| is_primary_of(lane, it))?;
        if controller.bond != OwnerLink::Reference || new.uid != old.uid || !is_unbound(lane, new) {
            return None;
        }
        let primary = lane.served(lane.grants.primary())?;
        let owner = Name {
            namespace: new.name.namespace.clone().filter(|_| primary.facts.namespaced),
            name: controller.name.clone(),
        };
        let primary_ref = PrimaryRef::new(lane.id, owner.clone());
        self.orphans
            .unbind(lane.id, &controller.uid, Key::clone(&key_of(change)));
        let is_there = self.store.get(&primary.kind, &owner);
        if is_there.is_some_and(|it| it.uid == controller.uid) {
            self.orphans.lose_child(primary_ref);
        } else if lane.selects(&owner) {
            self.orphans.add(primary_ref, controller.uid.clone(), Witness::Seen);
        }
        Some(owner)
    }

    /// Requeues every primary that has read the changed object. `writer` is set if the change may show a write of ours
    /// made for it.
    fn wake_readers(&mut self, change: &ObjectChange, seen: &ChangeVisibility, writer: Option<&PrimaryRef>) {
        let Woken { readers, groups } = self.dependencies.woken(&change.kind, change.name(), seen);
        if readers.is_empty() && groups.is_empty() {
            return;
        }
        // Shared by all requeued primaries.
        let trigger = Trigger::of(TriggerReason::DependencyChanged, key_of(change));
        let cause_for = |reader: &PrimaryRef| match writer {
            None => Cause::Others,
            Some(writer) if writer == reader && !self.is_itself(reader, change) => Cause::Echo,
            Some(_) => Cause::Ours,
        };
        let readers: Vec<_> = readers.into_iter().map(|reader| (cause_for(&reader), reader)).collect();
        for (cause, PrimaryRef { lane, name }) in readers {
            self.queue.push_for(lane, &name, Priority::Wake, cause, trigger.clone());
        }
        let cause = if writer.is_some() { Cause::Ours } else { Cause::Others };
        self.wake_groups(&groups, cause, &trigger);
    }

    /// Wakes whoever desires objects of a kind that was not served, after it has been listed.
    pub(super) fn wake_waiting(&mut self, kind: &Arc<Kind>) {
        let Woken { readers, groups } = self.dependencies.waiting_for(kind);
        let trigger = Trigger::from(TriggerReason::Started);
        for PrimaryRef { lane, name } in readers {
            self.queue
                .push_for(lane, &name, Priority::Wake, Cause::Others, trigger.clone());
        }
        self.wake_groups(&groups, Cause::Others, &trigger);
    }

    fn wake_groups(&mut self, groups: &BTreeSet<LaneId>, cause: Cause, trigger: &Trigger) {
        for lane in groups.iter().filter_map(|id| self.lanes.get(*id)) {
            let primaries = self.store.iter(lane.grants.primary(), None);
            for primary in primaries.filter(|primary| lane.reconciles(primary)) {
                self.queue
                    .push_for(lane.id, &primary.name, Priority::Wake, cause, trigger.clone());
            }
        }
    }

    /// Returns `true` if the changed object is the primary itself.
    fn is_itself(&self, primary_ref: &PrimaryRef, change: &ObjectChange) -> bool {
        let lane = self.lanes.get(primary_ref.lane);
        *change.name() == primary_ref.name && lane.is_some_and(|lane| *lane.grants.primary() == *change.kind)
    }

    /// Forgets all that was recorded for a primary that was deleted, or will be without another call of the plugin.
    pub(super) fn forget_primary(&mut self, lane: &Lane, primary_ref: &PrimaryRef) {
        self.forget_wakers(primary_ref);
        self.orphans.forget(primary_ref);
        self.earlier_desires.forget(primary_ref);
        self.paused.remove(primary_ref.lane, &primary_ref.name);
        self.withdraw(lane, primary_ref);
    }

    /// Forgets the recorded reads, the waits and the preview of a primary.
    fn forget_wakers(&mut self, primary_ref: &PrimaryRef) {
        self.depend(primary_ref, BTreeSet::new());
        self.previews.forget(primary_ref);
        self.competing_waits.forget(primary_ref);
        self.namespace_waits.forget(primary_ref);
    }

    /// Returns `true` if something is left of a controller that no longer exists: a finalizer or children.
    fn has_left_something(&self, lane: &Lane, object: &CachedObject) -> bool {
        lane.selects(&object.name)
            && (lane.has_finalized(object) || children_of(&self.store, lane, &object.uid).next().is_some())
    }
}

fn key_of(change: &ObjectChange) -> Arc<Key> {
    Arc::new(Key::new(change.kind.clone(), change.name().clone()))
}

fn is_touched(lane: &Lane, change: &ObjectChange) -> bool {
    [&change.old, &change.new]
        .into_iter()
        .flatten()
        .any(|object| is_ours(lane, object))
}

/// Returns `true` if the fields that the plugin owns did not change: fields of others, or its own contributions, do not
/// concern the owner.
fn is_held_alike(lane: &Lane, change: &ObjectChange) -> bool {
    let is_held_like =
        |old: &Arc<CachedObject>, new: &CachedObject| old.is_held_like(new, |manager| manager == lane.writer.manager());
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => is_held_like(old, new),
        _ => false,
    }
}

/// Returns whether a lane reconciled an object before a change, and whether it does after it.
fn selection(lane: &Lane, change: &ObjectChange) -> [bool; 2] {
    [&change.old, &change.new].map(|object| object.as_ref().is_some_and(|object| lane.reconciles(object)))
}
