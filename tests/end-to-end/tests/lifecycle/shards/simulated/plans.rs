//! Another plan, another number of shards, and what a plan waits for before a replica works by it.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use pilothouse_core::shards::hash_of;
use pilothouse_end_to_end::stage::app_service;
use pilothouse_simulator::{Fault, Rule};
use pilothouse_testkit::requests::HOST_ACCOUNT;
use serde_json::json;

use super::{Replicas, SHARDS, TAKEN_WITHIN, tenant};

#[tokio::test(start_paused = true)]
async fn a_replica_works_by_another_plan_when_what_it_changes_has_ended() {
    let mut replicas = Replicas::start().await;
    replicas.until_shares(&[("one", 8)]).await;
    replicas.create_more().await;
    replicas.converge().await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    // Somebody moves all namespaces to the first shard while writes are on their way.
    let takes = Duration::from_secs(9);
    let late = Rule::new(Fault::LateAnswer(takes)).resource("deployments").writes();
    replicas.fleet.stage.simulator().faults().add(late);
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
    replicas.fleet.stage.simulator().faults().clear();
    replicas.converge().await;
}

/// A reconcile that asks who has changed an object, and waits for the answer before it writes.
#[tokio::test(start_paused = true)]
async fn a_plan_waits_no_longer_for_a_reconcile_than_a_lease_lasts() {
    let mut replicas = Replicas::start().await;
    replicas.until_shares(&[("one", 8)]).await;
    replicas.create_more().await;
    replicas.converge().await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    let takes = Duration::from_secs(25);
    let late = Rule::new(Fault::Delay(takes)).resource("deployments").verbs(&["get"]);
    let late = late.when(|asked| asked.user_agent == HOST_ACCOUNT).times(1);
    replicas.fleet.stage.simulator().faults().add(late);
    let deployments: Api<Deployment> = Api::namespaced(replicas.fleet.client().await, &tenant(3));
    let drift = Patch::Merge(json!({"spec": {"replicas": 7}}));
    deployments
        .patch("app-3", &PatchParams::default(), &drift)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
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
    let mut replicas = Replicas::start().await;
    replicas.until_shares(&[("one", 8)]).await;
    replicas.create_more().await;
    replicas.converge().await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    let never = Rule::new(Fault::LateAnswer(Duration::from_mins(5)));
    let never = never.resource("deployments").writes().times(1);
    replicas.fleet.stage.simulator().faults().add(never);
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

/// A namespace of a shard whose Lease was left to end comes into a shard that is free.
#[tokio::test(start_paused = true)]
async fn a_plan_waits_for_leases_that_a_replica_has_left_to_end() {
    let mut replicas = Replicas::start().await;
    replicas.create_more().await;
    replicas.converge().await;
    replicas.add("two").await;
    replicas.until_shares(&[("one", 4), ("two", 4)]).await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    let plan = replicas.plan().unwrap();
    let is_ones = |shard: &usize| replicas.shards_of("one").contains(&format!("pilothouse-shard-{shard}"));
    let left = (1..SHARDS).find(is_ones).unwrap();
    let ranges = &plan.shards[left].ranges;
    let namespace = (0..20).map(tenant).find(|name| ranges.contains(hash_of(name))).unwrap();
    let never = Rule::new(Fault::LateAnswer(Duration::from_mins(5)));
    let never = never.resource("deployments").writes();
    replicas.fleet.stage.simulator().faults().add(never);
    let mut object = app_service("late");
    object["metadata"]["namespace"] = json!(namespace);
    object["spec"]["ports"] = json!([]);
    replicas.fleet.stage.create(&object).await;
    replicas.objects += 1;
    tokio::time::sleep(Duration::from_secs(1)).await;
    replicas.fleet.stage.host.stop().await.unwrap();
    let begun = tokio::time::Instant::now();
    replicas.fleet.stage.simulator().faults().clear();
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
async fn a_replica_with_another_number_of_shards_stands_by_until_the_others_are_gone() {
    let mut replicas = Replicas::start().await;
    replicas.until_shares(&[("one", 8)]).await;
    replicas.add_with("other", Some(4)).await;
    replicas.create_more().await;
    replicas.converge().await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    replicas.until_shares(&[("one", 8)]).await;
    let log = replicas.others["other"].log_tail();
    let says = ["pilothouse-shards has 8 shards", "--shards 4", "same number"];
    assert!(says.iter().all(|words| log.contains(words)), "{log}");
    let mark = replicas.fleet.stage.mark();
    replicas.fleet.stage.host.stop().await.unwrap();
    replicas.create_more().await;
    replicas.converge().await;
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
    replicas.create_more().await;
    replicas.converge().await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    // The Lease of the leader is free for a moment.
    let leases: Api<Lease> = Api::namespaced(replicas.fleet.client().await, "default");
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
    replicas.create_more().await;
    replicas.converge().await;
    replicas.wrote_once(mark, 80);

    // And the other way round.
    let mark = replicas.fleet.stage.mark();
    replicas.add("divided").await;
    replicas.create_more().await;
    replicas.converge().await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(replicas.shares(), BTreeMap::new());
    let log = replicas.others["divided"].log_tail();
    assert!(
        log.contains("a replica that was started without --shards leads"),
        "{log}"
    );
    replicas.others.get_mut("whole").unwrap().stop().await.unwrap();
    replicas.until_shares(&[("divided", 8)]).await;
    replicas.create_more().await;
    replicas.converge().await;
    replicas.wrote_once(mark, 80);
}
