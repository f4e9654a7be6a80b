//! Tests that the control plane is a real one: it starts, runs its controllers, logs requests, and ends.

use std::time::{Duration, Instant};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Namespace};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, PostParams},
    runtime::wait::{Condition, await_condition},
};
use pilothouse_testkit::{
    controlplane::{Availability, ControlPlane, Options, availability},
    requests::HOST_ACCOUNT,
};
use serde_json::json;

/// Long enough for a loaded machine; reached only by a failure.
const PATIENCE: Duration = Duration::from_secs(30);

/// None, said aloud, where no control plane can be had; otherwise the shared one.
async fn control_plane() -> Option<&'static ControlPlane> {
    if let Availability::Unavailable(reason) = availability() {
        eprintln!("skipped: {reason}");
        return None;
    }
    Some(ControlPlane::shared().await.expect("the control plane starts"))
}

async fn namespace(client: &Client, prefix: &str) -> String {
    let namespace = serde_json::from_value(json!({"metadata": {"generateName": prefix}})).expect("a namespace");
    Api::<Namespace>::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await
        .expect("is made")
        .name_any()
}

async fn wait_for<K>(api: Api<K>, name: &str, condition: impl Condition<K>)
where
    K: kube::Resource + Clone + std::fmt::Debug + Send + for<'de> serde::Deserialize<'de> + 'static,
{
    tokio::time::timeout(PATIENCE, await_condition(api, name, condition))
        .await
        .expect("in time")
        .expect("watchable");
}

mod real {
    use super::*;

    #[tokio::test]
    async fn a_deployment_gets_its_replicas_and_goes_with_them() {
        let Some(control_plane) = control_plane().await else {
            return;
        };
        let client = control_plane.client().await.expect("a client");
        let namespace = namespace(&client, "deployment-").await;
        let api: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
        let deployment = serde_json::from_value(json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "web", "image": "web:1"}]}
                }
            }
        }))
        .expect("a deployment");
        api.create(&PostParams::default(), &deployment).await.expect("is made");
        wait_for(api.clone(), "web", |found: Option<&Deployment>| {
            found
                .and_then(|found| found.status.as_ref())
                .is_some_and(|status| status.replicas == Some(2))
        })
        .await;
        api.delete("web", &DeleteParams::foreground())
            .await
            .expect("is deleted");
        wait_for(api, "web", |found: Option<&Deployment>| found.is_none()).await;
    }

    #[tokio::test]
    async fn requests_are_known_by_their_account_and_field_manager() {
        let Some(control_plane) = control_plane().await else {
            return;
        };
        let client = control_plane.client().await.expect("a client");
        let namespace = namespace(&client, "audit-").await;
        let mark = control_plane.mark().expect("a mark");
        let host = control_plane.client_as(HOST_ACCOUNT).await.expect("a client");
        let api: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(host, &namespace);
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let parameters = kube::api::PatchParams::apply("pilothouse/audit");
        api.patch("a", &parameters, &kube::api::Patch::Apply(&body))
            .await
            .expect("is applied");

        let deadline = Instant::now() + PATIENCE;
        let found = loop {
            let requests = control_plane.requests_since(mark).expect("the log");
            if let Some(found) = requests
                .into_iter()
                .find(|request| request.is_by_host() && request.is_write())
            {
                break found;
            }
            assert!(Instant::now() < deadline, "the write is not in the log");
            tokio::task::yield_now().await;
        };
        assert_eq!(
            found.to_string(),
            format!("patch configmaps {namespace}/a by pilothouse/audit -> 201")
        );
        assert_eq!(found.account, HOST_ACCOUNT);
    }

    #[tokio::test]
    async fn two_control_planes_are_independent_and_a_stopped_one_is_gone() {
        if control_plane().await.is_none() {
            return;
        }
        let second = ControlPlane::start(Options::default())
            .await
            .expect("a second one starts");
        let client = second.client().await.expect("a client");
        namespace(&client, "second-").await;
        let kubeconfig = second.kubeconfig_file(HOST_ACCOUNT).expect("a kubeconfig");
        assert!(kubeconfig.exists());
        second.stop();
        assert!(!kubeconfig.exists());
        assert!(client.apiserver_version().await.is_err());
    }

    #[tokio::test]
    async fn a_refused_argument_is_reported_with_the_servers_own_words() {
        if control_plane().await.is_none() {
            return;
        }
        let options = Options {
            apiserver_arguments: vec!["--no-such-argument".into()],
            ..Options::default()
        };
        let error = ControlPlane::start(options)
            .await
            .expect_err("it can't start")
            .to_string();
        assert!(
            error.contains("kube-apiserver ended") && error.contains("no-such-argument"),
            "{error}"
        );
    }
}
