//! Checks a ReverseProxy, field by field.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use pilothouse_plugin::{FieldError, ObjectMeta};
use serde_json::{Map, Value};

use super::pods;
use super::{Absent, Checked, Problems, check_resolver, check_timeout};
use crate::defaults;
use crate::nginx::address::Url;
use crate::nginx::http::{COMBINED, Configuration, LONGEST_HEADER};
use crate::nginx::{regex, syntax};
use crate::proxies::Proxy;
use crate::resource::{Protocol, ReverseProxy, RewriteRule};

impl Proxy for ReverseProxy {
    type Configuration<'a> = Configuration<'a>;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn check<'a>(&'a self, absent: Absent<'a>) -> Checked<'a, Configuration<'a>> {
        let Self { metadata, spec } = self;
        let mut problems = Problems::default();
        let common = spec.common();
        let instance = pods::check("ngx-proxy-", metadata, common, Protocol::Tcp, absent, &mut problems);
        let url = check_proxy_pass(&spec.proxy_pass, &mut problems);
        let log_format = spec.log_format.as_deref().unwrap_or(COMBINED);
        problems.check("spec.logFormat", syntax::check(log_format, syntax::Value::LogFormat));
        for (path, timeout) in [
            ("spec.proxyReadTimeout", &spec.proxy_read_timeout),
            ("spec.proxySendTimeout", &spec.proxy_send_timeout),
            ("spec.proxyConnectTimeout", &spec.proxy_connect_timeout),
        ] {
            check_timeout(path, timeout, &["s"], &mut problems);
        }
        check_resolver(&spec.resolver, &mut problems);
        check_rewrites(&spec.rewrite, &mut problems);
        let configuration = Configuration {
            common,
            spec,
            hidden_headers: hidden_headers(&spec.proxy_hide_header, &mut problems),
            headers: headers(&spec.proxy_set_header, url, &mut problems),
        };
        problems.or((instance, configuration))
    }

    fn complete(spec: &mut Map<String, Value>) {
        defaults::http(spec);
    }
}

fn check_proxy_pass<'a>(text: &'a str, problems: &mut Problems) -> Option<Url<'a>> {
    const PATH: &str = "spec.proxyPass";
    if let Err(problem) = syntax::check_word(text, syntax::Value::Http) {
        problems.add(PATH, problem);
        return None;
    }
    let Some(url) = Url::parse(text) else {
        problems.add(PATH, "invalid URL prefix: begin with http:// or https://");
        return None;
    };
    match url.check() {
        Ok(()) => Some(url),
        Err(problem) => {
            problems.add(PATH, problem);
            None
        }
    }
}

fn check_rewrites(rules: &[RewriteRule], problems: &mut Problems) {
    for (index, rule) in rules.iter().enumerate() {
        let path = format!("spec.rewrite[{index}]");
        check_regex(&format!("{path}.regex"), &rule.regex, problems);
        let path = format!("{path}.replacement");
        if rule.replacement.is_empty() {
            problems.add(path, "empty replacement");
        } else {
            problems.check(&path, syntax::check_word(&rule.replacement, syntax::Value::Http));
        }
    }
}

fn check_regex(path: &str, pattern: &str, problems: &mut Problems) {
    let breaks = |character: &char| matches!(character, ';' | '"' | '\'');
    if let Err(problem) = syntax::check_length(pattern) {
        problems.add(path, problem);
    } else if let Some(character) = pattern.chars().find(|character| !matches!(character, ' '..='~')) {
        problems.add(
            path,
            format_args!(
                "has {character:?}; only printable ASCII characters can stand here, write it as \\x and two digits"
            ),
        );
    } else if let Some(character) = pattern.chars().find(breaks) {
        problems.add(
            path,
            format_args!(
                "has {character:?}, which would end or open a directive of nginx.conf; write \\x{:02x}",
                u32::from(character)
            ),
        );
    } else {
        problems.check(path, regex::check(pattern).map(drop));
    }
}

fn hidden_headers(names: &[String], problems: &mut Problems) -> BTreeSet<String> {
    for (index, name) in names.iter().enumerate() {
        check_header_name(&format!("spec.proxyHideHeader[{index}]"), name, problems);
    }
    names.iter().map(|name| name.to_ascii_lowercase()).collect()
}

/// Returns the headers by name in lower case, with the host of the URL unless another is given.
fn headers<'a>(
    given: &'a BTreeMap<String, String>,
    url: Option<Url<'a>>,
    problems: &mut Problems,
) -> BTreeMap<String, &'a str> {
    let mut headers = BTreeMap::new();
    for (name, value) in given {
        let path = format!("spec.proxySetHeader[{name}]");
        check_header_name(&path, name, problems);
        problems.check(&path, syntax::check(value, syntax::Value::Http));
        match headers.entry(name.to_ascii_lowercase()) {
            Entry::Vacant(free) => {
                free.insert(value.as_str());
            }
            Entry::Occupied(taken) => {
                problems.push(FieldError::duplicate(
                    path,
                    format!(
                        "is {} a second time: case does not matter in names of headers",
                        taken.key()
                    ),
                ));
            }
        }
    }
    if let Some(url) = url {
        headers.entry("host".to_owned()).or_insert(url.authority);
    }
    headers
}

fn check_header_name(path: &str, name: &str, problems: &mut Problems) {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > usize::from(LONGEST_HEADER) || !name.bytes().all(allowed) {
        problems.add(
            path,
            format_args!("is no name of a header: 1 to {LONGEST_HEADER} letters, digits, '-', '_' and '.'"),
        );
    }
}
