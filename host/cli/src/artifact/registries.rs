//! Options of every command that uses registries, and the file that configures them.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use pilothouse_artifact::RegistriesConfig;

use crate::options::settings;
use crate::plugins::read_document;

/// How registries are reached, and how much is said about it.
#[derive(Args, Clone, Debug, Default)]
pub struct RegistryArguments {
    /// How registries are reached: certificate authorities, plain HTTP, mirrors; YAML (default:
    /// $XDG_CONFIG_HOME/pilothouse/registries.yaml or ~/.config/pilothouse/registries.yaml, if it exists)
    #[arg(long, value_name = "FILE")]
    registries: Option<PathBuf>,

    /// Print the result and errors only: no progress, no notes
    #[arg(long, short)]
    quiet: bool,
}

impl RegistryArguments {
    /// Reports whether only the result is to be printed.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Reads the configuration.
    pub fn configuration(&self) -> anyhow::Result<RegistriesConfig> {
        configuration(self.registries.as_deref())
    }
}

/// Reads the configuration of the given file, or of the default one if it exists.
pub fn configuration(file: Option<&Path>) -> anyhow::Result<RegistriesConfig> {
    match file {
        Some(file) => read(file),
        None => match settings::default_registries_file() {
            Some(file) if file.exists() => read(&file),
            _ => Ok(RegistriesConfig::default()),
        },
    }
}

/// Reads the configuration. Paths in it are relative to the file's directory.
fn read(file: &Path) -> anyhow::Result<RegistriesConfig> {
    let document = read_document(file)?;
    let mut config =
        RegistriesConfig::from_value(document).with_context(|| format!("{} cannot be used", file.display()))?;
    let directory = file.parent().unwrap_or(Path::new(""));
    for registry in &mut config.registries {
        for authority in &mut registry.certificate_authorities {
            *authority = directory.join(&*authority);
        }
        for mirror in &mut registry.mirrors {
            if let Some(layout) = mirror.strip_prefix("oci-layout:") {
                *mirror = format!("oci-layout:{}", directory.join(layout).display());
            }
        }
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_the_file_begin_at_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("registries.yaml");
        std::fs::write(
            &file,
            "registries:\n- host: a.example\n  certificateAuthorities: [ca.pem, /etc/ca.pem]\n  mirrors: ['oci-layout:plugins', b.example]\n",
        )
        .unwrap();
        let config = read(&file).unwrap();
        let registry = &config.registries[0];
        assert_eq!(registry.certificate_authorities[0], directory.path().join("ca.pem"));
        assert_eq!(registry.certificate_authorities[1], Path::new("/etc/ca.pem"));
        let plugins = directory.path().join("plugins");
        assert_eq!(
            registry.mirrors,
            [format!("oci-layout:{}", plugins.display()), "b.example".to_owned()]
        );
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("registries.yaml");
        assert!(read(&file).unwrap_err().to_string().contains("registries.yaml"));
        std::fs::write(&file, "registries: [{host: a.example, insecure: true}]").unwrap();
        let error = format!("{:#}", read(&file).unwrap_err());
        assert!(
            error.contains("registries.yaml") && error.contains("insecure"),
            "{error}"
        );
    }
}
