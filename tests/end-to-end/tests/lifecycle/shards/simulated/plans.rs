//! Another plan, another number of shards, and what a plan waits for before a replica works by it.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use pilothouse_simulator::{Fault, Rule};
use pilothouse_testkit::host::SteeredHost as _;
use pilothouse_testkit::requests::HOST_ACCOUNT;
use serde_json::json;

use super::{Replicas, TAKEN_WITHIN, all_in_the_first_shard, never_answered, numbers_in, ranges, tenant};
use crate::replicas::replica_lease;

#[tokio::test(start_paused = true)]
async fn a_replica_adopts_a_plan_once_its_changed_work_has_ended() {
    let mut replicas = Replicas::start_at_rest().await;
    // Somebody moves all namespaces to the first shard while writes are on their way.
    let takes = Duration::from_secs(9);
    let late = Rule::new(Fault::LateAnswer(takes)).resource("deployments").writes();
    replicas.faults().add(late);
    replicas.create_more().await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let begun = tokio::time::Instant::now();
    let plan = replicas.move_all_to_the_first_shard().await;
    replicas.works_by(&plan).await;
    let took = begun.elapsed();
    assert!(
        took + Duration::from_secs(1) > takes,
        "it waits for the writes: {took:?}"
    );
    replicas.faults().clear();
    replicas.converge().await;
}

/// A reconcile that asks who has changed an object, and waits for the answer before it writes.
#[tokio::test(start_paused = true)]
async fn a_plan_waits_no_longer_for_a_reconcile_than_a_lease_lasts() {
    let replicas = Replicas::start_at_rest().await;
    replicas.drift_and_answer_late(3, Duration::from_secs(25)).await;
    let mark = replicas.fleet.stage.mark();
    let begun = tokio::time::Instant::now();
    let plan = replicas.move_all_to_the_first_shard().await;
    replicas.works_by(&plan).await;
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(15), "it waits: {took:?}");
    assert!(took < Duration::from_secs(18), "not for as long: {took:?}");
    assert_eq!(replicas.writes(mark), Vec::<String>::new());
    replicas.until_shares(&[("one", 8)]).await;
    let is_reverted = |_: &_| {
        let deployments = replicas.fleet.stage.all("Deployment");
        deployments.iter().all(|deployment| deployment["spec"]["replicas"] == 1)
    };
    replicas.fleet.until("the object is as it is to be", is_reverted).await;
}

/// The replica works by another plan only when a write in what it gives away is settled that nobody waits for any more.
#[tokio::test(start_paused = true)]
async fn a_plan_waits_until_unanswered_writes_are_settled() {
    let mut replicas = Replicas::start_at_rest().await;
    replicas.faults().add(never_answered("deployments").times(1));
    let begun = tokio::time::Instant::now();
    replicas.create_more().await;
    tokio::time::sleep(Duration::from_secs(14)).await;
    replicas.converge().await;
    let plan = replicas.move_all_to_the_first_shard().await;
    replicas.works_by(&plan).await;
    // The fence waits for 10 s at least, and the Lease lasts for 15 s after that.
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(25), "{took:?}");
    assert!(took < Duration::from_secs(30), "{took:?}");
}

/// Writes into the Lease of a replica as another user, so that the replica's next announcement fails. Another replica
/// still works by the plan before.
#[tokio::test(start_paused = true)]
async fn a_plan_is_not_worked_by_before_it_is_announced() {
    let mut replicas = Replicas::start_pair_at_rest().await;
    // Something runs at the other one for a while.
    let number = replicas.numbers_of("two")[0];
    let takes = Duration::from_secs(12);
    replicas.drift_and_answer_late(number, takes).await;
    let begun = tokio::time::Instant::now();
    let touched = Patch::Merge(json!({"metadata": {"annotations": {"somebody": "was here"}}}));
    let leases = replicas.leases().await;
    leases
        .patch(&replica_lease("one"), &PatchParams::default(), &touched)
        .await
        .unwrap();
    replicas.move_all_to_the_first_shard().await;
    // A round later the first one has given up what it had.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(replicas.shards_of("two").len(), 4);
    while begun.elapsed() + Duration::from_secs(1) < takes {
        assert_eq!(replicas.shards_of("one").len(), 0, "after {:?}", begun.elapsed());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    replicas.until_shares(&[("one", 4), ("two", 4)]).await;
    replicas.create_and_converge().await;
}

/// The other replica still works by the plan before, and somebody removes from its Lease what says so.
#[tokio::test(start_paused = true)]
async fn a_replica_is_awaited_though_its_lease_lost_its_plan() {
    let mut replicas = Replicas::start_pair_at_rest().await;
    // Something runs at the other one for a while.
    let number = replicas.numbers_of("two")[0];
    let takes = Duration::from_secs(12);
    replicas.drift_and_answer_late(number, takes).await;
    let begun = tokio::time::Instant::now();
    replicas.move_all_to_the_first_shard().await;
    let leases = replicas.leases().await;
    let spoilt = [
        json!(null),
        json!("0"),
        json!("no number"),
        json!("18446744073709551615"),
    ];
    // A round later the first one has given up what it had.
    tokio::time::sleep(Duration::from_secs(3)).await;
    for plan in spoilt {
        let spoilt = Patch::Merge(json!({"metadata": {"annotations": {"pilothouse.dev/plan": plan}}}));
        let own = replica_lease("two");
        leases.patch(&own, &PatchParams::default(), &spoilt).await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(begun.elapsed() + Duration::from_secs(1) <= takes);
        let held = ["one", "two"].map(|identity| replicas.shards_of(identity).len());
        assert_eq!(held, [0, 4], "after {:?}", begun.elapsed());
    }
    replicas.until_shares(&[("one", 4), ("two", 4)]).await;
    replicas.create_and_converge().await;
}

/// Leaves the rest of a deleted plugin's work to the leader, while another replica has made a write that may still take
/// effect.
#[tokio::test(start_paused = true)]
async fn a_plugin_is_cleaned_up_once_unanswered_writes_are_settled() {
    let mut replicas = Replicas::start_pair_at_rest().await;
    let number = replicas.numbers_of("two")[0];
    replicas.faults().add(never_answered("deployments").times(1));
    let begun = tokio::time::Instant::now();
    replicas.create_in("late", &tenant(number)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    // All replicas know that the Plugin is to be deleted before the leader says so in the plan.
    let slow = Rule::new(Fault::Delay(Duration::from_secs(4)))
        .resource("configmaps")
        .writes();
    replicas.faults().add(slow);
    replicas.fleet.delete("it").await;
    let all = replicas.fleet.stage.all("Deployment").len();
    let is_begun = |stage: &pilothouse_end_to_end::stage::Stage| stage.all("Deployment").len() < all;
    replicas
        .fleet
        .until("the leader deletes what the plugin made", is_begun)
        .await;
    // The fence waits for 10 s at least, and the Lease lasts for 15 s after that.
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(25), "{took:?}");
    assert!(took < Duration::from_secs(35), "{took:?}");
}

/// Changes a plan as another user without a new version, and starts a replica that knows no other plan.
#[tokio::test(start_paused = true)]
async fn an_edited_plan_gets_a_new_version_before_it_is_used() {
    let mut replicas = Replicas::start_pair().await;
    let mark = replicas.fleet.stage.mark();
    replicas.create_and_converge().await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    let before = replicas.plan().unwrap();
    // For a while the leader cannot write it anew.
    let fails = Rule::new(Fault::Refuse).resource("configmaps").writes();
    let fails = fails.when(|asked| asked.user_agent == HOST_ACCOUNT);
    replicas.faults().add(fails);
    replicas.write_plan(&all_in_the_first_shard(before.clone())).await;
    replicas.add("three").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    // There are free shards now.
    replicas.others.get_mut("two").unwrap().stop().await.unwrap();
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(replicas.shards_of("three").len(), 0, "{:?}", replicas.shares());
    }
    replicas.faults().clear();
    let is_mended = |_: &_| replicas.plan().is_some_and(|plan| plan.version > before.version);
    replicas.fleet.until("the plan is written anew", is_mended).await;
    let after = replicas.plan().unwrap();
    assert_eq!(ranges(&after), ranges(&before), "as the replicas had it");
    replicas.until_shares(&[("one", 4), ("three", 4)]).await;
    replicas.create_and_converge().await;
    replicas.wrote_once(mark, 80);
}

/// A namespace of a shard whose Lease was left to end comes into a shard that is free.
#[tokio::test(start_paused = true)]
async fn a_plan_waits_for_leases_that_a_replica_has_left_to_end() {
    let mut replicas = Replicas::start_and_add_another().await;
    let plan = replicas.plan().unwrap();
    let left = replicas.held_by("one").into_iter().find(|shard| *shard > 0).unwrap();
    let namespace = numbers_in(&plan, left).map(tenant).next().unwrap();
    replicas.faults().add(never_answered("deployments"));
    replicas.create_in("late", &namespace).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    replicas.fleet.stage.host.stop().await.unwrap();
    let begun = tokio::time::Instant::now();
    replicas.faults().clear();
    replicas.until_shares(&[("one", 1), ("two", 7)]).await;
    assert!(replicas.shards_of("two").contains("pilothouse-shard-0"));
    replicas.move_all_to_the_first_shard().await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(replicas.shards_of("two").len(), 0);
    replicas.until_shares(&[("two", 8)]).await;
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(8), "{took:?}");
    assert!(took <= TAKEN_WITHIN, "{took:?}");
    replicas.converge().await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_with_another_shard_count_waits_for_the_others() {
    let mut replicas = Replicas::start().await;
    replicas.until_shares(&[("one", 8)]).await;
    replicas.add_with("other", Some(4)).await;
    replicas.create_and_converge().await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    replicas.until_shares(&[("one", 8)]).await;
    let log = replicas.others["other"].log_tail();
    let says = ["pilothouse-shards has 8 shards", "--shards 4", "same number"];
    assert!(says.iter().all(|words| log.contains(words)), "{log}");
    let mark = replicas.fleet.stage.mark();
    replicas.fleet.stage.host.stop().await.unwrap();
    replicas.create_and_converge().await;
    replicas.until_shares(&[("other", 4)]).await;
    replicas.wrote_once(mark, 40);
    assert_eq!(replicas.plan().unwrap().shards.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn replicas_with_and_without_shards_never_write_side_by_side() {
    let mut replicas = Replicas::start().await;
    replicas.until_shares(&[("one", 8)]).await;
    replicas.add_with("whole", None).await;
    let mark = replicas.fleet.stage.mark();
    replicas.create_and_converge().await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    // The Lease of the leader is free for a moment.
    let leases = replicas.leases().await;
    let now = "2026-01-02T03:04:05.000000Z";
    let free = json!({"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now});
    let free = Patch::Merge(json!({"spec": free}));
    leases
        .patch("pilothouse", &PatchParams::default(), &free)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_mins(1)).await;
    replicas.until_shares(&[("one", 8)]).await;
    replicas.fleet.stage.host.stop().await.unwrap();
    replicas.create_and_converge().await;
    replicas.wrote_once(mark, 80);

    // And the other way round.
    let mark = replicas.fleet.stage.mark();
    replicas.add("divided").await;
    replicas.create_and_converge().await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(replicas.shares(), BTreeMap::new());
    let log = replicas.others["divided"].log_tail();
    assert!(
        log.contains("a replica that was started without --shards leads"),
        "{log}"
    );
    replicas.others.get_mut("whole").unwrap().stop().await.unwrap();
    replicas.until_shares(&[("divided", 8)]).await;
    replicas.create_and_converge().await;
    replicas.wrote_once(mark, 80);
}
