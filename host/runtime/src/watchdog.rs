//! Owns the watchdog: what waits longer than its cause explains is a mistake of the host. The live object is read where one
//! is waited for, and whoever waits goes on; the log names it, and it is counted.
//!
//! Every wait is ended by what it is for. The watchdog is for the mistake in that; while there is none it makes no
//! request.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pilothouse_core::Key;
use tokio::time::Instant;

use crate::contribute::{self, TargetId};
use crate::hub::{HostState, Hub, PrimaryRef};
use crate::queue::Priority;

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// What a wait may take: a watch that has gone silent is noticed after 150 s and made anew, a request may take 30 s, and
/// both may be tried again with back-off.
const EXPLAINED: Duration = Duration::from_mins(5);

/// The wait before a look past the cache that failed is made again.
const AGAIN_AFTER: Duration = Duration::from_mins(1);

/// Something that somebody waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PendingWait {
    /// A primary, for the cache to show one of its writes.
    Echo(Key, PrimaryRef, String),
    /// A primary, for the cache to show what was contributed for it.
    Contributed(TargetId, PrimaryRef, Box<str>),
    /// Primaries, for a look at a target that nobody is about to make.
    Claims(TargetId),
    /// A write, for the end of its request.
    Write(Key, PrimaryRef, Instant),
    /// A primary, for nothing that is known: it is held so many times more than there are reasons.
    Held(PrimaryRef, u32),
}

/// Looks at what waits; runs until it is dropped.
pub async fn run(hub: Arc<Hub>) {
    let mut known: HashMap<PendingWait, Instant> = HashMap::new();
    let mut look = tokio::time::interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        let now = Instant::now();
        let waits = waits(&hub.state.read());
        known.retain(|wait, _| waits.contains(wait));
        for wait in waits {
            // What the log has told of already explains any time.
            if is_explained(&hub, &wait) {
                known.insert(wait, now);
                continue;
            }
            let since = *known.entry(wait.clone()).or_insert(now);
            if now - since < EXPLAINED {
                continue;
            }
            if resume(&hub, &wait).await {
                known.remove(&wait);
                hub.stuck.fetch_add(1, Ordering::Relaxed);
                hub.work.notify_one();
                hub.claims.notify_one();
            } else {
                known.insert(wait, now + AGAIN_AFTER - EXPLAINED);
            }
        }
    }
}

/// All that waits now.
fn waits(state: &HostState) -> HashSet<PendingWait> {
    let mut reasons: HashMap<&PrimaryRef, u32> = HashMap::new();
    let mut waits = HashSet::new();
    for (key, (awaited, primary_ref)) in &state.awaited {
        *reasons.entry(primary_ref).or_default() += 1;
        waits.insert(PendingWait::Echo(
            key.clone(),
            primary_ref.clone(),
            format!("{awaited:?}"),
        ));
    }
    for (id, version, primary_ref) in state.contributions.unseen() {
        *reasons.entry(primary_ref).or_default() += 1;
        waits.insert(PendingWait::Contributed(id, primary_ref.clone(), version.into()));
    }
    waits.extend(state.contributions.waited_for_looks().map(PendingWait::Claims));
    let writing = state.writing.iter();
    waits.extend(writing.map(|(key, primary_ref, since)| PendingWait::Write(key.clone(), primary_ref.clone(), since)));
    for (lane, name, held) in state.queue.held() {
        let primary_ref = PrimaryRef {
            lane,
            name: name.clone(),
        };
        let surplus = held.saturating_sub(reasons.get(&primary_ref).copied().unwrap_or_default());
        if surplus > 0 {
            waits.insert(PendingWait::Held(primary_ref, surplus));
        }
    }
    waits
}

/// Whether the watch that would end a wait has trouble.
fn is_explained(hub: &Hub, wait: &PendingWait) -> bool {
    match wait {
        PendingWait::Echo(key, ..) | PendingWait::Contributed((_, key), ..) => hub.has_trouble(&key.kind),
        PendingWait::Claims(_) | PendingWait::Write(..) | PendingWait::Held(..) => false,
    }
}

/// Ends a wait. Says whether it did: a cluster that cannot be asked is asked again.
async fn resume(hub: &Hub, wait: &PendingWait) -> bool {
    match wait {
        PendingWait::Echo(key, primary_ref, awaited) => {
            if !look(hub, key, primary_ref).await {
                return false;
            }
            let mut state = hub.state.write();
            state.forget_unreadable(key);
            go_on(&mut state, primary_ref);
            tell(
                &format!("the cache has not shown a write of {key} ({awaited})"),
                primary_ref,
            );
        }
        PendingWait::Contributed(id, primary_ref, version) => {
            if !look(hub, &id.1, primary_ref).await {
                return false;
            }
            let mut state = hub.state.write();
            contribute::forget_unseen(&mut state, id, primary_ref, version);
            go_on(&mut state, primary_ref);
            let problem = format!(
                "the cache has not shown version {version} of {}, which was contributed to",
                id.1
            );
            tell(&problem, primary_ref);
        }
        PendingWait::Claims(id) => {
            hub.state.write().contributions.target_queue.mark(id.clone());
            tracing::error!(
                plugin = &*id.0, object = %id.1,
                "claims on an object were not looked at within {EXPLAINED:?}; this is a bug of the host: report it; they are looked at now"
            );
        }
        PendingWait::Write(key, primary_ref, _) => {
            let mut state = hub.state.write();
            state.writing.abandon(primary_ref);
            go_on(&mut state, primary_ref);
            tell(&format!("a write of {key} has not ended"), primary_ref);
        }
        PendingWait::Held(primary_ref, surplus) => {
            let mut state = hub.state.write();
            for _ in 0..*surplus {
                state.queue.release(primary_ref.lane, &primary_ref.name);
            }
            go_on(&mut state, primary_ref);
            tell("it was held for no reason that is known", primary_ref);
        }
    }
    true
}

fn tell(problem: &str, primary_ref: &PrimaryRef) {
    tracing::error!(
        object = %primary_ref.name,
        problem,
        "an object has waited for more than {EXPLAINED:?}; this is a bug of the host: report it; the object is reconciled now"
    );
}

fn go_on(state: &mut HostState, primary_ref: &PrimaryRef) {
    if state.lanes.get(primary_ref.lane).is_some() {
        state.queue.push(primary_ref.lane, &primary_ref.name, Priority::Change);
    }
}

/// Reads an object past the cache, and has the cache take in what it shows. Says whether that is possible now; where
/// there is nobody to ask for, nothing has to be waited for either.
async fn look(hub: &Hub, key: &Key, primary_ref: &PrimaryRef) -> bool {
    let (lane, before) = {
        let state = hub.state.read();
        let before = state.store.get(&key.kind, &key.name).cloned();
        (state.lanes.get(primary_ref.lane).cloned(), before)
    };
    let Some((lane, served)) = lane.and_then(|lane| Some((lane.clone(), lane.served(&key.kind)?))) else {
        return true;
    };
    match lane.writer.live(&served, &key.name).await {
        Ok(live) => {
            let live = live.map(|live| live.object);
            hub.correct(key, before.as_deref(), live.as_ref());
            true
        }
        Err(error) => {
            tracing::debug!(object = %key, %error, "cannot look at an object that was waited for; it is tried again");
            false
        }
    }
}
