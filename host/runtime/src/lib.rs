//! Joins the host's crates: events observed by host/cluster pass a queue into the six stages of [`reconcile`], which
//! call plugins through host/sandbox and leave decisions to host/core.
#![forbid(unsafe_code)]

mod admission;
pub mod artifacts;
mod context;
mod election;
pub mod host;
mod lanes;
mod options;
mod plugins;
mod process;
mod queue;
mod reconcile;
mod serve;
mod sharding;
mod state;
mod telemetry;
#[cfg(test)]
mod test_support;
mod view;
mod watches;

pub use admission::{Maker, WebhookOptions};
pub use election::leadership::ElectionOptions;
pub use host::{Handle, Host, UnfinishedWork};
pub use lanes::lane::{RunMode, StaticPlugin};
pub use options::{HostOptions, Identity, InstallCrds};
pub use pilothouse_core::replicas::peers::LONGEST_LEASE_SUFFIX;
pub use pilothouse_webhook::certificates::Lifetimes;
pub use plugins::{Library, PluginSummary, check_plugin};
pub use process::blocking::Blocking;
pub use process::{clock, heartbeat, heartbeat::Heartbeat};
pub use queue::Depth;
pub use serve::endpoints::{EndpointServer, Endpoints};
pub use serve::{api, endpoints};
pub use telemetry::traces::TraceOptions;
