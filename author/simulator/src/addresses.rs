//! Cluster addresses and node ports that are taken.

use std::collections::HashMap;

use crate::change::Change;
use crate::kinds::Storage;
use crate::resource::{Key, text};

/// Services by their cluster IPs.
#[derive(Debug, Default)]
pub(crate) struct Addresses(pub(crate) HashMap<String, Key>);

impl Addresses {
    /// Keeps the index up to date.
    pub(crate) fn observe(&mut self, changes: &[Change]) {
        let services = Storage::new("", "services");
        for change in changes.iter().filter(|change| change.storage == services) {
            if let Some(before) = &change.before {
                self.0.remove(text(&before["spec"]["clusterIP"]));
            }
            let address = text(&change.after["spec"]["clusterIP"]);
            if !change.deleted && !address.is_empty() && address != "None" {
                self.0.insert(address.to_owned(), Key::of(&change.after));
            }
        }
    }
}
