//! Owns keeping the webhooks alive: the certificates in their Secret, renewed in time, and the objects that make API
//! servers ask, as plugins come and go. A request is made when something is due, when the lanes change, and once an hour.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pilothouse_cluster::Client;
use pilothouse_cluster::error::RequestError;
use pilothouse_cluster::webhooks::{self, Asking, Kept, Vouched, Written};
use pilothouse_core::admission::configuration::{HOST_LABEL, configuration_name};
use pilothouse_webhook::certificates::{CertificateError, Certificates};
use pilothouse_webhook::server::Server;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::answer::Answering;
use super::hooks::{Wanted, wanted};
use super::{Judged, Maker, WebhookOptions};
use crate::hub::Hub;

/// How often the lanes are compared with those for which everything was made; this makes no request.
const GLANCE: Duration = Duration::from_secs(1);

/// How long until everything is looked at again: somebody may have changed it.
const LOOK: Duration = Duration::from_hours(1);

/// The waits between two attempts.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How often the Secret is read again because another host was faster.
const MAX_OVERTAKEN: usize = 10;

/// The keys of the Secret; the first two are those of every Secret of its type.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const BUNDLE: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";

/// Why the webhooks are not as they should be.
#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error(
        "cannot keep the certificates in the Secret {place}: {source}; make its namespace, grant the access, or choose another with --webhook-secret"
    )]
    Secret { place: String, source: RequestError },
    #[error("cannot keep the certificates in the Secret {0}: other hosts change it all the time")]
    Overtaken(String),
    #[error("cannot make API servers ask plugin {plugin}: {source}")]
    Ask { plugin: Arc<str>, source: RequestError },
    #[error(
        "{asking:?} {name}, which an installer is to make, {problem}; apply what `pilothouse webhooks` prints, or choose --webhook-configurations host"
    )]
    Given {
        asking: Asking,
        name: String,
        problem: &'static str,
    },
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

/// Serves webhooks, and keeps all that they need, until it is dropped.
pub async fn keep(client: Client, hub: Arc<Hub>, options: WebhookOptions) {
    let mut keeper = Keeper {
        client,
        hub,
        options,
        served: None,
        bundle: None,
    };
    let (mut wait, mut said) = (FIRST_WAIT, None);
    loop {
        let lanes = keeper.lanes();
        match keeper.round().await {
            Ok(due) => {
                if said.take().is_some() {
                    tracing::info!("webhooks are as they should be again");
                }
                wait = FIRST_WAIT;
                keeper.idle(&lanes, due).await;
            }
            Err(error) => {
                let problem = error.to_string();
                if said.as_ref() != Some(&problem) {
                    tracing::warn!("webhooks are not in place: {problem}; it is tried again");
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
    hub: Arc<Hub>,
    options: WebhookOptions,
    /// The server, and what it shows.
    served: Option<Served>,
    /// The bundle that everything has, and since when.
    bundle: Option<(String, Instant)>,
}

struct Served {
    tls: watch::Sender<Arc<pilothouse_webhook::ServerConfig>>,
    certificates: Certificates,
    _server: Server,
}

impl Keeper {
    /// One look at everything; says when the next is due.
    async fn round(&mut self) -> Result<SystemTime, KeepError> {
        let certificates = self.certificates().await?;
        self.serve(&certificates)?;
        let wanted = wanted(&self.hub.lanes(), &self.options, &certificates.bundle);
        let (mut judged, mut missing) = (BTreeSet::new(), None);
        for (plugin, Wanted { objects, judged: lanes }) in &wanted {
            match self.make(plugin, objects).await {
                Ok(()) => judged.extend(lanes.iter().copied()),
                // Until it is there, the plugin's objects are judged before they are reconciled; others need not wait.
                Err(error @ KeepError::Given { .. }) => missing = missing.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        *self.hub.judged.write() = Judged {
            lanes: judged,
            own_namespace: self.options.own_namespace.clone(),
        };
        if let Some(error) = missing {
            return Err(error);
        }
        if self.options.maker == Maker::Host {
            self.remove_what_is_left(&wanted).await.map_err(KeepError::Remove)?;
        }
        let due = certificates.due();
        if self
            .bundle
            .as_ref()
            .is_none_or(|(bundle, _)| *bundle != certificates.bundle)
        {
            self.bundle = Some((certificates.bundle, Instant::now()));
        }
        Ok(due)
    }

    /// Has API servers ask one plugin.
    async fn make(&self, plugin: &Arc<str>, objects: &[(Asking, Value)]) -> Result<(), KeepError> {
        for (asking, object) in objects {
            let done = match self.options.maker {
                Maker::Host => webhooks::ensure(&self.client, *asking, object).await,
                Maker::Installer => match webhooks::vouch(&self.client, *asking, object).await {
                    Ok(Vouched::Missing) => return Err(given(*asking, object, "is not there")),
                    Ok(Vouched::Differs) => {
                        return Err(given(*asking, object, "asks for something else than the host answers"));
                    }
                    vouched => vouched.map(|vouched| vouched == Vouched::Now),
                },
            };
            let wrote = done.map_err(|source| KeepError::Ask {
                plugin: plugin.clone(),
                source,
            })?;
            if wrote {
                tracing::info!(plugin = &**plugin, ?asking, "API servers ask the plugin");
            }
        }
        Ok(())
    }

    /// The certificates as they have to be now, the same in every process of this host.
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
            let found = kept.as_ref().and_then(certificates_in);
            let renewed = match &found {
                None => Some(Certificates::make(&names, now, lifetimes)?),
                Some(found) => found.renewed(&names, now, lifetimes, self.is_trusted(found))?,
            };
            let Some(renewed) = renewed else {
                return Ok(found.expect("what needs no renewal was found"));
            };
            let written = webhooks::write_secret(&self.client, secret, texts_of(&renewed), kept.as_ref());
            match written.await.map_err(failed)? {
                Written::Done(_) => {
                    tracing::info!(secret = place(), "the webhook server's certificates are renewed");
                    return Ok(renewed);
                }
                Written::Overtaken => {}
            }
        }
        Err(KeepError::Overtaken(place()))
    }

    /// Whether API servers have had time to trust the whole bundle.
    fn is_trusted(&self, certificates: &Certificates) -> bool {
        self.bundle
            .as_ref()
            .is_some_and(|(bundle, since)| *bundle == certificates.bundle && since.elapsed() >= self.options.settle)
    }

    fn serve(&mut self, certificates: &Certificates) -> Result<(), KeepError> {
        if let Some(served) = &mut self.served {
            if served.certificates != *certificates {
                served.tls.send_replace(certificates.server_config()?);
                served.certificates = certificates.clone();
            }
            return Ok(());
        }
        let address = self.options.listen;
        let (tls, shown) = watch::channel(certificates.server_config()?);
        let answering = Arc::new(Answering::new(self.hub.clone()));
        let server =
            Server::start(address, shown, answering).map_err(|source| KeepError::Listen { address, source })?;
        tracing::info!(address = %server.address(), "webhooks are served");
        self.served = Some(Served {
            tls,
            certificates: certificates.clone(),
            _server: server,
        });
        Ok(())
    }

    /// Nobody would answer for a plugin that is gone.
    async fn remove_what_is_left(&self, wanted: &BTreeMap<Arc<str>, Wanted>) -> Result<(), RequestError> {
        let selector = format!("{HOST_LABEL}={}", self.options.secret.label());
        for asking in [Asking::Mutating, Asking::Validating] {
            for name in webhooks::list(&self.client, asking, &selector).await? {
                let is_wanted = wanted.iter().any(|(plugin, wanted)| {
                    configuration_name(plugin) == name && wanted.objects.iter().any(|(it, _)| *it == asking)
                });
                // A plugin whose kind is not served yet is here, and is going to be asked again.
                let is_here = wanted.keys().any(|plugin| configuration_name(plugin) == name);
                if !is_wanted && !is_here {
                    webhooks::remove(&self.client, asking, &name).await?;
                    tracing::info!(name, ?asking, "removed what asks a plugin that is gone");
                }
            }
        }
        Ok(())
    }

    /// Waits until something is due.
    async fn idle(&self, lanes: &[String], due: SystemTime) {
        let began = Instant::now();
        loop {
            tokio::time::sleep(GLANCE).await;
            let settled = self.bundle.as_ref().is_some_and(|(_, since)| {
                *since + self.options.settle > began && since.elapsed() >= self.options.settle
            });
            if settled
                || began.elapsed() >= LOOK
                || self.now() >= due && began.elapsed() >= self.options.settle
                || self.lanes() != lanes
            {
                return;
            }
        }
    }

    /// What the objects in the cluster are made of, as far as it can change.
    fn lanes(&self) -> Vec<String> {
        let lanes = self.hub.lanes();
        let known = lanes.iter().map(|lane| {
            let served = lane.served(lane.grants.primary()).is_some();
            format!("{} {} {served}", lane.title(), lane.component.digest())
        });
        known.collect()
    }

    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.hub.clock.now())
    }
}

fn given(asking: Asking, object: &Value, problem: &'static str) -> KeepError {
    KeepError::Given {
        asking,
        name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        problem,
    }
}

fn certificates_in(kept: &Kept) -> Option<Certificates> {
    let text = |key: &str| kept.texts.get(key).cloned();
    Some(Certificates {
        bundle: text(BUNDLE)?,
        authority_key: text(AUTHORITY_KEY)?,
        certificate: text(CERTIFICATE)?,
        key: text(KEY)?,
    })
}

fn texts_of(certificates: &Certificates) -> BTreeMap<String, String> {
    let Certificates {
        bundle,
        authority_key,
        certificate,
        key,
    } = certificates;
    [
        (BUNDLE, bundle),
        (AUTHORITY_KEY, authority_key),
        (CERTIFICATE, certificate),
        (KEY, key),
    ]
    .into_iter()
    .map(|(key, text)| (key.to_owned(), text.clone()))
    .collect()
}
