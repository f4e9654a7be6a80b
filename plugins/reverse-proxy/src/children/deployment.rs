//! Owns the Deployment: pods in which nginx runs with as few rights as it needs.

use std::collections::BTreeMap;

use pilothouse_plugin::{Kind, Resource};
use serde::Serialize;
use serde_json::value::RawValue;

use super::config_map::KEY;
use super::{Labels, Metadata};
use crate::check::Instance;
use crate::nginx::http::{PORT, PROBE_PATH, PROBE_PORT};
use crate::resource::Protocol;

/// The container's name, and that of its port.
pub(super) const PORT_NAME: &str = "nginx";

/// The user and group that the official images have for nginx.
const USER: i64 = 101;

/// The volume with the configuration.
const CONFIGURATION: &str = "config";

/// The volume that can be written to.
const TEMPORARY: &str = "tmp";

/// The Deployment of a proxy. The types list the fields that are ours and nothing else, so everything else stays as the
/// server or somebody else sets it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Deployment<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    spec: Spec<'a>,
}

#[derive(Debug, Serialize)]
struct Spec<'a> {
    replicas: i32,
    selector: Selector<'a>,
    template: Template<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Selector<'a> {
    match_labels: Labels<'a>,
}

#[derive(Debug, Serialize)]
struct Template<'a> {
    metadata: TemplateMetadata<'a>,
    spec: PodSpec<'a>,
}

#[derive(Debug, Serialize)]
struct TemplateMetadata<'a> {
    labels: BTreeMap<&'a str, &'a str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec<'a> {
    automount_service_account_token: bool,
    enable_service_links: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_selector: Option<&'a BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    affinity: Option<&'a RawValue>,
    containers: [Container<'a>; 1],
    volumes: [Volume<'a>; 2],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Container<'a> {
    name: &'static str,
    image: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    env: Option<&'a RawValue>,
    ports: [ContainerPort; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<&'a RawValue>,
    liveness_probe: Probe,
    readiness_probe: Probe,
    security_context: SecurityContext,
    volume_mounts: [VolumeMount; 2],
}

#[derive(Debug, Serialize)]
struct ContainerPort {
    name: &'static str,
    #[serde(rename = "containerPort")]
    number: u16,
    protocol: Protocol,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Probe {
    http_get: HttpGet,
    #[serde(skip_serializing_if = "Option::is_none")]
    initial_delay_seconds: Option<i32>,
    period_seconds: i32,
    timeout_seconds: i32,
    failure_threshold: i32,
}

#[derive(Debug, Serialize)]
struct HttpGet {
    path: &'static str,
    port: u16,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SecurityContext {
    run_as_user: i64,
    run_as_group: i64,
    run_as_non_root: bool,
    read_only_root_filesystem: bool,
    allow_privilege_escalation: bool,
    capabilities: Capabilities,
}

#[derive(Debug, Serialize)]
struct Capabilities {
    drop: [&'static str; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct VolumeMount {
    name: &'static str,
    mount_path: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub_path: Option<&'static str>,
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    read_only: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Volume<'a> {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    config_map: Option<ConfigMapVolume<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    empty_dir: Option<EmptyDir>,
}

#[derive(Debug, Serialize)]
struct ConfigMapVolume<'a> {
    name: &'a str,
}

#[derive(Debug, Serialize)]
struct EmptyDir {}

impl Resource for Deployment<'_> {
    const KIND: Kind = Kind::new("apps", "v1", "Deployment");
}

impl<'a> Deployment<'a> {
    pub(super) fn of(instance: &'a Instance<'_>, sum: &'a str) -> Self {
        let labels = Labels::of(instance);
        Self {
            api_version: "apps/v1",
            kind: "Deployment",
            metadata: Metadata::of(instance, labels),
            spec: Spec {
                replicas: instance.replicas,
                selector: Selector { match_labels: labels },
                template: Template {
                    metadata: TemplateMetadata {
                        labels: pod_labels(instance, labels.with_sum(sum)),
                    },
                    spec: pod_spec(instance),
                },
            },
        }
    }
}

/// The user's labels and ours.
fn pod_labels<'a>(instance: &'a Instance<'_>, labels: Labels<'a>) -> BTreeMap<&'a str, &'a str> {
    let Labels {
        managed_by,
        instance: name,
        config_sum,
    } = labels;
    let given = instance
        .pod_labels
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value.as_str()));
    given
        .chain([(super::MANAGED_BY, managed_by), (super::INSTANCE, name)])
        .chain(config_sum.map(|sum| (super::CONFIG_SUM, sum)))
        .collect()
}

fn pod_spec<'a>(instance: &'a Instance<'_>) -> PodSpec<'a> {
    PodSpec {
        automount_service_account_token: false,
        enable_service_links: false,
        node_selector: instance.node_selector,
        affinity: instance.affinity,
        containers: [container(instance)],
        volumes: [
            Volume {
                name: CONFIGURATION,
                config_map: Some(ConfigMapVolume { name: &instance.name }),
                empty_dir: None,
            },
            Volume {
                name: TEMPORARY,
                config_map: None,
                empty_dir: Some(EmptyDir {}),
            },
        ],
    }
}

fn container<'a>(instance: &'a Instance<'_>) -> Container<'a> {
    Container {
        name: PORT_NAME,
        image: instance.image,
        env: instance.env,
        ports: [ContainerPort {
            name: PORT_NAME,
            number: PORT,
            protocol: instance.protocol,
        }],
        resources: instance.resources,
        liveness_probe: probe(Some(5)),
        readiness_probe: probe(None),
        security_context: SecurityContext {
            run_as_user: USER,
            run_as_group: USER,
            run_as_non_root: true,
            read_only_root_filesystem: true,
            allow_privilege_escalation: false,
            capabilities: Capabilities { drop: ["ALL"] },
        },
        volume_mounts: [
            VolumeMount {
                name: CONFIGURATION,
                mount_path: "/etc/nginx/nginx.conf",
                sub_path: Some(KEY),
                read_only: true,
            },
            VolumeMount {
                name: TEMPORARY,
                mount_path: "/tmp",
                sub_path: None,
                read_only: false,
            },
        ],
    }
}

fn probe(initial_delay_seconds: Option<i32>) -> Probe {
    Probe {
        http_get: HttpGet {
            path: PROBE_PATH,
            port: PROBE_PORT,
        },
        initial_delay_seconds,
        period_seconds: 5,
        timeout_seconds: 5,
        failure_threshold: 10,
    }
}
