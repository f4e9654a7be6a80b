//! Input of a target's settlement: its state, captured from the cache and the claims in one moment, and the obstacle
//! that prevents any contribution to it.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use pilothouse_cluster::cache::store::Store;
use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::contribution::{self, Claim, Leaf, Leaves, LostClaim, Path, Standing};
use pilothouse_core::ownership::OwnerLink;
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Failure, Key, Retry};

use super::registry::Contributions;
use super::target::{TargetId, UnpersistedContribution, WaitingClaims};
use super::unclaimed::{is_given_up, lane_for};
use crate::lanes::lane::Lane;
use crate::lanes::primary::PrimaryRef;
use crate::lanes::snapshot::Lanes;
use crate::state::tables::visibility;

/// Captured state of a target, before anything of it is decoded.
pub struct CapturedTarget {
    lane: Arc<Lane>,
    served: ServedKind,
    key: Key,
    live: Option<Arc<CachedObject>>,
    claims: BTreeMap<PrimaryRef, Claim>,
    titles: BTreeMap<PrimaryRef, Arc<str>>,
    before: BTreeMap<PrimaryRef, Arc<CachedObject>>,
    refused: BTreeMap<PrimaryRef, (Failure, u64)>,
    all_known: bool,
    released: Leaves,
    unpersisted: Option<UnpersistedContribution>,
}

/// State of a target for its settlement.
pub struct TargetSnapshot {
    /// A lane of the plugin.
    pub lane: Arc<Lane>,
    /// Served kind of the target.
    pub served: ServedKind,
    /// The target, for messages.
    pub title: String,
    /// The target.
    pub key: Key,
    /// Newest known version of the target.
    pub live: Option<Arc<CachedObject>>,
    /// Its claims.
    pub claims: BTreeMap<PrimaryRef, Claim>,
    /// The primaries, for messages.
    pub titles: BTreeMap<PrimaryRef, Arc<str>>,
    /// Primaries with new claims, as they were then: their outcomes are not known yet.
    pub before: BTreeMap<PrimaryRef, Arc<CachedObject>>,
    /// Claims that the server rejected for the target's present state.
    pub refused: BTreeMap<PrimaryRef, Failure>,
    /// Set if all claims are known, so that unclaimed fields belong to nobody.
    pub all_known: bool,
    /// Fields held by dropped claims.
    pub released: Leaves,
    /// Fingerprints of what was sent and stored, if these differ.
    pub unpersisted: Option<UnpersistedContribution>,
}

impl Contributions {
    /// Captures the state of a target and takes its waiters; `None` if the target has been forgotten.
    pub fn begin_settlement(
        &mut self,
        store: &Store,
        lanes: &Lanes,
        id: &TargetId,
    ) -> Option<(WaitingClaims, CapturedTarget)> {
        let claims = self.plugins.get_mut(&id.0)?;
        let all_known = claims.settled || is_given_up(lanes, &id.0, &id.1.kind, &id.1.name);
        let target = claims.targets.get_mut(&id.1)?;
        let waiters = std::mem::take(&mut target.waiters);
        let lane = lane_for(lanes, &id.0, &id.1.kind)?.clone();
        let served = lane.served(&id.1.kind)?.clone();
        let cached = store.get(&id.1.kind, &id.1.name);
        let mut captured = CapturedTarget {
            lane,
            served,
            key: id.1.clone(),
            live: cached.map(|cached| target.best_known(cached)),
            claims: BTreeMap::new(),
            titles: BTreeMap::new(),
            before: BTreeMap::new(),
            refused: BTreeMap::new(),
            all_known,
            released: target.released.clone(),
            unpersisted: target.unpersisted,
        };
        for (primary_ref, claim) in &target.claims {
            captured.claims.insert(primary_ref.clone(), claim.claim.clone());
            captured.titles.insert(primary_ref.clone(), claim.title.clone());
            if let Some(before) = &claim.before {
                captured.before.insert(primary_ref.clone(), before.clone());
            }
            if let Some(refused) = &claim.refused {
                captured.refused.insert(primary_ref.clone(), refused.clone());
            }
        }
        Some((waiters, captured))
    }
}

impl TargetSnapshot {
    /// Decodes what was captured: a rejection counts as long as the target is unchanged.
    pub fn new(captured: CapturedTarget) -> Self {
        let CapturedTarget {
            lane,
            served,
            key,
            live,
            claims,
            titles,
            before,
            refused,
            all_known,
            released,
            unpersisted,
        } = captured;
        let now = live.as_ref().filter(|_| !refused.is_empty());
        let now = now.map(|live| refusal_fingerprint(live));
        let refused = refused.into_iter().filter(|(_, (_, against))| Some(*against) == now);
        Self {
            title: key.to_string(),
            refused: refused
                .map(|(primary_ref, (failure, _))| (primary_ref, failure))
                .collect(),
            lane,
            served,
            key,
            live,
            claims,
            titles,
            before,
            all_known,
            released,
            unpersisted,
        }
    }

    /// Claims that are settled.
    pub fn claims(&self) -> impl Iterator<Item = (&PrimaryRef, &Claim)> {
        self.claims.iter()
    }

    /// Fields that the plugin owns in the target, with their live values; none if another manager made it.
    pub fn owned(&self) -> Leaves {
        self.held_as(self.lane.writer.manager())
    }

    /// Fields that the plugin contributes to the target, with their live values.
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

    /// The claims that hold the fields in the target that the plugin contributes.
    ///
    /// A claim that was changed while no host ran holds what it held before, with another value. Then no claim has the
    /// live value; a claim whose status says that another one had the field did not hold it. A forged status gains
    /// nothing: without it, the oldest claim gets the field.
    pub fn holders<'a>(&'a self, stands: &'a Leaves) -> Standing<'a, PrimaryRef> {
        let may_be_claimed = |path: &Path, leaf: &Leaf| !self.all_known && self.released.get(path) != Some(leaf);
        // Objects and claims may be large: each object is decoded once, and only if a field needs it.
        let reported: RefCell<HashMap<&PrimaryRef, Option<String>>> = RefCell::default();
        let may_have_held = |primary_ref: &PrimaryRef, path: &Path| {
            let Some((primary_ref, before)) = self.before.get_key_value(primary_ref) else {
                return true;
            };
            let mut reported = reported.borrow_mut();
            let message = reported.entry(primary_ref);
            let message = message.or_insert_with(|| visibility::reconciled_message(before));
            let lost = held_by_another(path, &self.title);
            message.as_ref().is_none_or(|message| !message.contains(&lost))
        };
        contribution::holders(stands, &self.claims, may_be_claimed, may_have_held)
    }

    /// Failure of a claim to a field that another claim holds, or that a claim may hold that is not known yet.
    pub fn held_otherwise(&self, primary_ref: &PrimaryRef, lost: &LostClaim<PrimaryRef>) -> Failure {
        let (title, path) = (&self.title, &lost.path);
        let Some(holder) = &lost.holder else {
            let problem = format!(
                "{path} of {title} has another value, which may belong to an object that has not been reconciled since the                  host started; it is decided once all have been, and status.waitedFor of the Plugin names those that are missing"
            );
            return Failure::cluster(Reason::Waiting, problem).retry(Retry::Change);
        };
        let is_older = self.claims[holder].age < self.claims[primary_ref].age;
        let why = if is_older {
            "which is older"
        } else {
            "which had it first"
        };
        let problem = format!(
            "{} {}, {why}; it is taken over when that one lets go of it",
            held_by_another(path, title),
            self.titles[holder]
        );
        Failure::user(Reason::FieldConflict, problem)
    }

    /// Failure of a claim to a field that the plugin itself sets to another value as the target's owner.
    pub fn owned_otherwise(&self, primary_ref: &PrimaryRef, path: &Path) -> Failure {
        let controller = self.live.as_ref().and_then(|live| live.controller.as_deref());
        let controller = controller.filter(|controller| controller.bond != OwnerLink::Stripped);
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

    /// Returns the reason why nothing can be contributed to the target at all, if there is one.
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
                let labels = self.lane.grants.get(&self.key.kind)?.touch.label_selector.as_ref()?;
                if live.has_labels(labels) {
                    return None;
                }
                format!("{title} does not match {labels}, to which the manifest restricts the plugin")
            }
        };
        Some(Failure::cluster(Reason::Waiting, problem).retry(Retry::Change))
    }
}

/// Beginning of the failure message of a claim to a field that another claim holds.
fn held_by_another(path: &Path, title: &str) -> String {
    format!("{path} of {title} is held by")
}

fn missing(title: &str) -> Failure {
    let problem =
        format!("{title} does not exist, and the host does not create an object only to contribute to it; create it");
    Failure::cluster(Reason::TargetNotFound, problem).retry(Retry::Change)
}

/// Fingerprint of everything in a target for which a claim may be rejected.
pub fn refusal_fingerprint(live: &CachedObject) -> u64 {
    let mut value = live.value();
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
    }
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}
