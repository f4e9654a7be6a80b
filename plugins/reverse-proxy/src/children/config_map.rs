//! Owns the ConfigMap with nginx's configuration.

use pilothouse_plugin::{Kind, Resource};
use serde::Serialize;

use super::{Labels, Metadata};
use crate::check::Instance;

/// The key of the configuration.
pub(super) const KEY: &str = "nginx.conf";

/// The ConfigMap of a proxy.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConfigMap<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    data: Data<'a>,
}

#[derive(Debug, Serialize)]
struct Data<'a> {
    #[serde(rename = "nginx.conf")]
    configuration: &'a str,
}

impl Resource for ConfigMap<'_> {
    const KIND: Kind = Kind::new("", "v1", "ConfigMap");
}

impl<'a> ConfigMap<'a> {
    pub(super) fn of(instance: &'a Instance<'_>, configuration: &'a str, sum: &'a str) -> Self {
        Self {
            api_version: "v1",
            kind: "ConfigMap",
            metadata: Metadata::of(instance, Labels::of(instance).with_sum(sum)),
            data: Data { configuration },
        }
    }
}
