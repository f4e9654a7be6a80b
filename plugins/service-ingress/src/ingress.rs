//! The Ingress of a Service.

use pilothouse_plugin::ObjectMeta;
use pilothouse_plugin::k8s::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule, IngressServiceBackend,
    ServiceBackendPort,
};

use crate::settings::Settings;

/// Returns the desired Ingress of a Service, with our fields only: a class or certificate that others add stays.
pub fn ingress(service: &ObjectMeta, settings: &Settings) -> Ingress {
    let port = ServiceBackendPort::new().number(settings.service_port.get());
    let backend = IngressBackend::new().service(IngressServiceBackend::new(&service.name).port(port));
    let path = HTTPIngressPath::new("Prefix").path("/").backend(backend);
    let rule = IngressRule::new()
        .host(&settings.host)
        .http(HTTPIngressRuleValue::new().path(path));
    Ingress::new(&service.name).namespace(&service.namespace).rule(rule)
}
