//! Contributions of an accepted StreamIngress: one entry of the shared ConfigMap, and one port of the shared Service.
//! Both belong to other owners; they only set the fields that are ours.

use pilothouse_plugin::k8s::core::v1::{ConfigMap, Service, ServicePort};

use crate::resource::StreamIngress;
use crate::settings::Settings;

/// Returns the shared ConfigMap with one entry: from the port to its destination.
pub fn config_map(stream: &StreamIngress, settings: &Settings) -> ConfigMap {
    ConfigMap::new(settings.config_map(stream.spec.protocol))
        .namespace(&settings.namespace)
        .add_data(stream.spec.listen.to_string(), stream.destination())
}

/// Returns the shared Service with one port, which has a name since a Service with two ports needs names.
pub fn service(stream: &StreamIngress, settings: &Settings) -> Service {
    let (protocol, listen) = (stream.spec.protocol.as_str(), stream.spec.listen.get());
    let port = ServicePort::new(listen)
        .name(format!("{}-{listen}", protocol.to_ascii_lowercase()))
        .protocol(protocol)
        .target_port(listen);
    Service::new(&settings.service)
        .namespace(&settings.namespace)
        .port(port)
}
