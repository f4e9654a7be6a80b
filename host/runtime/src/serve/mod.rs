//! Answers HTTP requests to the host: monitoring, readiness and the JSON API.
//!
//! Counters and histograms are recorded where something happens. A scrape takes the gauges from counts that the tables keep, and looks at
//! no object. `/livez` means that the main loop turns ([`crate::process::heartbeat`]). The API tells people what the history remembers, and lets
//! in who has the rights.

pub mod api;
pub mod endpoints;
pub mod readiness;
