//! Owns the fourth stage: what is desired against what the cache has, object by object. Makes no request.

use std::collections::HashSet;
use std::sync::Arc;

use pilothouse_cluster::discovery::Served;
use pilothouse_cluster::object::Stored;
use pilothouse_core::answer::{Answer, DesiredObject};
use pilothouse_core::diff::{self, Action, Live, LiveEntry, Owner};
use pilothouse_core::manifest::Access;
use pilothouse_core::{Key, Kind, Name};
use serde_json::{Map, Value};

use super::validate::Validated;
use crate::hub::{Hub, Odd, State};
use crate::lane::Lane;

/// What has to be done, in this order.
pub struct Planned {
    /// The desired objects, each with what it needs.
    pub steps: Vec<Step>,
    /// Objects of ours that are not desired any more.
    pub prune: Vec<(Served, Arc<Stored>)>,
    /// The rest of the answer.
    pub answer: Answer,
    /// The owner of the children.
    pub owner: Owner,
    /// When time alone would change the answer.
    pub wake_at: Option<u64>,
    /// How often the object has failed before.
    pub attempt: u32,
}

/// One desired object.
pub struct Step {
    /// How the cluster serves its kind.
    pub served: Served,
    /// The object.
    pub desired: DesiredObject,
    /// What is sent if anything is.
    pub body: Map<String, Value>,
    /// The digest that the body carries.
    pub digest: String,
    /// What has to be done.
    pub action: Action,
}

/// Compares.
pub fn diff(hub: &Hub, lane: &Lane, owner: &Owner, validated: Validated) -> Planned {
    let Validated {
        mut answer,
        wake_at,
        attempt,
    } = validated;
    let state = hub.state.read();
    let mut wanted: HashSet<(Arc<Kind>, Name)> = HashSet::with_capacity(answer.owned.len());
    let mut steps = Vec::with_capacity(answer.owned.len());
    for desired in std::mem::take(&mut answer.owned) {
        let served = lane.served(&desired.kind).expect("validate let only served kinds pass");
        wanted.insert((served.kind.clone(), desired.name.clone()));
        let (body, digest) = diff::body(&desired, owner);
        let action = decide(&state, lane, owner, &served, &desired, &body, &digest);
        steps.push(Step {
            served,
            desired,
            body,
            digest,
            action,
        });
    }
    let prune = undesired(&state, lane, owner, &wanted);
    drop(state);
    Planned {
        steps,
        prune,
        answer,
        owner: owner.clone(),
        wake_at,
        attempt,
    }
}

fn decide(
    state: &State,
    lane: &Lane,
    owner: &Owner,
    served: &Served,
    desired: &DesiredObject,
    body: &Map<String, Value>,
    digest: &str,
) -> Action {
    let Some(object) = state.store.get(&served.kind, &desired.name) else {
        return diff::decide(desired, body, digest, owner, None);
    };
    let entry = object.entry(lane.writer.manager(), false);
    let odd = state.odd.get(&Key::new(served.kind.clone(), desired.name.clone()));
    let fields = entry.map(|entry| entry.field_set());
    let live = Live {
        controller: object.controller.as_ref().map(|controller| &*controller.uid),
        deleting: object.deleting,
        digest: object.digest.as_deref(),
        entry: entry.zip(fields.as_ref()).map(|(entry, fields)| LiveEntry {
            api_version: entry.api_version,
            fields,
            as_we_left_it: odd
                .is_some_and(|Odd { digest: applied, left }| **applied == *digest && **left == *entry.fields()),
        }),
    };
    diff::decide(desired, body, digest, owner, Some(&live))
}

/// The living children that this plugin applied for the owner and that are not wanted any more.
fn undesired(
    state: &State,
    lane: &Lane,
    owner: &Owner,
    wanted: &HashSet<(Arc<Kind>, Name)>,
) -> Vec<(Served, Arc<Stored>)> {
    let owned = lane.grants.touched().filter(|grant| grant.allows(Access::Owned));
    let mut undesired = Vec::new();
    for served in owned.filter_map(|grant| lane.served(&grant.touch.kind)) {
        let children = state.store.children(&served.kind, &owner.uid);
        let ours = children.filter(|child| child.entry(lane.writer.manager(), false).is_some() && !child.deleting);
        for child in ours {
            if !wanted.contains(&(served.kind.clone(), child.name.clone())) {
                undesired.push((served.clone(), child.clone()));
            }
        }
    }
    undesired
}
