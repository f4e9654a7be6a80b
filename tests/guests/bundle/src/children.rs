//! Owns the three children of a Bundle, each with the fields that are ours and no others.

use pilothouse_plugin::{Kind, ObjectMeta, Resource};
use serde::Serialize;

pub const CONFIG_MAP: Kind = Kind::new("", "v1", "ConfigMap");

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMap<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    data: Data<'a>,
}

#[derive(Debug, Serialize)]
struct Data<'a> {
    payload: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Service<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    spec: ServiceSpec<'a>,
}

#[derive(Debug, Serialize)]
struct ServiceSpec<'a> {
    #[serde(rename = "type")]
    type_: &'static str,
    selector: Labels<'a>,
    ports: [ServicePort; 1],
}

#[derive(Debug, Serialize)]
struct ServicePort {
    port: u16,
    protocol: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Deployment<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    spec: DeploymentSpec<'a>,
}

#[derive(Debug, Serialize)]
struct DeploymentSpec<'a> {
    replicas: u32,
    selector: Selector<'a>,
    template: Template<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Selector<'a> {
    match_labels: Labels<'a>,
}

#[derive(Debug, Serialize)]
struct Template<'a> {
    metadata: TemplateMetadata<'a>,
    spec: PodSpec<'a>,
}

#[derive(Debug, Serialize)]
struct TemplateMetadata<'a> {
    labels: Labels<'a>,
}

#[derive(Debug, Serialize)]
struct PodSpec<'a> {
    containers: [Container<'a>; 1],
}

#[derive(Debug, Serialize)]
struct Container<'a> {
    name: &'static str,
    image: &'a str,
}

/// Each child has the Bundle's name, and a label with it.
#[derive(Debug, Serialize)]
struct Metadata<'a> {
    name: &'a str,
    namespace: Option<&'a str>,
    labels: Labels<'a>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Labels<'a> {
    app: &'a str,
}

impl<'a> Metadata<'a> {
    fn new(bundle: &'a ObjectMeta) -> Self {
        Self {
            name: &bundle.name,
            namespace: bundle.namespace.as_deref(),
            labels: Labels::new(bundle),
        }
    }
}

impl<'a> Labels<'a> {
    fn new(bundle: &'a ObjectMeta) -> Self {
        Self { app: &bundle.name }
    }
}

impl Resource for ConfigMap<'_> {
    const KIND: Kind = CONFIG_MAP;
}

impl Resource for Service<'_> {
    const KIND: Kind = Kind::new("", "v1", "Service");
}

impl Resource for Deployment<'_> {
    const KIND: Kind = Kind::new("apps", "v1", "Deployment");
}

impl<'a> ConfigMap<'a> {
    /// Holds the payload.
    pub fn new(bundle: &'a ObjectMeta, payload: &'a str) -> Self {
        Self {
            api_version: "v1",
            kind: "ConfigMap",
            metadata: Metadata::new(bundle),
            data: Data { payload },
        }
    }
}

impl<'a> Service<'a> {
    /// Offers the port.
    pub fn new(bundle: &'a ObjectMeta, port: u16) -> Self {
        Self {
            api_version: "v1",
            kind: "Service",
            metadata: Metadata::new(bundle),
            spec: ServiceSpec {
                type_: "ClusterIP",
                selector: Labels::new(bundle),
                ports: [ServicePort { port, protocol: "TCP" }],
            },
        }
    }
}

impl<'a> Deployment<'a> {
    /// Runs nothing: what is measured is the operator.
    pub fn new(bundle: &'a ObjectMeta, image: &'a str) -> Self {
        let labels = Labels::new(bundle);
        Self {
            api_version: "apps/v1",
            kind: "Deployment",
            metadata: Metadata::new(bundle),
            spec: DeploymentSpec {
                replicas: 0,
                selector: Selector { match_labels: labels },
                template: Template {
                    metadata: TemplateMetadata { labels },
                    spec: PodSpec {
                        containers: [Container { name: "main", image }],
                    },
                },
            },
        }
    }
}
