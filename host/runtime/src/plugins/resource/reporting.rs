//! Reports the progress of a plugin: in the log, in the state from which its status is made, and in events on its
//! Plugin resource.

use std::time::Duration;

use pilothouse_cluster::error::chain;
use pilothouse_cluster::write::events::Regarding;
use pilothouse_core::plugin::contract::{Event, EventType};
use pilothouse_core::text::printable::shorten;
use pilothouse_core::{Kind, Name};
use pilothouse_crds::plugin::{GROUP, VERSION};
use tokio::time::Instant;

use super::progress::Progress;
use super::state::{ConditionState, KIND_TAKEN, NOT_GRANTED, StartupProblem, StartupStep, WantedVersion};
use crate::lanes::health::{ABOUT_DESCRIPTION, about_status};
use crate::lanes::lane::RunMode;
use crate::plugins::fetch::earlier_artifact::LoadedVersion;
use crate::plugins::life_cycle::Startup;
use crate::plugins::plugin::{PluginTask, RunningVersion};
use crate::plugins::version::prepare::DescribedPlugin;

/// The longest message of an event, in bytes: what the API server takes.
const LONGEST_NOTE: usize = 1024;

impl PluginTask {
    /// Reports whether the running version has all that it needs.
    pub fn report_ready(&self, running: Option<&RunningVersion>) {
        let Some(running) = running else { return };
        if self.identity.health.is_stopped() {
            return;
        }
        let missing = self.context.host.missing(&running.lanes);
        let is_granted = running.lanes.iter().all(|lane| lane.access.is_granted());
        if missing.is_empty()
            && is_granted
            && let Some(own) = &self.own
        {
            // A refusal after this is a new episode.
            self.identity.recorder.recovered(&own.live.borrow().uid);
        }
        let preview = running
            .request
            .wanted
            .as_ref()
            .is_ok_and(|wanted| wanted.mode == RunMode::Preview);
        let is_forbidden = self.context.host.kinds.is_forbidden(&running.lanes);
        let told = self.told_missing();
        let lacking = running.lanes.iter().filter(|lane| lane.lacks_primary());
        let lacking: Vec<String> = lacking.map(|lane| lane.grants.primary().to_string()).collect();
        let established = match lacking.as_slice() {
            [] => "all its kinds are served and listed".to_owned(),
            kinds => format!(
                "its kinds are served and listed, but for optional ones, whose controllers begin once they are served: {}",
                kinds.join(", ")
            ),
        };
        self.plugin_state.set(|known| {
            if missing.is_empty() {
                known.set(
                    StartupStep::Established,
                    ConditionState::yes("Established", established),
                );
                if !is_granted {
                    let problem = known.granted.clone().filter(|fact| fact.holds != Some(true));
                    // Otherwise the first review is still running.
                    if let Some(problem) = problem {
                        known.set(StartupStep::Ready, ConditionState::no(NOT_GRANTED, problem.message));
                        known.busy = None;
                    }
                    return;
                }
                if let Some(missing) = known.cannot_act.clone() {
                    known.set(StartupStep::Ready, ConditionState::no(NOT_GRANTED, missing));
                    known.busy = None;
                    return;
                }
                let ready = if preview {
                    ConditionState::yes("Preview", "nothing is written; status.previews tells what would be")
                } else {
                    ConditionState::yes("Running", "the host reconciles its objects")
                };
                known.set(StartupStep::Ready, ready);
                known.busy = None;
            } else {
                let (reason, why) = match &told {
                    Some(told) if is_forbidden => (NOT_GRANTED, format!("{missing} cannot be listed: {told}")),
                    _ => ("Waiting", format!("waiting until {missing} is served and listed")),
                };
                known.set(StartupStep::Established, ConditionState::no(reason, why.clone()));
                known.set(StartupStep::Ready, ConditionState::no(reason, why));
            }
        });
    }

    /// Reports that the desired version waits for an external condition.
    pub fn report_waiting(&self, why: &str) {
        self.report_waiting_for("Waiting", why);
    }

    /// Reports the same with another reason, if a user has to act.
    pub fn report_waiting_for(&self, reason: &'static str, why: &str) {
        let ends = self.own.as_ref().is_some_and(|own| own.live.borrow().deleting);
        self.plugin_state.set(|known| {
            if ends {
                // A deletion is a generation of its own, and the running version carries it out.
                known.settle();
                known.running_generation = known.running_generation.and(known.generation);
                known.set(StartupStep::Ready, ConditionState::no("Finishing", why));
                return;
            }
            known.progress = Progress::awaited(reason, why);
            if known.is_loaded() {
                known.set(
                    StartupStep::Ready,
                    ConditionState::yes("PreviousVersion", format!("the version before goes on: {why}")),
                );
            } else {
                known.set(StartupStep::Established, ConditionState::no(reason, why));
                known.set(StartupStep::Ready, ConditionState::no(reason, why));
            }
        });
    }

    /// Reports that the desired version is being prepared. While one that was refused is tried again, the refusal stands.
    pub fn report_startup(&self, startup: Startup) {
        let recorded = self.told_status().and_then(|status| status.running_generation);
        self.plugin_state.set(|known| {
            known.busy = Some(Instant::now());
            // After a restart, and whenever its source may have moved, a spec that ran before is examined again, which says
            // nothing yet.
            let ran = known.running_generation.or(recorded);
            let is_new = ran.is_none() || ran != known.generation;
            if is_new && startup.failures == 0 {
                known.progress = Progress::tried(startup.is_update);
            }
        });
    }

    /// Reports which version is desired.
    pub fn report_wanted(&self, (loaded, described): &LoadedVersion) {
        let wanted = WantedVersion {
            digest: loaded.component.digest().to_owned(),
            version: described.version.clone(),
        };
        self.plugin_state.set(|known| {
            let is_another = known.digest.as_ref().is_some_and(|running| *running != wanted.digest);
            if is_another && known.progress == Progress::Settled {
                known.progress = Progress::tried(true);
            }
            known.wanted = Some(wanted);
        });
    }

    /// Reports that the desired version runs.
    pub fn report_running(&self, running: Option<&RunningVersion>) {
        let is_unasked = self.artifact.is_unasked();
        self.plugin_state.set(|known| {
            known.settle();
            known.is_unasked = is_unasked;
        });
        self.report_ready(running);
    }

    /// Reports that nothing runs because the spec suspends the plugin.
    pub fn report_suspension(&self) {
        self.context.claims.give_up(&self.identity.name);
        self.context.host.unstarted.leave(&self.identity.name);
        self.plugin_state.set(|known| {
            known.set(
                StartupStep::Ready,
                ConditionState::no("Suspended", "spec.mode is Suspended; its objects stay as they are"),
            );
            known.settle();
            known.busy = None;
        });
    }

    /// Reports that the request cannot be fulfilled and the running version continues, in the log, the Plugin's status
    /// and an event.
    pub async fn refuse(&self, running: Option<&RunningVersion>, problem: &StartupProblem) {
        let StartupProblem { step, reason, message } = problem;
        if running.is_none() && *reason != KIND_TAKEN {
            self.context.claims.give_up(&self.identity.name);
        }
        if let (None, Some(own)) = (running, &self.own) {
            let unstarted = &self.context.host.unstarted;
            unstarted.refuse(&self.identity.name, &own.live, message);
        }
        let goes_on = format!("the version before goes on: {message}");
        let said = self.plugin_state.known().fact(*step).message.clone();
        let is_news = said != *message && said != goes_on;
        let what = match running {
            Some(_) => "the plugin cannot be used as it is wanted; the version before goes on",
            None => "the plugin cannot be used",
        };
        if is_news {
            tracing::error!(plugin = &*self.identity.name, reason, problem = message, "{what}");
        }
        self.plugin_state.set(|known| {
            known.set(*step, ConditionState::no(reason, message.clone()));
            known.progress = Progress::stopped_by(problem);
            if known.progress.is_stalled() {
                known.decided_generation = known.generation;
            }
            let ready = if running.is_some() {
                ConditionState::yes("PreviousVersion", goes_on)
            } else {
                ConditionState::no(reason, message.clone())
            };
            known.set(StartupStep::Ready, ready);
            known.busy = None;
        });
        if is_news {
            self.emit_warning(reason, format!("{what}: {message}")).await;
        }
    }

    /// Reports inconsistencies in the description of a version, and status fields that its CRDs do not accept.
    pub fn report_findings(&self, described: &DescribedPlugin) {
        let health = &self.identity.health;
        for lane in self.plugin_state.known().lanes {
            health.clear(&about_status(lane.grants.primary()));
        }
        for (kind, gaps) in described.gaps() {
            health.set_warning(&about_status(kind), &gaps);
        }
        match described.findings().as_slice() {
            [] => {
                health.clear(ABOUT_DESCRIPTION);
            }
            findings => health.set_warning(ABOUT_DESCRIPTION, &findings.join("; ")),
        }
    }

    async fn emit_warning(&self, reason: &str, message: String) {
        self.emit(EventType::Warning, reason, message).await;
    }

    /// Emits an event on the Plugin. A failure loses nothing, because the status says the same. A warning is emitted
    /// once as long as its cause lasts, other events each time.
    pub async fn emit(&self, type_: EventType, reason: &str, message: String) {
        let Some(own) = &self.own else { return };
        let live = own.live.borrow().clone();
        let (kind, name) = (Kind::new(GROUP, VERSION, "Plugin"), Name::new(None, &live.name));
        let regarding = Regarding {
            kind: &kind,
            name: &name,
            uid: &live.uid,
        };
        let event = Event {
            type_,
            reason: reason.to_owned(),
            message: shorten(message, LONGEST_NOTE),
        };
        let recorder = &self.identity.recorder;
        // Events of earlier processes are recalled once, and not emitted again.
        let told = async {
            recorder.recall().await?;
            let now = self.context.host.clock.microseconds();
            let episode = (type_ != EventType::Warning).then_some(&*now);
            recorder.record_failure(&regarding, &event, episode, &now).await
        };
        if let Err(error) = told.await {
            tracing::warn!(
                plugin = &*live.name,
                problem = chain(&error),
                "cannot emit an event on the Plugin"
            );
        }
    }

    /// Reports that the plugin is stopped because of its crashes.
    pub fn report_crash(&self, wait: Duration, why: &str) {
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
        self.plugin_state.set(|known| {
            known.set(StartupStep::Ready, ConditionState::no("CrashLoop", message));
            known.busy = None;
        });
    }
}
