//! Replicas that divide the work of the simulated cluster, with a clock that the tests move.

mod leases;
mod moves;
mod plans;
mod shares;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use pilothouse_cluster::fence::WriteFence;
use pilothouse_core::replicas::lease::LeaseTimes;
use pilothouse_core::replicas::shards::{HashRange, HashRanges, ShardPlan, hash_of};
use pilothouse_end_to_end::host::RuntimeHost;
use pilothouse_end_to_end::scrape::Scrape;
use pilothouse_end_to_end::stage::{app_service, unhurried};
use pilothouse_metrics::Metrics;
use pilothouse_runtime::{ElectionOptions, HostOptions};
use pilothouse_simulator::{Fault, Faults, Rule};
use pilothouse_testkit::cluster::{Cluster, Mark};
use pilothouse_testkit::host::SteeredHost as _;
use pilothouse_testkit::requests::HOST_ACCOUNT;
use serde_json::{Value, json};

use crate::fleet::{Fleet, condition};

const SHARDS: usize = 8;

/// Reconciles of one replica at once.
const WORKERS: usize = 4;

/// Time until others have the shards of a replica that has ended in order: a poll, and the time of its requests.
const GIVEN_WITHIN: Duration = Duration::from_secs(3);

/// Delay of responses about Leases on a busy API server.
const LATE: Duration = Duration::from_millis(100);

/// A Lease's duration, three looks with jitter, and the time to reconcile.
const TAKEN_WITHIN: Duration = Duration::from_secs(25);

/// A replica that divides the work into so many shards, or that does all of it if it leads.
fn replica(identity: &str, shards: Option<usize>, metrics: Metrics) -> RuntimeHost {
    let election = ElectionOptions {
        namespace: "default".to_owned(),
        name: "pilothouse".to_owned(),
        identity: identity.to_owned(),
        times: LeaseTimes::default(),
        fence: shards.map_or_else(WriteFence::closed, |_| WriteFence::divided()),
        shards,
    };
    let options = HostOptions {
        election: Some(election),
        instance: identity.to_owned(),
        workers: WORKERS,
        plugin_workers: WORKERS,
        // Less than the fence waits for an answer.
        grace: Duration::from_secs(5),
        metrics,
        ..HostOptions::default()
    };
    RuntimeHost::new(options, unhurried())
}

/// Replicas on a simulated cluster. The first one is the fleet's.
struct Replicas {
    fleet: Fleet,
    others: BTreeMap<&'static str, RuntimeHost>,
    metrics: BTreeMap<&'static str, Metrics>,
    objects: usize,
}

impl Replicas {
    /// The first one, with a plugin.
    async fn start() -> Self {
        Self::start_with(Some(SHARDS)).await
    }

    async fn start_with(shards: Option<usize>) -> Self {
        let metrics = Metrics::default();
        let first = replica("one", shards, metrics.clone());
        let fleet = Fleet::start_host_with(Cluster::simulated(), first).await;
        fleet.put("app-service", "it.wasm", 0);
        let spec = json!({"source": {"file": "it.wasm"}, "deletionPolicy": "Delete"});
        fleet.plugin("it", spec).await;
        fleet.is_ready("it").await;
        for number in 0..20 {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant(number)}});
            fleet.stage.create(&namespace).await;
        }
        Self {
            fleet,
            others: BTreeMap::new(),
            metrics: BTreeMap::from([("one", metrics)]),
            objects: 0,
        }
    }

    /// The first one and another one, which share the shards.
    async fn start_pair() -> Self {
        let mut replicas = Self::start().await;
        replicas.add("two").await;
        replicas.until_shares(&[("one", 4), ("two", 4)]).await;
        replicas
    }

    /// The first one with objects, and another one that has come later. The plan is cut by load.
    async fn start_and_add_another() -> Self {
        let mut replicas = Self::start().await;
        replicas.create_and_converge().await;
        replicas.add("two").await;
        replicas.until_shares(&[("one", 4), ("two", 4)]).await;
        tokio::time::sleep(Duration::from_mins(2)).await;
        replicas
    }

    /// The first one with objects, where nothing is to happen any more: the plan is cut by load.
    async fn start_at_rest() -> Self {
        let mut replicas = Self::start().await;
        replicas.until_shares(&[("one", 8)]).await;
        replicas.create_and_converge().await;
        tokio::time::sleep(Duration::from_mins(5)).await;
        replicas
    }

    /// Two replicas with objects, where nothing is to happen any more.
    async fn start_pair_at_rest() -> Self {
        let mut replicas = Self::start_pair().await;
        replicas.create_and_converge().await;
        tokio::time::sleep(Duration::from_mins(5)).await;
        replicas
    }

    async fn add(&mut self, identity: &'static str) {
        self.add_with(identity, Some(SHARDS)).await;
    }

    async fn add_with(&mut self, identity: &'static str, shards: Option<usize>) {
        let metrics = Metrics::default();
        let mut host = replica(identity, shards, metrics.clone());
        self.metrics.insert(identity, metrics);
        let path = self.fleet.path("");
        host.start_by_resources(&self.fleet.stage.cluster, path).await.unwrap();
        self.others.insert(identity, host);
    }

    /// Makes two objects in each of twenty namespaces.
    async fn create_more(&mut self) {
        for number in self.objects..self.objects + 40 {
            self.create_in(&format!("app-{number}"), &tenant(number % 20)).await;
        }
    }

    async fn create_in(&mut self, name: &str, namespace: &str) {
        let mut object = app_service(name);
        object["metadata"]["namespace"] = json!(namespace);
        object["spec"]["ports"] = json!([]);
        self.fleet.stage.create(&object).await;
        self.objects += 1;
    }

    async fn create_and_converge(&mut self) {
        self.create_more().await;
        self.converge().await;
    }

    async fn converge(&self) {
        let what = format!("{} objects converge", self.objects);
        self.fleet
            .until(&what, |stage| {
                let done = stage
                    .all("AppService")
                    .iter()
                    .filter(|object| is_reconciled(object))
                    .count();
                done == self.objects && stage.all("Deployment").len() == self.objects
            })
            .await;
    }

    /// Count of the shards of each replica.
    fn shares(&self) -> BTreeMap<String, usize> {
        let mut shares = BTreeMap::new();
        for lease in self.fleet.stage.all("Lease") {
            let name = lease["metadata"]["name"].as_str().unwrap_or_default();
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
            if name.starts_with("pilothouse-shard-") && !holder.is_empty() {
                *shares.entry(holder.to_owned()).or_default() += 1;
            }
        }
        shares
    }

    /// The Leases of the shards that a replica holds.
    fn shards_of(&self, identity: &str) -> BTreeSet<String> {
        let leases = self.fleet.stage.all("Lease").into_iter();
        let held = leases.filter(|lease| lease["spec"]["holderIdentity"] == identity);
        let names = held.filter_map(|lease| lease["metadata"]["name"].as_str().map(str::to_owned));
        names.filter(|name| name.starts_with("pilothouse-shard-")).collect()
    }

    /// The shards that a replica holds.
    fn held_by(&self, identity: &str) -> BTreeSet<usize> {
        let names = self.shards_of(identity).into_iter();
        names.filter_map(|name| name.rsplit('-').next()?.parse().ok()).collect()
    }

    /// The numbers of the namespaces in the shards that a replica holds.
    fn numbers_of(&self, identity: &str) -> Vec<usize> {
        let plan = self.plan().unwrap();
        let shards = self.held_by(identity).into_iter();
        shards.flat_map(|shard| numbers_in(&plan, shard)).collect()
    }

    /// Count of the replicas' own Leases.
    fn replica_leases(&self) -> usize {
        let leases = self.fleet.stage.all("Lease");
        let names = leases.iter().filter_map(|lease| lease["metadata"]["name"].as_str());
        names.filter(|name| name.starts_with("pilothouse-replica-")).count()
    }

    fn host(&self, identity: &str) -> &RuntimeHost {
        self.others.get(identity).unwrap_or(&self.fleet.stage.host)
    }

    /// Metrics of a replica.
    fn scrape(&self, identity: &str) -> Scrape {
        let figures = self.host(identity).handle().unwrap().figures();
        Scrape(self.metrics[identity].print(&figures))
    }

    /// Count of each replica's reconciles of a plugin's objects.
    fn reconciles<'a>(&self, identities: &[&'a str], plugin: &str) -> BTreeMap<&'a str, u64> {
        let label = format!("plugin=\"{plugin}\"");
        let count = |identity: &&'a str| {
            let count = self.scrape(identity).count("pilothouse_reconciles_total", &[&label]);
            (*identity, count.unwrap_or_default())
        };
        identities.iter().map(count).collect()
    }

    async fn until_shares(&self, expected: &[(&str, usize)]) {
        let expected = expected.iter().map(|(holder, shards)| ((*holder).to_owned(), *shards));
        let expected: BTreeMap<String, usize> = expected.collect();
        let what = format!("the shares are {expected:?}");
        self.fleet.until(&what, |_| self.shares() == expected).await;
    }

    /// Returns the hosts' writes since the mark, but for Leases, the plan and the status of Plugins.
    fn writes(&self, mark: Mark) -> Vec<String> {
        let requests = self.fleet.stage.cluster.requests_since(mark).unwrap();
        let writes = requests.iter().filter(|request| {
            let is_about_replicas = request.is_lease() || request.resource == "configmaps";
            request.is_by_host() && request.is_write() && !is_about_replicas && request.resource != "plugins"
        });
        writes.map(ToString::to_string).collect()
    }

    /// Checks that each object that is new since then was written as often as by one host.
    fn wrote_once(&self, mark: Mark, objects: usize) {
        let writes = self.writes(mark);
        let mut deployments: Vec<_> = writes.iter().filter(|write| write.contains(" deployments")).collect();
        deployments.sort_unstable();
        let written = deployments.len();
        deployments.dedup();
        assert_eq!((deployments.len(), written), (objects, objects), "{writes:#?}");
        assert!(
            writes.len() <= 4 * objects,
            "{} writes of {objects} objects: {writes:#?}",
            writes.len()
        );
    }

    fn faults(&self) -> &Faults {
        self.fleet.stage.simulator().faults()
    }

    async fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.fleet.client().await, "default")
    }

    /// Changes the Deployment of an object as another user. The host looks up who that was, and gets the answer after
    /// so long.
    async fn drift_and_answer_late(&self, number: usize, takes: Duration) {
        let late = Rule::new(Fault::Delay(takes)).resource("deployments").verbs(&["get"]);
        self.faults()
            .add(late.when(|asked| asked.user_agent == HOST_ACCOUNT).times(1));
        let deployments: Api<Deployment> = Api::namespaced(self.fleet.client().await, &tenant(number));
        let drift = Patch::Merge(json!({"spec": {"replicas": 7}}));
        deployments
            .patch(&format!("app-{number}"), &PatchParams::default(), &drift)
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    fn plan(&self) -> Option<ShardPlan> {
        let plan = self.fleet.stage.find("ConfigMap", "pilothouse-shards")?;
        ShardPlan::parse(plan["data"]["plan.json"].as_str()?).ok()
    }

    /// Writes a plan, as another user, with which all namespaces are in one shard.
    async fn move_all_to_the_first_shard(&self) -> ShardPlan {
        let mut plan = all_in_the_first_shard(self.plan().unwrap());
        plan.version += 1;
        self.write_plan(&plan).await;
        plan
    }

    /// Writes a plan as another user.
    async fn write_plan(&self, plan: &ShardPlan) {
        let maps: Api<ConfigMap> = Api::namespaced(self.fleet.client().await, "default");
        let text = Patch::Merge(json!({"data": {"plan.json": plan.print()}}));
        maps.patch("pilothouse-shards", &PatchParams::default(), &text)
            .await
            .unwrap();
    }

    /// Waits until the first replica works by a plan.
    async fn works_by(&self, plan: &ShardPlan) {
        let version = format!("version={}", plan.version);
        let is_said = |line: &str| line.contains("works by a plan") && line.contains(&version);
        let what = "the replica works by the plan";
        self.fleet
            .until(what, |_| self.log_of_first().lines().any(is_said))
            .await;
    }

    fn log_of_first(&self) -> String {
        self.fleet.stage.host.log_tail()
    }
}

/// Makes writes of such objects take effect without a response to the client.
fn never_answered(resource: &str) -> Rule {
    let never = Rule::new(Fault::LateAnswer(Duration::from_mins(5)));
    never.resource(resource).writes()
}

fn is_reconciled(object: &Value) -> bool {
    condition(&object["status"], "Reconciled")["status"] == "True"
}

/// The numbers of the namespaces that a shard has.
fn numbers_in(plan: &ShardPlan, shard: usize) -> impl Iterator<Item = usize> {
    let ranges = &plan.shards[shard].ranges;
    (0..20).filter(|number| ranges.contains(hash_of(&tenant(*number))))
}

/// Returns the division of the namespaces by a plan.
fn ranges(plan: &ShardPlan) -> Vec<HashRanges> {
    plan.shards.iter().map(|shard| shard.ranges.clone()).collect()
}

/// The same plan with all namespaces in one shard.
fn all_in_the_first_shard(mut plan: ShardPlan) -> ShardPlan {
    plan.shards
        .iter_mut()
        .for_each(|shard| shard.ranges = Vec::new().into());
    plan.shards[0].ranges = [HashRange::ALL].into_iter().collect();
    plan
}

fn tenant(number: usize) -> String {
    format!("tenant-{number:02}")
}
