//! The workload of the benchmarks: one Bundle stands for a ConfigMap, a Service and a Deployment without replicas, and
//! its status says that it is ready. Four writes for each, whoever makes them.
//!
//! With `"shared": true` in its configuration the payload comes from the ConfigMap `shared` of the namespace, on which
//! every Bundle then depends.

#![forbid(unsafe_code)]

mod children;
#[cfg(test)]
mod tests;

use pilothouse_plugin::{
    Cluster, Controller, ControllerManifest, Failure, Kind, Manifest, ObjectMeta, Outcome, Plugin, Request, Resource,
    Touch,
};
use serde::Deserialize;

use crate::children::{ConfigMap, Deployment, Service};

/// The plugin, and the controller of its only kind.
#[derive(Debug)]
pub struct BundlePlugin;

/// The configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Whether the payload comes from the ConfigMap `shared`.
    shared: bool,
}

/// What users write.
#[derive(Debug, Deserialize)]
pub struct Bundle {
    metadata: ObjectMeta,
    spec: Spec,
}

#[derive(Debug, Deserialize)]
struct Spec {
    payload: String,
    port: u16,
    image: String,
}

/// What is read of the ConfigMap `shared`.
#[derive(Deserialize)]
struct Shared {
    data: Option<SharedData>,
}

#[derive(Deserialize)]
struct SharedData {
    payload: Option<String>,
}

impl Resource for Bundle {
    const KIND: Kind = Kind::new("bench.example.dev", "v1", "Bundle");
}

impl Resource for Shared {
    const KIND: Kind = children::CONFIG_MAP;
}

impl Plugin for BundlePlugin {
    type Config = Config;
    type Controllers = Self;

    fn manifest(config: &Config) -> Manifest {
        let config_map = Touch::of::<ConfigMap<'_>>().owned();
        let controller = ControllerManifest::of::<Bundle>("bundle")
            .fields([".spec"])
            .touches(if config.shared {
                config_map.read([".data.payload"])
            } else {
                config_map
            })
            .touches(Touch::of::<Service<'_>>().owned())
            .touches(Touch::of::<Deployment<'_>>().owned());
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
            .owned(ConfigMap::new(metadata, payload))
            .owned(Service::new(metadata, spec.port))
            .owned(Deployment::new(metadata, &spec.image))
            .status(serde_json::json!({"ready": true})))
    }
}

pilothouse_plugin::export!(BundlePlugin);
