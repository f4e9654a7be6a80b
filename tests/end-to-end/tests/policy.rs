//! Policies of the cluster. One denies a child: the condition and an event have the policy's words, the other children are
//! made, and so is this one soon after the policy is gone. The one of `deploy/` keeps users from writing what the host goes
//! by, and lets everybody else work.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

mod isolated {
    use pilothouse_core::plugin::manifest;
    use pilothouse_core::plugin::manifest::Access;
    use pilothouse_end_to_end::components;
    use pilothouse_end_to_end::stage::unhurried;
    use serde_json::Value;

    #[test]
    fn the_shipped_policy_covers_every_owned_kind() {
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/policy.yaml")).unwrap();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        let rules = documents[1]["spec"]["matchResources"]["resourceRules"]
            .as_array()
            .unwrap();
        let is_bound = |group: &str, kind: &str| {
            let plural = match kind {
                "Ingress" => "ingresses".to_owned(),
                kind => format!("{}s", kind.to_lowercase()),
            };
            rules.iter().any(|rule| {
                let has = |list: &Value, word: &str| list.as_array().unwrap().iter().any(|it| it == word);
                has(&rule["apiGroups"], group) && has(&rule["resources"], &plural)
            })
        };
        let mut owned = 0;
        for plugin in [
            "app-service",
            "ecs-binding",
            "reverse-proxy",
            "service-ingress",
            "stream-ingress",
        ] {
            let described = components::load(plugin).unwrap().describe(None, &unhurried()).unwrap();
            let controllers = manifest::parse(&described).unwrap().manifest.controllers;
            let touches = controllers.iter().flat_map(|controller| &controller.touches);
            for touch in touches.filter(|touch| touch.access.contains(&Access::Owned)) {
                assert!(
                    is_bound(&touch.kind.group, &touch.kind.kind),
                    "{plugin} owns {}",
                    touch.kind
                );
                owned += 1;
            }
        }
        assert!(owned > 4);
    }
}

mod real {
    use std::time::{Duration, Instant};

    use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
    use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
    use k8s_openapi::api::authentication::v1::SelfSubjectReview;
    use k8s_openapi::api::core::v1::{ConfigMap, Event, Service};
    use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
    use kube::config::{KubeConfigOptions, Kubeconfig};
    use kube::core::{ApiResource, GroupVersionKind};
    use kube::{Api, Client, ResourceExt as _};
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_end_to_end::stage::create;
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_testkit::host::SteeredHost as _;
    use pilothouse_testkit::requests::Request;
    use serde_json::{Value, json};

    /// Time limit of a wait.
    const WITHIN: Duration = Duration::from_mins(1);

    const WORDS: &str = "images of that name are not let in";

    fn policy() -> [Value; 2] {
        let version = "admissionregistration.k8s.io/v1";
        let rule = json!({
            "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"],
        });
        let expression = "object.spec.template.spec.containers.all(c, !c.image.startsWith('forbidden:'))";
        [
            json!({
                "apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "images.test.dev"},
                "spec": {
                    "matchConstraints": {"resourceRules": [rule]},
                    "validations": [{"expression": expression, "message": WORDS}],
                },
            }),
            json!({
                "apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "images.test.dev"},
                "spec": {"policyName": "images.test.dev", "validationActions": ["Deny"]},
            }),
        ]
    }

    fn deployment() -> Deployment {
        let labels = json!({"app": "probe"});
        let pod = json!({"containers": [{"name": "probe", "image": "forbidden:1"}]});
        let spec =
            json!({"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}});
        serde_json::from_value(json!({"metadata": {"name": "probe"}, "spec": spec})).unwrap()
    }

    async fn until(what: &str, host: &RuntimeHost, mut holds: impl AsyncFnMut() -> bool) {
        let begun = Instant::now();
        while !holds().await {
            assert!(begun.elapsed() < WITHIN, "in vain: {what}\n{}", host.log_tail());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn says(object: &DynamicObject, status: &str, words: &str) -> bool {
        let conditions = object.data["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|it| {
            it["type"] == "Reconciled"
                && it["status"] == status
                && it["message"].as_str().is_some_and(|message| message.contains(words))
        })
    }

    #[tokio::test]
    async fn a_child_denied_by_a_policy_is_reported_and_created_later() {
        let cluster = Cluster::real().await.unwrap();
        let _turn = cluster.host_turn().await;
        let client: Client = cluster.client().await.unwrap();
        let mut host = RuntimeHost::default();
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
        for object in policy() {
            create(client.clone(), &object).await;
        }
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        until("the policy is in force", &host, async || {
            deployments.create(&dry, &deployment()).await.is_err()
        })
        .await;

        host.start(&cluster, &["app-service".into()]).await.unwrap();
        host.settled().await.unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kosmos.io", "v1", "AppService"));
        let services: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
        let web = json!({
            "apiVersion": "kosmos.io/v1", "kind": "AppService", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"size": 1, "image": "forbidden:1", "ports": [{"port": 80}]},
        });
        create(client.clone(), &web).await;
        until("the condition says so", &host, async || {
            says(&services.get("web").await.unwrap(), "False", WORDS)
        })
        .await;
        let events: Api<Event> = Api::namespaced(client.clone(), "default");
        until("an event says so", &host, async || {
            let told = events.list(&ListParams::default()).await.unwrap();
            let mut of_it = told
                .iter()
                .filter(|event| event.involved_object.name.as_deref() == Some("web"));
            of_it.any(|event| event.message.as_deref().is_some_and(|message| message.contains(WORDS)))
        })
        .await;
        let children: Api<Service> = Api::namespaced(client.clone(), "default");
        assert_eq!(
            children.get("web").await.unwrap().name_any(),
            "web",
            "its other child is made"
        );

        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client);
        let _ = bindings
            .delete("images.test.dev", &DeleteParams::default())
            .await
            .unwrap();
        until("the child is made", &host, async || {
            says(&services.get("web").await.unwrap(), "True", "")
        })
        .await;
        assert_eq!(deployments.get("web").await.unwrap().name_any(), "web");
        assert!(host.stop().await.unwrap().is_empty());
    }

    /// The policy of `deploy/`, which lets the user of the test's host pass, too: that one has no service account.
    fn reserving(host: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/policy.yaml")).unwrap();
        let mut documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        let condition =
            json!({"name": "not-the-host-of-the-test", "expression": format!("request.userInfo.username != '{host}'")});
        documents[0]["spec"]["matchConditions"]
            .as_array_mut()
            .unwrap()
            .push(condition);
        documents
    }

    /// Returns the name of the test's host at the API server.
    async fn whoami(client: &Client) -> String {
        let review: Api<SelfSubjectReview> = Api::all(client.clone());
        let told = review
            .create(&PostParams::default(), &SelfSubjectReview::default())
            .await
            .unwrap();
        told.status
            .and_then(|it| it.user_info)
            .and_then(|it| it.username)
            .unwrap()
    }

    /// A client for whom the API server takes everything as this user's.
    async fn client_of(cluster: &Cluster, user: &str) -> Client {
        let kubeconfig = Kubeconfig::read_from(cluster.host_kubeconfig().unwrap()).unwrap();
        let options = KubeConfigOptions::default();
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .unwrap();
        config.auth_info.impersonate = Some(user.to_owned());
        Client::try_from(config).unwrap()
    }

    fn config_map(name: &str) -> Value {
        let metadata = json!({"name": name, "namespace": "tenant"});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": "as it should be"}})
    }

    fn deployment_of(image: &str) -> Value {
        let labels = json!({"app": "far"});
        let pod = json!({"containers": [{"name": "far", "image": image}]});
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "far", "namespace": "tenant"},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
        })
    }

    fn is_reserved(result: Result<ConfigMap, kube::Error>) -> bool {
        let error = result.unwrap_err().to_string();
        assert!(
            error.contains("reserved.pilothouse.dev") && error.contains("pilothouse"),
            "{error}"
        );
        true
    }

    #[tokio::test]
    #[expect(clippy::too_many_lines, reason = "one story on one cluster")]
    async fn a_tenant_cannot_forge_ownership_and_rollouts_go_on() {
        let cluster = Cluster::real().await.unwrap();
        let _turn = cluster.host_turn().await;
        let client = cluster.client().await.unwrap();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant"}});
        create(client.clone(), &namespace).await;
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "eve", "namespace": "tenant"},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
        });
        create(client.clone(), &role).await;
        let rights = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "eve", "namespace": "tenant"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "eve"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}],
        });
        create(client.clone(), &rights).await;
        for object in reserving(&whoami(&cluster.host_client().await.unwrap()).await) {
            create(client.clone(), &object).await;
        }
        let eves = client_of(&cluster, "eve").await;
        let config_maps: Api<ConfigMap> = Api::namespaced(eves.clone(), "tenant");
        let forged = |name: &str| {
            let mut forged = config_map(name);
            forged["metadata"]["labels"] = json!({"pilothouse.dev/owner": "some-uid"});
            serde_json::from_value::<ConfigMap>(forged).unwrap()
        };
        let mut host = RuntimeHost::default();
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        until("the policy is in force", &host, async || {
            let refused = config_maps.create(&dry, &forged("probe")).await;
            refused.is_err_and(|error| error.to_string().contains("reserved.pilothouse.dev"))
        })
        .await;

        host.start(&cluster, &["wisher".into()]).await.unwrap();
        host.settled().await.unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("wishes.test.dev", "v1", "Wish"));
        let wishes: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "far", "namespace": "tenant"},
            "spec": {"selector": {"app": "far"}, "ports": [{"port": 80}]},
        });
        let wish = |image: &str| {
            let owns =
                [config_map("far"), service.clone(), deployment_of(image)].map(|object| json!({"object": object}));
            json!({"apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": {"name": "it", "namespace": "default"},
                   "spec": {"owns": owns}})
        };
        create(client.clone(), &wish("first")).await;
        until("the host is let pass", &host, async || {
            says(&wishes.get("it").await.unwrap(), "True", "")
        })
        .await;

        // Forged: a label, a field manager, an entry of managedFields, and what the host has written.
        let by = PatchParams::apply("pilothouse/wisher");
        assert!(is_reserved(
            config_maps.create(&PostParams::default(), &forged("mine")).await
        ));
        assert!(is_reserved(
            config_maps.patch("mine", &by, &Patch::Apply(&config_map("mine"))).await
        ));
        let mine: ConfigMap = serde_json::from_value(config_map("mine")).unwrap();
        let mut made = config_maps.create(&PostParams::default(), &mine).await.unwrap();
        assert!(is_reserved(
            config_maps
                .patch(
                    "mine",
                    &PatchParams::default(),
                    &Patch::Merge(json!({
                        "metadata": {"labels": {"pilothouse.dev/owner": "some-uid"}}
                    }))
                )
                .await
        ));
        let mut entry = made.metadata.managed_fields.as_ref().unwrap()[0].clone();
        entry.manager = Some("pilothouse/wisher".to_owned());
        entry.operation = Some("Apply".to_owned());
        made.metadata.managed_fields.as_mut().unwrap().push(entry);
        assert!(is_reserved(
            config_maps.replace("mine", &PostParams::default(), &made).await
        ));

        // Not forged: a change of a child, which is reverted, and a label beside the host's.
        {
            let change = json!({"data": {"text": "eve's"}, "metadata": {"labels": {"eves": "label"}}});
            config_maps
                .patch("far", &PatchParams::default(), &Patch::Merge(&change))
                .await
                .unwrap();
        }
        // The controllers work on what the host has made: replica sets come.
        let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), "tenant");
        until("the first replica set is there", &host, async || {
            sets.list(&ListParams::default()).await.unwrap().items.len() == 1
        })
        .await;
        wishes
            .patch("it", &PatchParams::default(), &Patch::Merge(wish("second")))
            .await
            .unwrap();
        until("the rollout goes on", &host, async || {
            sets.list(&ListParams::default()).await.unwrap().items.len() == 2
        })
        .await;
        until("it is well", &host, async || {
            says(&wishes.get("it").await.unwrap(), "True", "")
        })
        .await;
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), "tenant");
        until("the status of the Deployment is written", &host, async || {
            let status = deployments.get("far").await.unwrap().status;
            status.is_some_and(|status| status.observed_generation == Some(2))
        })
        .await;
        forge_value(&client, &eves, &mut host, &cluster).await;
        for object in reserving("nobody") {
            let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", object["kind"].as_str().unwrap());
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
            let _ = api
                .delete("reserved.pilothouse.dev", &DeleteParams::default())
                .await
                .unwrap();
        }
        forge_value(&client, &eves, &mut host, &cluster).await;
        assert!(host.stop().await.unwrap().is_empty());
    }

    /// Changes a value as another user while no host runs, and then writes managedFields so that the field is ours
    /// again. The host reverts it when it starts.
    async fn forge_value(client: &Client, eves: &Client, host: &mut RuntimeHost, cluster: &Cluster) {
        assert!(host.stop().await.unwrap().is_empty());
        let eves: Api<ConfigMap> = Api::namespaced(eves.clone(), "tenant");
        let before = eves.get("far").await.unwrap();
        let change = Patch::Merge(json!({"data": {"text": "eve's"}}));
        let mut changed = eves.patch("far", &PatchParams::default(), &change).await.unwrap();
        changed.metadata.managed_fields = before.metadata.managed_fields.clone();
        let forged = eves.replace("far", &PostParams::default(), &changed).await.unwrap();
        let ours = |it: &ConfigMap| {
            let mut entries = it.metadata.managed_fields.clone().unwrap().into_iter();
            entries
                .find(|entry| entry.manager.as_deref() == Some("pilothouse/wisher"))
                .unwrap()
        };
        assert_eq!(
            ours(&forged).fields_v1,
            ours(&before).fields_v1,
            "the field is the host's for all that can be seen"
        );
        host.start(cluster, &["wisher".into()]).await.unwrap();
        host.settled().await.unwrap();
        let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), "tenant");
        until("the value is ours", host, async || {
            config_maps.get("far").await.unwrap().data.unwrap()["text"] == "as it should be"
        })
        .await;
    }

    /// A policy that changes every Deployment which is written.
    fn mutating(patch: &str) -> [Value; 2] {
        let version = "admissionregistration.k8s.io/v1";
        let rule = json!({
            "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["deployments"],
        });
        let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": patch}});
        [
            json!({
                "apiVersion": version, "kind": "MutatingAdmissionPolicy", "metadata": {"name": "rewrites.test.dev"},
                "spec": {
                    "matchConstraints": {"resourceRules": [rule]}, "mutations": [mutation],
                    "failurePolicy": "Fail", "reinvocationPolicy": "Never",
                },
            }),
            json!({
                "apiVersion": version, "kind": "MutatingAdmissionPolicyBinding",
                "metadata": {"name": "rewrites.test.dev"}, "spec": {"policyName": "rewrites.test.dev"},
            }),
        ]
    }

    /// Writes of the Deployment in two resyncs and after a restart.
    async fn applies(host: &mut RuntimeHost, cluster: &Cluster) -> [usize; 3] {
        let mut counts = [0; 3];
        for (round, count) in counts.iter_mut().enumerate() {
            let begun = cluster.mark().unwrap();
            if round == 2 {
                assert!(host.stop().await.unwrap().is_empty());
                host.start(cluster, &["wisher".into()]).await.unwrap();
            } else {
                host.resync().await.unwrap();
            }
            host.settled().await.unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
            let requests = cluster.requests_since(begun).unwrap();
            let of_it = |it: &Request| it.is_by_host() && it.is_write() && it.resource == "deployments";
            *count = requests.iter().filter(|it| of_it(it)).count();
        }
        counts
    }

    #[tokio::test]
    async fn a_policy_that_rewrites_is_named_and_what_it_did_is_set_back() {
        let cluster = Cluster::real().await.unwrap();
        let _turn = cluster.host_turn().await;
        let client: Client = cluster.client().await.unwrap();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rewritten"}});
        create(client.clone(), &namespace).await;
        let mut host = RuntimeHost::default();
        host.start(&cluster, &["wisher".into()]).await.unwrap();
        host.settled().await.unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("wishes.test.dev", "v1", "Wish"));
        let wishes: Api<DynamicObject> = Api::namespaced_with(client.clone(), "rewritten", &resource);
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), "rewritten");
        let mut deployment = deployment_of("good:1");
        deployment["metadata"]["namespace"] = json!("rewritten");
        let wish = json!({
            "apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": {"name": "it", "namespace": "rewritten"},
            "spec": {"owns": [{"object": deployment}]},
        });
        create(client.clone(), &wish).await;
        until("it is made", &host, async || {
            says(&wishes.get("it").await.unwrap(), "True", "all is as desired")
        })
        .await;
        for (patch, named) in [
            (
                "[JSONPatch{op: 'replace', path: '/spec/template/spec/containers/0/image', value: 'evil:9'}, \
                  JSONPatch{op: 'replace', path: '/spec/replicas', value: 3}]",
                "is evil:9 in place of good:1",
            ),
            (
                "has(object.metadata.annotations) && 'pilothouse.dev/desired' in object.metadata.annotations ? \
                 [JSONPatch{op: 'remove', path: '/metadata/annotations/pilothouse.dev~1desired'}] : []",
                "pilothouse.dev/desired of Deployment rewritten/far is absent",
            ),
            (
                "has(object.metadata.ownerReferences) ? [JSONPatch{op: 'remove', path: '/metadata/ownerReferences'}] : []",
                "ownerReferences",
            ),
        ] {
            for object in mutating(patch) {
                create(client.clone(), &object).await;
            }
            let mark = Patch::Merge(json!({"metadata": {"labels": {"touched": named.len().to_string()}}}));
            until("the policy is in force and named", &host, async || {
                let _ = deployments.patch("far", &PatchParams::default(), &mark).await.unwrap();
                says(&wishes.get("it").await.unwrap(), "True", named)
            })
            .await;
            assert_eq!(applies(&mut host, &cluster).await, [1; 3], "{named}");
            for object in mutating(patch) {
                let kind =
                    GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", object["kind"].as_str().unwrap());
                let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
                let _ = api.delete("rewrites.test.dev", &DeleteParams::default()).await.unwrap();
            }
            let begun = Instant::now();
            while !says(&wishes.get("it").await.unwrap(), "True", "all is as desired") {
                assert!(
                    begun.elapsed() < WITHIN,
                    "it is not set back after {named}\n{}",
                    host.log_tail()
                );
                host.resync().await.unwrap();
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            let far = deployments.get("far").await.unwrap();
            assert!(
                far.metadata
                    .annotations
                    .as_ref()
                    .unwrap()
                    .contains_key("pilothouse.dev/desired")
            );
            assert_eq!(far.owner_references().len(), 1);
            let spec = far.spec;
            assert_eq!(spec.replicas, Some(1));
            assert_eq!(
                spec.template.spec.unwrap().containers[0].image.as_deref(),
                Some("good:1")
            );
            assert_eq!(applies(&mut host, &cluster).await, [0; 3], "{named}");
        }
        assert!(host.stop().await.unwrap().is_empty());
    }
}
