//! The life cycle of a plugin as a state machine: the next state for an event, and the actions on the way. It does no
//! I/O and waits for nothing: `task` produces the events and carries out the actions. ARCHITECTURE.md has the diagram,
//! and docs/conditions.md the conditions of the Plugin in each state.

use std::time::Duration;

use crate::plugins::resource::state::{KIND_TAKEN, StartupProblem};

/// The state of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifeState {
    /// The request is read: at first, after each change of it, and after each change of the loaded version.
    Examining {
        /// Version that is loaded meanwhile.
        current: CurrentVersion,
    },
    /// The desired version is being prepared to take over.
    Starting(Startup),
    /// The desired version runs.
    Running,
    /// The desired version cannot be used.
    Refused {
        /// Version that is loaded meanwhile.
        current: CurrentVersion,
        /// Event that makes another attempt worthwhile.
        until: RefusedUntil,
    },
    /// The loaded version is not called for a while, because its calls crashed.
    CrashBackoff,
    /// The plugin is suspended.
    Suspended,
    /// The Plugin is being deleted: the plugin's objects are cleaned up, then the finalizer is removed.
    Finishing,
    /// The plugin was removed, or can never be used.
    Ended,
}

/// The loaded version, whether it is the desired one or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurrentVersion {
    /// No version is loaded.
    None,
    /// The version reconciles.
    Running,
    /// The version keeps its lanes and is not called, because its calls crashed.
    Stopped,
}

/// Progress of a startup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Startup {
    /// Current stage.
    pub stage: StartupStage,
    /// Set if a version, another or the same, runs meanwhile.
    pub is_update: bool,
    /// Failed startups in a row before this one.
    pub failures: u32,
}

/// Stages of a startup, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartupStage {
    /// The component is fetched and compiled, or found to be already loaded.
    Loading,
    /// The component describes itself, and the configuration is checked.
    Describing,
    /// The kinds whose CRDs the plugin brings are claimed.
    ClaimingKinds,
    /// Its CRDs are installed, and its earlier events are read back.
    InstallingCrds,
    /// The finalizer of the Plugin is added or removed.
    UpdatingFinalizer,
    /// An update waits until all its kinds are served and listed. A first version lets its lanes wait for that.
    WaitingForKinds,
    /// An update is called for some primaries on trial.
    Trial,
    /// Kinds that the version will make are written to the inventory in the Plugin's status.
    Recording,
}

/// Event for which a refused version waits. A change of the Plugin always starts another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedUntil {
    /// Only a change of the Plugin.
    Changed,
    /// The end of a back-off, or another component.
    Retry {
        /// Failed startups in a row.
        failures: u32,
    },
    /// An older plugin releases the kind that both bring, or the component changes.
    KindsFree {
        /// Failed startups in a row.
        failures: u32,
    },
}

/// Event in the life of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LifeEvent {
    /// The request changed.
    RequestChanged,
    /// The plugin was removed.
    Gone,

    /// A version is desired.
    VersionWanted,
    /// The spec is invalid.
    SpecInvalid(StartupProblem),
    /// The plugin is suspended.
    SuspensionWanted,
    /// The Plugin is being deleted.
    DeletionWanted,

    /// The component is loaded.
    Loaded,
    /// The component and the request are those that already run.
    AlreadyRuns,
    /// The component has described itself.
    Described,
    /// No older plugin brings the same kinds.
    KindsClaimed,
    /// The cluster has the CRDs.
    CrdsInstalled,
    /// The finalizer of the Plugin is as needed.
    FinalizerUpdated,
    /// All kinds are served and listed.
    KindsListed,
    /// The update does not fail where the running version succeeds.
    TrialPassed,
    /// The inventory lists all that the version will make.
    Recorded,
    /// The version cannot be used.
    StartupFailed {
        /// Reason.
        problem: StartupProblem,
        /// Set if it can never succeed.
        is_final: bool,
    },

    /// The back-off has ended.
    RetryDue,
    /// The component changed.
    ComponentChanged,
    /// The crashed version is no longer the desired one.
    CrashSuperseded,
    /// No older plugin brings the kinds any more.
    KindsFreed,

    /// Calls of the running version crash.
    Crashed {
        /// Duration without calls.
        wait: Duration,
        /// Message of the last crash.
        why: String,
    },
    /// An older plugin brings a kind of the running version.
    KindsLost,
    /// The inventory of earlier versions differs from what the running version watches.
    InventoryChanged,
}

/// Action of a transition, in the order of [`Transition::actions`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LifeAction {
    /// Report that the desired version cannot be used.
    ReportRefusal(StartupProblem),
    /// Report that the desired version runs, or what it waits for.
    ReportRunning,
    /// Report that nothing runs because of the spec.
    ReportSuspension,
    /// Report that the version is not called for a while, and record until when.
    ReportCrash {
        /// Duration without calls.
        wait: Duration,
        /// Message of the last crash.
        why: String,
    },
    /// Let the staged version replace the loaded one, if there is one.
    TakeOver,
    /// Unload the loaded version; its objects stay.
    Unload,
    /// Let the loaded version watch what the inventory lists.
    FollowInventory,
    /// Forget the crashes so far, before another version is tried.
    ResetCrashes,
    /// Allow calls again.
    Resume,
    /// Reconcile all primaries.
    Requeue,
    /// Clean up after a Plugin that is deleted, and remove its finalizer.
    Finish,
}

/// Result of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The new state.
    pub next: LifeState,
    /// Actions on the way, in order.
    pub actions: Vec<LifeAction>,
}

/// An event that cannot happen in a state.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} cannot happen to a plugin that is {state:?}; this is a bug of the host")]
pub struct IllegalEvent {
    state: LifeState,
    event: LifeEvent,
}

impl LifeAction {
    /// Returns `true` if the action only reports, beside the supervision of the running version. All others change that
    /// version or how it is called.
    pub fn is_report(&self) -> bool {
        matches!(
            self,
            Self::ReportRefusal(_) | Self::ReportRunning | Self::ReportSuspension
        )
    }
}

impl LifeState {
    /// The initial state.
    pub const FIRST: Self = Self::Examining {
        current: CurrentVersion::None,
    };

    /// The loaded version.
    pub fn current(self) -> CurrentVersion {
        match self {
            Self::Examining { current } | Self::Refused { current, .. } => current,
            Self::Starting(Startup { is_update: true, .. }) | Self::Running => CurrentVersion::Running,
            Self::CrashBackoff => CurrentVersion::Stopped,
            Self::Starting(_) | Self::Suspended | Self::Finishing | Self::Ended => CurrentVersion::None,
        }
    }

    /// Returns the transition for an event.
    pub fn on(self, event: LifeEvent) -> Result<Transition, IllegalEvent> {
        let transition = match self {
            Self::Ended => None,
            state => (state.requested(&event))
                .or_else(|| state.current().supervised(&event))
                .or_else(|| match state {
                    Self::Examining { current } => current.examined(&event),
                    Self::Starting(startup) => startup.on(&event),
                    Self::Running => running(&event),
                    Self::Refused { current, until } => until.on(current, &event),
                    Self::CrashBackoff => stopped(&event),
                    Self::Suspended | Self::Finishing | Self::Ended => None,
                }),
        };
        transition.ok_or(IllegalEvent { state: self, event })
    }

    fn starting(is_update: bool, failures: u32) -> Self {
        Self::Starting(Startup {
            stage: StartupStage::Loading,
            is_update,
            failures,
        })
    }

    /// Handles changes of the request, which may occur in every state.
    fn requested(self, event: &LifeEvent) -> Option<Transition> {
        let current = self.current();
        match event {
            LifeEvent::RequestChanged => to(Self::Examining { current }, []),
            LifeEvent::Gone => to(Self::Ended, current.unload()),
            _ => None,
        }
    }
}

impl CurrentVersion {
    /// Handles events of the loaded version, which may occur during any other work.
    fn supervised(self, event: &LifeEvent) -> Option<Transition> {
        if self == Self::None {
            return None;
        }
        match event {
            LifeEvent::Crashed { wait, why } => to(
                LifeState::Examining { current: Self::Stopped },
                [LifeAction::ReportCrash {
                    wait: *wait,
                    why: why.clone(),
                }],
            ),
            LifeEvent::KindsLost => to(LifeState::FIRST, self.unload()),
            LifeEvent::InventoryChanged => to(LifeState::Examining { current: self }, [LifeAction::FollowInventory]),
            _ => None,
        }
    }

    fn examined(self, event: &LifeEvent) -> Option<Transition> {
        match event {
            LifeEvent::VersionWanted if self == Self::Stopped => to(LifeState::CrashBackoff, []),
            LifeEvent::VersionWanted => to(LifeState::starting(self == Self::Running, 0), []),
            LifeEvent::SpecInvalid(problem) => to(
                LifeState::Refused {
                    current: self,
                    until: RefusedUntil::Changed,
                },
                [LifeAction::ReportRefusal(problem.clone())],
            ),
            LifeEvent::SuspensionWanted => {
                let mut actions = self.unload();
                actions.push(LifeAction::ReportSuspension);
                to(LifeState::Suspended, actions)
            }
            LifeEvent::DeletionWanted => {
                let mut actions = vec![LifeAction::Resume, LifeAction::Finish];
                if self == Self::Stopped {
                    actions.push(LifeAction::ResetCrashes);
                }
                to(LifeState::Finishing, actions)
            }
            _ => None,
        }
    }

    fn unload(self) -> Vec<LifeAction> {
        match self {
            Self::None => Vec::new(),
            Self::Running => vec![LifeAction::Unload],
            Self::Stopped => vec![LifeAction::Unload, LifeAction::ResetCrashes, LifeAction::Resume],
        }
    }
}

impl Startup {
    fn on(self, event: &LifeEvent) -> Option<Transition> {
        use StartupStage as Stage;
        let next = match (self.stage, event) {
            (Stage::Loading, LifeEvent::AlreadyRuns) if self.is_update => {
                return to(LifeState::Running, [LifeAction::ReportRunning]);
            }
            (Stage::Loading, LifeEvent::Loaded) => Stage::Describing,
            (Stage::Describing, LifeEvent::Described) => Stage::ClaimingKinds,
            (Stage::ClaimingKinds, LifeEvent::KindsClaimed) => Stage::InstallingCrds,
            (Stage::InstallingCrds, LifeEvent::CrdsInstalled) => Stage::UpdatingFinalizer,
            (Stage::UpdatingFinalizer, LifeEvent::FinalizerUpdated) if self.is_update => Stage::WaitingForKinds,
            (Stage::WaitingForKinds, LifeEvent::KindsListed) => Stage::Trial,
            (Stage::UpdatingFinalizer, LifeEvent::FinalizerUpdated) | (Stage::Trial, LifeEvent::TrialPassed) => {
                Stage::Recording
            }
            // The request is examined once more: it may have changed during the startup.
            (Stage::Recording, LifeEvent::Recorded) => {
                let current = CurrentVersion::Running;
                return to(LifeState::Examining { current }, [LifeAction::TakeOver]);
            }
            (
                Stage::Loading | Stage::Describing | Stage::ClaimingKinds | Stage::Trial | Stage::Recording,
                LifeEvent::StartupFailed { problem, is_final },
            ) => return self.failed(problem, *is_final),
            _ => return None,
        };
        to(LifeState::Starting(Self { stage: next, ..self }), [])
    }

    fn failed(self, problem: &StartupProblem, is_final: bool) -> Option<Transition> {
        let current = LifeState::Starting(self).current();
        let report = LifeAction::ReportRefusal(problem.clone());
        if is_final {
            let actions = std::iter::once(report).chain(current.unload());
            return to(LifeState::Ended, actions.collect::<Vec<_>>());
        }
        let failures = self.failures.saturating_add(1);
        let until = if problem.reason == KIND_TAKEN && !self.is_update {
            RefusedUntil::KindsFree { failures }
        } else {
            RefusedUntil::Retry { failures }
        };
        to(LifeState::Refused { current, until }, [report])
    }
}

fn running(event: &LifeEvent) -> Option<Transition> {
    match event {
        LifeEvent::ComponentChanged => to(LifeState::starting(true, 0), []),
        _ => None,
    }
}

impl RefusedUntil {
    fn on(self, current: CurrentVersion, event: &LifeEvent) -> Option<Transition> {
        if current == CurrentVersion::Stopped {
            return None;
        }
        let failures = match (self, event) {
            (Self::Retry { failures }, LifeEvent::RetryDue) | (Self::KindsFree { failures }, LifeEvent::KindsFreed) => {
                failures
            }
            (Self::Retry { .. } | Self::KindsFree { .. }, LifeEvent::ComponentChanged) => 0,
            _ => return None,
        };
        to(LifeState::starting(current == CurrentVersion::Running, failures), [])
    }
}

fn stopped(event: &LifeEvent) -> Option<Transition> {
    let again = [LifeAction::Resume, LifeAction::Requeue];
    match event {
        LifeEvent::RetryDue => to(LifeState::starting(true, 0), again),
        LifeEvent::CrashSuperseded => {
            let actions = std::iter::once(LifeAction::ResetCrashes).chain(again);
            to(LifeState::starting(true, 0), actions.collect::<Vec<_>>())
        }
        _ => None,
    }
}

#[expect(clippy::unnecessary_wraps, reason = "what has no transition is none")]
fn to(next: LifeState, actions: impl Into<Vec<LifeAction>>) -> Option<Transition> {
    Some(Transition {
        next,
        actions: actions.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::LifeAction as Action;
    use super::LifeEvent as Event;
    use super::LifeState as State;
    use super::*;
    use crate::plugins::resource::state::StartupStep;

    fn problem(reason: &'static str) -> StartupProblem {
        StartupProblem::new(StartupStep::Ready, reason, "it cannot be")
    }

    fn failed(reason: &'static str) -> Event {
        Event::StartupFailed {
            problem: problem(reason),
            is_final: false,
        }
    }

    fn crashed() -> Event {
        Event::Crashed {
            wait: Duration::from_secs(30),
            why: "a trap".to_owned(),
        }
    }

    fn report_crash() -> Action {
        Action::ReportCrash {
            wait: Duration::from_secs(30),
            why: "a trap".to_owned(),
        }
    }

    fn refusal(reason: &'static str) -> Action {
        Action::ReportRefusal(problem(reason))
    }

    fn examining(current: CurrentVersion) -> State {
        State::Examining { current }
    }

    fn at(stage: StartupStage, is_update: bool) -> State {
        State::Starting(Startup {
            stage,
            is_update,
            failures: 0,
        })
    }

    fn refused(current: CurrentVersion, until: RefusedUntil) -> State {
        State::Refused { current, until }
    }

    /// The state and the actions after some events.
    fn after(mut state: State, events: impl IntoIterator<Item = Event>) -> (State, Vec<Action>) {
        let mut actions = Vec::new();
        for event in events {
            let transition = state.on(event).unwrap();
            state = transition.next;
            actions.extend(transition.actions);
        }
        (state, actions)
    }

    const STAGES: [StartupStage; 8] = [
        StartupStage::Loading,
        StartupStage::Describing,
        StartupStage::ClaimingKinds,
        StartupStage::InstallingCrds,
        StartupStage::UpdatingFinalizer,
        StartupStage::WaitingForKinds,
        StartupStage::Trial,
        StartupStage::Recording,
    ];

    const VERSIONS: [CurrentVersion; 3] = [CurrentVersion::None, CurrentVersion::Running, CurrentVersion::Stopped];

    /// Every state that there is.
    fn states() -> Vec<State> {
        let untils = [
            RefusedUntil::Changed,
            RefusedUntil::Retry { failures: 2 },
            RefusedUntil::KindsFree { failures: 2 },
        ];
        let mut states = vec![
            State::Running,
            State::CrashBackoff,
            State::Suspended,
            State::Finishing,
            State::Ended,
        ];
        states.extend(VERSIONS.map(examining));
        states.extend(STAGES.map(|stage| at(stage, false)));
        states.extend(STAGES.map(|stage| at(stage, true)));
        states.extend(
            VERSIONS
                .iter()
                .flat_map(|current| untils.map(|until| refused(*current, until))),
        );
        states
    }

    /// An event of each sort.
    fn events() -> Vec<Event> {
        vec![
            Event::RequestChanged,
            Event::Gone,
            Event::VersionWanted,
            Event::SpecInvalid(problem("InvalidSpec")),
            Event::SuspensionWanted,
            Event::DeletionWanted,
            Event::Loaded,
            Event::AlreadyRuns,
            Event::Described,
            Event::KindsClaimed,
            Event::CrdsInstalled,
            Event::FinalizerUpdated,
            Event::KindsListed,
            Event::TrialPassed,
            Event::Recorded,
            failed("TrialFailed"),
            Event::StartupFailed {
                problem: problem("TrialFailed"),
                is_final: true,
            },
            Event::RetryDue,
            Event::ComponentChanged,
            Event::CrashSuperseded,
            Event::KindsFreed,
            crashed(),
            Event::KindsLost,
            Event::InventoryChanged,
        ]
    }

    #[test]
    fn a_first_version_runs_without_a_trial() {
        let events = [
            Event::VersionWanted,
            Event::Loaded,
            Event::Described,
            Event::KindsClaimed,
            Event::CrdsInstalled,
            Event::FinalizerUpdated,
            Event::Recorded,
        ];
        let (state, actions) = after(State::FIRST, events);
        assert_eq!(
            (state, actions),
            (examining(CurrentVersion::Running), vec![Action::TakeOver])
        );
        let (state, actions) = after(state, [Event::VersionWanted, Event::AlreadyRuns]);
        assert_eq!((state, actions), (State::Running, vec![Action::ReportRunning]));
    }

    #[test]
    fn an_update_waits_for_its_kinds_and_passes_a_trial() {
        let events = [
            Event::ComponentChanged,
            Event::Loaded,
            Event::Described,
            Event::KindsClaimed,
            Event::CrdsInstalled,
            Event::FinalizerUpdated,
        ];
        let (state, actions) = after(State::Running, events);
        assert_eq!((state, actions), (at(StartupStage::WaitingForKinds, true), vec![]));
        let (state, actions) = after(state, [Event::KindsListed]);
        assert_eq!((state, actions), (at(StartupStage::Trial, true), vec![]));
        let (state, actions) = after(state, [Event::TrialPassed, Event::Recorded]);
        assert_eq!(
            (state, actions),
            (examining(CurrentVersion::Running), vec![Action::TakeOver])
        );
    }

    #[test]
    fn a_refused_update_leaves_the_version_that_runs_and_is_retried() {
        let (state, actions) = after(at(StartupStage::Trial, true), [failed("TrialFailed")]);
        let until = RefusedUntil::Retry { failures: 1 };
        assert_eq!(state, refused(CurrentVersion::Running, until));
        assert_eq!(actions, [refusal("TrialFailed")]);
        let (state, actions) = after(state, [Event::RetryDue, failed("FetchFailed"), Event::RetryDue]);
        assert_eq!(actions, [refusal("FetchFailed")]);
        let again = |failures| {
            State::Starting(Startup {
                stage: StartupStage::Loading,
                is_update: true,
                failures,
            })
        };
        assert_eq!(state, again(2), "each wait is longer");
        let (state, _) = after(state, [failed("FetchFailed"), Event::ComponentChanged]);
        assert_eq!(state, again(0), "another component is another matter");
    }

    #[test]
    fn a_plugin_whose_kind_is_taken_waits_for_the_kind() {
        let (state, _) = after(at(StartupStage::ClaimingKinds, false), [failed(KIND_TAKEN)]);
        let until = RefusedUntil::KindsFree { failures: 1 };
        assert_eq!(state, refused(CurrentVersion::None, until));
        assert!(state.on(Event::RetryDue).is_err());
        let (state, _) = after(state, [Event::KindsFreed]);
        assert!(matches!(
            state,
            State::Starting(Startup {
                is_update: false,
                failures: 1,
                ..
            })
        ));
        let (state, _) = after(at(StartupStage::ClaimingKinds, true), [failed(KIND_TAKEN)]);
        let until = RefusedUntil::Retry { failures: 1 };
        assert_eq!(
            state,
            refused(CurrentVersion::Running, until),
            "what runs has kinds of its own"
        );
    }

    #[test]
    fn a_failure_that_nothing_can_change_ends_the_plugin() {
        let event = Event::StartupFailed {
            problem: problem("Refused"),
            is_final: true,
        };
        let (state, actions) = after(at(StartupStage::Loading, false), [event]);
        assert_eq!((state, actions), (State::Ended, vec![refusal("Refused")]));
    }

    #[test]
    fn an_invalid_spec_is_refused_until_it_changes() {
        for current in VERSIONS {
            let (state, actions) = after(examining(current), [Event::SpecInvalid(problem("InvalidSpec"))]);
            assert_eq!(state, refused(current, RefusedUntil::Changed));
            assert_eq!(actions, [refusal("InvalidSpec")]);
            assert!(state.on(Event::ComponentChanged).is_err());
            assert_eq!(after(state, [Event::RequestChanged]), (examining(current), vec![]));
        }
    }

    #[test]
    fn a_crashed_version_is_called_again_after_its_back_off() {
        let (state, actions) = after(State::Running, [crashed(), Event::VersionWanted]);
        assert_eq!((state, actions), (State::CrashBackoff, vec![report_crash()]));
        let (state, actions) = after(state, [Event::InventoryChanged, Event::VersionWanted]);
        assert_eq!((state, actions), (State::CrashBackoff, vec![Action::FollowInventory]));
        let (next, actions) = after(state, [Event::RetryDue]);
        assert_eq!(next, at(StartupStage::Loading, true));
        assert_eq!(actions, [Action::Resume, Action::Requeue]);
        let (next, actions) = after(state, [Event::CrashSuperseded]);
        assert_eq!(next, at(StartupStage::Loading, true));
        assert_eq!(actions, [Action::ResetCrashes, Action::Resume, Action::Requeue]);
    }

    #[test]
    fn a_suspended_plugin_is_unloaded_and_starts_anew() {
        let (state, actions) = after(State::Running, [Event::RequestChanged, Event::SuspensionWanted]);
        assert_eq!(state, State::Suspended);
        assert_eq!(actions, [Action::Unload, Action::ReportSuspension]);
        let (state, actions) = after(state, [Event::RequestChanged, Event::VersionWanted]);
        assert_eq!((state, actions), (at(StartupStage::Loading, false), vec![]));
        let (_, actions) = after(State::CrashBackoff, [Event::RequestChanged, Event::SuspensionWanted]);
        let expected = [
            Action::Unload,
            Action::ResetCrashes,
            Action::Resume,
            Action::ReportSuspension,
        ];
        assert_eq!(actions, expected, "it starts with a clean record");
    }

    #[test]
    fn a_deleted_plugin_is_finished_with_its_calls_resumed() {
        let events = [Event::RequestChanged, Event::DeletionWanted];
        let (state, actions) = after(State::Running, events.clone());
        assert_eq!(
            (state, actions),
            (State::Finishing, vec![Action::Resume, Action::Finish])
        );
        assert_eq!(after(state, [Event::Gone]), (State::Ended, vec![]));
        let (_, actions) = after(State::CrashBackoff, events);
        assert_eq!(actions, [Action::Resume, Action::Finish, Action::ResetCrashes]);
    }

    #[test]
    fn a_plugin_that_loses_its_kinds_is_unloaded_and_examined() {
        let (state, actions) = after(State::Running, [Event::KindsLost]);
        assert_eq!((state, actions), (State::FIRST, vec![Action::Unload]));
        let (state, actions) = after(State::CrashBackoff, [Event::KindsLost]);
        assert_eq!(state, State::FIRST);
        assert_eq!(actions, [Action::Unload, Action::ResetCrashes, Action::Resume]);
    }

    #[test]
    fn a_request_can_change_or_go_in_every_state_but_the_last() {
        for state in states() {
            if state == State::Ended {
                assert!(events().into_iter().all(|event| state.on(event).is_err()));
                continue;
            }
            let current = state.current();
            assert_eq!(after(state, [Event::RequestChanged]), (examining(current), vec![]));
            let (next, actions) = after(state, [Event::Gone]);
            assert_eq!(next, State::Ended);
            assert_eq!(
                actions.contains(&Action::Unload),
                current != CurrentVersion::None,
                "{state:?}"
            );
        }
    }

    #[test]
    fn the_version_that_is_loaded_is_supervised_in_every_state() {
        for state in states() {
            for event in [crashed(), Event::KindsLost, Event::InventoryChanged] {
                let is_loaded = state.current() != CurrentVersion::None;
                assert_eq!(state.on(event).is_ok(), is_loaded, "{state:?}");
            }
        }
    }

    #[test]
    fn actions_leave_the_version_loaded_that_the_next_state_has() {
        for state in states() {
            for event in events() {
                let Ok(Transition { next, actions }) = state.on(event.clone()) else {
                    continue;
                };
                let mut current = state.current();
                for action in &actions {
                    current = match (action, current) {
                        (Action::TakeOver, _) | (Action::Resume, CurrentVersion::Stopped) => CurrentVersion::Running,
                        (Action::Unload | Action::Finish, _) => CurrentVersion::None,
                        (Action::ReportCrash { .. }, _) => CurrentVersion::Stopped,
                        (_, current) => current,
                    };
                }
                assert_eq!(current, next.current(), "{state:?}, {event:?}");
            }
        }
    }

    #[test]
    fn an_event_that_cannot_happen_is_an_error() {
        let count = |state: State| {
            events()
                .into_iter()
                .filter(|event| state.on(event.clone()).is_ok())
                .count()
        };
        // Two of what is wanted, three of the version that is loaded, and what the state itself waits for.
        assert_eq!(count(State::Running), 2 + 3 + 1);
        assert_eq!(count(State::CrashBackoff), 2 + 3 + 2);
        assert_eq!(count(State::FIRST), 2 + 4);
        assert_eq!((count(State::Suspended), count(State::Finishing)), (2, 2));
        assert_eq!(
            count(refused(CurrentVersion::None, RefusedUntil::Retry { failures: 1 })),
            2 + 2
        );
        let of_startup = STAGES.map(|stage| (count(at(stage, false)) - 2, count(at(stage, true)) - 2 - 3));
        let expected = [(3, 4), (3, 3), (3, 3), (1, 1), (1, 1), (1, 1), (3, 3), (3, 3)];
        assert_eq!(of_startup, expected);
        let error = State::Suspended.on(Event::Loaded).unwrap_err().to_string();
        assert!(
            error.starts_with("Loaded cannot happen to a plugin that is Suspended"),
            "{error}"
        );
    }
}
