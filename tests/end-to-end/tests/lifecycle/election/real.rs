//! A leader and its standbys as processes.

use std::collections::BTreeSet;
use std::time::Instant;

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use pilothouse_end_to_end::stage::{app_service, create};
use pilothouse_testkit::controlplane::Options;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::proxy::Proxy;
use crate::replicas::{Replicas, WORKERS, time_of};

/// Count of objects that are created in each step.
const STEP: usize = 60;

/// The host on which all replicas run: their identities differ all the same.
const HOST: &str = "twin";

/// Two replicas, the first of which leads. It reaches the API server through a network that may fail. Leases last so many
/// times as long as usual in these tests.
async fn two_replicas(times: u32) -> (Replicas, Proxy) {
    let mut replicas = Replicas::new(Options::default(), None).await;
    replicas.lengthen_leases(times);
    let proxy = Proxy::start(replicas.control_plane().url()).await;
    replicas.start_at("one", &proxy.url());
    replicas.process("one").says(&["this replica leads"]).await;
    replicas.make_plugin("one").await;
    replicas.start("two");
    stands_by(&mut replicas, "two").await;
    (replicas, proxy)
}

async fn stands_by(replicas: &mut Replicas, name: &str) {
    replicas.process(name).says(&["another replica leads"]).await;
    replicas.process(name).says(&["plugin ready", "it/app-service"]).await;
}

async fn create_more(replicas: &mut Replicas, count: usize) {
    replicas.create_in(&["default".to_owned()], count).await;
}

/// The leader is stopped in the middle of its work and goes on later; the next one is killed; the last one ends in order.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_take_over_from_a_stopped_or_killed_leader() {
    let mut replicas = Replicas::new(Options::default(), None).await;
    replicas.lengthen_leases(2);
    let mut identities = BTreeSet::new();
    replicas.start_with_host("one", HOST);
    replicas.process("one").says(&["this replica leads"]).await;
    replicas.make_plugin("one").await;
    replicas.start_with_host("two", HOST);
    stands_by(&mut replicas, "two").await;
    let first = replicas.holder("pilothouse").await;
    identities.insert(first.clone());

    let mark = replicas.mark();
    create_more(&mut replicas, STEP).await;
    replicas.process("one").signal(Signal::STOP);
    create_more(&mut replicas, STEP).await;
    let begun = Instant::now();
    replicas.process("two").says(&["this replica leads"]).await;
    println!("another replica led {:?} after the leader was stopped", begun.elapsed());
    replicas.converge().await;
    let second = replicas.holder("pilothouse").await;
    identities.insert(second.clone());

    // What the first replica still believes does no harm.
    replicas.process("one").signal(Signal::CONT);
    replicas.process("one").says(&["leads no longer"]).await;
    replicas.process("one").says(&["another replica leads", &second]).await;
    create_more(&mut replicas, STEP).await;
    replicas.converge().await;
    assert_eq!(replicas.holder("pilothouse").await, second);
    replicas.wrote_once(mark, 3 * STEP, WORKERS).await;

    let mark = replicas.mark();
    create_more(&mut replicas, STEP).await;
    let mut killed = replicas.processes.remove("two").unwrap();
    killed.signal(Signal::KILL);
    assert!(!killed.ended().await.success());
    create_more(&mut replicas, STEP).await;
    let begun = Instant::now();
    replicas
        .until("the first replica leads again", async || {
            replicas.holder("pilothouse").await == first
        })
        .await;
    println!("another replica led {:?} after the leader was killed", begun.elapsed());
    replicas.converge().await;
    replicas.wrote_once(mark, 2 * STEP, WORKERS).await;

    replicas.start_with_host("three", HOST);
    stands_by(&mut replicas, "three").await;
    let mark = replicas.mark();
    create_more(&mut replicas, STEP).await;
    let mut ended = replicas.processes.remove("one").unwrap();
    ended.signal(Signal::TERM);
    let begun = Instant::now();
    assert!(ended.ended().await.success());
    replicas.process("three").says(&["this replica leads"]).await;
    println!(
        "another replica led {:?} after the leader was told to end",
        begun.elapsed()
    );
    create_more(&mut replicas, 1).await;
    replicas.converge().await;
    identities.insert(replicas.holder("pilothouse").await);
    replicas.wrote_once(mark, STEP + 1, 0).await;

    // Three processes on one host were three replicas.
    assert_eq!(identities.len(), 3, "{identities:?}");
    assert!(
        identities.iter().all(|identity| identity.starts_with("twin_")),
        "{identities:?}"
    );
    replicas.end().await;
    assert_eq!(replicas.holder("pilothouse").await, "", "the Lease is given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_deleted_or_edited_by_others_costs_time_but_no_write() {
    let (mut replicas, _proxy) = two_replicas(2).await;
    let owners = replicas.watch_owners("pilothouse");
    owners.works("one");
    owners.works("two");
    replicas
        .until("the owner is seen", async || replicas.leader().await == "one")
        .await;
    let mark = replicas.mark();
    create_more(&mut replicas, STEP).await;
    let first = replicas.holder("pilothouse").await;
    let leases = replicas.leases();
    leases.delete("pilothouse", &DeleteParams::default()).await.unwrap();
    create_more(&mut replicas, STEP).await;
    replicas
        .until("the Lease is there again", async || {
            leases.get_opt("pilothouse").await.unwrap().is_some()
        })
        .await;
    assert_eq!(replicas.holder("pilothouse").await, first, "its holder makes it anew");
    replicas.converge().await;
    assert_eq!(
        replicas.process("two").lines(&["this replica leads"]),
        Vec::<String>::new()
    );

    replicas.give_by_hand("pilothouse").await;
    create_more(&mut replicas, STEP).await;
    let stopped = replicas
        .process("one")
        .says(&["leads no longer", "another replica has it"])
        .await;
    let names = ["one", "two"];
    let mut leads_again = Vec::new();
    replicas
        .until("a replica leads again", async || {
            leads_again = names
                .iter()
                .flat_map(|name| replicas.processes[*name].lines(&["this replica leads"]))
                .filter(|line| time_of(line) > time_of(&stopped))
                .collect();
            !leads_again.is_empty()
        })
        .await;
    replicas.converge().await;
    replicas.wrote_once(mark, 3 * STEP, 0).await;
    println!("nobody led for {:?}", owners.check(1));
    replicas.end().await;
}

/// The leader cannot reach the API server any more, and later it can.
#[tokio::test(flavor = "multi_thread")]
async fn a_partitioned_leader_stops_before_another_one_leads() {
    let (mut replicas, proxy) = two_replicas(1).await;
    let owners = replicas.watch_owners("pilothouse");
    owners.works("one");
    owners.works("two");
    let mark = replicas.mark();
    create_more(&mut replicas, STEP).await;
    proxy.breaks();
    owners.is_out("one");
    create_more(&mut replicas, STEP).await;
    let leads = replicas.process("two").says(&["this replica leads"]).await;
    let stopped = replicas.process("one").says(&["leads no longer"]).await;
    assert!(
        time_of(&stopped) < time_of(&leads),
        "it stops first: {stopped}\n{leads}"
    );
    replicas.converge().await;
    println!("nobody led for {:?}", owners.check(1));

    proxy.works();
    let second = replicas.holder("pilothouse").await;
    replicas.process("one").says(&["another replica leads", &second]).await;
    create_more(&mut replicas, STEP).await;
    replicas.converge().await;
    assert_eq!(replicas.holder("pilothouse").await, second);
    replicas.wrote_once(mark, 3 * STEP, WORKERS).await;

    // It is as good as before.
    owners.works("one");
    let mark = replicas.mark();
    let mut ended = replicas.processes.remove("two").unwrap();
    ended.signal(Signal::TERM);
    assert!(ended.ended().await.success());
    create_more(&mut replicas, STEP).await;
    replicas.converge().await;
    assert_eq!(replicas.leader().await, "one");
    replicas.wrote_once(mark, STEP, 0).await;
    owners.check(1);
    replicas.end().await;
}

/// An object whose Deployment takes more bytes than any request about Leases.
fn large(name: &str, image: &str) -> Value {
    let mut object = app_service(name);
    let port =
        |number: usize| json!({"name": format!("port-{number}"), "port": 8000 + number, "targetPort": 8000 + number});
    object["spec"]["ports"] = (0..100).map(port).collect();
    object["spec"]["image"] = json!(image);
    object
}

/// A request of so many bytes is about such an object.
const LARGE: usize = 4000;

/// Status codes of the API server for an update with the uid of an object that is gone, and for a create where one
/// exists.
const REFUSED: [[u16; 1]; 2] = [[422], [409]];

/// The leader is stopped while the network still has an apply of it. Another replica has done the work when that arrives.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_arrives_under_another_leader_changes_nothing() {
    let (mut replicas, proxy) = two_replicas(2).await;
    // So that it has connections at hand, in which requests can be sent while the network keeps them.
    create_more(&mut replicas, STEP).await;
    create(replicas.client.clone(), &large("changed", "nginx:1")).await;
    replicas.objects += 1;
    replicas.converge().await;
    replicas.settle().await;

    let deployments: Api<Deployment> = Api::namespaced(replicas.client.clone(), "default");
    let mark = replicas.mark();
    proxy.keep_requests();
    let image = Patch::Merge(json!({"spec": {"image": "nginx:2"}}));
    let parameters = PatchParams::default();
    let in_default = replicas.app_services_of("default");
    in_default.patch("changed", &parameters, &image).await.unwrap();
    create(replicas.client.clone(), &large("created", "nginx:2")).await;
    replicas.objects += 1;
    replicas
        .until("the applies of both are on their way", async || proxy.kept(LARGE) >= 2)
        .await;
    assert_eq!(
        replicas.process("one").lines(&["leads no longer"]),
        Vec::<String>::new()
    );
    replicas.process("one").signal(Signal::STOP);
    replicas.process("two").says(&["this replica leads"]).await;
    replicas.converge().await;
    // The one is another Deployment by now, the other one has been changed once more.
    let uid = async |name: &str| deployments.get_opt(name).await.unwrap().and_then(|it| it.metadata.uid);
    let first = uid("changed").await;
    deployments.delete("changed", &DeleteParams::default()).await.unwrap();
    replicas
        .until("the Deployment is made anew", async || {
            let now = uid("changed").await;
            now.is_some() && now != first
        })
        .await;
    let image = Patch::Merge(json!({"spec": {"image": "nginx:3"}}));
    in_default.patch("created", &parameters, &image).await.unwrap();
    in_default.patch("changed", &parameters, &image).await.unwrap();
    replicas.converge().await;
    replicas.settle().await;
    let as_it_is = async |name: &str| {
        let live = deployments.get(name).await.unwrap();
        (live.metadata.uid, live.metadata.generation, live.spec)
    };
    let (changed, created) = (as_it_is("changed").await, as_it_is("created").await);
    let written = |replicas: &Replicas, name: &str| -> Vec<u16> {
        let mut written = replicas.written(mark, "deployments");
        written.remove(name).unwrap_or_default()
    };
    let before = ["changed", "created"].map(|name| written(&replicas, name).len());

    // What is late arrives, and its sender goes on.
    proxy.works();
    let late = |replicas: &Replicas| {
        let all = ["changed", "created"].map(|name| written(replicas, name));
        [all[0][before[0]..].to_vec(), all[1][before[1]..].to_vec()]
    };
    replicas
        .until("the late writes are refused", async || late(&replicas) == REFUSED)
        .await;
    replicas.process("one").signal(Signal::CONT);
    replicas.process("one").says(&["leads no longer"]).await;
    replicas.process("one").says(&["another replica leads"]).await;
    replicas.converge().await;
    replicas.settle().await;
    assert_eq!(late(&replicas), REFUSED);
    assert_eq!(
        (as_it_is("changed").await, as_it_is("created").await),
        (changed, created)
    );
    replicas.end().await;
}

#[test]
fn options_with_which_two_replicas_could_write_are_refused() {
    let refused = |arguments: &[&str]| {
        let all = [["run", "--kubeconfig", "/nonexistent"].as_slice(), arguments].concat();
        pilothouse_end_to_end::program::refused(&all).1
    };
    let said = refused(&["--leader-election"]);
    assert!(said.contains("give it with --namespace"), "{said}");
    let election = ["--leader-election", "--namespace", "a"];
    let with = |more: &[&str]| refused(&[&election, more].concat());
    let said = with(&["--lease-duration", "10"]);
    assert!(
        said.contains("--lease-duration must be longer than --lease-renew-deadline"),
        "{said}"
    );
    let said = with(&["--lease-renew-deadline", "3"]);
    assert!(said.contains("at least twice --lease-retry-period"), "{said}");
    let said = with(&["--lease", "A_b"]);
    assert!(said.contains("a-z, 0-9"), "{said}");
    let said = refused(&["--lease", "a"]);
    assert!(said.contains("--leader-election"), "{said}");
}
