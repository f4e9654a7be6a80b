//! Metrics of lists and watches: reasons for restarts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::label::{LabelText, closed_set};

closed_set! {
    /// Reason why a watch ended and another one is opened.
    WatchRestart {
        /// The server closed it, as it does every few minutes.
        Closed = "closed",
        /// The server no longer has the watch's resource version: the kind is listed again.
        Expired = "expired",
        /// A list or a watch failed.
        Error = "error",
        /// The host panicked while it processed an event.
        Panic = "panic",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    kind: LabelText,
    reason: WatchRestart,
}

/// The metrics of lists and watches.
#[derive(Clone, Debug, Default)]
pub struct WatchMetrics {
    restarts: Family<Labels, Counter>,
}

impl WatchMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "watch_restarts",
            "Number of watches of a kind that ended and were opened again, by the reason of their end",
            metrics.restarts.clone(),
        );
        metrics
    }

    /// Adds a kind that is watched.
    pub fn enter(&self, kind: &str) {
        for labels in all(kind) {
            drop(self.restarts.get_or_create(&labels));
        }
    }

    /// Removes a kind that is no longer watched.
    pub fn leave(&self, kind: &str) {
        for labels in all(kind) {
            self.restarts.remove(&labels);
        }
    }

    /// Counts the end of a watch. A kind that is no longer watched gets no series for the end of its last watch.
    pub fn ended(&self, kind: &str, reason: WatchRestart) {
        let kind = LabelText::from(kind);
        if let Some(restarts) = self.restarts.get(&Labels { kind, reason }) {
            restarts.inc();
        }
    }
}

fn all(kind: &str) -> impl Iterator<Item = Labels> {
    let kind = LabelText::from(kind);
    WatchRestart::ALL.iter().map(move |reason| Labels {
        kind: kind.clone(),
        reason: *reason,
    })
}
