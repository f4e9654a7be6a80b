//! Owns what is said of a plugin on its way: in the log, in what its resource's status is made of, and in events about that
//! resource.

use std::time::Duration;

use pilothouse_cluster::error::chain;
use pilothouse_cluster::events::Regarding;
use pilothouse_core::answer::shorten;
use pilothouse_core::contract::{Event, Severity};
use pilothouse_core::{Kind, Name};
use pilothouse_crds::plugin::{GROUP, VERSION};

use super::bring::Problem;
use super::life::{Life, Running};
use super::prepare::Described;
use super::standing::{Fact, Step};
use crate::lane::Mode;

/// The longest message of an event, in bytes: what the API server takes.
const LONGEST_NOTE: usize = 1024;

/// What a warning is about that says what of a kind's status is not written.
pub fn about_status(primary: &Kind) -> String {
    format!("status of {primary}")
}

impl Life {
    /// Says whether all that the version that runs needs is there.
    pub fn say_it_runs(&self, running: Option<&Running>) {
        let Some(running) = running else { return };
        if self.identity.account.is_stopped() {
            return;
        }
        let missing = self.fleet.hub.missing(&running.lanes);
        let preview = running
            .order
            .wanted
            .as_ref()
            .is_ok_and(|wanted| wanted.mode == Mode::Preview);
        self.standing.set(|known| {
            if missing.is_empty() {
                known.set(
                    Step::Established,
                    Fact::yes("Established", "all its kinds are served and listed"),
                );
                let ready = if preview {
                    Fact::yes("Preview", "nothing is written; status.previews tells what would be")
                } else {
                    Fact::yes("Reconciling", "it reconciles")
                };
                known.set(Step::Ready, ready);
                known.busy = None;
            } else {
                let why = format!("waiting until {missing} is served and listed");
                known.set(Step::Established, Fact::no("Waiting", why.clone()));
                known.set(Step::Ready, Fact::no("Waiting", why));
            }
        });
    }

    /// What is wanted waits for something outside.
    pub fn waits(&self, why: &str) {
        let ends = self.own.as_ref().is_some_and(|own| own.live.borrow().deleting);
        self.standing.set(|known| {
            if ends {
                known.set(Step::Ready, Fact::no("Finishing", why));
            } else if known.lanes.is_empty() {
                known.set(Step::Established, Fact::no("Waiting", why));
                known.set(Step::Ready, Fact::no("Waiting", why));
            } else {
                known.set(
                    Step::Ready,
                    Fact::yes("PreviousVersion", format!("the version before goes on: {why}")),
                );
            }
        });
    }

    /// What is wanted cannot be; what runs goes on. The log, the Plugin's status and an event on it say so.
    pub async fn refuse(&self, running: Option<&Running>, problem: &Problem) {
        let Problem { step, reason, message } = problem;
        let goes_on = format!("the version before goes on: {message}");
        let said = self.standing.known().fact(*step).message.clone();
        let is_news = said != *message && said != goes_on;
        let what = match running {
            Some(_) => "the plugin cannot be used as it is wanted; the version before goes on",
            None => "the plugin cannot be used",
        };
        if is_news {
            tracing::error!(plugin = &*self.identity.name, reason, problem = message, "{what}");
        }
        self.standing.set(|known| {
            known.set(*step, Fact::no(reason, message.clone()));
            let ready = if running.is_some() {
                Fact::yes("PreviousVersion", goes_on)
            } else {
                Fact::no(reason, message.clone())
            };
            known.set(Step::Ready, ready);
            known.busy = None;
        });
        if is_news {
            self.tell(reason, format!("{what}: {message}")).await;
        }
    }

    /// Says beforehand what of a status the CRDs do not take that a version brings.
    pub fn note_gaps(&self, described: &Described) {
        let account = &self.identity.account;
        for lane in self.standing.known().lanes {
            account.clear(&about_status(lane.grants.primary()));
        }
        for (kind, gaps) in described.gaps() {
            account.note(&about_status(kind), &gaps);
        }
    }

    /// Tells a Warning event about the Plugin. One that cannot be told is no reason for anything: the status says it too.
    pub async fn tell(&self, reason: &str, message: String) {
        let Some(own) = &self.own else { return };
        let live = own.live.borrow().clone();
        let (kind, name) = (Kind::new(GROUP, VERSION, "Plugin"), Name::new(None, &live.name));
        let regarding = Regarding {
            kind: &kind,
            name: &name,
            uid: &live.uid,
        };
        let event = Event {
            severity: Severity::Warning,
            reason: reason.to_owned(),
            message: shorten(message, LONGEST_NOTE),
        };
        let recorder = &self.identity.recorder;
        // What was told before this process began is not told again, and not asked for again either.
        let told = async {
            recorder.recall().await?;
            recorder
                .tell(&regarding, &event, &self.fleet.hub.clock.microseconds())
                .await
        };
        if let Err(error) = told.await {
            tracing::warn!(
                plugin = &*live.name,
                problem = chain(&error),
                "cannot tell an event about the Plugin"
            );
        }
    }

    /// It is stopped for its traps.
    pub fn say_crashed(&self, wait: Duration, why: &str) {
        let message = format!(
            "its calls trap or break a limit again and again for most of those whom it serves; it is tried again in {} s: \
             {why}",
            wait.as_secs()
        );
        tracing::error!(
            plugin = &*self.identity.name,
            problem = message,
            "the plugin is stopped"
        );
        self.standing.set(|known| {
            known.set(Step::Ready, Fact::no("CrashLoop", message));
            known.busy = None;
        });
    }
}
