//! Options of traces: the collector, and the share of reconciles that are traced.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use http::Uri;
use pilothouse_runtime::TraceOptions;
use pilothouse_traces::{ExportOptions, Exporter};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::options::settings;

/// Path of the collector's endpoint for traces.
const PATH: &str = "/v1/traces";

/// Time that the last spans may take to reach the collector when the process ends.
const LAST_SPANS: Duration = Duration::from_secs(2);

/// The options about traces.
#[derive(Args)]
pub struct TraceArguments {
    /// The collector that traces of reconciles are sent to, by OTLP over HTTP: http://HOST:4318 or https://HOST:4318. Without
    /// a path, it is /v1/traces (default: nothing is traced)
    #[arg(long, value_name = "URL", value_parser = parse_endpoint)]
    otlp_endpoint: Option<Uri>,

    /// Which part of the reconciles is traced, from 0 to 1
    #[arg(long, value_name = "RATIO", default_value_t = 1.0, value_parser = parse_ratio, requires = "otlp_endpoint")]
    otlp_ratio: f64,
}

/// An exporter that runs.
pub struct RunningExporter {
    over: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl RunningExporter {
    fn start(exporter: Exporter) -> Self {
        let (over, is_over) = oneshot::channel();
        let is_over = async move {
            // Ends by itself or with the sender: the process ends.
            let _ = is_over.await;
        };
        Self {
            over,
            task: tokio::spawn(exporter.run(is_over)),
        }
    }

    /// Sends queued spans, for at most [`LAST_SPANS`].
    pub async fn finish(self) {
        let Self { over, task } = self;
        let _ = over.send(());
        if timeout(LAST_SPANS, task).await.is_err() {
            tracing::warn!(
                "the collector has not taken the last traces within {} s",
                LAST_SPANS.as_secs()
            );
        }
    }
}

impl TraceArguments {
    /// Starts the exporter, and returns it with the host's trace options.
    pub fn open(self) -> anyhow::Result<(Option<RunningExporter>, Option<TraceOptions>)> {
        let Self {
            otlp_endpoint,
            otlp_ratio,
        } = self;
        let Some(endpoint) = otlp_endpoint else {
            return Ok((None, None));
        };
        let options = ExportOptions {
            endpoint: endpoint.clone(),
            instance: settings::instance(),
            version: env!("CARGO_PKG_VERSION"),
        };
        let (exporter, sink) = Exporter::new(options).context("cannot trace")?;
        tracing::info!(%endpoint, ratio = otlp_ratio, "sending traces of reconciles");
        let options = TraceOptions {
            sink,
            ratio: otlp_ratio,
        };
        Ok((Some(RunningExporter::start(exporter)), Some(options)))
    }
}

fn parse_endpoint(text: &str) -> Result<Uri, String> {
    let form = || "it is not like http://HOST:4318 or https://HOST:4318".to_owned();
    let uri: Uri = text.parse().map_err(|_| form())?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    if !is_http || uri.host().is_none_or(str::is_empty) || uri.query().is_some() {
        return Err(form());
    }
    if uri.path() != "/" {
        return Ok(uri);
    }
    format!("{}{PATH}", text.trim_end_matches('/'))
        .parse()
        .map_err(|_| form())
}

fn parse_ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(ratio),
        _ => Err("it is not a number from 0 to 1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_the_usual_path_unless_it_has_another() {
        let read = |text: &str| parse_endpoint(text).map(|uri| uri.to_string());
        assert_eq!(read("http://a:4318").as_deref(), Ok("http://a:4318/v1/traces"));
        assert_eq!(read("https://a/").as_deref(), Ok("https://a/v1/traces"));
        assert_eq!(
            read("http://[::1]:1/otlp/v1/traces").as_deref(),
            Ok("http://[::1]:1/otlp/v1/traces")
        );
        for refused in [
            "a:4318",
            "grpc://a:4317",
            "http://",
            "/v1/traces",
            "http://a?b=c",
            "http://a b",
        ] {
            assert!(read(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_ratio_is_between_nothing_and_everything() {
        assert_eq!(
            (parse_ratio("0"), parse_ratio("0.25"), parse_ratio("1")),
            (Ok(0.0), Ok(0.25), Ok(1.0))
        );
        for refused in ["-0.1", "1.1", "NaN", "all", ""] {
            assert!(parse_ratio(refused).is_err(), "{refused}");
        }
    }
}
