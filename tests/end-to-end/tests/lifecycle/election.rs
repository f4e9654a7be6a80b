//! Several replicas of a host: one writes, the others are warm, and one of them takes over when the leader stops, dies or
//! loses its Lease.

mod real;

pub mod simulated {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use k8s_openapi::api::coordination::v1::Lease;
    use kube::Api;
    use kube::api::{DeleteParams, Patch, PatchParams};
    use pilothouse_cluster::fence::WriteFence;
    use pilothouse_core::replicas::lease::LeaseTimes;
    use pilothouse_end_to_end::host::{RuntimeHost, webhooks};
    use pilothouse_end_to_end::scrape::Scrape;
    use pilothouse_end_to_end::stage::{app_service, unhurried};
    use pilothouse_end_to_end::webhooks::Asker;
    use pilothouse_metrics::Metrics;
    use pilothouse_runtime::{ElectionOptions, Endpoints, Heartbeat, HostOptions, WebhookOptions};
    use pilothouse_simulator::{Asked, Fault, Rights};
    use pilothouse_testkit::cluster::{Cluster, Mark};
    use pilothouse_testkit::host::SteeredHost as _;
    use pilothouse_testkit::requests::{HOST_ACCOUNT, Request};
    use pilothouse_webhook::plain::{PlainHandler as _, PlainResponse};
    use serde_json::{Value, json};
    use tempfile::TempDir;
    use tokio::time::Instant;

    use crate::fleet::Fleet;

    /// Time until another replica leads when nobody renews the Lease: its duration, and a pause with jitter.
    const TAKEN_WITHIN: Duration = Duration::from_millis(17_500);

    /// Time until another replica leads when the leader has released the Lease.
    const HANDED_OVER_WITHIN: Duration = Duration::from_millis(3_500);

    /// Options of a replica that takes part in the election.
    pub fn options(identity: &str) -> HostOptions {
        let election = ElectionOptions {
            namespace: "default".to_owned(),
            name: "pilothouse".to_owned(),
            identity: identity.to_owned(),
            times: LeaseTimes::default(),
            fence: WriteFence::closed(),
            shards: None,
        };
        HostOptions {
            election: Some(election),
            instance: identity.to_owned(),
            // Less than the fence waits for an answer.
            grace: Duration::from_secs(5),
            ..HostOptions::default()
        }
    }

    fn replica(identity: &str) -> RuntimeHost {
        RuntimeHost::new(options(identity), unhurried())
    }

    /// Two replicas, of which the first leads, with a plugin and an object that has converged.
    async fn two_replicas() -> (Fleet, RuntimeHost) {
        let fleet = Fleet::start_host_with(Cluster::simulated(), replica("one")).await;
        fleet.put("app-service", "it.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "it.wasm"}})).await;
        fleet.is_ready("it").await;
        fleet.stage.create(&app_service("web")).await;
        converges(&fleet, "web").await;
        fleet.stage.host.settled().await.unwrap();
        let mut second = replica("two");
        second
            .start_by_resources(&fleet.stage.cluster, fleet.path(""))
            .await
            .unwrap();
        // Its cache has the object, which is queued.
        let is_warm = || {
            second
                .handle()
                .unwrap()
                .depths()
                .iter()
                .any(|(_, depth)| depth.ready == 1)
        };
        fleet.until("the second replica is warm", |_| is_warm()).await;
        (fleet, second)
    }

    /// An AppService without a Service, whose node port would be taken.
    fn another(name: &str) -> Value {
        let mut object = app_service(name);
        object["spec"]["ports"] = json!([]);
        object
    }

    async fn converges(fleet: &Fleet, name: &str) {
        fleet
            .until("the AppService converges", |stage| {
                stage.is_reconciled("AppService", name)
            })
            .await;
    }

    /// Returns the writes since the mark, but for the Lease and the status of the Plugin, which counts objects.
    fn writes(fleet: &Fleet, mark: Mark) -> Vec<String> {
        let requests = fleet.stage.cluster.requests_since(mark).unwrap();
        let writes = requests
            .iter()
            .filter(|request| request.is_by_host() && request.is_write() && !request.is_lease())
            .filter(|request| request.resource != "plugins");
        writes.map(ToString::to_string).collect()
    }

    fn holder(fleet: &Fleet) -> Value {
        fleet
            .stage
            .find("Lease", "pilothouse")
            .map(|mut lease| lease["spec"]["holderIdentity"].take())
            .unwrap_or_default()
    }

    async fn leases(fleet: &Fleet) -> Api<Lease> {
        Api::namespaced(fleet.client().await, "default")
    }

    /// Waits until a replica holds the Lease: how long that took.
    async fn leads(fleet: &Fleet, identity: &str) -> Duration {
        let begun = Instant::now();
        fleet
            .until(&format!("{identity} leads"), |_| holder(fleet) == identity)
            .await;
        begun.elapsed()
    }

    /// Status and reason of the Plugin's condition `Ready`.
    fn readiness(fleet: &Fleet) -> (String, String) {
        let plugin = fleet.stage.find("Plugin", "it").unwrap();
        let conditions = plugin["status"]["conditions"].as_array().unwrap().clone();
        let ready = conditions
            .into_iter()
            .find(|condition| condition["type"] == "Ready")
            .unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&ready["status"]), text(&ready["reason"]))
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_last_replica_reports_that_no_host_runs_a_plugin() {
        let (mut fleet, mut second) = two_replicas().await;
        let running = ("True".to_owned(), "Running".to_owned());
        fleet.stage.host.stop().await.unwrap();
        leads(&fleet, "two").await;
        assert_eq!(readiness(&fleet), running, "a replica has taken over");
        let mark = fleet.stage.cluster.mark().unwrap();
        second.stop().await.unwrap();
        assert_eq!(readiness(&fleet), ("Unknown".to_owned(), "NoHost".to_owned()));
        let requests = fleet.stage.cluster.requests_since(mark).unwrap();
        let written = requests
            .iter()
            .filter(|request| request.is_write() && request.resource == "plugins");
        assert_eq!(written.count(), 1, "{requests:#?}");
        let mut third = replica("three");
        third
            .start_by_resources(&fleet.stage.cluster, fleet.path(""))
            .await
            .unwrap();
        fleet
            .until("the Plugin is ready again", |_| readiness(&fleet) == running)
            .await;
        third.stop().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn one_replica_writes_and_the_other_follows() {
        let (fleet, second) = two_replicas().await;
        let mark = fleet.stage.cluster.mark().unwrap();
        fleet.stage.create(&another("more")).await;
        converges(&fleet, "more").await;
        tokio::time::sleep(Duration::from_mins(2)).await;
        let written = writes(&fleet, mark);
        // The Deployment, the status, and the status with the Deployment's.
        assert!((2..=3).contains(&written.len()), "{written:#?}");
        assert_eq!(holder(&fleet), "one");
        assert_eq!(second.handle().unwrap().stuck(), 0);
        // Both write their log here, and neither tries what it may not do.
        let log = second.log_tail();
        assert!(!log.contains(" WARN "), "{log}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_stops_hands_over_at_once() {
        let (mut fleet, second) = two_replicas().await;
        let mark = fleet.stage.cluster.mark().unwrap();
        fleet.stage.host.stop().await.unwrap();
        let took = leads(&fleet, "two").await;
        assert!(took <= HANDED_OVER_WITHIN, "{took:?}");
        second.settled().await.unwrap();
        assert_eq!(writes(&fleet, mark), Vec::<String>::new(), "all had been written");
        fleet.stage.create(&another("more")).await;
        converges(&fleet, "more").await;
    }

    /// Stops the leader also in the middle of renewing the Lease, on a slow API server.
    #[tokio::test(start_paused = true)]
    async fn whenever_a_leader_stops_it_hands_over_at_once() {
        let (mut fleet, mut leader) = two_replicas().await;
        fleet.stage.host.stop().await.unwrap();
        leads(&fleet, "two").await;
        let late = Fault::LateAnswer(Duration::from_millis(100));
        let late = pilothouse_simulator::Rule::new(late).resource("leases");
        fleet.stage.simulator().faults().add(late);
        let mut took = Vec::new();
        for number in 0..45 {
            let identity = format!("next-{number}");
            let mut next = replica(&identity);
            let folder = fleet.path("");
            next.start_by_resources(&fleet.stage.cluster, folder).await.unwrap();
            tokio::time::sleep(Duration::from_secs(5) + Duration::from_millis(50) * number).await;
            leader.stop().await.unwrap();
            took.push(leads(&fleet, &identity).await);
            leader = next;
        }
        assert!(took.iter().all(|took| *took <= HANDED_OVER_WITHIN), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_dies_is_replaced_when_its_lease_ends() {
        let (mut fleet, second) = two_replicas().await;
        let mark = fleet.stage.cluster.mark().unwrap();
        fleet.stage.host.kill().await;
        // What comes while nobody leads is not lost.
        fleet.stage.create(&another("more")).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(holder(&fleet), "one");
        let took = leads(&fleet, "two").await + Duration::from_secs(5);
        assert!(took <= TAKEN_WITHIN, "{took:?}");
        converges(&fleet, "more").await;
        second.settled().await.unwrap();
        let written = writes(&fleet, mark);
        assert!((2..=3).contains(&written.len()), "nothing is repeated: {written:#?}");
        assert!(written.iter().all(|write| write.contains("more")), "{written:#?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_standby_is_not_ready_without_the_api_server() {
        let (fleet, second) = two_replicas().await;
        let endpoints = |host: &RuntimeHost| {
            let heartbeat = Heartbeat::default();
            heartbeat.turn();
            let endpoints = Endpoints::new("1", Metrics::default(), heartbeat);
            endpoints.set_host(host.handle().unwrap().clone());
            endpoints
        };
        let (leader, standby) = (endpoints(&fleet.stage.host), endpoints(&second));
        let ready = async |of: &Endpoints| {
            let PlainResponse { code, body, .. } = of.get("/readyz").await;
            (code, String::from_utf8(body.into()).unwrap())
        };
        let is_ready = (200, "ok\n".to_owned());
        assert_eq!(
            [ready(&leader).await, ready(&standby).await],
            [&is_ready; 2].map(Clone::clone)
        );
        // Its requests are lost. The bookmarks of its watches show that its caches are not old.
        second.cut_off(true);
        tokio::time::sleep(Duration::from_mins(4)).await;
        assert_eq!(ready(&standby).await, is_ready);
        // A short outage is none of anybody's business.
        for (group, plural) in [("kosmos.io", "appservices"), ("apps", "deployments"), ("", "services")] {
            fleet.stage.simulator().cut_watches(group, plural);
        }
        tokio::time::sleep(Duration::from_secs(175)).await;
        assert_eq!(ready(&standby).await, is_ready);
        tokio::time::sleep(Duration::from_secs(70)).await;
        let (code, said) = ready(&standby).await;
        assert!(
            code == 503 && said.starts_with("this replica does not lead, and the API server has answered nothing for "),
            "{code} {said}"
        );
        assert_eq!(ready(&leader).await, is_ready, "it leads");
        second.cut_off(false);
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert_eq!(
            ready(&standby).await,
            is_ready,
            "its requests for the Lease are answered"
        );
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_is_cut_off_stops_before_another_one_leads() {
        let (fleet, second) = two_replicas().await;
        fleet.stage.host.cut_off(true);
        let mark = fleet.stage.cluster.mark().unwrap();
        // The first replica still gets the watch events, and tries to write.
        fleet.stage.create(&another("more")).await;
        let took = leads(&fleet, "two").await;
        assert!(took <= TAKEN_WITHIN, "{took:?}");
        converges(&fleet, "more").await;
        tokio::time::sleep(Duration::from_mins(2)).await;
        fleet.stage.host.cut_off(false);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(holder(&fleet), "two");
        fleet.stage.create(&another("and-more")).await;
        converges(&fleet, "and-more").await;
        second.settled().await.unwrap();
        let written = writes(&fleet, mark);
        assert!((4..=6).contains(&written.len()), "{written:#?}");
        assert_eq!(fleet.stage.host.handle().unwrap().stuck(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_deleted_by_hand_stays_with_its_holder() {
        let (fleet, _second) = two_replicas().await;
        for _ in 0..3 {
            leases(&fleet)
                .await
                .delete("pilothouse", &DeleteParams::default())
                .await
                .unwrap();
            assert!(leads(&fleet, "one").await <= HANDED_OVER_WITHIN);
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert_eq!(holder(&fleet), "one");
        }
    }

    /// Clears the holder by hand, or makes the Lease short: this does not make two replicas lead at once.
    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_cleared_by_hand_stays_with_its_holder() {
        let (fleet, _second) = two_replicas().await;
        let edits = [
            json!({"holderIdentity": ""}),
            json!({"holderIdentity": null}),
            json!({"leaseDurationSeconds": 1}),
            json!({"holderIdentity": "", "leaseDurationSeconds": 1}),
        ];
        for spec in edits {
            for offset in 0..20 {
                tokio::time::sleep(Duration::from_secs(4) + Duration::from_millis(100) * offset).await;
                let patch = Patch::Merge(json!({"spec": spec}));
                leases(&fleet)
                    .await
                    .patch("pilothouse", &PatchParams::default(), &patch)
                    .await
                    .unwrap();
                assert!(leads(&fleet, "one").await <= HANDED_OVER_WITHIN);
            }
        }
        let log = fleet.stage.host.log_tail();
        assert!(!log.contains("leads no longer"), "{log}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_with_abandoned_writes_lets_its_lease_expire() {
        let (mut fleet, _second) = two_replicas().await;
        let never = Fault::LateAnswer(Duration::from_mins(5));
        let never = pilothouse_simulator::Rule::new(never).resource("deployments").writes();
        fleet.stage.simulator().faults().add(never);
        fleet.stage.create(&another("more")).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        fleet.stage.host.stop().await.unwrap();
        fleet.stage.simulator().faults().clear();
        let took = leads(&fleet, "two").await;
        assert!(took > Duration::from_secs(8), "{took:?}");
        assert!(took <= TAKEN_WITHIN, "{took:?}");
        converges(&fleet, "more").await;
    }

    /// The fence waits for the answer no longer than the Lease allows, so nothing runs any more when the leader stops.
    #[tokio::test(start_paused = true)]
    async fn a_leader_with_an_unanswered_write_lets_its_lease_expire() {
        for (stops_after, at_once) in [(Duration::from_secs(14), false), (Duration::from_secs(29), true)] {
            let (mut fleet, _second) = two_replicas().await;
            let never = Fault::LateAnswer(Duration::from_mins(5));
            let never = pilothouse_simulator::Rule::new(never).resource("deployments").writes();
            fleet.stage.simulator().faults().add(never.times(1));
            fleet.stage.create(&another("more")).await;
            tokio::time::sleep(stops_after).await;
            converges(&fleet, "more").await;
            fleet.stage.host.settled().await.unwrap();
            fleet.stage.host.stop().await.unwrap();
            let took = leads(&fleet, "two").await;
            if at_once {
                assert!(took <= HANDED_OVER_WITHIN, "{took:?}");
            } else {
                assert!(took > Duration::from_secs(8) && took <= TAKEN_WITHIN, "{took:?}");
            }
        }
    }

    /// Covers a write that is no reconcile.
    #[tokio::test(start_paused = true)]
    async fn a_leader_with_an_abandoned_status_lets_its_lease_expire() {
        let (mut fleet, _second) = two_replicas().await;
        let never = Fault::LateAnswer(Duration::from_mins(5));
        let never = pilothouse_simulator::Rule::new(never).resource("plugins").writes();
        fleet.stage.simulator().faults().add(never);
        // Its status counts the object.
        fleet.stage.create(&another("more")).await;
        tokio::time::sleep(Duration::from_secs(40)).await;
        fleet.stage.host.settled().await.unwrap();
        fleet.stage.host.stop().await.unwrap();
        fleet.stage.simulator().faults().clear();
        let took = leads(&fleet, "two").await;
        assert!(took > Duration::from_secs(8) && took <= TAKEN_WITHIN, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_writes_for_as_long_as_somebody_edited_the_lease() {
        let (fleet, _second) = two_replicas().await;
        let lease = leases(&fleet).await;
        let patch = Patch::Merge(json!({"spec": {"holderIdentity": "an administrator"}}));
        lease
            .patch("pilothouse", &PatchParams::default(), &patch)
            .await
            .unwrap();
        // The leader sees it at its next renewal.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let mark = fleet.stage.cluster.mark().unwrap();
        fleet.stage.create(&another("more")).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(writes(&fleet, mark), Vec::<String>::new());
        assert_eq!(holder(&fleet), "an administrator");
        converges(&fleet, "more").await;
        assert_ne!(holder(&fleet), "an administrator");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_of_other_software_is_left_alone() {
        let cluster = Cluster::simulated();
        let client = cluster.client().await.unwrap();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"namespace": "default", "name": "pilothouse"},
            "spec": {"holderIdentity": "theirs", "leaseDurationSeconds": 1},
        });
        pilothouse_end_to_end::stage::create(client, &lease).await;
        let mut host = replica("one");
        let folder = tempfile::tempdir().unwrap();
        host.start_by_resources(&cluster, folder.path().to_owned())
            .await
            .unwrap();
        let mark = cluster.mark().unwrap();
        tokio::time::sleep(Duration::from_mins(5)).await;
        let requests = cluster.requests_since(mark).unwrap();
        let writes: Vec<_> = requests
            .iter()
            .filter(|request| request.is_by_host() && request.is_write())
            .collect();
        assert!(writes.is_empty(), "{writes:?}");
        let log = host.log_tail();
        let is_about_it = |line: &&str| {
            ["cannot take or renew the Lease", "other software", "--lease"]
                .iter()
                .all(|words| line.contains(words))
        };
        // One line a minute.
        let said = log.lines().filter(is_about_it).count();
        assert!((1..=6).contains(&said), "{said}: {log}");
    }

    /// A replica on a cluster where some requests about Leases are refused.
    async fn replica_without(
        denied: impl Fn(&Asked) -> bool + Send + Sync + 'static,
    ) -> (Cluster, RuntimeHost, TempDir) {
        let cluster = Cluster::simulated();
        rights(&cluster)
            .deny(move |asked| asked.user_agent == HOST_ACCOUNT && asked.resource == "leases" && denied(asked));
        let mut host = replica("one");
        let folder = tempfile::tempdir().unwrap();
        host.start_by_resources(&cluster, folder.path().to_owned())
            .await
            .unwrap();
        (cluster, host, folder)
    }

    fn rights(cluster: &Cluster) -> &Rights {
        let Cluster::Simulated(simulated) = cluster else {
            unreachable!("these tests are simulated");
        };
        simulated.simulator().rights()
    }

    /// Waits until a replica says that it leads.
    async fn says_that_it_leads(host: &RuntimeHost, within: Duration) {
        let said = async {
            while !host.log_tail().contains("this replica leads") {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let said = tokio::time::timeout(within, said).await;
        assert!(said.is_ok(), "{}", host.log_tail());
    }

    /// The lines that say which right to its Lease a host lacks.
    fn lines_about(verb: &str, log: &str) -> usize {
        let words = [
            " WARN ",
            "lease=\"default/pilothouse\"",
            "cannot take or renew the Lease",
            &format!(
                "cannot {verb} resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"default\""
            ),
            "grant the host get, list, create and update on leases.coordination.k8s.io",
        ];
        log.lines()
            .filter(|line| words.iter().all(|words| line.contains(words)))
            .count()
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_right_to_its_lease_a_replica_writes_nothing() {
        for verb in ["get", "list", "create"] {
            let (cluster, mut host, _folder) = replica_without(move |asked| asked.verb == verb).await;
            let mark = cluster.mark().unwrap();
            tokio::time::sleep(Duration::from_mins(5)).await;
            let requests = cluster.requests_since(mark).unwrap();
            let asked = requests.iter().filter(|request| request.code == 403).count();
            assert!(asked > 60, "{verb}: it goes on trying: {asked}");
            let is_done = |request: &&Request| request.is_by_host() && request.is_write() && request.code != 403;
            let writes: Vec<_> = requests.iter().filter(is_done).collect();
            assert!(writes.is_empty(), "{verb}: {writes:?}");
            let said = lines_about(verb, &host.log_tail());
            assert!((5..=6).contains(&said), "{verb}: {said} lines: {}", host.log_tail());
            rights(&cluster).grant_all();
            says_that_it_leads(&host, HANDED_OVER_WITHIN).await;
            host.stop().await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_may_not_renew_its_lease_stops_until_it_may() {
        let fleet = Fleet::start_host_with(Cluster::simulated(), replica("one")).await;
        fleet.put("app-service", "it.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "it.wasm"}})).await;
        fleet.is_ready("it").await;
        let rights = fleet.stage.simulator().rights();
        rights
            .deny(|asked| asked.user_agent == HOST_ACCOUNT && (&*asked.verb, &*asked.resource) == ("update", "leases"));
        // It writes until it would have had to renew the Lease.
        tokio::time::sleep(LeaseTimes::default().renew_deadline).await;
        let mark = fleet.stage.cluster.mark().unwrap();
        fleet.stage.create(&another("web")).await;
        tokio::time::sleep(Duration::from_mins(3)).await;
        assert_eq!(writes(&fleet, mark), Vec::<String>::new());
        let log = fleet.stage.host.log_tail();
        assert!(log.contains("leads no longer"), "{log}");
        let said = lines_about("update", &log);
        assert!((3..=5).contains(&said), "{said} lines: {log}");
        rights.grant_all();
        converges(&fleet, "web").await;
    }

    /// Right of a host to its Lease by the rules in docs/rights.md.
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Rule {
        api_groups: Vec<String>,
        resources: Vec<String>,
        #[serde(default)]
        resource_names: Vec<String>,
        verbs: Vec<String>,
    }

    impl Rule {
        fn allows(&self, asked: &Asked) -> bool {
            let is_named = |name: &String| self.resource_names.contains(name);
            self.api_groups.contains(&asked.group)
                && self.resources.contains(&asked.resource)
                && self.verbs.contains(&asked.verb)
                && (self.resource_names.is_empty() || asked.name.as_ref().is_some_and(is_named))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_installation_guide_lists_exactly_the_rights_needed() {
        let guide = pilothouse_end_to_end::components::root().join("docs/rights.md");
        let guide = std::fs::read_to_string(guide).unwrap();
        let (_, section) = guide.split_once("\n### Replicas\n").unwrap();
        let (_, rules) = section.split_once("```yaml\n").unwrap();
        let (rules, _) = rules.split_once("```").unwrap();
        let rules: Vec<Rule> = serde_saphyr::from_str(rules).unwrap();
        let (cluster, mut host, _folder) =
            replica_without(move |asked| !rules.iter().any(|rule| rule.allows(asked))).await;
        let mark = cluster.mark().unwrap();
        says_that_it_leads(&host, Duration::from_mins(1)).await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        host.stop().await.unwrap();
        let requests = cluster.requests_since(mark).unwrap();
        let refused: Vec<_> = requests.iter().filter(|request| request.code == 403).collect();
        assert!(refused.is_empty(), "{refused:?}");
        let used: BTreeSet<&str> = requests
            .iter()
            .filter(|request| request.is_lease() && request.is_by_host())
            .map(|request| &*request.verb)
            .collect();
        assert!(used.contains("update"), "{used:?}");
    }

    /// A replica that serves webhooks.
    fn replica_with(identity: &str, webhooks: WebhookOptions) -> RuntimeHost {
        let mut host = replica(identity);
        host.serve(webhooks);
        host
    }

    /// The metrics of a host about replicas: whether it leads, and shards.
    fn of_replicas(host: &RuntimeHost) -> [Option<u64>; 3] {
        let scrape = Scrape(Metrics::default().print(&host.handle().unwrap().figures()));
        ["pilothouse_leader", "pilothouse_shards", "pilothouse_shards_held"].map(|name| scrape.count(name, &[]))
    }

    #[tokio::test(start_paused = true)]
    async fn a_standby_is_ready_when_it_is_warm_and_answers_reviews() {
        let first = webhooks("default", "webhooks").unwrap();
        let second = WebhookOptions {
            endpoint: first.endpoint.clone(),
            ..webhooks("default", "webhooks").unwrap()
        };
        let address = second.listen;
        let fleet = Fleet::start_host_with(Cluster::simulated(), replica_with("one", first)).await;
        fleet.put("gate", "gate.wasm", 0);
        fleet.plugin("gate", json!({"source": {"file": "gate.wasm"}})).await;
        fleet.is_ready("gate").await;
        let mut standby = replica_with("two", second);
        let path = fleet.path("");
        standby.start_by_resources(&fleet.stage.cluster, path).await.unwrap();
        let missing = || standby.handle().unwrap().missing_for_readiness();
        assert!(!missing().is_empty(), "it has listed nothing yet");
        fleet.until("the standby is ready", |_| missing().is_empty()).await;
        assert_eq!(of_replicas(&fleet.stage.host), [Some(1), None, None]);
        assert_eq!(of_replicas(&standby), [Some(0), None, None]);
        let secret = fleet.stage.find("Secret", "webhooks").unwrap();
        let bundle = STANDARD.decode(secret["data"]["ca.crt"].as_str().unwrap()).unwrap();
        let asker = Asker::new(address, &String::from_utf8(bundle).unwrap());
        // Time stands meanwhile for the hosts, and goes on for their servers.
        let judged = tokio::task::spawn_blocking(move || asker.is_served()).await;
        assert!(judged.is_ok(), "{}", standby.log_tail());
        assert_eq!(holder(&fleet), "one");
    }

    /// A standby without the component of the plugin that the leader runs.
    async fn standby_without_component(fleet: &Fleet, folder: &TempDir) -> RuntimeHost {
        let mut standby = replica("two");
        let started = standby.start_by_resources(&fleet.stage.cluster, folder.path().to_owned());
        started.await.unwrap();
        standby
    }

    #[tokio::test(start_paused = true)]
    async fn a_standby_is_not_ready_while_it_cannot_start_what_the_leader_runs() {
        let folder = tempfile::tempdir().unwrap();
        let fleet = Fleet::start_host_with(Cluster::simulated(), replica("one")).await;
        fleet.put("app-service", "it.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "it.wasm"}})).await;
        fleet.is_ready("it").await;
        let standby = standby_without_component(&fleet, &folder).await;
        let missing = || standby.handle().unwrap().missing_for_readiness().join("\n");
        let is_held = |missing: &str| missing.contains("another replica runs plugin it") && missing.contains("it.wasm");
        fleet
            .until("the standby says why it is not ready", |_| is_held(&missing()))
            .await;
        tokio::time::sleep(Duration::from_mins(30)).await;
        assert!(is_held(&missing()), "it is no matter of minutes: {}", missing());

        // A Plugin that nobody runs holds no rollout back.
        fleet.plugin("absent", json!({"source": {"file": "absent.wasm"}})).await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(!missing().contains("absent"), "{}", missing());

        std::fs::copy(fleet.path("it.wasm"), folder.path().join("it.wasm")).unwrap();
        fleet
            .until("the standby is ready with the component", |_| missing().is_empty())
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_that_leads_or_has_waited_for_an_hour_is_ready_without_a_plugin() {
        for has_leader in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let mut fleet = Fleet::start_host_with(Cluster::simulated(), replica("one")).await;
            fleet.put("app-service", "it.wasm", 0);
            fleet.plugin("it", json!({"source": {"file": "it.wasm"}})).await;
            fleet.is_ready("it").await;
            let standby = standby_without_component(&fleet, &folder).await;
            let missing = || standby.handle().unwrap().missing_for_readiness();
            fleet
                .until("the standby is not ready", |_| {
                    missing().join("").contains("another replica runs")
                })
                .await;
            if has_leader {
                tokio::time::sleep(Duration::from_hours(1)).await;
            } else {
                // Every replica is replaced at once.
                fleet.stage.host.stop().await.unwrap();
            }
            fleet.until("it is ready", |_| missing().is_empty()).await;
            assert_eq!(holder(&fleet), if has_leader { "one" } else { "two" });
        }
    }
}
