//! The watchdog: a wait that lasts longer than its cause explains is an internal error. The live object is read if one
//! is awaited, and the waiting primary continues; the error is logged and counted.
//!
//! Every wait is normally ended by its cause. The watchdog handles errors in that; it makes no request while there are
//! none.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use pilothouse_core::Key;
use tokio::time::Instant;

use crate::context::HostContext;
use crate::lanes::primary::PrimaryRef;
use crate::state::PendingWait;

/// Interval of the checks.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Maximum duration of a regular wait: a silent watch is noticed after 150 s and reopened, a request may take 30 s, and
/// both may be retried with back-off.
const EXPLAINED: Duration = Duration::from_mins(5);

/// Wait after a failed live read before the next.
const AGAIN_AFTER: Duration = Duration::from_mins(1);

/// Checks pending waits; runs until it is dropped.
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
            // A failure that was logged explains any duration.
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
                host.count_internal_error();
            } else {
                known.insert(wait, now + AGAIN_AFTER - EXPLAINED);
            }
        }
    }
}

/// Returns `true` if the watch that would end a wait fails.
fn is_explained(host: &HostContext, wait: &PendingWait) -> bool {
    match wait {
        PendingWait::Echo(key, ..) | PendingWait::Contributed((_, key), ..) => host.kinds.has_trouble(&key.kind),
        PendingWait::Claims(_) | PendingWait::Write(..) | PendingWait::Held(..) => false,
    }
}

/// Ends a wait. Returns `false` if the live read failed, which is retried.
async fn resume(host: &HostContext, wait: &PendingWait) -> bool {
    let live = match wait {
        PendingWait::Echo(key, primary_ref, _) | PendingWait::Contributed((_, key), primary_ref, _) => {
            read_live(host, key, primary_ref).await
        }
        PendingWait::Claims(_) | PendingWait::Write(..) | PendingWait::Held(..) => true,
    };
    if !live {
        return false;
    }
    host.state.end_wait(wait);
    match wait {
        PendingWait::Echo(key, primary_ref, awaited) => log_ended(
            &format!("the cache has not shown a write of {key} ({awaited:?})"),
            primary_ref,
        ),
        PendingWait::Contributed((_, key), primary_ref, version) => log_ended(
            &format!("the cache has not shown version {version} of {key}, which was contributed to"),
            primary_ref,
        ),
        PendingWait::Claims(id) => tracing::error!(
            plugin = &*id.0, object = %id.1,
            "claims on an object were not looked at within {EXPLAINED:?}; this is a bug of the host: report it; they are looked at now"
        ),
        PendingWait::Write(key, primary_ref, _) => log_ended(&format!("a write of {key} has not ended"), primary_ref),
        PendingWait::Held(primary_ref, _) => log_ended("it was held for no reason that is known", primary_ref),
    }
    true
}

fn log_ended(problem: &str, primary_ref: &PrimaryRef) {
    tracing::error!(
        object = %primary_ref.name,
        problem,
        "an object has waited for more than {EXPLAINED:?}; this is a bug of the host: report it; the object is reconciled now"
    );
}

/// Reads an object live, and corrects the cache. Returns `false` if that is not possible now. If no lane is left to
/// read it, there is nothing to wait for either.
async fn read_live(host: &HostContext, key: &Key, primary_ref: &PrimaryRef) -> bool {
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
