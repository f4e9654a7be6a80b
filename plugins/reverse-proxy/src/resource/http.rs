//! The ReverseProxy as users write it.

use std::collections::BTreeMap;

use pilothouse_plugin::{ObjectMeta, Resource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::proxy_spec;

/// A ReverseProxy stands for an nginx that passes HTTP requests on to one URL.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(group = "nginx.lin2ur.cn", version = "v1", kind = "ReverseProxy")]
#[crd(
    plural = "reverseproxies",
    shortname = "ngxpxy",
    printcolumn(
        name = "Reconciled",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Reconciled\")].status"
    ),
    printcolumn(name = "ProxyPass", type_ = "string", json_path = ".spec.proxyPass"),
    printcolumn(name = "NginxImage", type_ = "string", json_path = ".spec.image"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    validation(
        rule = "self.metadata.name.size() <= 53 && !self.metadata.name.contains('.')",
        message = "metadata.name is part of the name of a Service: at most 53 characters a-z, 0-9 and '-'"
    )
)]
pub struct ReverseProxy {
    /// Name, namespace and so on.
    pub metadata: ObjectMeta,
    /// What the user wants, all of which is read.
    #[resource(whole)]
    pub spec: ReverseProxySpec,
}

proxy_spec! {
    /// Where requests go, and what is changed on the way.
    pub struct ReverseProxySpec {
        /// The URL that requests are passed on to, as in nginx's `proxy_pass`: `http://` or `https://`, a host, and if
        /// need be a port and a path. It may have nginx's variables.
        #[schemars(length(min = 1, max = 2048), regex(pattern = r"^([hH][tT][tT][pP][sS]?|\$scheme|\$\{scheme\})://"))]
        pub proxy_pass: String,
        /// The format of the access log, in nginx's variables; nginx's `combined` when absent. Empty: no access log.
        #[serde(default)]
        #[schemars(with = "String", length(max = 2048))]
        pub log_format: Option<String>,
        /// Changes of the path before a request is passed on, in this order, as in nginx's `rewrite`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
        pub rewrite: Vec<RewriteRule>,
        /// Headers of the answer that clients do not get to see.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schemars(
            length(max = 64),
            inner(length(min = 1, max = 128), regex(pattern = r"^[-A-Za-z0-9_.]+$")),
            extend("x-kubernetes-list-type" = "set")
        )]
        pub proxy_hide_header: Vec<String>,
        /// Headers of the request as it is passed on, by name; values may have nginx's variables, and an empty one takes
        /// the header away. Names are stored in lower case. Without `host`, it is the host of `proxyPass`.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        #[schemars(extend(
            "maxProperties" = 64,
            "additionalProperties" = {"type": "string", "maxLength": 2048},
            "x-kubernetes-validations" = [{
                "rule": "self.all(name, name.size() <= 128 && name.matches('^[-A-Za-z0-9_.]+$'))",
                "message": "names of headers have 1 to 128 letters, digits, '-', '_' and '.'",
            }]
        ))]
        pub proxy_set_header: BTreeMap<String, String>,
        /// How long nginx waits for the next part of an answer, in seconds.
        #[serde(default = "timeout")]
        #[schemars(length(max = 8), regex(pattern = r"^\d+s$"))]
        pub proxy_read_timeout: String,
        /// How long nginx waits until the next part of a request is taken, in seconds.
        #[serde(default = "timeout")]
        #[schemars(length(max = 8), regex(pattern = r"^\d+s$"))]
        pub proxy_send_timeout: String,
        /// How long nginx waits for a connection, in seconds.
        #[serde(default = "timeout")]
        #[schemars(length(max = 8), regex(pattern = r"^\d+s$"))]
        pub proxy_connect_timeout: String,
    }
}

fn timeout() -> String {
    "15s".to_owned()
}

/// One change of the path.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct RewriteRule {
    /// The regular expression that the path is matched with.
    #[schemars(length(min = 1, max = 1024))]
    pub regex: String,
    /// What the path becomes; `$1` to `$9` are the groups of the expression.
    #[schemars(length(min = 1, max = 2048))]
    pub replacement: String,
    /// Whether the rules end here (`break`), or are gone through again with the new path (`last`).
    #[serde(default)]
    pub flag: Flag,
}

/// What comes after a rewrite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "lowercase")]
pub enum Flag {
    /// The location is looked for anew.
    Last,
    /// The request is passed on.
    #[default]
    Break,
}

impl Flag {
    /// Returns nginx's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Break => "break",
        }
    }
}
