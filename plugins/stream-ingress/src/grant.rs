//! Decides whether a StreamIngress may lead to a Service of another namespace. As with a ReferenceGrant of the Gateway
//! API, the Service's owners permit that by an annotation, or the plugin's configuration does.

use pilothouse_plugin::{Cluster, Failure};

use crate::settings::Settings;
use crate::upstream::LiveService;

/// Annotation of a Service with the namespaces whose StreamIngresses may lead to it, separated by commas; `*` is any.
pub const ALLOWED_FROM: &str = "nginx-stream.jeffthecoder.xyz/allowed-from";

/// Any namespace.
const ANY: &str = "*";

/// Reports whether StreamIngresses of one namespace may lead to a Service of another.
pub fn permits(from: &str, to: &str, service: &str, settings: &Settings, cluster: &Cluster) -> Result<bool, Failure> {
    let is = |namespace: &str, allowed: &str| allowed == ANY || allowed == namespace;
    if from == to || settings.upstream_namespaces.iter().any(|allowed| is(to, allowed)) {
        return Ok(true);
    }
    let Some(service) = cluster.get::<LiveService>(to, service)? else {
        return Ok(false);
    };
    let allowed = service.metadata.annotations.get(ALLOWED_FROM);
    Ok(allowed.is_some_and(|allowed| allowed.split(',').any(|allowed| is(from, allowed.trim()))))
}
