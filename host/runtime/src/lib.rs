//! Joins the host's crates: what host/cluster sees goes through a queue into the six stages of [`reconcile`], which call
//! plugins through host/sandbox and leave decisions to host/core.
#![forbid(unsafe_code)]

mod admission;
pub mod artifacts;
mod blocking;
mod cache_need;
mod cached_namespaces;
mod call_slots;
mod claims;
pub mod clock;
mod competing_plugins;
mod context;
mod contribute;
mod custody;
mod definition_changes;
mod definitions;
mod echo;
pub mod endpoints;
mod health;
pub mod heartbeat;
pub mod host;
mod idle;
mod informers;
mod kind_registry;
mod lane;
mod lane_registry;
mod lanes;
mod leadership;
mod log_limit;
mod options;
mod orphans;
mod plugins;
mod primary;
mod queue;
mod readiness;
mod reads;
mod reconcile;
mod refusals;
mod resume_slots;
mod served_kinds;
mod sharding;
mod state;
mod state_lock;
#[cfg(test)]
mod test_support;
mod too_deep;
mod unpersisted;
mod view;
mod visibility;
mod watch_sink;
mod watchdog;

pub use admission::{Maker, WebhookOptions};
pub use blocking::Blocking;
pub use endpoints::{EndpointServer, Endpoints};
pub use heartbeat::Heartbeat;
pub use host::{Handle, Host, UnfinishedWork};
pub use lane::{RunMode, StaticPlugin};
pub use leadership::ElectionOptions;
pub use options::{HostOptions, Identity};
pub use pilothouse_webhook::certificates::Lifetimes;
pub use plugins::{Library, PluginSummary, check_plugin};
pub use queue::Depth;
