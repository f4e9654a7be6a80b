//! The plugin's configuration: host and port of each Ingress, with their checks.

use std::num::NonZeroU16;

use pilothouse_plugin::names::is_dns_name;
use schemars::JsonSchema;
use serde::Deserialize;

/// Longest host, in bytes, with a leading `*.`.
const LONGEST_HOST: usize = 253;

/// The configuration of service-ingress.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// The host of each Ingress: a DNS name in lower case, which may begin with `*.`.
    #[schemars(
        length(min = 1, max = LONGEST_HOST),
        regex(pattern = r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub host: String,
    /// The port of the Service that each Ingress leads to.
    pub service_port: NonZeroU16,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            host: "example.com".to_owned(),
            service_port: const { NonZeroU16::new(80).expect("80 is not zero") },
        }
    }
}

impl Settings {
    /// Checks that an Ingress can have this host. The API server would refuse every one of them otherwise.
    pub fn check(&self) -> Result<(), String> {
        let Self { host, service_port: _ } = self;
        if host.len() <= LONGEST_HOST && is_dns_name(host.strip_prefix("*.").unwrap_or(host)) {
            return Ok(());
        }
        Err(format!(
            "host: {host:?} is no DNS name; give one in lower case, such as example.com or *.example.com"
        ))
    }
}

#[test]
fn generated_configuration_schema_is_what_the_type_gives() {
    pilothouse_plugin::crd::keep_configuration::<Settings>(env!("CARGO_MANIFEST_DIR"));
}
