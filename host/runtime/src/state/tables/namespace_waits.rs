//! The primaries that wait for namespaces: a child of theirs is to be made in one that does not exist, or not any more.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::lanes::primary::PrimaryRef;

/// The primaries that wait, by the namespace.
#[derive(Debug, Default)]
pub struct NamespaceWaits(HashMap<Arc<str>, BTreeSet<PrimaryRef>>);

impl NamespaceWaits {
    /// A primary waits for a namespace.
    pub fn wait_for(&mut self, namespace: &Arc<str>, primary_ref: &PrimaryRef) {
        self.0.entry(namespace.clone()).or_default().insert(primary_ref.clone());
    }

    /// A namespace has come: those that waited for it.
    pub fn take(&mut self, namespace: &str) -> BTreeSet<PrimaryRef> {
        self.0.remove(namespace).unwrap_or_default()
    }

    /// A primary is gone, or is asked anew.
    pub fn forget(&mut self, primary_ref: &PrimaryRef) {
        self.0.retain(|_, waiting| {
            waiting.remove(primary_ref);
            !waiting.is_empty()
        });
    }
}
