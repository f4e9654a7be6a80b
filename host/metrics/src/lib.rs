//! The host's metrics: the families, their labels, recording and printing. Without I/O: the crates of the host record what
//! they do through a [`Metrics`], and the runtime prints it together with the [`StateFigures`] of that moment.
//!
//! [`PluginMetrics`] is recorded by what runs plugins, [`RequestMetrics`] by the client of the API server,
//! [`ReviewMetrics`] by what answers admission reviews, and [`WatchMetrics`] by the watches. `label` has the values of labels, `text` the form that Prometheus reads.
//!
//! No label comes from an unbounded set. Plugins and their controllers are those of the cluster's Plugin resources, and
//! their series go with them. Kinds are those that manifests name. Everything else is an enum of this crate or is cut off.
#![forbid(unsafe_code)]

mod label;
mod plugins;
mod requests;
mod reviews;
mod state;
mod text;
mod watches;

use std::sync::Arc;

use prometheus_client::registry::Registry;

pub use plugins::{CallFunction, CallMetrics, GuestFault, PluginMetrics, ReconcileOutcome};
pub use requests::{ApiRequest, RequestMetrics, Verb};
pub use reviews::{ReviewMetrics, ReviewReads};
pub use state::{ControllerFigures, KindFigures, PluginFigures, StateFigures};
pub use watches::{WatchMetrics, WatchRestart};

/// The media type of what [`Metrics::print`] returns.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// In front of the name of each metric.
const PREFIX: &str = "pilothouse";

/// The metrics of one host. A clone is the same metrics.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Families>);

#[derive(Debug)]
struct Families {
    registry: Registry,
    plugins: PluginMetrics,
    requests: RequestMetrics,
    reviews: ReviewMetrics,
    watches: WatchMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        let plugins = PluginMetrics::register(&mut registry);
        let requests = RequestMetrics::register(&mut registry);
        let reviews = ReviewMetrics::register(&mut registry);
        let watches = WatchMetrics::register(&mut registry);
        Self(Arc::new(Families {
            registry,
            plugins,
            requests,
            reviews,
            watches,
        }))
    }
}

impl Metrics {
    /// Of reconciles and calls.
    pub fn plugins(&self) -> &PluginMetrics {
        &self.0.plugins
    }

    /// Of requests to the API server.
    pub fn requests(&self) -> &RequestMetrics {
        &self.0.requests
    }

    /// Of admission reviews.
    pub fn reviews(&self) -> &ReviewMetrics {
        &self.0.reviews
    }

    /// Of lists and watches.
    pub fn watches(&self) -> &WatchMetrics {
        &self.0.watches
    }

    /// Everything in the text format of Prometheus.
    pub fn print(&self, state: &StateFigures) -> String {
        text::print([&self.0.registry, &state.registry()])
    }
}
