//! Tests of the conditions about the progress of a plugin, and of the generations in its status.

use std::sync::Arc;

use pilothouse_crds::plugin::{ArtifactStatus, PluginCondition, PluginStatus};

use super::*;
use crate::lanes::lane::Lane;
use crate::plugins::resource::state::{PluginState, StatusFigures, status};
use crate::test_support::{TestHost, controller};

const NOW: &str = "2026-01-02T03:04:05Z";

async fn lane() -> Arc<Lane> {
    let host = TestHost::new().await;
    host.put(host.lane("it", controller(&[])))
}

/// A plugin that runs as generation 1, while generation 2 is wanted.
fn updated(lane: &Arc<Lane>, progress: Progress) -> PluginFacts {
    let plugin_state = PluginState::default();
    plugin_state.set(|known| {
        known.lanes = vec![lane.clone()];
        known.generation = Some(1);
        known.running_generation = Some(1);
        known.settle();
        for step in [
            StartupStep::Fetched,
            StartupStep::Compiled,
            StartupStep::Established,
            StartupStep::Ready,
        ] {
            known.set(step, ConditionState::yes("Running", "fine"));
        }
        known.artifact = RunningArtifact::Known(ArtifactStatus {
            reference: "example.com/a:1".to_owned(),
            tag: Some("1".to_owned()),
            digest: "sha256:1".to_owned(),
            size: 1,
            signer: None,
        });
        known.generation = Some(2);
        if progress.is_stalled() {
            known.decided_generation = Some(2);
        }
        known.progress = progress;
    });
    plugin_state.known()
}

fn told(known: &PluginFacts, live: &PluginStatus) -> PluginStatus {
    status(known, StatusFigures::default(), live, NOW)
}

fn of<'a>(status: &'a PluginStatus, kind: &str) -> Option<&'a PluginCondition> {
    status.conditions.iter().find(|condition| condition.kind == kind)
}

fn words(status: &PluginStatus, kind: &str) -> Option<(String, String, Option<i64>)> {
    let found = of(status, kind)?;
    Some((found.status.clone(), found.reason.clone(), found.observed_generation))
}

#[expect(clippy::unnecessary_wraps, reason = "it is compared with `words`")]
fn words_of(status: &str, reason: &str, generation: i64) -> Option<(String, String, Option<i64>)> {
    Some((status.to_owned(), reason.to_owned(), Some(generation)))
}

fn refusal(reason: &'static str) -> Progress {
    Progress::stopped_by(&StartupProblem::new(StartupStep::Ready, reason, "why"))
}

#[tokio::test]
async fn a_version_that_is_tried_or_waited_for_decides_nothing() {
    let lane = lane().await;
    for progress in [
        Progress::tried(true),
        Progress::awaited("CrdMissing", "apply the CRD"),
        refusal("Unreachable"),
        refusal("TooManyRequests"),
    ] {
        let status = told(&updated(&lane, progress.clone()), &PluginStatus::default());
        assert_eq!(
            (status.observed_generation, status.running_generation),
            (Some(1), Some(1))
        );
        let reason = progress.obstacle().unwrap().reason;
        assert_eq!(words(&status, "Reconciling"), words_of("True", reason, 2));
        assert_eq!(words(&status, "Stalled"), None);
        assert_eq!(words(&status, "Ready"), words_of("True", "Running", 1));
    }
}

#[tokio::test]
async fn a_refused_version_is_decided_and_ready_stays_with_the_one_that_runs() {
    let lane = lane().await;
    for reason in [
        "SignatureMissing",
        "TrialFailed",
        "NotGranted",
        "InvalidConfiguration",
        "KindTaken",
        "NotFound",
    ] {
        let status = told(&updated(&lane, refusal(reason)), &PluginStatus::default());
        assert_eq!(
            (status.observed_generation, status.running_generation),
            (Some(2), Some(1))
        );
        assert_eq!(words(&status, "Stalled"), words_of("True", reason, 2));
        assert_eq!(words(&status, "Reconciling"), None);
        for kind in ["Ready", "Established"] {
            assert_eq!(words(&status, kind), words_of("True", "Running", 1), "{kind}");
        }
    }
}

#[tokio::test]
async fn a_version_that_runs_has_one_generation_and_neither_condition() {
    let lane = lane().await;
    let mut known = updated(&lane, Progress::Settled);
    known.running_generation = Some(2);
    known.settle();
    let status = told(&known, &PluginStatus::default());
    assert_eq!(
        (status.observed_generation, status.running_generation),
        (Some(2), Some(2))
    );
    assert!(status.conditions.iter().all(|it| it.observed_generation == Some(2)));
    for kind in ["Reconciling", "Stalled", "UpToDate"] {
        assert_eq!(of(&status, kind), None);
    }
}

#[tokio::test]
async fn the_decision_of_an_earlier_process_stands_until_this_one_decides() {
    let lane = lane().await;
    let live = PluginStatus {
        observed_generation: Some(2),
        ..PluginStatus::default()
    };
    let mut known = updated(&lane, Progress::tried(false));
    known.decided_generation = None;
    known.lanes.clear();
    assert_eq!(told(&known, &live).observed_generation, Some(2));
    assert_eq!(words(&told(&known, &live), "Ready"), words_of("True", "Running", 2));
}

#[tokio::test]
async fn only_a_followed_source_is_up_to_date_or_not() {
    let lane = lane().await;
    let followed = |progress| {
        let mut known = updated(&lane, progress);
        known.is_followed = true;
        known
    };
    let none = PluginStatus::default();
    let said = |known: &PluginFacts| words(&told(known, &none), "UpToDate");
    assert_eq!(said(&updated(&lane, Progress::Settled)), None);
    assert_eq!(said(&followed(Progress::Settled)), words_of("True", "UpToDate", 2));
    assert_eq!(
        said(&followed(Progress::tried(true))),
        words_of("False", "Progressing", 2)
    );
    assert_eq!(
        said(&followed(refusal("TrialFailed"))),
        words_of("False", "TrialFailed", 2)
    );
    let mut unresolved = followed(Progress::Settled);
    unresolved.set(
        StartupStep::Fetched,
        ConditionState::no("Unreachable", "nobody answers"),
    );
    assert_eq!(said(&unresolved), words_of("Unknown", "Unreachable", 2));
    assert_eq!(
        words(&told(&unresolved, &none), "Reconciling"),
        None,
        "what runs is not in doubt"
    );
    let mut unasked = followed(Progress::Settled);
    unasked.is_unasked = true;
    assert_eq!(said(&unasked), words_of("Unknown", "Pending", 2));
}

#[tokio::test]
async fn a_refusal_stands_over_a_restart_until_the_registry_is_asked() {
    let lane = lane().await;
    let mut known = updated(&lane, refusal("TrialFailed"));
    known.is_followed = true;
    known.is_artifact = true;
    known.set(
        StartupStep::Verified,
        ConditionState::no("Unsigned", "nobody has signed it"),
    );
    known.set(
        StartupStep::Ready,
        ConditionState::yes("PreviousVersion", "the version before goes on"),
    );
    let before = told(&known, &PluginStatus::default());
    known.progress = Progress::Settled;
    known.is_unasked = true;
    known.set(
        StartupStep::Verified,
        ConditionState::yes("Verified", "somebody has signed it"),
    );
    known.set(StartupStep::Ready, ConditionState::yes("Running", "fine"));
    let after = told(&known, &before);
    assert_eq!(after, before, "a restart writes nothing");
    known.set(StartupStep::Ready, ConditionState::no("Waiting", "for a kind"));
    assert_eq!(words(&told(&known, &before), "Ready"), words_of("False", "Waiting", 1));
    known.generation = Some(3);
    assert_eq!(words(&told(&known, &before), "Stalled"), None, "another spec is wanted");
    known.generation = Some(2);
    known.is_unasked = false;
    assert_eq!(words(&told(&known, &before), "Stalled"), None);
}

#[tokio::test]
async fn a_host_that_may_not_act_as_the_account_is_not_granted() {
    let lane = lane().await;
    let mut known = updated(&lane, Progress::Settled);
    known.granted = Some(ConditionState::yes("Granted", "all rights"));
    let granted = |known: &PluginFacts| of(&told(known, &PluginStatus::default()), "Granted").cloned().unwrap();
    assert_eq!(granted(&known).observed_generation, Some(1));
    known.cannot_act = Some("may not impersonate".to_owned());
    let said = granted(&known);
    assert_eq!(
        (&*said.status, &*said.reason, &*said.message),
        ("False", "NotGranted", "may not impersonate")
    );
    known.granted = Some(ConditionState::no("NotGranted", "may not list pods"));
    assert_eq!(granted(&known).message, "may not impersonate; may not list pods");
    known.not_granted = Some("the new version needs more".to_owned());
    let said = granted(&known);
    assert_eq!(
        (&*said.reason, said.observed_generation),
        ("NewVersionNotGranted", Some(2))
    );
}
