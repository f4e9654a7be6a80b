//! The plugin's configuration: the ingress-nginx on which ports are opened, with checks of its names.

use pilothouse_plugin::names::{is_dns_label, is_dns_name};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::resource::Protocol;

/// The configuration of stream-ingress.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// The namespace of the ingress-nginx.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: String,
    /// The ConfigMap of its TCP ports.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"))]
    pub tcp_config_map: String,
    /// The ConfigMap of its UDP ports; another one than that of its TCP ports.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"))]
    pub udp_config_map: String,
    /// The Service of its controller.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub service: String,
    /// Namespaces to whose Services StreamIngresses of all namespaces may lead, or `*`; see the README for other ways.
    pub upstream_namespaces: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: "ingress-nginx".to_owned(),
            tcp_config_map: "tcp-services".to_owned(),
            udp_config_map: "udp-services".to_owned(),
            service: "ingress-nginx-controller".to_owned(),
            upstream_namespaces: Vec::new(),
        }
    }
}

impl Settings {
    /// Checks that objects can have these names.
    pub fn check(&self) -> Result<(), String> {
        let Self {
            namespace,
            tcp_config_map,
            udp_config_map,
            service,
            upstream_namespaces,
        } = self;
        if let Some(name) = upstream_namespaces
            .iter()
            .find(|name| *name != "*" && !is_dns_label(name))
        {
            return Err(format!(
                "upstreamNamespaces: {name:?} is no name; give names of namespaces, or \"*\" for all"
            ));
        }
        for (field, name) in [("namespace", namespace), ("service", service)] {
            if !is_dns_label(name) {
                return Err(format!(
                    "{field}: {name:?} is no name; give 1 to 63 characters a-z, 0-9 and '-' that begin and end with a letter or digit"
                ));
            }
        }
        for (field, name) in [("tcpConfigMap", tcp_config_map), ("udpConfigMap", udp_config_map)] {
            if !is_dns_name(name) {
                return Err(format!(
                    "{field}: {name:?} is no name; give at most 253 characters a-z, 0-9, '-' and '.' that begin and end with a letter \
                     or digit"
                ));
            }
        }
        if tcp_config_map == udp_config_map {
            return Err(format!(
                "udpConfigMap: {udp_config_map:?} is the tcpConfigMap too; name one for each protocol"
            ));
        }
        Ok(())
    }

    /// Returns the name of the ConfigMap of a protocol's ports.
    pub fn config_map(&self, protocol: Protocol) -> &str {
        match protocol {
            Protocol::Tcp => &self.tcp_config_map,
            Protocol::Udp => &self.udp_config_map,
        }
    }
}

#[test]
fn generated_configuration_schema_is_what_the_type_gives() {
    pilothouse_plugin::crd::keep_configuration::<Settings>(env!("CARGO_MANIFEST_DIR"));
}
