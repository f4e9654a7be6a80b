//! Owns the collection of children that Kubernetes does not collect: those in other namespaces, and those of cluster
//! scope that an object of a namespace has. They go once the server itself has said that their owner is gone.

use std::sync::Arc;

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::diff::rank;
use pilothouse_core::ownership::Owner;
use pilothouse_core::{Failure, Name};

use super::diff::is_named;
use super::requests::{Deleted, Requests};
use crate::context::HostContext;
use crate::custody::is_labelled;
use crate::lane::Lane;
use crate::primary::PrimaryRef;

/// Collects what primaries of this name have left behind.
pub async fn collect(host: &HostContext, lane: &Lane, primary_ref: &PrimaryRef) -> Result<(), Failure> {
    let uids = host.state.orphans_of(primary_ref);
    if uids.is_empty() {
        return Ok(());
    }
    let requests = Requests::new(host, lane, primary_ref);
    for uid in uids {
        collect_one(host, lane, primary_ref, &requests, &uid).await?;
        host.state.collected(primary_ref, &uid);
    }
    Ok(())
}

async fn collect_one(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    requests: &Requests<'_>,
    uid: &str,
) -> Result<(), Failure> {
    let mut children = children(host, lane, &primary_ref.name, uid);
    let Some(primary) = lane.served(lane.grants.primary()).filter(|_| !children.is_empty()) else {
        return Ok(());
    };
    let owner = format!("{} {}", primary.kind.kind, primary_ref.name);
    let live = requests.live(&primary, &primary_ref.name).await;
    let live = live.map_err(|error| error.into_failure("ask whether there still is", &owner))?;
    if live.is_some() {
        // It lives, or another has its name: that one adopts what it desires, and the rest stays.
        tracing::debug!(lane = lane.title(), owner, "the owner of children elsewhere is alive");
        return Ok(());
    }
    children.sort_by_key(|(served, _)| std::cmp::Reverse(rank(&served.kind)));
    for (served, child) in children {
        let title = format!("{} {}", served.kind.kind, child.name);
        let deleted = requests.delete(&served, &child).await;
        if deleted.map_err(|error| error.into_failure("delete", &title))? == Deleted::Now {
            tracing::info!(
                lane = lane.title(),
                owner,
                object = title,
                "collected, since its owner is gone"
            );
        }
    }
    Ok(())
}

/// The children that name this owner, by its place and by its uid, and that are the host's to collect. What else has the
/// uid in its label says nothing about them: anybody may have written it.
fn children(host: &HostContext, lane: &Lane, owner: &Name, uid: &str) -> Vec<(ServedKind, Arc<CachedObject>)> {
    let owner = Owner {
        kind: lane.grants.primary().clone(),
        name: owner.clone(),
        uid: uid.to_owned(),
    };
    let mut children = host.state.children_of(lane, uid);
    children.retain(|(_, child)| is_labelled(child) && is_named(child, &owner) && !child.deleting);
    children
}
