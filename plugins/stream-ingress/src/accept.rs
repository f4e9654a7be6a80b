//! Owns the condition `Accepted`: whether a StreamIngress may have its port, and if not, why and what to do.

use pilothouse_plugin::{Cluster, Condition, Failure, Resource};
use serde::Deserialize;

use crate::holder;
use crate::resource::StreamIngress;
use crate::settings::Settings;
use crate::upstream::{self, LiveService, Upstream};

/// The condition's type.
const ACCEPTED: &str = "Accepted";

/// What is read of a ConfigMap: that it is there.
#[derive(Debug, Deserialize, Resource)]
#[resource(group = "", version = "v1", kind = "ConfigMap")]
pub struct LiveConfigMap {}

/// What comes of a StreamIngress.
#[derive(Debug)]
pub enum Verdict {
    /// It has its port.
    Accepted(Condition),
    /// Nothing is written for it.
    Refused(Condition),
}

/// Decides. The holder comes first: one whose upstream is missing keeps its port, and the others wait.
pub fn decide(stream: &StreamIngress, settings: &Settings, cluster: &Cluster) -> Result<Verdict, Failure> {
    let port = stream.port();
    let refused = |reason: &str, message: String| Ok(Verdict::Refused(Condition::is_false(ACCEPTED, reason, message)));

    if let Some(holder) = holder::other_holder(stream, cluster)? {
        let namespace = holder.metadata.namespace.as_deref().unwrap_or_default();
        let message = format!(
            "{port} is held by StreamIngress {namespace}/{}, which is older; choose another spec.listen, or wait for it to go",
            holder.metadata.name
        );
        return refused("PortConflict", message);
    }

    let service = format!("{}/{}", stream.upstream_namespace(), stream.spec.upstream.service);
    match upstream::look(stream, cluster)? {
        Upstream::Open => {}
        Upstream::NotFound => {
            let message = format!("there is no Service {service}; correct spec.upstream, or create it");
            return refused("UpstreamNotFound", message);
        }
        Upstream::Closed => {
            let message = format!(
                "Service {service} has no port {} {}; correct spec.upstream.port, or add the port to the Service",
                stream.spec.protocol, stream.spec.upstream.port
            );
            return refused("UpstreamPortClosed", message);
        }
    }

    if let Some(missing) = missing_target(stream, settings, cluster)? {
        let message = format!(
            "there is no {missing}, on which {port} would be opened; install ingress-nginx, or configure where it is"
        );
        return refused("TargetNotFound", message);
    }
    let message = format!("{port} is held for {}", stream.destination());
    Ok(Verdict::Accepted(Condition::is_true(ACCEPTED, ACCEPTED, message)))
}

/// What of the ingress-nginx is not there. It is somebody else's, so it is never made.
fn missing_target(stream: &StreamIngress, settings: &Settings, cluster: &Cluster) -> Result<Option<String>, Failure> {
    let Settings { namespace, service, .. } = settings;
    let config_map = settings.config_map(stream.spec.protocol);
    if cluster.get::<LiveConfigMap>(namespace.as_str(), config_map)?.is_none() {
        return Ok(Some(format!("ConfigMap {namespace}/{config_map}")));
    }
    let found = cluster.get::<LiveService>(namespace.as_str(), service)?;
    Ok(found.is_none().then(|| format!("Service {namespace}/{service}")))
}
