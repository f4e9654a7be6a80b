//! Joins the houses: what host/cluster sees goes through a queue into the six stages of [`reconcile`], which ask
//! host/sandbox what it means and host/core what to do about it.
#![forbid(unsafe_code)]

mod admission;
mod blocking;
mod call_slots;
pub mod clock;
mod competing_plugins;
mod contribute;
mod definitions;
mod echo;
pub mod host;
mod hub;
mod idle;
mod informers;
mod lane;
mod lanes;
mod leftovers;
mod plugins;
mod queue;
mod reconcile;
mod refusals;
mod reread;
mod route;
mod state_lock;
mod too_deep;
mod view;
mod visibility;
mod watchdog;

pub use admission::{Maker, WebhookOptions};
pub use blocking::Blocking;
pub use host::{Handle, Host, HostOptions, UnfinishedWork};
pub use lane::{RunMode, StaticPlugin};
pub use pilothouse_webhook::certificates::Lifetimes;
pub use plugins::{Library, PluginSummary, check_plugin};
pub use queue::Depth;
