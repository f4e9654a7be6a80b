//! Requeues primaries when a namespace is created in which their children could not be created. Namespaces are watched
//! from the first time that a primary waits for one. Without the right to do so, only back-off retries.

use std::sync::Arc;

use pilothouse_cluster::Client;
use pilothouse_cluster::watch::namespaces;
use pilothouse_cluster::watch::namespaces::NamespaceEvent;

use crate::context::HostContext;

/// Follows the namespaces of the cluster for ever, once a primary waits for one.
pub async fn follow(client: Client, host: Arc<HostContext>) {
    host.state.wait_for_namespace_waits().await;
    let mut told = false;
    let tell = move |event| match event {
        NamespaceEvent::Added(name) => host.state.namespace_added(&name),
        NamespaceEvent::Forbidden(problem) => {
            if !std::mem::replace(&mut told, true) {
                tracing::warn!(
                    problem,
                    "namespaces are not seen, so a child whose namespace is missing is tried again with back-off only; let the \
                     host list and watch namespaces"
                );
            }
        }
    };
    namespaces::follow(client, tell).await;
}
