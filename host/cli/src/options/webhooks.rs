//! Options of webhooks: the endpoint by which API servers reach this process, and its certificates.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};
use pilothouse_cluster::resources::webhooks::SecretPlace;
use pilothouse_core::admission::configuration::Endpoint;
use pilothouse_core::replicas::shards::peer_address;
use pilothouse_runtime::{Lifetimes, Maker, WebhookOptions};

use crate::options::settings;

/// Time that API servers may take to trust a new authority: they watch the webhook configurations.
const SETTLE: Duration = Duration::from_secs(30);

/// Default port of a Service.
const SERVICE_PORT: u16 = 443;

/// Default name of the Secret, and its default namespace without a Service.
const SECRET_NAME: &str = "pilothouse-webhooks";
const SECRET_NAMESPACE: &str = "pilothouse-system";

/// How API servers reach the host.
#[derive(Args)]
pub struct EndpointArguments {
    /// Serve webhooks, which API servers call at this URL: https://HOST:PORT. Without this option and
    /// --webhook-service, plugins default and validate objects only before each reconcile
    #[arg(
        id = "webhook-url",
        long = "webhook-url",
        value_name = "URL",
        conflicts_with = "webhook-service"
    )]
    url: Option<String>,

    /// Serve webhooks, which API servers call through this Service
    #[arg(
        id = "webhook-service",
        long = "webhook-service",
        value_name = "NAMESPACE/NAME[:PORT]"
    )]
    service: Option<String>,

    /// The Secret that stores the webhooks' certificates (default: pilothouse-webhooks in the namespace of
    /// --webhook-service, or in pilothouse-system)
    #[arg(id = "webhook-secret", long = "webhook-secret", value_name = "NAMESPACE/NAME")]
    secret: Option<String>,
}

/// Whether and how the host serves webhooks.
#[derive(Args)]
pub struct WebhookArguments {
    #[command(flatten)]
    endpoint: EndpointArguments,

    /// The address on which the webhook server listens
    #[arg(
        id = "webhook-listen",
        long,
        value_name = "ADDRESS:PORT",
        default_value = "0.0.0.0:9443"
    )]
    listen: SocketAddr,

    /// With --shards, the address at which other replicas reach this one's webhook server, so that they forward reviews of
    /// objects in its shards, such as 10.0.0.7 or [fd00::7]:9443 (default: the environment variable POD_IP; the port
    /// is that of --webhook-listen)
    #[arg(id = "webhook-peer-address", long, value_name = "IP[:PORT]")]
    peer_address: Option<String>,

    /// A PEM file with the CA of the client certificates that API servers must present (default: any client may call
    /// the webhooks)
    #[arg(id = "webhook-client-ca", long = "webhook-client-ca", value_name = "FILE")]
    client_ca: Option<PathBuf>,

    /// Who creates the webhook configurations: the host, or an installer that applies the output of `pilothouse
    /// webhooks`. With an installer, the host writes only the caBundle
    #[arg(id = "webhook-configurations", long, value_enum, value_name = "WHO", default_value_t = ConfigurationOwner::Host)]
    configurations: ConfigurationOwner,

    /// The ClusterRole that owns the webhook configurations, so that Kubernetes deletes them when the ClusterRole is deleted.
    /// The host needs the right to get it (default: they have no owner)
    #[arg(id = "webhook-owner", long, value_name = "NAME", value_parser = cluster_role)]
    owner: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ConfigurationOwner {
    Host,
    Installer,
}

/// Names of the webhooks' objects in a cluster.
pub struct WebhookNames {
    /// Endpoint by which API servers reach the host.
    pub endpoint: Endpoint,
    /// Secret of its certificates.
    pub secret: SecretPlace,
    /// The namespace that the host runs in.
    pub own_namespace: String,
}

impl EndpointArguments {
    /// Returns the names; none if webhooks are off.
    pub fn places(self) -> anyhow::Result<Option<WebhookNames>> {
        let Self { url, service, secret } = self;
        let endpoint = match (url, service) {
            (None, None) => {
                ensure!(
                    secret.is_none(),
                    "--webhook-secret has no use without --webhook-url or --webhook-service"
                );
                return Ok(None);
            }
            (Some(url), _) => url_of(&url)?,
            (None, Some(service)) => service_of(&service)?,
        };
        let own = match &endpoint {
            Endpoint::Service { namespace, .. } => namespace.clone(),
            Endpoint::Url(_) => SECRET_NAMESPACE.to_owned(),
        };
        let secret = match secret {
            None => SecretPlace {
                namespace: own.clone(),
                name: SECRET_NAME.to_owned(),
            },
            Some(secret) => {
                let (namespace, name) = names("--webhook-secret", &secret)?;
                SecretPlace { namespace, name }
            }
        };
        let own_namespace = match &endpoint {
            Endpoint::Service { .. } => own,
            Endpoint::Url(_) => secret.namespace.clone(),
        };
        Ok(Some(WebhookNames {
            endpoint,
            secret,
            own_namespace,
        }))
    }
}

impl WebhookArguments {
    /// Returns the host's webhook options; none if webhooks are off, which is logged.
    pub fn options(self) -> anyhow::Result<Option<WebhookOptions>> {
        let Self {
            endpoint,
            listen,
            peer_address,
            client_ca,
            configurations,
            owner,
        } = self;
        let Some(places) = endpoint.places()? else {
            ensure!(
                client_ca.is_none(),
                "--webhook-client-ca has no use without --webhook-url or --webhook-service"
            );
            ensure!(
                peer_address.is_none(),
                "--webhook-peer-address has no use without --webhook-url or --webhook-service"
            );
            ensure!(
                owner.is_none(),
                "--webhook-owner has no use without --webhook-url or --webhook-service"
            );
            tracing::info!(
                "webhooks are off: plugins default and validate before they reconcile; --webhook-url or --webhook-service \
                 serves them"
            );
            return Ok(None);
        };
        ensure!(
            owner.is_none() || configurations == ConfigurationOwner::Host,
            "--webhook-owner has no use with --webhook-configurations installer: give the configurations an owner before they \
             are applied"
        );
        let WebhookNames {
            endpoint,
            secret,
            own_namespace,
        } = places;
        let peer_address = match (peer_address, settings::pod_ip()) {
            (Some(given), _) => Some(address_of("--webhook-peer-address", &given, listen.port())?),
            (None, Some(pod)) => Some(address_of("POD_IP", &pod, listen.port())?),
            (None, None) => None,
        };
        Ok(Some(WebhookOptions {
            listen,
            peer_address,
            endpoint,
            secret,
            client_ca,
            own_namespace,
            has_unknown_plugins: false,
            owner,
            maker: match configurations {
                ConfigurationOwner::Host => Maker::Host,
                ConfigurationOwner::Installer => Maker::Installer,
            },
            lifetimes: Lifetimes::default(),
            settle: SETTLE,
        }))
    }
}

/// Parses the address of this replica; the port may be left out.
fn address_of(option: &str, text: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let with_port = || text.parse().ok();
    let address = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, port)).ok();
    let address = address
        .or_else(with_port)
        .and_then(|address| peer_address(&address.to_string()));
    address.with_context(|| {
        format!("{option} {text} must be an IP address of this machine, such as 10.0.0.7, and may have a port, such as 10.0.0.7:9443")
    })
}

/// Parses the name of a ClusterRole, which may have more characters than the names of most objects.
fn cluster_role(name: &str) -> Result<String, String> {
    let is_name = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte));
    if is_name {
        return Ok(name.to_owned());
    }
    Err("give the name of a ClusterRole: letters, digits, '-', '.', '_' and ':'".to_owned())
}

fn url_of(url: &str) -> anyhow::Result<Endpoint> {
    let rest = url.strip_prefix("https://").with_context(|| {
        format!("--webhook-url {url} must begin with https://, because API servers ask nobody else")
    })?;
    let authority = rest.split('/').next().unwrap_or_default();
    // An IPv6 address has colons of its own.
    let port = authority
        .rsplit_once(':')
        .map(|(_, port)| port)
        .filter(|port| !port.ends_with(']'));
    ensure!(
        port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0)),
        "--webhook-url {url} has a port that is none: it is a number from 1 to 65535"
    );
    ensure!(
        !authority.is_empty() && !rest.contains(['?', '#', '@', ' ']),
        "--webhook-url {url} must be like https://HOST:PORT"
    );
    Ok(Endpoint::Url(url.trim_end_matches('/').to_owned()))
}

fn service_of(service: &str) -> anyhow::Result<Endpoint> {
    let (place, port) = match service.rsplit_once(':') {
        None => (service, SERVICE_PORT),
        Some((place, port)) => {
            let port = port
                .parse()
                .with_context(|| format!("--webhook-service {service} has a port that is none"))?;
            (place, port)
        }
    };
    let (namespace, name) = names("--webhook-service", place)?;
    Ok(Endpoint::Service { namespace, name, port })
}

fn names(option: &str, text: &str) -> anyhow::Result<(String, String)> {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.len() <= 253
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))
    };
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => Ok((namespace.to_owned(), name.to_owned())),
        _ => bail!("{option} {text} must be like NAMESPACE/NAME"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_to_be_one_that_api_servers_ask() {
        assert_eq!(
            url_of("https://10.0.0.1:9443/").unwrap(),
            Endpoint::Url("https://10.0.0.1:9443".to_owned())
        );
        assert!(url_of("https://[fd00::7]").is_ok());
        for url in [
            "http://a",
            "https://",
            "https://a?b",
            "https://u@a",
            "a:9443",
            "https://a:99999",
            "https://[::1]:0",
        ] {
            assert!(url_of(url).is_err(), "{url}");
        }
    }

    #[test]
    fn the_peer_address_has_the_servers_port_by_default() {
        let of = |text: &str| address_of("--webhook-peer-address", text, 9443);
        assert_eq!(of("10.0.0.7").unwrap().to_string(), "10.0.0.7:9443");
        assert_eq!(of("10.0.0.7:1").unwrap().to_string(), "10.0.0.7:1");
        assert_eq!(of("fd00::7").unwrap().to_string(), "[fd00::7]:9443");
        assert_eq!(of("[fd00::7]:1").unwrap().to_string(), "[fd00::7]:1");
        for text in ["", "host", "0.0.0.0", "10.0.0.7:0", "10.0.0.7:x"] {
            assert!(of(text).unwrap_err().to_string().contains("IP address"), "{text}");
        }
    }

    #[test]
    fn an_owner_is_the_name_of_a_cluster_role() {
        assert_eq!(cluster_role("harbour:host"), Ok("harbour:host".to_owned()));
        for name in ["", "a/b", "a%2Fb", "a b", "a?b"] {
            assert!(cluster_role(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_service_has_a_namespace_and_perhaps_a_port() {
        let service = |port| Endpoint::Service {
            namespace: "a".to_owned(),
            name: "b".to_owned(),
            port,
        };
        assert_eq!(service_of("a/b").unwrap(), service(443));
        assert_eq!(service_of("a/b:8443").unwrap(), service(8443));
        for text in ["b", "a/b:x", "a/", "/b", "A/b"] {
            assert!(service_of(text).is_err(), "{text}");
        }
    }
}
