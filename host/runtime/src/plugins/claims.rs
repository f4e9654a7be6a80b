//! Owns who has which kind to itself among the plugins that are there now; the decision is host/core's.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pilothouse_core::exclusive::{Claim, Taken, decide};
use tokio::sync::watch;

/// What all plugins want to themselves.
pub struct Claims {
    claims: Mutex<BTreeMap<Arc<str>, Claim>>,
    changed: watch::Sender<u64>,
}

impl Default for Claims {
    fn default() -> Self {
        Self {
            claims: Mutex::default(),
            changed: watch::Sender::new(0),
        }
    }
}

impl Claims {
    /// A plugin wants this, instead of what it wanted before. Says whether it may run.
    pub fn want(&self, plugin: &Arc<str>, claim: &Claim) -> Result<(), Taken> {
        let mut claims = self.claims.lock();
        let before = claims.insert(plugin.clone(), claim.clone());
        let decided = decide(&claims).remove(plugin).unwrap_or(Ok(()));
        drop(claims);
        if before.as_ref() != Some(claim) {
            self.changed.send_modify(|count| *count += 1);
        }
        decided
    }

    /// A plugin wants nothing any more.
    pub fn give_up(&self, plugin: &str) {
        if self.claims.lock().remove(plugin).is_some() {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// Waits until a plugin that may run may not.
    pub async fn lost(&self, plugin: &str) {
        self.until(|| decide(&self.claims.lock()).get(plugin).is_some_and(Result::is_err))
            .await;
    }

    /// Waits until a plugin that may not run may.
    pub async fn granted(&self, plugin: &str) {
        self.until(|| decide(&self.claims.lock()).get(plugin).is_some_and(Result::is_ok))
            .await;
    }

    async fn until(&self, holds: impl Fn() -> bool) {
        let mut changes = self.changed.subscribe();
        while !holds() && changes.changed().await.is_ok() {}
    }
}
