//! Finds the children that a primary leaves if it is deleted with orphan propagation (`--cascade=orphan`), and decides
//! whether a deletion that no host observed was one: the garbage collector has removed the owner references from the
//! children then.

use std::sync::Arc;

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::Key;
use pilothouse_core::ownership::Owner;

use crate::lanes::custody::{children_of, is_labelled, is_orphaning, is_stripped, is_unbound};
use crate::lanes::lane::Lane;
use crate::state::tables::orphans::Witness;
use crate::state::{SharedState, Tables};

/// A child, and how its kind is served.
pub type LeftChild = (ServedKind, Arc<CachedObject>);

/// Children that a lane's plugin applied for a primary that is deleted or being deleted, except those to keep.
#[derive(Default)]
pub struct LeftChildren {
    /// Children that the host's label binds to the primary.
    pub labelled: Vec<LeftChild>,
    /// Children that have an owner reference to the primary.
    pub referring: Vec<LeftChild>,
    /// Children whose owner reference is being stripped by another writer.
    pub stripped: Vec<LeftChild>,
    /// Children whose owner reference was observed to be removed.
    pub unbound: Vec<LeftChild>,
    /// Objects of the plugin without an owner that may have been children of the primary before the host started.
    pub strays: Vec<LeftChild>,
    /// Set if no living primary of the plugin can own `strays`.
    pub are_strays_nobodys: bool,
}

impl LeftChildren {
    /// Returns `true` if the garbage collector seems to have removed all owner references, although no host saw the
    /// request.
    pub fn look_orphaned(&self, witness: Witness) -> bool {
        self.referring.is_empty()
            && (!self.unbound.is_empty() || (witness == Witness::Unseen && !self.strays.is_empty()))
    }

    /// All children that get no owner from here on.
    pub fn into_released(self) -> impl Iterator<Item = LeftChild> {
        let strays = self.strays.into_iter().filter(move |_| self.are_strays_nobodys);
        let ours = self.labelled.into_iter().chain(self.referring).chain(self.stripped);
        ours.chain(self.unbound).chain(strays)
    }
}

impl SharedState {
    /// Records that a primary is deleted with orphan propagation.
    pub fn orphan(&self, uid: &str) {
        self.tables.write().orphans.orphan(&uid.into());
    }

    /// Returns `true` if a primary is known to be deleted with orphan propagation.
    pub fn is_orphaned(&self, uid: &str) -> bool {
        self.tables.read().orphans.is_orphaned(uid)
    }

    /// Returns `true` if a primary is deleted with orphan propagation, as far as the cache shows it.
    pub fn is_orphaning(&self, lane: &Lane, object: &CachedObject, owner: &Owner) -> bool {
        let tables = self.tables.read();
        if is_orphaning(object) || tables.orphans.is_orphaned(&object.uid) {
            return true;
        }
        if !lane.has_finalized(object) || tables.orphans.is_known_not_orphaned(lane.id, &object.uid) {
            return false;
        }
        let witness = tables.orphans.witness(lane.id, &object.uid);
        tables.left_by(lane, owner).look_orphaned(witness)
    }

    /// Returns `true` if the server has confirmed that a primary is not deleted with orphan propagation.
    pub fn is_known_not_orphaned(&self, lane: &Lane, uid: &str) -> bool {
        self.tables.read().orphans.is_known_not_orphaned(lane.id, uid)
    }

    /// Records the server's confirmation that a primary is not deleted with orphan propagation.
    pub fn exclude_orphaned(&self, lane: &Lane, uid: &str) {
        self.tables.write().orphans.exclude_orphaned(lane.id, uid);
    }

    /// Forgets unbound children of a living primary: their lost owner reference has nothing to do with a deletion.
    pub fn forget_unbound(&self, lane: &Lane, uid: &str) {
        self.tables.write().orphans.forget_unbound(lane.id, uid);
    }

    /// Children that a primary has left.
    pub fn left_by(&self, lane: &Lane, owner: &Owner) -> LeftChildren {
        self.tables.read().left_by(lane, owner)
    }
}

impl Tables {
    fn left_by(&self, lane: &Lane, owner: &Owner) -> LeftChildren {
        let children = children_of(&self.store, lane, &owner.uid).map(|(served, child)| (served, child.clone()));
        let (labelled, others): (_, Vec<LeftChild>) = children.partition(|(_, child)| is_labelled(child));
        let (stripped, referring) = others.into_iter().partition(|(_, child)| is_stripped(child));
        let cached = |key: &Key| {
            let child = self.store.get(&key.kind, &key.name)?;
            is_unbound(lane, child).then(|| Some((lane.served(&key.kind)?, child.clone())))?
        };
        let in_reach = |key: &&Key| owner.name.namespace.is_none() || owner.name.namespace == key.name.namespace;
        let strays = self.orphans.strays(lane.id).filter(in_reach).filter_map(cached);
        let strays: Vec<LeftChild> = strays.collect();
        LeftChildren {
            labelled,
            referring,
            stripped,
            unbound: self.orphans.unbound(lane.id, &owner.uid).filter_map(cached).collect(),
            are_strays_nobodys: !strays.is_empty() && !self.has_living_primary(lane, owner),
            strays,
        }
    }

    /// Returns `true` if the plugin of a lane has a living primary in the reach of this owner's namespace.
    fn has_living_primary(&self, lane: &Lane, owner: &Owner) -> bool {
        let lanes = self.lanes.iter().filter(|other| other.plugin == lane.plugin);
        let mut primaries = lanes.flat_map(|lane| self.store.iter(lane.grants.primary(), None));
        primaries.any(|primary| {
            let place = &primary.name.namespace;
            let is_near = place.is_none() || owner.name.namespace.is_none() || *place == owner.name.namespace;
            is_near && !primary.deleting
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::state::tests::{Scene, c, scene};
    use crate::test_support::*;

    /// A child `n` in the primary's namespace, with an owner reference to `p` or without one.
    fn near(version: u32, refers: bool) -> Value {
        let reference =
            json!({"apiVersion": "x.dev/v1", "kind": "Primary", "name": "p", "uid": "uid-p", "controller": true});
        let references = if refers { vec![reference] } else { Vec::new() };
        let applied = applied(&Lane::manager_of("plugin"), &json!({"f:data": {}}));
        text(
            "n",
            version,
            &json!({"metadata": {
                "annotations": {"pilothouse.dev/desired": "d"}, "ownerReferences": references, "managedFields": [applied],
            }}),
        )
    }

    fn going(version: u32, finalizers: &[&str]) -> Value {
        let metadata = json!({"deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": finalizers});
        text("p", version, &json!({"spec": {"size": 1}, "metadata": metadata}))
    }

    /// The names of the children that a primary `p` has left: by label, by reference, unbound, and strays.
    fn left(host: &TestHost, lane: &Lane) -> [Vec<String>; 4] {
        let owner = Owner {
            kind: primary_kind(),
            name: name("p"),
            uid: "uid-p".to_owned(),
        };
        let left = host.context.state.left_by(lane, &owner);
        let names = |children: Vec<LeftChild>| children.iter().map(|(_, child)| child.name.name.to_string()).collect();
        [left.labelled, left.referring, left.unbound, left.strays].map(names)
    }

    #[tokio::test(start_paused = true)]
    async fn an_orphaning_deletion_is_known_when_the_primary_is_gone() {
        let Scene {
            host,
            lane,
            primaries,
            children,
        } = scene().await;
        host.see(&children, &near(1, true));
        host.see(&primaries, &going(2, &["orphan"]));
        assert_eq!(host.run_all(), ["0/p"]);
        host.see(&children, &near(2, false));
        assert_eq!(host.run_all(), ["0/p"]);
        host.context.state.deleted(&primaries, &name("p"));
        assert!(host.context.state.is_orphaned("uid-p"));
        assert_eq!(left(&host, &lane).map(|names| names.join(" ")), ["c", "", "n", ""]);
        assert_eq!(host.run_all(), ["0/p"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_child_unbound_after_its_primary_was_deleted_is_queued() {
        let Scene {
            host,
            lane,
            primaries,
            children,
        } = scene().await;
        host.see(&children, &near(1, true));
        host.context.state.deleted(&primaries, &name("p"));
        host.run_all();
        host.context.state.collected(&primary(&lane, "p"), "uid-p");
        host.see(&children, &near(2, false));
        assert_eq!(host.run_all(), ["0/p"]);
        let gone = host.context.state.orphans_of(&primary(&lane, "p"));
        assert_eq!(gone, [("uid-p".into(), Witness::Seen)].into());
        assert_eq!(left(&host, &lane)[2], ["n"]);
    }

    #[tokio::test(start_paused = true)]
    async fn unbound_children_of_a_living_primary_are_forgotten() {
        let Scene {
            host, lane, children, ..
        } = scene().await;
        host.see(&children, &near(1, true));
        host.see(&children, &near(2, false));
        assert!(host.context.state.take_lost_child(&primary(&lane, "p")));
        host.context.state.forget_unbound(&lane, "uid-p");
        assert_eq!(left(&host, &lane)[2], [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_that_nobody_saw_is_inferred_from_children_without_owner() {
        let host = TestHost::new().await;
        let mut lane = host.lane("plugin", controller(&["owned"]));
        lane.finalizer = Some("x.dev/f".to_owned());
        let lane = host.put(lane);
        host.list(&primary_kind(), &[going(1, &["x.dev/f"])]);
        let children = host.list(&child_kind(), &[c(1), near(1, false)]);
        let is_orphaning = || {
            let object = host.context.state.get(&primary_kind(), &name("p")).unwrap();
            let owner = Owner {
                kind: primary_kind(),
                name: name("p"),
                uid: "uid-p".to_owned(),
            };
            host.context.state.is_orphaning(&lane, &object, &owner)
        };
        assert_eq!(left(&host, &lane)[3], ["n"]);
        assert!(is_orphaning());
        host.see(&children, &near(2, true));
        assert!(!is_orphaning(), "the garbage collector leaves no reference behind");
    }
}
