//! The app-service plugin: one AppService stands for a Deployment and a NodePort Service.
//!
//! `resource` is what users write, `check` makes of it an app that can be built, `ports` says which ports its container
//! has, `deployment` and `service` are the two children, and the status is the Deployment's, taken over in
//! `deployment` too. `crd` writes the CustomResourceDefinition from the types of `resource`.

#![forbid(unsafe_code)]

mod check;
#[cfg(test)]
mod crd;
mod deployment;
mod ports;
mod resource;
mod service;
#[cfg(test)]
mod tests;

use pilothouse_plugin::{
    Cluster, Controller, ControllerManifest, Failure, Manifest, NoConfig, Outcome, Plugin, Request, Touch,
};

pub use crate::resource::{AppService, AppServiceSpec, IntOrString, Protocol, ServicePort};
use crate::{check::App, deployment::Deployment, service::Service};

/// The plugin, and the controller of its only kind.
#[derive(Debug)]
pub struct AppServicePlugin;

impl Plugin for AppServicePlugin {
    type Config = NoConfig;
    type Controllers = Self;

    fn manifest(_: &NoConfig) -> Manifest {
        let controller = ControllerManifest::of::<AppService>("app-service")
            .fields([".spec"])
            .touches(Touch::of::<Deployment<'_>>().owned().read([".status"]))
            .touches(Touch::of::<Service<'_>>().owned());
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

        let mut outcome = Outcome::new().owned(Deployment::of(&app)).status(status);
        if let Some(service) = Service::of(&app) {
            outcome = outcome.owned(service);
        }
        Ok(outcome)
    }
}

pilothouse_plugin::export!(AppServicePlugin);
