//! Journal of every change of every object with its author, for tests that judge a whole run and not only its end.

use std::sync::Arc;

use serde_json::Value;

use crate::change::Change;

/// Author of the current changes. Empty while the cluster's own controllers make them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Author {
    /// The client's name for itself.
    pub user_agent: String,
    /// The field manager that it gave.
    pub field_manager: String,
}

/// One change of one object.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Entry {
    /// The resource version that the change made.
    pub revision: u64,
    /// Its author.
    pub author: Author,
    /// The resource's group.
    pub group: String,
    /// The resource's plural name.
    pub resource: String,
    /// The object before; None when it was created.
    pub before: Option<Arc<Value>>,
    /// The object after the change; when it was deleted, its last state.
    pub after: Arc<Value>,
    /// Set if the object was deleted.
    pub deleted: bool,
}

/// The changes so far, if they are kept.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    entries: Option<Vec<Entry>>,
    pub(crate) author: Author,
}

impl Journal {
    pub(crate) fn keep(&mut self) {
        self.entries.get_or_insert_default();
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        self.entries.as_deref().unwrap_or_default()
    }

    pub(crate) fn record(&mut self, change: &Change) {
        let Some(entries) = &mut self.entries else { return };
        let Change {
            revision,
            storage,
            before,
            after,
            deleted,
        } = change.clone();
        entries.push(Entry {
            revision,
            author: self.author.clone(),
            group: storage.group,
            resource: storage.plural,
            before,
            after,
            deleted,
        });
    }
}
