//! A definition that embeds Kubernetes' own types, with the schemas that the SDK gives them: the API server takes it, keeps
//! what such an object has, and refuses what it refuses in the built-in kinds.

use kube::Client;
use pilothouse_plugin::k8s::{
    apps::v1::{DeploymentStrategy, StatefulSetSpec},
    autoscaling::v2::HorizontalPodAutoscalerSpec,
    batch::v1::JobSpec,
    core::v1::{Affinity, EnvVar, PersistentVolumeClaimSpec, PodTemplateSpec, ServiceSpec, Toleration},
    meta::v1::LabelSelector,
    networking::v1::{IngressSpec, NetworkPolicySpec},
    rbac::v1::PolicyRule,
};
use pilothouse_plugin::{ObjectMeta, Resource};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{create, install, merged};

#[derive(Deserialize, Resource)]
#[resource(group = "embedded.test.dev", version = "v1", kind = "Workload")]
#[crd]
#[expect(dead_code, reason = "only its definition is looked at")]
struct Workload {
    metadata: ObjectMeta,
    #[resource(whole)]
    spec: Spec,
}

/// What authors embed, and what refers to most other types.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is looked at")]
struct Spec {
    template: PodTemplateSpec,
    affinity: Option<Affinity>,
    tolerations: Option<Vec<Toleration>>,
    env: Option<Vec<EnvVar>>,
    selector: Option<LabelSelector>,
    strategy: Option<DeploymentStrategy>,
    stateful_set: Option<StatefulSetSpec>,
    autoscaler: Option<HorizontalPodAutoscalerSpec>,
    job: Option<JobSpec>,
    claim: Option<PersistentVolumeClaimSpec>,
    service: Option<ServiceSpec>,
    ingress: Option<IngressSpec>,
    policy: Option<NetworkPolicySpec>,
    rules: Option<Vec<PolicyRule>>,
}

pub async fn embedded_types_have_the_servers_schemas(client: Client) {
    let definition = pilothouse_plugin::crd::<Workload>();
    install(&client, &definition).await;
    let good = json!({
        "apiVersion": "embedded.test.dev/v1", "kind": "Workload", "metadata": {"name": "good"},
        "spec": {
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}},
                "spec": {"containers": [{
                    "name": "web", "image": "web:1", "ports": [{"containerPort": 80}],
                    "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
                    "livenessProbe": {"httpGet": {"port": "http"}},
                }]},
            },
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "service": {"ports": [{"port": 80, "targetPort": 8080}]},
        },
    });
    let stored = create(&client, &definition, &good)
        .await
        .expect("the good one is accepted");
    let mut expected = good["spec"].clone();
    // What is the key of a list has to be there.
    expected["template"]["spec"]["containers"][0]["ports"][0]["protocol"] = json!("TCP");
    expected["service"]["ports"][0]["protocol"] = json!("TCP");
    assert_eq!(stored["spec"], expected);
    let pod = |spec: Value| json!({"template": {"spec": spec}});
    for (spec, refused) in [
        (
            json!({"template": {"metadata": {"labels": {"app": 1}}}}),
            "spec.template.metadata.labels.app",
        ),
        (
            pod(json!({"containers": null})),
            "spec.template.spec.containers: Required value",
        ),
        (
            pod(json!({"containers": [{"image": "web:1"}]})),
            "spec.template.spec.containers[0].name: Required value",
        ),
        (
            pod(json!({"containers": [{"name": "a", "ports": [{"containerPort": "http"}]}]})),
            "spec.template.spec.containers[0].ports[0].containerPort",
        ),
        (
            pod(json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "lots"}}}]})),
            "spec.template.spec.containers[0].resources.limits.cpu",
        ),
        (
            pod(json!({"containers": [{"name": "a"}, {"name": "a"}]})),
            "spec.template.spec.containers[1]: Duplicate value",
        ),
        (
            pod(json!({"restartPolicy": "Sometimes"})),
            "spec.template.spec.restartPolicy: Unsupported value",
        ),
        (pod(json!({"nodeSelectr": {}})), "spec.template.spec.nodeSelectr"),
        (
            json!({"tolerations": [{"operator": "Maybe"}]}),
            "spec.tolerations[0].operator: Unsupported value",
        ),
        (json!({"selector": {"matchLabels": []}}), "spec.selector.matchLabels"),
    ] {
        let said = create(&client, &definition, &merged(good.clone(), &json!({"spec": spec}))).await;
        let said = said.expect_err(&format!("{spec} is accepted"));
        assert!(
            said.contains(refused),
            "{spec} is refused with\n    {said}\n  and not with\n    {refused}"
        );
    }
}
