//! Limits of everything that a registry, a layout or an artifact could make large, many or slow.

use std::time::Duration;

/// The largest manifest or index, in bytes: the OCI distribution specification requires registries to accept it.
pub const MANIFEST_LIMIT: u64 = 4 << 20;
/// The largest manifest that is parsed, and the largest page of tags, in bytes. Parsed JSON takes up to twelve times
/// its size in memory here, so this limit bounds a hostile registry. Longer manifests are copied, and never parsed.
pub const PARSED_LIMIT: u64 = 1 << 20;
/// The highest number of entries of an index that are read.
pub const ENTRIES_LIMIT: usize = 1000;
/// The largest signature, bundle or payload, in bytes.
pub const SIGNATURE_LIMIT: u64 = 1 << 20;
/// The highest number of signatures of one artifact; the rest is ignored.
pub const SIGNATURES_LIMIT: usize = 64;
/// The longest delay that a registry's Retry-After can cause.
pub const RETRY_AFTER_LIMIT: Duration = Duration::from_mins(1);

/// Limits on the resources that a registry can make this process use. The defaults suit registries on the internet.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest blob, in bytes: a component, or a file beside it. 256 MiB.
    pub blob: u64,
    /// The highest number of listed referrers of one manifest. 256.
    pub referrers: usize,
    /// The highest number of listed tags of one repository. 10,000.
    pub tags: usize,
    /// The time limit for a connection. 10 s.
    pub connect: Duration,
    /// The time limit for one exchange other than a blob's, from the request to the last byte of the response. 30 s.
    pub exchange: Duration,
    /// The time limit for one blob, with all attempts. 15 minutes.
    pub transfer: Duration,
    /// The interval in which a blob's transfer must make `progress`. 15 s.
    pub progress_interval: Duration,
    /// Bytes that must arrive in each `progress_interval`. 16 KiB.
    pub progress: u64,
    /// Attempts of one exchange, and attempts of a blob without progress. 4.
    pub attempts: u32,
    /// The delay before the second attempt; it doubles. 500 ms.
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
