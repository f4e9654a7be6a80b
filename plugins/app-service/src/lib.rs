//! The app-service plugin: one AppService manages a Deployment and a NodePort Service.
//!
//! `resource` has the type that users write, `check` validates it into an app that can be built, `ports` derives the
//! ports of its container, `deployment` and `service` are the two children, and the status is the Deployment's, copied
//! in `deployment` too. `crd` writes the CustomResourceDefinition from the types of `resource`.

#![forbid(unsafe_code)]

mod check;
mod crd;
mod deployment;
mod ports;
mod resource;
mod service;
#[cfg(test)]
mod tests;

use pilothouse_plugin::k8s::{apps::v1::Deployment, core::v1::Service};
use pilothouse_plugin::{
    Cluster, Controller, ControllerManifest, Failure, Manifest, NoConfig, Outcome, Plugin, Request,
};

use crate::check::App;
pub use crate::crd::{AppServiceCondition, AppServiceStatus};
use crate::deployment::LiveDeployment;
pub use crate::resource::{AppService, AppServiceSpec, IntOrString, Protocol, ServicePort};

/// The plugin, and the controller of its only kind.
#[derive(Debug)]
pub struct AppServicePlugin;

impl Plugin for AppServicePlugin {
    type Config = NoConfig;
    type Controllers = Self;

    fn manifest(_: &NoConfig) -> Manifest {
        let controller = ControllerManifest::of::<AppService>("app-service")
            .owns::<Deployment>()
            .reads::<LiveDeployment>()
            .owns::<Service>();
        Manifest::new(
            env!("CARGO_PKG_NAME"),
            env!("CARGO_PKG_VERSION"),
            env!("CARGO_PKG_DESCRIPTION"),
        )
        .controller(controller)
        .crd(include_str!("../crds/appservices.kosmos.io.yaml"))
    }
}

impl Controller for AppServicePlugin {
    type Config = NoConfig;
    type Object = AppService;

    fn reconcile(request: Request<AppService>, cluster: &Cluster) -> Result<Outcome, Failure> {
        let app = App::check(&request.object).map_err(Failure::permanent)?;
        let status = deployment::status_of_child(&app, cluster)?;

        let outcome = Outcome::new().owned(deployment::deployment(&app)).status(status);
        Ok(match service::service(&app) {
            Some(service) => outcome.owned(service),
            None => outcome,
        })
    }
}

pilothouse_plugin::export!(AppServicePlugin);
