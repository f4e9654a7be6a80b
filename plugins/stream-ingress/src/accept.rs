//! The condition `Accepted`: true if a StreamIngress may have its port, else with the reason and the next step.

use std::collections::BTreeMap;

use pilothouse_plugin::{Cluster, Condition, Failure, Resource};
use serde::Deserialize;

use crate::grant;
use crate::holder::{self, Holder};
use crate::resource::StreamIngress;
use crate::settings::Settings;
use crate::upstream::{self, LiveService, Upstream};

/// The condition's type.
pub const ACCEPTED: &str = "Accepted";

/// Fields that are read from a ConfigMap.
#[derive(Debug, Deserialize, Resource)]
#[resource(group = "", version = "v1", kind = "ConfigMap")]
pub struct LiveConfigMap {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

/// Decision about a StreamIngress.
#[derive(Debug)]
pub enum Verdict {
    /// The port is its own.
    Accepted(Condition),
    /// The port is not its own: nothing is written.
    Refused(Condition),
}

/// Decides. The holder is checked first: one whose upstream is missing keeps its port, and the others wait.
pub fn decide(stream: &StreamIngress, settings: &Settings, cluster: &Cluster) -> Result<Verdict, Failure> {
    let port = stream.port();
    let refused = |reason: &str, message: String| Ok(Verdict::Refused(Condition::is_false(ACCEPTED, reason, message)));

    let (own, other) = (
        stream.metadata.namespace.as_deref().unwrap_or_default(),
        stream.upstream_namespace(),
    );
    let service = format!("{other}/{}", stream.spec.upstream.service);
    if !grant::permits(own, other, &stream.spec.upstream.service, settings, cluster)? {
        let message = format!(
            "Service {service} is in another namespace, which does not permit it; annotate that Service with {}: {own}, or name {other} in \
             upstreamNamespaces of the plugin's configuration",
            grant::ALLOWED_FROM
        );
        return refused("RefNotPermitted", message);
    }

    let Settings { namespace, .. } = settings;
    let config_map = settings.config_map(stream.spec.protocol);
    let entries = cluster.get::<LiveConfigMap>(namespace.as_str(), config_map)?;
    let entry = entries
        .as_ref()
        .and_then(|it| it.data.get(&stream.spec.listen.to_string()));
    if let Some(Holder { rival, is_older }) =
        holder::other_holder(stream, entry.map(String::as_str), settings, cluster)?
    {
        let namespace = rival.metadata.namespace.as_deref().unwrap_or_default();
        let why = if is_older {
            "which is older"
        } else {
            "which had it first"
        };
        let message = format!(
            "{port} is held by StreamIngress {namespace}/{}, {why}; choose another spec.listen, or wait for it to go",
            rival.metadata.name
        );
        return refused("PortConflict", message);
    }

    // Compared with other conditions if there is no entry.
    let held = format!("{}{}", holder::held_for(&port), stream.destination());
    match upstream::check(stream, cluster)? {
        Upstream::Open => {}
        Upstream::NotFound => {
            let message = format!("{held}, but there is no Service {service}; correct spec.upstream, or create it");
            return refused("UpstreamNotFound", message);
        }
        Upstream::Closed => {
            let message = format!(
                "{held}, but Service {service} has no port {} {}; correct spec.upstream.port, or add the port to the Service",
                stream.spec.protocol, stream.spec.upstream.port
            );
            return refused("UpstreamPortClosed", message);
        }
    }

    if let Some(missing) = missing_target(stream, entries.is_some(), settings, cluster)? {
        let message = format!(
            "{held}, but there is no {missing}, on which it would be opened; install ingress-nginx, or configure where it is"
        );
        return refused("TargetNotFound", message);
    }
    Ok(Verdict::Accepted(Condition::is_true(ACCEPTED, ACCEPTED, held)))
}

/// Returns the missing object of ingress-nginx. It belongs to another owner, so it is never made.
fn missing_target(
    stream: &StreamIngress,
    has_config_map: bool,
    settings: &Settings,
    cluster: &Cluster,
) -> Result<Option<String>, Failure> {
    let Settings { namespace, service, .. } = settings;
    if !has_config_map {
        let config_map = settings.config_map(stream.spec.protocol);
        return Ok(Some(format!("ConfigMap {namespace}/{config_map}")));
    }
    let found = cluster.get::<LiveService>(namespace.as_str(), service)?;
    Ok(found.is_none().then(|| format!("Service {namespace}/{service}")))
}
