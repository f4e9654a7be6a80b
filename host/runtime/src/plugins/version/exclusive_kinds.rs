//! Tracks which plugin has which kind to itself; host/core decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use pilothouse_core::plugin::exclusive_kinds::{ExclusiveKindRequest, KindTaken, Standing, decide};
use tokio::sync::watch;

/// Kinds that all plugins claim for themselves.
pub struct ExclusiveKinds {
    books: Mutex<ExclusiveKindsState>,
    /// Number of decisions that changed for a known plugin.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct ExclusiveKindsState {
    claims: BTreeMap<Arc<str>, (ExclusiveKindRequest, Standing)>,
    decided: BTreeMap<Arc<str>, Result<(), KindTaken>>,
    /// Plugins that have been examined since the host started: their later claims have no precedence.
    examined: BTreeSet<Arc<str>>,
}

impl ExclusiveKindsState {
    /// Decides anew. Returns `true` if the decision for a known plugin changed.
    ///
    /// A plugin that waited for another one before the host started waits until that one has been examined.
    fn decide(&mut self) -> bool {
        let mut claims = self.claims.clone();
        let waits = |_: &Arc<str>, (claim, _): &mut (ExclusiveKindRequest, Standing)| {
            let holder = claim.waited_for.as_ref();
            holder.is_some_and(|holder| !self.examined.contains(holder))
        };
        let waiting: Vec<_> = claims.extract_if(.., waits).collect();
        let mut decided = decide(&claims);
        for (name, (claim, _)) in waiting {
            if let (Some(kind), Some(holder)) = (claim.crds.values().next().cloned(), claim.waited_for) {
                decided.insert(name, Err(KindTaken { kind, holder }));
            }
        }
        let before = std::mem::replace(&mut self.decided, decided);
        for (name, (_, standing)) in &mut self.claims {
            *standing = match self.decided.get(name) {
                Some(Ok(())) => Standing::Holds,
                _ => Standing::Waits,
            };
        }
        let differs = |(name, decision)| before.get(name).is_some_and(|before| before != decision);
        self.decided.iter().any(differs)
    }

    /// Replaces the claim of a plugin. If the new claim is within the old one, the plugin keeps its standing.
    fn put(&mut self, plugin: &Arc<str>, claim: &ExclusiveKindRequest) {
        let is_first = self.examined.insert(plugin.clone()) && claim.waited_for.is_none();
        let holds = |(before, standing): &(ExclusiveKindRequest, Standing)| {
            *standing == Standing::Holds && claim.is_within(before)
        };
        let standing = if is_first || self.claims.get(plugin).is_some_and(holds) {
            Standing::Holds
        } else {
            Standing::Waits
        };
        self.claims.insert(plugin.clone(), (claim.clone(), standing));
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
    /// Replaces the claim of a plugin, and decides. If the claim is denied, the claim of the running version, if any,
    /// is restored.
    pub fn want(
        &self,
        plugin: &Arc<str>,
        claim: &ExclusiveKindRequest,
        running: Option<&ExclusiveKindRequest>,
    ) -> Result<(), KindTaken> {
        let mut books = self.books.lock();
        let before = books.claims.get(plugin).cloned();
        let mut is_news = false;
        if before.as_ref().is_none_or(|(before, _)| before != claim) {
            books.put(plugin, claim);
            is_news = books.decide();
        }
        let decided = books.decided.get(plugin).cloned().unwrap_or(Ok(()));
        if let (Err(_), Some(running), Some((_, standing))) = (&decided, running, before) {
            books.claims.insert(plugin.clone(), (running.clone(), standing));
            is_news |= books.decide();
        }
        drop(books);
        self.notify(is_news);
        decided
    }

    /// Another plugin that has a CRD, in namespaces of its own.
    pub fn sharer(&self, plugin: &str, crd: &str) -> Option<Arc<str>> {
        let books = self.books.lock();
        let has = |name: &&Arc<str>| {
            let claims = books
                .claims
                .get(*name)
                .is_some_and(|(claim, _)| claim.crds.contains_key(crd));
            claims && ***name != *plugin && books.decided.get(*name).is_some_and(Result::is_ok)
        };
        books.claims.keys().find(has).cloned()
    }

    /// Records that a plugin has all rights that it needs.
    pub fn confirm(&self, plugin: &str) {
        let mut books = self.books.lock();
        let claim = books.claims.get_mut(plugin).filter(|(claim, _)| !claim.is_granted);
        let is_news = claim.is_some_and(|(claim, _)| {
            claim.is_granted = true;
            true
        });
        let is_news = is_news && books.decide();
        drop(books);
        self.notify(is_news);
    }

    /// Removes the claim of a plugin that claims nothing any more, or cannot run.
    pub fn give_up(&self, plugin: &Arc<str>) {
        let mut books = self.books.lock();
        let is_first = books.examined.insert(plugin.clone());
        let had = books.claims.remove(plugin).is_some();
        let is_news = (is_first || had) && books.decide();
        drop(books);
        self.notify(is_news);
    }

    /// Forgets a removed plugin; another one of its name starts anew.
    pub fn forget(&self, plugin: &Arc<str>) {
        self.give_up(plugin);
        let mut books = self.books.lock();
        books.examined.remove(plugin);
        for (claim, _) in books.claims.values_mut() {
            claim.waited_for.take_if(|holder| *holder == *plugin);
        }
    }

    fn notify(&self, is_news: bool) {
        if is_news {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// Waits until a plugin loses its claim.
    pub async fn lost(&self, plugin: &str) {
        self.until(|| self.books.lock().decided.get(plugin).is_some_and(Result::is_err))
            .await;
    }

    /// Waits until a plugin is granted its claim.
    pub async fn granted(&self, plugin: &str) {
        self.until(|| self.books.lock().decided.get(plugin).is_some_and(Result::is_ok))
            .await;
    }

    async fn until(&self, holds: impl Fn() -> bool) {
        let mut changes = self.changed.subscribe();
        while !holds() && changes.changed().await.is_ok() {}
    }
}
