//! Owns checking a TCPReverseProxy, field by field.

use pilothouse_plugin::FieldError;

use super::pods::{self, Instance};
use super::{Absent, Problems, resolver, timeout, workers};
use crate::nginx::address::{self, Port};
use crate::nginx::stream::{Configuration, Hash, Server};
use crate::nginx::syntax;
use crate::resource::{TCP_TIMEOUT, TcpReverseProxy, UpstreamServer};

/// The most servers; nginx makes 160 points for each unit of weight when the hash is consistent.
const MOST_SERVERS: usize = 64;

/// The largest weight of a server.
const LARGEST_WEIGHT: i32 = 1000;

/// What both the pods and their nginx are made of.
pub(crate) fn check<'a>(
    resource: &'a TcpReverseProxy,
    absent: Absent<'a>,
) -> Result<(Instance<'a>, Configuration<'a>), Vec<FieldError>> {
    let TcpReverseProxy { metadata, spec } = resource;
    let mut problems = Problems::default();
    let common = spec.common();
    let protocol = spec.protocol.unwrap_or_default();
    let instance = pods::check("ngx-tcpproxy-", metadata, &common, protocol, absent, &mut problems);
    let configuration = Configuration {
        workers: workers(&common, &mut problems),
        resolver: resolver(&common, &mut problems),
        hash: spec
            .hash
            .as_deref()
            .filter(|hash| !hash.is_empty())
            .and_then(|hash| check_hash(hash, &mut problems)),
        servers: servers(&spec.servers, &mut problems),
        protocol,
        timeout: timeout(
            "spec.proxyTimeout",
            spec.proxy_timeout.as_deref(),
            TCP_TIMEOUT,
            &["s", "m"],
            &mut problems,
        ),
    };
    problems.or((instance, configuration))
}

fn check_hash<'a>(text: &'a str, problems: &mut Problems) -> Option<Hash<'a>> {
    const PATH: &str = "spec.hash";
    let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
    let (key, consistent) = match words.as_slice() {
        [key] => (*key, false),
        [key, "consistent"] => (*key, true),
        [_, other] => {
            problems.add(PATH, format_args!("invalid parameter {other:?}"));
            return None;
        }
        _ => {
            problems.add(PATH, "invalid number of arguments in \"hash\" directive");
            return None;
        }
    };
    match syntax::check(key, syntax::Value::Stream) {
        Ok(()) => Some(Hash { key, consistent }),
        Err(problem) => {
            problems.add(PATH, problem);
            None
        }
    }
}

fn servers<'a>(servers: &'a [UpstreamServer], problems: &mut Problems) -> Vec<Server<'a>> {
    if servers.is_empty() || servers.len() > MOST_SERVERS {
        let count = servers.len();
        problems.add(
            "spec.servers",
            format_args!("has {count} servers; give 1 to {MOST_SERVERS}"),
        );
    }
    let checked = servers.iter().enumerate().map(|(index, upstream)| {
        let UpstreamServer {
            server,
            weight,
            max_conns,
        } = upstream;
        let path = format!("spec.servers[{index}]");
        let address = format!("{path}.server");
        if let Err(problem) = syntax::check_word(server, syntax::Value::Http) {
            problems.add(address, problem);
        } else if servers[..index].iter().any(|earlier| earlier.server == *server) {
            problems.push(FieldError::duplicate(
                address,
                "give the earlier server more weight instead",
            ));
        } else {
            problems.check(&address, address::check("upstream", server, Port::Required));
        }
        if let Some(weight) = *weight {
            problems.check_range(&format!("{path}.weight"), weight, 1, LARGEST_WEIGHT);
        }
        if let Some(most) = *max_conns {
            problems.check_range(&format!("{path}.maxConns"), most, 0, i32::MAX);
        }
        Server {
            address: server,
            weight: *weight,
            max_connections: *max_conns,
        }
    });
    checked.collect()
}
