//! Selects the proxy for a server by the variables of the environment and by the rules of Go's `golang.org/x/net/http/httpproxy`,
//! as client-go does.

use std::net::IpAddr;

use http::Uri;

/// The port of a SOCKS proxy whose URL has none.
const SOCKS_PORT: u16 = 1080;

/// The proxy for an API server, unless `NO_PROXY` covers the server, or it is on this machine.
pub(crate) fn for_cluster(server: &Uri, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Uri>, String> {
    if server.host().is_some_and(is_local) {
        return Ok(None);
    }
    let Some((name, proxy)) = selected(server, &[], variable) else {
        return Ok(None);
    };
    from_kubeconfig(&proxy)
        .map(Some)
        .map_err(|problem| format!("{name} cannot be used: {problem}"))
}

/// The proxy for a server of a registry, unless `NO_PROXY` covers it. `ALL_PROXY` counts, too, as for curl.
pub fn for_registry(server: &Uri, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Uri>, String> {
    let Some((name, proxy)) = selected(server, &["ALL_PROXY"], variable) else {
        return Ok(None);
    };
    let proxy = parse(&proxy).map_err(|problem| format!("{name} cannot be used: {problem}"))?;
    Ok(Some(proxy))
}

/// The variable that names a proxy for a server, with its value: that of the server's scheme, or one of the others.
fn selected(
    server: &Uri,
    others: &[&'static str],
    variable: &dyn Fn(&str) -> Option<String>,
) -> Option<(&'static str, String)> {
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
    let mut names = [name].into_iter().chain(others.iter().copied());
    let (name, proxy) = names.find_map(|name| Some((name, either(name)?)))?;
    let proxy = if proxy.contains("://") {
        proxy
    } else {
        format!("http://{proxy}")
    };
    let no_proxy = either("NO_PROXY").unwrap_or_default();
    (!is_exempt(server.host()?, server.port_u16().unwrap_or(port), &no_proxy)).then_some((name, proxy))
}

/// The proxy for an API server that a kubeconfig names. kube's client sends no credentials to a SOCKS proxy.
pub(crate) fn from_kubeconfig(proxy: &str) -> Result<Uri, String> {
    let proxy = parse(proxy)?;
    let has_credentials = proxy.authority().is_some_and(|it| it.as_str().contains('@'));
    if has_credentials && proxy.scheme_str() == Some("socks5") {
        return Err(
            "a user and a password are sent to http:// and https:// proxies only; use one of these, or a SOCKS proxy without a \
             password"
                .to_owned(),
        );
    }
    Ok(proxy)
}

/// Parses a proxy's URL, which must have a supported scheme.
fn parse(proxy: &str) -> Result<Uri, String> {
    // Go lets a SOCKS proxy resolve names in both forms.
    let (scheme, rest) = match proxy.split_once("://").unwrap_or_default() {
        ("socks5h", rest) => ("socks5", rest),
        parts => parts,
    };
    if !matches!(scheme, "http" | "https" | "socks5") {
        return Err(format!(
            "a proxy's URL begins with http://, https:// or socks5://, and not with {scheme:?}"
        ));
    }
    // The URL may have a password, so no message shows it.
    let refused = || "the proxy is no URL".to_owned();
    let url: Uri = format!("{scheme}://{rest}").parse().map_err(|_| refused())?;
    let authority = url.authority().filter(|it| !it.host().is_empty()).ok_or_else(refused)?;
    if scheme == "socks5" && authority.port().is_none() {
        let url = format!("{scheme}://{authority}:{SOCKS_PORT}/");
        return url.parse().map_err(|_| refused());
    }
    Ok(url)
}

fn is_local(host: &str) -> bool {
    let host = bare(host);
    host == "localhost" || host.parse().is_ok_and(|it: IpAddr| it.is_loopback())
}

fn bare(host: &str) -> String {
    host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase()
}

/// Reports whether an entry of `NO_PROXY` covers a server.
fn is_exempt(host: &str, port: u16, no_proxy: &str) -> bool {
    let host = bare(host);
    let address = host.parse::<IpAddr>().ok();
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
        let found = for_cluster(&server.parse().unwrap(), &variable)?;
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
        let socks = [("HTTPS_PROXY", "socks5h://s")];
        assert_eq!(proxy("https://k.example", &socks), Ok(Some("socks5://s:1080".into())));
        let secret = proxy("https://k.example", &[("HTTPS_PROXY", "socks5://u:secret@s:1080")]).unwrap_err();
        assert!(
            secret.contains("HTTPS_PROXY") && secret.contains("without a password") && !secret.contains("secret"),
            "{secret}"
        );
        let wrong = proxy("https://k.example", &[("HTTPS_PROXY", "ftp://user:secret@f")]).unwrap_err();
        assert!(
            wrong.contains("HTTPS_PROXY") && wrong.contains("ftp") && !wrong.contains("secret"),
            "{wrong}"
        );
    }

    #[test]
    fn a_registry_has_the_same_proxies_and_that_for_all() {
        let found = |server: &str, variables: &[(&str, &str)]| {
            let variable = |name: &str| {
                let found = variables.iter().find(|(other, _)| *other == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            for_registry(&server.parse().unwrap(), &variable).map(|url| url.map(|url| url.to_string()))
        };
        let all = [
            ("ALL_PROXY", "socks5://u:p@s"),
            ("HTTPS_PROXY", "a:1"),
            ("NO_PROXY", "r.internal:5000"),
        ];
        assert_eq!(found("https://r.example", &all), Ok(Some("http://a:1/".to_owned())));
        assert_eq!(
            found("http://r.example", &all),
            Ok(Some("socks5://u:p@s:1080/".to_owned()))
        );
        assert_eq!(found("https://r.internal:5000", &all), Ok(None));
        assert_eq!(found("https://r.internal", &all), Ok(Some("http://a:1/".to_owned())));
        let wrong = found("http://r.example", &[("all_proxy", "ftp://f")]).unwrap_err();
        assert!(wrong.contains("ALL_PROXY") && wrong.contains("\"ftp\""), "{wrong}");
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
