//! A host that sees some namespaces only: it lists and watches nothing elsewhere, whatever Plugins say.

mod simulated {
    use pilothouse_end_to_end::stage::app_service;
    use pilothouse_runtime::HostOptions;
    use pilothouse_testkit::cluster::Cluster;
    use serde_json::{Value, json};

    use crate::fleet::Fleet;

    async fn fleet_in(namespaces: &[&str]) -> Fleet {
        let options = HostOptions {
            watch_namespaces: namespaces.iter().map(|it| (*it).to_owned()).collect(),
            ..HostOptions::default()
        };
        let fleet = Fleet::start_with(Cluster::simulated(), options).await;
        for name in ["shop", "stage", "bank"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            fleet.stage.create(&namespace).await;
        }
        fleet.put("app-service", "a.wasm", 0);
        fleet
    }

    fn object(namespace: &str) -> Value {
        let mut object = app_service(&format!("in-{namespace}"));
        object["metadata"]["namespace"] = json!(namespace);
        object["spec"]["ports"] = json!([]);
        object
    }

    #[tokio::test(start_paused = true)]
    async fn plugins_work_only_in_watched_namespaces() {
        let fleet = fleet_in(&["shop", "stage"]).await;
        let mark = fleet.stage.mark();
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        for namespace in ["shop", "stage", "bank"] {
            fleet.stage.create(&object(namespace)).await;
        }
        fleet
            .until("what it sees is reconciled", |stage| {
                ["in-shop", "in-stage"]
                    .iter()
                    .all(|name| stage.is_reconciled("AppService", name))
            })
            .await;
        fleet.stage.minute().await;
        assert!(fleet.stage.reconciled("AppService", "in-bank").is_none());
        assert_eq!(fleet.status("it")["controllers"][0]["objects"], 2);
        let requests = fleet.stage.cluster.requests_since(mark).unwrap();
        let own = [
            "plugins",
            "customresourcedefinitions",
            "mutatingwebhookconfigurations",
            "validatingwebhookconfigurations",
        ];
        let elsewhere: Vec<String> = requests
            .iter()
            .filter(|request| request.is_by_host() && !request.resource.is_empty())
            .filter(|request| !["shop", "stage"].contains(&&*request.namespace) && !own.contains(&&*request.resource))
            .map(ToString::to_string)
            .collect();
        assert_eq!(elsewhere, Vec::<String>::new());
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_for_unwatched_namespaces_is_refused_or_narrowed() {
        let fleet = fleet_in(&["shop", "stage"]).await;
        fleet
            .plugin("it", json!({"source": {"file": "a.wasm"}, "namespaces": ["bank"]}))
            .await;
        let said = fleet.says("it", "Ready", "False", "InvalidSpec").await;
        let words = "spec.namespaces names none of the namespaces that this host sees (--watch-namespaces shop,stage)";
        assert!(said["message"].as_str().unwrap().contains(words), "{said}");
        fleet.change("it", json!({"namespaces": ["bank", "shop"]})).await;
        fleet.is_ready("it").await;
        for namespace in ["shop", "stage", "bank"] {
            fleet.stage.create(&object(namespace)).await;
        }
        fleet
            .until("the one is reconciled", |stage| {
                stage.is_reconciled("AppService", "in-shop")
            })
            .await;
        fleet.stage.minute().await;
        for name in ["in-stage", "in-bank"] {
            assert!(fleet.stage.reconciled("AppService", name).is_none(), "{name}");
        }
        fleet.stage.stop().await;
    }
}
