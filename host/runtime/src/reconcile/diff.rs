//! The fourth stage: compares desired objects with the cache, one by one. Makes no requests except for the types of a
//! kind, once, if our entry alone does not tell whether a field was taken.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use pilothouse_cluster::apart::weigh;
use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::object::{AppliedFields, CachedObject, ControllerRef};
use pilothouse_core::answer::CheckedAnswer;
use pilothouse_core::answer::desired::DesiredObject;
use pilothouse_core::diff::order::{ToGo, first_to_go, in_order, waits};
use pilothouse_core::diff::yielding::{self, Location};
use pilothouse_core::diff::{self, Action, Difference, LiveEntry, LiveOwnership};
use pilothouse_core::ownership::once::{Memory, ONCE_ANNOTATION};
use pilothouse_core::ownership::{CurrentOwner, Owner, OwnerLink};
use pilothouse_core::plugin::contract::Propagation;
use pilothouse_core::plugin::manifest::ONCE;
use pilothouse_core::{Key, Kind, Name};
use serde_json::{Map, Value};

use super::validate::Validated;
use crate::context::HostContext;
use crate::context::competing_plugins::competing_plugin;
use crate::lanes::lane::Lane;
use crate::state::tables::unpersisted::UnpersistedApply;
use crate::state::{DiffSnapshot, LeftChild, ObjectSnapshot, OwnerSnapshot};

/// The plan, in the order in which it is carried out.
pub struct Planned {
    /// Desired objects, each with its action.
    pub steps: Vec<PlannedObject>,
    /// Objects of ours that are no longer desired.
    pub prune: Vec<LeftChild>,
    /// Objects of ours that are no longer desired, each with one that comes after it and has to be gone before.
    pub later: Vec<(LeftChild, LeftChild)>,
    /// Objects of ours that are no longer desired, and are held by the garbage collector until it has dealt with their
    /// dependents.
    pub going: Vec<LeftChild>,
    /// Desired fields of objects that others own.
    pub contributed: Vec<DesiredObject>,
    /// Rest of the answer.
    pub answer: CheckedAnswer,
    /// Owner of the children.
    pub owner: Owner,
    /// Time at which the answer would change without other changes, in milliseconds since the epoch.
    pub wake_at: Option<u64>,
    /// Set if bodies that the server has refused are sent again, because somebody has requested the reconcile.
    pub sends_refused: bool,
}

/// One desired object.
pub struct PlannedObject {
    /// The object, without its body.
    pub desired: DesiredObject,
    /// The whole body.
    pub body: Map<String, Value>,
    /// Fields of it that are left to other managers.
    pub yielded: Vec<Location>,
    /// Digest in the body.
    pub digest: String,
    /// The object as cached.
    pub live: Option<Arc<CachedObject>>,
    /// Action to take.
    pub action: Action,
}

impl PlannedObject {
    /// Key of the object.
    pub fn key(&self) -> Key {
        key(&self.desired.served, &self.desired.name)
    }

    /// Our entry in the cached object.
    pub fn entry(&self, lane: &Lane) -> Option<AppliedFields<'_>> {
        self.live.as_ref()?.entry(lane.writer.manager(), false)
    }

    /// The body to send.
    pub fn sent(&self) -> Cow<'_, Map<String, Value>> {
        if self.yielded.is_empty() {
            Cow::Borrowed(&self.body)
        } else {
            Cow::Owned(yielding::without(&self.body, &self.yielded))
        }
    }

    /// The same step after another look at its object.
    pub fn with(self, Decision { action, yielded }: Decision) -> Self {
        Self {
            yielded,
            action,
            ..self
        }
    }

    /// Returns `true` if it is carried out only once the objects that it comes after are Current.
    pub fn waits(&self, lane: &Lane) -> bool {
        let applied = self.live.as_ref().and_then(|live| live.digest.as_deref());
        let may_be_taken_over = self.action == Action::Foreign && !lane.former_managers.is_empty();
        !self.desired.after.is_empty() && (may_be_taken_over || waits(&self.action, applied, &self.digest))
    }

    fn is_unclear(&self) -> bool {
        self.action == Action::Apply(Difference::Unclear)
    }
}

/// Decision about an object.
pub struct Decision {
    /// Action to take.
    pub action: Action,
    /// Fields that are left to other managers.
    pub yielded: Vec<Location>,
}

/// Context in which an owner's objects are decided.
pub struct Decider<'a> {
    /// The host.
    pub host: &'a HostContext,
    /// The lane that desires them.
    pub lane: &'a Lane,
    /// Their owner.
    pub owner: &'a Owner,
    /// Owner and lanes as cached.
    pub snapshot: OwnerSnapshot,
    /// Set if values that the server rewrites are applied once more.
    pub is_resync: bool,
    /// Objects that were made once for the owner.
    pub memory: Memory,
}

/// Compares the desired objects with the cache.
///
/// At a resync, values that the server rewrites are planned to be applied once more.
pub async fn diff(host: &HostContext, lane: &Lane, owner: &Owner, validated: Validated, is_resync: bool) -> Planned {
    let mut planned = compare(host, lane, owner, validated, is_resync).await;
    let unclear = planned.steps.iter().filter(|step| step.is_unclear());
    let kinds: BTreeSet<Kind> = unclear.map(|step| step.desired.kind().clone()).collect();
    for kind in &kinds {
        if let Err(error) = host.schemas.types_or_free(kind).await {
            tracing::warn!(
                lane = lane.title(), owner = %owner.name, %kind, %error,
                "cannot ask the API server how objects of this kind are merged, so whether one was changed is unclear; it is applied again"
            );
        }
    }
    if !kinds.is_empty() {
        let decider = Decider::new(host, lane, owner);
        for step in planned.steps.iter_mut().filter(|step| step.is_unclear()) {
            step.action = decider.decide(step).action;
        }
    }
    planned
}

async fn compare(host: &HostContext, lane: &Lane, owner: &Owner, validated: Validated, is_resync: bool) -> Planned {
    let Validated { mut answer, wake_at } = validated;
    let owned = in_order(std::mem::take(&mut answer.owned));
    let contributed = std::mem::take(&mut answer.contributed);
    let keys: Vec<Key> = owned
        .iter()
        .map(|desired| key(&desired.served, &desired.name))
        .collect();
    let DiffSnapshot {
        owner: snapshot,
        objects,
        children,
    } = host.state.diff_snapshot(lane, owner, &keys);
    let bytes = |object: &ObjectSnapshot| object.live.as_ref().map_or(0, |live| live.bytes());
    weigh(objects.iter().map(bytes).sum()).await;
    let decider = Decider {
        host,
        lane,
        owner,
        memory: memory(lane, owner, snapshot.primary.as_deref()),
        snapshot,
        is_resync,
    };
    let step = |(desired, object): (_, ObjectSnapshot)| {
        let ObjectSnapshot { live, unpersisted } = object;
        decider.plan(desired, live, unpersisted.as_ref())
    };
    let steps = owned.into_iter().zip(objects).map(step).collect();
    let Undesired { going, prune, later } = undesired(lane, children, owner, &keys.into_iter().collect());
    Planned {
        steps,
        prune,
        later,
        going: going
            .into_iter()
            .filter(|(_, child)| is_held_by_collector(lane, child))
            .collect(),
        contributed,
        answer,
        owner: owner.clone(),
        wake_at,
        sends_refused: false,
    }
}

impl<'a> Decider<'a> {
    /// Makes a decider for the present state.
    pub fn new(host: &'a HostContext, lane: &'a Lane, owner: &'a Owner) -> Self {
        let snapshot = host.state.owner_snapshot(owner);
        Self {
            host,
            lane,
            owner,
            memory: memory(lane, owner, snapshot.primary.as_deref()),
            snapshot,
            is_resync: false,
        }
    }

    /// Plans the action for a desired object.
    fn plan(
        &self,
        mut desired: DesiredObject,
        live: Option<Arc<CachedObject>>,
        unpersisted: Option<&UnpersistedApply>,
    ) -> PlannedObject {
        let (body, digest) = diff::body(&mut desired, self.owner);
        let step = PlannedObject {
            desired,
            body,
            digest,
            live,
            yielded: Vec::new(),
            action: Action::Nothing,
        };
        let decision = self.decision(&step, unpersisted);
        step.with(decision)
    }

    /// Decides the action of a step from its object.
    pub fn decide(&self, step: &PlannedObject) -> Decision {
        let unpersisted = self
            .host
            .state
            .unpersisted(&key(&step.desired.served, &step.desired.name));
        self.decision(step, unpersisted.as_ref())
    }

    fn decision(&self, step: &PlannedObject, unpersisted: Option<&UnpersistedApply>) -> Decision {
        let PlannedObject {
            desired,
            body,
            digest,
            live,
            yielded: _,
            action: _,
        } = step;
        let Self {
            host,
            lane,
            owner,
            snapshot,
            is_resync: _,
            memory,
        } = self;
        let Some(object) = live else {
            let is_made = |token: &String| memory.made(&key(&desired.served, &desired.name), token).is_some();
            let is_over = desired.once.as_ref().is_some_and(is_made);
            return Decision {
                action: if is_over {
                    Action::Nothing
                } else {
                    diff::decide(desired, body, digest, owner, None)
                },
                yielded: Vec::new(),
            };
        };
        let entry = object.entry(lane.writer.manager(), false);
        let fields = entry.map(|entry| entry.field_set());
        let types = host.schemas.known_types(desired.kind());
        let primary = snapshot.primary.as_deref();
        let yielded = if desired.yields.is_empty() {
            Vec::new()
        } else {
            let others = object.taken(lane.writer.manager());
            yielding::yielded(&desired.yields, body, fields.as_ref(), &others)
        };
        let live = LiveOwnership {
            holder: object.controller.as_ref().map(|it| holder(it, object, owner)),
            deleting: object.deleting,
            propagation: object.propagation(lane.writer.manager()),
            digest: object.digest.as_deref(),
            entry: entry.zip(fields.as_ref()).map(|(entry, fields)| LiveEntry {
                api_version: entry.api_version,
                fields,
                values: entry.values,
                types: types.as_deref(),
                as_we_left_it: unpersisted.is_some_and(
                    |UnpersistedApply {
                         digest: applied,
                         left,
                         rewritten,
                     }| {
                        let is_tried_again = self.is_resync && !rewritten.is_empty();
                        **applied == **digest
                            && !is_tried_again
                            && *left == UnpersistedApply::left_of(Some(entry), object)
                    },
                ),
            }),
            yielded: &yielded,
            rival: competing_plugin(&snapshot.lanes, &host.plugins, lane, (owner, primary), object),
        };
        let action = if yielded.is_empty() {
            diff::decide(desired, body, digest, owner, Some(&live))
        } else {
            let body = yielding::without(body, &yielded);
            diff::decide(desired, &body, digest, owner, Some(&live))
        };
        Decision { action, yielded }
    }
}

/// The objects that a plugin has made once for an owner, by the annotation of the owner.
pub fn memory(lane: &Lane, owner: &Owner, primary: Option<&CachedObject>) -> Memory {
    let primary = primary.filter(|_| lane.grants.lists_option(ONCE));
    let text = primary.and_then(|primary| primary.annotation(ONCE_ANNOTATION));
    Memory::read(text.as_deref(), lane.writer.manager(), &owner.uid)
}

/// Key of an object.
pub fn key(served: &ServedKind, name: &Name) -> Key {
    Key::new(served.kind.clone(), name.clone())
}

/// Returns the holder of an object, seen from an owner.
pub fn holder<'a>(controller: &'a ControllerRef, object: &CachedObject, owner: &Owner) -> CurrentOwner<'a> {
    let ControllerRef {
        bond,
        group,
        kind,
        namespace,
        name,
        uid,
    } = controller;
    let place = &owner.name.namespace;
    let is_near = match bond {
        OwnerLink::Reference => place.is_none() || *place == object.name.namespace,
        OwnerLink::Label | OwnerLink::Kept => place == namespace,
        OwnerLink::Stripped => {
            return CurrentOwner {
                uid,
                is_namesake: **uid == *owner.uid && (place.is_none() || *place == object.name.namespace),
                bond: OwnerLink::Reference,
            };
        }
    };
    CurrentOwner {
        uid,
        is_namesake: is_near && **group == *owner.kind.group && **kind == *owner.kind.kind && *name == owner.name.name,
        bond: *bond,
    }
}

/// Returns `true` if a child names the owner with its present identity, not only its UID.
pub fn is_named(child: &CachedObject, owner: &Owner) -> bool {
    let controller = child.controller.as_deref();
    controller.is_some_and(|controller| {
        let holder = holder(controller, child, owner);
        holder.uid == owner.uid && holder.is_namesake
    })
}

/// Returns `true` if a child's deletion waits for the garbage collector, as the plugin asked.
pub fn is_held_by_collector(lane: &Lane, child: &CachedObject) -> bool {
    let propagation = child.propagation(lane.writer.manager());
    propagation.is_some_and(Propagation::holds_object)
}

/// Children that this plugin applied for the owner and that are no longer wanted, in the reverse order of their creation.
/// Kept objects are excluded.
struct Undesired {
    /// Those that are being deleted.
    going: Vec<LeftChild>,
    /// Those to delete now.
    prune: Vec<LeftChild>,
    /// Those to delete later, each with one that has to be gone before.
    later: Vec<(LeftChild, LeftChild)>,
}

fn undesired(lane: &Lane, mut children: Vec<LeftChild>, owner: &Owner, wanted: &HashSet<Key>) -> Undesired {
    children.retain(|(served, child)| is_named(child, owner) && !wanted.contains(&key(served, &child.name)));
    // The order decides what a message says, so that it has to be the same each time.
    children.sort_by(|(one_served, one), (other_served, other)| {
        let rank = diff::rank(&other_served.kind).cmp(&diff::rank(&one_served.kind));
        rank.then_with(|| (&one_served.kind, &one.name).cmp(&(&other_served.kind, &other.name)))
    });
    let to_go = children.iter().map(|(served, child)| ToGo {
        kind: &served.kind,
        name: &child.name,
        after: child.after(lane.writer.manager()),
        is_going: child.deleting,
    });
    let first = first_to_go(&to_go.collect::<Vec<_>>());
    let (mut going, mut prune, mut later) = (Vec::new(), Vec::new(), Vec::new());
    for (child, first) in children.iter().zip(first) {
        match first {
            _ if child.1.deleting => going.push(child.clone()),
            Some(first) => later.push((child.clone(), children[first].clone())),
            None => prune.push(child.clone()),
        }
    }
    Undesired { going, prune, later }
}
