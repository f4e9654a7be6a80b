//! Requests of an exporter to a collector, and its behaviour without one.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::Duration;

use pilothouse_traces::{ExportOptions, Exporter, FinishedSpan, SpanContext, SpanOutcome};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

fn span(name: &'static str) -> FinishedSpan {
    FinishedSpan {
        context: SpanContext::root(),
        parent: None,
        name,
        start: 1,
        end: 2,
        attributes: Vec::new(),
        events: Vec::new(),
        dropped_events: 0,
        links: Vec::new(),
        outcome: SpanOutcome::Unset,
    }
}

/// Accepts one request, and answers it with a code: returns its head and its body.
async fn take(listener: &TcpListener, code: u16) -> (String, Vec<u8>) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut bytes = Vec::new();
    let (head, length) = loop {
        let mut part = [0; 4096];
        let read = stream.read(&mut part).await.unwrap();
        assert!(read > 0, "the request ends early");
        bytes.extend(&part[..read]);
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.unwrap().parse().unwrap();
        bytes.drain(..end + 4);
        break (head, length);
    };
    while bytes.len() < length {
        let mut part = [0; 4096];
        let read = stream.read(&mut part).await.unwrap();
        assert!(read > 0, "the body ends early");
        bytes.extend(&part[..read]);
    }
    let answer = format!("HTTP/1.1 {code} It\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await.unwrap();
    (head, bytes)
}

async fn exporter() -> (TcpListener, Exporter, pilothouse_traces::SpanSink) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let options = ExportOptions {
        endpoint: endpoint.parse().unwrap(),
        instance: "pod-0".to_owned(),
        version: "1.2.3",
    };
    let (exporter, sink) = Exporter::new(options).unwrap();
    (listener, exporter, sink)
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test]
async fn a_batch_is_one_request_and_what_is_left_is_sent_at_the_end() {
    let (listener, exporter, sink) = exporter().await;
    sink.put(span("first"));
    sink.put(span("second"));
    drop(sink);
    let ((head, body), ()) = tokio::join!(take(&listener, 200), exporter.run(std::future::pending()));
    assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
    assert!(head.contains("content-type: application/x-protobuf"), "{head}");
    for text in ["first", "second", "service.name", "pod-0", "1.2.3"] {
        assert!(has(&body, text), "{text}");
    }
}

#[tokio::test]
async fn a_busy_collector_is_retried_once_and_a_refusing_one_not() {
    let (listener, exporter, sink) = exporter().await;
    sink.put(span("again"));
    drop(sink);
    let run = tokio::spawn(exporter.run(std::future::pending()));
    assert!(has(&take(&listener, 503).await.1, "again"));
    assert!(has(&take(&listener, 200).await.1, "again"));
    run.await.unwrap();

    let (listener, exporter, sink) = self::exporter().await;
    sink.put(span("refused"));
    drop(sink);
    let run = tokio::spawn(exporter.run(std::future::pending()));
    take(&listener, 400).await;
    run.await.unwrap();
    let again = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
    assert!(again.is_err(), "it was refused for good");
}

#[tokio::test]
async fn queued_spans_are_flushed_at_the_end_though_sinks_are_left() {
    let (listener, exporter, sink) = exporter().await;
    let (over, is_over) = tokio::sync::oneshot::channel::<()>();
    let run = tokio::spawn(exporter.run(async move {
        is_over.await.unwrap();
    }));
    sink.put(span("last"));
    // It waits for more spans, until all is over.
    assert!(
        tokio::time::timeout(Duration::from_millis(200), listener.accept())
            .await
            .is_err()
    );
    over.send(()).unwrap();
    let taken = tokio::time::timeout(Duration::from_secs(3), take(&listener, 200)).await;
    assert!(has(&taken.expect("it does not wait any more").1, "last"));
    run.await.unwrap();
    sink.put(span("late"));
}

#[tokio::test]
async fn a_full_queue_drops_spans_and_keeps_nobody_waiting() {
    let (_listener, exporter, sink) = exporter().await;
    for _ in 0..10_000 {
        sink.put(span("many"));
    }
    drop((exporter, sink));
}
