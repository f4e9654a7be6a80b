//! Tests of the share of each replica: its work and its cache, and how even they are. Work that cannot be divided
//! belongs to one replica as a whole.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use pilothouse_core::replicas::shards::ShardPlan;
use pilothouse_end_to_end::host::RuntimeHost;
use pilothouse_metrics::Metrics;
use pilothouse_simulator::{Fault, Rule};
use pilothouse_testkit::cluster::Mark;
use pilothouse_testkit::host::SteeredHost as _;
use pilothouse_testkit::requests::Request;
use serde_json::json;

use super::{Replicas, SHARDS, is_reconciled, numbers_in, ranges, replica, tenant};

/// Count of a replica's cached objects of each kind.
fn cached(host: &RuntimeHost) -> BTreeMap<String, u64> {
    let kinds = host.handle().unwrap().figures().kinds.into_iter();
    kinds.map(|figures| (figures.kind, figures.objects)).collect()
}

#[tokio::test(start_paused = true)]
async fn each_replica_caches_its_share_and_the_status_counts_all() {
    let mut replicas = Replicas::start().await;
    for identity in ["two", "three", "four"] {
        replicas.add(identity).await;
    }
    replicas.create_more().await;
    replicas.create_and_converge().await;
    // Longer than a Deployment waits for its pods, which never become ready.
    tokio::time::sleep(Duration::from_mins(15)).await;
    let hosts = || std::iter::once(&replicas.fleet.stage.host).chain(replicas.others.values());
    for kind in ["AppService.v1.kosmos.io", "Deployment.v1.apps"] {
        let each: Vec<u64> = hosts().map(|host| cached(host)[kind]).collect();
        assert_eq!(each.iter().sum::<u64>(), 80, "{kind}: {each:?}");
        // Five namespaces of twenty each, in eight shards.
        assert!(
            each.iter().all(|objects| (8..=32).contains(objects)),
            "{kind}: {each:?}"
        );
    }
    let objects = || replicas.fleet.status("it")["controllers"][0]["objects"].as_u64();
    assert_eq!(objects(), Some(80));
    // Nothing happens, so nothing is asked for but by those who keep Leases.
    let mark = replicas.fleet.stage.mark();
    tokio::time::sleep(Duration::from_mins(2)).await;
    let requests = replicas.fleet.stage.cluster.requests_since(mark).unwrap();
    let others = requests.iter().filter(|request| {
        request.is_by_host() && !request.is_lease() && request.resource != "configmaps" && request.verb != "watch"
    });
    assert_eq!(
        others.map(ToString::to_string).collect::<Vec<_>>(),
        Vec::<String>::new()
    );
    // Who takes over lists what it did not have.
    let mark = replicas.fleet.stage.mark();
    replicas.others.get_mut("two").unwrap().kill().await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    let hosts = ["three", "four"].map(|identity| &replicas.others[identity]);
    let hosts = hosts.into_iter().chain([&replicas.fleet.stage.host]);
    assert_eq!(
        hosts.map(|host| cached(host)["AppService.v1.kosmos.io"]).sum::<u64>(),
        80
    );
    assert_eq!(replicas.writes(mark), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn similar_names_are_sharded_evenly_once_there_are_objects() {
    let mut replicas = Replicas::start_pair().await;
    let mark = replicas.fleet.stage.mark();
    replicas.create_and_converge().await;
    let most = |plan: &ShardPlan| {
        let shards = 0..plan.shards.len();
        shards.map(|shard| numbers_in(plan, shard).count()).max().unwrap()
    };
    assert!(most(&replicas.plan().unwrap()) > 5, "equal ranges do");
    // At most a fifth of the namespaces is in one of eight shards.
    let is_even = |_: &_| replicas.plan().is_some_and(|plan| most(&plan) <= 4);
    replicas.fleet.until("the plan is cut by load", is_even).await;
    replicas.until_shares(&[("one", 4), ("two", 4)]).await;
    replicas.create_and_converge().await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    replicas.wrote_once(mark, 80);
}

#[tokio::test(start_paused = true)]
async fn shares_follow_the_loads_that_shards_have_by_now() {
    let mut replicas = Replicas::start_pair_at_rest().await;
    let plan = replicas.plan().unwrap();
    // In the namespaces of one replica's shards there come to be three times as many objects.
    for number in replicas.numbers_of("two") {
        for more in 0..4 {
            replicas
                .create_in(&format!("more-{number}-{more}"), &tenant(number))
                .await;
        }
    }
    replicas.converge().await;
    let is_known = |_: &_| {
        replicas
            .plan()
            .is_some_and(|now| now.version > plan.version && ranges(&now) == ranges(&plan))
    };
    replicas.fleet.until("the plan has the loads of now", is_known).await;
    let is_moved = |_: &_| replicas.shards_of("two").len() < 4 && replicas.shares().values().sum::<usize>() == SHARDS;
    replicas
        .fleet
        .until("the busy replica gives shards away", is_moved)
        .await;
}

const NOT_DIVIDED: [&str; 2] = ["ecs", "stream"];

#[tokio::test(start_paused = true)]
async fn a_leader_that_counts_longer_than_a_lease_keeps_its_shards() {
    let mut replicas = Replicas::start_pair().await;
    let is_count = |asked: &pilothouse_simulator::Asked| asked.verb == "list" && asked.resource == "appservices";
    let slow = Rule::new(Fault::Delay(Duration::from_secs(20))).when(is_count);
    let before = replicas.plan().unwrap().version;
    replicas.create_and_converge().await;
    replicas.faults().add(slow);
    let is_cut = |_: &_| replicas.plan().is_some_and(|plan| plan.version > before);
    replicas.fleet.until("the plan is cut by load", is_cut).await;
    for identity in ["one", "two"] {
        let log = replicas.host(identity).log_tail();
        assert!(!log.contains("lost shards"), "{identity}: {log}");
    }
    replicas.until_shares(&[("one", 4), ("two", 4)]).await;
}

impl Replicas {
    /// Adds plugins whose work is not divided: one with cluster-scoped primaries, one that contributes to one target
    /// from many namespaces.
    async fn add_whole_plugins(&self) {
        let kind_of = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}});
        for name in ["tcp-services", "udp-services"] {
            self.fleet.stage.create(&kind_of("ConfigMap", name)).await;
        }
        let mut service = kind_of("Service", "ingress-nginx-controller");
        service["spec"] = json!({"ports": [{"name": "http", "port": 80}]});
        self.fleet.stage.create(&service).await;
        self.fleet.put("ecs-binding", "ecs.wasm", 0);
        self.fleet.put("stream-ingress", "stream.wasm", 0);
        self.fleet.plugin("ecs", json!({"source": {"file": "ecs.wasm"}})).await;
        let configuration = json!({"namespace": "default"});
        let stream = json!({"source": {"file": "stream.wasm"}, "configuration": configuration});
        self.fleet.plugin("stream", stream).await;
        for plugin in NOT_DIVIDED {
            self.fleet.is_ready(plugin).await;
        }
    }

    /// Makes ten primaries of each of these plugins, the namespaced ones in ten namespaces.
    async fn create_whole(&self, from: usize) {
        let kind = GroupVersionKind::gvk("hopegi.com", "v1", "EcsBinding");
        let resource = ApiResource::from_gvk_with_plural(&kind, "ecsbinding");
        let bindings: Api<DynamicObject> = Api::all_with(self.fleet.client().await, &resource);
        for number in from..from + 10 {
            let binding = json!({
                "apiVersion": "hopegi.com/v1", "kind": "EcsBinding", "metadata": {"name": format!("binding-{number}")},
                "spec": {"id": "i-1", "name": "web", "nodename": "node", "innerip": "10.1.0.1"},
            });
            let binding: DynamicObject = serde_json::from_value(binding).unwrap();
            bindings.create(&PostParams::default(), &binding).await.unwrap();
            let metadata = json!({"name": format!("stream-{number}"), "namespace": tenant(number % 20)});
            let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata});
            service["spec"] = json!({"ports": [{"port": 1}]});
            self.fleet.stage.create(&service).await;
            let upstream = json!({"service": format!("stream-{number}"), "port": 1});
            let stream = json!({
                "apiVersion": "nginx-stream.jeffthecoder.xyz/v1beta1", "kind": "StreamIngress", "metadata": metadata,
                "spec": {"listen": 7000 + number, "upstream": upstream},
            });
            self.fleet.stage.create(&stream).await;
        }
        self.fleet
            .until("what is not divided converges", |stage| {
                let count = |kind: &str| stage.all(kind).iter().filter(|object| is_reconciled(object)).count();
                (count("EcsBinding"), count("StreamIngress")) == (from + 10, from + 10)
            })
            .await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        let target = self.fleet.stage.find("ConfigMap", "tcp-services").unwrap();
        assert_eq!(target["data"].as_object().unwrap().len(), from + 10, "{target}");
    }

    /// Returns the hosts' writes to bindings, and to the target of streams.
    fn whole_writes(&self, mark: Mark) -> [Vec<String>; 2] {
        let requests = self.fleet.stage.cluster.requests_since(mark).unwrap();
        let of = |is_it: &dyn Fn(&Request) -> bool| -> Vec<String> {
            let writes = requests
                .iter()
                .filter(|request| request.is_by_host() && request.is_write());
            writes
                .filter(|request| is_it(request))
                .map(ToString::to_string)
                .collect()
        };
        [
            of(&|request| request.resource == "ecsbinding"),
            of(&|request| request.name == "tcp-services"),
        ]
    }
}

#[tokio::test(start_paused = true)]
async fn undivided_work_belongs_to_one_replica_and_moves_with_it() {
    let mut replicas = Replicas::start().await;
    replicas.add("two").await;
    replicas.add("three").await;
    let share = |_: &_| {
        let shares = replicas.shares();
        shares.len() == 3 && shares.values().sum::<usize>() == SHARDS
    };
    replicas.fleet.until("three replicas share all shards", share).await;
    replicas.add_whole_plugins().await;
    let mark = replicas.fleet.stage.mark();
    replicas.create_whole(0).await;
    let all = ["one", "two", "three"];
    for plugin in NOT_DIVIDED {
        let reconciles = replicas.reconciles(&all, plugin);
        assert!(reconciles["one"] >= 10, "{plugin}: {reconciles:?}");
        assert_eq!(
            (reconciles["two"], reconciles["three"]),
            (0, 0),
            "{plugin}: {reconciles:?}"
        );
    }
    let [of_bindings, of_target] = replicas.whole_writes(mark);
    // A label, and a status with and without it.
    assert!((20..=30).contains(&of_bindings.len()), "{of_bindings:#?}");
    assert!((1..=10).contains(&of_target.len()), "{of_target:#?}");

    replicas.fleet.stage.host.kill().await;
    let mark = replicas.fleet.stage.mark();
    replicas.create_whole(10).await;
    let rest = ["two", "three"];
    let next = rest.map(|identity| replicas.scrape(identity).count("pilothouse_leader", &[]));
    let (leader, other) = if next == [Some(1), Some(0)] {
        rest.into()
    } else {
        ("three", "two")
    };
    for plugin in NOT_DIVIDED {
        let reconciles = replicas.reconciles(&rest, plugin);
        assert!(reconciles[leader] >= 20, "{plugin}: {reconciles:?}");
        assert_eq!(reconciles[other], 0, "{plugin}: {reconciles:?}");
    }
    let [of_bindings, of_target] = replicas.whole_writes(mark);
    let is_old = |write: &&String| (0..10).any(|number| write.contains(&format!("/binding-{number} ")));
    assert_eq!(of_bindings.iter().filter(is_old).count(), 0, "{of_bindings:#?}");
    assert!((20..=30).contains(&of_bindings.len()), "{of_bindings:#?}");
    assert!((1..=10).contains(&of_target.len()), "{of_target:#?}");
}

/// Others would stop to work at the shards that it gets.
#[tokio::test(start_paused = true)]
async fn a_replica_without_the_component_gets_no_shards() {
    let mut replicas = Replicas::start().await;
    replicas.until_shares(&[("one", SHARDS)]).await;
    let folder = tempfile::tempdir().unwrap();
    let mut host = replica("bare", Some(SHARDS), Metrics::default());
    let started = host.start_by_resources(&replicas.fleet.stage.cluster, folder.path().to_owned());
    started.await.unwrap();
    replicas.others.insert("bare", host);
    tokio::time::sleep(Duration::from_mins(2)).await;
    replicas.until_shares(&[("one", SHARDS)]).await;
    let missing = replicas
        .host("bare")
        .handle()
        .unwrap()
        .missing_for_readiness()
        .join("\n");
    assert!(missing.contains("another replica runs plugin it"), "{missing}");
    replicas.create_and_converge().await;

    std::fs::copy(replicas.fleet.path("it.wasm"), folder.path().join("it.wasm")).unwrap();
    replicas.until_shares(&[("one", 4), ("bare", 4)]).await;
}
