//! Holds the primaries that wait for namespaces: one of their children belongs in a namespace that does not exist (yet,
//! or any more).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::lanes::primary::PrimaryRef;

/// Waiting primaries by namespace.
#[derive(Debug, Default)]
pub struct NamespaceWaits(HashMap<Arc<str>, BTreeSet<PrimaryRef>>);

impl NamespaceWaits {
    /// Lets a primary wait for a namespace.
    pub fn wait_for(&mut self, namespace: &Arc<str>, primary_ref: &PrimaryRef) {
        self.0.entry(namespace.clone()).or_default().insert(primary_ref.clone());
    }

    /// Takes the primaries that waited for a namespace that now exists.
    pub fn take(&mut self, namespace: &str) -> BTreeSet<PrimaryRef> {
        self.0.remove(namespace).unwrap_or_default()
    }

    /// Forgets a primary that was deleted, or is reconciled anew.
    pub fn forget(&mut self, primary_ref: &PrimaryRef) {
        self.0.retain(|_, waiting| {
            waiting.remove(primary_ref);
            !waiting.is_empty()
        });
    }
}
