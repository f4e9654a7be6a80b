//! One host with thirteen Plugin resources, some of whose components misbehave in every way at once: all others do what
//! they are for, and one goes with what it made.

mod real {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use kube::api::{DeleteParams, DynamicObject, PostParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use kube::{Api, Client};
    use pilothouse_end_to_end::{components, variants};
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_testkit::host::{ProcessHost, SteeredHost as _};
    use serde_json::{Value, json};

    /// Behaviour of each fixture's objects, beside one that behaves. A fixture is the plugin hostile with an API group
    /// of its own.
    const FIXTURES: [(&str, usize); 10] = [
        ("config-map", 1),
        ("config-map", 1),
        ("nothing", 1),
        ("fail-at-first", 1),
        ("config-map", 100),
        ("loop", 5),
        ("trap", 5),
        ("memory-bomb", 5),
        ("many-objects", 2),
        ("differs-by-read", 2),
    ];

    /// Time limit of the whole test.
    const WITHIN: Duration = Duration::from_mins(5);

    fn group(number: usize) -> String {
        format!("hostil{number}.test.dev")
    }

    /// Writes the components to the plugin directory; returns the Plugins that run them.
    fn plugins(folder: &Path) -> Vec<String> {
        let built = |name: &str| {
            std::fs::read(components::folder().join(format!("{name}.wasm")))
                .expect("`cargo xtask plugins` has built the plugins")
        };
        let put = |name: String, component: Vec<u8>| {
            std::fs::write(folder.join(format!("{name}.wasm")), component).expect("the folder is ours");
            name
        };
        let hostile = built("hostile");
        let fixtures = (0..FIXTURES.len()).map(|number| {
            let fixture = variants::reworded(&hostile, "hostile.test.dev", &group(number));
            put(format!("fixture-{number}"), fixture)
        });
        let shipped = ["app-service", "bundle", "service-ingress"].map(|name| put(name.to_owned(), built(name)));
        fixtures.chain(shipped).collect()
    }

    fn plugin_resources(client: &Client) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("pilothouse.dev", "v1alpha1", "Plugin");
        Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
    }

    async fn create_plugin(plugins: &Api<DynamicObject>, name: &str) {
        let object = json!({
            "apiVersion": "pilothouse.dev/v1alpha1", "kind": "Plugin", "metadata": {"name": name},
            "spec": {"source": {"file": format!("{name}.wasm")}, "deletionPolicy": "Delete"},
        });
        let object = serde_json::from_value(object).expect("it is an object");
        plugins
            .create(&PostParams::default(), &object)
            .await
            .expect("the server takes it");
    }

    /// Returns `true` if a condition of an object has this status, with these words in `REASON: MESSAGE`.
    fn says(object: &DynamicObject, kind: &str, status: &str, words: &str) -> bool {
        let conditions = object.data["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|condition| {
            let text = |member: &str| condition[member].as_str().unwrap_or_default();
            text("type") == kind
                && text("status") == status
                && format!("{}: {}", text("reason"), text("message")).contains(words)
        })
    }

    fn api(client: &Client, group: &str, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        Api::namespaced_with(client.clone(), "default", &resource)
    }

    async fn create(client: &Client, object: Value) {
        let group = object["apiVersion"]
            .as_str()
            .and_then(|version| version.strip_suffix("/v1"));
        let api = api(
            client,
            group.unwrap_or_default(),
            object["kind"].as_str().expect("it has a kind"),
        );
        let object: DynamicObject = serde_json::from_value(object).expect("it is an object");
        api.create(&PostParams::default(), &object)
            .await
            .expect("the server takes it");
    }

    async fn reconciled(api: &Api<DynamicObject>, name: &str, status: &str, words: &str) -> bool {
        says(&api.get(name).await.expect("it is there"), "Reconciled", status, words)
    }

    async fn until(what: &str, host: &mut ProcessHost, begun: Instant, mut holds: impl AsyncFnMut() -> bool) {
        while !holds().await {
            assert_eq!(host.failure(), None, "{what}\n{}", host.log_tail());
            assert!(begun.elapsed() < WITHIN, "in vain: {what}\n{}", host.log_tail());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn hostile(number: usize, name: &str, behaviour: &str) -> Value {
        json!({
            "apiVersion": format!("{}/v1", group(number)), "kind": "Hostile", "metadata": {"name": name},
            "spec": {"behaviour": behaviour, "text": "not yet"},
        })
    }

    /// Creates the primaries: some misbehaving ones of each fixture, one that behaves, and one of each plugin.
    async fn create_resources(client: &Client) {
        for (number, (behaviour, count)) in FIXTURES.into_iter().enumerate() {
            for index in 0..count {
                // Children have the names of their owners: those of two fixtures must not meet.
                create(client, hostile(number, &format!("f{number}-{index}"), behaviour)).await;
            }
            create(client, hostile(number, &format!("good-{number}"), "config-map")).await;
        }
        create(
            client,
            json!({
                "apiVersion": "kosmos.io/v1", "kind": "AppService", "metadata": {"name": "web"},
                "spec": {"size": 1, "image": "web:1", "ports": [{"port": 80}]},
            }),
        )
        .await;
        create(
            client,
            json!({
                "apiVersion": "bench.example.dev/v1", "kind": "Bundle", "metadata": {"name": "bundle"},
                "spec": {"payload": "words", "port": 80, "image": "web:1"},
            }),
        )
        .await;
        create(
            client,
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "annotated", "annotations": {"ingress/http": "example.dev"}},
                "spec": {"ports": [{"port": 80}]},
            }),
        )
        .await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_dozen_plugins_do_what_they_are_for_whatever_the_others_do() {
        let cluster = Cluster::real().await.expect("a control plane starts");
        let folder = tempfile::tempdir().expect("there is room");
        let program = components::program();
        let directory = folder.path().display().to_string();
        let mut host =
            ProcessHost::new(program, components::folder()).with_arguments(vec!["--plugin-dir".to_owned(), directory]);
        host.start(&cluster, &[]).await.expect("the host starts");
        let client = cluster.client().await.expect("it has a client");
        let begun = Instant::now();
        let resources = plugin_resources(&client);
        until("the CRD of Plugin is there", &mut host, begun, async || {
            resources.list(&kube::api::ListParams::default()).await.is_ok()
        })
        .await;
        let names = plugins(folder.path());
        for name in &names {
            create_plugin(&resources, name).await;
        }
        for name in &names {
            until(&format!("Plugin {name} is ready"), &mut host, begun, async || {
                says(&resources.get(name).await.expect("it is there"), "Ready", "True", "")
            })
            .await;
        }
        let bundles = api(&client, "bench.example.dev", "Bundle");
        let services = api(&client, "kosmos.io", "AppService");
        let fixtures: Vec<_> = (0..FIXTURES.len())
            .map(|number| api(&client, &group(number), "Hostile"))
            .collect();

        create_resources(&client).await;
        until("AppService web", &mut host, begun, async || {
            reconciled(&services, "web", "True", "").await
        })
        .await;
        until("Bundle bundle", &mut host, begun, async || {
            reconciled(&bundles, "bundle", "True", "").await
        })
        .await;
        let ingresses = api(&client, "networking.k8s.io", "Ingress");
        until("Ingress annotated", &mut host, begun, async || {
            ingresses
                .get_opt("annotated")
                .await
                .expect("it can be asked for")
                .is_some()
        })
        .await;
        for (number, (behaviour, _)) in FIXTURES.into_iter().enumerate() {
            let (status, words) = match behaviour {
                "loop" | "memory-bomb" | "many-objects" => ("False", "GuestLimit: "),
                "trap" => ("False", "GuestTrap: "),
                "differs-by-read" => ("False", "Contested: "),
                _ => ("True", ""),
            };
            for (name, status, words) in [
                (format!("good-{number}"), "True", ""),
                (format!("f{number}-0"), status, words),
            ] {
                let api = &fixtures[number];
                let what = format!("{name}, which is to {behaviour}");
                until(&what, &mut host, begun, async || {
                    reconciled(api, &name, status, words).await
                })
                .await;
            }
        }
        resources
            .delete("bundle", &DeleteParams::default())
            .await
            .expect("it is deleted");
        until("Plugin bundle goes", &mut host, begun, async || {
            resources
                .get_opt("bundle")
                .await
                .expect("it can be asked for")
                .is_none()
        })
        .await;
        let deployments = api(&client, "apps", "Deployment");
        let is_left = async |name: &str| deployments.get_opt(name).await.expect("it can be asked for").is_some();
        assert!(!is_left("bundle").await && is_left("web").await, "{}", host.log_tail());
        assert!(bundles.get("bundle").await.is_ok(), "a primary is its user's");
        let left = host.stop().await.expect("it runs");
        assert!(left.is_empty(), "{left:?}\n{}", host.log_tail());
    }
}
