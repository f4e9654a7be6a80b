//! Reviews of a real API server that knows the address of one replica only: what that replica does not cache, another one
//! answers, and where that one cannot, live reads do. The API server has to show a certificate, and the replicas prove who they
//! are to each other. Accounts have the rights that are printed, and no others.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Error};
use pilothouse_core::replicas::shards::ShardPlan;
use pilothouse_core::rights::objects::account_name;
use pilothouse_end_to_end::program::{Process, component};
use pilothouse_end_to_end::scrape::{Scrape, get};
use pilothouse_end_to_end::webhooks::{Asker, gate_review};
use pilothouse_testkit::controlplane::AuditMark;
use pilothouse_testkit::host::free_address;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::control_plane;
use super::host::{installed, rights_of_an_acting_host};
use crate::support::{Bench, until};

const SHARDS: usize = 4;
const NAMESPACES: usize = 12;

/// Count of reviews that the API server requests when [`Crew::judges_well`] is called: of a defaulter and a validator,
/// about two gates.
const REVIEWS: u64 = 4;

/// Rights of a host beside [`rights_of_an_acting_host`], to share its work and to serve webhooks.
pub fn rights_of_a_replica() -> Value {
    let mut rules = rights_of_an_acting_host();
    let more = json!([
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list", "create", "update", "delete"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["pilothouse-shards"], "verbs": ["get", "update"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["webhooks"], "verbs": ["get", "update"]},
        {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
            "verbs": ["get", "create", "patch", "delete"],
        },
        {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["patch"]},
    ]);
    let rules_list = rules.as_array_mut().unwrap();
    rules_list.extend(more.as_array().unwrap().iter().cloned());
    rules
}

/// One replica.
struct Replica {
    process: Process,
    webhooks: SocketAddr,
    metrics: SocketAddr,
}

impl Replica {
    /// Starts a replica whose webhook server listens on this address.
    fn start(arguments: &[&str], webhooks: SocketAddr) -> Self {
        let metrics = free_address().unwrap();
        let (listen, scraped) = (webhooks.to_string(), metrics.to_string());
        let own = ["--webhook-listen", &listen, "--metrics-address", &scraped];
        Self {
            process: Process::start(&[arguments, &own].concat()),
            webhooks,
            metrics,
        }
    }

    /// Counts of its answers until now, in the order local, forwarded, live. A host prints its metrics once a second at
    /// most; the age of its main loop tells one print from another.
    async fn answered(&self) -> [u64; 3] {
        let scraped = || get(self.metrics, "/metrics").unwrap().1;
        let (before, now) = (scraped(), Mutex::new(String::new()));
        let is_news = async || {
            *now.lock().unwrap() = scraped();
            *now.lock().unwrap() != before
        };
        until("the metrics are printed anew", is_news, || self.process.log()).await;
        let scrape = Scrape(now.into_inner().unwrap());
        ["local", "forwarded", "live"].map(|how| {
            let label = format!("answered=\"{how}\"");
            let count = scrape.count("pilothouse_admission_reviews_total", &[&label]);
            count.unwrap_or_default()
        })
    }
}

/// Two replicas, of which API servers know one. Each namespace has a ConfigMap of a red gate.
struct Crew {
    bench: Bench<'static>,
    identity: &'static str,
    system: String,
    /// First replica, which keeps half of the shards.
    holder: Replica,
    asked: Replica,
    /// Counts of the asked replica's answers at the last look-up.
    seen: Mutex<[u64; 3]>,
}

impl Crew {
    async fn start(identity: &'static str, lease_duration: &str) -> Self {
        let control_plane = control_plane().await;
        let bench = Bench::new(control_plane).await;
        clean_up(&bench).await;
        let system = format!("forwarding-{identity}");
        let kubeconfig = bench.account(&system, "host", &rights_of_a_replica()).await;
        let plugin = format!("gate={}", component("gate"));
        installed(&bench, &plugin, &system, identity).await;
        for number in 0..NAMESPACES {
            let namespace = tenant(identity, number);
            bench.namespace(&namespace).await;
            let mut map = config_map(&namespace, "first");
            map["data"] = json!({"colour": "\"red\""});
            bench.apply(&[map]).await;
        }
        let authority = control_plane.certificate_authority();
        let authority = bench.folder.file("clients.pem", authority);
        let (first, asked) = (free_address().unwrap(), free_address().unwrap());
        let (shards, url, secret) = (
            SHARDS.to_string(),
            format!("https://{asked}"),
            format!("{system}/webhooks"),
        );
        let arguments = [
            ["run", "--kubeconfig", &kubeconfig, "--plugin", &plugin].as_slice(),
            &["--identity", identity, "--namespace", &system],
            &[
                "--leader-election",
                "--shards",
                &shards,
                "--lease-duration",
                lease_duration,
            ],
            &["--lease-renew-deadline", "3", "--lease-retry-period", "1"],
            &["--webhook-url", &url, "--webhook-secret", &secret],
            &["--webhook-peer-address", "127.0.0.1", "--webhook-client-ca", &authority],
        ]
        .concat();
        let mut holder = Replica::start(&arguments, first);
        holder.process.says(&["plugin ready", "gate/gates"]).await;
        let crew = Self {
            asked: Replica::start(&arguments, asked),
            bench,
            identity,
            system,
            holder,
            seen: Mutex::default(),
        };
        let is_shared = async || {
            let shares = crew.shares().await;
            [first, asked].map(|address| shares.get(&address).map(Vec::len)) == [Some(SHARDS / 2); 2]
        };
        until("two replicas share the shards", is_shared, || crew.log()).await;
        crew
    }

    fn log(&self) -> String {
        format!("{}\n---\n{}", self.holder.process.log(), self.asked.process.log())
    }

    /// The shards that each replica holds, by the address of its webhook server.
    async fn shares(&self) -> BTreeMap<SocketAddr, Vec<usize>> {
        let leases: Api<Lease> = Api::namespaced(self.bench.client.clone(), &self.system);
        let (mut addresses, mut held) = (BTreeMap::new(), BTreeMap::<String, Vec<usize>>::new());
        for Lease { metadata, spec } in leases.list(&ListParams::default()).await.unwrap() {
            let Some(holder) = spec.and_then(|spec| spec.holder_identity) else {
                continue;
            };
            let shard = metadata.name.unwrap();
            let shard = shard.strip_prefix("pilothouse-shard-");
            let address = metadata.annotations.unwrap_or_default();
            match (shard, address.get("pilothouse.dev/webhook-address")) {
                (Some(shard), _) => held.entry(holder).or_default().push(shard.parse().unwrap()),
                (None, Some(address)) => drop(addresses.insert(holder, address.parse().unwrap())),
                (None, None) => {}
            }
        }
        let with_address = held.into_iter().filter_map(|(holder, shards)| {
            let address = addresses.get(&holder)?;
            Some((*address, shards))
        });
        with_address.collect()
    }

    /// A namespace in a shard of a replica.
    async fn namespace_of(&self, replica: &Replica) -> String {
        let plan = self.bench.find(&config_map(&self.system, "pilothouse-shards")).await;
        let plan = ShardPlan::parse(plan.unwrap()["data"]["plan.json"].as_str().unwrap()).unwrap();
        let held = &self.shares().await[&replica.webhooks];
        let is_held = |namespace: &String| held.iter().any(|shard| plan.shards[*shard].ranges.has(namespace));
        let mut namespaces = (0..NAMESPACES).map(|number| tenant(self.identity, number));
        namespaces.find(is_held).unwrap()
    }

    /// Asks the API server whether a gate may be made.
    async fn ask(&self, namespace: &str, spec: &Value) -> Result<DynamicObject, Error> {
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        self.create(&gate(namespace, "asked", spec), &dry_run).await
    }

    async fn create(&self, gate: &Value, parameters: &PostParams) -> Result<DynamicObject, Error> {
        let object = serde_json::from_value(gate.clone()).unwrap();
        self.bench.api(gate).create(parameters, &object).await
    }

    /// Waits until the API server asks the defaulter and the validator.
    async fn until_served(&self, namespace: &str) {
        let last = Mutex::new(String::new());
        let is_served = async || {
            let bad = self.ask(namespace, &json!({"size": -1})).await;
            let good = self.ask(namespace, &json!({"size": 1})).await;
            *last.lock().unwrap() = format!("{bad:?}\n{good:?}");
            let is_refused = matches!(bad, Err(Error::Api(status)) if status.code == 422);
            is_refused && good.is_ok_and(|gate| gate.data["spec"]["colour"] == "blue")
        };
        let told = || format!("{}\n{}", last.lock().unwrap(), self.log());
        until("the API server asks", is_served, told).await;
        *self.seen.lock().unwrap() = self.asked.answered().await;
    }

    /// Panics unless another red gate is refused with the plugin's message, and a green one is not. Returns the answers
    /// of the called replica.
    async fn judges_well(&self, namespace: &str) -> [u64; 3] {
        let spec = |colour: &str| json!({"size": 1, "colour": colour, "behaviour": "only-colour"});
        let red = self.ask(namespace, &spec("red")).await;
        let Err(Error::Api(status)) = red else {
            panic!("it is not refused: {red:?}\n{}", self.log());
        };
        assert_eq!(status.code, 422, "{status:?}\n{}", self.log());
        let words = "spec.colour: Forbidden: the gate \"first\" has this colour";
        assert!(status.message.contains(words), "{status:?}");
        let green = self.ask(namespace, &spec("green")).await;
        assert!(green.is_ok(), "{green:?}\n{}", self.log());
        let now = self.asked.answered().await;
        let before = std::mem::replace(&mut *self.seen.lock().unwrap(), now);
        [0, 1, 2].map(|how| now[how] - before[how])
    }

    /// Panics unless the ConfigMaps of a namespace were listed since then, by the plugin's account and by no other
    /// client.
    fn listed_as_the_plugin(&self, namespace: &str, mark: AuditMark) {
        let account = format!("system:serviceaccount:{}:{}", self.system, account_name("gate"));
        let mut requests = self.bench.control_plane.requests_since(mark).unwrap();
        requests.retain(|request| {
            request.verb == "list" && request.resource == "configmaps" && request.namespace == namespace
        });
        assert!(!requests.is_empty(), "the log of requests is read");
        for request in requests {
            assert_eq!(
                request.impersonated.as_ref().unwrap_or(&request.account),
                &account,
                "{request}"
            );
        }
    }

    /// Panics if a client without a certificate is answered.
    async fn wants_certificates(&self) {
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "webhooks", "namespace": self.system}});
        let secret = self.bench.find(&secret).await.unwrap();
        let bundle = STANDARD.decode(secret["data"]["ca.crt"].as_str().unwrap()).unwrap();
        let asker = Asker::new(self.asked.webhooks, &String::from_utf8(bundle).unwrap());
        let review = gate_review(&json!({"size": 1})).to_string();
        let ask = move || asker.ask("POST", "/validate/gate/gates", "application/json", review.as_bytes());
        let (code, words) = tokio::task::spawn_blocking(ask).await.unwrap().unwrap();
        assert_eq!(code, 403, "{words}");
    }

    /// Ends both.
    async fn end(self) {
        let Self {
            bench, holder, asked, ..
        } = self;
        drop((holder, asked));
        clean_up(&bench).await;
    }
}

/// Leaves nothing that would have the API server ask a host that is gone: other tests share the control plane.
pub async fn clean_up(bench: &Bench<'_>) {
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let object = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "pilothouse-gate"},
        });
        // A test that failed has left it, or none has.
        let _ = bench
            .api(&object)
            .delete("pilothouse-gate", &DeleteParams::default())
            .await;
    }
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gates.gate.test.dev"},
    });
    let conversion = Patch::Merge(json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}}));
    let (definitions, by) = (bench.api(&crd), PatchParams::default());
    let _ = definitions.patch("gates.gate.test.dev", &by, &conversion).await;
}

/// Name of a tenant's object. Where names differ at the beginning, their hashes are spread.
fn tenant(identity: &str, number: usize) -> String {
    format!("{number:02}-tenant-of-{identity}")
}

fn config_map(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}})
}

fn gate(namespace: &str, name: &str, spec: &Value) -> Value {
    let metadata = json!({"name": name, "namespace": namespace});
    json!({"apiVersion": "gate.test.dev/v1", "kind": "Gate", "metadata": metadata, "spec": spec})
}

/// The holder of half of the shards answers what the other replica is asked, until a signal ends that; then live reads do.
async fn story(identity: &'static str, lease_duration: &str, signal: Signal) {
    let _turn = control_plane().await.host_turn().await;
    let crew = Crew::start(identity, lease_duration).await;
    let near = crew.namespace_of(&crew.asked).await;
    let far = crew.namespace_of(&crew.holder).await;
    crew.until_served(&near).await;
    crew.wants_certificates().await;

    let is_listed = async || crew.judges_well(&near).await == [REVIEWS, 0, 0];
    until("a replica answers for its own shards", is_listed, || crew.log()).await;
    let [local, forwarded, live] = crew.holder.answered().await;
    assert_eq!(crew.judges_well(&far).await, [0, REVIEWS, 0], "{}", crew.log());
    assert_eq!(crew.holder.answered().await, [local + REVIEWS, forwarded, live]);

    // What is allowed is stored, and reconciled by whoever holds its shard.
    for namespace in [&near, &far] {
        let gate = gate(namespace, "made", &json!({"size": 1, "colour": "blue"}));
        let made = crew.create(&gate, &PostParams::default()).await;
        assert!(made.is_ok(), "{made:?}\n{}", crew.log());
        let map = config_map(namespace, "made");
        let is_made = async || crew.bench.find(&map).await.is_some();
        until("the gate is reconciled", is_made, || crew.log()).await;
    }
    *crew.seen.lock().unwrap() = crew.asked.answered().await;

    let mark = crew.bench.control_plane.mark().unwrap();
    let begun = Instant::now();
    crew.holder.process.signal(signal);
    assert_eq!(crew.judges_well(&far).await, [0, 0, REVIEWS], "{}", crew.log());
    println!(
        "{REVIEWS} reviews without the holder, and a look at the metrics, took {:?}",
        begun.elapsed()
    );
    crew.listed_as_the_plugin(&far, mark);
    if signal == Signal::KILL {
        // Whenever the shard is taken over, no review fails.
        let is_local = async || crew.judges_well(&far).await == [REVIEWS, 0, 0];
        until("the replica that lives takes the shard", is_local, || crew.log()).await;
        println!("the shard was taken over after {:?}", begun.elapsed());
    }
    crew.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_review_fails_when_the_holder_of_its_shard_is_killed() {
    story("impersonate", "5", Signal::KILL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_hangs_delays_one_review_and_changes_none() {
    // It holds its shards until the test is over.
    story("token", "30", Signal::STOP).await;
}
