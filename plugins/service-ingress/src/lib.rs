//! The service-ingress plugin: a Service with the annotation `ingress/http` gets an Ingress of its name.
//!
//! `settings` is the configuration, `ingress` the child, and this file joins them. The host hands over annotated Services
//! only, keeps the Ingress as it is given here, and deletes it once the annotation is gone.

#![forbid(unsafe_code)]

mod ingress;
mod settings;
#[cfg(test)]
mod tests;

use pilothouse_plugin::{
    Cluster, Controller, ControllerManifest, Failure, Kind, Manifest, ObjectMeta, Outcome, Plugin, Request, Resource,
    Touch,
};
use serde::Deserialize;

use crate::ingress::Ingress;
pub use crate::settings::Settings;

/// The annotation that asks for an Ingress; its value does not matter.
pub const ANNOTATION: &str = "ingress/http";

/// A Service: its name and namespace are all that is looked at.
#[derive(Clone, Debug, Deserialize)]
pub struct Service {
    /// Name, namespace and so on.
    pub metadata: ObjectMeta,
}

impl Resource for Service {
    const KIND: Kind = Kind::new("", "v1", "Service");
}

/// The plugin, and the controller of Services.
#[derive(Debug)]
pub struct ServiceIngressPlugin;

impl Plugin for ServiceIngressPlugin {
    type Config = Settings;
    type Controllers = Self;

    fn manifest(_: &Settings) -> Manifest {
        let controller = ControllerManifest::of::<Service>("service-ingress")
            .with_annotation(ANNOTATION)
            .touches(Touch::of::<Ingress<'_>>().owned());
        Manifest::new(
            env!("CARGO_PKG_NAME"),
            env!("CARGO_PKG_VERSION"),
            env!("CARGO_PKG_DESCRIPTION"),
        )
        .configuration_schema(settings::schema())
        .controller(controller)
    }

    fn check(settings: &Settings) -> Result<(), String> {
        settings.check()
    }
}

impl Controller for ServiceIngressPlugin {
    type Config = Settings;
    type Object = Service;

    fn reconcile(request: Request<Service, Settings>, _: &Cluster) -> Result<Outcome, Failure> {
        let metadata = &request.object.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        Ok(Outcome::new().owned(Ingress::of(&metadata.name, namespace, &request.configuration)))
    }
}

pilothouse_plugin::export!(ServiceIngressPlugin);
