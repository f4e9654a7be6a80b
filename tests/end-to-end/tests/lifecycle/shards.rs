//! Active replicas: they divide the objects by namespace, and whatever happens to one of them, no object is lost and no write
//! is repeated.

mod simulated {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use k8s_openapi::api::coordination::v1::Lease;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::{DeleteParams, Patch, PatchParams};
    use pilothouse_cluster::fence::WriteFence;
    use pilothouse_core::lease::LeaseTimes;
    use pilothouse_core::shards::{HashRange, ShardPlan, hash_of};
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_end_to_end::stage::{app_service, unhurried};
    use pilothouse_runtime::{ElectionOptions, HostOptions};
    use pilothouse_testkit::cluster::{Cluster, Mark};
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};

    use crate::fleet::Fleet;

    const SHARDS: usize = 8;

    /// Reconciles of one replica at once.
    const WORKERS: usize = 4;

    /// A Lease's duration, three looks with jitter, and the time to reconcile.
    const TAKEN_WITHIN: Duration = Duration::from_secs(25);

    /// A replica that divides the work into so many shards, or that does all of it if it leads.
    fn replica(identity: &str, shards: Option<usize>) -> RuntimeHost {
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
            ..HostOptions::default()
        };
        RuntimeHost::new(options, unhurried())
    }

    /// Replicas on a simulated cluster. The first one is the fleet's.
    struct Replicas {
        fleet: Fleet,
        others: BTreeMap<&'static str, RuntimeHost>,
        objects: usize,
    }

    impl Replicas {
        /// The first one, with a plugin.
        async fn start() -> Self {
            Self::start_with(Some(SHARDS)).await
        }

        async fn start_with(shards: Option<usize>) -> Self {
            let fleet = Fleet::start_host_with(Cluster::simulated(), replica("one", shards)).await;
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
                objects: 0,
            }
        }

        async fn add(&mut self, identity: &'static str) {
            self.add_with(identity, Some(SHARDS)).await;
        }

        async fn add_with(&mut self, identity: &'static str, shards: Option<usize>) {
            let mut host = replica(identity, shards);
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
        replicas.until_shares(&[("one", 4), ("two", 4)]).await;
        replicas.wrote_once(mark, 120);
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
        let free = Patch::Merge(json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}));
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
}

mod real {
    use std::collections::BTreeMap;
    use std::time::{Duration, Instant};

    use k8s_openapi::api::coordination::v1::Lease;
    use kube::api::{DynamicObject, ListParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use kube::{Api, Client};
    use pilothouse_core::shards::{NamespaceLoads, first_plan};
    use pilothouse_end_to_end::program::{Folder, Process, component};
    use pilothouse_end_to_end::stage::{app_service, create};
    use pilothouse_testkit::cluster::{Cluster, Mark};
    use pilothouse_testkit::controlplane::Options;
    use rustix::process::Signal;
    use serde_json::json;

    use crate::fleet::plugin;

    const WITHIN: Duration = Duration::from_mins(5);

    const SHARDS: usize = 16;
    const NAMESPACES: usize = 100;

    /// Has the API server divide lists and watches.
    const GATE: &str = "--feature-gates=ShardedListAndWatch=true";

    /// Reconciles of one replica at once, each of which may have one write in flight.
    const WORKERS: usize = 8;

    struct Replicas {
        cluster: Cluster,
        client: Client,
        kubeconfig: String,
        folder: Folder,
        objects: usize,
    }

    impl Replicas {
        fn start(&self) -> Process {
            let (directory, workers, shards) = (self.folder.path(""), WORKERS.to_string(), SHARDS.to_string());
            let arguments = [
                ["run", "--install-crds"].as_slice(),
                &["--kubeconfig", &self.kubeconfig],
                &["--plugin-dir", &directory],
                &["--namespace", "default"],
                &["--workers", &workers],
                &["--leader-election", "--shards", &shards, "--lease-duration", "4"],
                &["--lease-renew-deadline", "3", "--lease-retry-period", "1"],
            ];
            Process::start(&arguments.concat())
        }

        /// How many shards each replica holds.
        async fn shares(&self) -> BTreeMap<String, usize> {
            let leases: Api<Lease> = Api::namespaced(self.client.clone(), "default");
            let mut shares = BTreeMap::new();
            for lease in leases.list(&ListParams::default()).await.unwrap() {
                let is_shard = lease
                    .metadata
                    .name
                    .is_some_and(|name| name.starts_with("pilothouse-shard-"));
                let holder = lease
                    .spec
                    .and_then(|spec| spec.holder_identity)
                    .filter(|holder| !holder.is_empty());
                if let Some(holder) = holder.filter(|_| is_shard) {
                    *shares.entry(holder).or_default() += 1;
                }
            }
            shares
        }

        async fn until(&self, processes: &[&Process], what: &str, mut holds: impl AsyncFnMut() -> bool) {
            let begun = Instant::now();
            while !holds().await {
                let logs: Vec<_> = processes.iter().map(|process| process.log()).collect();
                assert!(begun.elapsed() < WITHIN, "in vain: {what}\n{}", logs.join("\n---\n"));
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }

        /// Waits until so many replicas hold all shards, none of them too many or too few.
        async fn share(&self, processes: &[&Process], replicas: usize) {
            let what = format!("{replicas} replicas share all shards");
            self.until(processes, &what, async || {
                let shares = self.shares().await;
                // By load, so not all have as many.
                let is_fair = |held: &usize| (SHARDS / replicas / 2..=SHARDS / replicas * 2).contains(held);
                shares.values().sum::<usize>() == SHARDS && shares.len() == replicas && shares.values().all(is_fair)
            })
            .await;
        }

        async fn create_more(&mut self, count: usize) {
            for number in self.objects..self.objects + count {
                let mut object = app_service(&format!("app-{number}"));
                object["metadata"]["namespace"] = json!(tenant(number % NAMESPACES));
                object["spec"]["ports"] = json!([]);
                create(self.client.clone(), &object).await;
            }
            self.objects += count;
        }

        /// Waits until every object says that it is reconciled.
        async fn converge(&self, processes: &[&Process]) {
            let kind = GroupVersionKind::gvk("kosmos.io", "v1", "AppService");
            let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
            self.until(processes, "all objects converge", async || {
                let objects = all.list(&ListParams::default()).await.unwrap().items;
                let is_reconciled = |object: &&DynamicObject| {
                    let conditions = object.data["status"]["conditions"].as_array();
                    conditions
                        .into_iter()
                        .flatten()
                        .any(|condition| condition["type"] == "Reconciled" && condition["status"] == "True")
                };
                objects.iter().filter(is_reconciled).count() == self.objects
            })
            .await;
        }

        /// Checks that each Deployment that is new was created once, and that no more than so many requests were answered
        /// otherwise: the server logs no 201 where the client had gone before its answer.
        fn wrote_once(&self, mark: Mark, new: usize, in_flight: usize) {
            let mut codes = BTreeMap::<String, Vec<u16>>::new();
            for request in self.cluster.requests_since(mark).unwrap() {
                if request.is_by_host() && request.is_write() && request.resource == "deployments" {
                    codes.entry(request.name).or_default().push(request.code);
                }
            }
            assert_eq!(codes.len(), new, "none is lost");
            codes.retain(|_, codes| *codes != [201]);
            let others: usize = codes.values().map(Vec::len).sum();
            let is_made_twice = |codes: &Vec<u16>| codes.iter().filter(|code| **code == 201).count() > 1;
            assert!(!codes.values().any(is_made_twice), "none is made twice: {codes:?}");
            assert!(
                others <= 2 * in_flight,
                "only what was in flight is repeated: {codes:?}"
            );
            println!("answered otherwise than by 201: {codes:?}");
        }
    }

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
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "it", "namespace": tenant(number)}});
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

    /// One replica becomes four, of which one is stopped and goes on later, one is killed, and one ends in order, while
    /// objects come.
    async fn story(step: usize, apiserver_arguments: Vec<String>) {
        let options = Options {
            apiserver_arguments,
            ..Options::default()
        };
        let cluster = Cluster::real_with(options).await.unwrap();
        let mut replicas = Replicas {
            client: cluster.client().await.unwrap(),
            kubeconfig: cluster.host_kubeconfig().unwrap().display().to_string(),
            cluster,
            folder: Folder::new(),
            objects: 0,
        };
        for number in 0..NAMESPACES {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant(number)}});
            create(replicas.client.clone(), &namespace).await;
        }
        std::fs::copy(component("app-service"), replicas.folder.path("it.wasm")).unwrap();
        let mut one = replicas.start();
        one.says(&["installed the CRD", "plugins.pilothouse.dev"]).await;
        let it = plugin("it", json!({"source": {"file": "it.wasm"}}));
        create(replicas.client.clone(), &it).await;
        one.says(&["plugin ready", "it/app-service"]).await;
        replicas.share(&[&one], 1).await;
        let mark = replicas.cluster.mark().unwrap();
        replicas.create_more(10 * step).await;

        // Others come while there is work.
        let mut others: Vec<Process> = (0..3).map(|_| replicas.start()).collect();
        replicas.create_more(10 * step).await;
        let all = [&one, &others[0], &others[1], &others[2]];
        replicas.converge(&all).await;
        replicas.share(&all, 4).await;
        replicas.wrote_once(mark, 20 * step, 0);

        // One is stopped, in the middle of its work, and goes on later: what it still believes does no harm.
        let mark = replicas.cluster.mark().unwrap();
        replicas.create_more(2 * step).await;
        others[0].signal(Signal::STOP);
        replicas.create_more(8 * step).await;
        let begun = Instant::now();
        let processes = [&one, &others[1], &others[2]];
        replicas.converge(&processes).await;
        println!("all converged {:?} after a replica was stopped", begun.elapsed());
        others[0].signal(Signal::CONT);
        others[0].says(&["lost shards"]).await;
        let all = [&one, &others[0], &others[1], &others[2]];
        replicas.share(&all, 4).await;
        replicas.wrote_once(mark, 10 * step, WORKERS);

        // One is killed.
        let mark = replicas.cluster.mark().unwrap();
        replicas.create_more(step).await;
        others[1].signal(Signal::KILL);
        let begun = Instant::now();
        replicas.create_more(4 * step).await;
        let processes = [&one, &others[0], &others[2]];
        replicas.converge(&processes).await;
        println!("all converged {:?} after a replica was killed", begun.elapsed());
        replicas.wrote_once(mark, 5 * step, WORKERS);

        // One ends in order: nothing is repeated, not even what was in flight.
        let mark = replicas.cluster.mark().unwrap();
        replicas.create_more(step).await;
        others[2].signal(Signal::TERM);
        assert!(others[2].ended().await.success());
        let begun = Instant::now();
        replicas.create_more(4 * step).await;
        let processes = [&one, &others[0]];
        replicas.converge(&processes).await;
        println!("all converged {:?} after a replica ended", begun.elapsed());
        replicas.share(&processes, 2).await;
        replicas.wrote_once(mark, 5 * step, 0);
        assert_eq!(replicas.objects, 40 * step);
        one.signal(Signal::TERM);
        assert!(one.ended().await.success());
        others[0].signal(Signal::TERM);
        assert!(others[0].ended().await.success());
    }
    #[tokio::test(flavor = "multi_thread")]
    async fn four_replicas_share_2000_objects_and_whatever_happens_none_is_lost_or_made_twice() {
        story(50, vec![GATE.to_owned()]).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_same_holds_on_a_server_that_does_not_divide_lists() {
        story(10, Vec::new()).await;
    }
}
