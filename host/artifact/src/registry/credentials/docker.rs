//! Finds the user's Docker configuration: the file that docker and oras write with `login`.

use std::path::PathBuf;

use super::{Credentials, Keychain};
use crate::ArtifactError;

/// The user's Docker configuration, as a keychain. It may run credential helpers.
#[derive(Clone, Copy, Debug, Default)]
pub struct DockerConfig;

impl Keychain for DockerConfig {
    fn credentials(&self, host: &str, _: &str) -> Result<Credentials, ArtifactError> {
        Credentials::from_docker_config(host)
    }
}

impl DockerConfig {
    /// The path of the file: `$DOCKER_CONFIG/config.json` or `~/.docker/config.json`.
    pub fn path() -> Option<PathBuf> {
        let directory = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
        let directory = directory.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".docker")));
        Some(directory?.join("config.json"))
    }

    pub(super) fn is_absent() -> bool {
        Self::path().is_none_or(|path| !path.exists())
    }
}
