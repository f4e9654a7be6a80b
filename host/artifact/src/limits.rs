//! Owns the limits of everything that a registry, a layout or an artifact could make large, many or slow.

use std::time::Duration;

/// The largest manifest or index: what the OCI distribution specification tells registries to accept.
pub const MANIFEST_LIMIT: u64 = 4 << 20;
/// The largest manifest that is looked into, and the largest page of tags. JSON takes up to twelve times its size in memory
/// here, so this is what bounds a hostile registry. Longer manifests are copied, and never read.
pub const PARSED_LIMIT: u64 = 1 << 20;
/// Entries of an index that are looked at.
pub const ENTRIES_LIMIT: usize = 1000;
/// The largest signature, bundle or payload that is read.
pub const SIGNATURE_LIMIT: u64 = 1 << 20;
/// Signatures that are read of one artifact; the rest is ignored.
pub const SIGNATURES_LIMIT: usize = 64;
/// The longest wait that a registry's Retry-After can cause.
pub const RETRY_AFTER_LIMIT: Duration = Duration::from_mins(1);

/// Bounds on what a registry can make this process do. The defaults suit registries on the internet.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest blob, in bytes: a component, or a file beside it. 256 MiB.
    pub blob: u64,
    /// Referrers that are listed of one manifest. 256.
    pub referrers: usize,
    /// Tags that are listed of one repository. 10,000.
    pub tags: usize,
    /// Time to connect. 10 s.
    pub connect: Duration,
    /// Time for one exchange other than that of a blob, from the request to the last byte of the answer. 30 s.
    pub exchange: Duration,
    /// Time for one blob, with all attempts. 15 minutes.
    pub transfer: Duration,
    /// How often a blob's transfer must have made `progress`. 15 s.
    pub progress_interval: Duration,
    /// Bytes that must arrive in each `progress_interval`. 16 KiB.
    pub progress: u64,
    /// Attempts of one exchange, and attempts of a blob without progress. 4.
    pub attempts: u32,
    /// The wait before the second attempt; it doubles. 500 ms.
    pub back_off: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            blob: 256 << 20,
            referrers: 256,
            tags: 10_000,
            connect: Duration::from_secs(10),
            exchange: Duration::from_secs(30),
            transfer: Duration::from_mins(15),
            progress_interval: Duration::from_secs(15),
            progress: 16 << 10,
            attempts: 4,
            back_off: Duration::from_millis(500),
        }
    }
}
