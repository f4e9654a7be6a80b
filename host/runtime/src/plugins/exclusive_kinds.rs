//! Owns who has which kind to itself among the plugins that are there now; the decision is host/core's.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pilothouse_core::exclusive_kinds::{ExclusiveKindRequest, KindTaken, decide};
use tokio::sync::watch;

/// What all plugins want to themselves.
pub struct ExclusiveKinds {
    books: Mutex<ExclusiveKindsState>,
    /// How often somebody who was there before has lost what it had, or got what it had not.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct ExclusiveKindsState {
    claims: BTreeMap<Arc<str>, ExclusiveKindRequest>,
    decided: BTreeMap<Arc<str>, Result<(), KindTaken>>,
}

impl ExclusiveKindsState {
    /// Decides anew; says whether that is news for somebody who was there before.
    fn decide(&mut self) -> bool {
        let before = std::mem::replace(&mut self.decided, decide(&self.claims));
        let differs = |(name, decision)| before.get(name).is_some_and(|before| before != decision);
        self.decided.iter().any(differs)
    }
}

impl Default for ExclusiveKinds {
    fn default() -> Self {
        Self {
            books: Mutex::default(),
            changed: watch::Sender::new(0),
        }
    }
}

impl ExclusiveKinds {
    /// A plugin wants this, instead of what it wanted before. Says whether it may run.
    pub fn want(&self, plugin: &Arc<str>, claim: &ExclusiveKindRequest) -> Result<(), KindTaken> {
        let mut books = self.books.lock();
        let before = books.claims.insert(plugin.clone(), claim.clone());
        let is_news = before.as_ref() != Some(claim) && books.decide();
        let decided = books.decided.get(plugin).cloned().unwrap_or(Ok(()));
        drop(books);
        if is_news {
            self.changed.send_modify(|count| *count += 1);
        }
        decided
    }

    /// A plugin wants nothing any more.
    pub fn give_up(&self, plugin: &str) {
        let mut books = self.books.lock();
        let is_news = books.claims.remove(plugin).is_some() && books.decide();
        drop(books);
        if is_news {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// Waits until a plugin that may run may not.
    pub async fn lost(&self, plugin: &str) {
        self.until(|| self.books.lock().decided.get(plugin).is_some_and(Result::is_err))
            .await;
    }

    /// Waits until a plugin that may not run may.
    pub async fn granted(&self, plugin: &str) {
        self.until(|| self.books.lock().decided.get(plugin).is_some_and(Result::is_ok))
            .await;
    }

    async fn until(&self, holds: impl Fn() -> bool) {
        let mut changes = self.changed.subscribe();
        while !holds() && changes.changed().await.is_ok() {}
    }
}
