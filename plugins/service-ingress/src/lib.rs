//! The service-ingress plugin: a Service with the annotation `ingress/http` gets an Ingress of its name.
//!
//! `settings` is the configuration, `ingress` the child, and this file joins them. The host only passes annotated
//! Services, applies the returned Ingress, and deletes it once the annotation is removed.

#![forbid(unsafe_code)]

mod ingress;
mod settings;
#[cfg(test)]
mod tests;

use pilothouse_plugin::k8s::networking::v1::Ingress;
use pilothouse_plugin::{
    Cluster, Controller, ControllerManifest, Failure, Manifest, ObjectMeta, Outcome, Plugin, Request, Resource,
};
use serde::Deserialize;

pub use crate::settings::Settings;

/// Annotation that requests an Ingress; its value does not matter.
pub const ANNOTATION: &str = "ingress/http";

/// A Service: only its name and namespace are read.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(group = "", version = "v1", kind = "Service")]
pub struct Service {
    /// Name, namespace and so on.
    pub metadata: ObjectMeta,
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
            .owns::<Ingress>();
        Manifest::new(
            env!("CARGO_PKG_NAME"),
            env!("CARGO_PKG_VERSION"),
            env!("CARGO_PKG_DESCRIPTION"),
        )
        .configuration_schema(include_str!("../configuration.schema.json"))
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
        let ingress = ingress::ingress(&request.object.metadata, &request.configuration);
        Ok(Outcome::new().owned(ingress))
    }
}

pilothouse_plugin::export!(ServiceIngressPlugin);
