//! Commands that install a plugin in a cluster, change it, and remove it: `rights`, `install`, `upgrade`, `rollback` and
//! `uninstall`, and their common parts: describing the plugin, its name and its namespaces, and printing its documents.
//! A plugin's rights are decided in `pilothouse_core::rights`.

pub mod apply;
mod follow;
mod hosts;
pub mod losses;
mod plan;
pub mod preview;
pub mod rights;
pub mod rollback;
pub mod takeover;
pub mod uninstall;
pub mod upgrade;

use std::collections::BTreeSet;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};
use pilothouse_artifact::Location;
use pilothouse_cluster::Client;
use pilothouse_cluster::connect::{ClusterTarget, connect};
use pilothouse_cluster::discovery::Discovery;
use pilothouse_cluster::resources::installer::{Installer, InstallerError};
use pilothouse_core::Limits;
use pilothouse_core::kubernetes::selector::Selector;
use pilothouse_core::ownership::consent::{ACCEPT, Consent};
use pilothouse_core::plugin::exclusive_kinds::BRINGS_ANNOTATION;
use pilothouse_core::plugin::manifest;
use pilothouse_core::plugin::manifest::{CheckedManifest, is_label, is_subdomain};
use pilothouse_core::plugin::wasi;
use pilothouse_core::plugin::wasi::Wasi;
use pilothouse_core::rights::installed::{HostAccount, HostOptions, INSTALLED_FOR, InstalledHost};
use pilothouse_core::rights::objects::{Acting, Grantee, account_name, labels, objects};
use pilothouse_core::rights::published::PublishedHost;
use pilothouse_core::rights::resources::{Resources, kinds};
use pilothouse_core::rights::{AdmissionExports, Confinement, ControllerNeeds, Rights};
use pilothouse_sandbox::PluginComponent;
use serde_json::{Value, json};

use crate::WrongCommandLine;
use crate::artifact::{RegistryArguments, component};
use crate::options::identity::HOST_NAMESPACE;
use crate::options::identity::IdentityMode;
use crate::plugins::{CacheArguments, NamedFile, read_document};
use crate::run::USER_AGENT;
use crate::{compiling, inspect};
use follow::Follow;
use pilothouse_core::text::printable::printable;

/// Which plugin is granted what.
#[derive(Args)]
pub struct PluginArguments {
    /// The plugin's component: a file, oci://HOST/REPOSITORY:TAG, oci-layout:DIRECTORY:TAG or oci-archive:FILE.tar:TAG.
    /// NAME= gives the Plugin another name than the manifest
    #[arg(value_name = "[NAME=]FILE|REF")]
    plugin: NamedFile,

    #[command(flatten)]
    installation: InstallationArguments,
}

/// How a plugin is installed.
#[derive(Args)]
pub struct InstallationArguments {
    /// The plugin's configuration, YAML or JSON. What a plugin touches may depend on it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// What the component may import of WASI, as spec.wasi of the Plugin: `none` (default) or `inert`, which links the interfaces of
    /// WASI 0.2 and gives access to nothing
    #[arg(long, value_name = "GRANT")]
    wasi: Option<Wasi>,

    /// Grant rights in these namespaces only, as spec.namespaces of the Plugin (default: all). May be repeated
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    namespaces: Vec<String>,

    /// Namespaces that the plugin reads and writes besides, as spec.accessNamespaces of the Plugin, where its manifest touches
    /// more than the namespaces of its primaries. May be repeated
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    access_namespaces: Vec<String>,

    /// The Secret of the host's namespace with the registry's credentials for the host, as spec.source.oci.pullSecret of the Plugin,
    /// where the plugin is an artifact. This command itself uses your own, as `docker login` keeps them
    #[arg(long, value_name = "NAME")]
    pull_secret: Option<String>,

    /// The host's namespace, in which the plugin's ServiceAccount is (default: as the plugin is installed already, else
    /// pilothouse-system, or the only one in which a host publishes its account)
    #[arg(long, value_name = "NAME")]
    host_namespace: Option<String>,

    /// Grant the rights to this ServiceAccount in the host's namespace, as spec.serviceAccountName of the Plugin, rather than
    /// to one that is made for the plugin. It is neither made nor deleted
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,

    /// Grant the host's own ServiceAccount in its namespace what it needs for the plugin: the watches that plugins share, and
    /// what --identity says (default: what the host publishes in a ConfigMap of its namespace, as the chart has it do, or as the
    /// plugin is installed already, else nothing)
    #[arg(long, value_name = "NAME")]
    host_account: Option<String>,

    /// Grant the host's own ServiceAccount nothing, and take away what it was granted for the plugin
    #[arg(long, conflicts_with_all = ["host_account", "identity", "host_in_namespaces"])]
    no_host_account: bool,

    /// With a host's account: how the host runs, as `--identity` of the host (default: what the host publishes, or as the plugin is
    /// installed already, else `impersonate`, and for `pilothouse rights`, which prints no Plugin, `none`). With `none` the account
    /// gets all rights of the plugin, with `impersonate` the right to impersonate the plugin's account, with `token` the right to
    /// request tokens for it
    #[arg(long, value_enum)]
    identity: Option<IdentityMode>,

    /// With a host's account and --namespaces: the host runs with --watch-namespaces, so its account may watch in these
    /// namespaces only, by Roles. Without this, or with `=false`, it may watch the plugin's primaries everywhere (default: what the
    /// host publishes, or as the plugin is installed already, else `false`)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    host_in_namespaces: Option<bool>,

    /// Accept what the host refuses by itself, as the annotation pilothouse.dev/accept of the Plugin: `deletes=300`, that a
    /// version which is another plugin, or lacks a controller, deletes up to 300 objects (default: nothing)
    #[arg(long, value_name = "WHAT=NUMBER")]
    accept: Option<Consent>,

    #[command(flatten)]
    cache: CacheArguments,

    #[command(flatten)]
    registries: RegistryArguments,
}

/// How an installation writes over what is in the cluster.
#[derive(Args)]
pub struct WriteArguments {
    /// Which CRD is in force where the cluster has another one than this version brings. With `keep` the one in the cluster stays
    /// if it accepts everything that this version's accepts, and keeps every field; otherwise, and with `apply`, this version's is
    /// applied
    #[arg(long, value_enum, default_value_t = Crds::Keep)]
    crds: Crds,

    /// Take over the fields of the Plugin that others have set, such as `kubectl patch`
    #[arg(long)]
    force_conflicts: bool,
}

/// The CRD that is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Crds {
    /// The one in the cluster, if it is a superset.
    Keep,
    /// The one of the version.
    Apply,
}

/// Time that a command waits for the host: SECONDS, or `false`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostWait(Option<Duration>);

impl HostWait {
    /// Returns the time; none if it does not wait.
    pub fn within(self) -> Option<Duration> {
        self.0
    }
}

impl FromStr for HostWait {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "false" {
            return Ok(Self(None));
        }
        let seconds = text
            .parse()
            .map_err(|_| "write a number of seconds, or false".to_owned())?;
        Ok(Self(Some(Duration::from_secs(seconds))))
    }
}

/// In which form documents are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One document after the other.
    Yaml,
    /// One list.
    Json,
}

/// A plugin's description, and all options of its installation.
pub struct DescribedPlugin {
    /// The Plugin's name.
    pub name: String,
    /// Its checked manifest.
    pub checked: CheckedManifest,
    /// Its origin for people: the file, or the reference with its digest.
    pub origin: String,
    /// `spec.source` of its Plugin, or the reason why there can be none.
    pub source: Result<Value, String>,
    /// The namespaces that it is confined to.
    pub confinement: Confinement,
    /// The host that it is installed for.
    pub host: InstalledHost,
    /// The labels that a Plugin has to have for that host to run it.
    selector: Option<Selector>,
    config: Option<Value>,
    wasi: Wasi,
    service_account: Option<String>,
    accept: Option<Consent>,
    exports: AdmissionExports,
    component: PluginComponent,
}

/// A described plugin whose host is not known yet.
pub struct HostlessPlugin {
    plugin: DescribedPlugin,
    options: HostOptions,
}

/// A plugin's objects in a cluster.
#[derive(Default)]
pub struct LivePlugin {
    /// Its Plugin, if there is one.
    pub plugin: Option<Value>,
    /// The accounts, roles and bindings with its label. Others than administrators may have made those in a namespace.
    pub installed: Vec<Value>,
    /// Candidates for its host.
    pub published: Vec<PublishedHost>,
}

/// Place to look for the host of a plugin.
pub enum HostPlace {
    /// None: everything that the host publishes is given, or it is granted nothing.
    Nowhere,
    /// The given namespace, or else any.
    In(Option<String>),
}

impl PluginArguments {
    /// Reports whether only the result is to be printed.
    pub fn is_quiet(&self) -> bool {
        self.installation.registries.is_quiet()
    }

    /// Returns the name that the Plugin is given.
    pub fn name(&self) -> Option<&str> {
        self.plugin.name.as_deref()
    }

    /// Returns the options of the directory for compiled plugins.
    pub fn cache(&self) -> &CacheArguments {
        &self.installation.cache
    }

    /// Returns the options of registries.
    pub fn registries(&self) -> &RegistryArguments {
        self.installation.registries()
    }

    /// Returns the place to look for the host.
    pub fn host_place(&self) -> HostPlace {
        self.installation.host_place()
    }

    /// Loads the plugin and describes it, without reading a cluster. If the host's account is granted rights, they
    /// include those that it needs to act as `acting` says, unless the command line says how it acts.
    pub fn describe(self, acting: Acting) -> anyhow::Result<DescribedPlugin> {
        self.installation.describe(self.plugin, acting)
    }

    /// Describes the plugin of an existing Plugin: values that the command line does not give are taken from its spec.
    pub fn describe_over(self, spec: &Value, follow: Option<&Follow>) -> anyhow::Result<HostlessPlugin> {
        self.installation.describe_over(self.plugin, spec, follow)
    }
}

impl InstallationArguments {
    /// Returns the options of the directory for compiled plugins.
    pub fn cache(&self) -> &CacheArguments {
        &self.cache
    }

    /// Returns the options of registries.
    pub fn registries(&self) -> &RegistryArguments {
        &self.registries
    }

    /// Returns the place to look for the host.
    pub fn host_place(&self) -> HostPlace {
        let is_said = self.host_account.is_some() && self.identity.is_some();
        if self.no_host_account || is_said {
            return HostPlace::Nowhere;
        }
        HostPlace::In(self.host_namespace.clone())
    }

    /// Returns the configuration's file.
    pub fn config(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// Describes the plugin like [`PluginArguments::describe`].
    pub fn describe(self, plugin: NamedFile, acting: Acting) -> anyhow::Result<DescribedPlugin> {
        self.describe_over(plugin, &Value::Null, None)?
            .hosted(&LivePlugin::default(), acting)
    }

    /// Describes the plugin. Values that the arguments do not give are taken from the spec of a Plugin.
    fn describe_over(self, plugin: NamedFile, spec: &Value, follow: Option<&Follow>) -> anyhow::Result<HostlessPlugin> {
        let Self {
            config,
            wasi,
            mut namespaces,
            mut access_namespaces,
            mut pull_secret,
            host_namespace,
            mut service_account,
            host_account,
            no_host_account,
            identity,
            host_in_namespaces,
            accept,
            cache,
            registries,
        } = self;
        let texts = |value: &Value| -> Vec<String> {
            let values = value.as_array().into_iter().flatten();
            values.filter_map(|value| value.as_str().map(str::to_owned)).collect()
        };
        if namespaces.is_empty() && access_namespaces.is_empty() {
            namespaces = texts(&spec["namespaces"]);
            access_namespaces = texts(&spec["accessNamespaces"]);
        }
        service_account = service_account.or_else(|| spec["serviceAccountName"].as_str().map(str::to_owned));
        if let Some(secret) = &pull_secret {
            check_pull_secret(secret, &plugin).map_err(WrongCommandLine::of)?;
        }
        pull_secret = pull_secret.or_else(|| spec["source"]["oci"]["pullSecret"].as_str().map(str::to_owned));
        if let Some(namespace) = &host_namespace {
            check_label("--host-namespace", namespace).map_err(WrongCommandLine::of)?;
        }
        check_account("--host-account", host_account.as_deref()).map_err(WrongCommandLine::of)?;
        check_account("--service-account", service_account.as_deref()).map_err(WrongCommandLine::of)?;
        if let Some(name) = &plugin.name {
            check_label("the Plugin's name", name).map_err(WrongCommandLine::of)?;
        }
        let confinement = Confinement::new(&namespaces, &access_namespaces);
        let confinement = confinement.map_err(|error| WrongCommandLine::of(error.into()))?;
        let config = config.map(|path| read_document(&path)).transpose()?;
        let config = config.or_else(|| Some(spec["configuration"].clone()).filter(|config| !config.is_null()));
        let wasi = match wasi {
            Some(wasi) => wasi,
            None if spec["wasi"].is_null() => Wasi::None,
            None => serde_json::from_value(spec["wasi"].clone()).context("spec.wasi of the Plugin cannot be read")?,
        };
        let sandbox = cache.sandbox()?.granting(wasi);
        let (component, origin, location) = match plugin.reference() {
            None => {
                let component = compiling::load(&sandbox, &plugin.file)?;
                (component, plugin.file.display().to_string(), None)
            }
            Some(reference) => {
                let location: Location = reference.parse()?;
                let artifact = match follow {
                    Some(follow) => follow.artifact(&location, &registries)?,
                    None => location.clone(),
                };
                let (pinned, bytes) = component(&artifact, registries)?;
                let origin = pinned.to_string();
                (
                    compiling::load_bytes(&sandbox, &origin, &bytes)?,
                    origin,
                    Some((location, pinned)),
                )
            }
        };
        let described = component
            .describe(config.as_ref().map(ToString::to_string).as_deref(), &Limits::default())
            .with_context(|| format!("{origin} cannot be described"))?;
        let checked = manifest::parse_configured(&described, config.as_ref())
            .with_context(|| format!("{origin} cannot be used"))?;
        let source = match location {
            None if follow.is_some() => {
                let form =
                    "--follow has no use without a registry or a layout: give the plugin as oci://HOST/REPOSITORY:TAG";
                return Err(WrongCommandLine(form.to_owned()).into());
            }
            None => {
                let file = plugin.file.file_name().map(|name| name.to_string_lossy().into_owned());
                Ok(json!({"file": file, "digest": format!("sha256:{}", component.digest())}))
            }
            Some((location, pinned)) => source_of(&pinned, pull_secret).map(|mut source| {
                if let Some(follow) = follow {
                    follow.write(&location, &mut source);
                }
                source
            }),
        };
        let plugin = DescribedPlugin {
            name: plugin.name.unwrap_or_else(|| checked.manifest.name.clone()),
            checked,
            origin,
            source,
            confinement,
            host: InstalledHost::default(),
            selector: None,
            config,
            wasi,
            service_account,
            accept,
            exports: AdmissionExports {
                defaulter: component.optional().defaulter,
                validator: component.optional().validator,
            },
            component,
        };
        let options = HostOptions {
            namespace: host_namespace,
            account: match host_account {
                Some(account) => HostAccount::Named(account),
                None if no_host_account => HostAccount::Ungranted,
                None => HostAccount::Unsaid,
            },
            acting: identity.map(IdentityMode::acting),
            in_namespaces: host_in_namespaces,
        };
        Ok(HostlessPlugin { plugin, options })
    }
}

impl HostlessPlugin {
    /// Returns the name that the Plugin is given.
    pub fn name(&self) -> &str {
        &self.plugin.name
    }

    /// Checks the manifest like [`DescribedPlugin::check`].
    pub fn check(&self) -> anyhow::Result<()> {
        self.plugin.check()
    }

    /// Returns an error for a source that no Plugin can have.
    pub fn check_source(&self) -> anyhow::Result<()> {
        self.plugin.source.clone().map(drop).map_err(anyhow::Error::msg)
    }

    /// Returns the plugin for the host that the command line names. Values that it does not give are taken from the
    /// host's publication, or from the installed plugin.
    pub fn hosted(self, live: &LivePlugin, acting: Acting) -> anyhow::Result<DescribedPlugin> {
        let Self { mut plugin, options } = self;
        let LivePlugin {
            plugin: resource,
            installed,
            published,
        } = live;
        let default = InstalledHost {
            namespace: HOST_NAMESPACE.to_owned(),
            acting,
            ..InstalledHost::default()
        };
        plugin.host = options.over(&plugin.name, resource.as_ref(), installed, published, &default)?;
        let is_host = |it: &&PublishedHost| {
            (&it.host.namespace, &it.host.account) == (&plugin.host.namespace, &plugin.host.account)
        };
        let published = published.iter().find(is_host);
        plugin.selector = published.map(|it| Selector::parse(&it.selector)).transpose()?;
        if plugin.host.in_namespaces {
            if let Some(published) = published
                && plugin.confinement.namespaces().is_empty()
            {
                let access: Vec<String> = plugin.confinement.access().iter().cloned().collect();
                plugin.confinement = Confinement::new(&published.namespaces, &access)?;
            }
            let seen = plugin.confinement.reached();
            let narrowed = plugin.confinement.within(&seen);
            plugin.confinement = narrowed.context(
                "the host is to see the Plugin's namespaces only (--host-in-namespaces), and the Plugin has none; name them with \
                 --namespaces, or say --host-in-namespaces=false",
            )?;
        }
        Ok(plugin)
    }
}

impl LivePlugin {
    /// Reads a cluster. One without the CRD for Plugins has none.
    pub async fn find(installer: &Installer, name: &str, options: HostPlace) -> anyhow::Result<Self> {
        let plugin = find_plugin(installer, name).await?;
        let published = match &options {
            HostPlace::Nowhere => Vec::new(),
            HostPlace::In(namespace) => hosts::published(installer, namespace.as_deref(), plugin.as_ref()).await?,
        };
        Ok(Self {
            installed: installer.installed().await?,
            plugin,
            published,
        })
    }
}

/// Returns the Plugin, if it exists. A cluster without the CRD for Plugins has none.
async fn find_plugin(installer: &Installer, name: &str) -> anyhow::Result<Option<Value>> {
    let named = json!({"apiVersion": "pilothouse.dev/v1alpha1", "kind": "Plugin", "metadata": {"name": name}});
    match installer.find(&named).await {
        Ok(found) => Ok(found),
        Err(InstallerError::NoPluginKind) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl DescribedPlugin {
    /// Returns the name of its ServiceAccount.
    pub fn account(&self) -> String {
        let named_after = || account_name(&self.name);
        self.service_account.clone().unwrap_or_else(named_after)
    }

    /// Returns the rights that it needs. The cluster is queried only about kinds that are otherwise unknown.
    pub async fn rights(&self, target: ClusterTarget) -> anyhow::Result<Rights> {
        let mut resources = Resources::of(&self.checked);
        let unknown = resources.unknown(kinds(&self.checked));
        if let Some(kind) = unknown.first() {
            let about = || {
                format!(
                    "the rights of {} cannot be said: it touches {kind}, and only a cluster knows how its resource is called; \
                     give one that serves it with --kubeconfig or --context",
                    self.name
                )
            };
            let client = connect(&target, USER_AGENT).await.with_context(about)?;
            let discovery = Discovery::new(client);
            let now = tokio::time::Instant::now();
            for kind in &unknown {
                let found = discovery.find(&Arc::new(kind.clone()), now).await;
                resources.learn(kind.clone(), found.with_context(about)?);
            }
            let missing = resources.unknown(kinds(&self.checked));
            if let Some(kind) = missing.first() {
                bail!(
                    "the cluster does not serve {kind}, which {} touches; install what brings it, or give another cluster \
                     with --kubeconfig or --context",
                    self.name
                );
            }
        }
        let controllers = ControllerNeeds::of(&self.checked, self.exports);
        Ok(Rights::of(&controllers, &self.confinement, &resources)?)
    }

    /// Returns a sentence about its imports of WASI; none if it has none.
    pub fn wasi_words(&self) -> Option<String> {
        let imports = self.component.wasi_imports();
        if imports.is_empty() {
            return None;
        }
        let purposes = wasi::purposes(imports.iter().map(String::as_str));
        Some(format!(
            "It imports {} interfaces of WASI (for {}), and is granted the inert set, which gives access to none of these.",
            imports.len(),
            purposes.join(", ")
        ))
    }

    /// Returns its account, roles and bindings.
    pub fn grants(&self, rights: &Rights) -> Vec<Value> {
        let grantee = Grantee {
            plugin: &self.name,
            namespace: &self.host.namespace,
            account: self.service_account.as_deref(),
            host_account: self.host.account.as_deref(),
            acting: self.host.acting,
        };
        objects(grantee, rights)
    }

    /// Returns its Plugin resource.
    pub fn resource(&self) -> anyhow::Result<Value> {
        let source = self.source.clone().map_err(anyhow::Error::msg)?;
        let mut spec = json!({"source": source});
        if let Some(config) = &self.config {
            spec["configuration"] = config.clone();
        }
        if self.wasi != Wasi::None {
            spec["wasi"] = json!(self.wasi);
        }
        if !self.confinement.namespaces().is_empty() {
            spec["namespaces"] = json!(self.confinement.namespaces());
        }
        if !self.confinement.access().is_empty() {
            spec["accessNamespaces"] = json!(self.confinement.access());
        }
        if let Some(account) = &self.service_account {
            spec["serviceAccountName"] = json!(account);
        }
        let mut resource = json!({
            "apiVersion": "pilothouse.dev/v1alpha1", "kind": "Plugin",
            "metadata": {
                "name": self.name, "labels": labels(&self.name),
                "annotations": {INSTALLED_FOR: self.host.record()},
            },
            "spec": spec,
        });
        let crds: Vec<&str> = self.checked.crds.iter().map(|crd| &*crd.name).collect();
        if !crds.is_empty() {
            resource["metadata"]["annotations"][BRINGS_ANNOTATION] = json!(crds.join(","));
        }
        if let Some(accept) = &self.accept {
            resource["metadata"]["annotations"][ACCEPT] = json!(accept.to_string());
        }
        Ok(resource)
    }
}

impl DescribedPlugin {
    /// Returns an error if a component of another plugin is running, unless the user accepts the deletions that follow.
    pub fn check_same(&self, live: &Value) -> anyhow::Result<()> {
        let names = |controllers: &Value| -> BTreeSet<String> {
            let names = controllers.as_array().into_iter().flatten();
            names.filter_map(|it| it["name"].as_str().map(str::to_owned)).collect()
        };
        let before = names(&live["status"]["controllers"]);
        let now: BTreeSet<String> = self
            .checked
            .manifest
            .controllers
            .iter()
            .map(|it| it.name.clone())
            .collect();
        ensure!(
            before.is_empty() || !before.is_disjoint(&now) || self.accept.is_some(),
            "{} is another plugin than the one that runs as Plugin {}: that one has the controllers {}, and this one has {}; nothing was \
             changed. Name the component of the Plugin, or, if the other one is to take its place, say --accept deletes=NUMBER with the \
             number of objects that may be deleted",
            self.origin,
            self.name,
            Vec::from_iter(before).join(", "),
            Vec::from_iter(now).join(", ")
        );
        Ok(())
    }

    /// Returns the reason if its host ignores the Plugin because of its labels.
    fn unselected(&self, live: &Value) -> Option<String> {
        let selector = self.selector.as_ref()?;
        let labels = &live["metadata"]["labels"];
        if selector.matches(|key| labels[key].as_str()) {
            return None;
        }
        Some(format!(
            "the host in namespace {} runs Plugins with the labels {selector} only; label it: kubectl label plugin {} KEY=VALUE",
            self.host.namespace, self.name
        ))
    }

    /// Returns the advice for a Plugin that no host has reconciled.
    fn unseen(&self) -> String {
        let namespace = &self.host.namespace;
        format!(
            "no host has looked at the Plugin; see that the host in namespace {namespace} runs (kubectl get pods --namespace {namespace}), \
             or name another with --host-namespace"
        )
    }

    /// Prints contradictions in its description to standard error. Those that cannot work are an error.
    pub fn check(&self) -> anyhow::Result<()> {
        let findings = inspect::findings(&self.component, &self.checked);
        inspect::print_findings(&findings);
        inspect::refuse(&self.origin, &findings)
    }
}

/// Prints the rights that are not granted to standard error.
pub fn tell_remarks(rights: &Rights) {
    for remark in &rights.remarks {
        eprintln!("note: {}", printable(&remark.to_string()));
    }
}

/// Connects to the cluster of a command.
pub async fn client(target: &ClusterTarget) -> anyhow::Result<Client> {
    Ok(connect(target, USER_AGENT).await?)
}

/// Formats documents as text.
pub fn printed(documents: &[Value], format: Format) -> anyhow::Result<String> {
    if format == Format::Json {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": documents});
        return Ok(serde_json::to_string_pretty(&list)? + "\n");
    }
    let mut yaml = String::new();
    for document in documents {
        let text = serde_saphyr::to_string(document).context("cannot write YAML")?;
        yaml.extend(["---\n", text.trim_end(), "\n"]);
    }
    Ok(yaml)
}

/// Asks for confirmation on the terminal; an error unless the user says yes. Without a terminal, `--yes` is required.
pub async fn confirm(question: &str, yes: bool) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        bail!("nothing was changed: there is no terminal to ask on; run the command again with --yes if it is right");
    }
    eprint!("{question} [y/N] ");
    std::io::stderr().flush()?;
    // Read on another thread, so that an interrupt ends the command meanwhile.
    let answer = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer).map(|_| answer)
    });
    let answer = answer.await??;
    ensure!(
        matches!(answer.trim(), "y" | "Y" | "yes"),
        "nothing was changed: the answer was not yes"
    );
    Ok(())
}

/// Returns `spec.source` of a Plugin whose component is an artifact, or the reason why there can be none.
fn source_of(location: &Location, pull_secret: Option<String>) -> Result<Value, String> {
    match location {
        Location::Layout(layout) if layout.archive => Err(format!(
            "{location} is an archive, from which no Plugin can come; push it to a registry, or give the component's file"
        )),
        Location::Layout(layout) if !layout.path.components().all(is_below) => Err(format!(
            "{location} leads out of the host's --plugin-dir, below which a Plugin names layouts; run the command in a copy of that \
             directory, and give the path from there"
        )),
        Location::Layout(_) => Ok(json!({"oci": {"reference": location.to_string()}})),
        Location::Registry(_) => {
            let mut source = json!({"oci": {"reference": location.to_string()}});
            if let Some(secret) = pull_secret {
                source["oci"]["pullSecret"] = json!(secret);
            }
            Ok(source)
        }
    }
}

/// Reports whether a component of a path stays below the path's start.
fn is_below(part: Component<'_>) -> bool {
    matches!(part, Component::Normal(_) | Component::CurDir)
}

fn check_pull_secret(secret: &str, plugin: &NamedFile) -> anyhow::Result<()> {
    ensure!(
        is_subdomain(secret),
        "--pull-secret {secret:?} is not the name of a Secret, which is a DNS subdomain; correct it"
    );
    ensure!(
        plugin.reference().is_some_and(|it| !it.starts_with("oci-")),
        "--pull-secret has no use without a registry: give the plugin as oci://HOST/REPOSITORY:TAG, or leave the option out"
    );
    Ok(())
}

fn check_account(option: &str, account: Option<&str>) -> anyhow::Result<()> {
    if let Some(account) = account {
        ensure!(
            is_subdomain(account),
            "{option} {account:?} is not the name of a ServiceAccount, which is a DNS subdomain; correct it"
        );
    }
    Ok(())
}

fn check_label(what: &str, name: &str) -> anyhow::Result<()> {
    ensure!(
        is_label(name),
        "{what} {name:?} is not a DNS label: 1 to 63 of a-z, 0-9 and -, not - at an end; correct it"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// kubectl reads YAML 1.1, in which more plain words are not strings than in YAML 1.2.
    #[test]
    fn texts_stay_texts_for_readers_of_yaml_1_1() {
        for text in [
            "y",
            "n",
            "Y",
            "on",
            "off",
            "yes",
            "no",
            "true",
            "null",
            "~",
            "1e3",
            "0x1",
            "1_0",
            "1:30",
            "2026-01-01",
            "*",
            "",
        ] {
            let yaml = printed(&[json!({"names": [text]})], Format::Yaml).unwrap();
            assert!(
                yaml.contains(&format!("\"{text}\"")) || yaml.contains(&format!("'{text}'")),
                "{text}: {yaml}"
            );
        }
    }
}
