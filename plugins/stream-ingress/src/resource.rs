//! The StreamIngress as users write it. The CRD is generated from the types and comments of this file.
#![allow(clippy::duplicated_attributes, reason = "each column of the definition has a type")]

use std::fmt;
use std::num::NonZeroU16;

use pilothouse_plugin::{ObjectMeta, Resource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A StreamIngress opens a TCP or UDP port on the ingress-nginx that all share.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(group = "nginx-stream.jeffthecoder.xyz", version = "v1beta1", kind = "StreamIngress")]
#[crd(
    plural = "streamingresses",
    printcolumn(name = "Listen", type_ = "integer", json_path = ".spec.listen"),
    printcolumn(name = "Protocol", type_ = "string", json_path = ".spec.protocol"),
    printcolumn(name = "Upstream", type_ = "string", json_path = ".spec.upstream.service"),
    printcolumn(name = "Port", type_ = "integer", json_path = ".spec.upstream.port"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Accepted\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Accepted\")].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct StreamIngress {
    /// Name, namespace, uid and so on.
    pub metadata: ObjectMeta,
    /// What the user wants.
    #[resource(whole)]
    pub spec: StreamIngressSpec,
}

impl StreamIngress {
    /// Returns the namespace of the upstream.
    pub fn upstream_namespace(&self) -> &str {
        let own = self.metadata.namespace.as_deref();
        self.spec.upstream.namespace.as_deref().or(own).unwrap_or_default()
    }

    /// Returns the port that it wants, for people.
    pub fn port(&self) -> String {
        format!("{} {}", self.spec.protocol, self.spec.listen)
    }

    /// Returns the destination of the port, in the form of ingress-nginx: `namespace/service:port`.
    pub fn destination(&self) -> String {
        let Upstream { service, port, .. } = &self.spec.upstream;
        destination(self.upstream_namespace(), service, port.get().into())
    }
}

/// Formats a destination for ingress-nginx.
pub fn destination(namespace: &str, service: &str, port: u32) -> String {
    format!("{namespace}/{service}:{port}")
}

/// Which port is opened, and where it leads.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct StreamIngressSpec {
    /// The port that is opened, which one StreamIngress can hold per protocol and keeps until it lets go of it.
    #[schemars(extend("format" = "int32"))]
    pub listen: NonZeroU16,
    /// The protocol of the port, here and upstream.
    #[serde(default)]
    pub protocol: Protocol,
    /// Where the port leads.
    pub upstream: Upstream,
    /// Whether the upstream is a Service of this cluster, which is then checked: the port is opened while the Service is
    /// there and has the upstream's port.
    #[serde(default = "is_service_by_default")]
    pub is_service: bool,
}

/// A Service and one of its ports.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Upstream {
    /// The Service's namespace. The namespace of the StreamIngress when absent; another one has to permit it.
    #[serde(default)]
    #[schemars(
        with = "String",
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub namespace: Option<String>,
    /// The Service's name.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub service: String,
    /// The number of the Service's port.
    #[schemars(extend("format" = "int32"))]
    pub port: NonZeroU16,
}

/// A protocol that ingress-nginx passes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// Transmission Control Protocol.
    #[default]
    Tcp,
    /// User Datagram Protocol.
    Udp,
}

impl Protocol {
    /// Returns the protocol as the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }

    /// Reports whether a protocol of the API, TCP if it is left out, is this one.
    pub fn is(self, name: Option<&str>) -> bool {
        name.unwrap_or("TCP") == self.as_str()
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

fn is_service_by_default() -> bool {
    true
}

#[test]
fn generated_crd_is_what_the_types_give() {
    pilothouse_plugin::crd::keep::<StreamIngress>(env!("CARGO_MANIFEST_DIR"));
}
