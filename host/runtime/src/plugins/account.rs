//! Owns what is remembered of a plugin's calls, over all its lanes: its last failure, and whether it traps again and
//! again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pilothouse_core::crash::{Advice, CrashHistory};
use pilothouse_core::failure::reason;
use pilothouse_core::{Blame, Failure, Name};
use pilothouse_crds::plugin::LastFailure;
use tokio::sync::Notify;

use crate::clock::WallClock;

/// The account of one plugin. It outlives the lanes, so a new version does not begin with what the old one had to answer
/// for, and a new try does.
#[derive(Default)]
pub struct Account {
    books: Mutex<Books>,
    /// Told whenever something may have to be told of the plugin.
    pub changed: Notify,
    /// Told whenever the cluster forbids something.
    pub forbidden: Notify,
    stopped: Notify,
}

#[derive(Default)]
struct Books {
    history: CrashHistory,
    last_failure: Option<Arc<LastFailure>>,
    /// How long nothing is called, and why.
    stop: Option<(Duration, String)>,
    /// What keeps the plugin from working in full, by what it is about.
    warnings: BTreeMap<String, String>,
    /// What of that was told by more than the status.
    told: BTreeMap<String, String>,
    /// It was stopped: what is under way comes to its end, and says nothing new.
    is_stopped: bool,
}

impl Account {
    /// A reconcile has ended. Says what is to be done with the plugin, which steers so many objects.
    pub fn ended(&self, object: &Name, failure: Option<&Failure>, steered: usize, clock: &WallClock) -> Advice {
        let mut books = self.books.lock();
        if failure.is_some_and(|failure| failure.reason == reason::FORBIDDEN) {
            self.forbidden.notify_one();
        }
        if let Some(failure) = failure {
            books.last_failure = Some(Arc::new(LastFailure {
                blame: failure.blame.to_string(),
                object: Some(object.to_string()),
                message: format!("{}: {}", failure.reason, failure.message),
                time: clock.seconds(),
            }));
        }
        let advice = match failure {
            _ if books.is_stopped => Advice::Go,
            Some(failure) if is_crash(failure) => books.history.trapped(object, steered),
            _ => {
                books.history.ended();
                Advice::Go
            }
        };
        if let (Advice::Stop(wait), Some(failure)) = (advice, failure) {
            books.stop = Some((wait, failure.message.clone()));
            books.is_stopped = true;
            self.stopped.notify_one();
        }
        drop(books);
        self.changed.notify_one();
        advice
    }

    /// Waits until the plugin is to be stopped: for how long, and why.
    pub async fn stop(&self) -> (Duration, String) {
        loop {
            let stopped = self.stopped.notified();
            if let Some(stop) = self.books.lock().stop.take() {
                return stop;
            }
            stopped.await;
        }
    }

    /// It is called again.
    pub fn resume(&self) {
        let mut books = self.books.lock();
        books.stop = None;
        books.is_stopped = false;
    }

    /// Another version, or another configuration: what was before is not its fault.
    pub fn forgive(&self) {
        self.books.lock().history = CrashHistory::default();
    }

    /// Something keeps the plugin from working in full: its status says so from now on, until that is cleared.
    pub fn note(&self, about: &str, warning: &str) {
        let before = self.books.lock().warnings.insert(about.to_owned(), warning.to_owned());
        if before.as_deref() != Some(warning) {
            self.changed.notify_one();
        }
    }

    /// The same for something that is to be told besides. Says whether that has not been done yet.
    pub fn warn(&self, about: &str, warning: &str) -> bool {
        self.note(about, warning);
        let before = self.books.lock().told.insert(about.to_owned(), warning.to_owned());
        before.as_deref() != Some(warning)
    }

    /// What keeps the plugin from working in full is over. Says whether there was anything.
    pub fn clear(&self, about: &str) -> bool {
        let mut books = self.books.lock();
        books.told.remove(about);
        let was_there = books.warnings.remove(about).is_some();
        drop(books);
        if was_there {
            self.changed.notify_one();
        }
        was_there
    }

    /// Whether something about this keeps the plugin from working in full.
    pub fn has_warning(&self, about: &str) -> bool {
        self.books.lock().warnings.contains_key(about)
    }

    /// What keeps the plugin from working in full.
    pub fn warnings(&self) -> Vec<String> {
        self.books.lock().warnings.values().cloned().collect()
    }

    /// The last failure since the host began.
    pub fn last_failure(&self) -> Option<Arc<LastFailure>> {
        self.books.lock().last_failure.clone()
    }

    /// How many traps in a row the plugin is slowed for, if it is.
    pub fn slowed_for(&self) -> Option<u32> {
        let books = self.books.lock();
        books.history.is_slowed().then(|| books.history.traps())
    }
}

/// Whether the plugin itself came to a bad end, rather than saying that it cannot.
fn is_crash(failure: &Failure) -> bool {
    failure.blame == Blame::Guest && matches!(failure.reason, reason::TRAP | reason::LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_traps_stop_a_plugin_and_the_last_failure_is_kept_with_its_blame() {
        let (account, clock) = (Account::default(), WallClock::starting_at(1_767_323_045_000));
        let trap = Failure::guest(reason::TRAP, "the plugin trapped");
        let other = Failure::user(reason::FAILURE, "no such port");
        let name = |index: usize| Name::new(Some("n"), &format!("o{index}"));
        for index in 0..100 {
            assert_eq!(account.ended(&name(index), Some(&other), 100, &clock), Advice::Go);
        }
        assert_eq!(account.last_failure().unwrap().blame, "user");
        for index in 0..15 {
            account.ended(&name(index), Some(&trap), 100, &clock);
        }
        let (_, why) = account.stop().await;
        assert_eq!(why, "the plugin trapped");
        let last = account.last_failure().unwrap();
        assert_eq!((&*last.blame, last.object.as_deref()), ("guest", Some("n/o14")));
        assert_eq!(last.time, "2026-01-02T03:04:05Z");
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_version_begins_without_the_old_ones_traps() {
        let (account, clock) = (Account::default(), WallClock::System);
        let trap = Failure::guest(reason::LIMIT, "limit callMilliseconds");
        let name = |index: usize| Name::new(Some("n"), &format!("o{index}"));
        for index in 0..14 {
            account.ended(&name(index), Some(&trap), 100, &clock);
        }
        assert_eq!(account.slowed_for(), Some(14));
        account.forgive();
        assert_eq!(account.slowed_for(), None);
        assert_eq!(account.ended(&name(1), Some(&trap), 100, &clock), Advice::Go);
    }
}
