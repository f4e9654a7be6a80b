//! State that the server and its streams share.

use std::time::SystemTime;

use parking_lot::Mutex;

use crate::faults::Faults;
use crate::log::RequestLog;
use crate::rights::Rights;
use crate::state::State;

/// Shared data of all handles of one simulated cluster.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) state: Mutex<State>,
    pub(crate) log: RequestLog,
    pub(crate) faults: Faults,
    pub(crate) rights: Rights,
}

impl Inner {
    pub(crate) fn revision(&self) -> u64 {
        self.state.lock().store.revision()
    }

    pub(crate) fn now(&self) -> SystemTime {
        self.state.lock().clock.now()
    }
}

/// The connection broke: the client cannot know whether the request took place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// Connection closed before the response arrived.
    #[error("connection closed before the response arrived")]
    Closed,
    /// While the request's body was read.
    #[error("read the request's body: {0}")]
    Body(String),
}
