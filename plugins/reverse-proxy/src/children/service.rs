//! Owns the Service.

use pilothouse_plugin::{Kind, Resource};
use serde::Serialize;

use super::deployment::PORT_NAME;
use super::{Labels, Metadata};
use crate::check::Instance;
use crate::resource::Protocol;

/// The Service of a proxy. It has no clusterIP, so the one that the server has allocated stays.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Service<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    spec: Spec<'a>,
}

#[derive(Debug, Serialize)]
struct Spec<'a> {
    #[serde(rename = "type")]
    type_: &'static str,
    selector: Labels<'a>,
    ports: [Port; 1],
}

#[derive(Debug, Serialize)]
struct Port {
    #[serde(rename = "port")]
    number: u16,
    #[serde(rename = "targetPort")]
    target: &'static str,
    protocol: Protocol,
}

impl Resource for Service<'_> {
    const KIND: Kind = Kind::new("", "v1", "Service");
}

impl<'a> Service<'a> {
    pub(super) fn of(instance: &'a Instance<'_>) -> Self {
        let labels = Labels::of(instance);
        Self {
            api_version: "v1",
            kind: "Service",
            metadata: Metadata::of(instance, labels),
            spec: Spec {
                type_: "ClusterIP",
                selector: labels,
                ports: [Port {
                    number: instance.service_port,
                    target: PORT_NAME,
                    protocol: instance.protocol,
                }],
            },
        }
    }
}
