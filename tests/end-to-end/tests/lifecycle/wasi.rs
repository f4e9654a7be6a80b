//! A component that imports WASI: a Plugin has to grant it the inert set, and a grant can be given and taken away.

mod simulated {
    use serde_json::json;

    use crate::dice;
    use crate::fleet::Fleet;

    #[tokio::test(start_paused = true)]
    async fn a_grant_is_needed_and_can_be_given_and_taken_away() {
        let fleet = Fleet::start().await;
        fleet.put_bytes("dice.wasm", &dice::component());
        fleet.plugin("dice", json!({"source": {"file": "dice.wasm"}})).await;
        let compiled = fleet.says("dice", "Compiled", "False", "Refused").await;
        let message = compiled["message"].as_str().unwrap();
        assert!(
            message.contains("wasi:random/random@0.2.3") && message.contains("spec.wasi: Inert"),
            "{message}"
        );

        fleet.change("dice", json!({"wasi": "Inert"})).await;
        fleet.is_ready("dice").await;

        // Neither that it runs nor that its code is compiled stands for a grant.
        fleet.change("dice", json!({"wasi": "None"})).await;
        fleet.says("dice", "Ready", "True", "PreviousVersion").await;
        fleet.says("dice", "Compiled", "False", "Refused").await;

        fleet.change("dice", json!({"wasi": null})).await;
        fleet.says("dice", "Compiled", "False", "Refused").await;
        fleet.change("dice", json!({"wasi": "Inert"})).await;
        fleet.is_ready("dice").await;
        fleet.stage.stop().await;
    }
}
