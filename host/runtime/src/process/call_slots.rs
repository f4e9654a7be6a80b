//! Limits the concurrent calls of a plugin, and orders the waiting ones. Each tenant has a line of its own, so, however
//! many of its objects call, another tenant's call waits at most one round.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pilothouse_core::Tenant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Call slots of one plugin.
#[derive(Debug)]
pub struct CallSlots {
    all: Arc<Semaphore>,
    lines: Arc<Lines>,
}

/// Line of each tenant that calls or waits, with its number of calls.
type Lines = Mutex<HashMap<Tenant, (Arc<Semaphore>, usize)>>;

/// A slot for a call; released on drop.
#[derive(Debug)]
pub struct CallSlot {
    _turn: OwnedSemaphorePermit,
}

/// A place in a tenant's line.
struct InLine {
    lines: Arc<Lines>,
    tenant: Tenant,
}

impl Drop for InLine {
    fn drop(&mut self) {
        let mut lines = self.lines.lock();
        if let Some((_, count)) = lines.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                lines.remove(&self.tenant);
            }
        }
    }
}

impl CallSlots {
    /// Makes this number of slots.
    pub fn new(calls: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(calls)),
            lines: Arc::default(),
        }
    }

    /// Waits for a slot. A cancelled caller leaves the line.
    pub async fn take(&self, tenant: Tenant) -> CallSlot {
        let line = {
            let mut lines = self.lines.lock();
            let (line, count) = lines
                .entry(tenant.clone())
                .or_insert_with(|| (Arc::new(Semaphore::new(1)), 0));
            *count += 1;
            line.clone()
        };
        let _in_line = InLine {
            lines: self.lines.clone(),
            tenant,
        };
        // The first of each line waits for the plugin's slots, which are granted in order of request.
        let _first = line.acquire_owned().await.expect("nobody closes it");
        let turn = self.all.clone().acquire_owned().await.expect("nobody closes it");
        CallSlot { _turn: turn }
    }

    /// Number of tenants that call or wait.
    #[cfg(test)]
    fn lines(&self) -> usize {
        self.lines.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::Namespace(name.into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_waits_for_one_call_of_each_other_and_no_more() {
        let turns = Arc::new(CallSlots::new(1));
        let order = Arc::new(Mutex::new(Vec::new()));
        let call = |who: &'static str| {
            let (turns, order) = (turns.clone(), order.clone());
            async move {
                let turn = turns.take(tenant(who)).await;
                order.lock().push(who);
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                drop(turn);
            }
        };
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..10 {
            calls.spawn(call("many"));
        }
        tokio::task::yield_now().await;
        calls.spawn(call("one"));
        calls.join_all().await;
        let order = order.lock();
        assert!(order.iter().position(|who| *who == "one").unwrap() <= 2, "{order:?}");
        assert_eq!((order.len(), turns.lines()), (11, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn who_stops_waiting_keeps_nobody_waiting() {
        let turns = CallSlots::new(1);
        let turn = turns.take(tenant("a")).await;
        for _ in 0..3 {
            let waiting = turns.take(tenant("b"));
            let given_up = tokio::time::timeout(std::time::Duration::from_secs(1), waiting).await;
            assert!(given_up.is_err());
        }
        drop(turn);
        turns.take(tenant("b")).await;
        assert_eq!(turns.lines(), 0);
    }
}
