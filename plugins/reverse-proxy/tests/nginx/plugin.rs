//! Calls the plugin, and returns the expected tree of directives for a resource.

use std::collections::BTreeMap;

use pilothouse_plugin::testing::{Answer, FakeCluster};
use pilothouse_plugin::{Controller, Failure, FieldError, Request};
use reverse_proxy::{Http, ReverseProxyPlugin, Settings, Tcp};
use serde_json::{Value, json};

use crate::conf::Directive;

/// A ReverseProxy with this spec.
pub fn http(spec: Value) -> Value {
    object("ReverseProxy", spec)
}

/// A TCPReverseProxy with this spec.
pub fn tcp(spec: Value) -> Value {
    object("TCPReverseProxy", spec)
}

fn object(kind: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "nginx.lin2ur.cn/v1", "kind": kind,
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-1"},
    });
    object["spec"] = spec;
    object
}

/// The text of `nginx.conf` for a resource.
pub fn configuration(object: &Value) -> Result<String, Failure> {
    let answer = if object["kind"] == "ReverseProxy" {
        reconcile::<Http>(object)
    } else {
        reconcile::<Tcp>(object)
    }?;
    let text = answer.object("ConfigMap", &name_of_children(object))["data"]["nginx.conf"].as_str();
    Ok(text.expect("it has the key").to_owned())
}

/// Calls the controller itself: thousands of descriptions of the whole plugin take their time.
fn reconcile<C: Controller<Config = Settings>>(object: &Value) -> Result<Answer, Failure> {
    let object = serde_json::from_str(&object.to_string()).expect("it has the form");
    let request = Request::new(object, Settings::default());
    Answer::of(C::reconcile(request, &FakeCluster::new().cluster())?)
}

fn name_of_children(object: &Value) -> String {
    let prefix = if object["kind"] == "ReverseProxy" {
        "proxy"
    } else {
        "tcpproxy"
    };
    format!(
        "ngx-{prefix}-{}",
        object["metadata"]["name"].as_str().unwrap_or_default()
    )
}

/// Validates a resource with the plugin, after its defaults were set.
pub fn validate(object: &Value) -> Result<Vec<String>, Vec<FieldError>> {
    let cluster = FakeCluster::new();
    let object = cluster.apply_defaults::<ReverseProxyPlugin>(object.clone())?;
    cluster.validate::<ReverseProxyPlugin>(object)
}

/// Returns the directives for a resource, from its spec alone.
pub fn expected(object: &Value) -> Vec<Directive> {
    let spec = &object["spec"];
    let number = |field: &str| spec[field].as_i64().map(|number| number.to_string());
    let mut top = vec![
        leaf(
            "worker_processes",
            [number("workerProcesses").unwrap_or("auto".to_owned())],
        ),
        leaf("pid", ["/tmp/nginx.pid"]),
        leaf("error_log", ["/dev/stderr"]),
        block(
            "events",
            [""; 0],
            vec![leaf(
                "worker_connections",
                [number("workerConnections").unwrap_or("1024".to_owned())],
            )],
        ),
    ];
    if object["kind"] == "ReverseProxy" {
        top.push(block("http", [""; 0], http_block(spec)));
    } else {
        top.push(block("stream", [""; 0], stream_block(spec)));
        let mut http = temporary_paths();
        http.push(probe());
        top.push(block("http", [""; 0], http));
    }
    top
}

fn http_block(spec: &Value) -> Vec<Directive> {
    let mut http = temporary_paths();
    http.push(leaf("proxy_headers_hash_bucket_size", ["256"]));
    http.push(leaf("proxy_headers_hash_max_size", ["4096"]));
    let combined = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \"$http_referer\" \
                    \"$http_user_agent\"";
    match spec["logFormat"].as_str().unwrap_or(combined) {
        "" => http.push(leaf("access_log", ["off"])),
        format => {
            http.push(leaf("log_format", ["proxy", format]));
            http.push(leaf("access_log", ["/dev/stdout", "proxy"]));
        }
    }
    http.extend(resolver(spec));
    let map = vec![leaf("default", ["upgrade"]), leaf("", ["close"])];
    http.push(block("map", ["$http_upgrade", "$connection_upgrade"], map));
    let location = block("location", ["/"], location(spec));
    http.push(block("server", [""; 0], vec![leaf("listen", ["8080"]), location]));
    http.push(probe());
    http
}

fn location(spec: &Value) -> Vec<Directive> {
    let text = |value: &Value| value.as_str().expect("it is text").to_owned();
    let list = |field: &str| spec[field].as_array().into_iter().flatten();
    let mut location: Vec<_> = list("rewrite")
        .map(|rule| {
            let flag = rule["flag"].as_str().unwrap_or("break").to_owned();
            leaf("rewrite", [text(&rule["regex"]), text(&rule["replacement"]), flag])
        })
        .collect();
    location.push(leaf("proxy_http_version", ["1.1"]));
    for (directive, field) in [
        ("proxy_connect_timeout", "proxyConnectTimeout"),
        ("proxy_read_timeout", "proxyReadTimeout"),
        ("proxy_send_timeout", "proxySendTimeout"),
    ] {
        location.push(leaf(directive, [spec[field].as_str().unwrap_or("15s")]));
    }
    let mut hidden: Vec<_> = list("proxyHideHeader").map(|name| text(name).to_lowercase()).collect();
    hidden.sort();
    hidden.dedup();
    location.extend(hidden.into_iter().map(|name| leaf("proxy_hide_header", [name])));
    location.push(leaf("proxy_ssl_server_name", ["on"]));
    let headers: BTreeMap<String, String> = spec["proxySetHeader"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.to_lowercase(), text(value)))
        .collect();
    for (name, value) in [("connection", "$connection_upgrade"), ("upgrade", "$http_upgrade")] {
        if !headers.contains_key(name) {
            location.push(leaf("proxy_set_header", [name, value]));
        }
    }
    let url = text(&spec["proxyPass"]);
    let host = url
        .split("://")
        .nth(1)
        .and_then(|rest| rest.split(['/', '?']).next())
        .unwrap_or_default();
    let mut all = BTreeMap::from([("host".to_owned(), host.to_owned())]);
    all.extend(headers);
    location.extend(
        all.into_iter()
            .map(|(name, value)| leaf("proxy_set_header", [name, value])),
    );
    location.push(leaf("proxy_pass", [url]));
    location
}

fn stream_block(spec: &Value) -> Vec<Directive> {
    let mut upstream = Vec::new();
    if let Some(hash) = spec["hash"].as_str().filter(|hash| !hash.is_empty()) {
        upstream.push(leaf("hash", hash.split(' ').filter(|word| !word.is_empty())));
    }
    for server in spec["servers"].as_array().expect("there are servers") {
        let parameter = |field: &str, name: &str| server[field].as_i64().map(|number| format!("{name}={number}"));
        let address = server["server"].as_str().expect("it is text").to_owned();
        let parameters = [parameter("weight", "weight"), parameter("maxConns", "max_conns")];
        upstream.push(leaf(
            "server",
            [address].into_iter().chain(parameters.into_iter().flatten()),
        ));
    }
    let listen: &[&str] = if spec["protocol"] == "UDP" {
        &["8080", "udp"]
    } else {
        &["8080"]
    };
    let server = vec![
        leaf("listen", listen.iter().copied()),
        leaf("proxy_timeout", [spec["proxyTimeout"].as_str().unwrap_or("10m")]),
        leaf("proxy_pass", ["servers"]),
    ];
    let mut stream: Vec<_> = resolver(spec).into_iter().collect();
    stream.push(block("upstream", ["servers"], upstream));
    stream.push(block("server", [""; 0], server));
    stream
}

fn resolver(spec: &Value) -> Option<Directive> {
    let words: Vec<_> = spec["resolver"].as_array()?.iter().filter_map(Value::as_str).collect();
    (!words.is_empty()).then(|| leaf("resolver", words))
}

fn temporary_paths() -> Vec<Directive> {
    ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| leaf(&format!("{name}_temp_path"), [format!("/tmp/{name}")]))
        .to_vec()
}

fn probe() -> Directive {
    let ping = block("location", ["=", "/_/ping"], vec![leaf("return", ["200"])]);
    block(
        "server",
        [""; 0],
        vec![leaf("listen", ["3001"]), leaf("access_log", ["off"]), ping],
    )
}

fn leaf(name: &str, values: impl IntoIterator<Item = impl Into<String>>) -> Directive {
    let words = std::iter::once(name.to_owned()).chain(values.into_iter().map(Into::into));
    Directive {
        words: words.collect(),
        block: None,
    }
}

fn block(name: &str, values: impl IntoIterator<Item = impl Into<String>>, inside: Vec<Directive>) -> Directive {
    Directive {
        block: Some(inside),
        ..leaf(name, values)
    }
}
