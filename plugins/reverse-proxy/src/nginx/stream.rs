//! Owns the configuration of a TCPReverseProxy's nginx.

use super::http::{PORT, Workers, write_main, write_probe, write_resolver, write_temporary_paths};
use super::writer::Writer;
use crate::resource::Protocol;

/// The only upstream.
const UPSTREAM: &str = "servers";

/// What the configuration is made of, checked.
#[derive(Debug)]
pub(crate) struct Configuration<'a> {
    pub workers: Workers,
    pub resolver: &'a [String],
    pub hash: Option<Hash<'a>>,
    pub servers: Vec<Server<'a>>,
    pub protocol: Protocol,
    pub timeout: &'a str,
}

/// How clients are spread over the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash<'a> {
    pub key: &'a str,
    pub consistent: bool,
}

/// One server of the upstream.
#[derive(Debug)]
pub(crate) struct Server<'a> {
    pub address: &'a str,
    pub weight: Option<i32>,
    pub max_connections: Option<i32>,
}

impl Configuration<'_> {
    /// The text of `nginx.conf`.
    pub(crate) fn text(&self) -> String {
        let mut writer = Writer::default();
        write_main(&mut writer, self.workers);
        writer.gap();
        writer.block("stream", &[], |writer| {
            write_resolver(writer, self.resolver);
            writer.block("upstream", &[UPSTREAM], |writer| self.write_upstream(writer));
            writer.gap();
            writer.block("server", &[], |writer| {
                match self.protocol {
                    Protocol::Tcp => writer.number("listen", PORT),
                    Protocol::Udp => writer.directive("listen", &[&PORT.to_string(), "udp"]),
                }
                writer.directive("proxy_timeout", &[self.timeout]);
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

    fn write_upstream(&self, writer: &mut Writer) {
        match self.hash {
            Some(Hash { key, consistent: true }) => writer.directive("hash", &[key, "consistent"]),
            Some(Hash { key, consistent: false }) => writer.directive("hash", &[key]),
            None => {}
        }
        for Server {
            address,
            weight,
            max_connections,
        } in &self.servers
        {
            let weight = weight.map(|weight| format!("weight={weight}"));
            let most = max_connections.map(|most| format!("max_conns={most}"));
            let values: Vec<&str> = std::iter::once(*address)
                .chain(weight.as_deref())
                .chain(most.as_deref())
                .collect();
            writer.directive("server", &values);
        }
    }
}
