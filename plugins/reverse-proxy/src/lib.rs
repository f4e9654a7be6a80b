//! The reverse-proxy plugin: each ReverseProxy and each TCPReverseProxy stands for an nginx, that is for a ConfigMap, a
//! Deployment and a Service.
//!
//! `resource` is what users write, `defaults` completes it, `check` makes of it a proxy that can be built or says which
//! fields stand in the way, `nginx` is what nginx itself takes (variables, syntax, regular expressions) and writes its
//! configuration, `children` are the objects, and `http` and `tcp` join them for one kind each. `generated`
//! writes the CustomResourceDefinitions and the schema of the configuration from types.

#![forbid(unsafe_code)]

mod check;
mod children;
mod defaults;
#[cfg(test)]
mod generated;
mod http;
mod nginx;
mod resource;
mod settings;
mod tcp;
#[cfg(test)]
mod tests;

use pilothouse_plugin::{ControllerManifest, Failure, FieldError, Manifest, ObjectMeta, Plugin, Touch};

use crate::{
    children::{config_map::ConfigMap, deployment::Deployment, service::Service},
    tcp::FINALIZER,
};
pub use crate::{
    http::Http,
    nginx::variables,
    resource::{ReverseProxy, ReverseProxySpec, TcpReverseProxy, TcpReverseProxySpec},
    settings::Settings,
    tcp::Tcp,
};

/// The plugin.
#[derive(Debug)]
pub struct ReverseProxyPlugin;

impl Plugin for ReverseProxyPlugin {
    type Config = Settings;
    type Controllers = (Http, Tcp);

    fn manifest(_: &Settings) -> Manifest {
        let touching_children = |controller: ControllerManifest| {
            controller
                .fields([".spec"])
                // What users of the original operator alert on.
                .failure_reason("Failure")
                .touches(Touch::of::<ConfigMap<'_>>().owned())
                .touches(Touch::of::<Deployment<'_>>().owned())
                .touches(Touch::of::<Service<'_>>().owned())
        };
        Manifest::new(
            env!("CARGO_PKG_NAME"),
            env!("CARGO_PKG_VERSION"),
            env!("CARGO_PKG_DESCRIPTION"),
        )
        .controller(touching_children(ControllerManifest::of::<ReverseProxy>("http")))
        .controller(touching_children(
            ControllerManifest::of::<TcpReverseProxy>("tcp").finalizer(FINALIZER),
        ))
        .crd(include_str!("../crds/reverseproxies.nginx.lin2ur.cn.yaml"))
        .crd(include_str!("../crds/tcpreverseproxies.nginx.lin2ur.cn.yaml"))
        .configuration_schema(settings::schema())
    }

    fn check(settings: &Settings) -> Result<(), String> {
        settings.check()
    }
}

/// All that is wrong with a resource, as one failure: it stays until somebody corrects the resource.
fn refusal(kind: &str, metadata: &ObjectMeta, errors: &[FieldError]) -> Failure {
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    Failure::permanent(format!("{kind} {namespace}/{}: {}", metadata.name, errors.join("; ")))
}

pilothouse_plugin::export!(
    ReverseProxyPlugin,
    finalizer: Tcp,
    defaulter: (Http, Tcp),
    validator: (Http, Tcp),
);
