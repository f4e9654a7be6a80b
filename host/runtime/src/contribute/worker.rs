//! Owns when targets are looked at: the task that does it, the wait for more claims, and what is told afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pilothouse_core::backoff;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::claims::{self, ClaimOutcome, TargetId};
use super::settle::{self, SettledTarget};
use super::target_queue;
use super::target_snapshot::TargetSnapshot;
use crate::hub::{Hub, PrimaryRef};

/// How long a look waits at most for claims of primaries that are queued already, and for more of them after a write.
const LONGEST_LINGER: Duration = Duration::from_millis(250);

/// How often that is looked at.
const LINGER_STEP: Duration = Duration::from_millis(5);

/// Targets that are looked at at once.
const LOOKS_AT_ONCE: usize = 16;

/// The longest that a target is slowed by.
const LONGEST_SLOWDOWN: Duration = Duration::from_secs(30);

/// Looks at targets whenever there is something to look at; runs until it is dropped.
pub async fn run(hub: Arc<Hub>) {
    let mut looks = JoinSet::new();
    loop {
        let due = {
            let mut state = hub.state.write();
            let now = Instant::now();
            let room = LOOKS_AT_ONCE.saturating_sub(looks.len());
            for id in target_queue::take_due(&mut state, now, room, LONGEST_LINGER) {
                looks.spawn(look(hub.clone(), id));
            }
            let lingers = looks.len() < LOOKS_AT_ONCE && state.contributions.target_queue.is_lingering();
            let step = lingers.then(|| now + LINGER_STEP);
            step.into_iter()
                .chain(state.contributions.target_queue.next_due())
                .min()
        };
        tokio::select! {
            () = hub.claims.notified() => {}
            Some(ended) = looks.join_next(), if !looks.is_empty() => if let Err(error) = ended {
                tracing::error!(%error, "reconciling a contribution target panicked; this is a bug of the host");
            },
            () = sleep_until(due), if due.is_some() => {}
        }
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Marks a target as looked at, also when the look does not come to its end.
struct TargetInProgress<'a> {
    hub: &'a Hub,
    id: &'a TargetId,
}

impl Drop for TargetInProgress<'_> {
    fn drop(&mut self) {
        self.hub.state.write().contributions.done(self.id);
        self.hub.claims.notify_one();
        self.hub.work.notify_one();
    }
}

async fn look(hub: Arc<Hub>, id: TargetId) {
    let _busy = TargetInProgress { hub: &hub, id: &id };
    let taken = {
        let mut state = hub.state.write();
        let cached = state.contributions.target(&id).map(|(target, _)| target.take_waiters());
        cached.zip(TargetSnapshot::new(&mut state, &id))
    };
    let Some((waiters, look)) = taken else { return };
    let asked = !waiters.is_empty();
    let claims: Vec<_> = look
        .claims()
        .map(|(primary_ref, claim)| (primary_ref.clone(), claim.leaves.clone()))
        .collect();
    let settled = settle::settle(look).await;
    let SettledTarget {
        results,
        refused,
        newest,
        unpersisted,
        wrote,
        trouble,
    } = settled;
    let now = Instant::now();
    let mut state = hub.state.write();
    let Some((target, _)) = state.contributions.target(&id) else {
        return;
    };
    target.newest = newest;
    target.unpersisted = unpersisted;
    target.troubles = if trouble.is_some() {
        target.troubles.saturating_add(1)
    } else {
        0
    };
    if wrote {
        target.written = Some(now);
        if !asked {
            let limit = |over| backoff::delay(over, seed(&id)).min(LONGEST_SLOWDOWN);
            target.reverts.note(now, limit);
        }
    }
    let troubles = target.troubles;
    for (primary_ref, leaves) in &claims {
        let wanted = target.claims.get_mut(primary_ref);
        // A claim that was changed meanwhile has not been judged.
        if let Some(wanted) = wanted.filter(|wanted| Arc::ptr_eq(&wanted.claim.leaves, leaves)) {
            wanted.refused = refused.get(primary_ref).cloned();
        }
    }
    let results: BTreeMap<PrimaryRef, ClaimOutcome> = results
        .into_iter()
        .map(|(primary_ref, result)| (primary_ref, ClaimOutcome { result, wrote }))
        .collect();
    claims::tell(&mut state, &id, &results, waiters);
    if let Some(wait) = trouble {
        let wait = backoff::delay(troubles, seed(&id)).max(wait);
        state.contributions.target_queue.look_again(&id, now + wait);
    }
}

/// A seed for the jitter of back-off that is the same in each run.
fn seed(id: &TargetId) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}
