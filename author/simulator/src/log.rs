//! Log of requests, from which tests read what was requested and written.

use std::sync::Arc;

use parking_lot::Mutex;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// Its place in the log, from 0.
    pub index: usize,
    /// get, list, watch, create, update, patch, delete or deletecollection; empty where no resource is meant.
    pub verb: String,
    /// The resource's group; empty for the core group.
    pub group: String,
    /// The resource's version.
    pub version: String,
    /// The resource's plural name; empty for discovery, health and the like.
    pub resource: String,
    /// status, scale and so on, or empty.
    pub subresource: String,
    /// The namespace that the path names.
    pub namespace: Option<String>,
    /// The name that the path names.
    pub name: Option<String>,
    /// The path with its query.
    pub uri: String,
    /// The HTTP status; 0 where the response was lost.
    pub status: u16,
    /// The field manager that was given.
    pub field_manager: Option<String>,
    /// The patch's media type.
    pub content_type: Option<String>,
    /// The client's name for itself.
    pub user_agent: String,
    /// The impersonated user.
    pub user: Option<String>,
    /// Set if the verb writes and the request is no dry run.
    pub write: bool,
    /// Set if an object was stored or removed.
    pub changed: bool,
    /// The fault that was injected.
    pub fault: Option<String>,
}

/// A moment in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(usize);

/// Every request since the start.
#[derive(Debug, Clone, Default)]
pub struct RequestLog(Arc<Mutex<Vec<Record>>>);

impl RequestLog {
    /// Returns the current position.
    pub fn mark(&self) -> Mark {
        Mark(self.0.lock().len())
    }

    /// Every request.
    pub fn all(&self) -> Vec<Record> {
        self.0.lock().clone()
    }

    /// Requests since a moment.
    pub fn since(&self, mark: Mark) -> Vec<Record> {
        self.0.lock().get(mark.0..).unwrap_or_default().to_vec()
    }

    /// Writes since a moment, whether they changed something or not.
    pub fn writes_since(&self, mark: Mark) -> Vec<Record> {
        self.since(mark).into_iter().filter(|record| record.write).collect()
    }

    pub(crate) fn push(&self, mut record: Record) {
        let mut records = self.0.lock();
        record.index = records.len();
        records.push(record);
    }
}
