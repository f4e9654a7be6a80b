//! Shares the configuration of registries, limits and connections among all stores.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::fetch::mirror::{MirrorDirectory, MirrorSource};
use crate::layout::Layout;
use crate::layout::reads::DirectoryReads;
use crate::registry::Registry;
use crate::registry::http::{Clients, Endpoint};
use crate::registry::local::LocalGuard;
use crate::registry::registries::Mirror;
use crate::store::Place;
use crate::{ArtifactError, ArtifactStore, Credentials, Keychain, Limits, Location, Reference, RegistriesConfig};

/// The time for which connections and certificate authorities of a registry are used before the files are read again.
const ENDPOINT_AGE: Duration = Duration::from_mins(5);

/// Opens stores. Cheap to clone; connections are shared.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    registries: RegistriesConfig,
    limits: Limits,
    /// None: no proxy is used.
    proxies: Option<ProxyRule>,
    /// Set on a client for the references of Plugins.
    guard: Option<LocalGuard>,
    endpoints: Mutex<Endpoints>,
    /// Connections for registries without certificate authorities of their own.
    common: Mutex<Option<(Instant, Clients)>>,
    /// Reads of layouts, which may be on mounts that hang.
    reads: DirectoryReads,
}

/// Selects the proxy for a URL: its own URL, or none.
pub type ProxyRule = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Registries by host and by their use as a mirror, with the time when they were opened.
type Endpoints = HashMap<(String, bool), (Instant, Arc<Endpoint>)>;

/// Credentials that only one registry receives.
struct Only<'a> {
    host: &'a str,
    credentials: &'a Credentials,
}

impl Keychain for Only<'_> {
    fn credentials(&self, host: &str, _: &str) -> Result<Credentials, ArtifactError> {
        Ok(if host == self.host {
            self.credentials.clone()
        } else {
            Credentials::Anonymous
        })
    }
}

impl Client {
    /// A client with this configuration. Files with certificate authorities are read when a registry is opened, and
    /// again after five minutes.
    pub fn new(registries: RegistriesConfig, limits: Limits) -> Self {
        Self::guarded(registries, limits, None, None)
    }

    /// The same through the proxies that a rule selects. Names are resolved by a proxy, and not here.
    #[must_use]
    pub fn through(self, proxies: ProxyRule) -> Self {
        let Inner { registries, limits, .. } = &*self.inner;
        Self::guarded(registries.clone(), limits.clone(), Some(proxies), None)
    }

    /// The same for references from Plugins: local addresses are refused, also behind a name, a redirect or a token
    /// service, unless the configuration names the host. `proxies` are the URLs of the proxies in use, which are
    /// allowed.
    #[must_use]
    pub fn for_plugins(&self, proxies: &[String]) -> Self {
        let inner = &*self.inner;
        let guard = LocalGuard::new(&inner.registries, proxies);
        Self::guarded(
            inner.registries.clone(),
            inner.limits.clone(),
            inner.proxies.clone(),
            Some(guard),
        )
    }

    fn guarded(
        registries: RegistriesConfig,
        limits: Limits,
        proxies: Option<ProxyRule>,
        guard: Option<LocalGuard>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                registries,
                limits,
                proxies,
                guard,
                endpoints: Mutex::default(),
                common: Mutex::default(),
                reads: DirectoryReads::default(),
            }),
        }
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// The configuration of registries.
    pub fn registries(&self) -> &RegistriesConfig {
        &self.inner.registries
    }

    /// Opens a location. The credentials are sent to its registry only; mirrors get anonymous requests.
    pub fn open(&self, location: &Location, credentials: &Credentials) -> Result<ArtifactStore, ArtifactError> {
        let host = match location {
            Location::Registry(reference) => reference.host(),
            Location::Layout(_) => "",
        };
        self.open_with(location, &Only { host, credentials })
    }

    /// Opens a location with credentials for its registry and for its mirrors. Sends no request, and reads no layout.
    pub fn open_with(&self, location: &Location, keychain: &dyn Keychain) -> Result<ArtifactStore, ArtifactError> {
        let Inner { limits, reads, .. } = &*self.inner;
        let mut mirrors = Vec::new();
        let place = match location {
            Location::Registry(reference) => {
                for mirror in self.inner.registries.mirrors(reference) {
                    mirrors.push(match mirror {
                        Mirror::Registry(mirror) => MirrorSource::registry(self.registry(&mirror, keychain, true)?),
                        Mirror::Layout(location) => MirrorSource::directory(MirrorDirectory {
                            location,
                            reference: reference.clone(),
                            limits: limits.clone(),
                            reads: reads.clone(),
                        }),
                    });
                }
                Place::Registry(self.registry(reference, keychain, false)?)
            }
            Location::Layout(layout) => Place::Layout {
                layout: Layout::new(layout.clone(), limits, reads),
                mirrors: None,
            },
        };
        Ok(ArtifactStore {
            location: location.clone(),
            limits: limits.clone(),
            mirrors,
            place,
        })
    }

    fn registry(
        &self,
        reference: &Reference,
        keychain: &dyn Keychain,
        is_mirror: bool,
    ) -> Result<Registry, ArtifactError> {
        let credentials = keychain.credentials(reference.host(), reference.repository())?;
        Ok(Registry::new(
            self.endpoint(reference.host(), is_mirror)?,
            reference,
            credentials,
        ))
    }

    fn endpoint(&self, host: &str, is_mirror: bool) -> Result<Arc<Endpoint>, ArtifactError> {
        let key = (host.to_owned(), is_mirror);
        let mut endpoints = self.inner.endpoints.lock();
        if let Some((made, endpoint)) = endpoints.get(&key)
            && made.elapsed() < ENDPOINT_AGE
        {
            return Ok(Arc::clone(endpoint));
        }
        let mut limits = self.inner.limits.clone();
        if is_mirror {
            // The next source is better than a second attempt.
            limits.attempts = 1;
        }
        let (clients, guard) = (self.clients(host)?, self.inner.guard.clone());
        let endpoint = Arc::new(Endpoint::new(host, &self.inner.registries, &limits, clients, guard)?);
        // References come from users, so unused entries are removed.
        endpoints.retain(|_, (made, _)| made.elapsed() < ENDPOINT_AGE);
        endpoints.insert(key, (Instant::now(), Arc::clone(&endpoint)));
        Ok(endpoint)
    }

    fn clients(&self, host: &str) -> Result<Clients, ArtifactError> {
        let Inner {
            registries,
            limits,
            proxies,
            guard,
            ..
        } = &*self.inner;
        let new = || Clients::new(host, registries, limits, proxies.as_ref(), guard.as_ref());
        if registries
            .registry(host)
            .is_some_and(|it| !it.certificate_authorities.is_empty())
        {
            return new();
        }
        let mut common = self.inner.common.lock();
        if let Some((made, clients)) = &*common
            && made.elapsed() < ENDPOINT_AGE
        {
            return Ok(clients.clone());
        }
        let clients = new()?;
        *common = Some((Instant::now(), clients.clone()));
        Ok(clients)
    }
}
