//! Plugins that cannot be described, or that need what is not there: they are named, and the others go on.

mod simulated {
    use pilothouse_runtime::StaticPlugin;
    use serde_json::{Value, json};

    use crate::stage::{Stage, app_service, hostile, unhurried};

    /// A CRD of the kind that the hostile plugin's `unserved-kind` wants to read.
    fn unserved_crd() -> Value {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "unserveds.unserved.test.dev"},
            "spec": {
                "group": "unserved.test.dev", "scope": "Namespaced",
                "names": {"kind": "Unserved", "plural": "unserveds", "singular": "unserved"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
            },
        })
    }

    async fn app_service_is_steered(stage: &Stage) {
        // The CRD comes with the plugin, once the host has got to it.
        let served = |stage: &Stage| {
            stage
                .find("CustomResourceDefinition", "appservices.kosmos.io")
                .map(drop)
        };
        assert!(stage.until(served).await.is_some(), "{}", stage.lines(&[]).join("\n"));
        stage.create(&app_service("web")).await;
        let steered = stage
            .until(|stage| stage.is_reconciled("AppService", "web").then_some(()))
            .await;
        assert!(steered.is_some(), "{}", stage.lines(&[]).join("\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_cannot_be_described_is_left_out_and_named() {
        for (describe, words) in [
            ("trap", "its describe call failed: the plugin trapped"),
            (
                "loop",
                "its describe call failed: the plugin took too long: limit callMilliseconds is 100",
            ),
            (
                "garbage",
                "manifest does not fit wit/manifest.schema.json: expected value at line 1",
            ),
            ("unknown-member", "surprise"),
            (
                "refuse",
                "the plugin refuses its configuration: describe: this configuration is to be refused; choose another",
            ),
        ] {
            let mut stage = Stage::empty(pilothouse_core::Limits::default());
            let bad = stage.configured("hostile", json!({"describe": describe}));
            let good = StaticPlugin {
                limits: unhurried(),
                ..stage.host.spec("app-service").unwrap()
            };
            stage.start(vec![bad, good]).await;
            app_service_is_steered(&stage).await;
            let said = stage.lines(&["ERROR", "the plugin cannot be used", "hostile.wasm", words]);
            assert_eq!(said.len(), 1, "{describe}:\n{}", stage.lines(&["hostile"]).join("\n"));
            assert!(
                stage.all("Hostile").is_empty()
                    && stage
                        .find("CustomResourceDefinition", "hostiles.hostile.test.dev")
                        .is_none()
            );
            stage.stop().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_has_no_usable_plugin_ends_and_says_so() {
        let mut stage = Stage::empty(unhurried());
        let bad = stage.configured("hostile", json!({"describe": "garbage"}));
        stage.start(vec![bad]).await;
        let ended = stage.until_ended().await;
        assert!(ended.contains("none of the plugins can be used"), "{ended}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_whose_kind_is_not_served_waits_and_then_starts() {
        let mut stage = Stage::empty(unhurried());
        let waiting = stage.configured("hostile", json!({"describe": "unserved-kind"}));
        let good = stage.host.spec("app-service").unwrap();
        stage.start(vec![waiting, good]).await;
        app_service_is_steered(&stage).await;
        stage
            .create(&hostile("early", &json!({"behaviour": "config-map"})))
            .await;
        stage.minute().await;
        stage.minute().await;
        let said = stage.lines(&["WARN", "waiting: the cluster does not serve"]);
        assert_eq!(said.len(), 1, "{}", said.join("\n"));
        for words in [
            "unserved.test.dev/v1 Unserved",
            "plugin=\"hostile\"",
            "install what brings it",
        ] {
            assert!(said[0].contains(words), "{words}: {}", said[0]);
        }
        let condition = stage.reconciled("Hostile", "early").expect("the object says so, too");
        let told = (&condition["status"], &condition["reason"]);
        assert_eq!(told, (&json!("False"), &json!("NotSynced")));
        let message = condition["message"].as_str().unwrap();
        for words in [
            "waits",
            "does not serve unserved.test.dev/v1 Unserved",
            "install what brings it",
        ] {
            assert!(message.contains(words), "{words}: {message}");
        }
        assert_eq!(stage.events("early", "ReconcileFailed").len(), 1);
        let mark = stage.mark();
        stage.minute().await;
        assert!(stage.host_writes_since(mark).is_empty(), "it is said once");

        stage.create(&unserved_crd()).await;
        let steered = stage
            .until(|stage| stage.is_reconciled("Hostile", "early").then_some(()))
            .await;
        assert!(steered.is_some(), "{}", stage.lines(&["hostile"]).join("\n"));
        assert_eq!(
            stage
                .lines(&["INFO", "the missing kind is served now", "hostile"])
                .len(),
            1
        );
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_that_claim_one_name_or_one_crd_the_first_has_it() {
        let named = |stage: &Stage, name: Option<&str>| StaticPlugin {
            name: name.map(str::to_owned),
            ..stage.host.spec("app-service").unwrap()
        };
        for (name, words) in [
            (
                None,
                "it is called app-service, as another plugin is; give it a name with --plugin NAME=FILE",
            ),
            (
                Some("second"),
                "it brings the CRD of AppService, which plugin app-service brings already; run one of them",
            ),
            (
                Some("No Label"),
                "the name \"No Label\" cannot be used; it must be a DNS label",
            ),
        ] {
            let mut stage = Stage::empty(unhurried());
            let specs = vec![named(&stage, None), named(&stage, name)];
            stage.start(specs).await;
            app_service_is_steered(&stage).await;
            let said = stage.lines(&["ERROR", "the plugin cannot be used", words]);
            assert_eq!(said.len(), 1, "{words}:\n{}", stage.lines(&[]).join("\n"));
            stage.stop().await;
        }
    }
}
