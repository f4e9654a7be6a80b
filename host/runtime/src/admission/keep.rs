//! Maintains the webhooks: the certificates in their Secret, renewed in time, and the webhook objects of the plugins
//! that run. A request is made when something is due, when the lanes change, and once an hour.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pilothouse_cluster::Client;
use pilothouse_cluster::error::RequestError;
use pilothouse_cluster::resources::webhooks;
use pilothouse_cluster::resources::webhooks::{CaBundleUpdate, Made, SecretWrite, WebhookConfiguration, WebhookKind};
use pilothouse_core::admission::configuration::{HOST_LABEL, configuration_name, owner_reference};
use pilothouse_metrics::ServedCertificate;
use pilothouse_webhook::certificates::{CertificateError, Certificates};
use pilothouse_webhook::clients::{ClientAuthorities, ClientAuthoritiesError};
use pilothouse_webhook::peers::PeerClient;
use pilothouse_webhook::server::WebhookServer;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::answer::AdmissionHandler;
use super::hooks::{PluginWebhooks, plugin_webhooks};
use super::secret;
use super::{Maker, WebhookOptions};
use crate::context::HostContext;
use crate::plugins::PluginRegistry;
use crate::plugins::resource::state::ConditionState;

/// Interval at which the lanes are compared with the last round; this makes no request.
const GLANCE: Duration = Duration::from_secs(1);

/// Time until everything is checked again: others may have changed it.
const LOOK: Duration = Duration::from_hours(1);

/// Bounds of the wait between two attempts.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Number of times that the Secret is read again because another host was faster.
const MAX_OVERTAKEN: usize = 10;

/// Time limit for reading the file with the client authorities: it may be on a disk that hangs.
const FILE_TIMEOUT: Duration = Duration::from_secs(5);

/// Reason of the condition if another host answers.
const TAKEN: &str = "WebhooksTaken";

/// Reason why the webhooks are not as they should be.
#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error(
        "cannot keep the certificates in the Secret {place}: {source}; make its namespace, grant the access, or choose another with --webhook-secret"
    )]
    Secret { place: String, source: RequestError },
    #[error("cannot keep the certificates in the Secret {0}: other hosts change it all the time")]
    Overtaken(String),
    #[error(transparent)]
    NotOurs(#[from] secret::NotOurs),
    #[error("cannot use the client authorities in {file}, --webhook-client-ca: {problem}", file = file.display())]
    Clients { file: PathBuf, problem: String },
    #[error("cannot make API servers ask plugin {plugin}: {source}")]
    Ask { plugin: Arc<str>, source: RequestError },
    #[error(
        "{asking:?} {name}, which an installer is to make, {problem}; apply what `pilothouse webhooks` prints, or choose --webhook-configurations host"
    )]
    InstallerObject {
        asking: WebhookKind,
        name: String,
        problem: &'static str,
    },
    #[error(
        "{resource}/{name} has API servers ask another host about plugin {plugin}, the one that keeps the Secret {host} \
         (namespace.name), and is left as it is; give both hosts the same --webhook-secret if they are one, or one of the \
         plugins another name; if that host is gone, delete its Secret, or run: kubectl label {resource}/{name} {HOST_LABEL}-"
    )]
    Taken {
        plugin: Arc<str>,
        resource: &'static str,
        name: String,
        host: String,
    },
    #[error(
        "cannot read the ClusterRole {name}, which is to own the webhook configurations: {problem}; until then they are made \
         without an owner, and stay when the ClusterRole is deleted; grant get on it, or correct --webhook-owner"
    )]
    Owner { name: String, problem: String },
    #[error("cannot remove what asks plugins that are gone: {0}")]
    Remove(RequestError),
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    #[error("cannot listen for API servers at {address}: {source}; choose another with --webhook-listen")]
    Listen {
        address: std::net::SocketAddr,
        source: std::io::Error,
    },
}

/// Serves webhooks and maintains their objects, until it is dropped.
pub async fn keep(client: Client, host: Arc<HostContext>, registry: Arc<PluginRegistry>, options: WebhookOptions) {
    let mut keeper = Keeper {
        client,
        host,
        registry,
        options,
        served: None,
        bundle: None,
    };
    let (mut wait, mut said) = (FIRST_WAIT, None);
    loop {
        let seen = keeper.seen();
        match keeper.round().await {
            Ok(due) => {
                if said.take().is_some() {
                    tracing::info!("the webhooks have recovered");
                }
                wait = FIRST_WAIT;
                keeper.idle(&seen, due).await;
            }
            Err(error) => {
                let problem = error.to_string();
                // Replicas that do not lead serve webhooks, too; the leader writes the webhook objects.
                if keeper.host.leadership.leads() && said.as_ref() != Some(&problem) {
                    tracing::warn!("the webhooks are not ready: {problem}; retrying");
                    said = Some(problem);
                }
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
        }
    }
}

struct Keeper {
    client: Client,
    host: Arc<HostContext>,
    registry: Arc<PluginRegistry>,
    options: WebhookOptions,
    /// The server and its certificates.
    served: Option<ServingWebhooks>,
    /// The bundle in all webhook objects, and since when.
    bundle: Option<(String, Instant)>,
}

/// Inputs of the objects in the cluster.
#[derive(PartialEq)]
struct WebhookInputs {
    lanes: Vec<String>,
    expected: Option<Arc<BTreeSet<Arc<str>>>>,
}

struct ServingWebhooks {
    tls: watch::Sender<Arc<pilothouse_webhook::ServerConfig>>,
    peers: watch::Sender<Arc<PeerClient>>,
    certificates: Certificates,
    clients: Option<ClientAuthorities>,
    _server: WebhookServer,
}

impl Keeper {
    /// Checks everything once. Returns when the next check is due.
    async fn round(&mut self) -> Result<SystemTime, KeepError> {
        let certificates = self.certificates().await?;
        let clients = self.clients().await?;
        self.serve(&certificates, clients)?;
        self.report_ends(&certificates);
        let mut wanted = plugin_webhooks(&self.host.state.lanes(), &self.options, &certificates.bundle);
        let owner = self.owner().await;
        if let Ok(Some(owner)) = &owner {
            for webhooks in wanted.values_mut() {
                webhooks.set_owner(owner);
            }
        }
        let (mut problem, mut later) = (None, owner.err());
        for (plugin, PluginWebhooks { objects, .. }) in &wanted {
            // A problem of one plugin does not affect the others.
            let made = self.make(plugin, objects).await;
            self.registry.warn(plugin, made.as_ref().err().and_then(taken));
            if let Err(error) = made {
                let is_anothers = matches!(error, KeepError::Taken { .. });
                let first = if is_anothers { &mut later } else { &mut problem };
                first.get_or_insert(error);
            }
        }
        if let Some(error) = problem {
            return Err(error);
        }
        if self.options.maker == Maker::Host {
            self.remove_strays(&wanted).await.map_err(KeepError::Remove)?;
        }
        let due = certificates.due();
        if self
            .bundle
            .as_ref()
            .is_none_or(|(bundle, _)| *bundle != certificates.bundle)
        {
            self.bundle = Some((certificates.bundle, Instant::now()));
        }
        // Objects of another host trust another bundle: a new authority does not wait for them, nor for an owner.
        later.map_or(Ok(due), Err)
    }

    /// The owner of the configurations, if one is configured: it is read each time, because it may have been recreated.
    async fn owner(&self) -> Result<Option<Value>, KeepError> {
        let Some(name) = &self.options.owner else {
            return Ok(None);
        };
        let failed = |problem: String| KeepError::Owner {
            name: name.clone(),
            problem,
        };
        match webhooks::uid_of_cluster_role(&self.client, name).await {
            Ok(Some(uid)) => Ok(Some(owner_reference(name, &uid))),
            Ok(None) => Err(failed("it is not there".to_owned())),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Writes the webhook objects of one plugin.
    async fn make(&self, plugin: &Arc<str>, objects: &[(WebhookKind, Value)]) -> Result<(), KeepError> {
        for (asking, object) in objects {
            let done = match self.options.maker {
                Maker::Host => match webhooks::ensure(&self.client, *asking, object).await {
                    Ok(Made::Anothers(host)) => {
                        return Err(KeepError::Taken {
                            plugin: plugin.clone(),
                            resource: asking.resource(),
                            name: name_of(object),
                            host,
                        });
                    }
                    made => made.map(|made| made == Made::Now),
                },
                Maker::Installer => match webhooks::update_ca_bundle(&self.client, *asking, object).await {
                    Ok(CaBundleUpdate::Missing) => return Err(installer_error(*asking, object, "is not there")),
                    Ok(CaBundleUpdate::Differs) => {
                        return Err(installer_error(
                            *asking,
                            object,
                            "asks for something else than the host answers",
                        ));
                    }
                    vouched => vouched.map(|vouched| vouched == CaBundleUpdate::Now),
                },
            };
            let wrote = done.map_err(|source| KeepError::Ask {
                plugin: plugin.clone(),
                source,
            })?;
            if wrote {
                tracing::info!(
                    plugin = &**plugin,
                    ?asking,
                    "the webhook configurations of the plugin are applied"
                );
            }
        }
        Ok(())
    }

    fn report_ends(&self, certificates: &Certificates) {
        let Some((server, authority)) = certificates.ends() else {
            return;
        };
        for (certificate, until) in [
            (ServedCertificate::Server, server),
            (ServedCertificate::Authority, authority),
        ] {
            let until = until.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            self.host.metrics.reviews().serves(certificate, until);
        }
    }

    /// Returns the current certificates, the same in every process of this host, and renews them if due.
    async fn certificates(&self) -> Result<Certificates, KeepError> {
        let WebhookOptions {
            secret,
            lifetimes,
            endpoint,
            ..
        } = &self.options;
        let place = || format!("{}/{}", secret.namespace, secret.name);
        let failed = |source| KeepError::Secret { place: place(), source };
        let names = endpoint.names();
        for _ in 0..MAX_OVERTAKEN {
            let kept = webhooks::read_secret(&self.client, secret).await.map_err(failed)?;
            let now = self.now();
            if let Some(kept) = &kept {
                secret::check(secret, kept)?;
            }
            let found = kept.as_ref().and_then(secret::certificates_in);
            let renewed = match &found {
                None => Some(Certificates::make(&names, now, lifetimes)?),
                Some(found) => found.renewed(&names, now, lifetimes, self.is_trusted(found))?,
            };
            let renewed = match (renewed, found) {
                (Some(renewed), _) => renewed,
                (None, Some(found)) if kept.as_ref().is_some_and(|kept| secret::is_labelled(secret, kept)) => {
                    return Ok(found);
                }
                // An earlier version made it without the label, which shows whose it is.
                (None, Some(found)) => found,
                (None, None) => unreachable!("where nothing was found, something was made"),
            };
            let texts = secret::texts_of(&renewed);
            let written = webhooks::write_secret(&self.client, secret, secret::label(secret), texts, kept.as_ref());
            match written.await.map_err(failed)? {
                SecretWrite::Done(_) => {
                    tracing::info!(secret = place(), "the webhook server's certificates are renewed");
                    return Ok(renewed);
                }
                SecretWrite::Overtaken => {}
            }
        }
        Err(KeepError::Overtaken(place()))
    }

    /// Returns `true` if API servers have had time to trust the whole bundle.
    fn is_trusted(&self, certificates: &Certificates) -> bool {
        self.bundle
            .as_ref()
            .is_some_and(|(bundle, since)| *bundle == certificates.bundle && since.elapsed() >= self.options.settle)
    }

    /// Reads the client authorities from their file, which may be renewed.
    async fn clients(&self) -> Result<Option<ClientAuthorities>, KeepError> {
        let Some(file) = &self.options.client_ca else {
            return Ok(None);
        };
        let failed = |problem: String| KeepError::Clients {
            file: file.clone(),
            problem,
        };
        let path = file.clone();
        let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(path));
        let text = match tokio::time::timeout(FILE_TIMEOUT, read).await {
            Ok(Ok(Ok(text))) => text,
            Ok(Ok(Err(error))) => return Err(failed(error.to_string())),
            Ok(Err(error)) => return Err(failed(error.to_string())),
            Err(_) => return Err(failed(format!("it could not be read within {FILE_TIMEOUT:?}"))),
        };
        let authorities = ClientAuthorities::parse(&text);
        authorities
            .map(Some)
            .map_err(|error: ClientAuthoritiesError| failed(error.to_string()))
    }

    fn serve(&mut self, certificates: &Certificates, clients: Option<ClientAuthorities>) -> Result<(), KeepError> {
        let config = || certificates.server_config_for(clients.as_ref());
        let peer_client = || {
            let names = self.options.endpoint.names();
            let name = names.first().map(String::as_str).unwrap_or_default();
            PeerClient::new(certificates, name).map(Arc::new)
        };
        if let Some(served) = &mut self.served {
            if served.certificates != *certificates || served.clients != clients {
                served.tls.send_replace(config()?);
                served.peers.send_replace(peer_client()?);
                served.certificates = certificates.clone();
                served.clients = clients;
            }
            return Ok(());
        }
        let address = self.options.listen;
        let (tls, shown) = watch::channel(config()?);
        let (peers, asked) = watch::channel(peer_client()?);
        let answering = AdmissionHandler::new(self.host.clone(), self.registry.clone(), asked, clients.is_some());
        let answering = Arc::new(answering);
        let server =
            WebhookServer::start(address, shown, answering).map_err(|source| KeepError::Listen { address, source })?;
        tracing::info!(address = %server.address(), "webhooks are served");
        self.host.waits_for_webhooks.store(false, Ordering::Relaxed);
        self.served = Some(ServingWebhooks {
            tls,
            peers,
            certificates: certificates.clone(),
            clients,
            _server: server,
        });
        Ok(())
    }

    /// Removes configurations of plugins that are no longer desired, and those that a running plugin no longer answers.
    /// Configurations of a plugin that starts, is suspended or was stopped stay: their failure policy decides
    /// meanwhile, and no object is stored without review because the plugin was away for a moment.
    async fn remove_strays(&self, wanted: &BTreeMap<Arc<str>, PluginWebhooks>) -> Result<(), RequestError> {
        let Some(expected) = self.registry.expected() else {
            return Ok(());
        };
        if self.options.has_unknown_plugins {
            return Ok(());
        }
        let selector = format!("{HOST_LABEL}={}", self.options.secret.label());
        for asking in [WebhookKind::Mutating, WebhookKind::Validating] {
            for WebhookConfiguration { name, .. } in webhooks::list(&self.client, asking, &selector).await? {
                let by_name = |plugin: &&Arc<str>| configuration_name(plugin) == name;
                let stays = match wanted.iter().find(|(plugin, _)| by_name(plugin)) {
                    Some((_, wanted)) => !wanted.is_all || wanted.objects.iter().any(|(it, _)| *it == asking),
                    None => expected.iter().any(|plugin| by_name(&plugin)),
                };
                if !stays {
                    webhooks::remove(&self.client, asking, &name).await?;
                    tracing::info!(
                        name,
                        ?asking,
                        "deleted a webhook configuration of a plugin that is gone"
                    );
                }
            }
        }
        Ok(())
    }

    /// Waits until a check is due.
    async fn idle(&self, seen: &WebhookInputs, due: SystemTime) {
        let began = Instant::now();
        loop {
            tokio::time::sleep(GLANCE).await;
            let settled = self.bundle.as_ref().is_some_and(|(_, since)| {
                *since + self.options.settle > began && since.elapsed() >= self.options.settle
            });
            if settled
                || began.elapsed() >= LOOK
                || self.now() >= due && began.elapsed() >= self.options.settle
                || self.seen() != *seen
            {
                return;
            }
        }
    }

    /// Inputs of the objects in the cluster, as far as they can change.
    fn seen(&self) -> WebhookInputs {
        let lanes = self.host.state.lanes();
        let known = lanes.iter().map(|lane| {
            let served = lane.served(lane.grants.primary()).is_some();
            let access = &lane.access;
            let asked = (access.is_unreviewed(), access.defaults(), access.validates());
            let (title, digest) = (lane.title(), lane.component.digest());
            format!("{title} {digest} {:?} {served} {asked:?}", lane.mode)
        });
        WebhookInputs {
            lanes: known.collect(),
            expected: self.registry.expected(),
        }
    }

    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.host.clock.now())
    }
}

fn installer_error(asking: WebhookKind, object: &Value, problem: &'static str) -> KeepError {
    KeepError::InstallerObject {
        asking,
        name: name_of(object),
        problem,
    }
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Condition of a plugin whose webhooks another host answers.
fn taken(error: &KeepError) -> Option<ConditionState> {
    matches!(error, KeepError::Taken { .. }).then(|| ConditionState {
        holds: Some(false),
        reason: TAKEN,
        message: error.to_string(),
    })
}
