//! Owns checking a ReverseProxy, field by field.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use pilothouse_plugin::FieldError;

use super::pods::{self, Instance};
use super::{Absent, Problems, resolver, timeout, workers};
use crate::nginx::address::Url;
use crate::nginx::http::{COMBINED, Configuration, LONGEST_HEADER, Rewrite};
use crate::nginx::{regex, syntax};
use crate::resource::{HTTP_TIMEOUT, Protocol, ReverseProxy, ReverseProxySpec, RewriteRule};

/// The most entries of each list and map.
const MOST_ENTRIES: usize = 64;

/// What both the pods and their nginx are made of.
pub(crate) fn check<'a>(
    resource: &'a ReverseProxy,
    absent: Absent<'a>,
) -> Result<(Instance<'a>, Configuration<'a>), Vec<FieldError>> {
    let ReverseProxy { metadata, spec } = resource;
    let mut problems = Problems::default();
    let common = spec.common();
    let instance = pods::check("ngx-proxy-", metadata, &common, Protocol::Tcp, absent, &mut problems);
    let url = proxy_pass(&spec.proxy_pass, &mut problems);
    let log_format = spec.log_format.as_deref().unwrap_or(COMBINED);
    problems.check("spec.logFormat", syntax::check(log_format, syntax::Value::LogFormat));
    let mut seconds =
        |path, given: &'a Option<String>| timeout(path, given.as_deref(), HTTP_TIMEOUT, &["s"], &mut problems);
    let read_timeout = seconds("spec.proxyReadTimeout", &spec.proxy_read_timeout);
    let send_timeout = seconds("spec.proxySendTimeout", &spec.proxy_send_timeout);
    let connect_timeout = seconds("spec.proxyConnectTimeout", &spec.proxy_connect_timeout);
    let configuration = Configuration {
        workers: workers(&common, &mut problems),
        resolver: resolver(&common, &mut problems),
        log_format: Some(log_format).filter(|format| !format.is_empty()),
        rewrites: rewrites(spec.rewrite.as_deref().unwrap_or_default(), &mut problems),
        hidden_headers: hidden_headers(spec.proxy_hide_header.as_deref().unwrap_or_default(), &mut problems),
        headers: headers(spec, url, &mut problems),
        connect_timeout,
        read_timeout,
        send_timeout,
        proxy_pass: &spec.proxy_pass,
    };
    problems.or((instance, configuration))
}

fn proxy_pass<'a>(text: &'a str, problems: &mut Problems) -> Option<Url<'a>> {
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

fn rewrites<'a>(rules: &'a [RewriteRule], problems: &mut Problems) -> Vec<Rewrite<'a>> {
    check_count("spec.rewrite", rules.len(), problems);
    let checked = rules.iter().enumerate().map(|(index, rule)| {
        let RewriteRule {
            regex,
            replacement,
            flag,
        } = rule;
        let path = format!("spec.rewrite[{index}]");
        check_regex(&format!("{path}.regex"), regex, problems);
        let path = format!("{path}.replacement");
        if replacement.is_empty() {
            problems.add(path, "empty replacement");
        } else {
            problems.check(&path, syntax::check_word(replacement, syntax::Value::Http));
        }
        Rewrite {
            regex,
            replacement,
            flag: flag.unwrap_or_default(),
        }
    });
    checked.collect()
}

fn check_regex(path: &str, pattern: &str, problems: &mut Problems) {
    let breaks = |character: &char| matches!(character, ';' | '"' | '\'');
    if pattern.is_empty() {
        problems.add(path, "is empty; ^ matches every path");
    } else if let Err(problem) = syntax::check_length(pattern) {
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
    check_count("spec.proxyHideHeader", names.len(), problems);
    for (index, name) in names.iter().enumerate() {
        check_header_name(&format!("spec.proxyHideHeader[{index}]"), name, problems);
    }
    names.iter().map(|name| name.to_ascii_lowercase()).collect()
}

/// The headers by name in lower case, with the host of the URL unless another is given.
fn headers<'a>(spec: &'a ReverseProxySpec, url: Option<Url<'a>>, problems: &mut Problems) -> BTreeMap<String, &'a str> {
    let mut headers = BTreeMap::new();
    let given = spec.proxy_set_header.iter().flatten();
    check_count("spec.proxySetHeader", given.clone().count(), problems);
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

fn check_count(path: &str, count: usize, problems: &mut Problems) {
    if count > MOST_ENTRIES {
        problems.add(path, format_args!("has {count} entries; there can be {MOST_ENTRIES}"));
    }
}
