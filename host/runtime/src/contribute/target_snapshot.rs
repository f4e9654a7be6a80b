//! Takes the snapshot with which the reconcile of a target begins: everything known of it, read under the lock, and
//! whether anything can be contributed to it at all. Makes no request.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::contribution::{self, Claim, Leaves, Path};
use pilothouse_core::reason::Reason;
use pilothouse_core::{Failure, Key, Retry};

use super::claims::{TargetId, UnpersistedContribution};
use super::{target_state, unclaimed};
use crate::hub::{HostState, PrimaryRef};
use crate::lane::{Lane, has_labels};

/// What there is to look at, taken under the lock.
pub struct TargetSnapshot {
    /// A lane of the plugin.
    pub lane: Arc<Lane>,
    /// How the cluster serves the target's kind.
    pub served: ServedKind,
    /// The target, for messages.
    pub title: String,
    /// The target.
    pub key: Key,
    /// The target as it is best known.
    pub live: Option<Arc<CachedObject>>,
    /// Who wants what.
    pub claims: BTreeMap<PrimaryRef, Claim>,
    /// The primaries, for messages.
    pub titles: BTreeMap<PrimaryRef, Arc<str>>,
    /// Claims that the server did not take when the target was as it is now.
    pub refused: BTreeMap<PrimaryRef, Failure>,
    /// Whether what nobody claims is nobody's.
    pub all_known: bool,
    /// What was sent, and what the server made of it.
    pub unpersisted: Option<UnpersistedContribution>,
}

impl TargetSnapshot {
    /// Takes what is known of a target; none when it has been forgotten.
    pub fn new(state: &mut HostState, id: &TargetId) -> Option<Self> {
        let HostState {
            store,
            contributions,
            lanes,
            ..
        } = state;
        let (target, all_known) = contributions.target(id)?;
        let live = target_state::best_known(store, id, target);
        let all_known = all_known || unclaimed::is_given_up(lanes, &id.0, &id.1.kind, &id.1.name);
        let lane = unclaimed::lane_for(lanes, &id.0, &id.1.kind)?.clone();
        let served = lane.served(&id.1.kind)?.clone();
        let mut now = None;
        let mut look = Self {
            title: id.1.to_string(),
            key: id.1.clone(),
            lane,
            served,
            live,
            claims: BTreeMap::new(),
            titles: BTreeMap::new(),
            refused: BTreeMap::new(),
            all_known,
            unpersisted: target.unpersisted,
        };
        for (primary_ref, wanted) in &target.claims {
            look.claims.insert(primary_ref.clone(), wanted.claim.clone());
            look.titles.insert(primary_ref.clone(), wanted.title.clone());
            if let (Some((failure, against)), Some(live)) = (&wanted.refused, &look.live)
                && *against == *now.get_or_insert_with(|| refusal_fingerprint(live))
            {
                look.refused.insert(primary_ref.clone(), failure.clone());
            }
        }
        Some(look)
    }

    /// The claims that are looked at.
    pub fn claims(&self) -> impl Iterator<Item = (&PrimaryRef, &Claim)> {
        self.claims.iter()
    }

    /// The fields of the target that the plugin owns, with their live values: none where somebody else made it.
    pub fn owned(&self) -> Leaves {
        self.held_as(self.lane.writer.manager())
    }

    /// The fields of the target that the plugin contributes, with their live values.
    pub fn contributed(&self) -> Leaves {
        self.held_as(self.lane.contributor.manager())
    }

    fn held_as(&self, manager: &str) -> Leaves {
        let Some(live) = &self.live else {
            return Leaves::new();
        };
        let fields = live.entry(manager, false).map(|entry| entry.field_set());
        fields.map_or_else(Leaves::new, |fields| contribution::held(&fields, &live.value()))
    }

    /// What is told of a claim that wants another value than the plugin itself gives the field, as the target's owner.
    pub fn owned_otherwise(&self, primary_ref: &PrimaryRef, path: &Path) -> Failure {
        let controller = self.live.as_ref().and_then(|live| live.controller.as_deref());
        let owner = controller.map_or_else(
            || format!("{:?}", self.lane.writer.manager()),
            |controller| format!("{} {}", controller.kind, controller.name),
        );
        let (title, claimant) = (&self.title, &self.titles[primary_ref]);
        let problem = format!(
            "{path} of {title} is set by {owner}, which owns it, to something else than {claimant} contributes; it stays as its owner says: change the field in one of the two"
        );
        Failure::user(Reason::FieldConflict, problem)
    }

    /// Why nothing can be contributed to the target at all.
    pub fn obstacle(&self) -> Option<Failure> {
        let title = &self.title;
        let problem = match &self.live {
            None => {
                return Some(missing(title));
            }
            Some(live) if live.deleting => {
                format!("{title} is being deleted; what is contributed to it waits for its successor")
            }
            Some(live) => {
                let labels = self.lane.grants.get(&self.key.kind)?.touch.labels.as_ref()?;
                if has_labels(live, labels) {
                    return None;
                }
                format!("{title} does not match {labels}, to which the manifest restricts the plugin")
            }
        };
        Some(Failure::cluster(Reason::Waiting, problem).retry(Retry::Change))
    }
}

fn missing(title: &str) -> Failure {
    let problem =
        format!("{title} does not exist, and the host does not create an object only to contribute to it; create it");
    Failure::cluster(Reason::TargetNotFound, problem).retry(Retry::Change)
}

/// A fingerprint of all of a target that a claim may be refused for.
pub fn refusal_fingerprint(live: &CachedObject) -> u64 {
    let mut value = live.value();
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
    }
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}
