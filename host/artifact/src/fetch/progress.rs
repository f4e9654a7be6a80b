//! Reports the progress of a transfer. Showing it is left to the caller.

/// Receives the progress of one blob's transfer.
pub trait Progress: Send + Sync {
    /// The transfer begins, with this many bytes to come.
    fn started(&self, total: u64) {
        let _ = total;
    }
    /// This many further bytes were transferred.
    fn advanced(&self, bytes: u64) {
        let _ = bytes;
    }
    /// All bytes have arrived and have the expected digest.
    fn done(&self) {}
}

/// Ignores all progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {}
