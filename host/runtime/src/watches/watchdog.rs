//! Owns the watchdog: what waits longer than its cause explains is a mistake of the host. The live object is read where one
//! is waited for, and whoever waits goes on; the log names it, and it is counted.
//!
//! Every wait is ended by what it is for. The watchdog is for the mistake in that; while there is none it makes no
//! request.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use pilothouse_core::Key;
use tokio::time::Instant;

use crate::context::HostContext;
use crate::lanes::primary::PrimaryRef;
use crate::state::PendingWait;

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// What a wait may take: a watch that has gone silent is noticed after 150 s and made anew, a request may take 30 s, and
/// both may be tried again with back-off.
const EXPLAINED: Duration = Duration::from_mins(5);

/// The wait before a look past the cache that failed is made again.
const AGAIN_AFTER: Duration = Duration::from_mins(1);

/// Looks at what waits; runs until it is dropped.
pub async fn run(host: Arc<HostContext>) {
    let mut known: HashMap<PendingWait, Instant> = HashMap::new();
    let mut look = tokio::time::interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        let now = Instant::now();
        let waits = host.state.pending_waits();
        known.retain(|wait, _| waits.contains(wait));
        for wait in waits {
            // What the log has told of already explains any time.
            if is_explained(&host, &wait) {
                known.insert(wait, now);
                continue;
            }
            let since = *known.entry(wait.clone()).or_insert(now);
            if now - since < EXPLAINED {
                continue;
            }
            if resume(&host, &wait).await {
                known.remove(&wait);
                host.count_mistake();
            } else {
                known.insert(wait, now + AGAIN_AFTER - EXPLAINED);
            }
        }
    }
}

/// Whether the watch that would end a wait has trouble.
fn is_explained(host: &HostContext, wait: &PendingWait) -> bool {
    match wait {
        PendingWait::Echo(key, ..) | PendingWait::Contributed((_, key), ..) => host.kinds.has_trouble(&key.kind),
        PendingWait::Claims(_) | PendingWait::Write(..) | PendingWait::Held(..) => false,
    }
}

/// Ends a wait. Says whether it did: a cluster that cannot be asked is asked again.
async fn resume(host: &HostContext, wait: &PendingWait) -> bool {
    let live = match wait {
        PendingWait::Echo(key, primary_ref, _) | PendingWait::Contributed((_, key), primary_ref, _) => {
            look(host, key, primary_ref).await
        }
        PendingWait::Claims(_) | PendingWait::Write(..) | PendingWait::Held(..) => true,
    };
    if !live {
        return false;
    }
    host.state.end_wait(wait);
    match wait {
        PendingWait::Echo(key, primary_ref, awaited) => tell(
            &format!("the cache has not shown a write of {key} ({awaited:?})"),
            primary_ref,
        ),
        PendingWait::Contributed((_, key), primary_ref, version) => tell(
            &format!("the cache has not shown version {version} of {key}, which was contributed to"),
            primary_ref,
        ),
        PendingWait::Claims(id) => tracing::error!(
            plugin = &*id.0, object = %id.1,
            "claims on an object were not looked at within {EXPLAINED:?}; this is a bug of the host: report it; they are looked at now"
        ),
        PendingWait::Write(key, primary_ref, _) => tell(&format!("a write of {key} has not ended"), primary_ref),
        PendingWait::Held(primary_ref, _) => tell("it was held for no reason that is known", primary_ref),
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

/// Reads an object past the cache, and has the cache take in what it shows. Says whether that is possible now; where
/// there is nobody to ask for, nothing has to be waited for either.
async fn look(host: &HostContext, key: &Key, primary_ref: &PrimaryRef) -> bool {
    let (lane, before) = host.state.lane_and_object(primary_ref, key);
    let Some((lane, served)) = lane.and_then(|lane| Some((lane.clone(), lane.served(&key.kind)?))) else {
        return true;
    };
    match lane.writer.live(&served, &key.name).await {
        Ok(live) => {
            let live = live.map(|live| live.object);
            host.state.correct(key, before.as_deref(), live.as_ref());
            true
        }
        Err(error) => {
            tracing::debug!(object = %key, %error, "cannot look at an object that was waited for; it is tried again");
            false
        }
    }
}
