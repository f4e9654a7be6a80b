//! The host's metrics: families, labels, recording and printing. Without I/O: the crates of the host record their work
//! through a [`Metrics`], and the runtime prints it together with the [`StateFigures`] of that moment.
//!
//! [`PluginMetrics`] is recorded by the code that runs plugins, [`RequestMetrics`] by the client of the API server,
//! [`ReviewMetrics`] by the code that answers admission reviews, and [`WatchMetrics`] by the watches. `label` has the
//! values of labels, `text` the text format of Prometheus.
//!
//! No label comes from an unbounded set. Plugins and controllers are those of the cluster's Plugin resources, and their
//! series are removed with them. Kinds are those that manifests name. All others are enums of this crate or bounded.
#![forbid(unsafe_code)]

mod label;
mod plugins;
mod process;
mod requests;
mod reviews;
mod state;
mod text;
mod watches;

use std::sync::Arc;

use prometheus_client::registry::Registry;

pub use plugins::{CallFunction, CallMetrics, GuestFault, PluginMetrics, ReconcileOutcome};
pub use process::ProcessFigures;
pub use requests::{ApiRequest, RequestMetrics, Verb};
pub use reviews::{ReviewMetrics, ReviewReads, ReviewResult, ReviewedFunction, ServedCertificate};
pub use state::{ArtifactStep, ControllerFigures, KindFigures, PluginFigures, StateFigures};
pub use watches::{WatchMetrics, WatchRestart};

/// Media type of the text that [`Metrics::print`] returns.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Prefix of the name of each metric.
const PREFIX: &str = "pilothouse";

/// Metrics of one host. A clone is the same metrics.
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
    /// Returns the metrics of reconciles and calls.
    pub fn plugins(&self) -> &PluginMetrics {
        &self.0.plugins
    }

    /// Returns the metrics of requests to the API server.
    pub fn requests(&self) -> &RequestMetrics {
        &self.0.requests
    }

    /// Returns the metrics of admission reviews.
    pub fn reviews(&self) -> &ReviewMetrics {
        &self.0.reviews
    }

    /// Returns the metrics of lists and watches.
    pub fn watches(&self) -> &WatchMetrics {
        &self.0.watches
    }

    /// Prints all metrics in the text format of Prometheus.
    pub fn print(&self, state: &StateFigures) -> String {
        let process = state.process.as_ref().map(ProcessFigures::registry);
        let state = state.registry();
        text::print([&self.0.registry, &state].into_iter().chain(&process))
    }
}
