//! Owns the form of a TCPReverseProxy.

use std::collections::BTreeMap;

use pilothouse_plugin::{Kind, ObjectMeta, Resource};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::proxy_spec;

/// The timeout of resources that say nothing else.
pub(crate) const TIMEOUT: &str = "10m";

const KIND: Kind = Kind::new("nginx.lin2ur.cn", "v1", "TCPReverseProxy");

/// A TCPReverseProxy: the fields that the plugin looks at.
#[derive(Clone, Debug, Deserialize)]
pub struct TcpReverseProxy {
    /// Name, namespace and so on.
    pub metadata: ObjectMeta,
    /// What the user wants.
    pub spec: TcpReverseProxySpec,
}

impl Resource for TcpReverseProxy {
    const KIND: Kind = KIND;
}

/// A TCPReverseProxy that is being deleted. Its spec does not matter any more, and may be as wrong as can be.
#[derive(Clone, Debug, Deserialize)]
pub struct TcpReverseProxyLeaving {}

impl Resource for TcpReverseProxyLeaving {
    const KIND: Kind = KIND;
}

proxy_spec! {
    /// Where connections go, and how they are spread.
    #[cfg_attr(
        test,
        kube(
            kind = "TCPReverseProxy",
            root = "TcpReverseProxyDefinition",
            doc = "A TCPReverseProxy stands for an nginx that passes TCP connections or UDP datagrams on to servers.",
            plural = "tcpreverseproxies",
            singular = "tcpreverseproxy",
            shortname = "ngxtcppxy",
            printcolumn(name = "Servers", type_ = "string", json_path = ".spec.servers[*].server"),
        )
    )]
    pub struct TcpReverseProxySpec {
        /// The servers that connections are passed on to; at least one.
        #[cfg_attr(
            test,
            schemars(
                length(min = 1, max = 64),
                extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["server"])
            )
        )]
        pub servers: Vec<UpstreamServer>,
        /// What decides which server a connection goes to, as in nginx's `hash`: text with variables, for example
        /// `$remote_addr`, if need be followed by `consistent`. In turn when absent.
        #[serde(default)]
        #[cfg_attr(test, schemars(with = "String", length(max = 1024)))]
        pub hash: Option<String>,
        /// The IP protocol.
        #[serde(default)]
        #[cfg_attr(test, schemars(with = "Protocol", extend("default" = "TCP")))]
        pub protocol: Option<Protocol>,
        /// How long a connection may be idle, in seconds or minutes.
        #[serde(default)]
        #[cfg_attr(
            test,
            schemars(with = "String", length(max = 8), regex(pattern = r"^\d+(s|m)$"), extend("default" = "10m"))
        )]
        pub proxy_timeout: Option<String>,
    }
}

/// One server.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(serde::Serialize, schemars::JsonSchema))]
pub struct UpstreamServer {
    /// Host and port, for example `database.shop:5432`.
    #[cfg_attr(test, schemars(length(min = 1, max = 512), regex(pattern = r"^\S+:\d+$")))]
    pub server: String,
    /// How much of the connections it gets, compared to the others, which have 1 when they say nothing.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "i32", range(min = 1, max = 1000)))]
    pub weight: Option<i32>,
    /// How many connections it gets at the same time at most, for each worker process; 0 is no limit.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "i32", range(min = 0)))]
    pub max_conns: Option<i32>,
}

/// An IP protocol that nginx proxies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// Transmission Control Protocol.
    #[default]
    Tcp,
    /// User Datagram Protocol.
    Udp,
}
