//! State of a plan while it is carried out: the objects that others come after, and those that are made once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::Key;
use pilothouse_core::answer::desired::DesiredObject;
use pilothouse_core::ownership::Owner;
use pilothouse_core::ownership::once::Memory;

use crate::lanes::lane::Lane;
use crate::reconcile::diff::{PlannedObject, memory};

/// The order of the objects of a plan.
pub struct Order {
    /// Desired objects that are as desired now, if any comes after another one. Those that were written are as the server
    /// returned them.
    pub(super) made: Option<HashMap<Key, (ServedKind, Arc<CachedObject>)>>,
    /// Messages about the objects that wait for others.
    pub(super) waits: Vec<String>,
    pub(super) followers: Vec<Follower>,
}

impl Order {
    /// Returns the order of these steps.
    pub(in crate::reconcile) fn of(steps: &[PlannedObject], owner: &Owner) -> Self {
        let is_ordered = |step: &PlannedObject| !step.desired.after.is_empty() || step.desired.once.is_some();
        let made = steps.iter().filter(|step| is_made(step, owner));
        Self {
            made: steps.iter().any(is_ordered).then(HashMap::new),
            waits: Vec::new(),
            followers: made.filter_map(Follower::of).collect(),
        }
    }

    /// The object of this key, if it is as desired now.
    pub(super) fn made(&self, key: &Key) -> Option<&(ServedKind, Arc<CachedObject>)> {
        self.made.as_ref()?.get(key)
    }
}

/// An object that exists, comes after others, and may be recreated.
#[derive(Clone)]
pub(super) struct Follower {
    pub(super) served: ServedKind,
    pub(super) live: Arc<CachedObject>,
    pub(super) key: Key,
    pub(super) after: Vec<Key>,
}

impl Follower {
    /// Returns the object of a step if it is one.
    fn of(step: &PlannedObject) -> Option<Self> {
        let DesiredObject {
            served,
            lifecycle,
            after,
            ..
        } = &step.desired;
        let may_go = !after.is_empty() && (lifecycle.recreate || lifecycle.replace);
        let live = step.live.as_ref().filter(|_| may_go)?;
        Some(Self {
            served: served.clone(),
            live: live.clone(),
            key: step.key(),
            after: after.clone(),
        })
    }
}

/// The objects of a plan that are made once.
pub struct OncePlan {
    pub(super) steps: Vec<OnceStep>,
    /// The note of the cached primary.
    pub(super) memory: Memory,
    /// Objects that were made and are gone, each with whether it was seen to be Current.
    gone: HashMap<Key, bool>,
}

/// A desired object that is made once.
pub(super) struct OnceStep {
    pub(super) key: Key,
    pub(super) token: String,
    /// Set if others come after it.
    pub(super) is_awaited: bool,
}

impl OncePlan {
    /// Returns those of these steps.
    pub(in crate::reconcile) fn of(
        lane: &Lane,
        steps: &[PlannedObject],
        owner: &Owner,
        primary: Option<&CachedObject>,
    ) -> Self {
        let memory = memory(lane, owner, primary);
        let awaited: HashSet<&Key> = steps.iter().flat_map(|step| &step.desired.after).collect();
        let (mut once, mut gone) = (Vec::new(), HashMap::new());
        for step in steps {
            let Some(token) = step.desired.once.clone() else {
                continue;
            };
            let key = step.key();
            if step.live.is_none() {
                let made = memory.made(&key, &token);
                gone.extend(made.map(|was_current| (key.clone(), was_current)));
            }
            once.push(OnceStep {
                is_awaited: awaited.contains(&key),
                key,
                token,
            });
        }
        Self {
            steps: once,
            memory,
            gone,
        }
    }

    /// Reports whether an object that was made and is gone was seen to be Current; none if it is not such an object.
    pub(super) fn gone(&self, key: &Key) -> Option<bool> {
        self.gone.get(key).copied()
    }
}

/// Returns `true` if an object was created for an owner before, as far as the cache knows.
pub(in crate::reconcile) fn is_made(step: &PlannedObject, owner: &Owner) -> bool {
    let controller = step.live.as_ref().and_then(|live| live.controller.as_ref());
    controller.is_some_and(|controller| *controller.uid == *owner.uid)
}
