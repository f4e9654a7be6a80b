//! Checks that an upstream exists: there is a Service that has the port, in the same protocol.

use pilothouse_plugin::{Cluster, Failure, Fields, ObjectMeta, Resource};
use serde::Deserialize;

use crate::resource::StreamIngress;

/// Fields that are read from a Service.
#[derive(Debug, Deserialize, Resource)]
#[resource(group = "", version = "v1", kind = "Service")]
pub struct LiveService {
    /// Annotations.
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: ServiceSpec,
}

#[derive(Debug, Default, Deserialize, Fields)]
struct ServiceSpec {
    #[serde(default)]
    ports: Vec<ServicePort>,
}

#[derive(Debug, Deserialize, Fields)]
struct ServicePort {
    port: u16,
    /// A Service may have a protocol that no StreamIngress has.
    protocol: Option<String>,
}

/// State of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// Open: it leads to a port of a Service, or is not checked.
    Open,
    /// There is no such Service.
    NotFound,
    /// The Service has no such port.
    Closed,
}

/// Checks the Service of an upstream; one that is no Service of this cluster is accepted.
pub fn check(stream: &StreamIngress, cluster: &Cluster) -> Result<Upstream, Failure> {
    let spec = &stream.spec;
    if !spec.is_service {
        return Ok(Upstream::Open);
    }
    let service = cluster.get::<LiveService>(stream.upstream_namespace(), &spec.upstream.service)?;
    let Some(LiveService { spec: service, .. }) = service else {
        return Ok(Upstream::NotFound);
    };
    let is_open = |offered: &ServicePort| {
        spec.protocol.is(offered.protocol.as_deref()) && offered.port == spec.upstream.port.get()
    };
    Ok(if service.ports.iter().any(is_open) {
        Upstream::Open
    } else {
        Upstream::Closed
    })
}
