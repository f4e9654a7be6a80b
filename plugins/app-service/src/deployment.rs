//! The Deployment of an app, and the status that an app copies from it.

use pilothouse_plugin::k8s::apps::v1::Deployment;
use pilothouse_plugin::k8s::core::v1::Container;
use pilothouse_plugin::{Cluster, Failure, ObjectMeta, Resource};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::check::App;
use crate::ports::ContainerPort;

/// Returns the desired Deployment of an app, with our fields only: all others stay as other managers set them.
pub fn deployment(app: &App<'_>) -> Deployment {
    let labels = [("app", app.name)];
    let container = Container::new(app.name)
        .image(app.image)
        .image_pull_policy("IfNotPresent")
        .ports(app.container_ports.iter().map(ContainerPort::build));
    Deployment::new(app.name)
        .namespace(app.namespace)
        .labels(labels)
        .replicas(app.size)
        .pod_labels(labels)
        .container(container)
}

/// Fields that are read from the live Deployment.
#[derive(Deserialize, Resource)]
#[resource(group = "apps", version = "v1", kind = "Deployment")]
pub struct LiveDeployment {
    metadata: ObjectMeta,
    status: Option<Box<RawValue>>,
}

/// Reads the status of the app's own Deployment; none while there is no such Deployment, or while a foreign one has its
/// name. It is copied unchanged, whatever a newer cluster adds to it; the host replaces `observedGeneration`, which
/// counts the Deployment's generations, by the `AppService`'s own.
pub fn status_of_child(app: &App<'_>, cluster: &Cluster) -> Result<Option<Box<RawValue>>, Failure> {
    let live = cluster.get::<LiveDeployment>(app.namespace, app.name)?;
    let own = live.filter(|live| live.metadata.is_controlled_by(app.uid));
    Ok(own.and_then(|own| own.status))
}
