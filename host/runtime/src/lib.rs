//! Joins the houses: what host/cluster sees goes through a queue into the six stages of [`reconcile`], which ask
//! host/sandbox what it means and host/core what to do about it.
#![forbid(unsafe_code)]

mod admission;
mod blocking;
pub mod clock;
mod contribute;
mod deep;
mod definitions;
mod echo;
mod former;
pub mod host;
mod hub;
mod lane;
mod lanes;
mod plugins;
mod queue;
mod quiet;
mod reconcile;
mod refusals;
mod rivals;
mod route;
mod seen;
mod turns;
mod view;
mod watchdog;
mod watches;

pub use admission::{Maker, WebhookOptions};
pub use blocking::Blocking;
pub use host::{Handle, Host, HostOptions, Left};
pub use lane::{Mode, PluginSpec};
pub use pilothouse_webhook::certificates::Lifetimes;
pub use plugins::{Library, PluginLook, check_plugin};
pub use queue::Depth;
