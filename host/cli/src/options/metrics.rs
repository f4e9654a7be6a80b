//! Serves metrics and health: the option, its default, and binding the address before anything else is done.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use pilothouse_metrics::Metrics;
use pilothouse_runtime::{EndpointServer, Endpoints, Heartbeat};

use crate::options::settings;

/// Default address of a host in a pod: kubelet and Prometheus connect from outside of it.
const IN_A_POD: MetricsAddress = MetricsAddress::AllAddresses(8080);

/// The option about metrics and health.
#[derive(Args)]
pub struct MetricsArguments {
    /// The address that serves /metrics, /livez and /readyz over plain HTTP: IP:PORT, :PORT for all addresses, or off
    /// (default: :8080 in a pod, else off)
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    metrics_address: Option<MetricsAddress>,
}

/// Address of metrics and health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsAddress {
    /// None: they are not served.
    Off,
    /// One address.
    At(SocketAddr),
    /// A port of all addresses.
    AllAddresses(u16),
}

/// Parses an address as Go programs accept it.
pub fn parse_address(text: &str) -> Result<MetricsAddress, String> {
    let address = match text.strip_prefix(':') {
        _ if matches!(text, "" | "off") => Some(MetricsAddress::Off),
        Some(port) => port.parse().ok().map(MetricsAddress::AllAddresses),
        None => text.parse().ok().map(MetricsAddress::At),
    };
    address.ok_or_else(|| "it is neither IP:PORT, as in 127.0.0.1:8080 or [::1]:8080, nor :PORT, nor off".to_owned())
}

impl std::fmt::Display for MetricsAddress {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Off => formatter.write_str("off"),
            Self::At(address) => address.fmt(formatter),
            Self::AllAddresses(port) => write!(formatter, ":{port}"),
        }
    }
}

/// Metrics of a host, and their server.
pub struct Monitoring {
    /// The metrics.
    pub metrics: Metrics,
    /// The heartbeat of the main loop; none if no server reports it.
    pub heartbeat: Option<Heartbeat>,
    /// The endpoints; the host is set when it exists.
    pub endpoints: Arc<Endpoints>,
    /// The server; it stops when this is dropped.
    pub server: Option<EndpointServer>,
}

impl MetricsArguments {
    /// Starts the server. An address that cannot be used is an error.
    pub fn serve(self) -> anyhow::Result<Monitoring> {
        let (metrics, heartbeat) = (Metrics::default(), Heartbeat::default());
        let version = env!("CARGO_PKG_VERSION");
        let endpoints = Arc::new(Endpoints::new(version, metrics.clone(), heartbeat.clone()));
        let address = self
            .metrics_address
            .unwrap_or_else(|| default_address(settings::is_in_a_pod()));
        let server = match bind(address) {
            Ok(None) => None,
            Ok(Some(listener)) => {
                Some(EndpointServer::start(listener, endpoints.clone()).context("cannot serve metrics")?)
            }
            Err(error) => {
                let next = "give another address with --metrics-address, or --metrics-address off";
                anyhow::bail!("cannot serve metrics and health on {address}: {error}; {next}");
            }
        };
        if let Some(server) = &server {
            tracing::info!(address = %server.address(), "serving /metrics, /livez and /readyz");
        }
        Ok(Monitoring {
            metrics,
            heartbeat: server.is_some().then_some(heartbeat),
            endpoints,
            server,
        })
    }
}

fn default_address(is_in_a_pod: bool) -> MetricsAddress {
    if is_in_a_pod { IN_A_POD } else { MetricsAddress::Off }
}

/// Listens at an address; none if that is off.
pub fn bind(address: MetricsAddress) -> io::Result<Option<TcpListener>> {
    let listener = match address {
        MetricsAddress::Off => return Ok(None),
        MetricsAddress::At(address) => TcpListener::bind(address)?,
        // An IPv6 socket accepts IPv4, too. A kernel without IPv6 has none.
        MetricsAddress::AllAddresses(port) => match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)) {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?,
            bound => bound?,
        },
    };
    Ok(Some(listener))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_given_as_go_programs_take_it() {
        let read = |text: &str| parse_address(text).ok();
        assert_eq!(read("off"), Some(MetricsAddress::Off));
        assert_eq!(read(""), Some(MetricsAddress::Off));
        assert_eq!(read(":8080"), Some(MetricsAddress::AllAddresses(8080)));
        for address in ["127.0.0.1:8080", "[::1]:80"] {
            assert_eq!(read(address).map(|read| read.to_string()).as_deref(), Some(address));
        }
        for problem in ["8080", "localhost:8080", ":", ":99999", "::1:80", "127.0.0.1"] {
            assert_eq!(read(problem), None, "{problem}");
        }
    }

    #[test]
    fn only_a_host_in_a_pod_serves_without_being_told() {
        assert_eq!(default_address(true), MetricsAddress::AllAddresses(8080));
        assert_eq!(default_address(false), MetricsAddress::Off);
    }

    #[test]
    fn all_addresses_are_those_of_both_families() {
        let listener = bind(MetricsAddress::AllAddresses(0)).unwrap().unwrap();
        let port = listener.local_addr().unwrap().port();
        std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        assert_eq!(
            bind(MetricsAddress::AllAddresses(port)).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
    }
}
