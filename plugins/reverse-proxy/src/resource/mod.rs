//! Owns the forms of both kinds as users write them. The CRDs are generated from the types and comments of this folder.
#![cfg_attr(
    test,
    allow(clippy::duplicated_attributes, reason = "each column of a definition has a type")
)]

mod http;
mod tcp;

use std::collections::BTreeMap;

use serde_json::value::RawValue;

#[cfg(test)]
pub use self::{http::ReverseProxyDefinition, tcp::TcpReverseProxyDefinition};
pub(crate) use self::{http::TIMEOUT as HTTP_TIMEOUT, tcp::TIMEOUT as TCP_TIMEOUT};
pub use self::{
    http::{Flag, ReverseProxy, ReverseProxySpec, RewriteRule},
    tcp::{Protocol, TcpReverseProxy, TcpReverseProxyLeaving, TcpReverseProxySpec, UpstreamServer},
};

/// The replicas of resources that say nothing else.
const REPLICAS: i32 = 1;

/// The Service's port of resources that say nothing else.
const SERVICE_PORT: u16 = 80;

/// The connections of each worker process of resources that say nothing else.
const WORKER_CONNECTIONS: i32 = 1024;

/// The fields that both kinds have, borrowed from either.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Common<'a> {
    pub image: Option<&'a str>,
    pub replicas: i32,
    pub service_port: u16,
    pub resources: Option<&'a RawValue>,
    pub node_selector: Option<&'a BTreeMap<String, String>>,
    pub pod_labels: Option<&'a BTreeMap<String, String>>,
    pub affinity: Option<&'a RawValue>,
    pub env: Option<&'a RawValue>,
    pub resolver: &'a [String],
    pub worker_processes: Option<i32>,
    pub worker_connections: i32,
}

/// Defines a spec and its kind: the fields and columns of both kinds, and with them its own. (Reading flattened structs
/// would first copy what is read, and carry the code for it.)
macro_rules! proxy_spec {
    ($(#[$attribute:meta])* pub struct $name:ident { $($own:tt)* }) => {
        #[derive(Clone, Debug, Deserialize)]
        #[serde(rename_all = "camelCase")]
        #[cfg_attr(test, derive(serde::Serialize, schemars::JsonSchema, kube::CustomResource))]
        #[cfg_attr(
            test,
            kube(
                group = "nginx.lin2ur.cn",
                version = "v1",
                namespaced,
                status = "pilothouse_definitions::ConditionsOnly",
                printcolumn(
                    name = "Reconciled",
                    type_ = "string",
                    json_path = ".status.conditions[?(@.type==\"Reconciled\")].status"
                ),
            )
        )]
        $(#[$attribute])*
        #[cfg_attr(
            test,
            kube(
                printcolumn(name = "NginxImage", type_ = "string", json_path = ".spec.image"),
                printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
            )
        )]
        pub struct $name {
            /// The nginx image. When absent or empty, that of the plugin's configuration.
            #[serde(default)]
            #[cfg_attr(test, schemars(with = "String", length(max = 512), regex(pattern = r"^[!-~]*$")))]
            pub image: Option<String>,
            /// How many pods run.
            #[serde(default)]
            #[cfg_attr(test, schemars(with = "i32", range(min = 0), extend("default" = 1)))]
            pub replicas: Option<i32>,
            /// The port of the Service.
            #[serde(default)]
            #[cfg_attr(test, schemars(with = "i32", range(min = 1, max = 65535), extend("default" = 80)))]
            pub service_port: Option<u16>,
            /// The resources of the container, as in a Pod.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[cfg_attr(test, schemars(schema_with = "crate::generated::kubernetes::resources"))]
            pub resources: Option<Box<RawValue>>,
            /// Which nodes the pods may run on, by label.
            #[serde(default)]
            #[cfg_attr(
                test,
                schemars(with = "BTreeMap<String, crate::generated::LabelValue>", extend("maxProperties" = 64))
            )]
            pub node_selector: Option<BTreeMap<String, String>>,
            /// Labels that the pods get beside those that the operator sets.
            #[serde(default)]
            #[cfg_attr(
                test,
                schemars(
                    with = "BTreeMap<String, crate::generated::LabelValue>",
                    extend("maxProperties" = 64, "x-kubernetes-validations" = crate::generated::pod_label_rules())
                )
            )]
            pub pod_labels: Option<BTreeMap<String, String>>,
            /// The affinity of the pods, as in a Pod.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[cfg_attr(test, schemars(schema_with = "crate::generated::kubernetes::affinity"))]
            pub affinity: Option<Box<RawValue>>,
            /// The environment of the container, as in a Pod.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[cfg_attr(test, schemars(schema_with = "crate::generated::kubernetes::env"))]
            pub env: Option<Box<RawValue>>,
            /// The name servers that nginx asks while it runs: addresses with or without port, and nginx's parameters
            /// `valid=TIME` and `ipv6=off`. Needed where `$variables` stand for a host.
            #[serde(default)]
            #[cfg_attr(
                test,
                schemars(
                    with = "Vec<crate::generated::ShortWord>",
                    length(max = 16),
                    extend(
                        "x-kubernetes-list-type" = "set",
                        "x-kubernetes-validations" = crate::generated::resolver_rules()
                    )
                )
            )]
            pub resolver: Option<Vec<String>>,
            /// How many worker processes nginx has in each pod; as many as the node has cores when absent.
            #[serde(default)]
            #[cfg_attr(test, schemars(with = "i32", range(min = 1, max = 512)))]
            pub worker_processes: Option<i32>,
            /// How many connections each worker process may have, of which nginx needs three for itself.
            #[serde(default)]
            #[cfg_attr(test, schemars(with = "i32", range(min = 4, max = 1_000_000), extend("default" = 1024)))]
            pub worker_connections: Option<i32>,
            $($own)*
        }

        impl $name {
            /// The fields that both kinds have, with their defaults.
            pub(crate) fn common(&self) -> $crate::resource::Common<'_> {
                $crate::resource::Common {
                    // An empty image is none: the Go clients of the original write it.
                    image: self.image.as_deref().filter(|image| !image.is_empty()),
                    replicas: self.replicas.unwrap_or($crate::resource::REPLICAS),
                    service_port: self.service_port.unwrap_or($crate::resource::SERVICE_PORT),
                    resources: self.resources.as_deref(),
                    node_selector: self.node_selector.as_ref(),
                    pod_labels: self.pod_labels.as_ref(),
                    affinity: self.affinity.as_deref(),
                    env: self.env.as_deref(),
                    resolver: self.resolver.as_deref().unwrap_or_default(),
                    worker_processes: self.worker_processes,
                    worker_connections: self.worker_connections.unwrap_or($crate::resource::WORKER_CONNECTIONS),
                }
            }
        }
    };
}
use proxy_spec;
