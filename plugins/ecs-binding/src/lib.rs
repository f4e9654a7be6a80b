//! The ecs-binding plugin: an EcsBinding records which cloud host (ECS) is which node.
//!
//! `resource` has the type that users write, `node` verifies it, and `settings` is the configuration. The label of
//! every EcsBinding is contributed in this file: other labels belong to their owners.

#![forbid(unsafe_code)]

mod node;
mod resource;
mod settings;
#[cfg(test)]
mod tests;

use pilothouse_plugin::{
    Cluster, Controller, ControllerManifest, Failure, Manifest, Outcome, Plugin, Request, Resource as _, Touch, json,
};

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
            .contributes_with::<EcsBinding>(Touch::anywhere)
            .reads_with::<Node>(Touch::anywhere);
        Manifest::new(
            env!("CARGO_PKG_NAME"),
            env!("CARGO_PKG_VERSION"),
            env!("CARGO_PKG_DESCRIPTION"),
        )
        .configuration_schema(include_str!("../configuration.schema.json"))
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
        let label = json!({
            "apiVersion": EcsBinding::KIND.api_version(), "kind": EcsBinding::KIND.kind,
            "metadata": {"name": metadata.name, "labels": {"hopegi.com/cluster": request.configuration.cluster_name}},
        });
        Ok(Outcome::new().contributed(label).condition(node::bound(spec, cluster)?))
    }
}

pilothouse_plugin::export!(EcsBindingPlugin);
