//! Configuration of a ReverseProxy's nginx.

use std::collections::{BTreeMap, BTreeSet};

use super::address::Url;
use super::syntax::has_variables;
use super::writer::Writer;
use crate::resource::{Common, ReverseProxySpec, RewriteRule};

/// The log format that nginx calls `combined`.
pub(crate) const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
                                   \"$http_referer\" \"$http_user_agent\"";

/// The port that proxies listen on.
pub(crate) const PORT: u16 = 8080;

/// The port of the probes.
pub(crate) const PROBE_PORT: u16 = 3001;

/// The path of the probes.
pub(crate) const PROBE_PATH: &str = "/_/ping";

/// The longest name of a header, in bytes. The hashes of header names are made for it.
pub(crate) const LONGEST_HEADER: u16 = 128;

/// Checked values of the configuration.
#[derive(Debug)]
pub(crate) struct Configuration<'a> {
    pub common: Common<'a>,
    pub spec: &'a ReverseProxySpec,
    /// Hidden headers, in lower case.
    pub hidden_headers: BTreeSet<String>,
    /// Headers by name in lower case.
    pub headers: BTreeMap<String, &'a str>,
}

impl super::Configuration for Configuration<'_> {
    fn warnings(&self) -> Vec<String> {
        let looked_up = Url::parse(&self.spec.proxy_pass).is_some_and(|url| has_variables(url.authority));
        let warning = "spec.proxyPass has a variable in its host, which nginx looks up for each request: without \
                       spec.resolver it finds none but addresses";
        (looked_up && self.common.resolver.is_empty())
            .then(|| warning.to_owned())
            .into_iter()
            .collect()
    }

    fn text(&self) -> String {
        let mut writer = Writer::default();
        write_main(&mut writer, self.common);
        writer.gap();
        writer.block("http", &[], |writer| {
            write_temporary_paths(writer);
            // Names of headers are hashed into buckets, and nginx refuses to start if one does not fit.
            writer.number("proxy_headers_hash_bucket_size", 2 * LONGEST_HEADER);
            writer.number("proxy_headers_hash_max_size", 4096);
            match self.spec.log_format.as_deref().unwrap_or(COMBINED) {
                "" => writer.directive("access_log", &["off"]),
                format => {
                    writer.directive("log_format", &["proxy", format]);
                    writer.directive("access_log", &["/dev/stdout", "proxy"]);
                }
            }
            write_resolver(writer, self.common.resolver);
            writer.gap();
            writer.block("map", &["$http_upgrade", "$connection_upgrade"], |writer| {
                writer.directive("default", &["upgrade"]);
                writer.directive("\"\"", &["close"]);
            });
            writer.gap();
            writer.block("server", &[], |writer| {
                writer.number("listen", PORT);
                writer.block("location", &["/"], |writer| self.write_location(writer));
            });
            writer.gap();
            write_probe(writer);
        });
        writer.finish()
    }
}

impl Configuration<'_> {
    fn write_location(&self, writer: &mut Writer) {
        let spec = self.spec;
        for RewriteRule {
            regex,
            replacement,
            flag,
        } in &spec.rewrite
        {
            writer.directive("rewrite", &[regex, replacement, flag.word()]);
        }
        writer.directive("proxy_http_version", &["1.1"]);
        writer.directive("proxy_connect_timeout", &[&spec.proxy_connect_timeout]);
        writer.directive("proxy_read_timeout", &[&spec.proxy_read_timeout]);
        writer.directive("proxy_send_timeout", &[&spec.proxy_send_timeout]);
        for header in &self.hidden_headers {
            writer.directive("proxy_hide_header", &[header]);
        }
        writer.directive("proxy_ssl_server_name", &["on"]);
        let upgrade = [("connection", "$connection_upgrade"), ("upgrade", "$http_upgrade")];
        for (name, value) in upgrade {
            // Otherwise both values of one header would be sent.
            if !self.headers.contains_key(name) {
                writer.directive("proxy_set_header", &[name, value]);
            }
        }
        for (name, value) in &self.headers {
            writer.directive("proxy_set_header", &[name, value]);
        }
        writer.directive("proxy_pass", &[&spec.proxy_pass]);
    }
}

/// Writes the directives outside of all protocols.
pub(super) fn write_main(writer: &mut Writer, common: Common<'_>) {
    match common.worker_processes {
        Some(processes) => writer.number("worker_processes", processes),
        None => writer.directive("worker_processes", &["auto"]),
    }
    writer.directive("pid", &["/tmp/nginx.pid"]);
    writer.directive("error_log", &["/dev/stderr"]);
    writer.gap();
    writer.block("events", &[], |writer| {
        writer.number("worker_connections", common.worker_connections);
    });
}

/// Writes the folders that nginx makes when it starts: only `/tmp` is writable.
pub(super) fn write_temporary_paths(writer: &mut Writer) {
    writer.directive("client_body_temp_path", &["/tmp/client_body"]);
    writer.directive("proxy_temp_path", &["/tmp/proxy"]);
    writer.directive("fastcgi_temp_path", &["/tmp/fastcgi"]);
    writer.directive("uwsgi_temp_path", &["/tmp/uwsgi"]);
    writer.directive("scgi_temp_path", &["/tmp/scgi"]);
}

pub(super) fn write_resolver(writer: &mut Writer, resolver: &[String]) {
    if !resolver.is_empty() {
        let values: Vec<&str> = resolver.iter().map(String::as_str).collect();
        writer.directive("resolver", &values);
    }
}

/// Writes the server that the kubelet probes.
pub(super) fn write_probe(writer: &mut Writer) {
    writer.block("server", &[], |writer| {
        writer.number("listen", PROBE_PORT);
        writer.directive("access_log", &["off"]);
        writer.block("location", &["=", PROBE_PATH], |writer| writer.number("return", 200));
    });
}
