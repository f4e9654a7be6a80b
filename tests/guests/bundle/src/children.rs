//! Builds the three children of a Bundle, each with only the fields that the plugin owns.

use pilothouse_plugin::ObjectMeta;
use pilothouse_plugin::k8s::apps::v1::Deployment;
use pilothouse_plugin::k8s::core::v1::{ConfigMap, Container, Service, ServicePort};

/// Each child has the Bundle's name, and a label with it.
fn labels(bundle: &ObjectMeta) -> [(&'static str, &str); 1] {
    [("app", &bundle.name)]
}

/// Holds the payload.
pub fn config_map(bundle: &ObjectMeta, payload: &str) -> ConfigMap {
    ConfigMap::new(&bundle.name)
        .namespace(&bundle.namespace)
        .labels(labels(bundle))
        .data([("payload", payload)])
}

/// Offers the port.
pub fn service(bundle: &ObjectMeta, port: u16) -> Service {
    Service::new(&bundle.name)
        .namespace(&bundle.namespace)
        .labels(labels(bundle))
        .type_("ClusterIP")
        .selector(labels(bundle))
        .port(ServicePort::new(port).protocol("TCP"))
}

/// Runs nothing: what is measured is the operator.
pub fn deployment(bundle: &ObjectMeta, image: &str) -> Deployment {
    Deployment::new(&bundle.name)
        .namespace(&bundle.namespace)
        .labels(labels(bundle))
        .replicas(0)
        .pod_labels(labels(bundle))
        .container(Container::new("main").image(image))
}
