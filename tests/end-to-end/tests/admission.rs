//! Tests of admission on a real API server as a user sees it: refusals in the server's messages, defaults, warnings,
//! and that nothing prevents the deletion of an object. The host runs in the test's process; its webhooks have threads
//! of their own.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

mod real {
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use kube::{Api, Client, Error};
    use pilothouse_cluster::resources::webhooks::SecretPlace;
    use pilothouse_core::Limits;
    use pilothouse_core::admission::configuration::Endpoint;
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_end_to_end::program::ended;
    use pilothouse_runtime::{HostOptions, Lifetimes, Maker, WebhookOptions};
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_testkit::controlplane::Options;
    use pilothouse_testkit::host::SteeredHost as _;
    use pilothouse_testkit::requests::TEST_ACCOUNT;
    use serde_json::{Value, json};

    /// Time limit of a wait.
    const WITHIN: Duration = Duration::from_mins(1);

    /// The namespace of the gates, and the one of the Secret.
    const HERE: &str = "admission";
    const HARBOUR: &str = "harbour";

    fn webhooks(lifetimes: Lifetimes, settle: Duration) -> WebhookOptions {
        // The port has to be known before the server has it.
        let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        WebhookOptions {
            listen,
            peer_address: None,
            endpoint: Endpoint::Url(format!("https://{listen}")),
            secret: SecretPlace {
                namespace: HARBOUR.to_owned(),
                name: "webhooks".to_owned(),
            },
            client_ca: None,
            own_namespace: HARBOUR.to_owned(),
            maker: Maker::Host,
            has_unknown_plugins: false,
            owner: None,
            lifetimes,
            settle,
        }
    }

    fn host(webhooks: Option<WebhookOptions>) -> RuntimeHost {
        let options = HostOptions {
            webhooks,
            ..HostOptions::default()
        };
        // The time of a call is no matter here but where a guest loops.
        let limits = Limits {
            call_milliseconds: 1000,
            ..Limits::default()
        };
        RuntimeHost::new(options, limits)
    }

    async fn start(host: &mut RuntimeHost, cluster: &Cluster) {
        let specs = vec![host.spec("gate").unwrap()];
        host.start_with(cluster, specs).await.unwrap();
        host.settled().await.unwrap();
    }

    fn gates(client: &Client, version: &str, namespace: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("gate.test.dev", version, "Gate");
        Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
    }

    fn gate(name: &str, spec: &Value) -> DynamicObject {
        let gate = json!({"apiVersion": "gate.test.dev/v1", "kind": "Gate", "metadata": {"name": name}, "spec": spec});
        serde_json::from_value(gate).unwrap()
    }

    async fn create(client: &Client, name: &str, spec: &Value) -> Result<DynamicObject, Error> {
        gates(client, "v1", HERE)
            .create(&PostParams::default(), &gate(name, spec))
            .await
    }

    async fn make_namespaces(client: &Client) {
        let api: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
        for name in [HERE, HARBOUR] {
            let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            match api.create(&PostParams::default(), &namespace).await {
                Err(Error::Api(status)) if status.code == 409 => {}
                made => drop(made.unwrap()),
            }
        }
    }

    /// Waits until the API server asks: a gate that can only be refused by the host is.
    async fn until_asked(client: &Client, host: &RuntimeHost) {
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let began = Instant::now();
        loop {
            let made = gates(client, "v1", HERE)
                .create(&dry, &gate("probe", &json!({"size": -1})))
                .await;
            if matches!(&made, Err(Error::Api(status)) if status.code == 422) {
                return;
            }
            assert!(began.elapsed() < WITHIN, "{made:?}\n{}", host.log_tail());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn until(what: &str, host: &RuntimeHost, mut holds: impl AsyncFnMut() -> bool) {
        let began = Instant::now();
        while !holds().await {
            assert!(began.elapsed() < WITHIN, "in vain: {what}\n{}", host.log_tail());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn is_reconciled(gate: &DynamicObject) -> bool {
        let conditions = gate.data["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|condition| condition["type"] == "Reconciled" && condition["status"] == "True")
    }

    fn refusal(refused: Result<DynamicObject, Error>) -> Box<kube::core::Status> {
        match refused {
            Err(Error::Api(status)) => status,
            other => panic!("it is not refused: {other:?}"),
        }
    }

    #[tokio::test]
    #[expect(clippy::too_many_lines, reason = "one story on one cluster")]
    async fn a_person_sees_what_the_plugin_says() {
        let cluster = Cluster::real().await.unwrap();
        let _turn = cluster.host_turn().await;
        let client = cluster.client().await.unwrap();
        make_namespaces(&client).await;

        // Without webhooks an invalid gate can be made; somebody's finalizer holds it.
        let mut before = host(None);
        start(&mut before, &cluster).await;
        let mut old = gate("old", &json!({"size": -1}));
        old.metadata.finalizers = Some(vec!["test.dev/hold".to_owned()]);
        gates(&client, "v1", HERE)
            .create(&PostParams::default(), &old)
            .await
            .unwrap();
        before.stop().await.unwrap();

        let mut host = host(Some(webhooks(Lifetimes::default(), Duration::from_secs(30))));
        start(&mut host, &cluster).await;
        until_asked(&client, &host).await;

        let refused = refusal(create(&client, "bad", &json!({"size": 2000, "colour": "invisible"})).await);
        assert_eq!((refused.code, &*refused.reason), (422, "Invalid"));
        for words in [
            "spec.size: Invalid value: 2000: must be 0 to 1000",
            "spec.colour: Invalid value: \"invisible\": must be one that can be seen",
        ] {
            assert!(refused.message.contains(words), "{refused:?}");
        }
        let details = refused.details.unwrap();
        assert_eq!(
            (&*details.name, &*details.kind, details.causes.len()),
            ("bad", "Gate", 2)
        );
        assert_eq!(
            (&*details.causes[0].reason, &*details.causes[0].field),
            ("FieldValueInvalid", "spec.size")
        );

        let made = create(&client, "good", &json!({"size": 1})).await.unwrap();
        assert_eq!(made.data["spec"]["colour"], "blue", "the default is stored");

        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let api = gates(&client, "v1", HERE);
        let made = api.create(&dry, &gate("dry", &json!({"size": 1}))).await.unwrap();
        assert_eq!(made.data["spec"]["colour"], "blue");
        assert!(api.get_opt("dry").await.unwrap().is_none());

        let warned = client
            .send(
                http::Request::post(format!("/apis/gate.test.dev/v1/namespaces/{HERE}/gates?dryRun=All"))
                    .header("content-type", "application/json")
                    .body(
                        serde_json::to_vec(&gate("large", &json!({"size": 500})))
                            .unwrap()
                            .into(),
                    )
                    .unwrap(),
            )
            .await
            .unwrap();
        let warning = warned.headers()["warning"].to_str().unwrap();
        assert!(warning.contains("more than 100 is much for a gate"), "{warning}");

        for (behaviour, words) in [
            ("trap", "the plugin trapped"),
            ("loop", "limit callMilliseconds is 1000"),
        ] {
            let began = Instant::now();
            let refused = refusal(create(&client, "failing", &json!({"size": 1, "behaviour": behaviour})).await);
            assert_eq!(refused.code, 500, "the failure policy decides");
            assert!(refused.message.contains("failed calling webhook"), "{refused:?}");
            assert!(refused.message.contains(words), "{refused:?}");
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "{behaviour} took {:?}",
                began.elapsed()
            );
        }

        let refused = refusal(create(&client, "asking", &json!({"size": 1, "behaviour": "ask-leave"})).await);
        assert!(
            refused
                .message
                .contains("spec.behaviour: Forbidden: there is no ConfigMap leave"),
            "{refused:?}"
        );

        // What the validator reads is a dependency: once leave is gone, the object is refused.
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), HERE);
        let leave = serde_json::from_value(json!({"metadata": {"name": "leave"}})).unwrap();
        maps.create(&PostParams::default(), &leave).await.unwrap();
        until("the cache has it", &host, async || {
            create(&client, "asking", &json!({"size": 1, "behaviour": "ask-leave"}))
                .await
                .is_ok()
        })
        .await;
        let reconciled = async || is_reconciled(&gates(&client, "v1", HERE).get("asking").await.unwrap());
        until("it is reconciled", &host, reconciled).await;
        maps.delete("leave", &DeleteParams::default()).await.unwrap();
        until("it is judged again", &host, async || !reconciled().await).await;
        api.delete("asking", &DeleteParams::default()).await.unwrap();

        let two = gates(&client, "v2", HERE).get("good").await.unwrap();
        assert_eq!(two.data["spec"]["count"], 1, "it is converted");

        let system = gates(&client, "v1", "kube-system");
        system
            .create(&PostParams::default(), &gate("bad", &json!({"size": -1})))
            .await
            .unwrap();
        system.delete("bad", &DeleteParams::default()).await.unwrap();

        // The gate from before: a change is judged, but neither its deletion nor the end of its finalizer.
        let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
        let refused = refusal(api.patch("old", &PatchParams::default(), &label).await);
        assert_eq!(refused.code, 422);
        api.delete("old", &DeleteParams::default()).await.unwrap();
        let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        api.patch("old", &PatchParams::default(), &release).await.unwrap();
        assert!(api.get_opt("old").await.unwrap().is_none());

        // A host that is gone keeps nobody from deleting either; what is asked of it is the failure policy's.
        host.stop().await.unwrap();
        let refused = refusal(create(&client, "late", &json!({"size": 1})).await);
        assert_eq!(refused.code, 500);
        api.delete("good", &DeleteParams::default()).await.unwrap();
        clean_up(&client).await;
    }

    /// Other tests share the control plane.
    async fn clean_up(client: &Client) {
        use k8s_openapi::api::admissionregistration::v1::{
            MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
        };
        let delete = DeleteParams::default();
        let name = "pilothouse-gate";
        let _ = Api::<ValidatingWebhookConfiguration>::all(client.clone())
            .delete(name, &delete)
            .await;
        let _ = Api::<MutatingWebhookConfiguration>::all(client.clone())
            .delete(name, &delete)
            .await;
        let crds = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let crds: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&crds));
        let conversion = Patch::Merge(json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}}));
        crds.patch("gates.gate.test.dev", &PatchParams::default(), &conversion)
            .await
            .unwrap();
    }

    fn definitions(client: &Client) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
    }

    /// Changes the versions of the CRD of gates, which the host writes at the same time.
    async fn change_versions(client: &Client, change: impl Fn(&mut Vec<Value>)) {
        let definitions = definitions(client);
        loop {
            let mut definition = definitions.get("gates.gate.test.dev").await.unwrap();
            change(definition.data["spec"]["versions"].as_array_mut().unwrap());
            let post = PostParams::default();
            match definitions.replace("gates.gate.test.dev", &post, &definition).await {
                Err(Error::Api(status)) if status.code == 409 => {}
                replaced => return drop(replaced.unwrap()),
            }
        }
    }

    async fn store_in(client: &Client, name: &str) {
        change_versions(client, |versions| {
            for version in versions {
                version["storage"] = json!(version["name"] == name);
            }
        })
        .await;
    }

    /// A version of a kind is added with a converter, becomes the storage version, and takes the place of the other one.
    #[tokio::test(flavor = "multi_thread")]
    #[expect(clippy::too_many_lines, reason = "one story on one cluster")]
    async fn a_storage_version_is_migrated_and_the_old_one_removed() {
        let cluster = Cluster::real_with(Options::default()).await.unwrap();
        let client = cluster.client().await.unwrap();
        make_namespaces(&client).await;
        let Cluster::Real(real) = &cluster else {
            panic!("the cluster is real")
        };
        let admin = real.control_plane().kubeconfig_file(TEST_ACCOUNT).unwrap();
        let admin = admin.display().to_string();
        let migrate = async || {
            let arguments = [
                "migrate-storage".to_owned(),
                "gates".to_owned(),
                "--kubeconfig".to_owned(),
                admin.clone(),
            ];
            let run = move || ended(&arguments.each_ref().map(String::as_str));
            tokio::task::spawn_blocking(run).await.unwrap()
        };
        let stored = async || {
            let found = definitions(&client).get("gates.gate.test.dev").await.unwrap();
            found.data["status"]["storedVersions"].clone()
        };
        let mut host = host(Some(webhooks(Lifetimes::default(), Duration::from_secs(30))));
        start(&mut host, &cluster).await;
        until_asked(&client, &host).await;
        for name in ["one", "two"] {
            create(&client, name, &json!({"size": 1})).await.unwrap();
        }
        create(&client, "stays", &json!({"size": 1, "behaviour": "stay"}))
            .await
            .unwrap();
        let are_reconciled = async |count: usize| {
            let reconciled = async || {
                let all = gates(&client, "v1", HERE).list(&ListParams::default()).await.unwrap();
                all.items.len() == count && all.iter().all(is_reconciled)
            };
            until("all gates are reconciled", &host, reconciled).await;
            host.settled().await.unwrap();
        };
        are_reconciled(3).await;
        store_in(&client, "v2").await;
        let third = json!({
            "apiVersion": "gate.test.dev/v2", "kind": "Gate", "metadata": {"name": "three"}, "spec": {"count": 1},
        });
        let third = serde_json::from_value(third).unwrap();
        gates(&client, "v2", HERE)
            .create(&PostParams::default(), &third)
            .await
            .unwrap();
        are_reconciled(4).await;
        assert_eq!(stored().await, json!(["v1", "v2"]));

        // What cannot be converted is named, and holds the others up no longer than it has to.
        let (code, printed, said) = migrate().await;
        assert_eq!(code, 1, "{printed}{said}");
        assert!(
            printed.contains("rewrote 2 objects; stored in v2 before: 1, deleted meanwhile: 0"),
            "{printed}"
        );
        assert!(said.contains("cannot rewrite Gate admission/stays: "), "{said}");
        assert!(said.contains("this gate was asked to stay as it is"), "{said}");
        assert_eq!(stored().await, json!(["v1", "v2"]));
        // Nor can it be edited before its own version is the storage version again.
        store_in(&client, "v1").await;
        let turn = Patch::Merge(json!({"spec": {"behaviour": null}}));
        gates(&client, "v1", HERE)
            .patch("stays", &PatchParams::default(), &turn)
            .await
            .unwrap();
        create(&client, "late", &json!({"size": 1})).await.unwrap();
        are_reconciled(5).await;
        store_in(&client, "v2").await;

        // Without the webhook nothing can be converted, and nothing is trimmed.
        host.stop().await.unwrap();
        let (code, printed, said) = migrate().await;
        assert_eq!(code, 1, "{printed}{said}");
        assert!(said.contains("conversion webhook for gate.test.dev/"), "{said}");
        assert_eq!(stored().await, json!(["v1", "v2"]));

        start(&mut host, &cluster).await;
        until_asked(&client, &host).await;
        host.settled().await.unwrap();
        let mark = cluster.mark().unwrap();
        let generation = async || {
            gates(&client, "v2", HERE)
                .get("late")
                .await
                .unwrap()
                .metadata
                .generation
        };
        let before = generation().await;
        let (code, printed, said) = migrate().await;
        assert_eq!(code, 0, "{printed}{said}\n{}", host.log_tail());
        assert!(
            printed.contains("rewrote 2 objects; stored in v2 before: 3, deleted meanwhile: 0"),
            "{printed}"
        );
        assert_eq!((stored().await, generation().await), (json!(["v2"]), before));
        host.settled().await.unwrap();
        let mut requests = cluster.requests_since(mark).unwrap();
        requests.retain(|request| request.is_write() && request.is_by_host() && !request.is_lease());
        assert_eq!(requests, [], "no plugin writes in answer");

        // Nobody can convert any more, so each object is stored in the one version that is left.
        host.stop().await.unwrap();
        change_versions(&client, |versions| drop(versions.remove(0))).await;
        until("one version is served", &host, async || {
            let all = gates(&client, "v1", HERE).list(&ListParams::default()).await;
            matches!(all, Err(Error::Api(status)) if status.code == 404)
        })
        .await;
        let all = gates(&client, "v2", HERE).list(&ListParams::default()).await.unwrap();
        assert_eq!(all.items.len(), 5);
        assert!(all.iter().all(|gate| gate.data["spec"]["count"] == 1), "{all:?}");
    }

    #[tokio::test]
    async fn no_request_fails_while_certificates_and_the_ca_are_renewed() {
        let cluster = Cluster::real().await.unwrap();
        let _turn = cluster.host_turn().await;
        let client = cluster.client().await.unwrap();
        make_namespaces(&client).await;
        let lifetimes = Lifetimes {
            authority: Duration::from_secs(36),
            certificate: Duration::from_secs(15),
        };
        let mut options = webhooks(lifetimes, Duration::from_secs(2));
        options.secret.name = "renewed".to_owned();
        let mut host = host(Some(options));
        start(&mut host, &cluster).await;
        until_asked(&client, &host).await;
        let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(client.clone(), HARBOUR);
        let (mut shown, mut bundles) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
        let began = Instant::now();
        // Until there was an overlap of two authorities, and a certificate of each.
        while shown.len() < 4 || bundles.len() < 3 {
            let refused = refusal(create(&client, "bad", &json!({"size": -1})).await);
            assert_eq!(refused.code, 422, "{refused:?}\n{}", host.log_tail());
            let data = secrets.get("renewed").await.unwrap().data.unwrap();
            shown.insert(data["tls.crt"].0.clone());
            bundles.insert(data["ca.crt"].0.clone());
            assert!(
                began.elapsed() < WITHIN * 2,
                "{} {}\n{}",
                shown.len(),
                bundles.len(),
                host.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        host.stop().await.unwrap();
        clean_up(&client).await;
    }
}
