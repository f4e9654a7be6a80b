//! Metrics of what API servers ask: reviews by the source of the objects that they depend on, and the time and the result
//! of each request.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
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

closed_set! {
    /// What an API server asks for.
    ReviewedFunction {
        /// Defaults of an object.
        Default = "default",
        /// The validation of an object.
        Validate = "validate",
        /// The conversion of objects.
        Convert = "convert",
    }
}

closed_set! {
    /// Result of a request.
    ReviewResult {
        /// An answer that lets the object pass.
        Allowed = "allowed",
        /// The plugin refuses the object.
        Denied = "denied",
        /// No answer: an HTTP error, so that the failure policy decides.
        Failed = "failed",
    }
}

closed_set! {
    /// Certificate of the server that API servers ask.
    ServedCertificate {
        /// The one that it presents.
        Server = "server",
        /// The newest authority.
        Authority = "authority",
    }
}

/// Buckets in seconds: an answer takes milliseconds, and API servers wait for at most 30 s.
const REQUEST_BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    answered: ReviewReads,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    function: ReviewedFunction,
    result: ReviewResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabel {
    certificate: ServedCertificate,
}

/// The metrics of admission reviews and conversions.
#[derive(Clone, Debug)]
pub struct ReviewMetrics {
    reviews: Family<Labels, Counter>,
    requests: Family<RequestLabels, Histogram>,
    expiries: Family<CertificateLabel, Gauge<f64, AtomicU64>>,
}

impl Default for ReviewMetrics {
    fn default() -> Self {
        Self {
            reviews: Family::default(),
            requests: Family::new_with_constructor(|| Histogram::new(REQUEST_BUCKETS)),
            expiries: Family::default(),
        }
    }
}

impl ReviewMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "admission_reviews",
            "Number of admission reviews, by how they were answered",
            metrics.reviews.clone(),
        );
        registry.register(
            "webhook_request_duration_seconds",
            "Time to answer a request of an API server, in seconds, by its function and its result",
            metrics.requests.clone(),
        );
        registry.register(
            "certificate_expiry_timestamp_seconds",
            "End of a certificate of the webhook server, in seconds since the epoch; only with webhooks",
            metrics.expiries.clone(),
        );
        for answered in ReviewReads::ALL {
            drop(metrics.reviews.get_or_create(&Labels { answered: *answered }));
        }
        metrics
    }

    /// Sets the end of a certificate that is served, since the epoch.
    pub fn serves(&self, certificate: ServedCertificate, until: Duration) {
        let expiry = self.expiries.get_or_create(&CertificateLabel { certificate });
        expiry.set(until.as_secs_f64());
    }

    /// Counts a request that was answered after this long.
    pub fn ended(&self, function: ReviewedFunction, result: ReviewResult, took: Duration) {
        let labels = RequestLabels { function, result };
        self.requests.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Counts an answered review.
    pub fn answered(&self, answered: ReviewReads) {
        self.reviews.get_or_create(&Labels { answered }).inc();
    }
}
