//! Runs the settlements of targets, and delays them while more claims are expected.

use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::apart::WeighedTask;
use tokio::task::JoinSet;

use super::settle;
use crate::context::HostContext;
use crate::process::clock::sleep_until;
use crate::state::tables::claims::{EndedLook, TargetId, TargetSnapshot};

/// Upper bound of the wait for claims of primaries that are already queued, and for more of them after a write.
const LONGEST_LINGER: Duration = Duration::from_millis(250);

/// Interval at which a delayed target is considered.
const LINGER_STEP: Duration = Duration::from_millis(5);

/// Concurrent settlements.
const LOOKS_AT_ONCE: usize = 16;

/// Settles targets whenever one is due; runs until it is dropped.
pub async fn run(host: Arc<HostContext>) {
    let mut looks = JoinSet::new();
    loop {
        let room = LOOKS_AT_ONCE.saturating_sub(looks.len());
        let (targets, due) = host.state.take_targets(room, LONGEST_LINGER, LINGER_STEP);
        for id in targets {
            looks.spawn(WeighedTask::new(settle_target(host.clone(), id)));
        }
        tokio::select! {
            () = host.state.wait_for_claims() => {}
            Some(ended) = looks.join_next(), if !looks.is_empty() => if let Err(error) = ended {
                tracing::error!(%error, "reconciling a contribution target panicked; this is a bug of the host");
            },
            () = sleep_until(due), if due.is_some() => {}
        }
    }
}

/// Ends the settlement of a target on drop, also if it is cancelled.
struct TargetInProgress<'a> {
    host: &'a HostContext,
    id: &'a TargetId,
}

impl Drop for TargetInProgress<'_> {
    fn drop(&mut self) {
        self.host.state.target_done(self.id);
    }
}

async fn settle_target(host: Arc<HostContext>, id: TargetId) {
    let _busy = TargetInProgress { host: &host, id: &id };
    let Some((waiters, captured)) = host.state.begin_settlement(&id) else {
        return;
    };
    let look = TargetSnapshot::new(captured);
    let claims = look
        .claims()
        .map(|(primary_ref, claim)| (primary_ref.clone(), claim.leaves.clone()));
    let claims = claims.collect();
    let settled = settle::settle(look).await;
    let look = EndedLook {
        claims,
        waiters,
        settled,
    };
    host.state.end_settlement(&id, look);
}
