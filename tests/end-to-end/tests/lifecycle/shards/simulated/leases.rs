//! Leases that somebody edits or deletes, that other software has, and that a replica leaves to end.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use pilothouse_simulator::{Fault, Rule};
use pilothouse_testkit::host::SteeredHost as _;
use pilothouse_testkit::requests::Request;
use serde_json::{Value, json};

use super::{GIVEN_WITHIN, Replicas, SHARDS, TAKEN_WITHIN, all_in_the_first_shard, never_answered};
use crate::replicas::replica_lease;

#[tokio::test(start_paused = true)]
async fn leases_and_plans_edited_by_others_cost_time_but_no_write() {
    let mut replicas = Replicas::start_pair().await;
    let mark = replicas.fleet.stage.mark();
    replicas.create_and_converge().await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    let maps: Api<ConfigMap> = Api::namespaced(replicas.fleet.client().await, "default");
    let leases = replicas.leases().await;
    let version = replicas.plan().unwrap().version;
    let plan = |text: &str| Patch::Merge(json!({"data": {"plan.json": text}}));
    let spoil = PatchParams::default();
    let newer = |known: u64| replicas.plan().is_some_and(|plan| plan.version > known);

    maps.delete("pilothouse-shards", &DeleteParams::default())
        .await
        .unwrap();
    replicas
        .fleet
        .until("the plan is there again", |_| newer(version))
        .await;
    maps.patch("pilothouse-shards", &spoil, &plan("no plan")).await.unwrap();
    replicas.fleet.until("the plan is mended", |_| newer(version + 1)).await;
    // Somebody restores what the first plan was, and by it the work would be divided otherwise.
    let mut old = replicas.plan().unwrap();
    old.version = 1;
    replicas.write_plan(&all_in_the_first_shard(old)).await;
    replicas
        .fleet
        .until("the plan is set forward", |_| newer(version + 2))
        .await;
    assert!(replicas.plan().unwrap().shards[1].ranges.iter().next().is_some());
    replicas.create_and_converge().await;

    leases
        .delete("pilothouse-shard-0", &DeleteParams::default())
        .await
        .unwrap();
    let thief = Patch::Merge(json!({"spec": {"holderIdentity": "an administrator", "leaseDurationSeconds": 15}}));
    leases.patch("pilothouse-shard-1", &spoil, &thief).await.unwrap();
    let replica = replica_lease("two");
    leases.delete(&replica, &DeleteParams::default()).await.unwrap();
    replicas.create_more().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let held: usize = replicas
        .shares()
        .iter()
        .filter(|(holder, _)| *holder != "an administrator")
        .map(|(_, n)| n)
        .sum();
    assert_eq!(held, SHARDS - 1, "{:?}", replicas.shares());
    replicas.converge().await;
    // Shards differ by now, so their numbers need not be the same.
    let is_shared = |_: &_| {
        let shares = replicas.shares();
        shares.len() == 2 && shares.values().sum::<usize>() == SHARDS
    };
    replicas.fleet.until("the replicas share all shards", is_shared).await;
    let shares = replicas.shares();
    assert!(shares.values().all(|held| *held >= 3), "{shares:?}");
    replicas.wrote_once(mark, 120);
    // What has to move has moved after a while, and then nothing moves any more.
    let held = || ["one", "two"].map(|identity| replicas.shards_of(identity));
    tokio::time::sleep(Duration::from_mins(3)).await;
    let before = held();
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(held(), before);
    }
    assert!(before.iter().all(|held| held.len() >= 3), "{before:?}");
}

/// Removes the label of Leases by which replicas find them, or gives a Lease of that name to other software.
#[tokio::test(start_paused = true)]
async fn a_lease_without_its_label_is_relabelled_and_reported() {
    let replicas = Replicas::start_pair().await;
    let leases = replicas.leases().await;
    let bare = Patch::Merge(json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}}));
    let own = replica_lease("two");
    let names = ["pilothouse", "pilothouse-shard-3", &own];
    for name in names {
        leases.patch(name, &PatchParams::default(), &bare).await.unwrap();
    }
    let is_labelled = |name: &str| {
        let lease = replicas.fleet.stage.find("Lease", name);
        lease.is_some_and(|lease| lease["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "pilothouse")
    };
    let what = "the holders label their Leases again";
    replicas.fleet.until(what, |_| names.into_iter().all(is_labelled)).await;
    replicas.until_shares(&[("one", 4), ("two", 4)]).await;

    // Of a replica that has gone nobody else knows whether it was one.
    leases
        .delete("pilothouse-shard-3", &DeleteParams::default())
        .await
        .unwrap();
    let theirs = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": "default", "name": "pilothouse-shard-3"},
        "spec": {"holderIdentity": "theirs", "leaseDurationSeconds": 15},
    });
    replicas.fleet.stage.create(&theirs).await;
    let words = [
        "the Lease default/pilothouse-shard-3 has no label",
        "theirs",
        "label it, or delete it",
        "--lease",
    ];
    let says = |log: &str| log.lines().any(|line| words.iter().all(|words| line.contains(words)));
    let logs = || ["one", "two"].map(|identity| replicas.host(identity).log_tail());
    replicas
        .fleet
        .until("a replica reports the Lease", |_| logs().iter().any(|log| says(log)))
        .await;
    let bare = Patch::Merge(json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "pilothouse"}}}));
    leases
        .patch("pilothouse-shard-3", &PatchParams::default(), &bare)
        .await
        .unwrap();
    replicas.until_shares(&[("one", 4), ("two", 4)]).await;
}

/// The answers about the Leases come in any order.
#[tokio::test(start_paused = true)]
async fn foreign_leases_are_reported_together_once_a_minute() {
    let replicas = Replicas::start().await;
    replicas.until_shares(&[("one", 8)]).await;
    replicas.fleet.stage.host.cut_off(true);
    tokio::time::sleep(Duration::from_secs(11)).await;
    let leases = replicas.leases().await;
    let names = [2, 5, 6].map(|shard| format!("pilothouse-shard-{shard}"));
    for name in &names {
        leases.delete(name, &DeleteParams::default()).await.unwrap();
        let theirs = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"namespace": "default", "name": name},
            "spec": {"holderIdentity": "theirs", "leaseDurationSeconds": 15},
        });
        replicas.fleet.stage.create(&theirs).await;
    }
    // The answer for another one comes first each time.
    for (number, name) in names.iter().enumerate() {
        let (name, takes) = (name.clone(), Duration::from_millis(100 * (1 + number as u64)));
        let is_it = move |asked: &pilothouse_simulator::Asked| asked.name.as_ref() == Some(&name);
        let slow = Rule::new(Fault::LateAnswer(takes)).when(is_it).probability(0.5);
        replicas.faults().add(slow);
    }
    replicas.fleet.stage.host.cut_off(false);
    tokio::time::sleep(Duration::from_mins(5)).await;
    let log = replicas.log_of_first();
    let reports: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("no label app.kubernetes.io"))
        .collect();
    assert!((4..=6).contains(&reports.len()), "{reports:#?}");
    let names_all = |line: &&str| names.iter().all(|name| line.contains(&**name));
    assert!(reports.iter().all(names_all), "{reports:#?}");
}

/// Writes another name into the Lease of a replica, for a long time, as another user.
#[tokio::test(start_paused = true)]
async fn who_is_named_in_the_lease_of_a_replica_gets_no_shards() {
    let mut replicas = Replicas::start_pair().await;
    let leases = replicas.leases().await;
    let own = replica_lease("two");
    let theirs = Patch::Merge(json!({"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 300}}));
    leases.patch(&own, &PatchParams::default(), &theirs).await.unwrap();
    let begun = tokio::time::Instant::now();
    replicas.until_shares(&[("one", 8)]).await;
    let took = begun.elapsed();
    assert!(took <= TAKEN_WITHIN, "{took:?}");
    replicas.create_and_converge().await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    replicas.until_shares(&[("one", 4), ("two", 4)]).await;
}

/// The same with the Lease of the leader's replica: it has to be taken for another replica to do what is not divided.
#[tokio::test(start_paused = true)]
async fn a_leader_whose_own_lease_is_foreign_leaves_the_work() {
    let is_labelled = json!({"metadata": {}});
    let is_bare = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}});
    for mut theirs in [is_labelled, is_bare] {
        let mut replicas = Replicas::start_pair().await;
        theirs["spec"] = json!({"holderIdentity": "somebody", "leaseDurationSeconds": 300});
        let theirs = Patch::Merge(theirs);
        let leases = replicas.leases().await;
        let own = replica_lease("one");
        leases.patch(&own, &PatchParams::default(), &theirs).await.unwrap();
        let begun = tokio::time::Instant::now();
        replicas.until_shares(&[("two", 8)]).await;
        let took = begun.elapsed();
        assert!(took <= TAKEN_WITHIN, "{took:?}");
        tokio::time::sleep(Duration::from_secs(20)).await;
        let leaders = ["one", "two"].map(|identity| replicas.scrape(identity).count("pilothouse_leader", &[]));
        assert_eq!(leaders, [Some(0), Some(1)]);
        replicas.create_and_converge().await;
    }
}

/// A replica reads the Lease of the leader to lead, and all Leases together to divide the work. What it reads together comes
/// later here, so its time for the holder before ends later too.
#[tokio::test(start_paused = true)]
async fn a_new_leader_works_though_it_saw_the_change_late() {
    let mut replicas = Replicas::start_pair().await;
    let leases = replicas.leases().await;
    let late = Rule::new(Fault::LateAnswer(Duration::from_secs(4)));
    replicas.faults().add(late.resource("leases").verbs(&["list"]));
    let theirs = Patch::Merge(json!({"spec": {"holderIdentity": "an administrator", "leaseDurationSeconds": 15}}));
    leases
        .patch("pilothouse", &PatchParams::default(), &theirs)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(9)).await;
    replicas.faults().clear();
    let leader = || {
        let lease = replicas.fleet.stage.find("Lease", "pilothouse");
        lease.and_then(|lease| Some(lease["spec"]["holderIdentity"].as_str()?.to_owned()))
    };
    let is_replica = |_: &_| leader().is_some_and(|leader| ["one", "two"].contains(&&*leader));
    replicas.fleet.until("a replica leads again", is_replica).await;
    let leader = leader().unwrap();
    tokio::time::sleep(Duration::from_mins(1)).await;
    if leader == "one" {
        replicas.others.get_mut("two").unwrap().stop().await.unwrap();
    } else {
        replicas.fleet.stage.host.stop().await.unwrap();
    }
    let begun = tokio::time::Instant::now();
    replicas.until_shares(&[(&leader, 8)]).await;
    let took = begun.elapsed();
    assert!(took <= GIVEN_WITHIN, "{took:?}");
    replicas.create_and_converge().await;
}

/// A successor with another plan would not know by which one the last replica has written.
#[tokio::test(start_paused = true)]
async fn the_last_replica_keeps_its_lease_if_a_shards_lease_expires() {
    let mut replicas = Replicas::start().await;
    replicas.until_shares(&[("one", 8)]).await;
    replicas.faults().add(never_answered("deployments"));
    replicas.create_more().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    replicas.fleet.stage.host.stop().await.unwrap();
    let begun = tokio::time::Instant::now();
    replicas.faults().clear();
    assert_eq!(replicas.replica_leases(), 1);
    replicas.add_with("two", Some(2 * SHARDS)).await;
    let has_taken = |_: &_| !replicas.shards_of("two").is_empty();
    replicas.fleet.until("the successor takes a shard", has_taken).await;
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(10), "it waits: {took:?}");
    assert!(took <= TAKEN_WITHIN, "{took:?}");
    replicas.converge().await;
}

/// A new replica would take the Lease that names the last one for that of one without --shards.
#[tokio::test(start_paused = true)]
async fn the_last_replica_keeps_its_lease_if_the_leaders_expires() {
    for is_answered in [true, false] {
        let mut replicas = Replicas::start().await;
        replicas.until_shares(&[("one", 8)]).await;
        if !is_answered {
            replicas.faults().add(never_answered("plugins"));
        }
        // The status of the Plugin counts them.
        replicas.create_more().await;
        tokio::time::sleep(Duration::from_secs(40)).await;
        replicas.fleet.stage.host.stop().await.unwrap();
        replicas.faults().clear();
        assert_eq!(replicas.replica_leases(), usize::from(!is_answered));
        replicas.add("two").await;
        replicas.until_shares(&[("two", 8)]).await;
        let log = replicas.host("two").log_tail();
        assert!(!log.contains("was started without --shards"), "{log}");
    }
}

#[tokio::test(start_paused = true)]
async fn shards_with_abandoned_writes_are_taken_when_leases_expire() {
    let mut replicas = Replicas::start_and_add_another().await;
    let of_one = replicas.shards_of("one");
    replicas.faults().add(never_answered("deployments"));
    replicas.create_more().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    replicas.fleet.stage.host.stop().await.unwrap();
    let begun = tokio::time::Instant::now();
    replicas.faults().clear();
    tokio::time::sleep(Duration::from_secs(4)).await;
    // Four reconciles run at once, so at most four shards have something in flight.
    let kept = of_one.intersection(&replicas.shards_of("one")).count();
    assert!((1..=4).contains(&kept), "{kept} of {of_one:?}");
    replicas.until_shares(&[("two", 8)]).await;
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(8), "{took:?}");
    assert!(took <= TAKEN_WITHIN, "{took:?}");
}

/// Lease of another release, by a name that begins like the names of this one's Leases.
fn lease_of_another(name: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": "default", "name": name, "labels": {"app.kubernetes.io/managed-by": "pilothouse"}},
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 1},
    })
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_shards_deletes_what_ended_replicas_with_shards_left() {
    let mut replicas = Replicas::start_pair().await;
    let others = [
        "pilothouse-two",
        "pilothouse-replica",
        "pilothouse-replica-replica-0123456789abcdef",
        "pilothouse-replica-0123456789abcdef",
        "pilothouse-shard-1-shard-1",
        "pilothouse-shard-01",
    ];
    for name in others {
        replicas.fleet.stage.create(&lease_of_another(name)).await;
    }
    replicas.add_with("whole", None).await;
    let divided: BTreeSet<String> = names(&replicas);
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(names(&replicas), divided, "replicas with shards live");

    // One ends in order, and the other leaves its Leases to expire.
    replicas.others.get_mut("two").unwrap().stop().await.unwrap();
    replicas.fleet.stage.host.cut_off(true);
    let mut expected: BTreeSet<String> = others.into_iter().map(str::to_owned).collect();
    expected.insert("pilothouse".to_owned());
    // Until the Leases expire, another replica leads, and what it has seen is old enough.
    tokio::time::sleep(Duration::from_mins(2)).await;
    replicas
        .fleet
        .until("the leader tidies up", |_| {
            names(&replicas) == expected && replicas.plan().is_none()
        })
        .await;
    let mark = replicas.fleet.stage.mark();
    replicas.create_and_converge().await;
    let requests = replicas.fleet.stage.cluster.requests_since(mark).unwrap();
    let is_about_shards =
        |request: &&Request| request.resource == "configmaps" || request.is_lease() && request.verb == "list";
    let asked = requests
        .iter()
        .filter(|request| request.is_by_host())
        .filter(is_about_shards)
        .count();
    // The one that is cut off is not in the log.
    assert_eq!(asked, 0, "nothing is left to look for");

    // And on again.
    replicas.fleet.stage.host.cut_off(false);
    replicas.add("three").await;
    replicas.others.get_mut("whole").unwrap().stop().await.unwrap();
    replicas.until_shares(&[("one", 4), ("three", 4)]).await;
    replicas.create_and_converge().await;
}

#[tokio::test(start_paused = true)]
async fn leases_of_shards_that_the_plan_no_longer_has_are_deleted() {
    let mut replicas = Replicas::start().await;
    replicas.until_shares(&[("one", SHARDS)]).await;
    replicas.add_with("fewer", Some(3)).await;
    replicas.fleet.stage.host.stop().await.unwrap();
    replicas.until_shares(&[("fewer", 3)]).await;
    let of_shards = || {
        names(&replicas)
            .into_iter()
            .filter(|name| name.contains("-shard-"))
            .count()
    };
    replicas
        .fleet
        .until("five Leases are deleted", |_| of_shards() == 3)
        .await;
}

/// Names of all Leases.
fn names(replicas: &Replicas) -> BTreeSet<String> {
    let leases = replicas.fleet.stage.all("Lease").into_iter();
    leases
        .filter_map(|lease| Some(lease["metadata"]["name"].as_str()?.to_owned()))
        .collect()
}
