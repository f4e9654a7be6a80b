//! Keeps the inventory last written to a plugin's resource, and the observations about its entries.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pilothouse_cluster::resources::host_resources::HostResource;
use pilothouse_cluster::watch::reflector::is_before;
use pilothouse_core::Kind;
use pilothouse_core::plugin::inventory::{Inventory, Made};
use tokio::time::Instant;

use crate::state::tables::claims::GivenUp;

/// Time at which nothing was first seen to be left of an entry, by the kind of the primaries.
pub type Cleared = HashMap<(Kind, InventoryEntry), Instant>;

/// Entry of the inventory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum InventoryEntry {
    /// A kind, and how it was written.
    Kind(Kind, Made),
    /// A finalizer.
    Finalizer(String),
}

/// The inventory last written, and the observations about its entries.
#[derive(Default)]
pub struct InventoryWrite {
    last: Mutex<Option<WrittenInventory>>,
    scan: Mutex<InventoryScan>,
}

/// Observations of the last check.
#[derive(Default)]
pub struct InventoryScan {
    /// Time at which nothing was first seen to be left of an entry.
    pub cleared: Cleared,
    /// Objects marked for release.
    pub asked: GivenUp,
    /// Time of the check.
    pub looked: Option<Instant>,
}

struct WrittenInventory {
    /// UID of the resource.
    uid: Arc<str>,
    /// The resourceVersion that has it; `None` if the server cannot store it.
    version: Option<String>,
    inventory: Inventory,
}

impl InventoryWrite {
    /// Takes the observations of the last check; the next check puts them back with its own.
    pub fn take_scan(&self) -> InventoryScan {
        std::mem::take(&mut *self.scan.lock())
    }

    /// Stores the observations of a check.
    pub fn put_scan(&self, scan: InventoryScan) {
        *self.scan.lock() = scan;
    }

    /// Time of the last check; now if there was none.
    pub fn looked(&self) -> Instant {
        *self.scan.lock().looked.get_or_insert_with(Instant::now)
    }

    /// The inventory of the resource. The last written one may not have been observed yet.
    pub fn known(&self, live: &HostResource) -> Inventory {
        match &*self.last.lock() {
            Some(entry) if entry.uid == live.uid && entry.is_newer_than(live) => entry.inventory.clone(),
            _ => Inventory::of_status(&live.status),
        }
    }

    /// Records that the resource has an inventory in this version; `None` if its server cannot store it.
    pub fn written(&self, uid: Arc<str>, version: Option<String>, inventory: Inventory) {
        *self.last.lock() = Some(WrittenInventory {
            uid,
            version,
            inventory,
        });
    }
}

impl WrittenInventory {
    fn is_newer_than(&self, live: &HostResource) -> bool {
        self.version
            .as_deref()
            .is_none_or(|version| is_before(&live.resource_version, version))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_entry_that_cannot_be_read_does_not_hide_the_others() {
        let kind = |kind: &str| json!({"group": "", "version": "v1", "kind": kind});
        let status =
            json!({"ownedKinds": [{"primary": kind("P"), "kind": "A"}, {"primary": kind("P"), "kind": kind("B")}]});
        let known = Inventory::of_status(&status);
        assert_eq!((known.owned.len(), &*known.owned[0].kind.kind), (1, "B"));
        assert_eq!(Inventory::of_status(&Value::Null), Inventory::default());
    }

    fn live(version: &str, kinds: &Value) -> HostResource {
        HostResource {
            name: "p".into(),
            uid: "u".into(),
            resource_version: version.to_owned(),
            generation: Some(1),
            created: String::new(),
            deleting: false,
            finalizers: Vec::new(),
            annotations: Value::Null,
            labels: std::collections::BTreeMap::new(),
            spec: Value::Null,
            status: json!({"ownedKinds": kinds}),
            is_too_deep: false,
        }
    }

    #[test]
    fn an_inventory_written_later_by_another_host_counts() {
        let kind = |kind: &str| json!({"group": "", "version": "v1", "kind": kind});
        let entry = |name: &str| json!([{"primary": kind("P"), "kind": kind(name)}]);
        let ours = Inventory::of_status(&json!({"ownedKinds": entry("A")}));
        let written = InventoryWrite::default();
        written.written("u".into(), Some("7".to_owned()), ours.clone());
        assert_eq!(written.known(&live("6", &json!([]))), ours, "it is not seen yet");
        assert_eq!(written.known(&live("7", &entry("A"))), ours);
        assert_eq!(written.known(&live("8", &entry("B"))).owned[0].kind.kind, "B");
    }
}
