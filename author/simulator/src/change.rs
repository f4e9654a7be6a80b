//! Changes of stored objects.

use std::sync::Arc;

use serde_json::Value;

use crate::kinds::Storage;

/// One change of one object.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) storage: Storage,
    /// None when it was created.
    pub(crate) before: Option<Arc<Value>>,
    /// The object after the change; when it was deleted, its last state with the revision of the deletion.
    pub(crate) after: Arc<Value>,
    pub(crate) deleted: bool,
}
