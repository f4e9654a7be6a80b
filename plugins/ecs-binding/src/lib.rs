//! The ecs-binding plugin: an EcsBinding records which cloud host (ECS) is which node.
//!
//! `resource` is what users write, `node` finds out whether it is true, `label` is what every EcsBinding is given, and
//! `settings` the configuration. `generated` writes the CustomResourceDefinition and the configuration's schema.

#![forbid(unsafe_code)]

#[cfg(test)]
mod generated;
mod label;
mod node;
mod resource;
mod settings;
#[cfg(test)]
mod tests;

use pilothouse_plugin::{Cluster, Controller, ControllerManifest, Failure, Manifest, Outcome, Plugin, Request, Touch};

use crate::label::Labelled;
use crate::node::Node;
pub use crate::resource::{EcsBinding, EcsBindingSpec};
pub use crate::settings::Settings;

/// The plugin, and the controller of its only kind.
#[derive(Debug)]
pub struct EcsBindingPlugin;

impl Plugin for EcsBindingPlugin {
    type Config = Settings;
    type Controllers = Self;

    fn manifest(_: &Settings) -> Manifest {
        let controller = ControllerManifest::of::<EcsBinding>("ecs-binding")
            .fields([".spec"])
            .touches(Touch::of::<EcsBinding>().contributed().anywhere())
            // The addresses and nothing else, so that no heartbeat wakes anybody.
            .touches(Touch::of::<Node>().read([".status.addresses"]).anywhere());
        Manifest::new(
            env!("CARGO_PKG_NAME"),
            env!("CARGO_PKG_VERSION"),
            env!("CARGO_PKG_DESCRIPTION"),
        )
        .configuration_schema(settings::schema())
        .controller(controller)
        .crd(include_str!("../crds/ecsbinding.hopegi.com.yaml"))
    }

    fn check(settings: &Settings) -> Result<(), String> {
        settings.check()
    }
}

impl Controller for EcsBindingPlugin {
    type Config = Settings;
    type Object = EcsBinding;

    fn reconcile(request: Request<EcsBinding, Settings>, cluster: &Cluster) -> Result<Outcome, Failure> {
        let EcsBinding { metadata, spec } = &request.object;
        Ok(Outcome::new()
            .contributed(Labelled::of(&metadata.name, &request.configuration.cluster_name))
            .condition(node::bound(spec, cluster)?))
    }
}

pilothouse_plugin::export!(EcsBindingPlugin);
