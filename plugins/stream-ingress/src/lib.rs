//! The stream-ingress plugin: each StreamIngress opens a TCP or UDP port on an ingress-nginx that all share.
//!
//! `resource` is what users write. `accept` decides whether one may have its port, asking `holder` who holds it and
//! `upstream` whether it leads anywhere; `entry` is what it then contributes to the ConfigMap and the Service of the
//! ingress-nginx that `settings` names. `generated` writes the CustomResourceDefinition and the configuration's schema.

#![forbid(unsafe_code)]

mod accept;
mod entry;
#[cfg(test)]
mod generated;
mod holder;
mod resource;
mod settings;
#[cfg(test)]
mod tests;
mod upstream;

use pilothouse_plugin::{Cluster, Controller, ControllerManifest, Failure, Manifest, Outcome, Plugin, Request, Touch};

use crate::accept::Verdict;
use crate::entry::{ConfigMap, ServicePorts};
use crate::holder::Rival;
pub use crate::resource::{Protocol, StreamIngress, StreamIngressSpec, Upstream};
pub use crate::settings::Settings;
use crate::upstream::Service;

/// The plugin, and the controller of its only kind.
#[derive(Debug)]
pub struct StreamIngressPlugin;

impl Plugin for StreamIngressPlugin {
    type Config = Settings;
    type Controllers = Self;

    fn manifest(settings: &Settings) -> Manifest {
        let config_maps = Touch::of::<ConfigMap<'_>>()
            .read(Vec::<String>::new())
            .contributed()
            .in_namespaces([&settings.namespace])
            .named(settings.config_maps());
        let controller = ControllerManifest::of::<StreamIngress>("stream-ingress")
            .fields([".spec"])
            .touches(Touch::of::<Rival>().read([".spec.listen", ".spec.protocol"]).anywhere())
            .touches(
                Touch::of::<Service>()
                    .read([".spec.ports[].port", ".spec.ports[].protocol"])
                    .contributed()
                    .anywhere(),
            )
            .touches(config_maps);
        Manifest::new(
            env!("CARGO_PKG_NAME"),
            env!("CARGO_PKG_VERSION"),
            env!("CARGO_PKG_DESCRIPTION"),
        )
        .configuration_schema(settings::schema())
        .controller(controller)
        .crd(include_str!(
            "../crds/streamingresses.nginx-stream.jeffthecoder.xyz.yaml"
        ))
    }

    fn check(settings: &Settings) -> Result<(), String> {
        settings.check()
    }
}

impl Controller for StreamIngressPlugin {
    type Config = Settings;
    type Object = StreamIngress;

    fn reconcile(request: Request<StreamIngress, Settings>, cluster: &Cluster) -> Result<Outcome, Failure> {
        let (stream, settings) = (&request.object, &request.configuration);
        let outcome = Outcome::new();
        Ok(match accept::decide(stream, settings, cluster)? {
            Verdict::Refused(condition) => outcome.condition(condition),
            Verdict::Accepted(condition) => outcome
                .contributed(ConfigMap::of(stream, settings))
                .contributed(ServicePorts::of(stream, settings))
                .condition(condition),
        })
    }
}

pilothouse_plugin::export!(StreamIngressPlugin);
