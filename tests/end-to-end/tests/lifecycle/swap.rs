//! One version of a plugin takes over from another, or fails to, in the middle of work.

mod simulated {
    use std::collections::BTreeMap;

    use pilothouse_end_to_end::stage::{Stage, hostile};
    use serde_json::{Value, json};

    use crate::fleet::Fleet;

    /// Objects that are to be reconciled while something happens.
    const MANY: usize = 1000;

    async fn create_many(fleet: &Fleet) {
        for index in 0..MANY {
            fleet
                .stage
                .create(&hostile(&format!("o{index}"), &json!({"behaviour": "config-map"})))
                .await;
        }
    }

    fn texts(stage: &Stage) -> BTreeMap<String, usize> {
        let mut texts = BTreeMap::new();
        for object in stage.all("ConfigMap") {
            *texts.entry(object["data"]["text"].to_string()).or_insert(0) += 1;
        }
        texts
    }

    async fn all_say(fleet: &Fleet, text: &str) {
        let text = format!("{text:?}");
        fleet
            .until(&format!("all say {text}"), |stage| {
                texts(stage).get(&text) == Some(&MANY)
            })
            .await;
    }

    fn digest(fleet: &Fleet) -> Value {
        fleet.status("it")["digest"].clone()
    }

    #[tokio::test(start_paused = true)]
    async fn broken_versions_change_nothing_and_a_good_one_takes_over() {
        let fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet
            .plugin(
                "it",
                json!({"source": {"file": "a.wasm"}, "configuration": {"text": "one"}}),
            )
            .await;
        fleet.is_ready("it").await;
        let first = digest(&fleet);
        create_many(&fleet).await;
        fleet.put_bytes("a.wasm", b"\0asm\x0d\0\x01\0 and then nothing");
        let said = fleet.says("it", "Ready", "True", "PreviousVersion").await;
        assert!(
            said["message"].as_str().unwrap().contains("the version before goes on"),
            "{said:#}"
        );
        assert_eq!(fleet.condition("it", "Compiled")["status"], "False");
        all_say(&fleet, "one").await;
        assert_eq!(digest(&fleet), first);

        // Each object is written once by each version, so none was reconciled by two at once or twice.
        let mark = fleet.stage.mark();
        fleet.put("hostile", "a.wasm", 1);
        fleet.change("it", json!({"configuration": {"text": "two"}})).await;
        for index in 0..100 {
            fleet
                .stage
                .patch_hostile(
                    &format!("o{index}"),
                    &json!({"metadata": {"labels": {"touched": "yes"}}}),
                )
                .await;
        }
        all_say(&fleet, "two").await;
        fleet.is_ready("it").await;
        assert_ne!(digest(&fleet), first);
        let mut writes = BTreeMap::new();
        for write in fleet.stage.host_writes_since(mark) {
            if write.resource == "configmaps" {
                *writes.entry(write.name).or_insert(0) += 1;
            }
        }
        assert_eq!(writes.len(), MANY);
        let often: Vec<_> = writes.iter().filter(|(_, count)| **count != 1).collect();
        assert!(often.is_empty(), "{often:?}");
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_with_another_filter_takes_new_and_prunes_old() {
        let fleet = Fleet::start().await;
        fleet.put("reader", "a.wasm", 0);
        let objects = |selector: &str| json!({"configuration": {"objects": selector, "touches": []}});
        let mut spec = objects("reader in (left, both)");
        spec["source"] = json!({"file": "a.wasm"});
        fleet.plugin("it", spec).await;
        fleet.is_ready("it").await;
        for label in ["left", "both", "new"] {
            let metadata = json!({"name": label, "namespace": "default", "labels": {"reader": label}});
            let object = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
            fleet.stage.create(&object).await;
        }
        let kept = |stage: &Stage| {
            let names = stage.all("ConfigMap").into_iter();
            let names: Vec<_> = names.map(|it| it["metadata"]["name"].clone()).collect();
            ["left", "both", "new"].map(|name| names.contains(&json!(name)))
        };
        fleet
            .until("two are steered", |stage| kept(stage) == [true, true, false])
            .await;
        fleet.change("it", objects("reader in (both, new)")).await;
        fleet
            .until("two others are", |stage| kept(stage) == [false, true, true])
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_fails_its_first_calls_does_not_take_over() {
        let fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        fleet
            .stage
            .create(&hostile("web", &json!({"behaviour": "config-map", "text": "one"})))
            .await;
        fleet
            .until("it is reconciled", |stage| stage.is_reconciled("Hostile", "web"))
            .await;
        for (config, words) in [
            (
                json!({"behaviour": "trap"}),
                "the new version fails for Hostile default/web: the plugin trapped",
            ),
            (
                json!({"behaviour": null, "describe": "trap"}),
                "its describe call failed: the plugin trapped",
            ),
        ] {
            fleet.change("it", json!({"configuration": config})).await;
            let said = fleet.says("it", "Ready", "True", "PreviousVersion").await;
            assert!(said["message"].as_str().unwrap().contains(words), "{said:#}");
            fleet
                .stage
                .patch_hostile("web", &json!({"spec": {"text": words}}))
                .await;
            fleet
                .until("the version before goes on", |stage| {
                    stage.find("ConfigMap", "web").unwrap()["data"]["text"] == words
                })
                .await;
        }
        fleet.stage.stop().await;
    }
}
