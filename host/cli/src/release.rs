//! Owns `pilothouse release`: it frees objects of the finalizer of a plugin that was lost. It says what it would do, and
//! does it when told to.

use anyhow::{Context as _, bail};
use clap::Args;
use pilothouse_cluster::Client;
use pilothouse_cluster::connect::connect;
use pilothouse_cluster::release::{self, FinalizerHolder};

use crate::run::{ClusterArguments, USER_AGENT};

/// The domains of Kubernetes' own finalizers: what they guard would be lost.
const GUARDED: [&str; 2] = ["kubernetes.io", "k8s.io"];

/// `pilothouse release`
#[derive(Args)]
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

    #[command(flatten)]
    cluster: ClusterArguments,
}

impl ReleaseCommand {
    /// Looks for the objects, and frees them.
    pub fn execute(self) -> anyhow::Result<()> {
        check(&self.finalizer)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the threads of the command")?;
        runtime.block_on(self.release())
    }

    async fn release(self) -> anyhow::Result<()> {
        let Self {
            finalizer,
            kinds,
            namespace,
            deleting,
            yes,
            cluster,
        } = self;
        let client = connect(&cluster.target(), USER_AGENT).await?;
        let is_meant = |held: &FinalizerHolder| {
            (!deleting || held.deleting)
                && (namespace.is_none() || namespace.as_deref() == held.name.namespace.as_deref())
        };
        let mut held = find(&client, &finalizer, &kinds).await?;
        held.retain(is_meant);
        if held.is_empty() {
            println!("no object has the finalizer {finalizer}");
            return Ok(());
        }
        if !yes {
            for object in &held {
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
            return Ok(());
        }
        free(&client, &held, &finalizer).await
    }
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

async fn free(client: &Client, held: &[FinalizerHolder], finalizer: &str) -> anyhow::Result<()> {
    let mut failed = 0;
    for object in held {
        match release::release(client, object, finalizer).await {
            Ok(()) => println!("released {}", object.title()),
            Err(error) => {
                eprintln!("cannot release {}: {error}", object.title());
                failed += 1;
            }
        }
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
