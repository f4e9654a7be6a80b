//! Responses of the plain server: to GET and HEAD, and the end of connections that are slow or send too much.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pilothouse_webhook::connections::{ConnectionTimeouts, MAX_CONNECTIONS_OF_A_PEER};
use pilothouse_webhook::plain::{PlainHandler, PlainResponse, PlainServer};

const WITHIN: Duration = Duration::from_mins(1);

const IMPATIENT: ConnectionTimeouts = ConnectionTimeouts {
    handshake: Duration::from_millis(400),
    head: Duration::from_millis(400),
    body: Duration::from_millis(400),
    idle: Duration::from_millis(400),
};

/// More than sockets buffer.
const LARGE: usize = 64 * 1024 * 1024;

struct Words;

impl PlainHandler for Words {
    async fn get(&self, path: &str) -> PlainResponse {
        match path {
            "/large" => PlainResponse {
                code: 200,
                content_type: "text/plain",
                body: Bytes::from(vec![b'x'; LARGE]),
            },
            path => PlainResponse::text(200, format!("path {path}\n")),
        }
    }
}

fn serve(patience: ConnectionTimeouts) -> PlainServer {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    PlainServer::start_with(listener, Arc::new(Words), patience).unwrap()
}

fn connected(address: SocketAddr, sends: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    stream.write_all(sends.as_bytes()).unwrap();
    stream
}

/// All that comes until the server closes the connection.
fn answer(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut text);
    String::from_utf8(text).unwrap()
}

fn asked(server: &PlainServer, line: &str) -> String {
    answer(connected(
        server.address(),
        &format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
    ))
}

#[test]
fn get_and_head_are_answered_and_nothing_else_is() {
    let server = serve(ConnectionTimeouts::default());
    let got = asked(&server, "GET /a/b?c=d");
    assert!(
        got.starts_with("HTTP/1.1 200 ") && got.ends_with("\r\n\r\npath /a/b\n"),
        "{got}"
    );
    let head = asked(&server, "HEAD /a/b");
    assert!(
        head.contains("content-length: 10\r\n") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    for method in ["POST", "DELETE", "OPTIONS", "CONNECT"] {
        let refused = asked(&server, &format!("{method} /a/b"));
        assert!(
            refused.starts_with("HTTP/1.1 405 ") || refused.starts_with("HTTP/1.1 400 "),
            "{refused}"
        );
    }
}

#[test]
fn who_says_nothing_or_too_slowly_or_too_much_is_cut_off() {
    let server = serve(IMPATIENT);
    let long = format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(64 * 1024));
    for sends in ["", "GET / HT", &long] {
        let begun = Instant::now();
        let got = answer(connected(server.address(), sends));
        assert!(!got.contains(" 200 "), "{got}");
        assert!(begun.elapsed() < WITHIN);
    }
}

#[test]
fn a_client_that_does_not_read_its_answer_is_cut_off() {
    let server = serve(IMPATIENT);
    let mut stream = connected(server.address(), "GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    // Nothing is read until the server has closed the connection, which a write shows: then the rest never comes.
    let begun = Instant::now();
    while stream.write_all(b"\r\n").is_ok() {
        assert!(begun.elapsed() < WITHIN, "the connection stays open");
        std::thread::yield_now();
    }
    let (mut read, mut buffer) = (0, vec![0; 1024 * 1024]);
    while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
        read += bytes;
    }
    assert!(read < LARGE, "{read} bytes were read");
}

#[test]
fn clients_that_ask_nothing_keep_nobody_out() {
    let server = serve(ConnectionTimeouts::default());
    let idle: Vec<TcpStream> = (0..MAX_CONNECTIONS_OF_A_PEER + 20)
        .map(|_| connected(server.address(), ""))
        .collect();
    assert!(asked(&server, "GET /").contains("path /"));
    drop(idle);
}

#[test]
fn a_server_that_is_dropped_gives_its_port_back() {
    let server = serve(ConnectionTimeouts::default());
    let address = server.address();
    assert!(TcpListener::bind(address).is_err());
    drop(server);
    TcpListener::bind(address).unwrap();
}
