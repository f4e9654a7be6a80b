//! Children of both kinds: a ConfigMap, a Deployment and a Service. They only set the fields that are ours, so all
//! others stay as the server or other field managers set them: the Service's clusterIP, for example.

use pilothouse_plugin::Outcome;
use pilothouse_plugin::k8s::apps::v1::Deployment;
use pilothouse_plugin::k8s::core::v1::{
    Capabilities, ConfigMap, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, HTTPGetAction,
    PodTemplateSpec, Probe, SecurityContext, Service, ServicePort, Volume, VolumeMount,
};
use sha2::{Digest as _, Sha256};

use crate::check::Instance;
use crate::labels::{CONFIG_SUM, INSTANCE, MANAGED_BY};
use crate::nginx::http::{PORT, PROBE_PATH, PROBE_PORT};

/// Value of [`MANAGED_BY`], which users of the original operator select by.
const OPERATOR: &str = "nginx-operator";

/// Bytes of the hash in the label, two characters each, as many as a `u128` has; a value has at most 63 characters.
const HASH_BYTES: usize = 16;

/// The key of the configuration in the ConfigMap.
const KEY: &str = "nginx.conf";

/// The container's name, and that of its port.
const NGINX: &str = "nginx";

/// The user and group that the official images have for nginx.
const USER: i32 = 101;

/// The volume with the configuration.
const CONFIGURATION: &str = "config";

/// The writable volume.
const TEMPORARY: &str = "tmp";

/// Returns the children of a proxy with this configuration.
pub(crate) fn outcome(instance: &Instance<'_>, configuration: &str) -> Outcome {
    let Instance { name, namespace, .. } = instance;
    let labels = [(MANAGED_BY, OPERATOR), (INSTANCE, name)];
    let sum = sum(configuration);

    let config_map = ConfigMap::new(name)
        .namespace(*namespace)
        .labels(labels)
        .label(CONFIG_SUM, &sum)
        .data([(KEY, configuration)]);
    let deployment = Deployment::new(name)
        .namespace(*namespace)
        .labels(labels)
        .replicas(instance.common.replicas)
        .template(pods(instance).label(CONFIG_SUM, sum))
        .pod_labels(labels);
    let port = ServicePort::new(instance.common.service_port)
        .target_port(NGINX)
        .protocol(instance.protocol.as_str());
    let service = Service::new(name)
        .namespace(*namespace)
        .labels(labels)
        .type_("ClusterIP")
        .selector(labels)
        .port(port);
    Outcome::new().owned(config_map).owned(deployment).owned(service)
}

fn sum(configuration: &str) -> String {
    let digest = Sha256::digest(configuration.as_bytes());
    let sum = digest[..HASH_BYTES]
        .iter()
        .fold(0_u128, |sum, byte| sum << 8 | u128::from(*byte));
    format!("{sum:032x}")
}

/// Returns pods in which nginx runs with as few privileges as it needs.
fn pods(instance: &Instance<'_>) -> PodTemplateSpec {
    let configuration = ConfigMapVolumeSource::new().name(&instance.name);
    PodTemplateSpec::new()
        .labels(instance.common.pod_labels)
        .automount_service_account_token(false)
        .enable_service_links(false)
        .node_selector(instance.common.node_selector)
        .affinity(instance.common.affinity)
        .container(container(instance))
        .volume(Volume::new(CONFIGURATION).config_map(configuration))
        .volume(Volume::new(TEMPORARY).empty_dir(EmptyDirVolumeSource::new()))
}

fn container(instance: &Instance<'_>) -> Container {
    let port = ContainerPort::new(PORT)
        .name(NGINX)
        .protocol(instance.protocol.as_str());
    let probe = Probe::new()
        .http_get(HTTPGetAction::new(PROBE_PORT).path(PROBE_PATH))
        .period_seconds(5)
        .timeout_seconds(5)
        .failure_threshold(10);
    let security_context = SecurityContext::new()
        .run_as_user(USER)
        .run_as_group(USER)
        .run_as_non_root(true)
        .read_only_root_filesystem(true)
        .allow_privilege_escalation(false)
        .capabilities(Capabilities::new().drop(["ALL"]));
    let configuration = VolumeMount::new(CONFIGURATION, "/etc/nginx/nginx.conf")
        .sub_path(KEY)
        .read_only(true);
    Container::new(NGINX)
        .image(instance.image)
        .env(instance.common.env)
        .port(port)
        .resources(instance.common.resources)
        .liveness_probe(probe.clone().initial_delay_seconds(5))
        .readiness_probe(probe)
        .security_context(security_context)
        .volume_mount(configuration)
        .volume_mount(VolumeMount::new(TEMPORARY, "/tmp"))
}
