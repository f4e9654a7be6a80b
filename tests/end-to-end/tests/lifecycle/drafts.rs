//! Components that were built against another version of the contract, or against a draft of it, and are given to a host
//! that runs: each is refused with both versions and the next step, and nobody else notices.

mod simulated {
    use pilothouse_end_to_end::stage::app_service;
    use serde_json::{Value, json};
    use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
    use wit_parser::Resolve;

    use crate::fleet::Fleet;

    /// Module with the exports of every plugin, without any behaviour.
    const MODULE: &str = r#"(module
        (memory (export "memory") 1)
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable)
        (func (export "pilothouse:plugin/manifest@0.1.0#describe") (param i32 i32 i32) (result i32) unreachable)
        (func (export "pilothouse:plugin/reconciler@0.1.0#reconcile") (param i32 i32 i32 i32 i32 i32 i32) (result i32)
            unreachable))"#;

    /// A component of the contract as it was before 0.1.0 was settled, with this version in its names.
    fn draft(version: &str) -> Vec<u8> {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../host/sandbox/tests/drafts/plugin.wit"
        );
        let of_version = |text: &str| text.replace("@0.1.0", &format!("@{version}"));
        let mut module = wat::parse_str(of_version(MODULE)).unwrap();
        let mut resolve = Resolve::default();
        let document = of_version(&std::fs::read_to_string(file).unwrap());
        let package = resolve.push_str("plugin.wit", &document).unwrap();
        let world = resolve.select_world(&[package], Some("plugin")).unwrap();
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
        ComponentEncoder::default().module(&module).unwrap().encode().unwrap()
    }

    /// An AppService whose port the cluster chooses.
    fn service(name: &str) -> Value {
        let mut object = app_service(name);
        object["spec"]["ports"] = json!([{"port": 80, "targetPort": 80}]);
        object
    }

    /// The version in the component's names, and what the condition says of it.
    const REFUSED: [(&str, &str); 2] = [
        (
            "0.1.0",
            "was built against a draft of pilothouse:plugin@0.1.0, which differs from the 0.1.0 that this host knows; \
             rebuild it with the current SDK",
        ),
        (
            "0.0.9",
            "speaks version 0.0.9 of pilothouse:plugin (it has pilothouse:plugin/manifest@0.0.9), and this host knows \
             0.1.0; build the plugin with a matching SDK, or update the host",
        ),
    ];

    #[tokio::test(start_paused = true)]
    async fn a_draft_component_is_refused_by_name_and_others_run_on() {
        let fleet = Fleet::start().await;
        fleet.put("app-service", "runs.wasm", 0);
        fleet.plugin("runs", json!({"source": {"file": "runs.wasm"}})).await;
        fleet.is_ready("runs").await;
        fleet.stage.create(&service("before")).await;
        let reconciled = async |name: &str| {
            fleet.until(name, |stage| stage.is_reconciled("AppService", name)).await;
        };
        reconciled("before").await;
        let since = fleet.condition("runs", "Ready")["lastTransitionTime"].clone();

        for (beside, (version, says)) in ["one", "two"].into_iter().zip(REFUSED) {
            fleet.put_bytes("late.wasm", &draft(version));
            fleet.plugin("late", json!({"source": {"file": "late.wasm"}})).await;
            let compiled = fleet.says("late", "Compiled", "False", "Refused").await;
            let message = compiled["message"].as_str().unwrap();
            assert!(message.contains("late.wasm") && message.contains(says), "{message}");
            let ready = fleet.says("late", "Ready", "False", "Refused").await;
            assert_eq!(ready["message"], message);
            fleet.stage.create(&service(beside)).await;
            reconciled(beside).await;

            // The next step helps.
            fleet.put("hostile", "late.wasm", 0);
            fleet.is_ready("late").await;
            fleet.delete("late").await;
            fleet.is_gone("late").await;
        }
        assert_eq!(fleet.condition("runs", "Ready")["lastTransitionTime"], since);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_draft_in_place_of_a_plugin_that_runs_leaves_it_running() {
        let fleet = Fleet::start().await;
        fleet.put("app-service", "it.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "it.wasm"}})).await;
        fleet.is_ready("it").await;
        fleet.put_bytes("it.wasm", &draft("0.1.0"));
        let compiled = fleet.says("it", "Compiled", "False", "Refused").await;
        let message = compiled["message"].as_str().unwrap();
        assert!(message.contains(REFUSED[0].1), "{message}");
        fleet.stage.create(&service("web")).await;
        fleet
            .until("the running version goes on", |stage| {
                stage.is_reconciled("AppService", "web")
            })
            .await;
        fleet.stage.stop().await;
    }
}
