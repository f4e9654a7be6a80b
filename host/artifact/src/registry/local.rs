//! Keeps requests for a Plugin's reference away from the host's own machine and link. A Plugin's conditions show the
//! results of requests, so they would reveal the open ports of the host's pod, and the content of a cloud's metadata
//! service.

use std::net::{IpAddr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::registry::registries::RegistriesConfig;

/// Local servers that are allowed because the registries file names them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalGuard {
    /// Host and port.
    servers: Vec<(String, u16)>,
    /// Names that may resolve to local addresses: those of the servers, and of the proxies.
    names: Vec<String>,
}

/// The host refers to this machine, or its link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{host} is an address of this machine or its link, which a Plugin must not make the host ask; name a registry in the \
     network, or list {host} in the host's registries file"
)]
pub(crate) struct LocalHost {
    pub(crate) host: String,
}

impl LocalGuard {
    /// A guard that allows the registries of a configuration, their mirrors, and the proxies with these URLs.
    pub(crate) fn new(config: &RegistriesConfig, proxies: &[String]) -> Self {
        let mut guard = Self::default();
        for registry in &config.registries {
            let mirrors = registry.mirrors.iter().filter(|mirror| !mirror.starts_with("oci-"));
            let mirrors = mirrors.map(|mirror| mirror.split('/').next().unwrap_or(mirror));
            for host in mirrors.chain([&*registry.host]) {
                let scheme = if config.is_plain(host) { "http" } else { "https" };
                if let Ok(url) = Url::parse(&format!("{scheme}://{host}/")) {
                    guard.servers.extend(server(&url));
                }
            }
        }
        let names = guard.servers.iter().map(|(host, _)| host.clone());
        let proxies = proxies.iter().filter_map(|proxy| {
            let url = Url::parse(proxy).ok().filter(Url::has_host);
            url.or_else(|| Url::parse(&format!("http://{proxy}")).ok())
        });
        guard.names = names
            .chain(proxies.filter_map(|url| url.host_str().map(str::to_owned)))
            .collect();
        guard
    }

    /// Reports whether a server is allowed, as far as its URL tells.
    pub(crate) fn allows(&self, url: &Url) -> bool {
        !url.host_str().is_some_and(is_local) || server(url).is_some_and(|it| self.servers.contains(&it))
    }
}

impl Resolve for LocalGuard {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        let may_be_local = self.names.iter().any(|it| it.eq_ignore_ascii_case(&host));
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((&*host, 0)).await?.collect();
            // One that is not local today may hide one that is.
            if !may_be_local && found.iter().any(|it| is_local_address(it.ip())) {
                return Err(LocalHost { host }.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

fn server(url: &Url) -> Option<(String, u16)> {
    Some((url.host_str()?.to_owned(), url.port_or_known_default()?))
}

/// Reports whether the host of a URL is local, as far as that is known without resolving it.
pub(crate) fn is_local(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse() {
        return is_local_address(address);
    }
    let name = bare.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// Reports whether an address is a loopback, link-local or unspecified one. IPv4 addresses written as IPv6 count, too.
fn is_local_address(address: IpAddr) -> bool {
    match address {
        // The whole of 0.0.0.0/8 is "this host on this network" (RFC 1122).
        IpAddr::V4(it) => it.is_loopback() || it.is_link_local() || it.octets()[0] == 0,
        // to_ipv4 knows mapped (::ffff:127.0.0.1) and compatible (::127.0.0.1) addresses, among which are ::1 and ::.
        IpAddr::V6(it) => it.is_unicast_link_local() || it.to_ipv4().is_some_and(|it| is_local_address(it.into())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn local_addresses_are_known_in_each_form() {
        for url in [
            "https://127.0.0.1/",
            "https://127.9.9.9/",
            "https://2130706433/",
            "https://0x7f.1/",
            "https://0177.0.0.1/",
            "https://169.254.169.254/",
            "https://0.0.0.0/",
            "https://0.0.0.1/",
            "https://[::1]/",
            "https://[::]/",
            "https://[::ffff:127.0.0.1]/",
            "https://[::ffff:169.254.169.254]/",
            "https://[::127.0.0.1]/",
            "https://[fe80::1]/",
            "https://localhost/",
            "https://LOCALHOST./",
            "https://registry.localhost/",
        ] {
            assert!(!LocalGuard::default().allows(&url.parse().unwrap()), "{url}");
        }
        for url in [
            "https://10.0.0.1/",
            "https://192.168.0.1/",
            "https://[fd00::1]/",
            "https://[::ffff:10.0.0.1]/",
            "https://localhost.example/",
            "https://ghcr.io/",
        ] {
            assert!(LocalGuard::default().allows(&url.parse().unwrap()), "{url}");
        }
    }

    #[tokio::test]
    async fn registries_file_allows_servers_and_names_are_resolved() {
        let config = RegistriesConfig::from_value(json!({"registries": [
            {"host": "localhost:5000", "plainHttp": true},
            {"host": "ghcr.io", "mirrors": ["127.0.0.1:5001/ghcr", "oci-layout:/mirror"]},
        ]}));
        let guard = LocalGuard::new(&config.unwrap(), &[]);
        let allows = |url: &str| guard.allows(&url.parse().unwrap());
        assert!(allows("http://localhost:5000/v2/") && allows("https://127.0.0.1:5001/v2/"));
        assert!(!allows("https://localhost:22/") && !allows("http://127.0.0.1:5000/"));

        let resolve = async |guard: &LocalGuard| guard.resolve("localhost".parse().unwrap()).await.map(drop);
        assert!(resolve(&guard).await.is_ok());
        let refused = resolve(&LocalGuard::default()).await.unwrap_err();
        assert!(refused.is::<LocalHost>(), "{refused}");
        for proxy in [
            "http://user:secret@localhost:3128",
            "localhost:3128",
            "socks5://localhost",
        ] {
            let guard = LocalGuard::new(&RegistriesConfig::default(), &[proxy.to_owned()]);
            assert!(resolve(&guard).await.is_ok(), "{proxy}");
            assert!(!guard.allows(&"http://localhost:3128".parse().unwrap()), "{proxy}");
        }
    }
}
