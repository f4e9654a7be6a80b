//! Tests that a blocked plugin blocks no other and is reported: a file system that hangs, a disk without room, a
//! namespace that is being deleted, a version that cannot be used.

mod simulated {
    use std::fs::OpenOptions;
    use std::time::Duration;

    use kube::Api;
    use kube::api::{DeleteParams, DynamicObject};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_end_to_end::log::Guests;
    use pilothouse_end_to_end::stage::{Stage, hostile};
    use pilothouse_testkit::host::SteeredHost as _;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use serde_json::{Value, json};

    use crate::fleet::Fleet;

    /// Time that passes at one look, and looks until it is in vain: what hangs in a thread stops the clock of a test.
    const TICK: Duration = Duration::from_millis(100);
    const MOST_TICKS: usize = 6000;

    /// Waits while a thread hangs.
    async fn until_ticking(fleet: &Fleet, what: &str, holds: impl Fn(&Stage) -> bool) {
        for _ in 0..MOST_TICKS {
            if holds(&fleet.stage) {
                return;
            }
            tokio::time::advance(TICK).await;
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            // What other threads have to do takes real time.
            std::thread::yield_now();
        }
        panic!("it does not come that {what}:\n{}", fleet.log());
    }

    fn says(stage: &Stage, plugin: &str, kind: &str, status: &str, words: &str) -> bool {
        let plugin = stage.find("Plugin", plugin).unwrap_or_default();
        let conditions = plugin["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|it| {
            let message = it["message"].as_str().unwrap_or_default();
            it["type"] == kind && it["status"] == status && message.contains(words)
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_system_that_hangs_is_told_and_in_nobodys_way() {
        let fleet = Fleet::start().await;
        // Who opens this waits until somebody writes to it, as on a mount whose server is gone.
        mknodat(CWD, fleet.path("hung.wasm"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        fleet.plugin("hung", json!({"source": {"file": "hung.wasm"}})).await;
        let words = "has not answered for 10 s; check its mount";
        until_ticking(&fleet, "it is told", |stage| {
            says(stage, "hung", "Fetched", "False", words)
        })
        .await;
        fleet.put("hostile", "sound.wasm", 0);
        let body = crate::fleet::plugin("sound", json!({"source": {"file": "sound.wasm"}}));
        fleet.stage.create(&body).await;
        until_ticking(&fleet, "the other one runs", |stage| {
            says(stage, "sound", "Ready", "True", "")
        })
        .await;
        // Whoever waits for it is let go: it is a file like any other from here on.
        let writer = OpenOptions::new().write(true).open(fleet.path("hung.wasm")).unwrap();
        drop(writer);
        std::fs::remove_file(fleet.path("hung.wasm")).unwrap();
        fleet.put("app-service", "hung.wasm", 0);
        fleet.is_ready("hung").await;
        fleet.stage.stop().await;
    }

    fn promise(namespace: &str) -> Value {
        let child = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "lasting", "namespace": namespace},
        });
        json!({
            "apiVersion": "wishes.test.dev/v1", "kind": "Promise", "metadata": {"name": "it", "namespace": namespace},
            "spec": {"holds": true, "owns": [{"object": child, "lasting": true}]},
        })
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_terminating_namespace_nothing_is_recreated() {
        let fleet = Fleet::start().await;
        fleet.put("wisher", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "doomed"}});
        fleet.stage.create(&namespace).await;
        fleet.stage.create(&promise("doomed")).await;
        fleet
            .until("it is reconciled", |stage| stage.is_reconciled("Promise", "it"))
            .await;
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Namespace"));
        let namespaces: Api<DynamicObject> = Api::all_with(fleet.client().await, &resource);
        let mark = fleet.stage.mark();
        assert!(namespaces.delete("doomed", &DeleteParams::default()).await.is_ok());
        let words = [
            "cannot create ConfigMap doomed/lasting: namespace doomed is being deleted",
            "`pilothouse release wishes.test.dev/promise --kind Promise.wishes.test.dev --namespace doomed --deleting --yes`",
        ];
        fleet
            .until("the condition says what is stuck", |stage| {
                let condition = stage.reconciled("Promise", "it").unwrap_or_default();
                let message = condition["message"].as_str().unwrap_or_default();
                condition["reason"] == "NamespaceTerminating" && words.iter().all(|words| message.contains(words))
            })
            .await;
        for _ in 0..30 {
            fleet.stage.minute().await;
        }
        assert!(fleet.stage.find("ConfigMap", "lasting").is_none());
        let writes = fleet.stage.host_writes_since(mark);
        let refused = writes.iter().filter(|write| write.code == 403);
        let (children, events): (Vec<_>, Vec<_>) = refused.partition(|write| write.resource == "configmaps");
        assert_eq!(children.len(), 1, "{writes:?}");
        assert!(events.len() <= 1, "{writes:?}");
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("wishes.test.dev", "v1", "Promise"));
        let promises: Api<DynamicObject> = Api::namespaced_with(fleet.client().await, "doomed", &resource);
        let released = kube::api::Patch::Merge(json!({"metadata": {"finalizers": null}}));
        promises
            .patch("it", &kube::api::PatchParams::default(), &released)
            .await
            .unwrap();
        fleet
            .until("the namespace goes", |stage| {
                stage.find("Namespace", "doomed").is_none()
            })
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_version_is_one_event_on_the_plugin() {
        let mut fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        fleet
            .stage
            .create(&hostile("web", &json!({"behaviour": "config-map"})))
            .await;
        fleet.put_bytes("a.wasm", b"remember the milk");
        let told = |stage: &Stage| {
            let events = stage.events("it", "Refused");
            events.len() == 1
                && events[0]["type"] == "Warning"
                && events[0]["involvedObject"]["kind"] == "Plugin"
                && events[0]["message"].as_str().is_some_and(|message| {
                    message.contains("the version before goes on") && message.contains("this is not WebAssembly")
                })
        };
        fleet.until("an event says so", told).await;
        fleet.stage.host.stop().await.unwrap();
        let mark = fleet.stage.mark();
        fleet.start_host().await;
        fleet.says("it", "Ready", "False", "Refused").await;
        fleet.stage.minute().await;
        let events = fleet.stage.events("it", "Refused");
        assert!(events.len() <= 2, "{events:#?}");
        let mut writes = fleet.stage.host_writes_since(mark);
        writes.retain(|write| write.resource == "events");
        assert!(writes.len() <= 1, "{writes:?}");

        // Somebody corrects the file, and spoils it again in the same way.
        let before = fleet.stage.events("it", "Refused").len();
        fleet.put("hostile", "a.wasm", 0);
        fleet.is_ready("it").await;
        fleet.put_bytes("a.wasm", b"remember the milk");
        fleet
            .until("another event says so", |stage| {
                stage.events("it", "Refused").len() == before + 1
            })
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn log_lines_of_describe_count_against_the_limit() {
        let guests = Guests::listen();
        let fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        let configuration = |round: u32| json!({"describe": "log-flood", "text": round.to_string()});
        let spec = json!({"source": {"file": "a.wasm"}, "configuration": configuration(0)});
        fleet.plugin("describer", spec).await;
        // Each call logs as much as one call may, and a plugin as much as sixteen.
        for round in 1..40 {
            fleet.is_ready("describer").await;
            fleet
                .change("describer", json!({"configuration": configuration(round)}))
                .await;
        }
        fleet
            .until("lines are dropped", |_| guests.lines_of("describer").dropped > 0)
            .await;
        assert!(guests.lines_of("describer").logged > 0);
        fleet.stage.stop().await;
    }
}
