//! What monitoring sees of a host: over HTTP, as the program serves it, and while the main loop is blocked.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use pilothouse_end_to_end::program::{Folder, Process, component, ended};
use pilothouse_end_to_end::scrape::{Scrape, get};

/// An address at which nobody listens.
fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
}

#[test]
fn an_address_that_is_taken_ends_the_program_before_it_asks_the_cluster() {
    let (folder, taken) = (Folder::new(), TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let address = taken.local_addr().unwrap().to_string();
    // The kubeconfig is not there, either: that would be the next error.
    let (code, _, said) = ended(&[
        "run",
        "--kubeconfig",
        &folder.path("absent.yaml"),
        "--metrics-address",
        &address,
    ]);
    assert_eq!(code, 1);
    let words = format!(
        "error: cannot serve metrics and health on {address}: Address already in use (os error 98); give another address \
         with --metrics-address, or --metrics-address off\n"
    );
    assert!(said.ends_with(&words), "{said}");
    let (code, _, said) = ended(&["run", "--metrics-address", "localhost"]);
    assert!(
        code == 2 && said.contains("neither IP:PORT, as in 127.0.0.1:8080"),
        "{said}"
    );
}

/// What a host prints now.
fn scrape(address: SocketAddr) -> Option<Scrape> {
    let (code, body) = get(address, "/metrics").ok()?;
    assert_eq!(code, 200);
    Some(Scrape(body))
}

/// How many things a host has counted, if it has any.
fn count(address: SocketAddr, name: &str, labels: &[&str]) -> Option<u64> {
    scrape(address)?.count(name, labels).filter(|count| *count > 0)
}

mod simulated {
    use std::sync::{Arc, mpsc};
    use std::time::{Duration, Instant};

    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_end_to_end::stage::{app_service, create, unhurried};
    use pilothouse_metrics::Metrics;
    use pilothouse_runtime::{EndpointServer, Endpoints, Heartbeat, Host, HostOptions};
    use pilothouse_simulator::{Fault, Options, Rule, Simulator};
    use pilothouse_testkit::cluster::Cluster;
    use rustix::process::Signal;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_program_is_live_at_once_ready_when_it_works_and_counts_its_requests() {
        let (folder, simulator, address) = (Folder::new(), Simulator::new(Options::default()), free_address());
        let cluster = free_address();
        let kubeconfig = folder.kubeconfig(&format!("http://{cluster}"), "there");
        let (plugin, listens) = (component("app-service"), address.to_string());
        let mut process = Process::start(&[
            "run",
            "--plugin",
            &plugin,
            "--kubeconfig",
            &kubeconfig,
            "--install-crds",
            "--metrics-address",
            &listens,
        ]);
        process
            .until("it is live", |_| {
                get(address, "/livez").ok().filter(|(code, _)| *code == 200)
            })
            .await;
        let (code, missing) = get(address, "/readyz").unwrap();
        assert_eq!(code, 503, "there is no API server yet: {missing}");
        process
            .until("requests without an answer are counted", |_| {
                count(address, "pilothouse_api_requests_total", &["code=\"none\""])
            })
            .await;
        // One apply is refused for a conflict.
        let conflict = Rule::new(Fault::Status {
            code: 409,
            retry_after: None,
        });
        simulator
            .faults()
            .add(conflict.verbs(&["patch"]).resource("deployments").times(1));
        let _serving = simulator.serve(cluster).await.unwrap();
        process
            .until("it is ready", |_| {
                get(address, "/readyz").ok().filter(|(code, _)| *code == 200)
            })
            .await;
        create(kube::Client::new(simulator.service(), "default"), &app_service("web")).await;
        process
            .until("the object is reconciled", |_| {
                let labels = ["plugin=\"app-service\"", "result=\"success\""];
                count(address, "pilothouse_reconciles_total", &labels)
            })
            .await;
        let scrape = scrape(address).unwrap();
        let requests = |labels: &[&str]| scrape.count("pilothouse_api_requests_total", labels);
        let applies = ["verb=\"apply\"", "resource=\"deployments.apps\"", "subresource=\"\""];
        assert_eq!(
            requests(&[&applies[..], &["code=\"409\""]].concat()),
            Some(1),
            "{}",
            scrape.0
        );
        assert!(
            requests(&[&applies[..], &["code=\"201\""]].concat()).is_some(),
            "{}",
            scrape.0
        );
        assert!(requests(&["verb=\"watch\"", "code=\"200\""]).is_some_and(|count| count >= 1));
        assert!(requests(&["verb=\"list\"", "resource=\"appservices.kosmos.io\"", "code=\"200\""]).is_some());
        let age = scrape.seconds("pilothouse_main_loop_age_seconds", &[]).unwrap();
        assert!(age < Duration::from_secs(30), "{age:?}");
        process.signal(Signal::TERM);
        assert_eq!(process.ended().await.code(), Some(0), "{}", process.log());
    }

    #[test]
    fn a_host_whose_main_loop_is_blocked_says_that_it_is_not_live() {
        let cluster = Cluster::simulated();
        let heartbeat = Heartbeat::with_longest_turn(Duration::from_secs(3));
        let metrics = Metrics::default();
        let endpoints = Arc::new(Endpoints::new("1", metrics.clone(), heartbeat.clone()));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = EndpointServer::start(listener, endpoints.clone()).unwrap();
        let is = |path: &str, code: u16| {
            let begun = Instant::now();
            loop {
                let (got, body) = get(server.address(), path).unwrap();
                if got == code {
                    return body;
                }
                assert!(begun.elapsed() < Duration::from_mins(1), "{path}: {got} {body}");
                std::thread::yield_now();
            }
        };
        // As the program has it: one thread, and the main loop as a task.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let host = runtime.spawn(async move {
            let options = HostOptions {
                metrics,
                heartbeat: Some(heartbeat),
                install_crds: true,
                ..HostOptions::default()
            };
            let host = Host::new(cluster.host_client().await.unwrap(), options.clone());
            endpoints.set_host(host.handle());
            let plugin = RuntimeHost::new(options, unhurried()).spec("hostile").unwrap();
            let stop = async move {
                let _ = stopped.await;
            };
            host.run(vec![plugin], stop)
                .await
                .map(|_| ())
                .map_err(|error| error.to_string())
        });
        is("/readyz", 200);
        is("/livez", 200);
        let (go_on, blocked) = mpsc::channel::<()>();
        runtime.spawn(async move { blocked.recv() });
        let said = is("/livez", 503);
        assert!(said.starts_with("the main loop has not turned for "), "{said}");
        assert!(is("/readyz", 503).contains("has not turned"));
        let scrape = scrape(server.address()).unwrap();
        let age = scrape.seconds("pilothouse_main_loop_age_seconds", &[]);
        assert!(age.is_some_and(|age| age > Duration::from_secs(3)), "{age:?}");
        go_on.send(()).unwrap();
        is("/livez", 200);
        is("/readyz", 200);
        stop.send(()).unwrap();
        runtime.block_on(host).unwrap().unwrap();
        is("/livez", 200);
        assert_eq!(is("/readyz", 503), "the host is stopping\n");
    }
}

mod external {
    mod promtool {
        use std::fs;
        use std::io::Write as _;
        use std::process::{Command, Stdio};

        use pilothouse_end_to_end::components::root;
        use pilothouse_end_to_end::host::RuntimeHost;
        use pilothouse_end_to_end::stage::{Stage, hostile, unhurried};
        use pilothouse_external::programs::Program;
        use pilothouse_metrics::{ApiRequest, Metrics};
        use pilothouse_runtime::HostOptions;
        use pilothouse_testkit::cluster::Cluster;
        use pilothouse_testkit::host::SteeredHost as _;
        use serde_json::json;
        use std::time::Duration;

        /// What promtool says of its input; nothing if it is content.
        fn checked(arguments: &[&str], input: &str) -> String {
            let mut promtool = Command::new(Program::Promtool.path())
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            promtool.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
            let output = promtool.wait_with_output().unwrap();
            let said = [&output.stdout[..], &output.stderr].concat();
            let said = String::from_utf8(said).unwrap();
            let verdict = if output.status.success() { "" } else { "FAILED\n" };
            format!("{verdict}{said}")
        }

        #[tokio::test(start_paused = true)]
        async fn promtool_finds_nothing_to_say_about_the_metrics_of_a_host() {
            let metrics = Metrics::default();
            let options = HostOptions {
                metrics: metrics.clone(),
                ..HostOptions::default()
            };
            let host = RuntimeHost::new(options, unhurried());
            let mut stage = Stage {
                cluster: Cluster::simulated(),
                host,
            };
            let spec = stage.host.spec("hostile").unwrap();
            stage.start(vec![spec]).await;
            stage.host.settled().await.unwrap();
            stage.create(&hostile("a", &json!({"behaviour": "config-map"}))).await;
            stage
                .until(|stage| stage.is_reconciled("Hostile", "a").then_some(()))
                .await
                .unwrap();
            // The simulated cluster has a client of its own.
            let request = ApiRequest::new("GET", "/api/v1/pods", None, None);
            metrics.requests().ended(request, Some(200), Duration::from_millis(1));
            let text = metrics.print(&stage.host.handle().unwrap().figures());
            assert_eq!(checked(&["check", "metrics"], &text), "");
            // Not because promtool does not look.
            let counter = "# HELP b B.\n# TYPE b counter\nb 1\n";
            assert!(checked(&["check", "metrics"], counter).contains("_total"));
            stage.host.stop().await.unwrap();
        }

        #[test]
        fn promtool_accepts_the_alerts() {
            let alerts = root().join("deploy/monitoring/alerts.yaml");
            let said = checked(&["check", "rules", "--lint-fatal", &alerts.display().to_string()], "");
            let text = fs::read_to_string(&alerts).unwrap();
            let rules = text
                .lines()
                .filter(|line| line.trim_start().starts_with("- alert:"))
                .count();
            assert!(said.contains(&format!("SUCCESS: {rules} rules found")), "{said}");
        }
    }
}
