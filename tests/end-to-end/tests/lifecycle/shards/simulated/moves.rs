//! Replicas that come, go and are cut off: which shards move, when, and what the next holder sees.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use pilothouse_simulator::{Fault, Rule};
use pilothouse_testkit::host::SteeredHost as _;

use super::{GIVEN_WITHIN, LATE, Replicas, SHARDS, TAKEN_WITHIN, WORKERS, never_answered, numbers_in, tenant};

#[tokio::test(start_paused = true)]
async fn replicas_that_come_and_go_share_the_work_and_repeat_nothing() {
    let mut replicas = Replicas::start().await;
    replicas.until_shares(&[("one", 8)]).await;
    let mark = replicas.fleet.stage.mark();
    replicas.create_and_converge().await;
    for identity in ["two", "three", "four"] {
        replicas.add(identity).await;
    }
    replicas
        .until_shares(&[("one", 2), ("two", 2), ("three", 2), ("four", 2)])
        .await;
    let mut leaders = 0;
    for identity in ["one", "two", "three", "four"] {
        let scrape = replicas.scrape(identity);
        let count = |name: &str| scrape.count(name, &[]);
        let shards = ["pilothouse_shards", "pilothouse_shards_held"].map(count);
        assert_eq!(shards, [Some(8), Some(2)], "{identity}: {}", scrape.0);
        leaders += count("pilothouse_leader").unwrap();
    }
    assert_eq!(leaders, 1);
    replicas.create_and_converge().await;
    replicas.wrote_once(mark, 80);

    // One is killed: its objects have no owner until its Leases end.
    let mark = replicas.fleet.stage.mark();
    replicas.others.get_mut("three").unwrap().kill().await;
    replicas.create_more().await;
    let begun = tokio::time::Instant::now();
    replicas.converge().await;
    let took = begun.elapsed();
    assert!(took <= TAKEN_WITHIN, "{took:?}");
    replicas.wrote_once(mark, 40);
    assert!(!replicas.shares().contains_key("three"));

    // Two end in order: nobody has to wait for them.
    for identity in ["two", "four"] {
        replicas.others.get_mut(identity).unwrap().stop().await.unwrap();
    }
    let mark = replicas.fleet.stage.mark();
    replicas.create_more().await;
    let begun = tokio::time::Instant::now();
    replicas.converge().await;
    let took = begun.elapsed();
    assert!(took <= Duration::from_secs(5), "{took:?}");
    replicas.wrote_once(mark, 40);
    replicas.until_shares(&[("one", 8)]).await;
    assert_eq!(replicas.fleet.stage.host.handle().unwrap().stuck(), 0);
}

/// Stops the replica at any time, also in the middle of renewing its Leases, and while replicas agree on another plan.
#[tokio::test(start_paused = true)]
async fn shards_of_a_replica_that_stops_in_order_move_soon() {
    let mut replicas = Replicas::start().await;
    replicas.until_shares(&[("one", 8)]).await;
    let maps: Api<ConfigMap> = Api::namespaced(replicas.fleet.client().await, "default");
    let late = Rule::new(Fault::LateAnswer(LATE)).resource("leases");
    replicas.faults().add(late);
    let mut took = BTreeMap::new();
    for number in 0..60 {
        let identity: &'static str = format!("ends-{number}").leak();
        replicas.add(identity).await;
        replicas.until_shares(&[("one", 4), (identity, 4)]).await;
        let is_cut_anew = number % 2 == 1;
        if is_cut_anew {
            let delete = DeleteParams::default();
            maps.delete("pilothouse-shards", &delete).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(50) * number).await;
        replicas.others.get_mut(identity).unwrap().stop().await.unwrap();
        let begun = tokio::time::Instant::now();
        replicas.until_shares(&[("one", 8)]).await;
        took.insert((is_cut_anew, number), begun.elapsed());
    }
    assert!(took.values().all(|took| *took <= GIVEN_WITHIN), "{took:?}");
    let is_gone = |_: &_| replicas.replica_leases() == 1;
    replicas
        .fleet
        .until("the Leases of those that have ended are deleted", is_gone)
        .await;
}

#[tokio::test(start_paused = true)]
async fn shards_move_one_at_a_time_to_a_replica_that_comes() {
    let mut replicas = Replicas::start().await;
    replicas.create_and_converge().await;
    // The plan is cut by load, which moves more than one.
    tokio::time::sleep(Duration::from_mins(5)).await;
    for (identity, expected, givers) in [
        ("two", [("one", 4), ("two", 4)].as_slice(), 1),
        ("three", &[("one", 3), ("two", 3), ("three", 2)], 2),
    ] {
        let (version, mut fewest) = (replicas.plan().unwrap().version, SHARDS);
        replicas.add(identity).await;
        let expected = expected.iter().map(|(holder, shards)| ((*holder).to_owned(), *shards));
        let expected: BTreeMap<String, usize> = expected.collect();
        let all = async {
            while replicas.shares() != expected {
                fewest = fewest.min(replicas.shares().values().sum());
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let moved = tokio::time::timeout(Duration::from_mins(2), all).await;
        assert!(moved.is_ok(), "{:?}", replicas.shares());
        assert_eq!(replicas.plan().unwrap().version, version, "only replicas change");
        assert!(
            (SHARDS - givers..SHARDS).contains(&fewest),
            "{identity}: {fewest} shards were held"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_partitioned_replica_loses_its_shards_and_gets_others_later() {
    let mut replicas = Replicas::start_pair().await;
    replicas.create_and_converge().await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    // In the middle of its work.
    let mark = replicas.fleet.stage.mark();
    replicas.create_more().await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    replicas.others["two"].cut_off(true);
    let begun = tokio::time::Instant::now();
    replicas.converge().await;
    let took = begun.elapsed();
    assert!(took <= TAKEN_WITHIN, "{took:?}");
    replicas.until_shares(&[("one", 8)]).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    replicas.others["two"].cut_off(false);
    replicas.until_shares(&[("one", 4), ("two", 4)]).await;
    replicas.create_and_converge().await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    replicas.wrote_once(mark, 80);
    assert_eq!(replicas.others["two"].handle().unwrap().stuck(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_replica_with_a_returned_shard_sees_the_others_objects() {
    let mut replicas = Replicas::start_and_add_another().await;
    let before = replicas.shards_of("two");
    let mark = replicas.fleet.stage.mark();
    replicas.others["two"].cut_off(true);
    replicas.fleet.stage.simulator().cut_every_watch();
    replicas.until_shares(&[("one", 8)]).await;
    replicas.create_and_converge().await;
    // Its watches come back one after another: that of the primaries before that of their children.
    let broken = Rule::new(Fault::Refuse)
        .resource("deployments")
        .verbs(&["list", "watch"]);
    let faults = replicas.faults();
    faults.add(broken);
    replicas.others["two"].cut_off(false);
    replicas.until_shares(&[("one", 4), ("two", 4)]).await;
    let again = replicas.shards_of("two");
    assert!(
        !before.is_disjoint(&again),
        "it has some of {before:?} again: {again:?}"
    );
    tokio::time::sleep(Duration::from_secs(10)).await;
    faults.clear();
    replicas.create_and_converge().await;
    replicas.wrote_once(mark, 80);
}

#[tokio::test(start_paused = true)]
async fn a_shard_with_an_unanswered_write_moves_once_it_is_settled() {
    let mut replicas = Replicas::start_with(Some(3)).await;
    replicas.until_shares(&[("one", 3)]).await;
    // The plan is cut by load.
    replicas.create_and_converge().await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    let plan = replicas.plan().unwrap();
    let in_shard = |shard: usize| numbers_in(&plan, shard).map(tenant).next().unwrap();
    // One in each, so it does not matter which of the shards move.
    let namespaces = [0, 1, 2].map(in_shard);
    replicas.faults().add(never_answered("deployments").times(3));
    let begun = tokio::time::Instant::now();
    for namespace in namespaces {
        replicas.create_in("late", &namespace).await;
    }
    tokio::time::sleep(Duration::from_secs(14)).await;
    replicas.converge().await;
    replicas.add_with("two", Some(3)).await;
    replicas.until_shares(&[("one", 2), ("two", 1)]).await;
    // The fence waits for 10 s at least, and the Lease lasts for 15 s after that.
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(25), "{took:?}");
    assert!(took < Duration::from_secs(35), "{took:?}");
    // The lines of all replicas of a test are in the log of the last one.
    let log = replicas.host("two").log_tail();
    assert!(log.contains("keeps the Lease of a shard"), "{log}");
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_is_deleted_is_cleaned_up_by_all_replicas() {
    let mut replicas = Replicas::start_pair().await;
    replicas.create_and_converge().await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    replicas.fleet.delete("it").await;
    let is_clean = |stage: &pilothouse_end_to_end::stage::Stage| {
        stage.all("Deployment").is_empty() && stage.find("Plugin", "it").is_none()
    };
    replicas
        .fleet
        .until("what the plugin made is deleted, and then the Plugin", is_clean)
        .await;
    assert_eq!(
        replicas.fleet.stage.all("AppService").len(),
        40,
        "{}",
        replicas.log_of_first()
    );
}

/// Injects faults in any order: all objects converge when it is over, and only writes in flight are repeated.
#[tokio::test(start_paused = true)]
async fn any_order_of_faults_loses_nothing_and_repeats_open_writes() {
    const NAMES: [&str; 4] = ["two", "three", "four", "five"];
    for seed in 0..6 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut replicas = Replicas::start().await;
        let client = replicas.fleet.client().await;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        let leases: Api<Lease> = Api::namespaced(client, "default");
        let mark = replicas.fleet.stage.mark();
        let (mut steps, mut abrupt) = (Vec::new(), 0);
        for _ in 0..12 {
            let name = NAMES[random.usize(..NAMES.len())];
            let runs = replicas.others.contains_key(name);
            let step = random.u8(0..8);
            steps.push((step, name));
            match (step, runs) {
                (0..=2, false) => replicas.add(name).await,
                (0, true) => {
                    replicas.others.remove(name).unwrap().kill().await;
                    abrupt += 1;
                }
                (1, true) => {
                    replicas.others.remove(name).unwrap().stop().await.unwrap();
                }
                (2, true) => {
                    replicas.others[name].cut_off(true);
                    abrupt += 1;
                }
                (3, true) => replicas.others[name].cut_off(false),
                (4, _) => {
                    let _ = maps.delete("pilothouse-shards", &DeleteParams::default()).await;
                }
                (5, _) => {
                    let lease = format!("pilothouse-shard-{}", random.usize(..SHARDS));
                    let _ = leases.delete(&lease, &DeleteParams::default()).await;
                }
                _ => replicas.create_more().await,
            }
            tokio::time::sleep(Duration::from_millis(random.u64(0..8000))).await;
        }
        for other in replicas.others.values() {
            other.cut_off(false);
        }
        if replicas.objects == 0 {
            replicas.create_more().await;
        }
        println!("seed {seed}: {steps:?}");
        replicas.converge().await;
        let share = SHARDS / (1 + replicas.others.len());
        let what = "all replicas have their share";
        replicas
            .fleet
            .until(what, |_| replicas.shares().values().all(|held| *held >= share))
            .await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        let writes = replicas.writes(mark);
        let mut deployments: Vec<_> = writes.iter().filter(|write| write.contains(" deployments")).collect();
        let written = deployments.len();
        deployments.sort_unstable();
        deployments.dedup();
        assert_eq!(deployments.len(), replicas.objects, "seed {seed}: {steps:?}");
        // Of a host that is killed or cut off, as many as it has workers may be in flight.
        let most = replicas.objects + abrupt * WORKERS;
        assert!(
            written <= most,
            "seed {seed}: {written} writes of {} Deployments: {steps:?}",
            replicas.objects
        );
    }
}
