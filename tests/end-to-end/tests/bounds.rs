//! Bounds of a host's memory, read from the process. A program of their own, because the process counts what every test takes.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

mod simulated {
    use std::fs;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use k8s_openapi::api::core::v1::Secret;
    use pilothouse_core::Limits;
    use pilothouse_end_to_end::stage::{Stage, hostile, unhurried};
    use pilothouse_end_to_end::webhooks::{Asker, gate_review};
    use pilothouse_simulator::{Fault, Rule};
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};
    use tokio::sync::Mutex;

    const MEBIBYTE: usize = 1024 * 1024;

    /// The memory that any bodies may take over rest.
    const MOST: usize = 256 * MEBIBYTE;

    /// The largest body that is read.
    const BODY: usize = 8 * MEBIBYTE - 4096;

    /// The physical memory of this process that is no file's, in bytes.
    fn resident() -> usize {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        let kibibytes: usize = line.trim().strip_suffix("kB").unwrap().trim().parse().unwrap();
        kibibytes * 1024
    }

    /// A body with a million small maps in the place of a text.
    fn filled(mut body: Value, pointer: &str, open: &str, item: &str, close: &str) -> Vec<u8> {
        *body.pointer_mut(pointer).unwrap() = json!("HERE");
        let text = body.to_string();
        let (before, after) = text.split_once("\"HERE\"").unwrap();
        let count = (BODY - before.len() - after.len()) / (item.len() + 1);
        let items = vec![item; count].join(",");
        format!("{before}{open}{items}{close}{after}").into_bytes()
    }

    fn bodies() -> Vec<(&'static str, Vec<u8>)> {
        let review = gate_review(&json!({"size": 1, "x": 1}));
        let gate = json!({"apiVersion": "gate.test.dev/v1", "kind": "Gate", "metadata": {"name": "a", "labels": 1}, "spec": {"size": 1, "x": 1}});
        let conversion = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": {"uid": "1", "desiredAPIVersion": "gate.test.dev/v2", "objects": [gate]}});
        let mut labelled = review.clone();
        labelled["request"]["object"]["metadata"]["labels"] = json!(1);
        let mut users = review.clone();
        users["request"]["userInfo"] = json!({"groups": 1});
        vec![
            (
                "/validate/gate/gates",
                filled(review.clone(), "/request/object/spec/x", "[", r#"{"":1}"#, "]"),
            ),
            (
                "/default/gate/gates",
                filled(labelled, "/request/object/metadata/labels", "{", r#""":{"":1}"#, "}"),
            ),
            (
                "/validate/gate/gates",
                filled(users, "/request/userInfo/groups", "[", r#""""#, "]"),
            ),
            (
                "/convert/gate",
                filled(conversion.clone(), "/request/objects/0/spec/x", "[", r#"{"":1}"#, "]"),
            ),
            (
                "/convert/gate",
                filled(
                    conversion.clone(),
                    "/request/objects/0/metadata/labels",
                    "{",
                    r#""":{"":1}"#,
                    "}",
                ),
            ),
            (
                "/convert/gate",
                filled(conversion, "/request/objects", "[", r#"{"":1}"#, "]"),
            ),
        ]
    }

    /// One test at a time: they look at the memory of one process.
    static ALONE: Mutex<()> = Mutex::const_new(());

    /// Samples the memory of the process until the end, and returns its maximum.
    fn watch(is_over: &AtomicBool) -> usize {
        let mut most = 0;
        while !is_over.load(Ordering::Relaxed) {
            most = resident().max(most);
            thread::sleep(Duration::from_millis(2));
        }
        most
    }

    fn bundle(stage: &Stage) -> Option<String> {
        let secret: Secret = serde_json::from_value(stage.find("Secret", "webhooks")?).ok()?;
        String::from_utf8(secret.data?.remove("ca.crt")?.0).ok()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn bodies_of_strangers_take_less_than_256_mib() {
        let _alone = ALONE.lock().await;
        pilothouse_sandbox::return_large_allocations();
        let mut stage = Stage::empty(unhurried());
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "harbour"}});
        stage.create(&namespace).await;
        stage.host.serve_webhooks("harbour").unwrap();
        let specs = vec![stage.host.spec("gate").unwrap()];
        stage.start(specs).await;
        let address = stage.until(|stage| {
            let configuration = stage.all("ValidatingWebhookConfiguration").into_iter().next()?;
            let url = configuration["webhooks"][0]["clientConfig"]["url"].as_str()?.to_owned();
            url.strip_prefix("https://")?.split_once('/')?.0.parse().ok()
        });
        let address = address.await.expect("webhooks are in place");
        let asker = Asker::new(address, &bundle(&stage).unwrap());
        asker.is_served();
        let bodies = bodies();
        let (rest, is_over) = (resident(), AtomicBool::new(false));
        let (asker, bodies, is_over) = (&asker, &bodies, &is_over);
        let (codes, most): (Vec<u16>, _) = thread::scope(|scope| {
            let watching = scope.spawn(move || watch(is_over));
            let strangers: Vec<_> = (0..2)
                .flat_map(|_| bodies)
                .map(|(path, body)| {
                    let asked = move || {
                        asker
                            .ask("POST", path, "application/json", body)
                            .map_or(0, |(code, _)| code)
                    };
                    scope.spawn(asked)
                })
                .collect();
            let mut slowest = Duration::ZERO;
            while strangers.iter().any(|stranger| !stranger.is_finished()) {
                let asked = Instant::now();
                asker.is_served();
                slowest = slowest.max(asked.elapsed());
            }
            let codes = strangers.into_iter().map(|stranger| stranger.join().unwrap()).collect();
            is_over.store(true, Ordering::Relaxed);
            println!("the slowest two reviews took {slowest:?}");
            (codes, watching.join().unwrap())
        });
        // The clients are in this process, too: each has a copy of its body.
        let clients = codes.len() * BODY;
        let taken = most.saturating_sub(rest + clients);
        println!("{} MiB at most over rest, {codes:?}", taken / MEBIBYTE);
        assert!(taken < MOST, "{} MiB", taken / MEBIBYTE);
        asker.is_served();
        let left = resident().saturating_sub(rest);
        assert!(left < MOST / 4, "{} MiB stay", left / MEBIBYTE);
        stage.stop().await;
    }

    /// Answers for many objects at once: of many small objects, for which there can never be room when they are parsed, and of
    /// one object that fits and is larger than the API server takes.
    #[tokio::test(flavor = "multi_thread")]
    async fn answers_of_a_plugin_take_less_than_512_mib() {
        const PRIMARIES: usize = 16;
        let _alone = ALONE.lock().await;
        for (behaviour, count, reason, words) in [
            (
                "many-objects",
                60_000,
                "GuestLimit",
                &["when it is parsed", "100663296"][..],
            ),
            ("huge-output", 6 * MEBIBYTE, "Refused", &["too large"][..]),
        ] {
            pilothouse_sandbox::return_large_allocations();
            let limits = Limits {
                call_milliseconds: 10_000,
                memory_bytes: 64 * 1024 * 1024,
                transfer_bytes: 32 * 1024 * 1024,
                output_bytes: 16 * 1024 * 1024,
                output_objects: 100_000,
                ..Limits::default()
            };
            let stage = Stage::with(&["hostile"], limits).await;
            let (rest, is_over) = (resident(), Arc::new(AtomicBool::new(false)));
            let ends = is_over.clone();
            let watching = thread::spawn(move || watch(&ends));
            for number in 0..PRIMARIES {
                let spec = json!({"behaviour": behaviour, "text": "x", "count": count});
                stage.create(&hostile(&format!("greedy-{number}"), &spec)).await;
            }
            let told = stage.until(|stage| {
                let said = (0..PRIMARIES).filter_map(|number| stage.reconciled("Hostile", &format!("greedy-{number}")));
                let said: Vec<Value> = said.collect();
                (said.len() == PRIMARIES).then_some(said)
            });
            let told = told.await.expect("each fails");
            is_over.store(true, Ordering::Relaxed);
            let most = watching.join().unwrap().saturating_sub(rest) / MEBIBYTE;
            println!("{behaviour}: {most} MiB at most over rest");
            for condition in told {
                let message = condition["message"].as_str().unwrap();
                assert_eq!(condition["reason"], reason, "{message}");
                assert!(words.iter().all(|word| message.contains(word)), "{message}");
            }
            assert!(most < 512, "{behaviour}: {most} MiB");
            stage.stop().await;
        }
    }

    /// A Wish for a ConfigMap of so many keys.
    fn wish(name: &str, keys: usize) -> Value {
        let data: serde_json::Map<String, Value> = (0..keys).map(|key| (format!("key-{key:05}"), json!("v"))).collect();
        let child = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default"}, "data": data});
        json!({"apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": {"name": name, "namespace": "default"},
            "spec": {"owns": [{"object": child}]}})
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn neighbours_of_large_objects_do_not_wait_for_them() {
        const LARGE: usize = 20;
        let _alone = ALONE.lock().await;
        let stage = Stage::with(&["wisher", "hostile"], unhurried()).await;
        // A server that takes its time for each of them.
        let slow = Rule::new(Fault::Delay(Duration::from_secs(3)))
            .writes()
            .resource("configmaps");
        let slow = slow.when(|asked| asked.name.as_ref().is_some_and(|name| name.starts_with("large")));
        stage.simulator().faults().add(slow);
        for number in 0..LARGE {
            stage.create(&wish(&format!("large-{number}"), 20_000)).await;
        }
        let made = |stage: &Stage| {
            let maps = stage.all("ConfigMap");
            let large = maps
                .iter()
                .filter(|it| it["metadata"]["name"].as_str().unwrap().starts_with("large"));
            large.count()
        };
        let before = made(&stage);
        stage.create(&wish("small", 1)).await;
        let spec = json!({"behaviour": "config-map", "text": "x"});
        stage.create(&hostile("other", &spec)).await;
        let both = stage.until(|stage| {
            let is_there = |name: &str| stage.find("ConfigMap", name).is_some();
            (is_there("small") && is_there("other")).then(|| made(stage))
        });
        let meanwhile = both.await.expect("the neighbours are served") - before;
        println!("{before} of {LARGE} large objects before their neighbours, {meanwhile} meanwhile");
        assert!(
            before < LARGE / 2 && meanwhile < 6,
            "{before} of {LARGE} before, {meanwhile} meanwhile"
        );
        stage.simulator().faults().clear();
        let all = stage.until(|stage| (made(stage) == LARGE).then_some(())).await;
        assert!(all.is_some(), "{} of {LARGE}", made(&stage));
        stage.stop().await;
    }
}
