//! Owns the plugin's configuration: which host and port an Ingress gets, and which cannot be had.

use std::num::NonZeroU16;

use serde::Deserialize;
use serde_json::Value;

/// The longest DNS name, in bytes (RFC 1035).
const LONGEST_HOST: usize = 253;

/// The configuration of service-ingress.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// The host of each Ingress: a DNS name in lower case, which may begin with `*.`.
    #[cfg_attr(
        test,
        schemars(
            length(min = 1, max = LONGEST_HOST),
            regex(pattern = r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
        )
    )]
    pub host: String,
    /// The port of the Service that each Ingress leads to.
    #[cfg_attr(test, schemars(with = "u16", range(min = 1)))]
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
    /// Why an Ingress cannot have this host. The API server would refuse every one of them.
    pub fn check(&self) -> Result<(), String> {
        let Self { host, service_port: _ } = self;
        let name = host.strip_prefix("*.").unwrap_or(host);
        if host.len() <= LONGEST_HOST && name.split('.').all(is_label) {
            return Ok(());
        }
        Err(format!(
            "host: {host:?} is no DNS name; give one in lower case, such as example.com or *.example.com"
        ))
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

#[cfg(test)]
mod generated {
    use super::Settings;

    #[test]
    fn the_schema_that_is_kept_is_the_one_that_the_type_gives() {
        pilothouse_definitions::keep_configuration::<Settings>(env!("CARGO_MANIFEST_DIR"));
    }
}
