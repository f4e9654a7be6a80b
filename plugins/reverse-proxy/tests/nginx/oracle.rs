//! Tests of the plugin's configurations with a real nginx: that it accepts them, and that they work. These tests need
//! nginx with its stream module: `cargo xtask test --only oracle`.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use reverse_proxy::variables;
use serde_json::json;

use crate::bad::{self, Bad};
use crate::generate::{self, Random};
use crate::program::Nginx;
use crate::{conf, plugin};

/// Count of resources of each kind that nginx checks.
const RESOURCES: u64 = 200;

/// Time limit of an answer on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn nginx_takes_every_resource_that_the_plugin_takes() {
    let nginx = Nginx::find();
    for seed in 0..RESOURCES {
        let mut random = Random::new(seed);
        for object in [generate::http(&mut random), generate::tcp(&mut random)] {
            let text = plugin::configuration(&object).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
            if let Err(said) = nginx.check(&text) {
                panic!("seed {seed}: {object:#}\n{text}\n{said}");
            }
        }
    }
}

#[test]
fn nginx_takes_the_hostile_resources_that_the_plugin_takes() {
    let nginx = Nginx::find();
    let mut accepted = 0;
    for seed in 0..RESOURCES * 3 {
        let mut random = Random::new(seed);
        for object in [generate::hostile_http(&mut random), generate::hostile_tcp(&mut random)] {
            let Ok(text) = plugin::configuration(&object) else {
                continue;
            };
            accepted += 1;
            // Names of hosts that are made up are not found, which is not the plugin's matter.
            match nginx.check(&text) {
                Err(said) if !said.contains("host not found in") => panic!("seed {seed}: {object:#}\n{text}\n{said}"),
                _ => {}
            }
        }
    }
    assert!(accepted > 50, "only {accepted} were accepted, which says little");
}

#[test]
fn every_variable_that_the_plugin_knows_is_one_of_nginxs() {
    let nginx = Nginx::find();
    let all: Vec<String> = variables::HTTP
        .iter()
        .map(|name| (*name).to_owned())
        .chain(
            variables::HTTP_PREFIXES
                .iter()
                .map(|prefix| format!("{prefix}anything")),
        )
        .map(|name| format!("${name}"))
        .collect();
    for value in &all {
        let spec = json!({
            "proxyPass": format!("http://127.0.0.1/{value}"), "logFormat": value, "proxySetHeader": {"x-a": value},
        });
        let text = plugin::configuration(&plugin::http(spec)).unwrap();
        assert_eq!(nginx.check(&text), Ok(()), "{value}");
    }
    for name in variables::STREAM {
        let spec = json!({"servers": [{"server": "127.0.0.1:80"}], "hash": format!("${name}")});
        assert_eq!(
            nginx.check(&plugin::configuration(&plugin::tcp(spec)).unwrap()),
            Ok(()),
            "{name}"
        );
    }
}

#[test]
fn bad_values_in_a_template_are_refused_by_nginx_or_do_harm() {
    let nginx = Nginx::find();
    for bad in bad::all() {
        for template in bad.templates() {
            let harmless = bad.configuration(&template.replace("{}", bad.harmless()));
            assert_eq!(nginx.check(&harmless), Ok(()), "{harmless}");
        }
        assert!(
            bad.templates().iter().any(|template| shows(&nginx, &bad, template)),
            "{bad:?}: {:?}",
            said(&nginx, &bad)
        );
    }
}

/// Returns `true` if a template shows the error of a bad value.
fn shows(nginx: &Nginx, bad: &Bad, template: &str) -> bool {
    let text = bad.configuration(&template.replace("{}", bad.value));
    let answer = nginx.check(&text);
    match (bad.nginx, answer) {
        (bad::Nginx::SaysTheSame, Err(said)) => said.contains(bad.words),
        (bad::Nginx::Refuses, Err(_)) => true,
        // A trick that also breaks the file is one all the same.
        (bad::Nginx::IsTricked, _) => {
            let shape = |value: &str| {
                let tree = conf::parse(&bad.configuration(&template.replace("{}", value)));
                tree.map(|tree| format!("{:?}", shape_of(&tree)))
            };
            shape(bad.value) != shape(bad.harmless())
        }
        (bad::Nginx::SaysTheSame | bad::Nginx::Refuses, Ok(())) => false,
    }
}

fn said(nginx: &Nginx, bad: &Bad) -> Vec<Result<(), String>> {
    let texts = bad
        .templates()
        .iter()
        .map(|template| bad.configuration(&template.replace("{}", bad.value)));
    texts.map(|text| nginx.check(&text)).collect()
}

/// Tree without its words: the count of each directive's values, and its block.
#[derive(Debug)]
struct Shape(#[allow(dead_code, reason = "it is compared as it is shown")] Vec<(usize, Option<Shape>)>);

fn shape_of(tree: &[conf::Directive]) -> Shape {
    Shape(
        tree.iter()
            .map(|one| (one.words.len(), one.block.as_deref().map(shape_of)))
            .collect(),
    )
}

#[test]
fn a_request_is_proxied_with_its_headers_and_rewrites() {
    let (backend, requests) = http_backend();
    let spec = json!({
        "proxyPass": format!("http://{backend}"),
        "logFormat": "",
        "rewrite": [{"regex": "^/foo(.*)$", "replacement": "/bar$1"}, {"regex": "^/bar", "replacement": "/never"}],
        "proxyHideHeader": ["X-Secret"],
        "proxySetHeader": {"X-Powered-By": "nginx-operator", "x-client": "$remote_addr", "x-gone": ""},
    });
    let nginx = Nginx::find();
    let running = nginx.run(&plugin::configuration(&plugin::http(spec)).unwrap());

    let answer = ask(
        running.address,
        "GET /foo/x?y=1 HTTP/1.1\r\nHost: outside\r\nX-Gone: 1\r\n\r\n",
    )
    .unwrap();
    let request = requests.recv_timeout(PATIENCE).expect("the request is passed on");
    assert!(request.starts_with("GET /bar/x?y=1 HTTP/1.1\r\n"), "{request}");
    for header in [
        format!("host: {backend}\r\n"),
        "x-powered-by: nginx-operator\r\n".to_owned(),
        "x-client: 127.0.0.1\r\n".to_owned(),
        "connection: close\r\n".to_owned(),
    ] {
        assert!(
            request.to_lowercase().contains(&header),
            "{header:?} is not in\n{request}"
        );
    }
    assert!(!request.to_lowercase().contains("x-gone"), "{request}");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("X-Shown: yes\r\n"), "{answer}");
    assert!(!answer.to_lowercase().contains("x-secret"), "{answer}");

    let upgrade = "GET /ws HTTP/1.1\r\nHost: outside\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    ask(running.address, upgrade).unwrap();
    let request = requests
        .recv_timeout(PATIENCE)
        .expect("the request is passed on")
        .to_lowercase();
    assert!(
        request.contains("upgrade: websocket\r\n") && request.contains("connection: upgrade\r\n"),
        "{request}"
    );

    let ping = ask(
        running.probe,
        "GET /_/ping HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n",
    )
    .unwrap();
    assert!(ping.starts_with("HTTP/1.1 200 OK\r\n"), "{ping}");
    let other = ask(
        running.probe,
        "GET / HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n",
    )
    .unwrap();
    assert!(other.starts_with("HTTP/1.1 404"), "{other}");
}

#[test]
fn a_tcp_stream_passes_through() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let backend = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut connection in listener.incoming().map_while(Result::ok) {
            let mut line = [0; 5];
            connection.read_exact(&mut line).unwrap();
            connection
                .write_all(&line.map(|byte| byte.to_ascii_uppercase()))
                .unwrap();
        }
    });
    let spec = json!({"servers": [{"server": backend.to_string(), "weight": 2}], "hash": "$remote_addr consistent"});
    let nginx = Nginx::find();
    let running = nginx.run(&plugin::configuration(&plugin::tcp(spec)).unwrap());
    assert_eq!(ask(running.address, "hello").unwrap(), "HELLO");
    let ping = ask(
        running.probe,
        "GET /_/ping HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n",
    )
    .unwrap();
    assert!(ping.starts_with("HTTP/1.1 200 OK\r\n"), "{ping}");
}

#[test]
fn a_udp_stream_passes_through() {
    let backend = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = backend.local_addr().unwrap();
    thread::spawn(move || {
        let mut datagram = [0; 64];
        while let Ok((length, from)) = backend.recv_from(&mut datagram) {
            datagram[..length].make_ascii_uppercase();
            backend.send_to(&datagram[..length], from).unwrap();
        }
    });
    let spec = json!({"servers": [{"server": address.to_string()}], "protocol": "UDP", "proxyTimeout": "5s"});
    let nginx = Nginx::find();
    let running = nginx.run(&plugin::configuration(&plugin::tcp(spec)).unwrap());
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.send_to(b"hello", running.address).unwrap();
    let mut answer = [0; 64];
    let (length, _) = client.recv_from(&mut answer).unwrap();
    assert_eq!(&answer[..length], b"HELLO");
}

/// Starts a server that gives every request the same answer, and reports the requests.
fn http_backend() -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let (sender, requests) = channel();
    thread::spawn(move || {
        for mut connection in listener.incoming().map_while(Result::ok) {
            let lines = BufReader::new(connection.try_clone().expect("it is open"))
                .lines()
                .map_while(Result::ok);
            let head: Vec<String> = lines
                .take_while(|line| !line.is_empty())
                .map(|line| line + "\r\n")
                .collect();
            let answer =
                "HTTP/1.1 200 OK\r\nX-Secret: 42\r\nX-Shown: yes\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            connection.write_all(answer.as_bytes()).expect("it is open");
            if sender.send(head.concat()).is_err() {
                return;
            }
        }
    });
    (address, requests)
}

/// Sends a text and nothing after it, and returns the whole answer.
fn ask(address: SocketAddr, words: &str) -> io::Result<String> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.write_all(words.as_bytes())?;
    let mut answer = Vec::new();
    let mut buffer = [0; 1024];
    // An HTTP connection that is kept alive ends for us with the end of the head: none of the answers here has a body.
    while !answer.ends_with(b"\r\n\r\n") {
        match connection.read(&mut buffer)? {
            0 => break,
            length => answer.extend_from_slice(&buffer[..length]),
        }
    }
    String::from_utf8(answer).map_err(io::Error::other)
}
