//! Plugin resources that cannot be carried out: each says why, by the condition of the step that failed, and goes on as
//! soon as it can.

mod simulated {
    use serde_json::{Value, json};

    use crate::fleet::Fleet;

    #[tokio::test(start_paused = true)]
    async fn a_component_that_is_not_there_is_waited_for() {
        let fleet = Fleet::start().await;
        fleet.plugin("it", json!({"source": {"file": "absent.wasm"}})).await;
        let fetched = fleet.says("it", "Fetched", "False", "FetchFailed").await;
        let message = fetched["message"].as_str().unwrap();
        assert!(
            message.contains("absent.wasm: No such file") && message.contains("spec.source.file"),
            "{message}"
        );
        fleet.says("it", "Ready", "False", "FetchFailed").await;
        assert_eq!(fleet.condition("it", "Compiled")["status"], "Unknown");
        fleet.put("hostile", "absent.wasm", 0);
        fleet.is_ready("it").await;
        fleet.stage.stop().await;
    }

    /// Name, spec, and expected result: the condition that is false, its reason, and words of its message.
    type Bad = (&'static str, Value, &'static str, &'static str, &'static str);

    fn bad() -> Vec<Bad> {
        let good = json!({"file": "good.wasm"});
        let zeros = format!("sha256:{}", "0".repeat(64));
        vec![
            (
                "notes",
                json!({"source": {"file": "notes.wasm"}}),
                "Compiled",
                "Refused",
                "this is not WebAssembly",
            ),
            (
                "two",
                json!({"source": {"file": "two"}}),
                "Fetched",
                "FetchFailed",
                "has 2 components: [a.wasm, b.wasm]",
            ),
            (
                "outside",
                json!({"source": {"file": "../a.wasm"}}),
                "Ready",
                "InvalidSpec",
                "spec.source.file is \"../a.wasm\"",
            ),
            (
                "oci",
                json!({"source": {"oci": {"reference": format!("example.com/a@{zeros}")}}}),
                "Fetched",
                "FetchFailed",
                "this host fetches no artifacts",
            ),
            (
                "no.label",
                json!({"source": good}),
                "Ready",
                "InvalidSpec",
                "the name \"no.label\" cannot be used",
            ),
            (
                "digest",
                json!({"source": {"file": "good.wasm", "digest": zeros}}),
                "Fetched",
                "DigestMismatch",
                "correct the digest",
            ),
            (
                "field",
                json!({"source": good, "configuration": {"describe": "nonsense"}}),
                "Ready",
                "InvalidConfiguration",
                "unknown variant `nonsense`, expected one of",
            ),
            (
                "unknown",
                json!({"source": good, "configuration": {"surprise": 1}}),
                "Ready",
                "InvalidConfiguration",
                "unknown field `surprise`, expected one of",
            ),
            (
                "schema",
                json!({"source": {"file": "strict.wasm"}, "configuration": {"owns": ["Nonsense"]}}),
                "Ready",
                "InvalidConfiguration",
                "the configuration does not fit the plugin's schema: owns[0]: it is not one of \"ConfigMap\"",
            ),
            (
                "none",
                json!({"source": {"file": "none.wasm"}, "configuration": {"replicas": 1}}),
                "Ready",
                "InvalidConfiguration",
                "the plugin app-service takes no configuration; remove the one that it is given",
            ),
            (
                "refused",
                json!({"source": good, "configuration": {"describe": "refuse"}}),
                "Ready",
                "InvalidConfiguration",
                "this configuration is to be refused",
            ),
            (
                "traps",
                json!({"source": good, "configuration": {"describe": "trap"}}),
                "Ready",
                "DescribeFailed",
                "the plugin trapped",
            ),
            (
                "garbage",
                json!({"source": good, "configuration": {"describe": "garbage"}}),
                "Ready",
                "InvalidManifest",
                "does not fit wit/manifest.schema.json",
            ),
        ]
    }

    #[tokio::test(start_paused = true)]
    async fn each_of_them_names_the_cause_and_the_others_go_on() {
        let fleet = Fleet::start().await;
        fleet.put("hostile", "good.wasm", 0);
        fleet.put("app-service", "none.wasm", 0);
        fleet.put("wisher", "strict.wasm", 0);
        fleet.put_bytes("notes.wasm", b"remember the milk");
        std::fs::create_dir(fleet.path("two")).unwrap();
        fleet.put("hostile", "two/a.wasm", 0);
        fleet.put("hostile", "two/b.wasm", 0);
        let good = json!({"file": "good.wasm"});
        fleet.plugin("good", json!({"source": good})).await;
        fleet.is_ready("good").await;
        fleet.a_second().await;
        for (name, spec, step, reason, words) in bad() {
            fleet.plugin(name, spec).await;
            let said = fleet.says(name, step, "False", reason).await;
            assert!(said["message"].as_str().unwrap().contains(words), "{name}: {said:#}");
            fleet.says(name, "Ready", "False", reason).await;
        }
        fleet
            .change("field", json!({"configuration": {"describe": "normal"}}))
            .await;
        let said = fleet.says("field", "Ready", "False", "KindTaken").await;
        assert!(
            said["message"]
                .as_str()
                .unwrap()
                .contains("which plugin good brings already"),
            "{said:#}"
        );
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_is_not_served_delays_its_plugin_alone() {
        let fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.put("app-service", "b.wasm", 0);
        let waits = json!({"source": {"file": "a.wasm"}, "configuration": {"describe": "unserved-kind"}});
        fleet.plugin("waits", waits).await;
        fleet.plugin("runs", json!({"source": {"file": "b.wasm"}})).await;
        fleet.is_ready("runs").await;
        let said = fleet.says("waits", "Established", "False", "Waiting").await;
        assert!(
            said["message"]
                .as_str()
                .unwrap()
                .contains("unserved.test.dev/v1 Unserved"),
            "{said:#}"
        );
        fleet.says("waits", "Ready", "False", "Waiting").await;
        fleet.stage.stop().await;
    }
}
