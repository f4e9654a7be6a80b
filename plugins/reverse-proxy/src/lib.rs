//! The reverse-proxy plugin: a ReverseProxy or TCPReverseProxy is an nginx in a ConfigMap, a Deployment and a Service.
//!
//! `resource` has the types that users write, `defaults` completes them, `check` validates them into a proxy that can
//! be built or returns the problems by field, `nginx` has nginx's own rules (variables, syntax, regular expressions)
//! and writes its configuration, `children` are the objects, and `proxies` joins them for each kind. `schemas` has the
//! rules of the CustomResourceDefinitions that the types of `resource` cannot express.

#![forbid(unsafe_code)]

mod check;
mod children;
mod defaults;
pub mod labels;
mod nginx;
mod proxies;
mod resource;
mod schemas;
mod settings;
#[cfg(test)]
mod tests;

use pilothouse_plugin::k8s::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service},
};
use pilothouse_plugin::{ControllerManifest, Manifest, Plugin};

pub use crate::{
    nginx::variables,
    proxies::{Http, Tcp},
    resource::{ReverseProxy, ReverseProxySpec, TcpReverseProxy, TcpReverseProxySpec},
    settings::Settings,
};

/// Finalizer that keeps a TCPReverseProxy until its children are deleted.
const FINALIZER: &str = "nginx.lin2ur.cn/finalizer";

/// The plugin.
#[derive(Debug)]
pub struct ReverseProxyPlugin;

impl Plugin for ReverseProxyPlugin {
    type Config = Settings;
    type Controllers = (Http, Tcp);

    fn manifest(_: &Settings) -> Manifest {
        let with_children = |controller: ControllerManifest| {
            controller
                // The reason for which users of the original operator have alerts.
                .failure_reason("Failure")
                .owns::<ConfigMap>()
                .owns::<Deployment>()
                .owns::<Service>()
        };
        Manifest::new(
            env!("CARGO_PKG_NAME"),
            env!("CARGO_PKG_VERSION"),
            env!("CARGO_PKG_DESCRIPTION"),
        )
        .controller(with_children(ControllerManifest::of::<ReverseProxy>("http")))
        .controller(with_children(
            ControllerManifest::of::<TcpReverseProxy>("tcp").finalizer(FINALIZER),
        ))
        .crd(include_str!("../crds/reverseproxies.nginx.lin2ur.cn.yaml"))
        .crd(include_str!("../crds/tcpreverseproxies.nginx.lin2ur.cn.yaml"))
        .configuration_schema(include_str!("../configuration.schema.json"))
    }

    fn check(settings: &Settings) -> Result<(), String> {
        settings.check()
    }
}

pilothouse_plugin::export!(
    ReverseProxyPlugin,
    finalizer: Tcp,
    defaulter: (Http, Tcp),
    validator: (Http, Tcp),
);
