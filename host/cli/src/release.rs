//! `pilothouse release`: removes the finalizer of a lost plugin from its objects (default: dry run).

use anyhow::{Context as _, bail};
use clap::Args;
use pilothouse_cluster::Client;
use pilothouse_cluster::connect::connect;
use pilothouse_cluster::resources::release;
use pilothouse_cluster::resources::release::FinalizerHolder;
use pilothouse_core::text::printable::printable;
use serde_json::{Value, json};

use crate::artifact::wait_for;
use crate::output::Format;
use crate::run::{ClusterArguments, USER_AGENT};

/// The domains of Kubernetes' own finalizers: what they guard would be lost.
const GUARDED: [&str; 2] = ["kubernetes.io", "k8s.io"];

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse release example.com/finalizer                       # which objects have it
  pilothouse release example.com/finalizer --deleting --yes      # free those that wait for it
  pilothouse release example.com/finalizer --kind Website.example.com -n shop --yes
  pilothouse release example.com/finalizer -o json

What the plugin would have done before an object is deleted is not done.

With -o json, `objects` has each object with its name, whether it is being deleted, whether it was released and, if that failed,
the `error`.

Exit code: 0, also if no object has the finalizer, 1 if an object was not released or the cluster cannot be asked, 2 if the
command line is wrong.";

/// `pilothouse release`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ReleaseCommand {
    /// The finalizer to remove, as listed in metadata.finalizers, such as `example.com/finalizer`
    finalizer: String,

    /// Only objects of this kind, `KIND` or `KIND.GROUP` (default: all kinds that the cluster serves). May be repeated
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,

    /// Only objects in this namespace
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,

    /// Only objects that are being deleted
    #[arg(long)]
    deleting: bool,

    /// Apply the change (default: dry run)
    #[arg(long)]
    yes: bool,

    /// Output format
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,

    #[command(flatten)]
    cluster: ClusterArguments,
}

impl ReleaseCommand {
    /// Finds the objects, and releases them.
    pub fn execute(self) -> anyhow::Result<()> {
        check(&self.finalizer)?;
        wait_for(self.release())
    }

    async fn release(self) -> anyhow::Result<()> {
        let Self {
            finalizer,
            kinds,
            namespace,
            deleting,
            yes,
            output,
            cluster,
        } = self;
        let client = connect(&cluster.target(), USER_AGENT).await?;
        let is_meant = |held: &FinalizerHolder| {
            (!deleting || held.deleting)
                && (namespace.is_none() || namespace.as_deref() == held.name.namespace.as_deref())
        };
        let mut held = find(&client, &finalizer, &kinds).await?;
        held.retain(is_meant);
        match (yes, output) {
            (true, _) => free(&client, &held, &finalizer, output).await,
            (false, Format::Json) => {
                let objects: Vec<Value> = held.iter().map(|object| entry(object, false, None)).collect();
                println!("{:#}", document(&finalizer, yes, &objects));
                Ok(())
            }
            (false, Format::Text) => {
                preview(&held, &finalizer);
                Ok(())
            }
        }
    }
}

/// Prints the objects that would be released.
fn preview(held: &[FinalizerHolder], finalizer: &str) {
    if held.is_empty() {
        return println!("no object has the finalizer {finalizer}");
    }
    for object in held {
        let state = if object.deleting {
            "is being deleted"
        } else {
            "is not being deleted"
        };
        println!("would release {}, which {state}", object.title());
    }
    println!(
        "nothing was changed; with --yes the finalizer {finalizer} is taken off {} objects, and what its plugin would have done for them is not done",
        held.len()
    );
}

fn document(finalizer: &str, yes: bool, objects: &[Value]) -> Value {
    json!({"finalizer": finalizer, "dryRun": !yes, "objects": objects})
}

/// Returns the outcome for an object.
fn entry(object: &FinalizerHolder, released: bool, error: Option<&str>) -> Value {
    let kind = object.kind();
    let mut entry = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.kind,
        "name": &*object.name.name,
        "deleting": object.deleting,
        "released": released,
    });
    if let Some(namespace) = &object.name.namespace {
        entry["namespace"] = json!(&**namespace);
    }
    if let Some(error) = error {
        entry["error"] = json!(error);
    }
    entry
}

async fn find(client: &Client, finalizer: &str, kinds: &[String]) -> anyhow::Result<Vec<FinalizerHolder>> {
    let served = release::kinds(client, kinds)
        .await
        .context("cannot ask the cluster what it serves")?;
    if served.is_empty() {
        bail!(
            "the cluster serves no kind that is called {}; write KIND or KIND.GROUP, as in Deployment.apps",
            kinds.join(" or ")
        );
    }
    let mut held = Vec::new();
    for served in &served {
        let found = release::find(client, served, finalizer).await;
        held.extend(found.with_context(|| format!("cannot list {}", served.kind))?);
    }
    Ok(held)
}

async fn free(client: &Client, held: &[FinalizerHolder], finalizer: &str, output: Format) -> anyhow::Result<()> {
    let mut failed = 0;
    let mut objects = Vec::new();
    for object in held {
        let error = release::release(client, object, finalizer).await.err();
        let error = error.map(|error| error.to_string());
        failed += usize::from(error.is_some());
        match (&error, output) {
            (_, Format::Json) => objects.push(entry(object, error.is_none(), error.as_deref())),
            (None, Format::Text) => println!("released {}", object.title()),
            (Some(error), Format::Text) => eprintln!("cannot release {}: {}", object.title(), printable(error)),
        }
    }
    match output {
        Format::Json => println!("{:#}", document(finalizer, true, &objects)),
        Format::Text if held.is_empty() => println!("no object has the finalizer {finalizer}"),
        Format::Text => {}
    }
    if failed > 0 {
        bail!(
            "{failed} of {} objects were not released; run the command again, since an object that changes meanwhile is left alone",
            held.len()
        );
    }
    Ok(())
}

fn check(finalizer: &str) -> anyhow::Result<()> {
    let Some((domain, name)) = finalizer
        .split_once('/')
        .filter(|(domain, name)| !domain.is_empty() && !name.is_empty())
    else {
        bail!("{finalizer:?} is no plugin's finalizer; write it as the object shows it, as in example.com/finalizer");
    };
    let is_guarded = |guarded: &str| domain == guarded || domain.ends_with(&format!(".{guarded}"));
    if GUARDED.into_iter().any(is_guarded) {
        bail!(
            "{domain}/{name} is one of Kubernetes' own finalizers, which guard what would be lost; it is not released"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_plugins_finalizer_is_refused() {
        assert!(check("wishes.test.dev/promise").is_ok());
        for refused in [
            "foregroundDeletion",
            "/a",
            "a/",
            "kubernetes.io/pvc-protection",
            "snapshot.storage.kubernetes.io/bound",
        ] {
            assert!(check(refused).is_err(), "{refused}");
        }
    }
}
