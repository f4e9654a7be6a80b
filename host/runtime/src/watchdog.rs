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
use crate::hub::{Hub, Reader, State};
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
enum Wait {
    /// A primary, for the cache to show one of its writes.
    Echo(Key, Reader, String),
    /// A primary, for the cache to show what was contributed for it.
    Contributed(TargetId, Reader, Box<str>),
    /// Primaries, for a look at a target that nobody is about to make.
    Claims(TargetId),
    /// A write, for the end of its request.
    Write(Key, Reader, Instant),
    /// A primary, for nothing that is known: it is held so many times more than there are reasons.
    Held(Reader, u32),
}

/// Looks at what waits; runs until it is dropped.
pub async fn run(hub: Arc<Hub>) {
    let mut known: HashMap<Wait, Instant> = HashMap::new();
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
fn waits(state: &State) -> HashSet<Wait> {
    let mut reasons: HashMap<&Reader, u32> = HashMap::new();
    let mut waits = HashSet::new();
    for (key, (awaited, reader)) in &state.awaited {
        *reasons.entry(reader).or_default() += 1;
        waits.insert(Wait::Echo(key.clone(), reader.clone(), format!("{awaited:?}")));
    }
    for (id, version, reader) in state.contributions.unseen() {
        *reasons.entry(reader).or_default() += 1;
        waits.insert(Wait::Contributed(id, reader.clone(), version.into()));
    }
    waits.extend(state.contributions.waited_for_looks().map(Wait::Claims));
    let writing = state.writing.iter();
    waits.extend(writing.map(|(key, reader, since)| Wait::Write(key.clone(), reader.clone(), since)));
    for (lane, name, held) in state.queue.held() {
        let reader = Reader {
            lane,
            name: name.clone(),
        };
        let surplus = held.saturating_sub(reasons.get(&reader).copied().unwrap_or_default());
        if surplus > 0 {
            waits.insert(Wait::Held(reader, surplus));
        }
    }
    waits
}

/// Whether the watch that would end a wait has trouble.
fn is_explained(hub: &Hub, wait: &Wait) -> bool {
    match wait {
        Wait::Echo(key, ..) | Wait::Contributed((_, key), ..) => hub.has_trouble(&key.kind),
        Wait::Claims(_) | Wait::Write(..) | Wait::Held(..) => false,
    }
}

/// Ends a wait. Says whether it did: a cluster that cannot be asked is asked again.
async fn resume(hub: &Hub, wait: &Wait) -> bool {
    match wait {
        Wait::Echo(key, reader, awaited) => {
            if !look(hub, key, reader).await {
                return false;
            }
            let mut state = hub.state.write();
            state.forget_unreadable(key);
            go_on(&mut state, reader);
            tell(&format!("the cache has not shown a write of {key} ({awaited})"), reader);
        }
        Wait::Contributed(id, reader, version) => {
            if !look(hub, &id.1, reader).await {
                return false;
            }
            let mut state = hub.state.write();
            contribute::forget_unseen(&mut state, id, reader, version);
            go_on(&mut state, reader);
            let problem = format!(
                "the cache has not shown version {version} of {}, which was contributed to",
                id.1
            );
            tell(&problem, reader);
        }
        Wait::Claims(id) => {
            hub.state.write().contributions.agenda.mark(id.clone());
            tracing::error!(
                plugin = &*id.0, object = %id.1,
                "claims on an object were not looked at within {EXPLAINED:?}; this is a bug of the host: report it; they are looked at now"
            );
        }
        Wait::Write(key, reader, _) => {
            let mut state = hub.state.write();
            state.writing.abandon(reader);
            go_on(&mut state, reader);
            tell(&format!("a write of {key} has not ended"), reader);
        }
        Wait::Held(reader, surplus) => {
            let mut state = hub.state.write();
            for _ in 0..*surplus {
                state.queue.release(reader.lane, &reader.name);
            }
            go_on(&mut state, reader);
            tell("it was held for no reason that is known", reader);
        }
    }
    true
}

fn tell(problem: &str, reader: &Reader) {
    tracing::error!(
        object = %reader.name,
        problem,
        "an object has waited for more than {EXPLAINED:?}; this is a bug of the host: report it; the object is reconciled now"
    );
}

fn go_on(state: &mut State, reader: &Reader) {
    if state.lanes.get(reader.lane).is_some() {
        state.queue.push(reader.lane, &reader.name, Priority::Change);
    }
}

/// Reads an object past the cache, and has the cache take in what it shows. Says whether that is possible now; where
/// there is nobody to ask for, nothing has to be waited for either.
async fn look(hub: &Hub, key: &Key, reader: &Reader) -> bool {
    let (lane, before) = {
        let state = hub.state.read();
        let before = state.store.get(&key.kind, &key.name).cloned();
        (state.lanes.get(reader.lane).cloned(), before)
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
