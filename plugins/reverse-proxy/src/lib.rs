//! The reverse-proxy plugin: each ReverseProxy and each TCPReverseProxy stands for an nginx, that is for a ConfigMap, a
//! Deployment and a Service.
//!
//! `resource` is what users write, `defaults` completes it, `check` makes of it a proxy that can be built or says which
//! fields stand in the way, `nginx` is what nginx itself takes (variables, syntax, regular expressions) and writes its
//! configuration, `children` are the objects, and `proxies` joins them for each kind. `schemas` has what the types of
//! `resource` do not say of the CustomResourceDefinitions.

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

/// The finalizer by which a TCPReverseProxy stays until its children are gone.
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
                // What users of the original operator alert on.
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
