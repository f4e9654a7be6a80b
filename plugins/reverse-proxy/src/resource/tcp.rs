//! The TCPReverseProxy as users write it.

use std::collections::BTreeMap;

use pilothouse_plugin::{Kind, ObjectMeta, Resource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::proxy_spec;

/// A TCPReverseProxy stands for an nginx that passes TCP connections or UDP datagrams on to servers.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(group = "nginx.lin2ur.cn", version = "v1", kind = "TCPReverseProxy")]
#[crd(
    plural = "tcpreverseproxies",
    shortname = "ngxtcppxy",
    printcolumn(
        name = "Reconciled",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Reconciled\")].status"
    ),
    printcolumn(name = "Servers", type_ = "string", json_path = ".spec.servers[*].server"),
    printcolumn(name = "NginxImage", type_ = "string", json_path = ".spec.image"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    validation(
        rule = "self.metadata.name.size() <= 50 && !self.metadata.name.contains('.')",
        message = "metadata.name is part of the name of a Service: at most 50 characters a-z, 0-9 and '-'"
    )
)]
pub struct TcpReverseProxy {
    /// Name, namespace and so on.
    pub metadata: ObjectMeta,
    /// What the user wants, all of which is read.
    #[resource(whole)]
    pub spec: TcpReverseProxySpec,
}

/// A TCPReverseProxy that is being deleted. Its spec does not matter any more, and may be as wrong as can be.
#[derive(Clone, Debug, Deserialize)]
pub struct TcpReverseProxyLeaving {}

impl Resource for TcpReverseProxyLeaving {
    const KIND: Kind = TcpReverseProxy::KIND;
}

proxy_spec! {
    /// Where connections go, and how they are spread.
    pub struct TcpReverseProxySpec {
        /// The servers that connections are passed on to; at least one.
        #[schemars(
            length(min = 1, max = 64),
            extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["server"])
        )]
        pub servers: Vec<UpstreamServer>,
        /// What decides which server a connection goes to, as in nginx's `hash`: text with variables, for example
        /// `$remote_addr`, if need be followed by `consistent`. In turn when absent.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        #[schemars(length(max = 1024))]
        pub hash: String,
        /// The IP protocol.
        #[serde(default)]
        pub protocol: Protocol,
        /// How long a connection may be idle, in seconds or minutes.
        #[serde(default = "timeout")]
        #[schemars(length(max = 8), regex(pattern = r"^\d+(s|m)$"))]
        pub proxy_timeout: String,
    }
}

fn timeout() -> String {
    "10m".to_owned()
}

/// One server.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamServer {
    /// Host and port, for example `database.shop:5432`.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+:\d+$"))]
    pub server: String,
    /// How much of the connections it gets, compared to the others, which have 1 when they say nothing.
    // nginx makes 160 points for each unit of weight when the hash is consistent.
    #[serde(default)]
    #[schemars(with = "i32", range(min = 1, max = 1000))]
    pub weight: Option<i32>,
    /// How many connections it gets at the same time at most, for each worker process; 0 is no limit.
    #[serde(default)]
    #[schemars(with = "i32", range(min = 0))]
    pub max_conns: Option<i32>,
}

/// An IP protocol that nginx proxies.
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
    /// Returns the protocol as Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}
