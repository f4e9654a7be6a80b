//! Finds the object that `pilothouse pause`, `resume` and `reconcile` name, and sets its annotations. The API server decides who may
//! do that, and every replica of the host sees it.

use anyhow::{Context as _, bail};
use clap::Args;
use pilothouse_cluster::Client;
use pilothouse_cluster::connect::connect;
use pilothouse_cluster::error::{RequestError, chain};
use pilothouse_cluster::resources::annotations::AnnotatedObject;
use pilothouse_cluster::resources::release;
use pilothouse_core::Name;
use pilothouse_core::kubernetes::served::ServedKind;
use pilothouse_core::status::annotations::{PAUSED, is_paused};

use crate::ask::why::{parse_object, parse_plain};
use crate::output::missing_right;
use crate::run::{ClusterArguments, USER_AGENT};

/// The options that name an object.
#[derive(Args)]
pub struct PrimaryArguments {
    /// The object: KIND/NAME or KIND.GROUP/NAME, such as appservice/web. The plural or a short name will do for the kind
    #[arg(value_name = "KIND/NAME", value_parser = parse_object)]
    pub(crate) object: (String, String),

    /// The object's namespace (default: the namespace of the kubeconfig's context). A cluster-scoped object is in none
    #[arg(long, short, value_name = "NAME", value_parser = parse_plain)]
    pub(crate) namespace: Option<String>,

    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
}

/// An object that a command names.
pub struct Primary {
    client: Client,
    served: ServedKind,
    name: Name,
    object: AnnotatedObject,
}

impl PrimaryArguments {
    /// Reads the object.
    pub async fn find(self) -> anyhow::Result<Primary> {
        let Self {
            object: (kind, name),
            namespace,
            cluster,
        } = self;
        let client = connect(&cluster.target(), USER_AGENT).await?;
        let served = kind_called(&client, &kind).await?;
        let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        let name = Name::new(served.facts.namespaced.then_some(&*namespace), &name);
        match AnnotatedObject::find(&client, &served, &name).await {
            Ok(Some(object)) => Ok(Primary {
                client,
                served,
                name,
                object,
            }),
            Ok(None) => bail!(
                "there is no {} {name}; `kubectl get {}` lists them",
                served.kind.kind,
                served.plural
            ),
            Err(error) => bail!("cannot read {}", problem(&served, &name, "get", &error)),
        }
    }
}

impl Primary {
    /// Its title in messages: `AppService shop/web`.
    pub fn title(&self) -> String {
        title(&self.served, &self.name)
    }

    /// The arguments with which a command names it: `appservice/web -n shop`.
    pub fn arguments(&self) -> String {
        let Name { namespace, name } = &self.name;
        let kind = self.served.kind.kind.to_lowercase();
        match namespace {
            Some(namespace) => format!("{kind}/{name} -n {namespace}"),
            None => format!("{kind}/{name}"),
        }
    }

    /// Returns `true` if it is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.object.deleting
    }

    /// Returns `true` if it is paused.
    pub fn is_paused(&self) -> bool {
        is_paused(self.annotation(PAUSED))
    }

    /// The text of an annotation.
    pub fn annotation(&self, annotation: &str) -> Option<&str> {
        self.object.annotations.get(annotation).map(String::as_str)
    }

    /// Sets an annotation, or removes it.
    pub async fn annotate(&self, annotation: &str, text: Option<&str>) -> anyhow::Result<()> {
        match self.object.annotate(&self.client, annotation, text).await {
            Ok(()) => Ok(()),
            Err(error) if error.is_object_not_found() => bail!("{} has been deleted meanwhile", self.title()),
            Err(error) => bail!("cannot annotate {}", problem(&self.served, &self.name, "patch", &error)),
        }
    }
}

fn title(served: &ServedKind, name: &Name) -> String {
    format!("{} {name}", served.kind.kind)
}

/// The answer of an API server about an object, with the right that is missing.
fn problem(served: &ServedKind, name: &Name, verb: &str, error: &RequestError) -> String {
    let group = &served.kind.group;
    let dot = if group.is_empty() { "" } else { "." };
    let place = name
        .namespace
        .as_ref()
        .map(|namespace| format!(" in namespace {namespace}"));
    let place = place.unwrap_or_default();
    let right = missing_right(error, &format!("{verb} {}{dot}{group}{place}", served.plural));
    format!("{}: {}{right}", title(served, name), chain(error))
}

async fn kind_called(client: &Client, called: &str) -> anyhow::Result<ServedKind> {
    let found = release::kinds(client, &[called.to_owned()]).await;
    let mut found = found.context("cannot ask the cluster what it serves")?;
    match found.len() {
        0 => {
            bail!("the cluster serves no kind that is called {called}; write KIND or KIND.GROUP, as in Deployment.apps")
        }
        1 => Ok(found.remove(0)),
        _ => {
            let names = found
                .iter()
                .map(|served| format!("{}.{}", served.kind.kind, served.kind.group));
            bail!(
                "{called} may be {}; write KIND.GROUP",
                names.collect::<Vec<_>>().join(", ")
            )
        }
    }
}
