//! Both kinds as users write them. The CRDs are generated from the types and comments of this folder.
#![allow(clippy::duplicated_attributes, reason = "each column of a definition has a type")]

mod http;
mod tcp;

use std::collections::BTreeMap;

use pilothouse_plugin::k8s::core::v1::{Affinity, EnvVar, ResourceRequirements};

pub use self::{
    http::{ReverseProxy, ReverseProxySpec, RewriteRule},
    tcp::{Protocol, TcpReverseProxy, TcpReverseProxyLeaving, TcpReverseProxySpec, UpstreamServer},
};

/// Fields that both kinds have, borrowed from either.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Common<'a> {
    pub image: &'a str,
    pub replicas: i32,
    pub service_port: u16,
    pub resources: Option<&'a ResourceRequirements>,
    pub node_selector: &'a BTreeMap<String, String>,
    pub pod_labels: &'a BTreeMap<String, String>,
    pub affinity: Option<&'a Affinity>,
    pub env: &'a [EnvVar],
    pub resolver: &'a [String],
    pub worker_processes: Option<i32>,
    pub worker_connections: i32,
}

/// Defines a spec: the fields of both kinds, and its own. (Flattened structs would copy the input, and enlarge the
/// code.)
macro_rules! proxy_spec {
    ($(#[$attribute:meta])* pub struct $name:ident { $($own:tt)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            /// The nginx image. When absent or empty, that of the plugin's configuration.
            #[serde(default, skip_serializing_if = "String::is_empty")]
            #[schemars(length(max = 512), regex(pattern = r"^[!-~]*$"))]
            pub image: String,
            /// How many pods run.
            #[serde(default = "crate::resource::replicas")]
            #[schemars(range(min = 0))]
            pub replicas: i32,
            /// The port of the Service.
            #[serde(default = "crate::resource::service_port")]
            #[schemars(with = "i32", range(min = 1, max = 65535))]
            pub service_port: u16,
            /// The resources of the container, as in a Pod.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(with = "pilothouse_plugin::k8s::core::v1::ResourceRequirements")]
            pub resources: Option<pilothouse_plugin::k8s::core::v1::ResourceRequirements>,
            /// Which nodes the pods may run on, by label.
            #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
            #[schemars(extend(
                "maxProperties" = 64,
                "additionalProperties" = {"type": "string", "maxLength": 63}
            ))]
            pub node_selector: BTreeMap<String, String>,
            /// Labels that the pods get beside those that the operator sets.
            #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
            #[schemars(extend(
                "maxProperties" = 64,
                "additionalProperties" = {"type": "string", "maxLength": 63},
                "x-kubernetes-validations" = crate::labels::pod_label_rules()
            ))]
            pub pod_labels: BTreeMap<String, String>,
            /// The affinity of the pods, as in a Pod.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(with = "pilothouse_plugin::k8s::core::v1::Affinity")]
            pub affinity: Option<pilothouse_plugin::k8s::core::v1::Affinity>,
            /// The environment of the container, as in a Pod.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            #[schemars(
                length(max = 256),
                extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
            )]
            pub env: Vec<pilothouse_plugin::k8s::core::v1::EnvVar>,
            /// The name servers that nginx asks while it runs: addresses with or without port, and nginx's parameters
            /// `valid=TIME` and `ipv6=off`. Needed where `$variables` stand for a host.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            #[schemars(
                length(max = 16),
                inner(length(min = 1, max = 300)),
                extend(
                    "x-kubernetes-list-type" = "set",
                    "x-kubernetes-validations" = [{
                        "rule": "self.size() == 0 || self.exists(word, !word.contains('='))",
                        "message": "no name servers defined",
                    }]
                )
            )]
            pub resolver: Vec<String>,
            /// How many worker processes nginx has in each pod; as many as the node has cores when absent.
            #[serde(default)]
            #[schemars(with = "i32", range(min = 1, max = 512))]
            pub worker_processes: Option<i32>,
            /// How many connections each worker process may have, of which nginx needs three for itself.
            #[serde(default = "crate::resource::worker_connections")]
            #[schemars(range(min = 4, max = 1_000_000))]
            pub worker_connections: i32,
            $($own)*
        }

        impl $name {
            /// The fields that both kinds have.
            pub(crate) fn common(&self) -> $crate::resource::Common<'_> {
                $crate::resource::Common {
                    image: &self.image,
                    replicas: self.replicas,
                    service_port: self.service_port,
                    resources: self.resources.as_ref(),
                    node_selector: &self.node_selector,
                    pod_labels: &self.pod_labels,
                    affinity: self.affinity.as_ref(),
                    env: &self.env,
                    resolver: &self.resolver,
                    worker_processes: self.worker_processes,
                    worker_connections: self.worker_connections,
                }
            }
        }
    };
}
use proxy_spec;

fn replicas() -> i32 {
    1
}

fn service_port() -> u16 {
    80
}

fn worker_connections() -> i32 {
    1024
}
