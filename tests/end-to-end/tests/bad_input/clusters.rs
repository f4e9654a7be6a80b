//! The program against clusters that are not there, not yet, or slow; and how signals end it. A process of its own, and the
//! simulated cluster over HTTP.

mod simulated {
    use std::net::{Ipv4Addr, SocketAddr, TcpListener};
    use std::time::{Duration, Instant};

    use pilothouse_simulator::{Fault, Options, Rule, Serving, Simulator};
    use rustix::process::Signal;
    use serde_json::Value;

    use crate::program::{Folder, Process, component};
    use crate::stage::{app_service, create};

    /// An address where nobody listens.
    fn free_address() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.local_addr().unwrap()
    }

    fn find(simulator: &Simulator, kind: &str, name: &str) -> Option<Value> {
        simulator
            .objects()
            .into_iter()
            .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
    }

    fn is_reconciled(simulator: &Simulator, name: &str) -> bool {
        let object = find(simulator, "AppService", name);
        let conditions = object
            .as_ref()
            .and_then(|object| object["status"]["conditions"].as_array());
        conditions
            .into_iter()
            .flatten()
            .any(|it| it["type"] == "Reconciled" && it["status"] == "True")
    }

    async fn create_app_service(simulator: &Simulator, name: &str) {
        create(kube::Client::new(simulator.service(), "default"), &app_service(name)).await;
    }

    /// A simulated cluster that is served over HTTP, and how to reach it.
    struct Served {
        simulator: Simulator,
        serving: Serving,
        kubeconfig: String,
        folder: Folder,
    }

    impl Served {
        async fn start() -> Self {
            let folder = Folder::new();
            let simulator = Simulator::new(Options::default());
            let serving = simulator.serve((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
            let kubeconfig = folder.kubeconfig(&serving.url(), "there");
            Self {
                simulator,
                serving,
                kubeconfig,
                folder,
            }
        }

        /// A host with app-service whose lanes are open.
        async fn host(&self, more: &[&str]) -> Process {
            let mut process = start_host(&self.kubeconfig, more);
            process
                .says(&[
                    "INFO",
                    "plugin ready: all kinds of the controller are served and listed",
                ])
                .await;
            process
        }
    }

    fn start_host(kubeconfig: &str, more: &[&str]) -> Process {
        let plugin = component("app-service");
        let run = ["run", "--plugin", &plugin, "--kubeconfig", kubeconfig, "--install-crds"];
        Process::start(&[&run, more].concat())
    }

    /// Makes an AppService and waits until the host has reconciled it.
    async fn is_steered(process: &mut Process, simulator: &Simulator) {
        create_app_service(simulator, "web").await;
        process
            .until("it is reconciled", |_| is_reconciled(simulator, "web").then_some(()))
            .await;
    }

    /// Count of such requests to the simulated cluster.
    fn asked(simulator: &Simulator, verb: &str, resource: &str) -> usize {
        let requests = simulator.requests().all();
        requests
            .iter()
            .filter(|it| it.verb == verb && it.resource == resource)
            .count()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_late_server_is_waited_for_with_one_message_per_cause() {
        let (folder, address) = (Folder::new(), free_address());
        let kubeconfig = folder.kubeconfig(&format!("http://{address}"), "there");
        let mut process = start_host(&kubeconfig, &[]);
        let refused = [
            "WARN",
            "waiting: ",
            "the API server cannot be reached",
            "connection refused",
        ];
        process.says(&refused).await;

        // Then it is there, and not able to work.
        let simulator = Simulator::new(Options::default());
        let broken = simulator.faults().add(Rule::new(Fault::Status {
            code: 503,
            retry_after: None,
        }));
        let _serving = simulator.serve(address).await.unwrap();
        let unable = process.says(&["WARN", "waiting: ", "plugin=\"app-service\""]).await;
        let unable = if unable.contains("connection refused") {
            let other = |process: &Process| {
                process
                    .lines(&["WARN", "waiting: "])
                    .into_iter()
                    .find(|line| !line.contains("connection refused"))
            };
            process.until("another cause is said", other).await
        } else {
            unable
        };
        assert!(!unable.contains("cannot be reached"), "{unable}");
        let before = simulator.requests().all().len();
        process
            .until("it is tried again", |_| {
                (simulator.requests().all().len() > before).then_some(())
            })
            .await;

        simulator.faults().remove(broken);
        process
            .says(&[
                "INFO",
                "plugin ready: all kinds of the controller are served and listed",
            ])
            .await;
        is_steered(&mut process, &simulator).await;
        assert_eq!(
            process.lines(&refused).len(),
            1,
            "once for each cause:\n{}",
            process.log()
        );
        assert_eq!(process.lines(&["WARN", "waiting: "]).len(), 2, "{}", process.log());
        assert_eq!(
            process.lines(&["INFO", "the missing kind is served now"]).len(),
            1,
            "{}",
            process.log()
        );
        assert!(process.lines(&["ERROR"]).is_empty(), "{}", process.log());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lost_and_regained_server_is_reported_once_each() {
        let Served {
            simulator,
            serving,
            kubeconfig,
            folder: _folder,
        } = Served::start().await;
        let mut process = start_host(&kubeconfig, &[]);
        process
            .says(&[
                "INFO",
                "plugin ready: all kinds of the controller are served and listed",
            ])
            .await;
        let address = serving.address();
        drop(serving);
        let lost = ["WARN", "cannot reach the API server", "user=\"me\"", "problem="];
        process.says(&lost).await;
        let _serving = simulator.serve(address).await.unwrap();
        process.says(&["INFO", "the API server answers again"]).await;
        is_steered(&mut process, &simulator).await;
        // One line for all watches.
        assert_eq!(process.lines(&lost).len(), 1, "{}", process.log());
        assert!(process.lines(&["the watch failed"]).is_empty(), "{}", process.log());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nothing_is_installed_unasked_and_what_is_missing_is_named() {
        let Served {
            simulator,
            serving: _serving,
            kubeconfig,
            folder,
        } = Served::start().await;
        let bad = folder.file("notes.wasm", "remember the milk");
        let (plugin, hostile) = (component("app-service"), component("hostile"));
        let mut process = Process::start(&[
            "run",
            "--plugin",
            &bad,
            "--plugin",
            &plugin,
            "--plugin",
            &hostile,
            "--kubeconfig",
            &kubeconfig,
        ]);
        process
            .says(&[
                "ERROR",
                "the plugin cannot be loaded",
                "notes.wasm",
                "this is not WebAssembly",
            ])
            .await;
        let words = "the cluster does not serve kosmos.io/AppService: CRD appservices.kosmos.io, which the plugin brings, is not installed; apply the CRD: `pilothouse install ";
        process.says(&["WARN", words, "plugin=\"app-service\""]).await;
        process
            .says(&["WARN", "does not serve hostile.test.dev/Hostile", "plugin=\"hostile\""])
            .await;
        assert!(find(&simulator, "CustomResourceDefinition", "appservices.kosmos.io").is_none());

        // The one whose CRD comes starts; the other one goes on waiting, and the file that is none is in nobody's way.
        let crd = std::fs::read_to_string(
            pilothouse_end_to_end::components::root().join("plugins/app-service/crds/appservices.kosmos.io.yaml"),
        );
        create(
            kube::Client::new(simulator.service(), "default"),
            &serde_saphyr::from_str(&crd.unwrap()).unwrap(),
        )
        .await;
        process
            .says(&[
                "INFO",
                "plugin ready: all kinds of the controller are served and listed",
                "app-service/app-service",
            ])
            .await;
        is_steered(&mut process, &simulator).await;
        assert!(
            process
                .lines(&[
                    "plugin ready: all kinds of the controller are served and listed",
                    "hostile"
                ])
                .is_empty()
        );
        assert_eq!(process.lines(&[words]).len(), 1, "{}", process.log());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn without_plugin_crd_or_directory_the_host_says_what_to_do() {
        let Served {
            simulator,
            serving: _serving,
            kubeconfig,
            folder,
        } = Served::start().await;
        let absent = folder.path("absent");
        let mut process = Process::start(&[
            "run",
            "--identity=none",
            "--plugin-dir",
            &absent,
            "--kubeconfig",
            &kubeconfig,
        ]);
        process
            .says(&["WARN", "no such directory for components", "--plugin-dir", &absent])
            .await;
        let words =
            "the cluster does not serve pilothouse.dev/v1alpha1 Plugin; install its CRD (--install-crds does so)";
        process
            .says(&["WARN", "cannot list and watch the Plugin resources", words])
            .await;
        create(
            kube::Client::new(simulator.service(), "default"),
            &pilothouse_crds::plugin_definition(),
        )
        .await;
        process.says(&["INFO", "the Plugin resources are seen"]).await;
        assert_eq!(process.lines(&[words]).len(), 1, "{}", process.log());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn sigterm_ends_it_with_success_and_says_that_nothing_is_left() {
        for signal in [Signal::TERM, Signal::INT] {
            let served = Served::start().await;
            let mut process = served.host(&[]).await;
            is_steered(&mut process, &served.simulator).await;
            process.signal(signal);
            let status = process.ended().await;
            assert_eq!(status.code(), Some(0), "{}", process.log());
            assert_eq!(
                process.lines(&["INFO", "stopped", "abandoned=0"]).len(),
                1,
                "{}",
                process.log()
            );
            assert!(!process.log().contains("panicked"), "{}", process.log());
        }
    }

    /// A host that is in the middle of making a child, on a server that does not answer.
    async fn stuck(grace: &str) -> (Process, Served) {
        let served = Served::start().await;
        let mut process = served.host(&["--grace", grace]).await;
        let simulator = &served.simulator;
        let slow = Rule::new(Fault::Delay(Duration::from_mins(10)))
            .verbs(&["patch"])
            .resource("deployments");
        simulator.faults().add(slow);
        create_app_service(simulator, "web").await;
        let stuck = |_: &Process| {
            (simulator.faults().injected() > 0 || asked(simulator, "patch", "deployments") > 0).then_some(())
        };
        process.until("it is in the middle of a write", stuck).await;
        (process, served)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn work_that_does_not_end_in_time_is_abandoned_and_named() {
        let (mut process, _served) = stuck("1").await;
        process.signal(Signal::TERM);
        let status = process.ended().await;
        assert_eq!(status.code(), Some(0), "{}", process.log());
        let left = process.lines(&["WARN", "abandoned a running reconcile; the next start repeats it"]);
        assert!(
            left.len() == 1 && left[0].contains("default/web") && left[0].contains("app-service/app-service"),
            "{left:?}"
        );
        assert_eq!(
            process.lines(&["INFO", "stopped", "abandoned=1"]).len(),
            1,
            "{}",
            process.log()
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_second_signal_ends_it_at_once() {
        let (mut process, _served) = stuck("600").await;
        process.signal(Signal::TERM);
        process.says(&["INFO", "stopping; a second signal stops at once"]).await;
        let asked = Instant::now();
        process.signal(Signal::TERM);
        let status = process.ended().await;
        assert_eq!(status.code(), Some(1), "{}", process.log());
        assert!(
            asked.elapsed() < Duration::from_secs(30),
            "at once, not after the grace of 600 s"
        );
    }
}
