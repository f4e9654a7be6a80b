//! Connects the watches of the cluster with the shared state.
//!
//! Each kind is watched once for all lanes (`informers`), and no further than all of them need together: fields (where no field is
//! declared, only metadata), namespaces, names and labels. A primary's filter does not narrow the watch, because a watch with a selector
//! reports an object that leaves the selection as deleted. If a kind is not served any more, the lanes that need it are closed before its
//! cached objects are dropped.
//!
//! The watchdog looks every 30 s at everything that the host waits for. A wait of more than five minutes while its watch works is a bug of
//! the host: the live object is read into the cache, the primary is released, and the wait is logged and counted (`Handle::stuck`).
//!
//! Known gap: if a kind is watched with a label selector, and a webhook removes such a label from an object that the host has just written,
//! the watch never shows the write. The primary then waits for five minutes, until the watchdog looks.

pub mod definitions;
pub mod informers;
pub mod namespaces;
pub mod watch_sink;
pub mod watchdog;
