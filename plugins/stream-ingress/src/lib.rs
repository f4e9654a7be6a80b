//! The stream-ingress plugin: each StreamIngress opens a TCP or UDP port on a shared ingress-nginx.
//!
//! `resource` has the type that users write. `accept` decides whether one may have its port: `grant` checks its
//! permission, `holder` finds the holder of the port, and `upstream` checks the destination; `entry` is its
//! contribution to the ConfigMap and the Service of the ingress-nginx that `settings` names.

#![forbid(unsafe_code)]

mod accept;
mod entry;
mod grant;
mod holder;
mod resource;
mod settings;
#[cfg(test)]
mod tests;
mod upstream;

use pilothouse_plugin::k8s::core::v1::{ConfigMap, Service};
use pilothouse_plugin::{Cluster, Controller, ControllerManifest, Failure, Manifest, Outcome, Plugin, Request, Touch};

use crate::accept::{LiveConfigMap, Verdict};
use crate::holder::Rival;
pub use crate::resource::{Protocol, StreamIngress, StreamIngressSpec, Upstream};
pub use crate::settings::Settings;
use crate::upstream::LiveService;

/// The plugin, and the controller of its only kind.
#[derive(Debug)]
pub struct StreamIngressPlugin;

impl Plugin for StreamIngressPlugin {
    type Config = Settings;
    type Controllers = Self;

    fn manifest(settings: &Settings) -> Manifest {
        let controller = ControllerManifest::of::<StreamIngress>("stream-ingress")
            .reads_with::<Rival>(Touch::anywhere)
            .reads::<LiveService>()
            .contributes_with::<Service>(Touch::anywhere)
            .reads::<LiveConfigMap>()
            .contributes_with::<ConfigMap>(|touch| {
                let touch = touch.in_namespaces([&settings.namespace]);
                touch.named([&settings.tcp_config_map, &settings.udp_config_map])
            });
        Manifest::new(
            env!("CARGO_PKG_NAME"),
            env!("CARGO_PKG_VERSION"),
            env!("CARGO_PKG_DESCRIPTION"),
        )
        .configuration_schema(include_str!("../configuration.schema.json"))
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
                .contributed(entry::config_map(stream, settings))
                .contributed(entry::service(stream, settings))
                .condition(condition),
        })
    }
}

pilothouse_plugin::export!(StreamIngressPlugin);
