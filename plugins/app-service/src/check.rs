//! Owns the step from what users write to an app that can be built: later stages never check again.

use crate::ports::{self, ContainerPort, PortError};
use crate::resource::{AppService, AppServiceSpec, ServicePort};

/// The longest name of an AppService, in bytes: it is the container's name and a label's value too.
const LONGEST_NAME: usize = 63;

/// An AppService of which both children can be made.
#[derive(Debug)]
pub struct App<'a> {
    /// The name of the resource and of both children.
    pub name: &'a str,
    /// The namespace of the resource and of both children.
    pub namespace: &'a str,
    /// The resource's uid, which tells its own Deployment from somebody else's.
    pub uid: &'a str,
    /// How many replicas run.
    pub size: i32,
    /// The container image.
    pub image: &'a str,
    /// The ports of the Service.
    pub service_ports: &'a [ServicePort],
    /// The ports of the container.
    pub container_ports: Vec<ContainerPort<'a>>,
}

/// Why no app can be made of a resource.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The resource has no namespace.
    #[error("AppService {0} has no namespace; create it in one")]
    MissingNamespace(String),
    /// The name does for a resource, and not for a container or a Service.
    #[error(
        "AppService {namespace}/{name}: metadata.name is the name of the container and of the Service too, which have at \
         most 63 characters a-z, 0-9 and '-', begin with a letter and end with a letter or digit; create it under such a \
         name"
    )]
    UnusableName {
        /// The resource's namespace.
        namespace: String,
        /// The resource's name.
        name: String,
    },
    /// A number of replicas below zero.
    #[error("AppService {namespace}/{name}: spec.size is {size}; give a number of replicas, 0 or more")]
    NegativeSize {
        /// The resource's namespace.
        namespace: String,
        /// The resource's name.
        name: String,
        /// What was given.
        size: i32,
    },
    /// No image.
    #[error("AppService {namespace}/{name}: spec.image is empty; name the container image")]
    EmptyImage {
        /// The resource's namespace.
        namespace: String,
        /// The resource's name.
        name: String,
    },
    /// Ports that no Service can have.
    #[error("AppService {namespace}/{name}: {source}")]
    UnusablePorts {
        /// The resource's namespace.
        namespace: String,
        /// The resource's name.
        name: String,
        /// What is wrong with them.
        source: PortError,
    },
}

impl<'a> App<'a> {
    /// Checks a resource. What the CRD forbids is checked too: it may be older than the plugin.
    pub fn check(resource: &'a AppService) -> Result<Self, CheckError> {
        let AppServiceSpec { size, image, ports } = &resource.spec;
        let name = resource.metadata.name.as_str();
        let Some(namespace) = resource.metadata.namespace.as_deref() else {
            return Err(CheckError::MissingNamespace(name.to_owned()));
        };
        let named = || (namespace.to_owned(), name.to_owned());
        if !is_usable_name(name) {
            let (namespace, name) = named();
            return Err(CheckError::UnusableName { namespace, name });
        }
        if *size < 0 {
            let (namespace, name) = named();
            return Err(CheckError::NegativeSize {
                namespace,
                name,
                size: *size,
            });
        }
        if image.trim().is_empty() {
            let (namespace, name) = named();
            return Err(CheckError::EmptyImage { namespace, name });
        }
        let service_ports = ports.as_deref().unwrap_or_default();
        let container_ports = ports::check(service_ports).map_err(|source| {
            let (namespace, name) = named();
            CheckError::UnusablePorts {
                namespace,
                name,
                source,
            }
        })?;
        let uid = resource.metadata.uid.as_str();
        Ok(Self {
            name,
            namespace,
            uid,
            size: *size,
            image,
            service_ports,
            container_ports,
        })
    }
}

/// Whether a Service and a container can have this name (RFC 1035's label, in lower case).
fn is_usable_name(name: &str) -> bool {
    name.len() <= LONGEST_NAME
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && !name.ends_with('-')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}
