//! Metrics of admission reviews, by the source of the objects that they depend on.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::label::closed_set;

closed_set! {
    /// Source of the objects that an answer depends on.
    ReviewReads {
        /// The cache of this replica.
        Local = "local",
        /// The replica that holds the shard.
        Forwarded = "forwarded",
        /// The API server, because the replica that holds the shard could not be reached.
        Live = "live",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    answered: ReviewReads,
}

/// The metrics of admission reviews.
#[derive(Clone, Debug, Default)]
pub struct ReviewMetrics {
    reviews: Family<Labels, Counter>,
}

impl ReviewMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "admission_reviews",
            "Number of admission reviews, by how they were answered",
            metrics.reviews.clone(),
        );
        for answered in ReviewReads::ALL {
            drop(metrics.reviews.get_or_create(&Labels { answered: *answered }));
        }
        metrics
    }

    /// Counts an answered review.
    pub fn answered(&self, answered: ReviewReads) {
        self.reviews.get_or_create(&Labels { answered }).inc();
    }
}
