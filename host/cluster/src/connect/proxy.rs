//! Selects the proxy for an API server, as Go's `golang.org/x/net/http/httpproxy` and client-go do.

use std::net::IpAddr;

use http::Uri;

/// The proxy that the environment names for a server, unless `NO_PROXY` covers the server.
pub(crate) fn from_environment(server: &Uri, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Uri>, String> {
    let either = |name: &str| {
        let names = [name.to_owned(), name.to_lowercase()];
        names
            .into_iter()
            .find_map(|name| variable(&name).filter(|it| !it.is_empty()))
    };
    let (name, port) = if server.scheme_str() == Some("https") {
        ("HTTPS_PROXY", 443)
    } else {
        ("HTTP_PROXY", 80)
    };
    let (Some(proxy), Some(host)) = (either(name), server.host()) else {
        return Ok(None);
    };
    if is_direct(
        host,
        server.port_u16().unwrap_or(port),
        &either("NO_PROXY").unwrap_or_default(),
    ) {
        return Ok(None);
    }
    let url = if proxy.contains("://") {
        proxy
    } else {
        format!("http://{proxy}")
    };
    parse(&url)
        .map(Some)
        .map_err(|problem| format!("{name} cannot be used: {problem}"))
}

/// Parses a proxy's URL, which must have a supported scheme.
pub(crate) fn parse(proxy: &str) -> Result<Uri, String> {
    // Go lets a SOCKS proxy resolve names in both forms.
    let proxy = match proxy.strip_prefix("socks5h://") {
        Some(rest) => format!("socks5://{rest}"),
        None => proxy.to_owned(),
    };
    // The URL may have a password, so no message shows it.
    let url: Uri = proxy.parse().map_err(|_| "the proxy is no URL".to_owned())?;
    match (url.scheme_str(), url.host()) {
        (Some("http" | "https" | "socks5"), Some(_)) => Ok(url),
        (scheme, _) => Err(format!(
            "a proxy's URL begins with http://, https:// or socks5://, and not with {:?}",
            scheme.unwrap_or_default()
        )),
    }
}

/// Reports whether a server is reached without a proxy: this machine, and those that an entry of `NO_PROXY` covers.
fn is_direct(host: &str, port: u16, no_proxy: &str) -> bool {
    let host = host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
    let address = host.parse::<IpAddr>().ok();
    if host == "localhost" || address.is_some_and(|it| it.is_loopback()) {
        return true;
    }
    let entries = no_proxy.split(',').map(|entry| entry.trim().to_ascii_lowercase());
    entries.filter(|entry| !entry.is_empty()).any(|entry| {
        if entry == "*" {
            return true;
        }
        if let Some((network, bits)) = entry.split_once('/')
            && let (Ok(network), Ok(bits)) = (network.parse(), bits.parse())
        {
            return address.is_some_and(|address| is_within(address, network, bits));
        }
        let (name, wanted) = with_port(&entry);
        if wanted.is_some_and(|wanted| wanted != port) {
            return false;
        }
        if let Ok(named) = name.trim_matches(['[', ']']).parse::<IpAddr>() {
            return address.is_some_and(|address| address.to_canonical() == named.to_canonical());
        }
        // "example.com" covers its subdomains too, ".example.com" and "*.example.com" only these.
        let name = name
            .strip_prefix('*')
            .filter(|rest| rest.starts_with('.'))
            .unwrap_or(name);
        match name.strip_prefix('.') {
            Some(_) => host.ends_with(name),
            None => host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')),
        }
    })
}

/// Splits the port off an entry.
fn with_port(entry: &str) -> (&str, Option<u16>) {
    match entry.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => match port.parse() {
            Ok(port) => (name, Some(port)),
            Err(_) => (entry, None),
        },
        _ => (entry, None),
    }
}

fn is_within(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let number = |address: IpAddr| match address.to_canonical() {
        IpAddr::V4(it) => (u128::from(it.to_bits()) << 96, 32),
        IpAddr::V6(it) => (it.to_bits(), 128),
    };
    let ((address, length), (network, other)) = (number(address), number(network));
    // A shift by all bits leaves none; checked_shr returns None then.
    let mask = !u128::MAX.checked_shr(bits).unwrap_or(0);
    length == other && bits <= length && address & mask == network & mask
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(server: &str, variables: &[(&str, &str)]) -> Result<Option<String>, String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let found = from_environment(&server.parse().unwrap(), &variable)?;
        Ok(found.map(|url| url.to_string().trim_end_matches('/').to_owned()))
    }

    #[test]
    fn the_variable_of_the_scheme_names_the_proxy() {
        let all = [
            ("HTTPS_PROXY", "http://a:1"),
            ("http_proxy", "b:2"),
            ("https_proxy", "http://c"),
        ];
        assert_eq!(proxy("https://k.example", &all), Ok(Some("http://a:1".into())));
        assert_eq!(proxy("http://k.example", &all), Ok(Some("http://b:2".into())));
        assert_eq!(proxy("https://k.example", &all[2..]), Ok(Some("http://c".into())));
        assert_eq!(proxy("https://k.example", &[("HTTPS_PROXY", "")]), Ok(None));
        let socks = [("HTTPS_PROXY", "socks5h://u:p@s:1080")];
        assert_eq!(
            proxy("https://k.example", &socks),
            Ok(Some("socks5://u:p@s:1080".into()))
        );
        let wrong = proxy("https://k.example", &[("HTTPS_PROXY", "ftp://user:secret@f")]).unwrap_err();
        assert!(
            wrong.contains("HTTPS_PROXY") && wrong.contains("ftp") && !wrong.contains("secret"),
            "{wrong}"
        );
    }

    #[test]
    fn what_no_proxy_covers_is_reached_directly() {
        // Rows of the tests of httpproxy and of its documentation.
        for (server, no_proxy, direct) in [
            ("https://localhost:6443", "", true),
            ("https://127.0.0.1:6443", "", true),
            ("https://[::1]:6443", "", true),
            ("https://k.example", "", false),
            ("https://k.example", "*", true),
            ("https://k.example", " other , *", true),
            ("https://k.example", "example", true),
            ("https://k.example", ".example", true),
            ("https://k.example", "*.example", true),
            ("https://K.Example.", "k.EXAMPLE", true),
            ("https://example", ".example", false),
            ("https://example", "*.example", false),
            ("https://example", "example", true),
            ("https://notexample", "example", false),
            ("https://k.example:6443", "k.example:6443", true),
            ("https://k.example", "k.example:443", true),
            ("https://k.example:6443", "k.example:443", false),
            ("https://k.example:6443", ".example:6443", true),
            ("https://10.1.2.3:6443", "10.0.0.0/8", true),
            ("https://11.1.2.3:6443", "10.0.0.0/8", false),
            ("https://10.1.2.3:6443", "10.1.2.3", true),
            ("https://10.1.2.3:6443", "10.1.2.3:6443", true),
            ("https://10.1.2.3:6443", "10.1.2.3:443", false),
            ("https://10.1.2.3:6443", "0.0.0.0/0", true),
            ("https://10.1.2.3:6443", "10.1.2.3/32", true),
            ("https://10.1.2.3:6443", "10.1.2.0/33", false),
            ("https://10.1.2.3:6443", "::/0", false),
            ("https://[fd00::1]:6443", "fd00::/8", true),
            ("https://[fd00::1]:6443", "fd00::1", true),
            ("https://[fd00::1]:6443", "[fd00::1]:6443", true),
            ("https://[fd00::1]:6443", "fe80::/10", false),
            ("https://k.example", ",,other,", false),
        ] {
            let found = proxy(server, &[("HTTPS_PROXY", "http://p"), ("no_proxy", no_proxy)]).unwrap();
            assert_eq!(found.is_none(), direct, "{server} {no_proxy:?}");
        }
    }
}
