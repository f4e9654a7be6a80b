//! Active replicas as processes, on API servers that divide lists and watches and on one that does not.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use pilothouse_core::replicas::shards::{NamespaceLoads, first_plan};
use pilothouse_end_to_end::stage::create;
use pilothouse_testkit::cluster::{Cluster, Mark};
use pilothouse_testkit::controlplane::Options;
use rustix::process::Signal;
use serde_json::json;

use crate::proxy::Proxy;
use crate::replicas::{OwnerWatch, Replicas, WORKERS, time_of};

const SHARDS: usize = 16;
const NAMESPACES: usize = 100;

/// Time within which a replica that was stopped has its part of the shards again on a busy machine.
const BACK_WITHIN: Duration = Duration::from_mins(1);

/// Has the API server divide lists and watches.
const GATE: &str = "--feature-gates=ShardedListAndWatch=true";

fn tenant(number: usize) -> String {
    format!("tenant-{number:02}")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_divides_lists_as_replicas_do() {
    let options = Options {
        apiserver_arguments: vec![GATE.to_owned()],
        ..Options::default()
    };
    let cluster = Cluster::real_with(options).await.unwrap();
    let client = cluster.client().await.unwrap();
    for number in 0..20 {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant(number)}});
        create(client.clone(), &namespace).await;
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "it", "namespace": tenant(number)}});
        create(client.clone(), &map).await;
    }
    let mut loads = NamespaceLoads::default();
    (0..20).for_each(|number| loads.add(&tenant(number), 1));
    let plan = first_plan(1, 4, &loads);
    let mut found = 0;
    for shard in &plan.shards {
        let selector = shard.ranges.selector().unwrap();
        let selector = percent_encoding::utf8_percent_encode(&selector, percent_encoding::NON_ALPHANUMERIC);
        let path = format!("/api/v1/configmaps?fieldSelector=metadata.name%3Dit&shardSelector={selector}");
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let list: serde_json::Value = client.request(request).await.unwrap();
        assert!(
            list["metadata"]["shardInfo"].is_object(),
            "the server says that it has divided the list: {list}"
        );
        let namespaces = list["items"].as_array().unwrap().iter();
        let namespaces: Vec<&str> = namespaces
            .map(|item| item["metadata"]["namespace"].as_str().unwrap())
            .collect();
        assert!(
            namespaces.iter().all(|namespace| shard.ranges.has(namespace)),
            "{namespaces:?}"
        );
        assert_eq!(namespaces.len() as u64, shard.load);
        found += namespaces.len();
    }
    assert_eq!(found, 20);
}

/// Replicas that share namespaces.
struct Sharing {
    /// Dropped before the control plane that it looks at.
    owners: OwnerWatch,
    replicas: Replicas,
    tenants: Vec<String>,
}

impl Sharing {
    async fn new(options: Options) -> Self {
        let mut replicas = Replicas::new(options, Some(SHARDS)).await;
        replicas.lengthen_leases(2);
        let owners = replicas.watch_owners("pilothouse-shard-");
        let tenants: Vec<String> = (0..NAMESPACES).map(tenant).collect();
        for tenant in &tenants {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant}});
            create(replicas.client.clone(), &namespace).await;
        }
        Self {
            owners,
            replicas,
            tenants,
        }
    }

    fn start(&mut self, name: &str) {
        self.replicas.start(name);
        self.owners.works(name);
    }

    /// Waits until so many replicas hold all shards, none of them too many or too few.
    async fn share(&self, replicas: usize) {
        let what = format!("{replicas} replicas share all shards");
        self.replicas
            .until(&what, async || {
                let shares = self.replicas.shares().await;
                // By load, so not all have as many.
                let is_fair = |held: usize| (SHARDS / replicas / 2..=SHARDS / replicas * 2).contains(&held);
                let held = || shares.values().map(BTreeSet::len);
                held().sum::<usize>() == SHARDS && shares.len() == replicas && held().all(is_fair)
            })
            .await;
    }

    /// The shards that each replica holds and that have tenants, with those.
    async fn shards_with_tenants(&self) -> BTreeMap<String, BTreeMap<usize, Vec<String>>> {
        let shares = self.replicas.shares().await;
        let Some(plan) = self.replicas.plan().await else {
            return BTreeMap::new();
        };
        let tenants = |shard: usize| -> Vec<String> {
            let ranges = &plan.shards[shard].ranges;
            self.tenants
                .iter()
                .filter(|tenant| ranges.has(tenant))
                .cloned()
                .collect()
        };
        let with_tenants = |shards: BTreeSet<usize>| -> BTreeMap<usize, Vec<String>> {
            let shards = shards.into_iter().map(|shard| (shard, tenants(shard)));
            shards.filter(|(_, tenants)| !tenants.is_empty()).collect()
        };
        let shares = shares.into_iter().map(|(name, shards)| (name, with_tenants(shards)));
        shares.collect()
    }

    /// Waits until each replica has at least two shards with tenants, and works by the latest plan: the leader divides
    /// again where all are in a few.
    async fn all_have_tenants(&self) {
        let replicas = self.replicas.processes.len();
        self.replicas
            .until("each replica has tenants in two shards", async || {
                let before = self.replicas.plans_worked_by().await;
                let shards = self.shards_with_tenants().await;
                let held: usize = self.replicas.shares().await.values().map(BTreeSet::len).sum();
                let version = self.replicas.plan().await.map(|plan| plan.version);
                let is_current = before.len() == replicas && before.iter().all(|plan| Some(*plan) == version);
                let have_two = shards.len() == replicas && shards.values().all(|shards| shards.len() >= 2);
                is_current && held == SHARDS && have_two
            })
            .await;
    }

    /// The tenants of a replica.
    async fn tenants_of(&self, name: &str) -> Vec<String> {
        let mut shards = self.shards_with_tenants().await;
        let tenants: Vec<String> = shards
            .remove(name)
            .unwrap_or_default()
            .into_values()
            .flatten()
            .collect();
        assert!(!tenants.is_empty(), "{name} has work: {shards:?}");
        tenants
    }

    /// A replica that does not lead, and is not that one.
    async fn follower(&self, other: &str) -> String {
        let leader = self.replicas.leader().await;
        let mut names = self.replicas.processes.keys();
        names.find(|name| **name != leader && *name != other).unwrap().clone()
    }

    /// The shards that a replica works at, as far as it knows.
    fn works_at(&self, name: &str) -> BTreeSet<usize> {
        let process = &self.replicas.processes[name];
        let is_held = |shard: &usize| {
            let taken = process.lines(&["took a shard", &named(*shard)]);
            let ends = self.ends_of(name, *shard);
            taken.last().map(|line| time_of(line)) > ends.last().map(|line| time_of(line))
        };
        (0..SHARDS).filter(is_held).collect()
    }

    /// Returns the log lines at which a replica has stopped to work at a shard.
    fn ends_of(&self, name: &str, shard: usize) -> Vec<String> {
        let said = self.replicas.processes[name].lines(&[&named(shard)]);
        let is_end = |line: &String| {
            [
                "lost a shard",
                "lost shards",
                "works no longer at a shard",
                "Lease back",
            ]
            .iter()
            .any(|it| line.contains(it))
        };
        said.into_iter().filter(is_end).collect()
    }

    /// Checks that replicas list and watch the namespaces of their shards only, on the server's side where it can.
    fn selects_shards(&self, mark: Mark) {
        let requests = self.replicas.cluster.requests_since(mark).unwrap();
        for resource in ["appservices", "deployments"] {
            for verb in ["list", "watch"] {
                let of_replicas = requests
                    .iter()
                    .filter(|request| request.is_by_host() && request.resource == resource && request.verb == verb);
                let selectors = of_replicas.filter_map(|request| request.shard_selector.as_deref());
                let selectors: BTreeSet<&str> = selectors.collect();
                // Each of those that came later has other shards.
                assert!(selectors.len() >= 3, "{verb} {resource}: {selectors:?}");
                assert!(
                    selectors.iter().all(|selector| selector.contains("shardRange(")),
                    "{selectors:?}"
                );
            }
        }
    }
}

/// One replica becomes four, and four become two, while objects come: a shard's Lease is deleted and another one edited by
/// hand, a replica is stopped and goes on, one is cut off from the API server and comes back, the leader is killed, and one
/// ends in order.
async fn story(step: usize, apiserver_arguments: Vec<String>) {
    let options = Options {
        apiserver_arguments,
        ..Options::default()
    };
    let mut it = Sharing::new(options).await;
    let proxy = Proxy::start(it.replicas.control_plane().url()).await;
    let everywhere = it.tenants.clone();
    it.start("replica-a");
    it.replicas.make_plugin("replica-a").await;
    it.share(1).await;
    let mark = it.replicas.mark();
    it.replicas.create_in(&everywhere, 8 * step).await;

    // Others come while there is work.
    it.start("replica-b");
    it.start("replica-c");
    it.replicas.start_at("replica-d", &proxy.url());
    it.owners.works("replica-d");
    it.replicas.create_in(&everywhere, 7 * step).await;
    it.replicas.converge().await;
    it.share(4).await;
    it.all_have_tenants().await;
    it.replicas.wrote_once(mark, 15 * step, it.replicas.abandoned()).await;
    it.selects_shards(mark);
    println!("without an owner for {:?} while replicas came", it.owners.check(SHARDS));

    leases_are_edited(&mut it, step).await;
    one_is_stopped(&mut it, step).await;
    one_is_cut_off(&mut it, step, &proxy).await;
    the_leader_is_killed(&mut it, step).await;
    one_ends(&mut it, step).await;
    assert_eq!(it.replicas.objects, 40 * step);
    it.replicas.end().await;
}

/// Deletes the Lease of a shard with work as another user, and edits another one.
async fn leases_are_edited(it: &mut Sharing, step: usize) {
    it.all_have_tenants().await;
    let mark = it.replicas.mark();
    let victim = it.follower("").await;
    let shards = it.shards_with_tenants().await.remove(&victim).unwrap();
    let mut shards = shards.into_iter();
    let ((deleted, theirs), (edited, more)) = (shards.next().unwrap(), shards.next().unwrap());
    let both = [theirs, more].concat();
    it.replicas.create_in(&both, step).await;
    let lease = |shard: usize| format!("pilothouse-shard-{shard}");
    let delete = kube::api::DeleteParams::default();
    it.replicas.leases().delete(&lease(deleted), &delete).await.unwrap();
    it.replicas.give_by_hand(&lease(edited)).await;
    it.replicas.give_by_hand("pilothouse").await;
    it.replicas.create_in(&both, 4 * step).await;
    // On a busy machine its time may be over before it looks.
    let title = format!("default/{}\"", lease(edited));
    let lost = ["lost a shard", "another holder", &title, "an administrator"];
    it.replicas
        .until("it sees that it has lost a shard", async || {
            let process = &it.replicas.processes[&victim];
            [&lost[..], &["lost shards", &title]]
                .iter()
                .any(|words| !process.lines(words).is_empty())
        })
        .await;
    it.replicas.converge().await;
    it.share(4).await;
    // Who sees another holder in a Lease abandons what is on its way.
    it.replicas.wrote_once(mark, 5 * step, WORKERS).await;
    println!(
        "without an owner for {:?} while Leases were edited",
        it.owners.check(SHARDS)
    );
}

/// Stops a replica in the middle of its work, and continues it later: its stale view does no harm.
async fn one_is_stopped(it: &mut Sharing, step: usize) {
    it.all_have_tenants().await;
    let mark = it.replicas.mark();
    let victim = it.follower("replica-d").await;
    let tenants = it.tenants_of(&victim).await;
    it.replicas.create_in(&tenants, step).await;
    it.replicas.process(&victim).signal(Signal::STOP);
    it.owners.is_out(&victim);
    let begun = Instant::now();
    it.replicas.create_in(&tenants, 2 * step).await;
    it.replicas.create_in(&it.tenants.clone(), 2 * step).await;
    it.replicas.converge().await;
    println!("all converged {:?} after a replica was stopped", begun.elapsed());
    // It may have given some back just before.
    let held = it.works_at(&victim);
    let ends = |it: &Sharing| -> Vec<usize> { held.iter().map(|shard| it.ends_of(&victim, *shard).len()).collect() };
    let before = ends(it);
    it.replicas.process(&victim).signal(Signal::CONT);
    it.replicas
        .until("it sees that it has lost its shards", async || {
            ends(it).iter().zip(&before).all(|(now, before)| now > before)
        })
        .await;
    it.owners.works(&victim);
    it.share(4).await;
    it.replicas.wrote_once(mark, 5 * step, WORKERS).await;
    println!(
        "without an owner for {:?} while a replica was stopped",
        it.owners.check(SHARDS)
    );
}

/// One is cut off from the API server, and stops before others take its shards.
async fn one_is_cut_off(it: &mut Sharing, step: usize, proxy: &Proxy) {
    it.all_have_tenants().await;
    let mark = it.replicas.mark();
    let tenants = it.tenants_of("replica-d").await;
    it.replicas.create_in(&tenants, step).await;
    let took = |it: &Sharing, shard: usize| -> BTreeSet<String> {
        let others = it.replicas.processes.iter().filter(|(name, _)| *name != "replica-d");
        others
            .flat_map(|(_, process)| process.lines(&["took a shard", &named(shard)]))
            .collect()
    };
    let before: Vec<_> = (0..SHARDS).map(|shard| took(it, shard)).collect();
    proxy.breaks();
    it.owners.is_out("replica-d");
    let held = it.works_at("replica-d");
    let begun = Instant::now();
    it.replicas.create_in(&tenants, 4 * step).await;
    it.replicas
        .until("it works at nothing any more", async || {
            it.works_at("replica-d").is_empty()
        })
        .await;
    it.replicas.converge().await;
    println!("all converged {:?} after a replica was cut off", begun.elapsed());
    it.share(3).await;
    for shard in held {
        let (ends, after) = (it.ends_of("replica-d", shard), took(it, shard));
        let (end, taken) = (ends.last().unwrap(), after.difference(&before[shard]).min().unwrap());
        assert!(time_of(end) < time_of(taken), "it stops first: {end}\n{taken}");
    }
    proxy.works();
    it.owners.works("replica-d");
    it.share(4).await;
    it.replicas.wrote_once(mark, 5 * step, WORKERS).await;
    println!(
        "without an owner for {:?} while a replica was cut off",
        it.owners.check(SHARDS)
    );
}

/// The leader is killed.
async fn the_leader_is_killed(it: &mut Sharing, step: usize) {
    it.all_have_tenants().await;
    let mark = it.replicas.mark();
    let leader = it.replicas.leader().await;
    let tenants = it.tenants_of(&leader).await;
    it.replicas.create_in(&tenants, step).await;
    let mut killed = it.replicas.processes.remove(&leader).unwrap();
    killed.signal(Signal::KILL);
    assert!(!killed.ended().await.success());
    it.owners.is_out(&leader);
    let begun = Instant::now();
    it.replicas.create_in(&tenants, 4 * step).await;
    it.replicas.converge().await;
    println!("all converged {:?} after the leader was killed", begun.elapsed());
    it.share(3).await;
    it.replicas.wrote_once(mark, 5 * step, WORKERS).await;
    println!(
        "without an owner for {:?} after the leader was killed",
        it.owners.check(SHARDS)
    );
    it.replicas
        .until("another replica leads", async || {
            it.replicas.processes.contains_key(&it.replicas.leader().await)
        })
        .await;
}

/// Ends a replica in order: nothing is repeated, not even a write in flight.
async fn one_ends(it: &mut Sharing, step: usize) {
    it.all_have_tenants().await;
    let mark = it.replicas.mark();
    let ends = it.follower("").await;
    let tenants = it.tenants_of(&ends).await;
    it.replicas.create_in(&tenants, step).await;
    let mut ended = it.replicas.processes.remove(&ends).unwrap();
    ended.signal(Signal::TERM);
    assert!(ended.ended().await.success());
    it.owners.is_out(&ends);
    let shares = it.replicas.shares().await;
    assert!(!shares.contains_key(&ends), "it has given back all shards: {shares:?}");
    let begun = Instant::now();
    it.replicas.create_in(&tenants, 4 * step).await;
    it.replicas.converge().await;
    println!("all converged {:?} after a replica ended", begun.elapsed());
    it.share(2).await;
    it.replicas.wrote_once(mark, 5 * step, it.replicas.abandoned()).await;
    println!(
        "without an owner for {:?} after a replica ended",
        it.owners.check(SHARDS)
    );
}

/// The Lease of a shard as the log has it.
fn named(shard: usize) -> String {
    format!("default/pilothouse-shard-{shard}\"")
}

#[tokio::test(flavor = "multi_thread")]
async fn four_replicas_share_2000_objects_and_lose_or_double_none() {
    story(50, vec![GATE.to_owned()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_holds_on_a_server_that_does_not_divide_lists() {
    story(10, Vec::new()).await;
}

/// Stops a replica in the middle of its work and continues it, again and again: each time it has its shards again soon.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_stopped_again_and_again_always_comes_back() {
    const TIMES: usize = 4;
    let mut it = Sharing::new(Options::default()).await;
    it.start("replica-a");
    it.replicas.make_plugin("replica-a").await;
    it.start("replica-b");
    it.share(2).await;
    let everywhere = it.tenants.clone();
    let mut longest = Duration::ZERO;
    for _ in 0..TIMES {
        it.replicas.create_in(&everywhere, 100).await;
        it.replicas.process("replica-b").signal(Signal::STOP);
        it.owners.is_out("replica-b");
        it.replicas
            .until("the other one has all shards", async || {
                let shares = it.replicas.shares().await;
                shares.get("replica-a").is_some_and(|held| held.len() == SHARDS)
            })
            .await;
        it.replicas.process("replica-b").signal(Signal::CONT);
        let begun = Instant::now();
        it.owners.works("replica-b");
        it.share(2).await;
        longest = longest.max(begun.elapsed());
    }
    println!("shared the work {longest:?} after it was continued, at the latest");
    assert!(longest < BACK_WITHIN, "{longest:?}");
    it.replicas.converge().await;
    it.replicas.end().await;
}
