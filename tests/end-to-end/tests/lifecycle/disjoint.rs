//! Several hosts in one cluster, each with the Plugins that its selector chooses.

mod simulated {
    use std::collections::BTreeSet;

    use kube::Api;
    use kube::api::{DynamicObject, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_core::kubernetes::selector::Selector;
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_end_to_end::stage::{app_service, create, hostile, unhurried};
    use pilothouse_runtime::HostOptions;
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::json;

    use crate::fleet::{Fleet, plugin};

    fn host(selector: &str) -> RuntimeHost {
        let options = HostOptions {
            plugin_selector: Selector::parse(selector).unwrap(),
            instance: selector.to_owned(),
            ..HostOptions::default()
        };
        RuntimeHost::new(options, unhurried())
    }

    /// Makes a Plugin with the label `team`, whose component is `NAME.wasm`.
    async fn plugin_of(fleet: &Fleet, name: &str, team: &str) {
        fleet.put(name, &format!("{name}.wasm"), 0);
        let mut plugin = plugin(name, json!({"source": {"file": format!("{name}.wasm")}}));
        plugin["metadata"]["labels"] = json!({"team": team});
        create(fleet.client().await, &plugin).await;
    }

    /// Gives a Plugin to another team.
    async fn hand_over(fleet: &Fleet, name: &str, team: &str) {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"team": team}}}));
        let plugins = fleet.plugins().await;
        let _ = plugins.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// The plugins with lanes in a host.
    fn plugins_of(host: &RuntimeHost) -> Vec<String> {
        let lanes = host.handle().unwrap().depths().into_iter();
        // A lane is called PLUGIN/CONTROLLER.
        let names: BTreeSet<String> = lanes
            .map(|(lane, _)| lane.split('/').next().unwrap_or_default().to_owned())
            .collect();
        names.into_iter().collect()
    }

    #[tokio::test(start_paused = true)]
    async fn each_host_runs_selected_plugins_and_hands_over_silently() {
        let fleet = Fleet::start_host_with(Cluster::simulated(), host("team=a")).await;
        let mut second = host("team in (b,c)");
        second
            .start_by_resources(&fleet.stage.cluster, fleet.path(""))
            .await
            .unwrap();
        plugin_of(&fleet, "app-service", "a").await;
        plugin_of(&fleet, "hostile", "b").await;
        fleet.is_ready("app-service").await;
        fleet.is_ready("hostile").await;
        fleet.stage.create(&app_service("web")).await;
        fleet
            .stage
            .create(&hostile("map", &json!({"behaviour": "config-map"})))
            .await;
        let is_done = |kind: &'static str, name: &'static str| {
            fleet.until("it is reconciled", move |stage| stage.is_reconciled(kind, name))
        };
        is_done("AppService", "web").await;
        is_done("Hostile", "map").await;
        assert_eq!(plugins_of(&fleet.stage.host), ["app-service"]);
        assert_eq!(plugins_of(&second), ["hostile"]);

        let mark = fleet.stage.mark();
        hand_over(&fleet, "app-service", "c").await;
        fleet
            .until("the second host runs both", |_| {
                plugins_of(&second) == ["app-service", "hostile"]
            })
            .await;
        fleet
            .until("the first host runs none", |stage| plugins_of(&stage.host).is_empty())
            .await;
        second.settled().await.unwrap();
        fleet.stage.minute().await;
        let written: Vec<String> = fleet
            .stage
            .host_writes_since(mark)
            .iter()
            .filter(|request| request.resource != "plugins")
            .map(ToString::to_string)
            .collect();
        assert_eq!(written, Vec::<String>::new());
        // The host that has it now looks after what it has not made.
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kosmos.io", "v1", "AppService"));
        let apps: Api<DynamicObject> = Api::namespaced_with(fleet.client().await, "default", &kind);
        let larger = Patch::Merge(json!({"spec": {"size": 3}}));
        let _ = apps.patch("web", &PatchParams::default(), &larger).await.unwrap();
        fleet
            .until("the Deployment follows", |stage| {
                stage
                    .find("Deployment", "web")
                    .is_some_and(|child| child["spec"]["replicas"] == 3)
            })
            .await;
        second.stop().await.unwrap();
    }
}
