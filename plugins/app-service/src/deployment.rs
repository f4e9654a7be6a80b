//! Owns the Deployment: what it is for an app, and the status that an app takes over from it.

use std::collections::BTreeMap;

use pilothouse_plugin::{Cluster, Failure, Kind, ObjectMeta, Resource};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::check::App;
use crate::ports::ContainerPort;

const KIND: Kind = Kind::new("apps", "v1", "Deployment");

/// The Deployment of an app. The types list the fields that are ours and nothing else, so everything else stays as the
/// server or somebody else sets it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Deployment<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    spec: Spec<'a>,
}

#[derive(Debug, Serialize)]
struct Metadata<'a> {
    name: &'a str,
    namespace: &'a str,
    labels: Labels<'a>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Labels<'a> {
    app: &'a str,
}

#[derive(Debug, Serialize)]
struct Spec<'a> {
    replicas: i32,
    selector: Selector<'a>,
    template: Template<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Selector<'a> {
    match_labels: Labels<'a>,
}

#[derive(Debug, Serialize)]
struct Template<'a> {
    metadata: TemplateMetadata<'a>,
    spec: PodSpec<'a>,
}

#[derive(Debug, Serialize)]
struct TemplateMetadata<'a> {
    labels: Labels<'a>,
}

#[derive(Debug, Serialize)]
struct PodSpec<'a> {
    containers: [Container<'a>; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Container<'a> {
    name: &'a str,
    image: &'a str,
    image_pull_policy: &'static str,
    #[serde(skip_serializing_if = "<[ContainerPort<'_>]>::is_empty")]
    ports: &'a [ContainerPort<'a>],
}

impl Resource for Deployment<'_> {
    const KIND: Kind = KIND;
}

impl<'a> Deployment<'a> {
    /// The Deployment that should exist for an app.
    pub fn of(app: &'a App<'a>) -> Self {
        let labels = Labels { app: app.name };
        let container = Container {
            name: app.name,
            image: app.image,
            image_pull_policy: "IfNotPresent",
            ports: &app.container_ports,
        };
        Self {
            api_version: "apps/v1",
            kind: "Deployment",
            metadata: Metadata {
                name: app.name,
                namespace: app.namespace,
                labels,
            },
            spec: Spec {
                replicas: app.size,
                selector: Selector { match_labels: labels },
                template: Template {
                    metadata: TemplateMetadata { labels },
                    spec: PodSpec {
                        containers: [container],
                    },
                },
            },
        }
    }
}

/// The members of a Deployment's status, whatever a newer cluster adds to them.
pub type DeploymentStatus = BTreeMap<String, Box<RawValue>>;

/// What is read of the Deployment that exists.
#[derive(Deserialize)]
struct LiveDeployment {
    metadata: ObjectMeta,
    status: Option<DeploymentStatus>,
}

impl Resource for LiveDeployment {
    const KIND: Kind = KIND;
}

/// Reads the status of the app's own Deployment; none while there is no such Deployment, or while somebody else's has
/// its name. All members are passed on as they are but `observedGeneration`: the Deployment's counts the Deployment's
/// generations, and that of the `AppService` is the host's.
pub fn status_of_child(app: &App<'_>, cluster: &Cluster) -> Result<Option<DeploymentStatus>, Failure> {
    let live = cluster.get::<LiveDeployment>(app.namespace, app.name)?;
    let own = live.filter(|live| live.metadata.is_controlled_by(app.uid));
    Ok(own.and_then(|own| own.status).map(|mut status| {
        status.remove("observedGeneration");
        status
    }))
}
