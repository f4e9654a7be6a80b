//! Owns how a transfer tells of its progress. Who shows it, and on what, is the caller's matter.

/// Told of one blob's transfer.
pub trait Progress: Send + Sync {
    /// It begins, with this many bytes to come.
    fn started(&self, total: u64) {
        let _ = total;
    }
    /// This many further bytes were moved.
    fn advanced(&self, bytes: u64) {
        let _ = bytes;
    }
    /// All bytes are there and have the expected digest.
    fn done(&self) {}
}

/// Nobody is told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {}
