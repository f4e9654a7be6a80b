//! Sends spans to a collector: OTLP over HTTP with protobuf (<https://opentelemetry.io/docs/specs/otlp/#otlphttp>), in
//! batches, from a bounded queue. Recording never waits: spans are dropped and counted if the collector is too slow.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{Method, Request, Uri, header};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use crate::encode::request;
use crate::span::{FinishedSpan, Value};

/// Spans that wait for their batch. A span takes about a kilobyte.
const QUEUED: usize = 4096;

/// The most spans of one request.
const BATCH: usize = 512;

/// Longest time that spans wait until there are enough for a request.
const LINGER: Duration = Duration::from_secs(5);

/// Timeout of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// The wait before the second try of a request, which is the last.
const PAUSE: Duration = Duration::from_secs(2);

/// Shortest interval between two log lines about the same failure.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Endpoint of the collector, and the identity of the sender.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// URL of the collector, such as `http://HOST:4318/v1/traces`.
    pub endpoint: Uri,
    /// The resource attribute `service.instance.id`.
    pub instance: String,
    /// The version of Pilothouse.
    pub version: &'static str,
}

/// Reasons why no spans can be sent.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The machine has no readable certificate authorities.
    #[error("cannot read the machine's certificate authorities: {0}; use an endpoint with http://, or install them")]
    Authorities(std::io::Error),
}

/// Queues spans without ever waiting. A clone is the same sink.
#[derive(Clone, Debug)]
pub struct SpanSink {
    queue: mpsc::Sender<FinishedSpan>,
    dropped: Arc<AtomicU64>,
}

/// Sends the spans of a sink.
pub struct Exporter {
    queue: mpsc::Receiver<FinishedSpan>,
    dropped: Arc<AtomicU64>,
    options: ExportOptions,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    logged: Option<Instant>,
}

impl SpanSink {
    /// Queues a span; if there is no room, it is dropped and counted.
    pub fn put(&self, span: FinishedSpan) {
        if self.queue.try_send(span).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Exporter {
    /// Makes an exporter and its sink.
    pub fn new(options: ExportOptions) -> Result<(Self, SpanSink), ExportError> {
        let builder = HttpsConnectorBuilder::new();
        let builder = if options.endpoint.scheme() == Some(&Scheme::HTTPS) {
            builder
                .with_provider_and_native_roots(ring::default_provider())
                .map_err(ExportError::Authorities)?
        } else {
            // An image from scratch has no authorities, and plain HTTP needs none.
            let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("ring speaks the protocols that rustls does by default");
            builder.with_tls_config(
                client
                    .with_root_certificates(RootCertStore::empty())
                    .with_no_client_auth(),
            )
        };
        let connector = builder.https_or_http().enable_http1().build();
        let (sender, receiver) = mpsc::channel(QUEUED);
        let sink = SpanSink {
            queue: sender,
            dropped: Arc::default(),
        };
        let exporter = Self {
            queue: receiver,
            dropped: sink.dropped.clone(),
            options,
            client: Client::builder(TokioExecutor::new()).build(connector),
            logged: None,
        };
        Ok((exporter, sink))
    }

    /// Sends batches until every sink is dropped, or `over` resolves, and the queue is empty. Later spans are dropped.
    pub async fn run(mut self, over: impl Future<Output = ()>) {
        let mut over = pin!(over);
        let mut batch = Vec::new();
        loop {
            self.fill(&mut batch, over.as_mut()).await;
            if batch.is_empty() {
                return;
            }
            self.send(&batch).await;
            batch.clear();
        }
    }

    /// Waits for the first span, and then until the batch is full, or the oldest span has waited for long enough, or
    /// `over` resolves. An empty batch means that there will be no more spans.
    async fn fill(&mut self, batch: &mut Vec<FinishedSpan>, mut over: Pin<&mut impl Future<Output = ()>>) {
        let mut due = None;
        while batch.len() < BATCH {
            let room = BATCH - batch.len();
            tokio::select! {
                biased;
                () = &mut over, if !self.queue.is_closed() => self.queue.close(),
                taken = self.queue.recv_many(batch, room) => {
                    if taken == 0 {
                        return;
                    }
                    due.get_or_insert_with(|| Instant::now() + LINGER);
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => return,
            }
        }
    }

    async fn send(&mut self, batch: &[FinishedSpan]) {
        let ExportOptions {
            endpoint: _,
            instance,
            version,
        } = &self.options;
        let resource = [
            ("service.name", Value::from("pilothouse")),
            ("service.instance.id", Value::from(instance.as_str())),
            ("service.version", Value::from(*version)),
        ];
        let body = Bytes::from(request(&resource, version, batch));
        let mut sent = self.try_to_send(body.clone()).await;
        if matches!(sent, Err(SendFailure { may_pass: true, .. })) {
            tokio::time::sleep(PAUSE).await;
            sent = self.try_to_send(body).await;
        }
        if let Err(SendFailure { problem, .. }) = sent {
            self.dropped.fetch_add(batch.len() as u64, Ordering::Relaxed);
            self.log_failure(&problem);
        }
    }

    async fn try_to_send(&self, body: Bytes) -> Result<(), SendFailure> {
        let passing = |problem: String| SendFailure {
            problem,
            may_pass: true,
        };
        let request = Request::builder()
            .method(Method::POST)
            .uri(&self.options.endpoint)
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .header(header::USER_AGENT, concat!("pilothouse/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(body))
            .map_err(|error| passing(error.to_string()))?;
        let answered = timeout(PATIENCE, self.client.request(request)).await;
        let response = answered
            .map_err(|_| passing(format!("it has not answered within {} s", PATIENCE.as_secs())))?
            .map_err(|error| passing(chain(&error)))?;
        let code = response.status();
        if code.is_success() {
            return Ok(());
        }
        Err(SendFailure {
            problem: format!("it answered {code}"),
            // <https://opentelemetry.io/docs/specs/otlp/#retryable-response-codes>
            may_pass: matches!(code.as_u16(), 429 | 502..=504),
        })
    }

    fn log_failure(&mut self, problem: &str) {
        let now = Instant::now();
        if self.logged.is_some_and(|logged| now - logged < LOG_INTERVAL) {
            return;
        }
        self.logged = Some(now);
        let (endpoint, dropped) = (&self.options.endpoint, self.dropped.load(Ordering::Relaxed));
        tracing::warn!(%endpoint, problem, dropped, "the collector does not take traces; spans are dropped");
    }
}

struct SendFailure {
    problem: String,
    may_pass: bool,
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
