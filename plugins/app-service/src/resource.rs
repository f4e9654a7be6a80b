//! The AppService as users write it. The CRD is generated from the types and comments of this file.

use std::fmt;

pub use pilothouse_plugin::k8s::IntOrString;
use pilothouse_plugin::{ObjectMeta, Resource};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use crate::crd::AppServiceStatus;

/// An AppService stands for a Deployment and a NodePort Service of the same name.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(group = "kosmos.io", version = "v1", kind = "AppService")]
#[crd(
    plural = "appservices",
    shortname = "aps",
    status = AppServiceStatus,
    validation(
        rule = "self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        message = "metadata.name is the name of the container and of the Service too: at most 63 characters a-z, 0-9 and '-', beginning with a letter and ending with a letter or digit"
    ),
    scale(spec_replicas_path = ".spec.size", status_replicas_path = ".status.replicas"),
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size"),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image"),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.availableReplicas"),
    printcolumn(
        name = "Reconciled",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Reconciled\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct AppService {
    /// Name, namespace, uid and so on.
    pub metadata: ObjectMeta,
    /// What the user wants, all of which is read.
    #[resource(whole)]
    pub spec: AppServiceSpec,
}

/// What should run, how often, and on which ports it can be reached.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct AppServiceSpec {
    /// How many replicas run.
    #[schemars(range(min = 0))]
    pub size: i32,
    /// The container image, for example `nginx:1.7.9`.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^\S+$"))]
    pub image: String,
    /// The ports of the Service, as in its own spec. Without ports there is no Service.
    #[serde(default)]
    #[schemars(
            with = "Vec<ServicePort>",
            default,
            length(max = 200),
            extend(
                "x-kubernetes-list-type" = "map",
                "x-kubernetes-list-map-keys" = ["port", "protocol"],
                "x-kubernetes-validations" = [
                    {
                        "rule": "self.size() < 2 || self.all(port, has(port.name) && port.name != '')",
                        "message": "with more than one port, each needs a name",
                    },
                    {
                        "rule": "self.all(port, !has(port.name) || self.exists_one(other, has(other.name) && other.name == port.name))",
                        "message": "give each port a name of its own",
                    },
                ]
            )
        )]
    pub ports: Option<Vec<ServicePort>>,
}

/// One port of the Service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// The name of the port, a DNS label. Needed when there is more than one port.
    #[serde(default)]
    #[schemars(
        with = "String",
        length(max = 63),
        regex(pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$")
    )]
    pub name: Option<String>,
    /// The number under which the Service offers the port.
    #[schemars(with = "i32", range(min = 1, max = 65535))]
    pub port: u16,
    /// The port of the container: a number, or a name, for which the container gets a port of that name with the number
    /// of `port`. The number of `port` when absent.
    #[serde(default)]
    #[schemars(schema_with = "target_port")]
    pub target_port: Option<IntOrString>,
    /// The port on each node. The cluster chooses one when absent.
    #[serde(default)]
    #[schemars(with = "i32", range(min = 0, max = 65535))]
    pub node_port: Option<u16>,
    /// The IP protocol.
    #[serde(default)]
    #[schemars(with = "Protocol", extend("default" = "TCP"))]
    pub protocol: Option<Protocol>,
    /// The application protocol: a hint for implementations that know it, for example `http` or `kubernetes.io/h2c`.
    #[serde(default)]
    #[schemars(
        with = "String",
        length(max = 316),
        regex(pattern = r"^(([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")
    )]
    pub app_protocol: Option<String>,
}

impl ServicePort {
    /// Returns the protocol, which is TCP when none is given.
    pub fn protocol(&self) -> Protocol {
        self.protocol.unwrap_or_default()
    }
}

/// An IP protocol that Services know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// Transmission Control Protocol.
    #[default]
    Tcp,
    /// User Datagram Protocol.
    Udp,
    /// Stream Control Transmission Protocol.
    Sctp,
}

impl Protocol {
    /// Returns the protocol as Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Returns the bounds of a port's number and of its name; 0 and the empty name mean none.
fn target_port(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "minimum": 0,
        "maximum": 65535,
        "maxLength": 15,
        "pattern": "^(([0-9]+-)*[0-9]*[a-z][a-z0-9]*(-[a-z0-9]+)*)?$",
    })
}
