//! Owns the form of a ReverseProxy.

use std::collections::BTreeMap;

use pilothouse_plugin::{Kind, ObjectMeta, Resource};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::proxy_spec;

/// The timeout of resources that say nothing else.
pub(crate) const TIMEOUT: &str = "15s";

/// A ReverseProxy: the fields that the plugin looks at.
#[derive(Clone, Debug, Deserialize)]
pub struct ReverseProxy {
    /// Name, namespace and so on.
    pub metadata: ObjectMeta,
    /// What the user wants.
    pub spec: ReverseProxySpec,
}

impl Resource for ReverseProxy {
    const KIND: Kind = Kind::new("nginx.lin2ur.cn", "v1", "ReverseProxy");
}

proxy_spec! {
    /// Where requests go, and what is changed on the way.
    #[cfg_attr(
        test,
        kube(
            kind = "ReverseProxy",
            root = "ReverseProxyDefinition",
            doc = "A ReverseProxy stands for an nginx that passes HTTP requests on to one URL.",
            plural = "reverseproxies",
            singular = "reverseproxy",
            shortname = "ngxpxy",
            printcolumn(name = "ProxyPass", type_ = "string", json_path = ".spec.proxyPass"),
        )
    )]
    pub struct ReverseProxySpec {
        /// The URL that requests are passed on to, as in nginx's `proxy_pass`: `http://` or `https://`, a host, and if
        /// need be a port and a path. It may have nginx's variables.
        #[cfg_attr(
            test,
            schemars(length(min = 1, max = 2048), regex(pattern = r"^([hH][tT][tT][pP][sS]?|\$scheme|\$\{scheme\})://"))
        )]
        pub proxy_pass: String,
        /// The format of the access log, in nginx's variables; nginx's `combined` when absent. Empty: no access log.
        #[serde(default)]
        #[cfg_attr(test, schemars(with = "String", length(max = 2048)))]
        pub log_format: Option<String>,
        /// Changes of the path before a request is passed on, in this order, as in nginx's `rewrite`.
        #[serde(default)]
        #[cfg_attr(
            test,
            schemars(with = "Vec<RewriteRule>", length(max = 64), extend("x-kubernetes-list-type" = "atomic"))
        )]
        pub rewrite: Option<Vec<RewriteRule>>,
        /// Headers of the answer that clients do not get to see.
        #[serde(default)]
        #[cfg_attr(
            test,
            schemars(
                with = "Vec<crate::generated::HeaderName>",
                length(max = 64),
                extend("x-kubernetes-list-type" = "set")
            )
        )]
        pub proxy_hide_header: Option<Vec<String>>,
        /// Headers of the request as it is passed on, by name; values may have nginx's variables, and an empty one takes
        /// the header away. Names are stored in lower case. Without `host`, it is the host of `proxyPass`.
        #[serde(default)]
        #[cfg_attr(
            test,
            schemars(
                with = "BTreeMap<String, crate::generated::HeaderValue>",
                extend("maxProperties" = 64, "x-kubernetes-validations" = crate::generated::header_rules())
            )
        )]
        pub proxy_set_header: Option<BTreeMap<String, String>>,
        /// How long nginx waits for the next part of an answer, in seconds.
        #[serde(default)]
        #[cfg_attr(
            test,
            schemars(with = "String", length(max = 8), regex(pattern = r"^\d+s$"), extend("default" = "15s"))
        )]
        pub proxy_read_timeout: Option<String>,
        /// How long nginx waits until the next part of a request is taken, in seconds.
        #[serde(default)]
        #[cfg_attr(
            test,
            schemars(with = "String", length(max = 8), regex(pattern = r"^\d+s$"), extend("default" = "15s"))
        )]
        pub proxy_send_timeout: Option<String>,
        /// How long nginx waits for a connection, in seconds.
        #[serde(default)]
        #[cfg_attr(
            test,
            schemars(with = "String", length(max = 8), regex(pattern = r"^\d+s$"), extend("default" = "15s"))
        )]
        pub proxy_connect_timeout: Option<String>,
    }
}

/// One change of the path.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize, schemars::JsonSchema))]
pub struct RewriteRule {
    /// The regular expression that the path is matched with.
    #[cfg_attr(test, schemars(length(min = 1, max = 1024)))]
    pub regex: String,
    /// What the path becomes; `$1` to `$9` are the groups of the expression.
    #[cfg_attr(test, schemars(length(min = 1, max = 2048)))]
    pub replacement: String,
    /// Whether the rules end here (`break`), or are gone through again with the new path (`last`).
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Flag", extend("default" = "break")))]
    pub flag: Option<Flag>,
}

/// What comes after a rewrite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize, schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "lowercase")]
pub enum Flag {
    /// The location is looked for anew.
    Last,
    /// The request is passed on.
    #[default]
    Break,
}

impl Flag {
    /// nginx's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Break => "break",
        }
    }
}
