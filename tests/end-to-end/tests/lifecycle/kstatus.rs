//! Tests of kstatus for each plugin's sample while the API server fails, and when it works again. Objects that fail for
//! good are in the scenario files. On a real API server: `kubectl wait` and kstatus while an object is edited.

mod simulated {
    use kube::Api;
    use kube::api::{DynamicObject, PostParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_core::Limits;
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_end_to_end::stage::{Stage, app_service};
    use pilothouse_runtime::HostOptions;
    use pilothouse_simulator::{Fault, Rule};
    use pilothouse_testkit::host::SteeredHost as _;
    use pilothouse_testkit::kstatus::{self, Status};
    use serde_json::{Value, json};

    fn in_default(mut object: Value) -> Value {
        object["metadata"]["namespace"] = json!("default");
        object
    }

    fn sample(file: &str) -> Value {
        let path = format!("{}/../../deploy/samples/{file}.yaml", env!("CARGO_MANIFEST_DIR"));
        serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    /// Plays the sample while one kind of write is answered 503, and without that.
    async fn while_unavailable(plugin: &str, file: &str, around: &[Value], reason: &str, failing: Rule) {
        let stage = Stage::with(&[plugin], Limits::default()).await;
        for object in around {
            stage.create(object).await;
        }
        let object = sample(file);
        let kind = object["kind"].as_str().unwrap();
        let name = object["metadata"]["name"].as_str().unwrap();
        let object = if kind == "EcsBinding" {
            object.clone()
        } else {
            in_default(object.clone())
        };
        stage.simulator().faults().add(failing);
        create(&stage, &object).await;
        let status = |stage: &Stage| {
            let object = stage.find(kind, name)?;
            object.get("status")?;
            Some(kstatus::compute(&object).unwrap().status)
        };
        let condition = |stage: &Stage, condition_type: &str| {
            let object = stage.find(kind, name)?;
            let conditions = object["status"]["conditions"].as_array()?;
            conditions.iter().find(|it| it["type"] == condition_type).cloned()
        };

        let failed = stage.until(|stage| condition(stage, "Reconciling")).await;
        let failed =
            failed.unwrap_or_else(|| panic!("{kind}: {:?}\n{}", stage.find(kind, name), stage.host.log_tail()));
        assert_eq!(
            (&failed["status"], &failed["reason"]),
            (&json!("True"), &json!(reason)),
            "{failed}"
        );
        assert_eq!(failed["observedGeneration"], 1);
        assert_eq!(condition(&stage, "Stalled"), None, "{kind}");
        assert_eq!(status(&stage), Some(Status::InProgress), "{kind}");

        // It is retried with back-off, and says the same each time.
        let mark = stage.mark();
        stage.minute().await;
        let mut writes = stage.host_writes_since(mark);
        writes.retain(|write| write.subresource == "status");
        assert_eq!(writes, [], "{kind}");

        stage.simulator().faults().clear();
        let current = stage
            .until(|stage| (status(stage) == Some(Status::Current)).then_some(()))
            .await;
        assert!(current.is_some(), "{kind}: {:?}", stage.find(kind, name));
        assert_eq!(condition(&stage, "Reconciling"), None, "{kind}");
        stage.stop().await;
    }

    /// Creates an object, also an `EcsBinding`, whose plural is its singular.
    async fn create(stage: &Stage, object: &Value) {
        if object["kind"] != "EcsBinding" {
            return stage.create(object).await;
        }
        let kind = GroupVersionKind::gvk("hopegi.com", "v1", "EcsBinding");
        let resource = ApiResource::from_gvk_with_plural(&kind, "ecsbinding");
        let bindings: Api<DynamicObject> = Api::all_with(stage.cluster.client().await.unwrap(), &resource);
        let object = serde_json::from_value(object.clone()).unwrap();
        bindings.create(&PostParams::default(), &object).await.unwrap();
    }

    fn unavailable() -> Rule {
        Rule::new(Fault::Status {
            code: 503,
            retry_after: None,
        })
    }

    fn writes_of(plural: &'static str) -> Rule {
        unavailable().writes().resource(plural)
    }

    const REASON: &str = "ClusterUnavailable";

    #[tokio::test(start_paused = true)]
    async fn an_app_service_is_in_progress_while_its_write_fails() {
        while_unavailable("app-service", "app-service", &[], REASON, writes_of("deployments")).await;
    }

    #[tokio::test(start_paused = true)]
    async fn both_reverse_proxies_are_in_progress_with_a_known_reason() {
        for file in ["reverse-proxy", "tcp-reverse-proxy"] {
            while_unavailable("reverse-proxy", file, &[], "Failure", writes_of("configmaps")).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_ecs_binding_is_in_progress_while_its_write_fails() {
        // A patch: the object itself is created by the test.
        let label = unavailable()
            .verbs(&["patch"])
            .when(|asked| asked.resource == "ecsbinding" && asked.subresource.is_empty());
        while_unavailable("ecs-binding", "ecs-binding", &[], REASON, label).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ingress_is_in_progress_while_its_write_fails() {
        let object = |kind: &str, namespace: &str, name: &str| {
            let mut object =
                json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}});
            if kind == "Service" {
                object["spec"] = json!({"ports": [{"port": 5432}]});
            }
            object
        };
        let mut around = [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ingress-nginx"}}),
            object("ConfigMap", "ingress-nginx", "tcp-services"),
            object("Service", "ingress-nginx", "ingress-nginx-controller"),
            object("Service", "default", "postgres"),
        ];
        around[2]["spec"]["ports"] = json!([{"name": "http", "port": 80}]);
        while_unavailable(
            "stream-ingress",
            "stream-ingress",
            &around,
            REASON,
            writes_of("configmaps"),
        )
        .await;
    }

    /// The status follows from the object and the cluster, so neither host takes back what the other wrote.
    #[tokio::test(start_paused = true)]
    async fn two_hosts_agree_on_what_is_stalled_and_what_is_retried() {
        let stage = Stage::with(&["app-service"], Limits::default()).await;
        let mut second = RuntimeHost::new(HostOptions::default(), Limits::default());
        let specs = vec![second.spec("app-service").unwrap()];
        second.start_with(&stage.cluster, specs).await.unwrap();
        second.settled().await.unwrap();
        stage.simulator().faults().add(writes_of("services"));
        let mut stalled = app_service("stalled");
        stalled["spec"]["ports"] = json!([
            {"name": "dns", "port": 53, "targetPort": "dns"},
            {"name": "dns-udp", "port": 53, "targetPort": "dns", "protocol": "UDP"},
        ]);
        stage.create(&stalled).await;
        stage.create(&app_service("retried")).await;
        let read = |stage: &Stage, name: &str| {
            let object = stage.find("AppService", name)?;
            object.get("status")?;
            Some(kstatus::compute(&object).unwrap().status)
        };
        let both = |stage: &Stage, retried: Status| {
            let both = [read(stage, "stalled"), read(stage, "retried")];
            (both == [Some(Status::Failed), Some(retried)]).then_some(())
        };
        assert!(stage.until(|stage| both(stage, Status::InProgress)).await.is_some());
        for _ in 0..6 {
            stage.minute().await;
        }
        let mark = stage.mark();
        for _ in 0..6 {
            stage.minute().await;
        }
        let mut writes = stage.host_writes_since(mark);
        writes.retain(|write| write.subresource == "status");
        assert_eq!(writes, []);
        assert!(both(&stage, Status::InProgress).is_some());
        stage.simulator().faults().clear();
        for _ in 0..6 {
            stage.minute().await;
        }
        assert!(
            both(&stage, Status::Current).is_some(),
            "{:?}",
            stage.find("AppService", "retried")
        );
        assert!(second.stop().await.unwrap().is_empty());
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_with_an_ingress_has_no_condition_of_the_hosts() {
        let stage = Stage::with(&["service-ingress"], Limits::default()).await;
        let service = in_default(sample("service-ingress"));
        let name = service["metadata"]["name"].as_str().unwrap();
        stage.simulator().faults().add(writes_of("ingresses"));
        stage.create(&service).await;
        let told = stage.until(|stage| stage.events(name, "ReconcileFailed").pop()).await;
        assert!(told.is_some());
        let found = stage.find("Service", name).unwrap();
        assert_eq!(found["status"]["conditions"], Value::Null);
        assert_eq!(kstatus::compute(&found).unwrap().status, Status::Current);
        stage.simulator().faults().clear();
        assert!(stage.until(|stage| stage.find("Ingress", name)).await.is_some());
        stage.stop().await;
    }
}

mod real {
    use std::process::Stdio;

    use kube::Api;
    use kube::api::{DynamicObject, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_end_to_end::stage::app_service;
    use pilothouse_runtime::HostOptions;
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_testkit::controlplane::Options;
    use pilothouse_testkit::kstatus::{self, Status};
    use serde_json::{Value, json};
    use tokio::process::Command;

    use crate::fleet::{Fleet, condition, until_real};

    /// Runs `kubectl wait` on the AppService `web`. Whether it succeeds is the answer; none where there is no kubectl: it
    /// is not among the programs that the tests download.
    async fn kubectl_wait(fleet: &Fleet, condition: &str) -> Option<bool> {
        let kubeconfig = fleet.stage.cluster.host_kubeconfig().unwrap();
        let output = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--namespace", "default", "wait", "appservice/web", "--timeout=60s"])
            .arg(format!("--for=condition={condition}"))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await;
        match output {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                println!("kubectl wait --for=condition={condition}: {} {said}", output.status);
                Some(output.status.success())
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                println!("there is no kubectl; its wait for {condition} is not run");
                None
            }
            Err(error) => panic!("kubectl does not start: {error}"),
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn kubectl_wait_and_kstatus_follow_an_object_through_its_edits() {
        // A host follows all Plugins of its cluster, and another test has one on the shared cluster.
        let cluster = Cluster::real_with(Options::default()).await.unwrap();
        let fleet = Fleet::start_with(cluster, HostOptions::default()).await;
        fleet.put("app-service", "it.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "it.wasm"}})).await;
        until_real("the Plugin is ready", &fleet, async || {
            let plugin = fleet.plugins().await.get("it").await.unwrap();
            condition(&plugin.data["status"], "Ready")["status"] == "True"
        })
        .await;
        let object = app_service("web");
        let (group, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, "AppService"));
        let services: Api<DynamicObject> = Api::namespaced_with(
            fleet.client().await,
            object["metadata"]["namespace"].as_str().unwrap(),
            &resource,
        );
        let read = async || serde_json::to_value(services.get("web").await.unwrap()).unwrap();
        let settles = async |expected: Status| {
            until_real(&format!("kstatus says {expected}"), &fleet, async || {
                kstatus::compute(&read().await).unwrap().status == expected
            })
            .await;
        };
        let edit = async |spec: Value| {
            let patch = Patch::Merge(json!({ "spec": spec }));
            services.patch("web", &PatchParams::default(), &patch).await.unwrap();
        };

        fleet.stage.create(&object).await;
        assert_ne!(kubectl_wait(&fleet, "Reconciled").await, Some(false));
        settles(Status::Current).await;
        assert_eq!(condition(&read().await["status"], "Reconciled")["status"], "True");

        let taken = json!([
            {"name": "dns", "port": 53, "targetPort": "dns"},
            {"name": "dns-udp", "port": 53, "targetPort": "dns", "protocol": "UDP"},
        ]);
        edit(json!({ "ports": taken })).await;
        assert_ne!(kubectl_wait(&fleet, "Stalled").await, Some(false));
        settles(Status::Failed).await;
        assert_ne!(kubectl_wait(&fleet, "Reconciled=false").await, Some(false));

        edit(json!({"ports": object["spec"]["ports"]})).await;
        assert_ne!(kubectl_wait(&fleet, "Reconciled").await, Some(false));
        settles(Status::Current).await;
        let object = read().await;
        assert_eq!(object["status"]["observedGeneration"], object["metadata"]["generation"]);

        // The same of the Plugin: a version that is refused, and its correction.
        let plugin_is = async |expected: Status| {
            until_real(&format!("kstatus says {expected} of the Plugin"), &fleet, async || {
                let plugin = serde_json::to_value(fleet.plugins().await.get("it").await.unwrap()).unwrap();
                kstatus::compute(&plugin).unwrap().status == expected
            })
            .await;
        };
        plugin_is(Status::Current).await;
        fleet.change("it", json!({"source": {"file": "none.wasm"}})).await;
        plugin_is(Status::Failed).await;
        fleet.change("it", json!({"source": {"file": "it.wasm"}})).await;
        plugin_is(Status::Current).await;
        fleet.stage.stop().await;
    }
}
