//! Tests of the host's monitoring: over HTTP, as the program serves it, and while the main loop is blocked. And its
//! log.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use pilothouse_end_to_end::program::{Folder, Process, component, ended};
use pilothouse_end_to_end::scrape::{Scrape, get};

mod external;

/// An address at which nobody listens.
fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
}

#[test]
fn a_taken_address_ends_the_program_before_any_request() {
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

/// Returns the present metrics of a host.
fn scrape(address: SocketAddr) -> Option<Scrape> {
    let (code, body) = get(address, "/metrics").ok()?;
    assert_eq!(code, 200);
    Some(Scrape(body))
}

/// Returns the value of a host's counter, if there is one.
fn count(address: SocketAddr, name: &str, labels: &[&str]) -> Option<u64> {
    scrape(address)?.count(name, labels).filter(|count| *count > 0)
}

mod simulated {
    use std::sync::{Arc, mpsc};
    use std::time::{Duration, Instant};

    use kube::api::{Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use kube::{Api, Client};
    use pilothouse_end_to_end::fleet::{plugin, plugins};
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_end_to_end::stage::{app_service, create, hostile, unhurried};
    use pilothouse_metrics::Metrics;
    use pilothouse_runtime::{EndpointServer, Endpoints, Heartbeat, Host, HostOptions, InstallCrds};
    use pilothouse_simulator::{Fault, Options, Rule, Simulator};
    use pilothouse_testkit::cluster::Cluster;
    use rustix::process::Signal;
    use serde_json::{Value, json};

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_program_is_live_at_once_then_ready_and_counts_requests() {
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
        create(Client::new(simulator.service(), "default"), &app_service("web")).await;
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

    #[tokio::test(flavor = "multi_thread")]
    async fn json_log_lines_are_objects_and_guest_lines_name_the_plugin() {
        let (folder, simulator) = (Folder::new(), Simulator::new(Options::default()));
        let serving = simulator.serve((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        let kubeconfig = folder.kubeconfig(&format!("http://{}", serving.address()), "there");
        let component = component("hostile");
        let mut process = Process::start(&[
            "run",
            "--plugin",
            &component,
            "--kubeconfig",
            &kubeconfig,
            "--install-crds",
            "--log-format",
            "json",
        ]);
        process.says(&["plugin ready"]).await;
        let client = Client::new(simulator.service(), "default");
        let talks = json!({"behaviour": "log-each-level", "text": "what the guest says"});
        create(client, &hostile("talks", &talks)).await;
        process.says(&["what the guest says", "ERROR"]).await;
        process.signal(Signal::TERM);
        assert_eq!(process.ended().await.code(), Some(0), "{}", process.log());

        let log = process.log();
        let (mut guests, mut hosts) = (Vec::new(), 0);
        for line in log.lines() {
            let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            let [time, level, target, message] = [
                &line["timestamp"],
                &line["level"],
                &line["target"],
                &line["fields"]["message"],
            ];
            let [Some(time), Some(level), Some(target), Some(message)] =
                [time, level, target, message].map(Value::as_str)
            else {
                panic!("a line has a time, a level, a target and a message: {line}")
            };
            assert!(time.ends_with('Z') && !message.is_empty(), "{line}");
            assert!(["TRACE", "DEBUG", "INFO", "WARN", "ERROR"].contains(&level), "{line}");
            if target != "pilothouse::plugin" {
                hosts += 1;
                continue;
            }
            assert_eq!(
                (&line["fields"]["plugin"], &line["fields"]["object"]),
                (&json!("hostile"), &json!("default/talks"))
            );
            guests.push((level.to_owned(), message.to_owned()));
        }
        assert!(hosts > 0, "{log}");
        // By default from the level info on.
        let said = |level: &str| (level.to_owned(), "what the guest says".to_owned());
        assert_eq!(guests, ["INFO", "WARN", "ERROR"].map(said), "{log}");
    }

    /// A host with one Plugin, whose guest says something new each time its only object is changed.
    struct Talkative {
        process: Process,
        client: Client,
        changes: usize,
    }

    impl Talkative {
        /// Changes the object: the levels of the lines that the guest logs then.
        async fn says_at(&mut self) -> Vec<String> {
            self.changes += 1;
            let text = format!("said {}", self.changes);
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("hostile.test.dev", "v1", "Hostile"));
            let objects: Api<kube::api::DynamicObject> =
                Api::namespaced_with(self.client.clone(), "default", &resource);
            let patch = Patch::Merge(json!({"spec": {"text": text}}));
            let _ = objects.patch("it", &PatchParams::default(), &patch).await.unwrap();
            let begun = Instant::now();
            // The status comes after all that the call has logged.
            while objects.get("it").await.unwrap().data["status"]["text"] != text.as_str() {
                let in_time = begun.elapsed() < Duration::from_mins(2);
                assert!(in_time, "the object is not reconciled:\n{}", self.process.log());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let lines = self.process.lines(&["pilothouse::plugin"]);
            let lines = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let of_it = lines.filter(|line| line["fields"]["message"] == text.as_str());
            of_it
                .map(|line| {
                    assert_eq!(line["fields"]["plugin"], "it", "{line}");
                    line["level"].as_str().unwrap().to_owned()
                })
                .collect()
        }

        /// Sets the annotation, or removes it.
        async fn annotate(&self, level: Option<&str>) {
            let patch = Patch::Merge(json!({"metadata": {"annotations": {"pilothouse.dev/log-level": level}}}));
            let plugins = plugins(self.client.clone());
            let _ = plugins.patch("it", &PatchParams::default(), &patch).await.unwrap();
        }

        /// Changes the object until its lines have these levels, because the host sees an annotation when it does.
        async fn comes_to_say_at(&mut self, levels: &[&str]) {
            let begun = Instant::now();
            loop {
                let said = self.says_at().await;
                if said == levels {
                    return;
                }
                let in_time = begun.elapsed() < Duration::from_mins(2);
                assert!(in_time, "{said:?} in place of {levels:?}\n{}", self.process.log());
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_plugin_logs_at_the_level_of_its_annotation() {
        let (folder, simulator) = (Folder::new(), Simulator::new(Options::default()));
        let serving = simulator.serve((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        let kubeconfig = folder.kubeconfig(&format!("http://{}", serving.address()), "there");
        let _ = std::fs::copy(component("hostile"), folder.path("it.wasm")).unwrap();
        let directory = folder.path("");
        let arguments = [
            "run",
            "--kubeconfig",
            &kubeconfig,
            "--install-crds",
            "--plugin-dir",
            &directory,
            "--identity=none",
        ];
        let mut process = Process::start(&[&arguments[..], &["--log-format", "json"]].concat());
        process.says(&["installed the CRD", "plugins.pilothouse.dev"]).await;
        let client = Client::new(simulator.service(), "default");
        create(client.clone(), &plugin("it", json!({"source": {"file": "it.wasm"}}))).await;
        process.says(&["plugin ready"]).await;
        let talks = json!({"behaviour": "log-each-level", "text": "said 0"});
        create(client.clone(), &hostile("it", &talks)).await;
        let mut host = Talkative {
            process,
            client,
            changes: 0,
        };
        let by_filter = ["INFO", "WARN", "ERROR"];
        assert_eq!(host.says_at().await, by_filter);
        for (level, levels) in [
            ("debug", &["DEBUG", "INFO", "WARN", "ERROR"][..]),
            ("trace", &["TRACE", "DEBUG", "INFO", "WARN", "ERROR"]),
            ("error", &["ERROR"]),
            ("off", &[]),
        ] {
            host.annotate(Some(level)).await;
            host.comes_to_say_at(levels).await;
        }
        host.annotate(None).await;
        host.comes_to_say_at(&by_filter).await;
        assert_eq!(host.says_at().await, by_filter);
    }

    #[test]
    fn what_ends_the_host_is_a_line_of_the_log_in_json() {
        let folder = Folder::new();
        let broken = folder.file("broken.wasm", "no component");
        for (arguments, code, problem) in [
            (
                &["--kubeconfig", "/nonexistent/kubeconfig"][..],
                1,
                "/nonexistent/kubeconfig",
            ),
            (&["--plugin", "/nonexistent/it.wasm"], 1, "/nonexistent/it.wasm"),
            (&["--plugin", &broken], 1, "broken.wasm"),
            (&["--metrics-address", "192.0.2.1:8080"], 1, "192.0.2.1:8080"),
            (
                &["--leader-election", "--lease-duration", "1", "--namespace", "a"],
                2,
                "--lease-duration",
            ),
        ] {
            let (ended, log) = refused(&[&["run", "--log-format", "json"], arguments].concat());
            let lines = log
                .lines()
                .map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}")));
            let last = lines.last().unwrap();
            let told = last["fields"]["problem"].as_str().unwrap_or_default();
            assert!(
                ended == code && last["level"] == "ERROR" && told.contains(problem),
                "{arguments:?}: {ended} {log}"
            );
            let (ended, log) = refused(&[&["run"], arguments].concat());
            let last = log.lines().last().unwrap_or_default();
            assert!(
                ended == code && last.starts_with("error: ") && last.contains(problem),
                "{arguments:?}: {ended} {log}"
            );
        }
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
                install_crds: InstallCrds::All,
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
