//! Counts the requests of a client and measures their duration: a layer around the service that sends them.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response, header};
use pilothouse_metrics::{ApiRequest, RequestMetrics};
use tokio::time::Instant;
use tower::{Layer, Service};

/// Measures the requests of the services that it wraps.
#[derive(Clone, Debug)]
pub struct MeterLayer(RequestMetrics);

/// A service whose requests are measured.
#[derive(Clone, Debug)]
pub struct Meter<S> {
    inner: S,
    metrics: RequestMetrics,
}

impl MeterLayer {
    /// Records in these metrics.
    pub fn new(metrics: &RequestMetrics) -> Self {
        Self(metrics.clone())
    }
}

impl<S> Layer<S> for MeterLayer {
    type Service = Meter<S>;

    fn layer(&self, inner: S) -> Meter<S> {
        Meter {
            inner,
            metrics: self.0.clone(),
        }
    }
}

impl<S, A, B> Service<Request<A>> for Meter<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let content_type = request.headers().get(header::CONTENT_TYPE);
        let about = ApiRequest::new(
            request.method().as_str(),
            request.uri().path(),
            request.uri().query(),
            content_type.and_then(|it| it.to_str().ok()),
        );
        let counted = CountedRequest {
            about: Some(about),
            metrics: self.metrics.clone(),
            begun: Instant::now(),
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            counted.ended(answer.as_ref().ok().map(|response| response.status().as_u16()));
            answer
        })
    }
}

/// A request in flight. An abandoned one counts, too: a time-out ends requests that way.
struct CountedRequest {
    about: Option<ApiRequest>,
    metrics: RequestMetrics,
    begun: Instant,
}

impl CountedRequest {
    fn ended(mut self, code: Option<u16>) {
        self.record(code);
    }

    fn record(&mut self, code: Option<u16>) {
        if let Some(about) = self.about.take() {
            self.metrics.ended(about, code, self.begun.elapsed());
        }
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        self.record(None);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use pilothouse_metrics::{Metrics, StateFigures};
    use tower::service_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_request_counts_once_by_code_even_when_abandoned() {
        let metrics = Metrics::default();
        let service = service_fn(|request: Request<()>| async move {
            match request.uri().path().rsplit('/').next() {
                Some("conflict") => Ok(Response::builder().status(409).body(()).unwrap()),
                Some("lost") => Err(io::Error::from_raw_os_error(111)),
                Some("silent") => std::future::pending().await,
                _ => Ok(Response::new(())),
            }
        });
        let mut meter = MeterLayer::new(metrics.requests()).layer(service);
        let path = "/apis/apps/v1/namespaces/a/deployments";
        for name in ["ok", "conflict", "lost", "conflict", "silent"] {
            let request = Request::patch(format!("{path}/{name}")).body(()).unwrap();
            let _ = tokio::time::timeout(Duration::from_secs(30), meter.call(request)).await;
        }
        let text = metrics.print(&StateFigures::default());
        let counts: Vec<&str> = ["200", "409", "none"]
            .iter()
            .map(|code| {
                let start = format!(
                    "pilothouse_api_requests_total{{verb=\"patch\",resource=\"deployments.apps\",subresource=\"\",code=\"{code}\"}} "
                );
                text.lines().find_map(|line| line.strip_prefix(&*start)).unwrap_or("-")
            })
            .collect();
        assert_eq!(counts, ["1", "2", "2"], "{text}");
        assert!(
            text.contains("pilothouse_api_request_duration_seconds_sum{verb=\"patch\"} 30.0"),
            "{text}"
        );
    }
}
