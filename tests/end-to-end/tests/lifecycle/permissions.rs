//! Rights that the host lacks: all are named together, with the user, and events are told only where they may be.

mod simulated {
    use pilothouse_end_to_end::stage::{Stage, hostile};
    use pilothouse_testkit::host::SteeredHost as _;
    use pilothouse_testkit::requests::HOST_ACCOUNT;
    use serde_json::json;

    use crate::fleet::Fleet;

    fn warning(stage: &Stage) -> String {
        let plugin = stage.find("Plugin", "it").unwrap_or_default();
        plugin["status"]["warnings"][0].as_str().unwrap_or_default().to_owned()
    }

    /// A Plugin whose host is denied these, as `verb resource` or `verb resource/subresource`.
    async fn fleet_without(denied: &'static [&str]) -> Fleet {
        let fleet = Fleet::start().await;
        fleet.stage.simulator().rights().deny(move |asked| {
            let resource = match asked.subresource.as_str() {
                "" => asked.resource.clone(),
                subresource => format!("{}/{subresource}", asked.resource),
            };
            asked.user_agent == HOST_ACCOUNT && denied.contains(&&*format!("{} {resource}", asked.verb))
        });
        fleet.put("hostile", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_right_to_events_a_plugin_works_and_says_so_once() {
        let mut fleet = fleet_without(&["list events", "create events"]).await;
        fleet.is_ready("it").await;
        for name in ["well", "ill"] {
            let behaviour = if name == "well" {
                "config-map"
            } else {
                "permanent-failure"
            };
            let object = hostile(name, &json!({"behaviour": behaviour}));
            fleet.stage.create(&object).await;
        }
        fleet
            .until("one is reconciled, and the other says why not", |stage| {
                stage.is_reconciled("Hostile", "well") && stage.reconciled("Hostile", "ill").is_some()
            })
            .await;
        let words = r#"user "pilothouse-host" may not list events in all namespaces; create events.events.k8s.io in all namespaces; grant these rights"#;
        fleet.until("it is told", |stage| warning(stage) == words).await;
        assert_eq!(fleet.stage.lines(&["WARN", words]).len(), 1, "{}", fleet.log());
        let mark = fleet.stage.mark();
        fleet.stage.host.resync().await.unwrap();
        fleet.stage.minute().await;
        let mut writes = fleet.stage.host_writes_since(mark);
        writes.retain(|write| write.resource == "events");
        assert_eq!(writes, []);
        fleet.stage.simulator().rights().grant_all();
        for _ in 0..6 {
            fleet.stage.minute().await;
        }
        fleet
            .until("it is over", |stage| {
                stage.find("Plugin", "it").is_some() && warning(stage).is_empty()
            })
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn all_rights_that_are_missing_are_named_together() {
        let fleet = fleet_without(&[
            "list configmaps",
            "delete configmaps",
            "watch deployments",
            "patch hostiles/status",
            "create events",
        ])
        .await;
        let words = r#"user "pilothouse-host" may not delete, list configmaps in all namespaces; watch deployments.apps in all namespaces; create events.events.k8s.io in all namespaces; patch hostiles.hostile.test.dev/status in all namespaces; grant these rights"#;
        let sorted = |text: &str| {
            let mut parts: Vec<_> = text.split("; ").map(str::to_owned).collect();
            parts.sort();
            parts
        };
        let all = |stage: &Stage| {
            let told = warning(stage).replace("user \"pilothouse-host\" may not ", "");
            sorted(&told) == sorted(&words.replace("user \"pilothouse-host\" may not ", ""))
        };
        fleet.until("all are told", all).await;
        assert!(warning(&fleet.stage).starts_with("user \"pilothouse-host\" may not"));
        let said = fleet
            .stage
            .lines(&["WARN", "may not", "configmaps", "hostiles.hostile.test.dev/status"]);
        assert_eq!(said.len(), 1, "{}", fleet.log());
        fleet.stage.simulator().rights().grant_all();
        fleet.is_ready("it").await;
        fleet.until("it is over", |stage| warning(stage).is_empty()).await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_right_to_install_definitions_is_named_with_all_others() {
        let fleet = fleet_without(&[
            "get customresourcedefinitions",
            "patch customresourcedefinitions",
            "delete configmaps",
            "watch deployments",
            "patch hostiles/status",
            "create events",
        ])
        .await;
        let words = [
            r#"user "pilothouse-host" may not "#,
            "get, patch customresourcedefinitions.apiextensions.k8s.io in all namespaces",
            "delete configmaps in all namespaces",
            "watch deployments.apps in all namespaces",
            "patch hostiles.hostile.test.dev/status in all namespaces",
            "create events.events.k8s.io in all namespaces",
        ];
        fleet
            .until("all are told", |stage| {
                words.iter().all(|words| warning(stage).contains(words))
            })
            .await;
        assert_eq!(
            fleet.stage.lines(&["WARN", words[0], words[1]]).len(),
            1,
            "{}",
            fleet.log()
        );
        let mark = fleet.stage.mark();
        fleet.stage.minute().await;
        let asked = fleet.stage.cluster.requests_since(mark).unwrap();
        let asked = asked
            .iter()
            .filter(|request| request.resource == "selfsubjectaccessreviews");
        assert_eq!(asked.count(), 0, "they are not asked for again and again");
        fleet.stage.simulator().rights().grant_all();
        fleet.is_ready("it").await;
        fleet.until("it is over", |stage| warning(stage).is_empty()).await;
        fleet.stage.stop().await;
    }
}
