//! Decides which targets are settled now: at once, or later if more claims are expected, if the target was just
//! written, or if another writer keeps reverting it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use pilothouse_core::Key;
use tokio::time::Instant;

use super::registry::Contributions;
use super::target::TargetId;
use super::target_queue::Look;
use super::unclaimed::has_more_to_come;
use crate::lanes::snapshot::Lanes;
use crate::queue::WorkQueue;

impl Contributions {
    /// Takes at most `room` targets to settle now; they count as busy until [`Contributions::done`]. A target waits up
    /// to `linger` while primaries of its plugin are about to make claims; and one that the host has just written, as a
    /// child or as a primary, waits until the cache shows that write.
    pub fn take_due(
        &mut self,
        lanes: &Lanes,
        queue: &WorkQueue,
        is_awaited: impl Fn(&Key) -> bool,
        room: usize,
        linger: Duration,
    ) -> Vec<TargetId> {
        let Self { plugins, target_queue } = self;
        let now = Instant::now();
        let mut more: HashMap<Arc<str>, bool> = HashMap::new();
        let mut more_to_come = |plugin: &Arc<str>| {
            let has_more = || has_more_to_come(lanes, queue, plugin);
            *more.entry(plugin.clone()).or_insert_with(has_more)
        };
        target_queue.take(now, room, |id, since| {
            if is_awaited(&id.1) {
                return Look::Later;
            }
            let target = plugins.get(&id.0).and_then(|claims| claims.targets.get(&id.1));
            let calm_at = target
                .filter(|target| target.waiters.is_empty())
                .and_then(|target| target.reverts.calm_at())
                .filter(|calm_at| *calm_at > now);
            if let Some(calm_at) = calm_at {
                return Look::At(calm_at);
            }
            let written = target.and_then(|target| target.written);
            let is_due = written.is_none_or(|written| written + linger <= now)
                && (since + linger <= now || !more_to_come(&id.0));
            if is_due { Look::Now } else { Look::Later }
        })
    }
}
