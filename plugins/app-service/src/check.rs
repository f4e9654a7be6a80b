//! Validates an AppService into an app that can be built. Checks the rules that the definition does not have.

use crate::ports::{self, ContainerPort, PortError};
use crate::resource::{AppService, AppServiceSpec, ServicePort};

/// An AppService whose two children can be made.
#[derive(Debug)]
pub struct App<'a> {
    /// The name of the resource and of both children.
    pub name: &'a str,
    /// The namespace of the resource and of both children.
    pub namespace: &'a str,
    /// The resource's uid, which distinguishes its own Deployment from a foreign one.
    pub uid: &'a str,
    /// Number of replicas.
    pub size: i32,
    /// The container image.
    pub image: &'a str,
    /// The ports of the Service.
    pub service_ports: &'a [ServicePort],
    /// The ports of the container.
    pub container_ports: Vec<ContainerPort<'a>>,
}

/// Error of a resource for which no app can be made.
#[derive(Debug, thiserror::Error)]
#[error("AppService {namespace}/{name}: {source}")]
pub struct CheckError {
    namespace: String,
    name: String,
    source: PortError,
}

impl<'a> App<'a> {
    /// Checks a resource.
    pub fn check(resource: &'a AppService) -> Result<Self, CheckError> {
        let AppServiceSpec { size, image, ports } = &resource.spec;
        let name = resource.metadata.name.as_str();
        let namespace = resource.metadata.namespace.as_deref().unwrap_or_default();
        let service_ports = ports.as_deref().unwrap_or_default();
        let container_ports = ports::of_container(service_ports).map_err(|source| CheckError {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            source,
        })?;
        Ok(Self {
            name,
            namespace,
            uid: &resource.metadata.uid,
            size: *size,
            image,
            service_ports,
            container_ports,
        })
    }
}
