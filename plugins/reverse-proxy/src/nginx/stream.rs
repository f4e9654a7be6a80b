//! Configuration of a TCPReverseProxy's nginx.

use super::http::{PORT, write_main, write_probe, write_resolver, write_temporary_paths};
use super::writer::Writer;
use crate::resource::{Common, Protocol, TcpReverseProxySpec, UpstreamServer};

/// The only upstream.
const UPSTREAM: &str = "servers";

/// Checked values of the configuration.
#[derive(Debug)]
pub(crate) struct Configuration<'a> {
    pub common: Common<'a>,
    pub spec: &'a TcpReverseProxySpec,
    pub hash: Option<Hash<'a>>,
}

/// Distribution of clients over the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash<'a> {
    pub key: &'a str,
    pub consistent: bool,
}

impl super::Configuration for Configuration<'_> {
    fn text(&self) -> String {
        let mut writer = Writer::default();
        write_main(&mut writer, self.common);
        writer.gap();
        writer.block("stream", &[], |writer| {
            write_resolver(writer, self.common.resolver);
            writer.block("upstream", &[UPSTREAM], |writer| self.write_upstream(writer));
            writer.gap();
            writer.block("server", &[], |writer| {
                match self.spec.protocol {
                    Protocol::Tcp => writer.number("listen", PORT),
                    Protocol::Udp => writer.directive("listen", &[&PORT.to_string(), "udp"]),
                }
                writer.directive("proxy_timeout", &[&self.spec.proxy_timeout]);
                writer.directive("proxy_pass", &[UPSTREAM]);
            });
        });
        writer.gap();
        writer.block("http", &[], |writer| {
            write_temporary_paths(writer);
            writer.gap();
            write_probe(writer);
        });
        writer.finish()
    }
}

impl Configuration<'_> {
    fn write_upstream(&self, writer: &mut Writer) {
        match self.hash {
            Some(Hash { key, consistent: true }) => writer.directive("hash", &[key, "consistent"]),
            Some(Hash { key, consistent: false }) => writer.directive("hash", &[key]),
            None => {}
        }
        for UpstreamServer {
            server,
            weight,
            max_conns,
        } in &self.spec.servers
        {
            let weight = weight.map(|weight| format!("weight={weight}"));
            let most = max_conns.map(|most| format!("max_conns={most}"));
            let values: Vec<&str> = std::iter::once(server.as_str())
                .chain(weight.as_deref())
                .chain(most.as_deref())
                .collect();
            writer.directive("server", &values);
        }
    }
}
