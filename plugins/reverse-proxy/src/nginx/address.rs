//! Checks hosts and ports: the address part of `proxy_pass`, of a `server` of an upstream, and of `resolver`.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::syntax::has_variables;

/// The longest name of a host (RFC 1035), in bytes.
const LONGEST_NAME: usize = 253;

/// Reasons why nginx would refuse an address. The messages are nginx's own if it has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressError {
    /// A part of it is missing or wrong.
    #[error("{problem} in {directive} {address:?}")]
    Part {
        /// The problem.
        problem: Problem,
        /// nginx's name for the place.
        directive: &'static str,
        /// The address, as nginx shows it.
        address: String,
    },
    /// A socket in the file system, which the pod does not have.
    #[error("{0:?} is a socket in the file system, and the pod has none; give a host")]
    UnixSocket(String),
}

/// Problem of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    /// Nothing where the host should be.
    #[error("no host")]
    NoHost,
    /// No port where there has to be one.
    #[error("no port")]
    NoPort,
    /// Not a number from 1 to 65535.
    #[error("invalid port")]
    InvalidPort,
    /// Brackets without an address of IPv6 in them.
    #[error("invalid IPv6 address")]
    InvalidIpv6,
    /// Not a valid name of a host, so none would be found.
    #[error("host not found")]
    InvalidHost,
}

/// Requirement of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// The port may be left out.
    Optional,
    /// The port is required.
    Required,
}

/// A URL of `proxy_pass` in its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Url<'a> {
    /// Host and port.
    pub authority: &'a str,
    /// The URL without its scheme, which nginx names in its messages.
    pub behind_scheme: &'a str,
}

impl<'a> Url<'a> {
    /// Parses a URL; none if it has no scheme that nginx proxies.
    pub(crate) fn parse(url: &'a str) -> Option<Self> {
        let (scheme, behind_scheme) = url.split_once("://")?;
        if !["http", "https", "$scheme", "${scheme}"]
            .iter()
            .any(|known| scheme.eq_ignore_ascii_case(known))
        {
            return None;
        }
        // After an address in brackets, nginx accepts only a path.
        let ends: &[char] = if behind_scheme.starts_with('[') {
            &['/']
        } else {
            &['/', '?']
        };
        let end = behind_scheme.find(ends).unwrap_or(behind_scheme.len());
        Some(Self {
            authority: &behind_scheme[..end],
            behind_scheme,
        })
    }

    /// Checks host and port, both of which may be variables.
    pub(crate) fn check(self) -> Result<(), AddressError> {
        refuse_socket(self.authority)?;
        check_part(self.authority, Port::Optional, true).map_err(|problem| AddressError::Part {
            problem,
            directive: "upstream",
            address: self.behind_scheme.to_owned(),
        })
    }
}

/// Checks a host with its port; `directive` is nginx's name for the place.
pub(crate) fn check(directive: &'static str, address: &str, port: Port) -> Result<(), AddressError> {
    refuse_socket(address)?;
    check_part(address, port, false).map_err(|problem| AddressError::Part {
        problem,
        directive,
        address: address.to_owned(),
    })
}

fn refuse_socket(address: &str) -> Result<(), AddressError> {
    match address.get(..5) {
        Some(scheme) if scheme.eq_ignore_ascii_case("unix:") => Err(AddressError::UnixSocket(address.to_owned())),
        _ => Ok(()),
    }
}

fn check_part(address: &str, needed: Port, variables: bool) -> Result<(), Problem> {
    let (host, port) = if let Some(inside) = address.strip_prefix('[') {
        let (ip, behind) = inside.split_once(']').ok_or(Problem::InvalidHost)?;
        if ip.parse::<Ipv6Addr>().is_err() {
            return Err(Problem::InvalidIpv6);
        }
        match behind.strip_prefix(':') {
            Some(port) => (None, Some(port)),
            None if behind.is_empty() => (None, None),
            None => return Err(Problem::InvalidPort),
        }
    } else {
        match address.split_once(':') {
            Some((host, port)) => (Some(host), Some(port)),
            None => (Some(address), None),
        }
    };
    if host == Some("") {
        return Err(Problem::NoHost);
    }
    match port {
        Some(port) if is_port(port) || (variables && has_variables(port)) => {}
        Some(_) => return Err(Problem::InvalidPort),
        None if needed == Port::Required => return Err(Problem::NoPort),
        None => {}
    }
    if host.is_some_and(|host| !is_host(host, variables)) {
        return Err(Problem::InvalidHost);
    }
    Ok(())
}

fn is_port(port: &str) -> bool {
    port.bytes().all(|byte| byte.is_ascii_digit()) && port.len() <= 5 && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Reports whether this can be a host's name or IPv4 address. Only nginx knows the values of variables.
fn is_host(host: &str, variables: bool) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if variables && has_variables(host) {
        return host.bytes().all(|byte| allowed(byte) || b"${}".contains(&byte));
    }
    let host = host.strip_suffix('.').unwrap_or(host);
    let numeric = host
        .rsplit('.')
        .next()
        .is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    if numeric {
        return host.parse::<Ipv4Addr>().is_ok();
    }
    host.len() <= LONGEST_NAME
        && host
            .split('.')
            .all(|label| (1..=63).contains(&label.len()) && label.bytes().all(allowed))
}

#[cfg(test)]
mod tests {
    use super::{Port, Url, check};

    fn words(url: &str) -> String {
        match Url::parse(url) {
            None => "no URL".to_owned(),
            Some(url) => url
                .check()
                .map_or_else(|error| error.to_string(), |()| "fine".to_owned()),
        }
    }

    #[test]
    fn urls_that_nginx_takes_are_taken() {
        for url in [
            "http://a",
            "HTTPS://a.b.c:8443/x?y=z",
            "http://10.0.0.1",
            "http://[::1]:80/",
            "$scheme://$host:$server_port$request_uri",
            "http://my_service.ns.svc.",
        ] {
            assert_eq!(words(url), "fine", "{url}");
        }
    }

    #[test]
    fn others_are_refused_in_nginxs_words() {
        for (url, expected) in [
            ("a.b", "no URL"),
            ("ftp://a", "no URL"),
            ("http://", "no host in upstream \"\""),
            ("http:///x", "no host in upstream \"/x\""),
            ("http://:80", "no host in upstream \":80\""),
            ("http://a:99999/x", "invalid port in upstream \"a:99999/x\""),
            ("http://a:0", "invalid port in upstream \"a:0\""),
            ("http://a:", "invalid port in upstream \"a:\""),
            ("http://a:+1", "invalid port in upstream \"a:+1\""),
            ("http://[::1]:80?x", "invalid port in upstream \"[::1]:80?x\""),
            ("http://[::1]x", "invalid port in upstream \"[::1]x\""),
            ("http://[nothing]", "invalid IPv6 address in upstream \"[nothing]\""),
        ] {
            assert_eq!(words(url), expected, "{url}");
        }
        for url in [
            "http://a..b",
            "http://1.2.3.4.5",
            "http://999.1.1.1",
            "http://a@b",
            "http://a#b",
            "http://[::1",
            "http://ä",
        ] {
            assert!(
                words(url).starts_with("host not found in upstream"),
                "{url}: {}",
                words(url)
            );
        }
        assert!(words("http://unix:/tmp/x").contains("socket in the file system"));
    }

    #[test]
    fn a_server_needs_a_port() {
        assert_eq!(check("upstream", "db:5432", Port::Required), Ok(()));
        for (server, words) in [
            ("db", "no port in upstream \"db\""),
            ("$host:80", "host not found in upstream \"$host:80\""),
        ] {
            assert_eq!(
                check("upstream", server, Port::Required).unwrap_err().to_string(),
                words
            );
        }
    }
}
