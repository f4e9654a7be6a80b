//! Owns what an accepted StreamIngress contributes: one entry of the shared ConfigMap, and one port of the shared Service.
//! Both belong to somebody else; the types list the fields that are ours.

use std::collections::BTreeMap;

use pilothouse_plugin::{Kind, Resource};
use serde::Serialize;

use crate::resource::{Protocol, StreamIngress};
use crate::settings::Settings;

/// The shared ConfigMap with one entry: from the port to where it leads.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMap<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    data: BTreeMap<String, String>,
}

/// The shared Service with one port.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePorts<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    spec: Spec,
}

#[derive(Debug, Serialize)]
struct Metadata<'a> {
    name: &'a str,
    namespace: &'a str,
}

#[derive(Debug, Serialize)]
struct Spec {
    ports: [Opened; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Opened {
    /// A Service with two ports needs names.
    name: String,
    protocol: Protocol,
    port: u16,
    target_port: u16,
}

impl Resource for ConfigMap<'_> {
    const KIND: Kind = Kind::new("", "v1", "ConfigMap");
}

impl<'a> ConfigMap<'a> {
    /// The entry of a StreamIngress.
    pub fn of(stream: &StreamIngress, settings: &'a Settings) -> Self {
        let spec = &stream.spec;
        Self {
            api_version: "v1",
            kind: "ConfigMap",
            metadata: Metadata {
                name: settings.config_map(spec.protocol),
                namespace: &settings.namespace,
            },
            data: BTreeMap::from([(spec.listen.to_string(), stream.destination())]),
        }
    }
}

impl<'a> ServicePorts<'a> {
    /// The port of a StreamIngress.
    pub fn of(stream: &StreamIngress, settings: &'a Settings) -> Self {
        let (protocol, listen) = (stream.spec.protocol, stream.spec.listen.get());
        let opened = Opened {
            name: format!("{}-{listen}", protocol.lower_case()),
            protocol,
            port: listen,
            target_port: listen,
        };
        Self {
            api_version: "v1",
            kind: "Service",
            metadata: Metadata {
                name: &settings.service,
                namespace: &settings.namespace,
            },
            spec: Spec { ports: [opened] },
        }
    }
}
