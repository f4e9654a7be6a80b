//! Owns the metrics of lists and watches: why each was begun anew.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::label::{LabelText, closed_set};

closed_set! {
    /// Why a watch ended, so that another one is opened.
    WatchRestart {
        /// The server closed it, as it does every few minutes.
        Closed = "closed",
        /// The server no longer knows where the watch would go on: the kind is listed again.
        Expired = "expired",
        /// A list or a watch failed.
        Error = "error",
        /// The host made a mistake while it took in what the watch saw.
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

    /// A kind is watched from now on.
    pub fn enter(&self, kind: &str) {
        for labels in all(kind) {
            drop(self.restarts.get_or_create(&labels));
        }
    }

    /// Nobody watches a kind any more.
    pub fn leave(&self, kind: &str) {
        for labels in all(kind) {
            self.restarts.remove(&labels);
        }
    }

    /// A watch ended. A kind that nobody watches any more gets no series for the end of its last watch.
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
