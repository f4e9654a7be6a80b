//! Checks a TCPReverseProxy, field by field.

use pilothouse_plugin::ObjectMeta;
use serde_json::{Map, Value};

use super::pods;
use super::{Absent, Checked, Problems, check_resolver, check_timeout};
use crate::nginx::address::{self, Port};
use crate::nginx::stream::{Configuration, Hash};
use crate::nginx::syntax;
use crate::proxies::Proxy;
use crate::resource::{TcpReverseProxy, UpstreamServer};

impl Proxy for TcpReverseProxy {
    type Configuration<'a> = Configuration<'a>;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn check<'a>(&'a self, absent: Absent<'a>) -> Checked<'a, Configuration<'a>> {
        let Self { metadata, spec } = self;
        let mut problems = Problems::default();
        let common = spec.common();
        let instance = pods::check("ngx-tcpproxy-", metadata, common, spec.protocol, absent, &mut problems);
        check_resolver(&spec.resolver, &mut problems);
        let hash = (!spec.hash.is_empty()).then(|| check_hash(&spec.hash, &mut problems));
        check_servers(&spec.servers, &mut problems);
        check_timeout("spec.proxyTimeout", &spec.proxy_timeout, &["s", "m"], &mut problems);
        let configuration = Configuration {
            common,
            spec,
            hash: hash.flatten(),
        };
        problems.or((instance, configuration))
    }

    fn complete(_: &mut Map<String, Value>) {}
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

fn check_servers(servers: &[UpstreamServer], problems: &mut Problems) {
    for (index, UpstreamServer { server, .. }) in servers.iter().enumerate() {
        let path = format!("spec.servers[{index}].server");
        if let Err(problem) = syntax::check_word(server, syntax::Value::Http) {
            problems.add(path, problem);
        } else {
            problems.check(&path, address::check("upstream", server, Port::Required));
        }
    }
}
