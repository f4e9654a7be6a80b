//! Owns the plugin's configuration: which ingress-nginx ports are opened on, and which names cannot be had.

use serde::Deserialize;
use serde_json::Value;

use crate::resource::Protocol;

/// The configuration of stream-ingress.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// The namespace of the ingress-nginx.
    #[cfg_attr(
        test,
        schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))
    )]
    pub namespace: String,
    /// The ConfigMap of its TCP ports.
    #[cfg_attr(
        test,
        schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"))
    )]
    pub tcp_config_map: String,
    /// The ConfigMap of its UDP ports; another one than that of its TCP ports.
    #[cfg_attr(
        test,
        schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"))
    )]
    pub udp_config_map: String,
    /// The Service of its controller.
    #[cfg_attr(
        test,
        schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))
    )]
    pub service: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: "ingress-nginx".to_owned(),
            tcp_config_map: "tcp-services".to_owned(),
            udp_config_map: "udp-services".to_owned(),
            service: "ingress-nginx-controller".to_owned(),
        }
    }
}

impl Settings {
    /// Why no objects can have these names.
    pub fn check(&self) -> Result<(), String> {
        let Self {
            namespace,
            tcp_config_map,
            udp_config_map,
            service,
        } = self;
        for (field, name) in [("namespace", namespace), ("service", service)] {
            if !is_label(name) {
                return Err(format!(
                    "{field}: {name:?} is no name; give 1 to 63 characters a-z, 0-9 and '-' that begin and end with a letter or digit"
                ));
            }
        }
        for (field, name) in [("tcpConfigMap", tcp_config_map), ("udpConfigMap", udp_config_map)] {
            if name.len() > 253 || !name.split('.').all(is_label) {
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

    /// The ConfigMap of a protocol's ports.
    pub fn config_map(&self, protocol: Protocol) -> &str {
        match protocol {
            Protocol::Tcp => &self.tcp_config_map,
            Protocol::Udp => &self.udp_config_map,
        }
    }

    /// Both ConfigMaps.
    pub fn config_maps(&self) -> [&str; 2] {
        [&self.tcp_config_map, &self.udp_config_map]
    }
}

/// The schema of the configuration, generated from the type above.
pub fn schema() -> Value {
    let text = include_str!("../configuration.schema.json");
    serde_json::from_str(text).expect("a test has written it as JSON")
}

fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}
