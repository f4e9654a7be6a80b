//! Collects children that the garbage collector does not: those in other namespaces, cluster-scoped children of
//! namespaced objects, and those whose owner references are stripped. They are deleted after a live read confirms that
//! their owner is gone. If the owner was deleted with orphan propagation, they stay without an owner.

use pilothouse_core::Failure;
use pilothouse_core::diff::rank;
use pilothouse_core::ownership::Owner;

use super::orphan::{self, Ties};
use crate::context::HostContext;
use crate::lanes::custody::is_orphaning;
use crate::lanes::lane::Lane;
use crate::lanes::primary::PrimaryRef;
use crate::reconcile::diff::is_named;
use crate::reconcile::write::requests::{Deleted, Requests};
use crate::state::LeftChild;
use crate::state::tables::orphans::Witness;

/// Collects the children that deleted primaries of this name have left.
pub async fn collect(host: &HostContext, lane: &Lane, primary_ref: &PrimaryRef) -> Result<(), Failure> {
    let gone = host.state.orphans_of(primary_ref);
    if gone.is_empty() {
        return Ok(());
    }
    let requests = Requests::new(host, lane, primary_ref);
    for (uid, witness) in gone {
        let owner = Owner {
            kind: lane.grants.primary().clone(),
            name: primary_ref.name.clone(),
            uid: uid.to_string(),
        };
        collect_one(host, lane, &requests, &owner, witness).await?;
        host.state.collected(primary_ref, &uid);
    }
    Ok(())
}

async fn collect_one(
    host: &HostContext,
    lane: &Lane,
    requests: &Requests<'_>,
    owner: &Owner,
    witness: Witness,
) -> Result<(), Failure> {
    let mut left = host.state.left_by(lane, owner);
    left.labelled.append(&mut left.stripped);
    // A mere label with the UID proves nothing: anybody may have written it.
    left.labelled
        .retain(|(_, child)| is_named(child, owner) && !child.deleting);
    let is_known = host.state.is_orphaned(&owner.uid);
    let is_concerned =
        !left.labelled.is_empty() || !left.unbound.is_empty() || (is_known && !left.referring.is_empty());
    let Some(primary) = lane.served(lane.grants.primary()).filter(|_| is_concerned) else {
        return Ok(());
    };
    let title = format!("{} {}", primary.kind.kind, owner.name);
    let live = requests.live(&primary, &owner.name).await;
    let live = live.map_err(|error| error.into_failure("ask whether there still is", &title))?;
    if let Some(live) = live.as_ref().filter(|live| *live.object.uid == *owner.uid) {
        if is_orphaning(&live.object) {
            host.state.orphan(&owner.uid);
        }
        tracing::debug!(
            lane = lane.title(),
            owner = title,
            "the owner of children elsewhere is alive"
        );
        return Ok(());
    }
    if is_known || left.look_orphaned(witness) || orphan::was_let_go(requests, &left.referring).await? {
        host.state.orphan(&owner.uid);
        return orphan::release_all(requests, lane, owner, left.into_released(), Ties::All)
            .await
            .map(drop);
    }
    if live.is_some() {
        // Another object has the name: it adopts what it desires, and the rest stays.
        return Ok(());
    }
    delete(lane, requests, &title, left.labelled).await
}

async fn delete(
    lane: &Lane,
    requests: &Requests<'_>,
    owner: &str,
    mut children: Vec<LeftChild>,
) -> Result<(), Failure> {
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
