//! A policy of the cluster denies a child: the condition and an event have the policy's words, the other children are made,
//! and so is this one soon after the policy is gone.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

mod real {
    use std::time::{Duration, Instant};

    use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{Event, Service};
    use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use kube::{Api, Client, ResourceExt as _};
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_end_to_end::stage::create;
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};

    /// How long to wait for what has to come.
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
    async fn a_child_that_a_policy_denies_is_told_in_its_words_and_made_when_it_may_be() {
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
}
