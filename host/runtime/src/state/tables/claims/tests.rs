//! Tests of the claims: when a target is settled, which primaries wait, and which fields are released.

use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::cache::store::WatchSource;
use pilothouse_core::contribution::{ClaimAge, Leaf, Leaves, Path};
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Failure, Key};
use serde_json::{Value, json};
use tokio::sync::oneshot::Receiver;
use tokio::time::Instant;

use super::*;
use crate::lanes::lane::Lane;
use crate::lanes::primary::PrimaryRef;
use crate::test_support::*;

const LINGER: Duration = Duration::from_millis(250);
const STEP: Duration = Duration::from_millis(5);

/// A host with an open lane that contributes to children, two primaries that have answered, and a target `t`.
struct Scene {
    host: TestHost,
    lane: Arc<Lane>,
    target: TargetId,
    children: WatchSource,
}

async fn scene() -> Scene {
    let host = TestHost::new().await;
    let lane = host.put(host.lane("plugin", controller(&["contributed"])));
    let primaries = ["p", "q"].map(|name| text(name, 1, &json!({})));
    host.list(&primary_kind(), &primaries);
    let children = host.list(&child_kind(), &[text("t", 1, &json!({}))]);
    host.run_all();
    let target = (lane.plugin.clone(), Key::new(Arc::new(child_kind()), name("t")));
    Scene {
        host,
        lane,
        target,
        children,
    }
}

impl Scene {
    /// Makes the claim of a primary on a field of the target; `None`: it claims nothing.
    fn claim(&self, primary: &str, value: Option<u32>) -> PendingClaims {
        let leaf = |value: u32| (Path::default(), Leaf::Value(json!(value)));
        let leaves: Option<Leaves> = value.map(|value| Leaves::from([leaf(value)]));
        let request = ClaimRequest {
            primary_ref: &self.primary(primary),
            uid: &format!("uid-{primary}"),
            title: primary.into(),
            age: ClaimAge {
                created: String::new(),
                uid: primary.into(),
            },
            wanted: leaves
                .into_iter()
                .map(|leaves| (self.target.1.clone(), leaves))
                .collect(),
        };
        self.host.context.state.make_claims(&self.lane, request)
    }

    fn primary(&self, name: &str) -> PrimaryRef {
        primary(&self.lane, name)
    }

    fn take(&self) -> Vec<TargetId> {
        self.host.context.state.take_targets(16, LINGER, STEP).0
    }

    /// Settles the target with this result for each of its claims.
    fn look(&self, result: &Result<(), Failure>, newest: Option<&Value>) {
        let (waiters, captured) = self.host.context.state.begin_settlement(&self.target).unwrap();
        let look = TargetSnapshot::new(captured);
        let claims = look
            .claims()
            .map(|(primary, claim)| (primary.clone(), claim.leaves.clone()))
            .collect::<Vec<_>>();
        let settled = SettledTarget {
            results: look
                .claims()
                .map(|(primary, _)| (primary.clone(), result.clone()))
                .collect(),
            undecided: [].into(),
            refused: [].into(),
            held: Leaves::new(),
            newest: newest.map(|newest| Arc::new(object(&child_kind(), newest))),
            unpersisted: None,
            wrote: newest.is_some(),
            trouble: None,
        };
        let ended = EndedLook {
            claims,
            waiters,
            settled,
        };
        self.host.context.state.end_settlement(&self.target, ended);
        self.host.context.state.target_done(&self.target);
    }
}

fn coming(pending: PendingClaims) -> Receiver<target::ClaimOutcome> {
    match pending {
        PendingClaims::Known(known, mut coming) if known.is_empty() && coming.len() == 1 => coming.remove(0),
        _ => panic!("the claim is not known and is there"),
    }
}

fn refused() -> Failure {
    Failure::user(Reason::FieldConflict, "no")
}

#[tokio::test(start_paused = true)]
async fn a_target_is_looked_at_at_once_when_nothing_else_is_queued() {
    let scene = scene().await;
    scene.claim("p", Some(1));
    assert_eq!(scene.take(), std::slice::from_ref(&scene.target));
    assert!(scene.take().is_empty(), "it is looked at already");
}

#[tokio::test(start_paused = true)]
async fn a_target_lingers_for_queued_primaries_but_not_for_long() {
    let scene = scene().await;
    scene.host.context.state.push_all(&scene.lane);
    scene.claim("p", Some(1));
    let (taken, due) = scene.host.context.state.take_targets(16, LINGER, STEP);
    assert_eq!((taken.len(), due), (0, Some(Instant::now() + STEP)));
    tokio::time::advance(LINGER).await;
    assert_eq!(scene.take().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_was_written_is_left_alone_for_a_while() {
    let scene = scene().await;
    let told = coming(scene.claim("p", Some(1)));
    scene.take();
    scene.look(&Ok(()), Some(&text("t", 2, &json!({}))));
    assert!(told.await.unwrap().wrote);
    scene.host.see(&scene.children, &text("t", 2, &json!({})));
    scene.claim("q", Some(1));
    assert!(scene.take().is_empty());
    tokio::time::advance(LINGER).await;
    assert_eq!(scene.take().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_has_not_changed_is_answered_from_what_is_known() {
    let scene = scene().await;
    drop(scene.claim("p", Some(1)));
    scene.take();
    scene.look(&Err(refused()), None);
    match scene.claim("p", Some(1)) {
        PendingClaims::Known(known, coming) => {
            assert_eq!(known[0].result, Err(refused()));
            assert!(coming.is_empty() && scene.take().is_empty());
        }
        PendingClaims::Gone => panic!("it is there"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_primary_is_requeued_only_for_a_changed_outcome() {
    let scene = scene().await;
    let told = coming(scene.claim("p", Some(1)));
    scene.take();
    scene.look(&Ok(()), None);
    assert_eq!(told.await.unwrap().result, Ok(()));
    assert_eq!(scene.host.run_all(), [""; 0]);
    for (result, queued) in [(Ok(()), &[""; 0][..]), (Err(refused()), &["0/p"][..])] {
        scene.look(&result, None);
        assert_eq!(scene.host.run_all(), queued);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_primary_is_held_until_the_cache_shows_the_write() {
    let scene = scene().await;
    let told = coming(scene.claim("p", Some(1)));
    scene.take();
    scene.look(&Ok(()), Some(&text("t", 2, &json!({}))));
    told.await.unwrap();
    scene.host.context.state.push_all(&scene.lane);
    assert_eq!(scene.host.run_all(), ["0/q"]);
    scene.host.see(&scene.children, &text("t", 2, &json!({})));
    assert_eq!(scene.host.run_all(), ["0/p"]);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_target_by_others_has_it_looked_at_again() {
    let scene = scene().await;
    drop(scene.claim("p", Some(1)));
    scene.take();
    scene.look(&Ok(()), None);
    scene
        .host
        .see(&scene.children, &text("t", 2, &json!({"data": "other"})));
    assert_eq!(scene.take().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_claim_has_its_target_looked_at() {
    let scene = scene().await;
    drop(scene.claim("p", Some(1)));
    scene.take();
    scene.look(&Ok(()), None);
    scene.host.context.state.leave_filter(&scene.lane, &scene.primary("p"));
    assert_eq!(scene.take().len(), 1);
    let (_, captured) = scene.host.context.state.begin_settlement(&scene.target).unwrap();
    assert_eq!(TargetSnapshot::new(captured).claims().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_was_replaced_meanwhile_makes_no_claim() {
    let scene = scene().await;
    let request = ClaimRequest {
        primary_ref: &scene.primary("p"),
        uid: "uid-of-its-predecessor",
        title: "p".into(),
        age: ClaimAge {
            created: String::new(),
            uid: "".into(),
        },
        wanted: [].into(),
    };
    let pending = scene.host.context.state.make_claims(&scene.lane, request);
    assert!(matches!(pending, PendingClaims::Gone));
}

#[tokio::test(start_paused = true)]
async fn unclaimed_fields_are_released_once_all_primaries_answered() {
    let scene = scene().await;
    let held = applied(scene.lane.contributor.manager(), &json!({"f:data": {}}));
    let target = text("t", 2, &json!({"metadata": {"managedFields": [held]}}));
    scene.host.see(&scene.children, &target);
    let all_known = || {
        scene.take();
        let begun = scene.host.context.state.begin_settlement(&scene.target);
        scene.host.context.state.target_done(&scene.target);
        begun.map(|(_, captured)| TargetSnapshot::new(captured).all_known)
    };
    scene.claim("p", None);
    assert_eq!(scene.host.context.state.waited_for("plugin").len(), 1);
    assert_eq!(all_known(), None, "nobody looks at it before");
    scene.claim("q", None);
    assert_eq!(all_known(), Some(true));
}
