//! Owns the children of both kinds: a ConfigMap, a Deployment and a Service, and the labels that they share.

pub(crate) mod config_map;
pub(crate) mod deployment;
pub(crate) mod service;

use std::fmt::Write as _;

use pilothouse_plugin::Outcome;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use self::{config_map::ConfigMap, deployment::Deployment, service::Service};
use crate::check::Instance;

/// The label that says who keeps an object.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The label that tells the objects of one proxy from those of another.
pub(crate) const INSTANCE: &str = "app.kubernetes.io/instance";

/// The label with the hash of the configuration: it is on the pods too, so another configuration rolls them.
pub(crate) const CONFIG_SUM: &str = "nginx-operator/configsum";

/// The value of [`MANAGED_BY`], which users of the original operator select by.
const OPERATOR: &str = "nginx-operator";

/// How many bytes of the hash are in the label, two characters each; a value has at most 63.
const HASH_BYTES: usize = 16;

/// What should exist for a proxy with this configuration.
pub(crate) fn outcome(instance: &Instance<'_>, configuration: &str) -> Outcome {
    let sum = sum(configuration);
    Outcome::new()
        .owned(ConfigMap::of(instance, configuration, &sum))
        .owned(Deployment::of(instance, &sum))
        .owned(Service::of(instance))
}

fn sum(configuration: &str) -> String {
    let digest = Sha256::digest(configuration.as_bytes());
    digest[..HASH_BYTES].iter().fold(String::new(), |mut sum, byte| {
        let _ = write!(sum, "{byte:02x}");
        sum
    })
}

/// The labels by which the pods are found.
#[derive(Clone, Copy, Debug, Serialize)]
struct Labels<'a> {
    #[serde(rename = "app.kubernetes.io/managed-by")]
    managed_by: &'static str,
    #[serde(rename = "app.kubernetes.io/instance")]
    instance: &'a str,
    #[serde(rename = "nginx-operator/configsum", skip_serializing_if = "Option::is_none")]
    config_sum: Option<&'a str>,
}

impl<'a> Labels<'a> {
    fn of(instance: &'a Instance<'_>) -> Self {
        Self {
            managed_by: OPERATOR,
            instance: &instance.name,
            config_sum: None,
        }
    }

    fn with_sum(self, sum: &'a str) -> Self {
        Self {
            config_sum: Some(sum),
            ..self
        }
    }
}

/// The metadata of a child.
#[derive(Debug, Serialize)]
struct Metadata<'a> {
    name: &'a str,
    namespace: &'a str,
    labels: Labels<'a>,
}

impl<'a> Metadata<'a> {
    fn of(instance: &'a Instance<'_>, labels: Labels<'a>) -> Self {
        Self {
            name: &instance.name,
            namespace: instance.namespace,
            labels,
        }
    }
}
