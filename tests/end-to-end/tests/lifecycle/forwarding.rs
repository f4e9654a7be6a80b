//! Reviews where replicas divide the work: whichever replica an API server asks, the answer is the same, though only the
//! replica that holds the shard has what it depends on.

mod simulated {
    use std::collections::BTreeMap;
    use std::net::{SocketAddr, TcpListener};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant, SystemTime};

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use k8s_openapi::api::coordination::v1::Lease;
    use kube::Api;
    use kube::api::{Patch, PatchParams};
    use pilothouse_cluster::fence::WriteFence;
    use pilothouse_core::replicas::lease::LeaseTimes;
    use pilothouse_core::replicas::shards::ShardPlan;
    use pilothouse_end_to_end::host::{RuntimeHost, webhooks};
    use pilothouse_end_to_end::stage::unhurried;
    use pilothouse_end_to_end::webhooks::Asker;
    use pilothouse_metrics::{Metrics, StateFigures};
    use pilothouse_runtime::{ElectionOptions, HostOptions, WebhookOptions};
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_webhook::certificates::{Certificates, Lifetimes};
    use pilothouse_webhook::handler::{WebhookHandler, WebhookRequest, WebhookResponse};
    use pilothouse_webhook::peers::{FORWARDED_HEADER, PeerClient};
    use pilothouse_webhook::server::WebhookServer;
    use serde_json::{Value, json};
    use tokio::sync::watch;

    use crate::fleet::Fleet;
    use crate::replicas::replica_lease;

    const SHARDS: usize = 8;
    const NAMESPACES: usize = 20;
    const VALIDATE: &str = "/validate/gate/gates";

    /// Time that the simulated API server waits.
    const PATIENCE: Duration = Duration::from_secs(4);

    /// Name of a tenant's object. Where names differ at the beginning, their hashes are spread.
    fn tenant(number: usize) -> String {
        format!("{number:02}-tenant-of-the-shop")
    }

    /// One replica.
    struct Replica {
        identity: &'static str,
        address: SocketAddr,
        metrics: Metrics,
    }

    impl Replica {
        fn new(identity: &'static str) -> (Self, WebhookOptions) {
            let webhooks = webhooks("default", "webhooks").unwrap();
            let replica = Self {
                identity,
                address: webhooks.listen,
                metrics: Metrics::default(),
            };
            (replica, webhooks)
        }

        fn host(&self, webhooks: WebhookOptions) -> RuntimeHost {
            let election = ElectionOptions {
                namespace: "default".to_owned(),
                name: "pilothouse".to_owned(),
                identity: self.identity.to_owned(),
                // A replica that is killed holds its shards until the test is over.
                times: LeaseTimes {
                    duration: Duration::from_secs(200),
                    renew_deadline: Duration::from_secs(100),
                    ..LeaseTimes::default()
                },
                fence: WriteFence::divided(),
                shards: Some(SHARDS),
            };
            let options = HostOptions {
                election: Some(election),
                instance: self.identity.to_owned(),
                metrics: self.metrics.clone(),
                webhooks: Some(webhooks),
                ..HostOptions::default()
            };
            RuntimeHost::new(options, unhurried())
        }

        /// Count of reviews that it has answered so.
        fn answered(&self, how: &str) -> u64 {
            let text = self.metrics.print(&StateFigures::default());
            let series = format!("pilothouse_admission_reviews_total{{answered=\"{how}\"}} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&series));
            line.and_then(|count| count.parse().ok()).unwrap_or_default()
        }

        /// Counts of its answers, in the order local, forwarded, live.
        fn all_answered(&self) -> [u64; 3] {
            ["local", "forwarded", "live"].map(|how| self.answered(how))
        }
    }

    /// Replicas that share the work, the first of which is the fleet's. Each namespace has a ConfigMap of a red gate.
    struct Crew {
        fleet: Fleet,
        hosts: BTreeMap<&'static str, RuntimeHost>,
        replicas: BTreeMap<&'static str, Replica>,
        certificates: Certificates,
    }

    impl Crew {
        async fn start(identities: &[&'static str], adapt: impl Fn(WebhookOptions) -> WebhookOptions) -> Self {
            let (first, own) = Replica::new(identities[0]);
            let endpoint = own.endpoint.clone();
            let fleet = Fleet::start_host_with(Cluster::simulated(), first.host(adapt(own))).await;
            for number in 0..NAMESPACES {
                let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant(number)}});
                fleet.stage.create(&namespace).await;
                let metadata = json!({"name": "first", "namespace": tenant(number)});
                let data = json!({"colour": "\"red\""});
                let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
                fleet.stage.create(&map).await;
            }
            fleet.put("gate", "gate.wasm", 0);
            fleet.plugin("gate", json!({"source": {"file": "gate.wasm"}})).await;
            fleet.is_ready("gate").await;
            let mut replicas = BTreeMap::from([(first.identity, first)]);
            let mut hosts = BTreeMap::new();
            for identity in &identities[1..] {
                let (replica, webhooks) = Replica::new(identity);
                let webhooks = WebhookOptions {
                    endpoint: endpoint.clone(),
                    ..adapt(webhooks)
                };
                let mut host = replica.host(webhooks);
                host.start_by_resources(&fleet.stage.cluster, fleet.path(""))
                    .await
                    .unwrap();
                hosts.insert(*identity, host);
                replicas.insert(*identity, replica);
            }
            let secret = fleet.stage.find("Secret", "webhooks").unwrap();
            let text = |key: &str| {
                let text = STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap();
                String::from_utf8(text).unwrap()
            };
            let certificates = Certificates {
                bundle: text("ca.crt"),
                authority_key: text("ca.key"),
                certificate: text("tls.crt"),
                key: text("tls.key"),
            };
            let crew = Self {
                fleet,
                hosts,
                replicas,
                certificates,
            };
            let share = SHARDS / identities.len();
            let is_shared = |crew: &Self| {
                let held = |identity: &&&str| crew.held(identity).len() == share;
                identities.iter().filter(held).count() == identities.len()
            };
            crew.fleet.until("the shards are shared", |_| is_shared(&crew)).await;
            // What has moved away is dropped.
            tokio::time::sleep(Duration::from_mins(2)).await;
            crew
        }

        /// The shards that a replica holds.
        fn held(&self, identity: &str) -> Vec<usize> {
            let leases = self.fleet.stage.all("Lease").into_iter();
            let held = leases.filter(|lease| lease["spec"]["holderIdentity"] == identity);
            held.filter_map(|lease| {
                let name = lease["metadata"]["name"].as_str()?;
                name.strip_prefix("pilothouse-shard-")?.parse().ok()
            })
            .collect()
        }

        /// A namespace in a shard of a replica.
        fn namespace_of(&self, identity: &str) -> String {
            let plan = self.fleet.stage.find("ConfigMap", "pilothouse-shards").unwrap();
            let plan = ShardPlan::parse(plan["data"]["plan.json"].as_str().unwrap()).unwrap();
            let held = self.held(identity);
            let is_held = |namespace: &String| held.iter().any(|shard| plan.shards[*shard].ranges.has(namespace));
            (0..NAMESPACES).map(tenant).find(is_held).unwrap()
        }

        /// Returns a replica's verdict on a new gate, or the error.
        async fn ask(&self, identity: &str, namespace: &str, spec: &Value) -> Result<bool, String> {
            let asker = Asker::new(self.replicas[identity].address, &self.certificates.bundle);
            let body = review(namespace, spec);
            let path = format!("{VALIDATE}?timeout={}s", PATIENCE.as_secs());
            // Time stands meanwhile for the hosts, and goes on for their servers.
            let asked = move || asker.ask("POST", &path, "application/json", body.as_bytes());
            let (code, answer) = tokio::task::spawn_blocking(asked).await.unwrap().unwrap();
            if code != 200 {
                return Err(format!("{code}: {answer}"));
            }
            let answer: Value = serde_json::from_str(&answer).unwrap();
            Ok(answer["response"]["allowed"] == true)
        }

        /// Panics unless a replica judges as every other would: a second red gate is refused, and a green one is not.
        async fn judges_well(&self, identity: &str, namespace: &str) {
            for (colour, is_allowed) in [("red", false), ("green", true)] {
                let spec = json!({"size": 1, "colour": colour, "behaviour": "only-colour"});
                let answer = self.ask(identity, namespace, &spec).await;
                assert_eq!(
                    answer,
                    Ok(is_allowed),
                    "{identity}, {namespace}, {colour}\n{}",
                    self.fleet.log()
                );
            }
            let leave = self
                .ask(identity, namespace, &json!({"size": 1, "behaviour": "ask-leave"}))
                .await;
            assert_eq!(leave, Ok(false), "{identity}, {namespace}");
        }

        /// Writes an address into the Lease of a replica that does not write there any more.
        async fn publish(&self, identity: &str, address: &str) {
            let leases: Api<Lease> = Api::namespaced(self.fleet.client().await, "default");
            let patch = Patch::Merge(json!({"metadata": {"annotations": {"pilothouse.dev/webhook-address": address}}}));
            leases
                .patch(&replica_lease(identity), &PatchParams::default(), &patch)
                .await
                .unwrap();
            // All replicas have read it.
            tokio::time::sleep(Duration::from_secs(5)).await;
        }

        /// Count of the cached ConfigMaps of each replica.
        fn cached(&self) -> Vec<u64> {
            let hosts = std::iter::once(&self.fleet.stage.host).chain(self.hosts.values());
            let maps = |host: &RuntimeHost| {
                let figures = host.handle().unwrap().figures();
                let mut kinds = figures.kinds.into_iter();
                kinds
                    .find(|figures| figures.kind == "ConfigMap.v1")
                    .map_or(0, |figures| figures.objects)
            };
            hosts.map(maps).collect()
        }
    }

    fn review(namespace: &str, spec: &Value) -> String {
        let object = json!({
            "apiVersion": "gate.test.dev/v1", "kind": "Gate",
            "metadata": {"name": "second", "namespace": namespace}, "spec": spec,
        });
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "7", "name": "second", "namespace": namespace, "operation": "CREATE", "object": object,
            "kind": {"group": "gate.test.dev", "version": "v1", "kind": "Gate"},
        }})
        .to_string()
    }

    /// A server that is no replica, and how often it was asked something.
    struct Stranger(AtomicUsize);

    impl WebhookHandler for Stranger {
        async fn answer(&self, _: WebhookRequest) -> WebhookResponse {
            self.0.fetch_add(1, Ordering::Relaxed);
            let allowed = json!({"response": {"uid": "7", "allowed": true}});
            WebhookResponse::json(allowed.to_string())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn every_replica_answers_the_same_and_only_the_holder_caches() {
        let crew = Crew::start(&["one", "two", "three", "four"], |webhooks| webhooks).await;
        let cached = crew.cached();
        let all = crew.fleet.stage.all("ConfigMap").len() as u64;
        assert_eq!(cached.iter().sum::<u64>(), all, "each is cached once: {cached:?}");
        assert!(cached.iter().all(|maps| *maps < all * 2 / 3), "{cached:?}");
        for identity in ["one", "two", "three", "four"] {
            for number in 0..NAMESPACES {
                crew.judges_well(identity, &tenant(number)).await;
            }
        }
        // The holder answers all three reviews about a namespace, whichever of the four replicas is asked.
        let reviews = 3 * 4 * NAMESPACES as u64;
        let all = |how: &str| crew.replicas.values().map(|replica| replica.answered(how)).sum::<u64>();
        assert_eq!(["local", "forwarded", "live"].map(all), [reviews, reviews * 3 / 4, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_hanging_or_wrong_holder_changes_no_answer() {
        let mut crew = Crew::start(&["one", "two", "three", "four"], |webhooks| webhooks).await;
        let namespace = crew.namespace_of("four");
        let gone = crew.replicas["four"].address;
        crew.hosts.get_mut("four").unwrap().kill().await;
        // Its server ends.
        tokio::time::sleep(Duration::from_secs(1)).await;
        crew.judges_well("one", &namespace).await;
        assert_eq!(crew.replicas["one"].all_answered(), [0, 0, 3]);

        let hanging = TcpListener::bind(gone).unwrap();
        let begun = Instant::now();
        crew.judges_well("two", &namespace).await;
        let took = begun.elapsed();
        // The first review waits; then the replica is known to be silent.
        assert!(took >= Duration::from_secs(1) && took < PATIENCE, "{took:?}");
        assert_eq!(crew.replicas["two"].answered("live"), 3);
        drop(hanging);

        // Somebody who may edit Leases leads reviews to a machine of their own, whose certificate is of another authority.
        let own = Certificates::make(&["127.0.0.1".to_owned()], SystemTime::now(), &Lifetimes::default()).unwrap();
        let (_tls, shown) = watch::channel(own.server_config().unwrap());
        let stranger = Arc::new(Stranger(AtomicUsize::new(0)));
        let server = WebhookServer::start("127.0.0.1:0".parse().unwrap(), shown, stranger.clone()).unwrap();
        crew.publish("four", &server.address().to_string()).await;
        crew.judges_well("three", &namespace).await;
        assert_eq!(stranger.0.load(Ordering::Relaxed), 0, "nothing is sent there");
        crew.publish("four", "nonsense").await;
        crew.judges_well("three", &namespace).await;
        assert_eq!(crew.replicas["three"].all_answered(), [0, 0, 6]);

        // It leads to a replica that believes that the holder is at its own address.
        let before = crew.replicas["two"].answered("live");
        crew.publish("four", &crew.replicas["two"].address.to_string()).await;
        crew.judges_well("three", &namespace).await;
        assert_eq!(crew.replicas["three"].all_answered(), [0, 3, 6]);
        assert_eq!(crew.replicas["two"].answered("live"), before + 3);
        assert_eq!(
            crew.replicas["two"].answered("forwarded"),
            0,
            "it ends at the first hop"
        );

        // Others take the shards over.
        tokio::time::sleep(Duration::from_mins(5)).await;
        for identity in ["one", "two", "three"] {
            crew.judges_well(identity, &namespace).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_replica_can_say_that_it_forwards() {
        let authority = tempfile::NamedTempFile::new().unwrap();
        let other = Certificates::make(&["a".to_owned()], SystemTime::now(), &Lifetimes::default()).unwrap();
        std::fs::write(authority.path(), &other.bundle).unwrap();
        let path = authority.path().to_owned();
        let crew = Crew::start(&["one", "two"], |webhooks| WebhookOptions {
            client_ca: Some(path.clone()),
            ..webhooks
        })
        .await;
        let address = crew.replicas["one"].address;
        let namespace = crew.namespace_of("two");
        let body = review(
            &namespace,
            &json!({"size": 1, "colour": "red", "behaviour": "only-colour"}),
        );

        let asker = Asker::new(address, &crew.certificates.bundle);
        let forged = body.clone();
        let codes = tokio::task::spawn_blocking(move || {
            let ask = |headers: &[(&str, &str)]| {
                let headers = [&[("content-type", "application/json")][..], headers].concat();
                asker.ask_with("POST", VALIDATE, &headers, forged.as_bytes()).unwrap()
            };
            [
                ask(&[]),
                ask(&[(FORWARDED_HEADER, "true")]),
                ask(&[(FORWARDED_HEADER, &"0".repeat(64))]),
            ]
        });
        for (code, words) in codes.await.unwrap() {
            assert_eq!(code, 403, "{words}");
        }
        // With the key of another authority, which is no better; and with that of the host, without a client's certificate.
        for (certificates, expected) in [(&other, Err(())), (&crew.certificates, Ok(200))] {
            let keyed = Certificates {
                authority_key: certificates.authority_key.clone(),
                ..crew.certificates.clone()
            };
            let client = PeerClient::new(&keyed, "127.0.0.1").unwrap();
            let body = body.clone();
            let runtime = tokio::task::spawn_blocking(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                runtime.block_on(client.forward(address, VALIDATE, body.into(), PATIENCE))
            });
            let answer = runtime.await.unwrap();
            assert_eq!(
                answer.as_ref().map(|answer| answer.code).map_err(|_| ()),
                expected,
                "{answer:?}"
            );
        }
        assert_eq!(
            crew.replicas["one"].all_answered(),
            [0, 0, 1],
            "what is forwarded is not forwarded again"
        );
    }
}
