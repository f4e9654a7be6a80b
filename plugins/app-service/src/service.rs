//! Owns the Service: what it is for an app, and that an app without ports has none.

use pilothouse_plugin::{Kind, Resource};
use serde::Serialize;

use crate::check::App;
use crate::resource::ServicePort;

/// The Service of an app. It has no clusterIP and no nodePorts but those that users give, so what the server has
/// allocated stays.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Service<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    spec: Spec<'a>,
}

#[derive(Debug, Serialize)]
struct Metadata<'a> {
    name: &'a str,
    namespace: &'a str,
}

#[derive(Debug, Serialize)]
struct Spec<'a> {
    #[serde(rename = "type")]
    type_: &'static str,
    selector: Selector<'a>,
    ports: &'a [ServicePort],
}

#[derive(Debug, Serialize)]
struct Selector<'a> {
    app: &'a str,
}

impl Resource for Service<'_> {
    const KIND: Kind = Kind::new("", "v1", "Service");
}

impl<'a> Service<'a> {
    /// The Service that should exist for an app; none when the app has no ports.
    pub fn of(app: &App<'a>) -> Option<Self> {
        if app.service_ports.is_empty() {
            return None;
        }
        Some(Self {
            api_version: "v1",
            kind: "Service",
            metadata: Metadata {
                name: app.name,
                namespace: app.namespace,
            },
            spec: Spec {
                type_: "NodePort",
                selector: Selector { app: app.name },
                ports: app.service_ports,
            },
        })
    }
}
