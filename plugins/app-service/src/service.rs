//! The Service of an app; an app without ports has none.

use pilothouse_plugin::k8s::core::v1::{Service, ServicePort};

use crate::check::App;
use crate::resource;

/// Returns the desired Service of an app; none if the app has no ports. It has no clusterIP and only the nodePorts that
/// users give, so values that the server has allocated stay.
pub fn service(app: &App<'_>) -> Option<Service> {
    let service = Service::new(app.name)
        .namespace(app.namespace)
        .type_("NodePort")
        .selector([("app", app.name)])
        .ports(app.service_ports.iter().map(port));
    (!app.service_ports.is_empty()).then_some(service)
}

/// Converts a port as the user gives it.
fn port(port: &resource::ServicePort) -> ServicePort {
    ServicePort::new(port.port)
        .name(&port.name)
        .target_port(port.target_port.as_ref())
        .node_port(port.node_port)
        .protocol(port.protocol.map(resource::Protocol::as_str))
        .app_protocol(&port.app_protocol)
}
