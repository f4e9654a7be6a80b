//! Finds the hosts that publish their accounts: in the host's namespace if it is given, else in the namespaces of the
//! accounts that installations of a host have bound in the whole cluster.

use std::collections::BTreeSet;

use anyhow::Context as _;
use pilothouse_cluster::resources::installer::{Installer, InstallerError};
use pilothouse_core::Kind;
use pilothouse_core::rights::installed::InstalledHost;
use pilothouse_core::rights::objects::RBAC_GROUP;
use pilothouse_core::rights::published::{PublishedHost, SELECTOR};
use serde_json::Value;

use crate::options::identity::HOST_NAMESPACE;

/// Label selector of the bindings of hosts. They are of cluster scope, so only administrators make them.
const BINDINGS: &str = "app.kubernetes.io/name=pilothouse";

/// Returns the hosts of a namespace, of the one that a Plugin records, or of the one in which there are any.
pub async fn published(
    installer: &Installer,
    namespace: Option<&str>,
    plugin: Option<&Value>,
) -> anyhow::Result<Vec<PublishedHost>> {
    let recorded = plugin.and_then(|live| InstalledHost::recorded("", live).ok().flatten());
    let known = namespace
        .map(str::to_owned)
        .or(recorded.map(|recorded| recorded.namespace));
    let found = of_namespace(installer, known.as_deref().unwrap_or(HOST_NAMESPACE)).await?;
    if known.is_some() || !found.is_empty() {
        return Ok(found);
    }
    let bindings = installer
        .labelled(&Kind::new(RBAC_GROUP, "v1", "ClusterRoleBinding"), None, BINDINGS)
        .await?;
    let subjects = bindings
        .iter()
        .flat_map(|binding| binding["subjects"].as_array().into_iter().flatten());
    let namespaces: BTreeSet<&str> = subjects.filter_map(|subject| subject["namespace"].as_str()).collect();
    let mut found = Vec::new();
    for namespace in namespaces {
        found.extend(of_namespace(installer, namespace).await?);
    }
    Ok(found)
}

async fn of_namespace(installer: &Installer, namespace: &str) -> anyhow::Result<Vec<PublishedHost>> {
    let listed = installer
        .labelled(&Kind::new("", "v1", "ConfigMap"), Some(namespace), SELECTOR)
        .await;
    let listed = match listed {
        Err(error @ InstallerError::Forbidden { .. }) => Err(error).with_context(|| {
            format!(
                "cannot find out which account the host in namespace {namespace} has; say it with --host-account and --identity, \
                 or with --no-host-account"
            )
        })?,
        listed => listed?,
    };
    Ok(listed.iter().map(PublishedHost::read).collect::<Result<_, _>>()?)
}
