//! Commands that query a host: `status`, `why`, `top` and `record`, and their common parts: choosing the host,
//! authenticating, and the form of the output. `local` queries a host on this machine, `replicas` merges the answers of
//! several replicas, `table` prints for people.

mod local;
pub mod record;
mod replicas;
pub mod status;
mod table;
pub mod top;
pub mod why;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use pilothouse_cluster::Client;
use pilothouse_cluster::connect::host_proxy;
use pilothouse_cluster::connect::host_proxy::{HostService, ProxiedAnswer};
use pilothouse_cluster::connect::{ClusterTarget, connect};
use pilothouse_cluster::resources::lease::LeaseApi;
use pilothouse_core::replicas::lease::LeaseRecord;
use pilothouse_runtime::api::AUDIENCE;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use self::local::LocalHost;
use self::replicas::{ReplicaDocument, Replies};
pub use self::table::{Screen, coloured};
use crate::options::identity::HOST_NAMESPACE;
use crate::run::{ClusterArguments, USER_AGENT};

/// Most requests until the leading replica answers: the Service picks any.
const TRIES: usize = 12;

/// Time in which all replicas of a sharded host have to answer, and timeout of one request.
const ALL_WITHIN: Duration = Duration::from_secs(15);
const ONE_WITHIN: Duration = Duration::from_secs(3);

/// The names of the Service and its port, unless they are given.
const SERVICE: &str = "pilothouse";
const PORT: &str = "api";

/// Which host is asked, as whom, and how the answer is printed.
#[derive(Args)]
pub struct HostArguments {
    #[command(flatten)]
    host: HostAddressArguments,

    /// The form of the output
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t = OutputForm::Table)]
    output: OutputForm,
}

/// Which host is asked, and as whom.
#[derive(Args)]
pub struct HostAddressArguments {
    /// Ask a host on this machine, http://127.0.0.1:PORT, with its --api-address (default: the host in the cluster)
    #[arg(long, value_name = "URL")]
    host: Option<LocalHost>,

    /// The file with the key of that host
    #[arg(long, value_name = "FILE", requires = "host")]
    api_key_file: Option<PathBuf>,

    /// The Service of the host in the cluster (default: pilothouse-system/pilothouse:api)
    #[arg(long, value_name = "NAMESPACE/NAME[:PORT]", conflicts_with = "host", value_parser = parse_service)]
    service: Option<HostService>,

    /// Ask as this ServiceAccount, with a token that is made for the question (default: the host's own account, which has
    /// the name of its Service, or, without the right to make tokens for it, the token of the kubeconfig)
    #[arg(long, value_name = "NAMESPACE/NAME", conflicts_with = "host", value_parser = parse_account)]
    account: Option<(String, String)>,

    #[command(flatten)]
    cluster: ClusterArguments,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputForm {
    /// For people.
    Table,
    /// The host's answer, as the page "API" of the documentation describes it.
    Json,
}

/// A host that can be queried.
pub struct AskedHost {
    way: Way,
    /// The namespace of the kubeconfig's context.
    pub namespace: String,
    /// The form of the output.
    pub output: OutputForm,
}

enum Way {
    Local(LocalHost, String),
    Proxy {
        client: Client,
        service: HostService,
        token: Option<String>,
    },
}

/// The API server could not reach the replica that the Service had picked.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unreachable(String);

/// A document as text and parsed.
pub struct Answer<T> {
    /// The text, as received.
    pub text: String,
    /// The parsed document.
    pub document: T,
}

impl HostArguments {
    /// Finds the host, and gets a token for it.
    pub async fn connect(self) -> anyhow::Result<AskedHost> {
        let Self { host, output } = self;
        host.connect(output).await
    }
}

impl HostAddressArguments {
    /// Finds the host, and gets a token for it.
    pub async fn connect(self, output: OutputForm) -> anyhow::Result<AskedHost> {
        let Self {
            host,
            api_key_file,
            service,
            account,
            cluster,
        } = self;
        if let Some(host) = host {
            let key = host.key(api_key_file)?;
            return Ok(AskedHost {
                way: Way::Local(host, key),
                namespace: "default".to_owned(),
                output,
            });
        }
        let target = cluster.target();
        let client = connect(&target, USER_AGENT).await?;
        let service = service.unwrap_or_else(|| HostService {
            namespace: HOST_NAMESPACE.to_owned(),
            name: SERVICE.to_owned(),
            port: PORT.to_owned(),
        });
        let token = token(&client, &target, &service, account).await?;
        Ok(AskedHost {
            namespace: client.default_namespace().to_owned(),
            way: Way::Proxy { client, service, token },
            output,
        })
    }
}

/// Returns a token to authenticate with. One that is made for the host is useless elsewhere if it leaks. The
/// kubeconfig's own, which is worth as much as its user, is only sent if the user may not have one made.
async fn token(
    client: &Client,
    target: &ClusterTarget,
    service: &HostService,
    account: Option<(String, String)>,
) -> anyhow::Result<Option<String>> {
    let is_asked_for = account.is_some();
    // The chart gives both the same name, unless its value serviceAccount.name says otherwise.
    let (namespace, name) = account.unwrap_or_else(|| (service.namespace.clone(), service.name.clone()));
    match host_proxy::token_for(client, &namespace, &name, AUDIENCE).await {
        Ok(token) => Ok(Some(token)),
        Err(error) if is_asked_for || !matches!(error.code(), Some(403 | 404)) => {
            Err(error).with_context(|| format!("cannot have a token made for the ServiceAccount {namespace}/{name}"))
        }
        Err(_) => Ok(host_proxy::own_token(target).await?),
    }
}

impl AskedHost {
    /// Gets a document, from the leading replica if there are several and it is reachable.
    pub async fn ask<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Answer<T>> {
        let mut text = self.ask_any(path).await?;
        for _ in 1..tries(&text) {
            if is_at_work(&text) {
                break;
            }
            text = self.ask_any(path).await?;
        }
        if !is_at_work(&text) {
            eprintln!(
                "warning: the replica that answered does not work at this, and has made no runs; the answer is about its caches only"
            );
        }
        let document = read(&text)?;
        Ok(Answer { text, document })
    }

    /// Gets a document from each live replica of a sharded host: the Service picks any of them, so requests are
    /// repeated until all have answered.
    pub async fn ask_all<T: ReplicaDocument>(&self, path: &str) -> anyhow::Result<Replies<T>> {
        let until = Instant::now() + ALL_WITHIN;
        let Answer { text, document } = self.ask(path).await?;
        let mut replies = Replies::new(text, document);
        if self.is_local() {
            return Ok(replies);
        }
        let mut asked = 1;
        while !replies.silent().is_empty() && asked < TRIES * replies.expected() {
            asked += 1;
            let Ok(answered) = timeout_at(until, timeout(ONE_WITHIN, self.ask_once(path))).await else {
                break;
            };
            // A replica that is shutting down, or has stopped and is still an endpoint of the Service, does not answer.
            if let Ok(Ok(text)) = answered {
                replies.take(read(&text)?);
            }
        }
        Ok(replies)
    }

    /// Gets a document from any replica that answers. The Service may still list stopped or starting replicas.
    async fn ask_any(&self, path: &str) -> anyhow::Result<String> {
        let until = Instant::now() + ALL_WITHIN;
        for _ in 1..TRIES {
            match timeout_at(until, self.ask_once(path)).await {
                Ok(Err(error)) if error.is::<Unreachable>() => {}
                Ok(answered) => return answered,
                Err(_) => break,
            }
        }
        match (self.ask_once(path).await, &self.way) {
            (Err(error), Way::Proxy { client, service, .. }) if error.is::<Unreachable>() => {
                let HostService { namespace, name, .. } = service;
                let lease = LeaseApi::new(client.clone(), namespace.clone(), name.clone(), ONE_WITHIN);
                let Ok(Some(live)) = lease.read().await else {
                    return Err(error);
                };
                let title = lease.title();
                bail!("{error}; {}", last_sign(&title, &live.record, Timestamp::now()))
            }
            (answered, _) => answered,
        }
    }

    async fn ask_once(&self, path: &str) -> anyhow::Result<String> {
        let answer = match &self.way {
            Way::Local(host, key) => {
                let (host, key, path) = (host.clone(), key.clone(), path.to_owned());
                tokio::task::spawn_blocking(move || host.get(&path, &key))
                    .await
                    .context("the question was lost")??
            }
            Way::Proxy { client, service, token } => host_proxy::ask(client, service, path, token.as_deref())
                .await
                .context("cannot ask the host through the API server")?,
        };
        match answer {
            ProxiedAnswer { code: 200, body } => Ok(body),
            answer @ ProxiedAnswer { code: 502..=504, .. } if !self.is_local() => {
                Err(Unreachable(self.refused(&answer)).into())
            }
            answer => bail!(self.refused(&answer)),
        }
    }

    fn is_local(&self) -> bool {
        matches!(self.way, Way::Local(..))
    }

    /// Returns the reason why there is no document.
    fn refused(&self, answer: &ProxiedAnswer) -> String {
        let ProxiedAnswer { code, body } = answer;
        let said: Value = serde_json::from_str(body).unwrap_or_default();
        if let Some(message) = said["error"]["message"].as_str() {
            return message.to_owned();
        }
        let message = said["message"].as_str().unwrap_or(body).trim();
        let Way::Proxy { service, token, .. } = &self.way else {
            return format!("{message:?} was answered with the code {code}; is this the address of a host's API?");
        };
        let HostService { namespace, name, port } = service;
        let next = match code {
            404 => format!(
                "is the host in namespace {namespace}? name its Service with --service, or, for a host on this machine, its \
                 address with --host"
            ),
            403 => {
                format!("ask for the right to get services/proxy named https:{name}:{port} in namespace {namespace}")
            }
            401 if token.is_none() => {
                "the kubeconfig has no token that the host could be shown; name a ServiceAccount with \
                                       --account for which you may create tokens"
                    .to_owned()
            }
            502..=504 => format!(
                "does the host run? look at the pods behind the Service {name} in namespace {namespace}, and at whether its \
                 port {port} is the one of --api-address"
            ),
            _ => "look at the log of the host and of the API server".to_owned(),
        };
        format!("{message} (code {code}); {next}")
    }
}

/// Describes what the Lease of a host that does not answer tells of its replicas.
fn last_sign(lease: &str, record: &LeaseRecord, now: Timestamp) -> String {
    let holder = &record.holder;
    if holder.is_empty() {
        return format!(
            "the Lease {lease} has no holder: the last replica has ended in order, and nothing is reconciled"
        );
    }
    let renewed = record.renewed.as_deref().unwrap_or_default();
    let duration = SignedDuration::from_secs(record.duration_seconds.into());
    match renewed.parse::<Timestamp>() {
        Ok(at) if at + duration < now => format!(
            "the replica {holder} renewed the Lease {lease} last at {renewed}, and has died or cannot reach the API server: nothing is \
             reconciled"
        ),
        _ => format!("the replica {holder} lives, by the Lease {lease}"),
    }
}

fn read<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    serde_json::from_str(text).context(
        "the answer is no document of this version of the API; is this another program, or a host of another version?",
    )
}

/// Reports whether the replica that answered is responsible for the object. Invalid answers are not requested again.
fn is_at_work(text: &str) -> bool {
    let said: Value = serde_json::from_str(text).unwrap_or_default();
    match &said["reconciledHere"] {
        Value::Bool(here) => *here || said["exists"] == false,
        _ => said["host"]["isLeading"] != false || said["host"]["shardsHeld"].is_u64(),
    }
}

/// Returns the most requests for an object until the responsible replica answers.
fn tries(text: &str) -> usize {
    let said: Value = serde_json::from_str(text).unwrap_or_default();
    let replicas = said["host"]["replicas"].as_array().map_or(1, Vec::len);
    TRIES * replicas.max(1)
}

/// Runs a command that queries a host.
pub fn run(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the threads of the command")?;
    runtime.block_on(command)
}

fn parse_service(text: &str) -> Result<HostService, String> {
    let (place, port) = text.rsplit_once(':').unwrap_or((text, PORT));
    let (namespace, name) = parse_account(place)?;
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    let is_port = if is_number {
        port.parse::<u16>().is_ok_and(|port| port > 0)
    } else {
        port.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    if !is_port {
        return Err(format!("{port:?} is neither the name nor the number of a port"));
    }
    Ok(HostService {
        namespace,
        name,
        port: port.to_owned(),
    })
}

fn parse_account(text: &str) -> Result<(String, String), String> {
    let is_name = |name: &str| pilothouse_core::plugin::manifest::is_subdomain(name);
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => Ok((namespace.to_owned(), name.to_owned())),
        _ => Err("it is not like NAMESPACE/NAME".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_tells_whether_the_last_replica_ended_died_or_lives() {
        let record = |holder: &str| LeaseRecord {
            holder: holder.to_owned(),
            duration_seconds: 15,
            renewed: Some("2026-01-01T10:00:00.000000Z".to_owned()),
            ..LeaseRecord::default()
        };
        let at = |now: &str, holder: &str| last_sign("system/pilothouse", &record(holder), now.parse().unwrap());
        assert!(at("2026-01-01T10:00:01Z", "").contains("has no holder: the last replica has ended in order"));
        assert!(at("2026-01-01T10:00:14Z", "one_1").starts_with("the replica one_1 lives"));
        assert!(at("2026-01-01T10:00:16Z", "one_1").contains("last at 2026-01-01T10:00:00.000000Z, and has died"));
    }

    #[test]
    fn a_service_is_named_with_its_namespace_and_perhaps_its_port() {
        let service = |port: &str| HostService {
            namespace: "a".to_owned(),
            name: "b".to_owned(),
            port: port.to_owned(),
        };
        assert_eq!(parse_service("a/b"), Ok(service("api")));
        assert_eq!(parse_service("a/b:8443"), Ok(service("8443")));
        for refused in [
            "b",
            "a/b:",
            "a/b:x/y",
            "a/B",
            "/b",
            "a/",
            "a/b/c",
            "a/b?c:1",
            "a/b:99999",
            "a/b:0",
        ] {
            assert!(parse_service(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_replica_that_stands_by_says_so() {
        assert!(!is_at_work(r#"{"host": {"isLeading": false}}"#));
        assert!(is_at_work(r#"{"host": {"isLeading": true}}"#));
        assert!(
            is_at_work(r#"{"host": {"isLeading": false, "shardsHeld": 0}}"#),
            "replicas with shards are all at work"
        );
        let with = |here: bool| {
            format!(
                r#"{{"host": {{"isLeading": {}}}, "exists": true, "reconciledHere": {here}}}"#,
                !here
            )
        };
        assert!(
            is_at_work(&with(true)) && !is_at_work(&with(false)),
            "shards have no leader"
        );
        assert!(is_at_work("no JSON"));
    }
}
