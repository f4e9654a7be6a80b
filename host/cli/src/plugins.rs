//! Names plugins on the command line, and loads them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, bail};
use pilothouse_artifact::Reference;
use pilothouse_cluster::error::chain;
use pilothouse_core::Limits;
use pilothouse_core::plugin::wasi::Wasi;
use pilothouse_runtime::{RunMode, StaticPlugin};
use pilothouse_sandbox::{Compiler, Sandbox, SandboxOptions};
use serde_json::Value;

use crate::options::settings;

/// `FILE`, or `NAME=FILE`; for a plugin, a reference may be given instead of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// The part before `=`.
    pub name: Option<String>,
    /// The file.
    pub file: PathBuf,
    /// Name by which other options call it, if not the file's name.
    pub called: Option<String>,
    /// The SHA-256 that the file must have, in hexadecimal digits.
    pub digest: Option<String>,
}

impl NamedFile {
    /// Returns the reference, if it is not a file.
    pub fn reference(&self) -> Option<&str> {
        reference_of(&self.file)
    }
}

/// Returns the reference given instead of a file: with a scheme, or `HOST/REPOSITORY:TAG` if there is no such file.
pub fn reference_of(file: &Path) -> Option<&str> {
    let text = file.to_str()?;
    let mut schemes = ["oci://", "oci-layout:", "oci-archive:"].iter();
    let has_scheme = schemes.any(|it| text.starts_with(it));
    let is_artifact = || {
        let reference = text.parse::<Reference>();
        reference.is_ok_and(|it| it.target().is_some()) && !file.exists()
    };
    (has_scheme || is_artifact()).then_some(text)
}

/// Guesses the meaning of a path that names no file: an artifact without its registry.
pub fn meant_instead(file: &Path) -> Option<&'static str> {
    let text = file.to_str()?;
    let (repository, tag) = text.rsplit_once(':')?;
    let is_tag = !tag.is_empty() && !tag.contains('/');
    (is_tag && !repository.is_empty() && !file.exists()).then_some(
        "there is no such file; if an artifact in a registry is meant, write HOST/REPOSITORY:TAG, such as ghcr.io/acme/plugin:1.0.0",
    )
}

impl FromStr for NamedFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, file) = match text.split_once('=') {
            Some((name, file)) if !name.contains('/') => (Some(name.to_owned()), file),
            _ => (None, text),
        };
        if file.is_empty() || name.as_deref() == Some("") {
            return Err("write FILE or NAME=FILE".to_owned());
        }
        Ok(Self {
            name,
            file: PathBuf::from(file),
            called: None,
            digest: None,
        })
    }
}

/// `GRANT`, or `PLUGIN=GRANT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WasiGrant {
    /// The plugin; none means all.
    pub plugin: Option<String>,
    /// The grant.
    pub wasi: Wasi,
}

impl FromStr for WasiGrant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (plugin, grant) = match text.split_once('=') {
            Some((plugin, grant)) => (Some(plugin.to_owned()), grant),
            None => (None, text),
        };
        Ok(Self {
            plugin,
            wasi: grant.parse()?,
        })
    }
}

/// Returns the grant of a plugin: its own, else the one of all plugins.
fn granted(grants: &[WasiGrant], called: &str) -> Wasi {
    let of = |plugin: Option<&str>| grants.iter().rfind(|grant| grant.plugin.as_deref() == plugin);
    of(Some(called))
        .or_else(|| of(None))
        .map_or(Wasi::None, |grant| grant.wasi)
}

/// Where compiled plugins are kept.
#[derive(clap::Args, Clone, Debug)]
pub struct CacheArguments {
    /// The directory for compiled plugins and for artifacts (default: $XDG_CACHE_HOME/pilothouse/plugins or ~/.cache/pilothouse/plugins).
    /// No other user may have write access to it
    #[arg(long, value_name = "DIRECTORY")]
    cache_dir: Option<PathBuf>,
}

impl CacheArguments {
    /// Returns the directory.
    pub fn directory(&self) -> anyhow::Result<PathBuf> {
        let directory = self.cache_dir.clone().or_else(settings::default_cache_directory);
        directory
            .context("there is no place for compiled plugins: neither HOME nor XDG_CACHE_HOME is set; give --cache-dir")
    }

    /// Makes a sandbox that compiles in a child process of this program.
    pub fn sandbox(&self) -> anyhow::Result<Sandbox> {
        let directory = self.directory()?;
        let program =
            std::env::current_exe().context("cannot find the path of this program, which compiles plugins")?;
        Ok(Sandbox::new(SandboxOptions::new(
            directory,
            Compiler::Child { program },
        ))?)
    }
}

/// Reads a JSON or YAML file.
pub fn read_document(path: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("{} is neither YAML nor JSON", path.display()))
}

/// Loads the plugins. One that cannot be loaded is logged and left out.
pub fn load(
    sandbox: &Sandbox,
    plugins: &[NamedFile],
    configs: &[NamedFile],
    limits: &[NamedFile],
    wasi: &[WasiGrant],
) -> anyhow::Result<Vec<StaticPlugin>> {
    let mut unused_grants: Vec<_> = wasi.iter().filter_map(|grant| grant.plugin.as_deref()).collect();
    let mut configs = by_name("--config", configs)?;
    let mut limits = by_name("--limits", limits)?;
    let mut specs = Vec::with_capacity(plugins.len());
    for NamedFile {
        name,
        file,
        called,
        digest,
    } in plugins
    {
        let stem = file
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
            .unwrap_or_default();
        let called = name.as_ref().or(called.as_ref()).cloned().unwrap_or(stem);
        unused_grants.retain(|plugin| *plugin != called);
        let sandbox = sandbox.granting(granted(wasi, &called));
        let component = match sandbox.load_expecting(file, digest.as_deref()) {
            Ok(component) => component,
            Err(error) => {
                tracing::error!(file = %file.display(), error = %chain(&error), "the plugin cannot be loaded");
                continue;
            }
        };
        // Asleep until it is called: mapped all at once, a thousand would take much memory that is never returned.
        component.sleep();
        let limits = match limits.remove(&called) {
            None => Limits::default(),
            Some(path) => {
                let limits: Limits = serde_json::from_value(read_document(&path)?)
                    .with_context(|| format!("{} does not hold limits", path.display()))?;
                limits
                    .check()
                    .with_context(|| format!("{} cannot be used", path.display()))?;
                limits
            }
        };
        let config = configs.remove(&called).map(|path| read_document(&path)).transpose()?;
        specs.push(StaticPlugin {
            name: name.clone(),
            component,
            config,
            limits,
            concurrency: None,
            mode: RunMode::Active,
            former_managers: Vec::new(),
        });
    }
    let unused_grants = unused_grants.into_iter().map(str::to_owned).collect();
    for (option, left) in [
        ("--config", configs.into_keys().collect()),
        ("--limits", limits.into_keys().collect()),
        ("--wasi", unused_grants),
    ] {
        let left: Vec<String> = left;
        if let Some(name) = left.first() {
            bail!(
                "{option} names {name}, but no usable plugin is called so; a plugin is called by NAME in --plugin NAME=FILE, else by its file's name without .wasm"
            );
        }
    }
    Ok(specs)
}

fn by_name(option: &str, files: &[NamedFile]) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let mut by_name = BTreeMap::new();
    for NamedFile { name, file, .. } in files {
        let Some(name) = name else {
            bail!(
                "{option} {} names no plugin; write {option} PLUGIN=FILE",
                file.display()
            )
        };
        if by_name.insert(name.clone(), file.clone()).is_some() {
            bail!("{option} is given twice for plugin {name}");
        }
    }
    Ok(by_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_of_one_plugin_takes_precedence_over_that_of_all() {
        let grants: Vec<WasiGrant> = ["inert", "shop=none"].map(|text| text.parse().unwrap()).into();
        assert_eq!(granted(&grants, "shop"), Wasi::None);
        assert_eq!(granted(&grants, "web"), Wasi::Inert);
        assert_eq!(granted(&[], "web"), Wasi::None);
        assert!("web=all".parse::<WasiGrant>().is_err());
    }

    #[test]
    fn files_may_have_a_name_before_them() {
        let named = |text: &str| text.parse::<NamedFile>();
        assert_eq!(
            named("a.wasm").unwrap(),
            NamedFile {
                name: None,
                file: "a.wasm".into(),
                called: None,
                digest: None,
            }
        );
        assert_eq!(
            named("p=d/a.wasm").unwrap(),
            NamedFile {
                name: Some("p".into()),
                file: "d/a.wasm".into(),
                called: None,
                digest: None,
            }
        );
        assert_eq!(named("./d=e/a.wasm").unwrap().name, None);
        let artifact = named("p=oci://example.com/a:1").unwrap();
        assert_eq!(
            (artifact.name.as_deref(), artifact.reference()),
            (Some("p"), Some("oci://example.com/a:1"))
        );
        for file in ["oci.wasm", "a/b.wasm", "./a:1", "acme/plugin:1", "ghcr.io/acme/plugin"] {
            assert_eq!(named(file).unwrap().reference(), None, "{file}");
        }
        let without_scheme = named("p=ghcr.io/acme/plugin:1").unwrap();
        assert_eq!(without_scheme.reference(), Some("ghcr.io/acme/plugin:1"));
        assert!(meant_instead(Path::new("acme/plugin:1")).is_some());
        assert!(meant_instead(Path::new("plugin.wasm")).is_none());
        assert!(named("").is_err() && named("=a").is_err() && named("a=").is_err());
    }
}
