//! Tests of a plugin's webhook configurations: they stay while the plugin is suspended, exchanged, or starts again, are
//! deleted with the plugin, and are reported where the host serves no webhooks.

mod simulated {
    use std::time::Duration;

    use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
    use kube::api::{DeleteParams, PostParams};
    use kube::{Api, Client};
    use pilothouse_end_to_end::host::webhooks;
    use pilothouse_end_to_end::stage::{Stage, create};
    use pilothouse_runtime::HostOptions;
    use pilothouse_testkit::cluster::{Cluster, Mark};
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};

    use crate::fleet::Fleet;

    const HARBOUR: &str = "harbour";

    const GROUP: &str = "admissionregistration.k8s.io";

    async fn harbour() -> Cluster {
        let cluster = Cluster::simulated();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HARBOUR}});
        create(cluster.client().await.unwrap(), &namespace).await;
        cluster
    }

    async fn served() -> Fleet {
        let options = HostOptions {
            webhooks: Some(webhooks(HARBOUR, "webhooks").unwrap()),
            ..HostOptions::default()
        };
        Fleet::start_with(harbour().await, options).await
    }

    fn uids(stage: &Stage) -> Vec<Value> {
        let kinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
        let configurations = kinds.iter().flat_map(|kind| stage.all(kind));
        configurations
            .map(|configuration| configuration["metadata"]["uid"].clone())
            .collect()
    }

    /// Requests of the host that delete a configuration.
    fn removals(stage: &Stage, mark: Mark) -> usize {
        let requests = stage.host_writes_since(mark);
        let removes = requests
            .iter()
            .filter(|request| request.verb == "delete" && request.group == GROUP);
        removes.count()
    }

    /// Waits until the host has looked at all configurations again.
    async fn until_looked_at(fleet: &Fleet, mark: Mark) {
        fleet
            .until("the host looks for what is left", |stage| {
                let requests = stage.cluster.requests_since(mark).unwrap();
                requests
                    .iter()
                    .any(|request| request.verb == "list" && request.resource == "validatingwebhookconfigurations")
            })
            .await;
    }

    fn gate(name: &str, size: i64) -> Value {
        let metadata = json!({"name": name, "namespace": "default"});
        json!({"apiVersion": "gate.test.dev/v1", "kind": "Gate", "metadata": metadata, "spec": {"size": size}})
    }

    /// Creates a gate, and returns the message if it is refused.
    async fn try_gate(client: Client, name: &str, size: i64) -> Option<String> {
        let kind = kube::core::GroupVersionKind::gvk("gate.test.dev", "v1", "Gate");
        let gates: Api<kube::api::DynamicObject> =
            Api::namespaced_with(client, "default", &kube::core::ApiResource::from_gvk(&kind));
        let gate = serde_json::from_value(gate(name, size)).unwrap();
        let made = gates.create(&PostParams::default(), &gate).await;
        made.err().map(|error| error.to_string())
    }

    #[tokio::test]
    async fn what_asks_a_plugin_stays_while_it_is_away_and_goes_with_it() {
        let mut fleet = served().await;
        fleet.put("gate", "gate.wasm", 0);
        fleet.plugin("gate", json!({"source": {"file": "gate.wasm"}})).await;
        fleet.is_ready("gate").await;
        fleet.until("both are there", |stage| uids(stage).len() == 2).await;
        let (made, mark) = (uids(&fleet.stage), fleet.stage.mark());

        let suspended = fleet.stage.mark();
        fleet.change("gate", json!({"mode": "Suspended"})).await;
        fleet.says("gate", "Ready", "False", "Suspended").await;
        until_looked_at(&fleet, suspended).await;
        assert_eq!(uids(&fleet.stage), made, "suspended: {}", fleet.log());
        let refused = try_gate(fleet.client().await, "late", 1).await.unwrap_or_default();
        assert!(refused.contains("plugin gate does not run at the moment"), "{refused}");

        fleet.change("gate", json!({"mode": "Active"})).await;
        fleet.is_ready("gate").await;
        fleet.put("gate", "gate.wasm", 1);
        fleet
            .until("the new version has taken over", |stage| {
                !stage.lines(&["a new version has taken over"]).is_empty()
            })
            .await;
        assert_eq!(uids(&fleet.stage), made, "exchanged");

        fleet.stage.host.stop().await.unwrap();
        let stopped = fleet.stage.mark();
        fleet.start_host().await;
        fleet.is_ready("gate").await;
        until_looked_at(&fleet, stopped).await;
        assert_eq!(uids(&fleet.stage), made, "started again");
        assert_eq!(removals(&fleet.stage, mark), 0);

        // One that cannot be used is stopped, too, and not gone.
        fleet.stage.host.stop().await.unwrap();
        fleet.change("gate", json!({"source": {"file": "nowhere.wasm"}})).await;
        let spoilt = fleet.stage.mark();
        fleet.start_host().await;
        fleet.says("gate", "Fetched", "False", "FetchFailed").await;
        until_looked_at(&fleet, spoilt).await;
        assert_eq!(uids(&fleet.stage), made);

        fleet.delete("gate").await;
        fleet
            .until("they go with the plugin", |stage| uids(stage).is_empty())
            .await;
        fleet.stage.stop().await;
    }

    /// The role that owns the configurations.
    const ROLE: &str = "harbour:host";

    async fn make_role(fleet: &Fleet) -> Value {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": ROLE}, "rules": [],
        });
        create(fleet.client().await, &role).await;
        fleet.stage.find("ClusterRole", ROLE).unwrap()["metadata"]["uid"].clone()
    }

    /// Waits until this role is the only owner of both configurations.
    async fn until_owned(fleet: &Fleet, uid: &Value) {
        let owner =
            json!([{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": ROLE, "uid": uid}]);
        fleet
            .until("the role owns both", |stage| {
                let kinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
                let found: Vec<Value> = kinds.iter().flat_map(|kind| stage.all(kind)).collect();
                found.len() == 2 && found.iter().all(|it| it["metadata"]["ownerReferences"] == owner)
            })
            .await;
    }

    #[tokio::test]
    async fn configurations_are_owned_by_the_live_cluster_role_if_any() {
        let mut webhooks = webhooks(HARBOUR, "webhooks").unwrap();
        webhooks.owner = Some(ROLE.to_owned());
        let options = HostOptions {
            webhooks: Some(webhooks),
            ..HostOptions::default()
        };
        let mut fleet = Fleet::start_with(harbour().await, options).await;
        fleet.put("gate", "gate.wasm", 0);
        fleet.plugin("gate", json!({"source": {"file": "gate.wasm"}})).await;
        fleet.is_ready("gate").await;
        fleet
            .until("they are made without an owner", |stage| uids(stage).len() == 2)
            .await;
        let said = [
            "cannot read the ClusterRole harbour:host",
            "it is not there",
            "--webhook-owner",
        ];
        fleet
            .until("the log says that there is none", |stage| {
                !stage.lines(&said).is_empty()
            })
            .await;

        let first = make_role(&fleet).await;
        until_owned(&fleet, &first).await;
        let crd = fleet
            .stage
            .find("CustomResourceDefinition", "gates.gate.test.dev")
            .unwrap();
        assert_eq!(crd["spec"]["conversion"]["strategy"], "Webhook");
        assert_eq!(
            crd["metadata"]["ownerReferences"],
            Value::Null,
            "its objects would go, too"
        );
        fleet.stage.host.stop().await.unwrap();
        let mark = fleet.stage.mark();
        fleet.start_host().await;
        fleet.is_ready("gate").await;
        until_looked_at(&fleet, mark).await;
        let written = fleet.stage.host_writes_since(mark).into_iter();
        let written: Vec<String> = written
            .filter(|request| request.group == GROUP)
            .map(|request| request.to_string())
            .collect();
        assert_eq!(written, Vec::<String>::new(), "an owner is no drift");

        // The role is made anew: what it owned is collected, and made again by a host that starts.
        fleet.stage.host.stop().await.unwrap();
        let roles: Api<k8s_openapi::api::rbac::v1::ClusterRole> = Api::all(fleet.client().await);
        roles.delete(ROLE, &DeleteParams::default()).await.unwrap();
        fleet
            .until("they go with their owner", |stage| uids(stage).is_empty())
            .await;
        let second = make_role(&fleet).await;
        assert_ne!(first, second);
        fleet.start_host().await;
        until_owned(&fleet, &second).await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_without_webhooks_names_what_still_asks_and_leaves_it() {
        let cluster = harbour().await;
        let client = cluster.client().await.unwrap();
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client);
        for (name, plugin) in [("pilothouse-hostile", "hostile"), ("pilothouse-other", "other")] {
            let labels = json!({"pilothouse.dev/plugin": plugin, "pilothouse.dev/webhooks": "elsewhere.webhooks"});
            let configuration = json!({"metadata": {"name": name, "labels": labels}, "webhooks": []});
            let configuration = serde_json::from_value(configuration).unwrap();
            configurations
                .create(&PostParams::default(), &configuration)
                .await
                .unwrap();
        }
        let fleet = Fleet::start_with(cluster, HostOptions::default()).await;
        fleet.put("hostile", "hostile.wasm", 0);
        fleet
            .plugin("hostile", json!({"source": {"file": "hostile.wasm"}}))
            .await;
        fleet.is_ready("hostile").await;
        fleet.says("hostile", "Admitting", "Unknown", "WebhooksNotServed").await;
        let said = fleet.condition("hostile", "Admitting")["message"].clone();
        let command = "kubectl delete validatingwebhookconfigurations/pilothouse-hostile";
        assert!(said.as_str().unwrap().contains(command), "{said}");
        assert_eq!(fleet.stage.lines(&[command]).len(), 1, "{}", fleet.log());
        assert!(
            fleet.stage.lines(&["pilothouse-other"]).is_empty(),
            "it is not of this host's plugins"
        );
        assert_eq!(
            fleet.stage.all("ValidatingWebhookConfiguration").len(),
            2,
            "nothing is removed"
        );

        configurations
            .delete("pilothouse-hostile", &DeleteParams::default())
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_mins(61)).await;
        fleet
            .until("it is not told any more", |stage| {
                let plugin = stage.find("Plugin", "hostile").unwrap();
                let conditions = plugin["status"]["conditions"].as_array().unwrap().clone();
                conditions.iter().all(|condition| condition["type"] != "Admitting")
            })
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_may_not_look_for_what_asks_goes_on() {
        use pilothouse_simulator::{Fault, Rule};
        let cluster = harbour().await;
        let Cluster::Simulated(simulated) = &cluster else {
            unreachable!("it is simulated")
        };
        for resource in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
            let rule = Rule::new(Fault::Status {
                code: 403,
                retry_after: None,
            })
            .resource(resource);
            simulated.simulator().faults().add(rule);
        }
        let fleet = Fleet::start_with(cluster, HostOptions::default()).await;
        fleet.put("hostile", "hostile.wasm", 0);
        fleet
            .plugin("hostile", json!({"source": {"file": "hostile.wasm"}}))
            .await;
        fleet.is_ready("hostile").await;
        fleet
            .until("it is said once", |stage| {
                stage.lines(&["cannot look for validatingwebhookconfigurations"]).len() == 1
            })
            .await;
        assert!(fleet.condition("hostile", "Admitting").is_null());
        fleet.stage.stop().await;
    }
}
