//! The workload of the benchmarks: one Bundle stands for a ConfigMap, a Service and a Deployment without replicas, and
//! its status says that it is ready. Four writes for each, whoever makes them.
//!
//! With `"shared": true` in its configuration the payload comes from the ConfigMap `shared` of the namespace, on which
//! every Bundle then depends.

#![forbid(unsafe_code)]

mod children;
#[cfg(test)]
mod tests;

use pilothouse_plugin::k8s::{apps::v1::Deployment, core::v1::ConfigMap, core::v1::Service};
use pilothouse_plugin::{
    Cluster, Controller, ControllerManifest, Failure, Fields, Manifest, ObjectMeta, Outcome, Plugin, Request, Resource,
};
use serde::Deserialize;

/// The plugin, and the controller of its only kind.
#[derive(Debug)]
pub struct BundlePlugin;

/// The configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Set if the payload comes from the ConfigMap `shared`.
    shared: bool,
}

/// Bundle, as users write it.
#[derive(Debug, Deserialize, Resource)]
#[resource(group = "bench.example.dev", version = "v1", kind = "Bundle")]
pub struct Bundle {
    metadata: ObjectMeta,
    #[resource(whole)]
    spec: Spec,
}

#[derive(Debug, Deserialize)]
struct Spec {
    payload: String,
    port: u16,
    image: String,
}

/// Needed part of the ConfigMap `shared`.
#[derive(Deserialize, Resource)]
#[resource(group = "", version = "v1", kind = "ConfigMap")]
struct Shared {
    data: Option<SharedData>,
}

#[derive(Deserialize, Fields)]
struct SharedData {
    payload: Option<String>,
}

impl Plugin for BundlePlugin {
    type Config = Config;
    type Controllers = Self;

    fn manifest(config: &Config) -> Manifest {
        let controller = ControllerManifest::of::<Bundle>("bundle").owns::<ConfigMap>();
        let controller = if config.shared {
            controller.reads::<Shared>()
        } else {
            controller
        };
        let controller = controller.owns::<Service>().owns::<Deployment>();
        Manifest::new(
            env!("CARGO_PKG_NAME"),
            env!("CARGO_PKG_VERSION"),
            env!("CARGO_PKG_DESCRIPTION"),
        )
        .controller(controller)
        .crd(include_str!("../crds/bundles.bench.example.dev.yaml"))
        .configuration_schema(serde_json::json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {"shared": {"type": "boolean"}},
        }))
    }
}

impl Controller for BundlePlugin {
    type Config = Config;
    type Object = Bundle;

    fn reconcile(request: Request<Bundle, Config>, cluster: &Cluster) -> Result<Outcome, Failure> {
        let Bundle { metadata, spec } = &request.object;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let shared = if request.configuration.shared {
            cluster.get::<Shared>(namespace, "shared")?
        } else {
            None
        };
        let shared = shared.and_then(|shared| shared.data?.payload);
        let payload = shared.as_deref().unwrap_or(&spec.payload);
        Ok(Outcome::new()
            .owned(children::config_map(metadata, payload))
            .owned(children::service(metadata, spec.port))
            .owned(children::deployment(metadata, &spec.image))
            .status(serde_json::json!({"ready": true})))
    }
}

pilothouse_plugin::export!(BundlePlugin);
