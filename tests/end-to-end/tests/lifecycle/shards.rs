//! Active replicas: they divide the objects by namespace, and whatever happens to one of them, no object is lost and no write
//! is repeated.

mod real;

mod simulated {
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::coordination::v1::Lease;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_cluster::fence::WriteFence;
    use pilothouse_core::lease::LeaseTimes;
    use pilothouse_core::shards::{HashRange, ShardPlan, hash_of};
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_end_to_end::scrape::Scrape;
    use pilothouse_end_to_end::stage::{app_service, unhurried};
    use pilothouse_metrics::Metrics;
    use pilothouse_runtime::{ElectionOptions, HostOptions};
    use pilothouse_simulator::{Fault, Rule};
    use pilothouse_testkit::cluster::{Cluster, Mark};
    use pilothouse_testkit::host::SteeredHost as _;
    use pilothouse_testkit::requests::{HOST_ACCOUNT, Request};
    use serde_json::{Value, json};

    use crate::fleet::Fleet;

    const SHARDS: usize = 8;

    /// Reconciles of one replica at once.
    const WORKERS: usize = 4;

    /// After so long others have the shards of a replica that has ended in order: a look, and the time of its requests.
    const GIVEN_WITHIN: Duration = Duration::from_secs(3);

    /// How long the answer to a request about Leases takes on an API server that is busy.
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
                let mut object = app_service(&format!("app-{number}"));
                object["metadata"]["namespace"] = json!(tenant(number % 20));
                object["spec"]["ports"] = json!([]);
                self.fleet.stage.create(&object).await;
            }
            self.objects += 40;
        }

        async fn converge(&self) {
            let what = format!("{} objects converge", self.objects);
            let is_reconciled = |object: &&Value| {
                let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
                conditions
                    .into_iter()
                    .any(|condition| condition["type"] == "Reconciled" && condition["status"] == "True")
            };
            self.fleet
                .until(&what, |stage| {
                    let done = stage.all("AppService").iter().filter(is_reconciled).count();
                    done == self.objects && stage.all("Deployment").len() == self.objects
                })
                .await;
        }

        /// How many shards each replica holds.
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

        /// How many replicas have Leases of their own.
        fn replica_leases(&self) -> usize {
            let leases = self.fleet.stage.all("Lease");
            let names = leases.iter().filter_map(|lease| lease["metadata"]["name"].as_str());
            names.filter(|name| name.starts_with("pilothouse-replica-")).count()
        }

        fn host(&self, identity: &str) -> &RuntimeHost {
            self.others.get(identity).unwrap_or(&self.fleet.stage.host)
        }

        /// What a replica's metrics are.
        fn scrape(&self, identity: &str) -> Scrape {
            let figures = self.host(identity).handle().unwrap().figures();
            Scrape(self.metrics[identity].print(&figures))
        }

        /// How often each of these replicas has reconciled an object of a plugin.
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

        /// What hosts wrote since then, but for Leases, the plan and the status of Plugins.
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

        fn plan(&self) -> Option<ShardPlan> {
            let plan = self.fleet.stage.find("ConfigMap", "pilothouse-shards")?;
            ShardPlan::parse(plan["data"]["plan.json"].as_str()?).ok()
        }

        /// Somebody writes a plan with which all namespaces are in one shard.
        async fn move_all_to_the_first_shard(&self) -> ShardPlan {
            let mut plan = self.plan().unwrap();
            plan.version += 1;
            plan.shards
                .iter_mut()
                .for_each(|shard| shard.ranges = Vec::new().into());
            plan.shards[0].ranges = [HashRange::ALL].into_iter().collect();
            let maps: Api<ConfigMap> = Api::namespaced(self.fleet.client().await, "default");
            let text = Patch::Merge(json!({"data": {"plan.json": plan.print()}}));
            maps.patch("pilothouse-shards", &PatchParams::default(), &text)
                .await
                .unwrap();
            plan
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

    fn tenant(number: usize) -> String {
        format!("tenant-{number:02}")
    }

    #[tokio::test(start_paused = true)]
    async fn replicas_that_come_and_go_share_the_work_and_repeat_nothing() {
        let mut replicas = Replicas::start().await;
        replicas.until_shares(&[("one", 8)]).await;
        let mark = replicas.fleet.stage.mark();
        replicas.create_more().await;
        replicas.converge().await;
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
        replicas.create_more().await;
        replicas.converge().await;
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

    /// Whenever it ends, also in the middle of renewing its Leases, and while replicas agree on another plan.
    #[tokio::test(start_paused = true)]
    async fn the_shards_of_a_replica_that_ends_in_order_have_another_one_soon() {
        let mut replicas = Replicas::start().await;
        replicas.until_shares(&[("one", 8)]).await;
        let maps: Api<ConfigMap> = Api::namespaced(replicas.fleet.client().await, "default");
        let late = Rule::new(Fault::LateAnswer(LATE)).resource("leases");
        replicas.fleet.stage.simulator().faults().add(late);
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

    /// How many objects of each kind a replica caches.
    fn cached(host: &RuntimeHost) -> BTreeMap<String, u64> {
        let kinds = host.handle().unwrap().figures().kinds.into_iter();
        kinds.map(|figures| (figures.kind, figures.objects)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn each_replica_caches_what_it_works_at_and_the_status_counts_all() {
        let mut replicas = Replicas::start().await;
        for identity in ["two", "three", "four"] {
            replicas.add(identity).await;
        }
        replicas.create_more().await;
        replicas.create_more().await;
        replicas.converge().await;
        tokio::time::sleep(Duration::from_mins(5)).await;
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
    async fn a_replica_that_is_cut_off_loses_its_shards_and_gets_others_when_it_is_back() {
        let mut replicas = Replicas::start().await;
        replicas.add("two").await;
        replicas.until_shares(&[("one", 4), ("two", 4)]).await;
        replicas.create_more().await;
        replicas.converge().await;
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
        replicas.create_more().await;
        replicas.converge().await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        replicas.wrote_once(mark, 80);
        assert_eq!(replicas.others["two"].handle().unwrap().stuck(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_that_gets_a_shard_back_sees_first_what_another_made_meanwhile() {
        let mut replicas = Replicas::start().await;
        replicas.create_more().await;
        replicas.converge().await;
        replicas.add("two").await;
        replicas.until_shares(&[("one", 4), ("two", 4)]).await;
        tokio::time::sleep(Duration::from_mins(2)).await;
        let before = replicas.shards_of("two");
        let mark = replicas.fleet.stage.mark();
        replicas.others["two"].cut_off(true);
        replicas.fleet.stage.simulator().cut_every_watch();
        replicas.until_shares(&[("one", 8)]).await;
        replicas.create_more().await;
        replicas.converge().await;
        // Its watches come back one after another: that of the primaries before that of their children.
        let broken = Rule::new(Fault::Refuse)
            .resource("deployments")
            .verbs(&["list", "watch"]);
        let faults = replicas.fleet.stage.simulator().faults();
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
        replicas.create_more().await;
        replicas.converge().await;
        replicas.wrote_once(mark, 80);
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_differ_little_are_divided_evenly_once_there_are_objects() {
        let mut replicas = Replicas::start().await;
        replicas.add("two").await;
        replicas.until_shares(&[("one", 4), ("two", 4)]).await;
        let mark = replicas.fleet.stage.mark();
        replicas.create_more().await;
        replicas.converge().await;
        let most = |plan: &ShardPlan| {
            let of = |ranges: &pilothouse_core::shards::HashRanges| {
                (0..20)
                    .filter(|number| ranges.contains(hash_of(&tenant(*number))))
                    .count()
            };
            plan.shards.iter().map(|shard| of(&shard.ranges)).max().unwrap()
        };
        assert!(most(&replicas.plan().unwrap()) > 5, "equal ranges do");
        // At most a fifth of the namespaces is in one of eight shards.
        let is_even = |_: &_| replicas.plan().is_some_and(|plan| most(&plan) <= 4);
        replicas.fleet.until("the plan is cut by load", is_even).await;
        replicas.until_shares(&[("one", 4), ("two", 4)]).await;
        replicas.create_more().await;
        replicas.converge().await;
        tokio::time::sleep(Duration::from_mins(2)).await;
        replicas.wrote_once(mark, 80);
    }

    #[tokio::test(start_paused = true)]
    async fn leases_and_plans_that_somebody_changes_cost_time_and_no_write() {
        let mut replicas = Replicas::start().await;
        replicas.add("two").await;
        replicas.until_shares(&[("one", 4), ("two", 4)]).await;
        let mark = replicas.fleet.stage.mark();
        replicas.create_more().await;
        replicas.converge().await;
        tokio::time::sleep(Duration::from_mins(2)).await;
        let client = replicas.fleet.client().await;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        let leases: Api<Lease> = Api::namespaced(client, "default");
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
        let whole = [HashRange::ALL].into_iter().collect();
        old.shards
            .iter_mut()
            .for_each(|shard| shard.ranges = std::mem::take(&mut Vec::new()).into());
        old.shards[0].ranges = whole;
        maps.patch("pilothouse-shards", &spoil, &plan(&old.print()))
            .await
            .unwrap();
        replicas
            .fleet
            .until("the plan is set forward", |_| newer(version + 2))
            .await;
        assert!(replicas.plan().unwrap().shards[1].ranges.iter().next().is_some());
        replicas.create_more().await;
        replicas.converge().await;

        leases
            .delete("pilothouse-shard-0", &DeleteParams::default())
            .await
            .unwrap();
        let thief = Patch::Merge(json!({"spec": {"holderIdentity": "an administrator", "leaseDurationSeconds": 15}}));
        leases.patch("pilothouse-shard-1", &spoil, &thief).await.unwrap();
        let replica = format!("pilothouse-replica-{:016x}", hash_of("two"));
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

    #[tokio::test(start_paused = true)]
    async fn a_replica_with_another_number_of_shards_stands_by_until_the_others_are_gone() {
        let mut replicas = Replicas::start().await;
        replicas.until_shares(&[("one", 8)]).await;
        replicas.add_with("other", Some(4)).await;
        replicas.create_more().await;
        replicas.converge().await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        replicas.until_shares(&[("one", 8)]).await;
        let log = replicas.others["other"].log_tail();
        let says = ["pilothouse-shards has 8 shards", "--shards 4", "same number"];
        assert!(says.iter().all(|words| log.contains(words)), "{log}");
        let mark = replicas.fleet.stage.mark();
        replicas.fleet.stage.host.stop().await.unwrap();
        replicas.create_more().await;
        replicas.converge().await;
        replicas.until_shares(&[("other", 4)]).await;
        replicas.wrote_once(mark, 40);
        assert_eq!(replicas.plan().unwrap().shards.len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn replicas_with_and_without_shards_never_write_side_by_side() {
        let mut replicas = Replicas::start().await;
        replicas.until_shares(&[("one", 8)]).await;
        replicas.add_with("whole", None).await;
        let mark = replicas.fleet.stage.mark();
        replicas.create_more().await;
        replicas.converge().await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        // The Lease of the leader is free for a moment.
        let leases: Api<Lease> = Api::namespaced(replicas.fleet.client().await, "default");
        let now = "2026-01-02T03:04:05.000000Z";
        let free = json!({"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now});
        let free = Patch::Merge(json!({"spec": free}));
        leases
            .patch("pilothouse", &PatchParams::default(), &free)
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_mins(1)).await;
        replicas.until_shares(&[("one", 8)]).await;
        replicas.fleet.stage.host.stop().await.unwrap();
        replicas.create_more().await;
        replicas.converge().await;
        replicas.wrote_once(mark, 80);

        // And the other way round.
        let mark = replicas.fleet.stage.mark();
        replicas.add("divided").await;
        replicas.create_more().await;
        replicas.converge().await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(replicas.shares(), BTreeMap::new());
        let log = replicas.others["divided"].log_tail();
        assert!(
            log.contains("a replica that was started without --shards leads"),
            "{log}"
        );
        replicas.others.get_mut("whole").unwrap().stop().await.unwrap();
        replicas.until_shares(&[("divided", 8)]).await;
        replicas.create_more().await;
        replicas.converge().await;
        replicas.wrote_once(mark, 80);
    }

    /// Whatever happens in whatever order, all objects converge when it is over, and what is written twice was in flight.
    #[tokio::test(start_paused = true)]
    async fn any_order_of_trouble_loses_nothing_and_repeats_what_was_in_flight() {
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

    #[tokio::test(start_paused = true)]
    async fn a_plugin_that_is_deleted_is_cleaned_up_by_all_replicas() {
        let mut replicas = Replicas::start().await;
        replicas.add("two").await;
        replicas.until_shares(&[("one", 4), ("two", 4)]).await;
        replicas.create_more().await;
        replicas.converge().await;
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

    #[tokio::test(start_paused = true)]
    async fn shards_move_one_at_a_time_to_a_replica_that_comes() {
        let mut replicas = Replicas::start().await;
        replicas.create_more().await;
        replicas.converge().await;
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

    /// Somebody removes the label of Leases by which replicas find them, or other software has a Lease of that name.
    #[tokio::test(start_paused = true)]
    async fn a_lease_without_its_label_gets_it_again_from_its_holder_and_is_reported_by_others() {
        let mut replicas = Replicas::start().await;
        replicas.add("two").await;
        replicas.until_shares(&[("one", 4), ("two", 4)]).await;
        let leases: Api<Lease> = Api::namespaced(replicas.fleet.client().await, "default");
        let bare = Patch::Merge(json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}}));
        let own = format!("pilothouse-replica-{:016x}", hash_of("two"));
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
    async fn several_leases_of_other_software_are_reported_together_once_a_minute() {
        let replicas = Replicas::start().await;
        replicas.until_shares(&[("one", 8)]).await;
        replicas.fleet.stage.host.cut_off(true);
        tokio::time::sleep(Duration::from_secs(11)).await;
        let leases: Api<Lease> = Api::namespaced(replicas.fleet.client().await, "default");
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
            replicas.fleet.stage.simulator().faults().add(slow);
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

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_counts_objects_for_longer_than_a_lease_lasts_keeps_its_shards() {
        let mut replicas = Replicas::start().await;
        replicas.add("two").await;
        replicas.until_shares(&[("one", 4), ("two", 4)]).await;
        let is_count = |asked: &pilothouse_simulator::Asked| asked.verb == "list" && asked.resource == "appservices";
        let slow = Rule::new(Fault::Delay(Duration::from_secs(20))).when(is_count);
        let before = replicas.plan().unwrap().version;
        replicas.create_more().await;
        replicas.converge().await;
        replicas.fleet.stage.simulator().faults().add(slow);
        let is_cut = |_: &_| replicas.plan().is_some_and(|plan| plan.version > before);
        replicas.fleet.until("the plan is cut by load", is_cut).await;
        for identity in ["one", "two"] {
            let log = replicas.host(identity).log_tail();
            assert!(!log.contains("lost shards"), "{identity}: {log}");
        }
        replicas.until_shares(&[("one", 4), ("two", 4)]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_works_by_another_plan_when_what_it_changes_has_ended() {
        let mut replicas = Replicas::start().await;
        replicas.until_shares(&[("one", 8)]).await;
        replicas.create_more().await;
        replicas.converge().await;
        tokio::time::sleep(Duration::from_mins(5)).await;
        // Somebody moves all namespaces to the first shard while writes are on their way.
        let takes = Duration::from_secs(9);
        let late = Rule::new(Fault::LateAnswer(takes)).resource("deployments").writes();
        replicas.fleet.stage.simulator().faults().add(late);
        replicas.create_more().await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let begun = tokio::time::Instant::now();
        let plan = replicas.move_all_to_the_first_shard().await;
        replicas.works_by(&plan).await;
        let took = begun.elapsed();
        assert!(
            took + Duration::from_secs(1) > takes,
            "it waits for the writes: {took:?}"
        );
        replicas.fleet.stage.simulator().faults().clear();
        replicas.converge().await;
    }

    /// A reconcile that asks who has changed an object, and waits for the answer before it writes.
    #[tokio::test(start_paused = true)]
    async fn a_plan_waits_no_longer_for_a_reconcile_than_a_lease_lasts() {
        let mut replicas = Replicas::start().await;
        replicas.until_shares(&[("one", 8)]).await;
        replicas.create_more().await;
        replicas.converge().await;
        tokio::time::sleep(Duration::from_mins(5)).await;
        let takes = Duration::from_secs(25);
        let late = Rule::new(Fault::Delay(takes)).resource("deployments").verbs(&["get"]);
        let late = late.when(|asked| asked.user_agent == HOST_ACCOUNT).times(1);
        replicas.fleet.stage.simulator().faults().add(late);
        let deployments: Api<Deployment> = Api::namespaced(replicas.fleet.client().await, &tenant(3));
        let drift = Patch::Merge(json!({"spec": {"replicas": 7}}));
        deployments
            .patch("app-3", &PatchParams::default(), &drift)
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        let mark = replicas.fleet.stage.mark();
        let begun = tokio::time::Instant::now();
        let plan = replicas.move_all_to_the_first_shard().await;
        replicas.works_by(&plan).await;
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs(15), "it waits: {took:?}");
        assert!(took < Duration::from_secs(18), "not for as long: {took:?}");
        assert_eq!(replicas.writes(mark), Vec::<String>::new());
        replicas.until_shares(&[("one", 8)]).await;
        let is_reverted = |_: &_| {
            let deployments = replicas.fleet.stage.all("Deployment");
            deployments.iter().all(|deployment| deployment["spec"]["replicas"] == 1)
        };
        replicas.fleet.until("the object is as it is to be", is_reverted).await;
    }

    /// The replica works by another plan only when a write in what it gives away is settled that nobody waits for any more.
    #[tokio::test(start_paused = true)]
    async fn a_plan_waits_until_unanswered_writes_are_settled() {
        let mut replicas = Replicas::start().await;
        replicas.until_shares(&[("one", 8)]).await;
        replicas.create_more().await;
        replicas.converge().await;
        tokio::time::sleep(Duration::from_mins(5)).await;
        let never = Rule::new(Fault::LateAnswer(Duration::from_mins(5)));
        let never = never.resource("deployments").writes().times(1);
        replicas.fleet.stage.simulator().faults().add(never);
        let begun = tokio::time::Instant::now();
        replicas.create_more().await;
        tokio::time::sleep(Duration::from_secs(14)).await;
        replicas.converge().await;
        let plan = replicas.move_all_to_the_first_shard().await;
        replicas.works_by(&plan).await;
        // The fence waits for 10 s at least, and the Lease lasts for 15 s after that.
        let took = begun.elapsed();
        assert!(took > Duration::from_secs(25), "{took:?}");
        assert!(took < Duration::from_secs(30), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_shard_in_which_a_write_was_not_answered_moves_when_that_is_settled() {
        let mut replicas = Replicas::start_with(Some(3)).await;
        replicas.until_shares(&[("one", 3)]).await;
        // The plan is cut by load.
        replicas.create_more().await;
        replicas.converge().await;
        tokio::time::sleep(Duration::from_mins(5)).await;
        let plan = replicas.plan().unwrap();
        let in_shard = |shard: usize| {
            let ranges = &plan.shards[shard].ranges;
            (0..20).map(tenant).find(|name| ranges.contains(hash_of(name))).unwrap()
        };
        // One in each, so it does not matter which of the shards move.
        let namespaces = [0, 1, 2].map(in_shard);
        let never = Rule::new(Fault::LateAnswer(Duration::from_mins(5)));
        let never = never.resource("deployments").writes().times(3);
        replicas.fleet.stage.simulator().faults().add(never);
        let begun = tokio::time::Instant::now();
        for namespace in namespaces {
            let mut object = app_service("late");
            object["metadata"]["namespace"] = json!(namespace);
            object["spec"]["ports"] = json!([]);
            replicas.fleet.stage.create(&object).await;
            replicas.objects += 1;
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

    /// A new replica would take the Lease that names the last one for that of one without --shards.
    #[tokio::test(start_paused = true)]
    async fn the_last_replica_keeps_its_lease_if_it_leaves_that_of_the_leader_to_end() {
        for is_answered in [true, false] {
            let mut replicas = Replicas::start().await;
            replicas.until_shares(&[("one", 8)]).await;
            if !is_answered {
                let never = Rule::new(Fault::LateAnswer(Duration::from_mins(5)));
                let never = never.resource("plugins").writes();
                replicas.fleet.stage.simulator().faults().add(never);
            }
            // The status of the Plugin counts them.
            replicas.create_more().await;
            tokio::time::sleep(Duration::from_secs(40)).await;
            replicas.fleet.stage.host.stop().await.unwrap();
            replicas.fleet.stage.simulator().faults().clear();
            assert_eq!(replicas.replica_leases(), usize::from(!is_answered));
            replicas.add("two").await;
            replicas.until_shares(&[("two", 8)]).await;
            let log = replicas.host("two").log_tail();
            assert!(!log.contains("was started without --shards"), "{log}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn shards_in_which_writes_were_abandoned_are_taken_when_their_leases_end() {
        let mut replicas = Replicas::start().await;
        replicas.create_more().await;
        replicas.converge().await;
        replicas.add("two").await;
        replicas.until_shares(&[("one", 4), ("two", 4)]).await;
        tokio::time::sleep(Duration::from_mins(2)).await;
        let of_one = replicas.shards_of("one");
        let never = Rule::new(Fault::LateAnswer(Duration::from_mins(5)))
            .resource("deployments")
            .writes();
        replicas.fleet.stage.simulator().faults().add(never);
        replicas.create_more().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        replicas.fleet.stage.host.stop().await.unwrap();
        let begun = tokio::time::Instant::now();
        replicas.fleet.stage.simulator().faults().clear();
        tokio::time::sleep(Duration::from_secs(4)).await;
        // Four reconciles run at once, so at most four shards have something in flight.
        let kept = of_one.intersection(&replicas.shards_of("one")).count();
        assert!((1..=4).contains(&kept), "{kept} of {of_one:?}");
        replicas.until_shares(&[("two", 8)]).await;
        let took = begun.elapsed();
        assert!(took > Duration::from_secs(8), "{took:?}");
        assert!(took <= TAKEN_WITHIN, "{took:?}");
    }

    /// A namespace of a shard whose Lease was left to end comes into a shard that is free.
    #[tokio::test(start_paused = true)]
    async fn a_plan_waits_for_leases_that_a_replica_has_left_to_end() {
        let mut replicas = Replicas::start().await;
        replicas.create_more().await;
        replicas.converge().await;
        replicas.add("two").await;
        replicas.until_shares(&[("one", 4), ("two", 4)]).await;
        tokio::time::sleep(Duration::from_mins(2)).await;
        let plan = replicas.plan().unwrap();
        let is_ones = |shard: &usize| replicas.shards_of("one").contains(&format!("pilothouse-shard-{shard}"));
        let left = (1..SHARDS).find(is_ones).unwrap();
        let ranges = &plan.shards[left].ranges;
        let namespace = (0..20).map(tenant).find(|name| ranges.contains(hash_of(name))).unwrap();
        let never = Rule::new(Fault::LateAnswer(Duration::from_mins(5)));
        let never = never.resource("deployments").writes();
        replicas.fleet.stage.simulator().faults().add(never);
        let mut object = app_service("late");
        object["metadata"]["namespace"] = json!(namespace);
        object["spec"]["ports"] = json!([]);
        replicas.fleet.stage.create(&object).await;
        replicas.objects += 1;
        tokio::time::sleep(Duration::from_secs(1)).await;
        replicas.fleet.stage.host.stop().await.unwrap();
        let begun = tokio::time::Instant::now();
        replicas.fleet.stage.simulator().faults().clear();
        replicas.until_shares(&[("one", 1), ("two", 7)]).await;
        assert!(replicas.shards_of("two").contains("pilothouse-shard-0"));
        replicas.move_all_to_the_first_shard().await;
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(replicas.shards_of("two").len(), 0);
        replicas.until_shares(&[("two", 8)]).await;
        let took = begun.elapsed();
        assert!(took > Duration::from_secs(8), "{took:?}");
        assert!(took <= TAKEN_WITHIN, "{took:?}");
        replicas.converge().await;
    }

    #[tokio::test(start_paused = true)]
    async fn shares_follow_the_loads_that_shards_have_by_now() {
        let mut replicas = Replicas::start().await;
        replicas.add("two").await;
        replicas.until_shares(&[("one", 4), ("two", 4)]).await;
        replicas.create_more().await;
        replicas.converge().await;
        tokio::time::sleep(Duration::from_mins(5)).await;
        let plan = replicas.plan().unwrap();
        // In the namespaces of one replica's shards there come to be three times as many objects.
        let busy: Vec<usize> = replicas
            .shards_of("two")
            .iter()
            .filter_map(|name| name.rsplit('-').next()?.parse().ok())
            .collect();
        let is_busy = |number: &usize| {
            let hash = hash_of(&tenant(*number));
            busy.iter().any(|shard| plan.shards[*shard].ranges.contains(hash))
        };
        let mut objects = 0;
        for number in (0..20).filter(is_busy) {
            for more in 0..4 {
                let mut object = app_service(&format!("more-{number}-{more}"));
                object["metadata"]["namespace"] = json!(tenant(number));
                object["spec"]["ports"] = json!([]);
                replicas.fleet.stage.create(&object).await;
                objects += 1;
            }
        }
        replicas.objects += objects;
        replicas.converge().await;
        let is_known = |_: &_| {
            replicas.plan().is_some_and(|now| {
                let ranges =
                    |plan: &ShardPlan| plan.shards.iter().map(|shard| shard.ranges.clone()).collect::<Vec<_>>();
                now.version > plan.version && ranges(&now) == ranges(&plan)
            })
        };
        replicas.fleet.until("the plan has the loads of now", is_known).await;
        let is_moved =
            |_: &_| replicas.shards_of("two").len() < 4 && replicas.shares().values().sum::<usize>() == SHARDS;
        replicas
            .fleet
            .until("the busy replica gives shards away", is_moved)
            .await;
    }

    const NOT_DIVIDED: [&str; 2] = ["ecs", "stream"];

    impl Replicas {
        /// Plugins whose work is not divided: one with cluster-scoped primaries, one that contributes to one target from many
        /// namespaces.
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
            let is_reconciled = |object: &&Value| {
                let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
                conditions
                    .into_iter()
                    .any(|condition| condition["type"] == "Reconciled" && condition["status"] == "True")
            };
            self.fleet
                .until("what is not divided converges", |stage| {
                    let count = |kind: &str| stage.all(kind).iter().filter(is_reconciled).count();
                    (count("EcsBinding"), count("StreamIngress")) == (from + 10, from + 10)
                })
                .await;
            tokio::time::sleep(Duration::from_mins(1)).await;
            let target = self.fleet.stage.find("ConfigMap", "tcp-services").unwrap();
            assert_eq!(target["data"].as_object().unwrap().len(), from + 10, "{target}");
        }

        /// What hosts wrote to bindings, and to the target of streams.
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
    async fn what_is_not_divided_is_the_work_of_one_replica_and_of_another_when_that_has_gone() {
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
}
