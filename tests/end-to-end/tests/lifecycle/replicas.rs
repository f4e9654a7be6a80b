//! Replicas of the host as processes on a real control plane, and their traces in the cluster: the holder of each
//! Lease, the time without a holder, and the writes of all replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use parking_lot::Mutex;
use pilothouse_core::replicas::shards::{ShardPlan, hash_of};
use pilothouse_end_to_end::program::{Folder, Process, component};
use pilothouse_end_to_end::stage::{app_service, create};
use pilothouse_testkit::cluster::{Cluster, Mark};
use pilothouse_testkit::controlplane::{ControlPlane, Options};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::fleet::plugin;
use crate::moved_clocks::MovedClock;

/// Time limit of one step on a busy machine.
const WITHIN: Duration = Duration::from_mins(5);

/// Time until others take the Lease of a replica that does not renew it.
const LEASE: Duration = Duration::from_secs(4);
const RENEW: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_secs(1);

/// Reconciles of one replica at once, each of which may have one write in flight.
pub const WORKERS: usize = 8;

/// The host that holds a Lease is known by what its identity begins with.
pub fn host_name(identity: &str) -> &str {
    identity.rsplit_once('_').map_or(identity, |(name, _)| name)
}

/// The Lease of a replica with this identity.
pub fn replica_lease(identity: &str) -> String {
    format!("pilothouse-replica-{:016x}", hash_of(identity))
}

/// Returns the time at which a line was logged. All processes have the same clock.
pub fn time_of(line: &str) -> &str {
    line.split_whitespace().next().unwrap()
}

/// Replicas by the name of their host, on a control plane of their own with the plugin `app-service`.
pub struct Replicas {
    pub cluster: Cluster,
    pub client: Client,
    pub processes: BTreeMap<String, Process>,
    pub objects: usize,
    /// Written once: each replica reads it when it starts.
    kubeconfig: String,
    folder: Folder,
    shards: Option<usize>,
    /// The times of a Lease: its duration, until when it is to be renewed, and how often.
    times: [Duration; 3],
    /// The status that each Deployment had when all had settled last, by name.
    settled: BTreeMap<String, Value>,
}

impl Replicas {
    /// Creates the stage, without any replica.
    pub async fn new(options: Options, shards: Option<usize>) -> Self {
        let cluster = Cluster::real_with(options).await.unwrap();
        let replicas = Self {
            client: cluster.client().await.unwrap(),
            kubeconfig: cluster.host_kubeconfig().unwrap().display().to_string(),
            cluster,
            processes: BTreeMap::new(),
            objects: 0,
            folder: Folder::new(),
            shards,
            times: [LEASE, RENEW, RETRY],
            settled: BTreeMap::new(),
        };
        std::fs::copy(component("app-service"), replicas.folder.path("it.wasm")).unwrap();
        replicas
    }

    /// Lengthens the Leases of replicas that start from here on.
    pub fn lengthen_leases(&mut self, times: u32) {
        let [lease, renew, retry] = [LEASE, RENEW, RETRY];
        self.times = [lease * times, renew * times, retry];
    }

    /// Time until others take the Lease of a replica that does not renew it.
    pub fn lease_duration(&self) -> Duration {
        self.times[0]
    }

    /// Follows the Leases with this prefix. None may be without an owner for longer than a Lease and two polls, and
    /// twice as much more where the machine is busy.
    pub fn watch_owners(&self, prefix: &'static str) -> OwnerWatch {
        let [lease, _, retry] = self.times;
        OwnerWatch::start(self.leases(), prefix, (lease + retry * 2) * 3)
    }

    pub fn control_plane(&self) -> &ControlPlane {
        match &self.cluster {
            Cluster::Real(real) => real.control_plane(),
            Cluster::Simulated(_) => unreachable!("it was made as a real one"),
        }
    }

    pub fn start(&mut self, name: &str) {
        self.start_with_host(name, name);
    }

    /// Starts one that reaches the API server at another address.
    pub fn start_at(&mut self, name: &str, url: &str) {
        let kubeconfig = std::fs::read_to_string(&self.kubeconfig).unwrap();
        let kubeconfig = kubeconfig.replace(self.control_plane().url(), url);
        let kubeconfig = self.folder.file(&format!("{name}.yaml"), kubeconfig);
        self.start_with(name, name, &kubeconfig, &[]);
    }

    /// Starts one with a name of its own here, and that of its host as it is given.
    pub fn start_with_host(&mut self, name: &str, host: &str) {
        let kubeconfig = self.kubeconfig.clone();
        self.start_with(name, host, &kubeconfig, &[]);
    }

    /// Starts one that sees another time of day.
    pub fn start_with_clock(&mut self, name: &str, clock: &MovedClock) {
        let kubeconfig = self.kubeconfig.clone();
        self.start_with(name, name, &kubeconfig, &clock.environment());
    }

    fn start_with(&mut self, name: &str, host: &str, kubeconfig: &str, variables: &[(&str, String)]) {
        let (directory, workers) = (self.folder.path(""), WORKERS.to_string());
        let [lease, renew, retry] = self.times.map(|time| time.as_secs().to_string());
        let mut arguments = vec!["run", "--install-crds", "--kubeconfig", kubeconfig];
        arguments.extend([
            "--identity=none",
            "--plugin-dir",
            &directory,
            "--namespace",
            "default",
            "--workers",
            &workers,
        ]);
        arguments.extend(["--leader-election", "--lease-duration", &lease]);
        arguments.extend(["--lease-renew-deadline", &renew, "--lease-retry-period", &retry]);
        let shards = self.shards.map(|shards| shards.to_string());
        arguments.extend(shards.iter().flat_map(|shards| ["--shards", shards]));
        let process = Process::start_in(host, variables, &arguments);
        assert!(self.processes.insert(name.to_owned(), process).is_none());
    }

    pub fn process(&mut self, name: &str) -> &mut Process {
        self.processes.get_mut(name).unwrap()
    }

    /// Waits for the first replica, and makes the Plugin.
    pub async fn make_plugin(&mut self, first: &str) {
        let crd = ["installed the CRD", "plugins.pilothouse.dev"];
        self.process(first).says(&crd).await;
        let it = plugin("it", json!({"source": {"file": "it.wasm"}}));
        create(self.client.clone(), &it).await;
        self.process(first).says(&["plugin ready", "it/app-service"]).await;
    }

    pub async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let begun = Instant::now();
        while !holds().await {
            let logs = || {
                self.processes
                    .iter()
                    .map(|(name, process)| format!("{name}\n{}", process.log()))
            };
            assert!(
                begun.elapsed() < WITHIN,
                "in vain: {what}\n{}",
                logs().collect::<Vec<_>>().join("\n---\n")
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Returns the holder of a Lease, or an empty text.
    pub async fn holder(&self, lease: &str) -> String {
        let lease = self.leases().get_opt(lease).await.unwrap();
        lease.as_ref().map(holder_of).unwrap_or_default()
    }

    /// The name of the host that leads.
    pub async fn leader(&self) -> String {
        host_name(&self.holder("pilothouse").await).to_owned()
    }

    /// Writes another holder into a Lease, as a user may do by hand.
    pub async fn give_by_hand(&self, lease: &str) {
        let spec =
            json!({"holderIdentity": "an administrator", "leaseDurationSeconds": self.lease_duration().as_secs()});
        let patch = Patch::Merge(json!({"spec": spec}));
        self.leases()
            .patch(lease, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// The shards that each host holds.
    pub async fn shares(&self) -> BTreeMap<String, BTreeSet<usize>> {
        let mut shares = BTreeMap::<String, BTreeSet<usize>>::new();
        for lease in self.leases().list(&ListParams::default()).await.unwrap() {
            let holder = holder_of(&lease);
            let name = lease.metadata.name.unwrap_or_default();
            let shard = name
                .strip_prefix("pilothouse-shard-")
                .and_then(|shard| shard.parse().ok());
            if let Some(shard) = shard.filter(|_| !holder.is_empty()) {
                shares.entry(host_name(&holder).to_owned()).or_default().insert(shard);
            }
        }
        shares
    }

    /// The versions of the plan that the replicas that run say they work by.
    pub async fn plans_worked_by(&self) -> Vec<u64> {
        let leases = self.leases().list(&ListParams::default()).await.unwrap();
        let of_replicas = leases.into_iter().filter(|lease| {
            let runs = self.processes.contains_key(host_name(&holder_of(lease)));
            runs && lease.name_any().starts_with("pilothouse-replica-")
        });
        let plan = |lease: Lease| lease.annotations().get("pilothouse.dev/plan")?.parse().ok();
        of_replicas.filter_map(plan).collect()
    }

    pub async fn plan(&self) -> Option<ShardPlan> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "default");
        let plan = maps.get_opt("pilothouse-shards").await.unwrap()?;
        ShardPlan::parse(plan.data?.get("plan.json")?).ok()
    }

    /// Makes more objects without ports in these namespaces in turn.
    pub async fn create_in(&mut self, namespaces: &[String], count: usize) {
        for namespace in namespaces.iter().cycle().take(count) {
            let mut object = app_service(&format!("app-{}", self.objects));
            object["metadata"]["namespace"] = json!(namespace);
            object["spec"]["ports"] = json!([]);
            create(self.client.clone(), &object).await;
            self.objects += 1;
        }
    }

    pub fn app_services_of(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &app_service_resource())
    }

    /// Waits until every object says that it is reconciled as it is.
    pub async fn converge(&self) {
        let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &app_service_resource());
        self.until("all objects converge", async || {
            let objects = all.list(&ListParams::default()).await.unwrap().items;
            objects.iter().filter(|object| is_reconciled(object)).count() == self.objects
        })
        .await;
    }

    /// Waits until each object has the status of its Deployment, and nothing has been written for two seconds. The controllers
    /// of the cluster change the status of a Deployment for a while after it was made.
    pub async fn settle(&mut self) {
        let mut settled = BTreeMap::new();
        self.until("nothing more is written", async || {
            let mark = self.mark();
            tokio::time::sleep(Duration::from_secs(2)).await;
            let resources = ["deployments", "appservices"];
            let is_quiet = resources.iter().all(|resource| self.written(mark, resource).is_empty());
            settled = self.deployment_statuses().await;
            is_quiet && self.are_told(&settled).await
        })
        .await;
        self.settled = settled;
    }

    /// The status of each Deployment, by name.
    async fn deployment_statuses(&self) -> BTreeMap<String, Value> {
        let deployments: Api<Deployment> = Api::all(self.client.clone());
        let all = deployments.list(&ListParams::default()).await.unwrap();
        let status = |it: Deployment| (it.metadata.name.unwrap_or_default(), json!(it.status));
        all.items.into_iter().map(status).collect()
    }

    /// Returns `true` if each object has the status of its Deployment.
    async fn are_told(&self, statuses: &BTreeMap<String, Value>) -> bool {
        let objects: Api<DynamicObject> = Api::all_with(self.client.clone(), &app_service_resource());
        let objects = objects.list(&ListParams::default()).await.unwrap().items;
        let told = objects.iter().map(|object| (object.name_any(), &object.data["status"]));
        let told: BTreeMap<String, &Value> = told.collect();
        let mut statuses = statuses.iter();
        statuses.all(|(name, status)| told.get(name).is_some_and(|told| tells(told, status)))
    }

    pub fn mark(&self) -> Mark {
        self.cluster.mark().unwrap()
    }

    /// The codes with which writes by hosts of objects of a resource, and of their status, were answered since then.
    pub fn written(&self, mark: Mark, resource: &str) -> BTreeMap<String, Vec<u16>> {
        let mut codes = BTreeMap::<String, Vec<u16>>::new();
        for request in self.cluster.requests_since(mark).unwrap() {
            if request.is_by_host() && request.is_write() && request.resource == resource {
                codes.entry(request.name).or_default().push(request.code);
            }
        }
        codes
    }

    /// Checks that since then each new object was written as often as by one host, and no other object at all, except
    /// writes in flight (the server logs no 201 where the client had gone before its answer), and the status of an
    /// older object whose Deployment has got another status since all settled.
    pub async fn wrote_once(&mut self, mark: Mark, new: usize, in_flight: usize) {
        let settled = std::mem::take(&mut self.settled);
        self.settle().await;
        let mut codes = self.written(mark, "deployments");
        assert_eq!(codes.len(), new, "none is lost");
        codes.retain(|_, codes| *codes != [201]);
        let others: usize = codes.values().map(Vec::len).sum();
        let is_made_twice = |codes: &Vec<u16>| codes.iter().filter(|code| **code == 201).count() > 1;
        assert!(!codes.values().any(is_made_twice), "none is made twice: {codes:?}");
        assert!(
            others <= 2 * in_flight,
            "only what was in flight is repeated: {codes:?}"
        );
        let mut statuses = self.written(mark, "appservices");
        // Whatever led to these had come before.
        self.settled = self.deployment_statuses().await;
        let is_changed = |name: &String| {
            settled
                .get(name)
                .is_some_and(|status| self.settled.get(name) != Some(status))
        };
        let changed: Vec<_> = statuses.extract_if(.., |name, _| is_changed(name)).collect();
        assert!(
            changed.iter().all(|(_, codes)| codes.len() <= STATUSES),
            "statuses of older objects follow their Deployments: {changed:?}"
        );
        let names: BTreeSet<&String> = statuses.keys().collect();
        let expected: Vec<String> = (self.objects - new..self.objects)
            .map(|number| format!("app-{number}"))
            .collect();
        assert_eq!(
            names,
            expected.iter().collect(),
            "the status of each new object is written, and no other"
        );
        let count: usize = statuses.values().map(Vec::len).sum();
        println!(
            "{new} objects: answered otherwise than by 201: {codes:?}; {count} statuses, and those of {} Deployments that changed \
             later",
            changed.len()
        );
        assert!(
            count <= STATUSES * new + 2 * in_flight,
            "{count} statuses of {new} objects were written: {statuses:?}"
        );
    }

    /// Count of writes that an undisturbed replica may have abandoned: none, unless the machine is so busy that it
    /// could not renew a Lease.
    pub fn abandoned(&self) -> usize {
        let is_late = |process: &Process| !process.lines(&["could not be renewed in time"]).is_empty();
        if self.processes.values().any(is_late) {
            WORKERS
        } else {
            0
        }
    }

    /// Ends all in order.
    pub async fn end(&mut self) {
        for process in self.processes.values_mut() {
            process.signal(rustix::process::Signal::TERM);
            assert!(process.ended().await.success());
        }
    }
}

/// Maximum count of writes of an object's status until it is final: first when its Deployment has been created, then
/// while the controllers of the cluster change the Deployment's status.
const STATUSES: usize = 4;

pub fn holder_of(lease: &Lease) -> String {
    let spec = lease.spec.as_ref();
    spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default()
}

fn app_service_resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("kosmos.io", "v1", "AppService"))
}

/// Returns `true` if the status of an object contains that of its Deployment: it has conditions of the host besides.
fn tells(told: &Value, status: &Value) -> bool {
    let conditions = |status: &Value| -> BTreeSet<String> {
        let all = status["conditions"].as_array().into_iter().flatten();
        all.map(|it| {
            [&it["type"], &it["status"], &it["reason"]]
                .map(ToString::to_string)
                .join(" ")
        })
        .collect()
    };
    let is_own = |field: &str| ["conditions", "observedGeneration"].contains(&field);
    let mut fields = status
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(field, _)| !is_own(field));
    fields.all(|(field, value)| told.get(field) == Some(value)) && conditions(told).is_superset(&conditions(status))
}

fn is_reconciled(object: &DynamicObject) -> bool {
    let generation = json!(object.metadata.generation);
    let conditions = object.data["status"]["conditions"].as_array().into_iter().flatten();
    let is_about_now = |it: &Value| it["observedGeneration"] == generation;
    conditions
        .into_iter()
        .any(|it| it["type"] == "Reconciled" && it["status"] == "True" && is_about_now(it))
}

/// Follows who holds Leases, and for how long at most no replica that works did.
pub struct OwnerWatch {
    seen: Arc<Mutex<Owners>>,
    /// Time that a Lease may be without an owner.
    allowed: Duration,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Owners {
    /// The replicas that neither were killed nor are stopped or cut off.
    working: BTreeSet<String>,
    /// Time at which each Lease was last held by one of them.
    owned: BTreeMap<String, Instant>,
    /// Longest time without such a holder.
    longest: BTreeMap<String, Duration>,
}

impl OwnerWatch {
    /// Follows the Leases with this prefix, each from when it is held for the first time.
    fn start(leases: Api<Lease>, prefix: &'static str, allowed: Duration) -> Self {
        let seen = Arc::new(Mutex::new(Owners::default()));
        let task = tokio::spawn(look(leases, prefix, seen.clone()));
        Self { seen, allowed, task }
    }

    /// A replica works, from here on.
    pub fn works(&self, name: &str) {
        self.seen.lock().working.insert(name.to_owned());
    }

    /// A replica does not work any more, whatever Leases say.
    pub fn is_out(&self, name: &str) {
        self.seen.lock().working.remove(name);
    }

    /// Checks that so many Leases have been followed until now, and that none was without an owner for too long. Returns the
    /// longest time, and forgets it.
    pub fn check(&self, leases: usize) -> Duration {
        assert!(!self.task.is_finished(), "it goes on looking");
        let Owners { owned, longest, .. } = &mut *self.seen.lock();
        assert_eq!(owned.len(), leases, "{owned:?}");
        let longest = std::mem::take(longest);
        let most = longest.values().max().copied().unwrap_or_default();
        assert!(most <= self.allowed, "without an owner: {longest:?}");
        most
    }
}

impl Drop for OwnerWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn look(leases: Api<Lease>, prefix: &str, seen: Arc<Mutex<Owners>>) {
    loop {
        let listed = leases.list(&ListParams::default()).await.unwrap();
        let now = Instant::now();
        {
            let Owners {
                working,
                owned,
                longest,
            } = &mut *seen.lock();
            for lease in listed {
                let is_owned = working.contains(host_name(&holder_of(&lease)));
                let name = lease.metadata.name.unwrap_or_default();
                if is_owned && name.starts_with(prefix) {
                    owned.insert(name, now);
                }
            }
            for (name, at) in owned {
                let longest = longest.entry(name.clone()).or_default();
                *longest = (*longest).max(now - *at);
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
