//! Common options of the commands that run a plugin by itself: component, configuration, objects, cluster and time.
//! Running it is left to the test kit.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use jiff::Timestamp;
use pilothouse_core::Limits;
use pilothouse_core::plugin::wasi::Wasi;
use pilothouse_host::plugins::{CacheArguments, read_document};
use pilothouse_host::{accepted, compiling, inspect};
use pilothouse_testkit::documents::{self, Document, DocumentsError, STANDARD_INPUT};
use pilothouse_testkit::isolation::Isolated;
use pilothouse_testkit::store::{Store, runtime};
use serde_json::Value;

/// Default time: the same each time, so that a command can be repeated.
pub(crate) const DEFAULT_NOW: &str = "2026-01-01T00:00:00Z";

/// Default namespace of objects.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";

/// Prefix of a Plugin resource's apiVersion.
const PLUGIN_GROUP: &str = "pilothouse.dev/";

/// Which plugin.
#[derive(Args, Debug)]
pub struct PluginArguments {
    /// The plugin's component
    #[arg(value_name = "FILE.wasm")]
    pub component: PathBuf,

    /// The plugin's configuration, YAML or JSON; or its Plugin resource, of which `spec.configuration`, `spec.wasi` and, by `render`,
    /// `spec.limits` are taken
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// What it may import of WASI.
    #[command(flatten)]
    pub wasi: WasiArguments,

    /// Where compiled plugins are kept.
    #[command(flatten)]
    pub cache: CacheArguments,
}

/// What components are granted.
#[derive(Args, Clone, Copy, Debug)]
pub struct WasiArguments {
    /// What a component may import of WASI: `none`, or `inert`, which links the interfaces of WASI 0.2 and gives access to
    /// nothing (default: what the Plugin resource says that is given as configuration, else none)
    #[arg(long = "wasi", value_name = "GRANT")]
    pub grant: Option<Wasi>,
}

/// A plugin's settings in a file: its configuration, or the Plugin resource that contains it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The configuration.
    pub configuration: Option<Value>,
    /// `spec.wasi` of the Plugin resource.
    pub wasi: Option<Wasi>,
    /// `spec.limits` of the Plugin resource, else the host's defaults.
    pub limits: Limits,
}

/// In which cluster, at what time.
#[derive(Args, Debug)]
pub struct StateArguments {
    /// Objects that are in the cluster: a YAML or JSON file, a folder, or - for standard input. May be repeated
    #[arg(long, value_name = "FILE|FOLDER|-")]
    pub cluster: Vec<PathBuf>,

    /// The namespace of objects that do not say in which they are
    #[arg(long, short, value_name = "NAME", default_value = DEFAULT_NAMESPACE)]
    pub namespace: String,

    /// The time that the plugin sees, as in 2026-01-02T03:04:05Z
    #[arg(long, value_name = "TIME", default_value = DEFAULT_NOW)]
    pub now: Timestamp,
}

/// Objects that the command line names. Standard input is read once, however many plugins get them.
pub struct Given {
    /// Objects in the cluster.
    cluster: Vec<Document>,
    /// Objects that the plugin is called for.
    objects: Vec<Document>,
}

/// Objects that the command line names, sorted by the plugin's kinds.
pub(crate) struct Sorted {
    /// The plugin. It knows which kinds are namespaced.
    pub(crate) plugin: Isolated,
    /// Objects in the cluster.
    pub(crate) cluster: Vec<Document>,
    /// Objects that the plugin reconciles.
    pub(crate) primaries: Vec<Document>,
}

/// A plugin on the state of a cluster, with the objects that it is called for.
#[derive(Clone)]
pub struct Prepared {
    /// The plugin. Its cache has the objects too.
    pub plugin: Isolated,
    /// The objects that it reconciles, as an API server would store them.
    pub primaries: Vec<Document>,
}

impl PluginArguments {
    /// Loads the plugin and describes it.
    pub fn load(&self) -> anyhow::Result<Isolated> {
        self.load_other(&self.component)
    }

    /// Loads another component, with the same configuration.
    pub fn load_other(&self, component: &Path) -> anyhow::Result<Isolated> {
        let settings = Settings::of_option(self.config.as_deref())?;
        let sandbox = self.cache.sandbox()?.granting(self.wasi.or(settings.wasi));
        let loaded = compiling::load(&sandbox, component)?;
        let plugin = Isolated::of(component.to_owned(), loaded, settings.configuration)?;
        tell_findings(&plugin, component)?;
        Ok(plugin)
    }
}

/// Prints contradictions in a plugin's description to standard error, but those that its project accepts. For a component of
/// other tools, a command that calls the plugin is the first one that its author runs.
pub(crate) fn tell_findings(plugin: &Isolated, component: &Path) -> anyhow::Result<()> {
    let findings = inspect::findings(plugin.plugin(), plugin.manifest());
    inspect::print_findings(&accepted::remaining(findings, component)?);
    Ok(())
}

impl WasiArguments {
    /// Returns the option's grant, else the Plugin resource's, else none.
    pub fn or(self, resource: Option<Wasi>) -> Wasi {
        self.grant.or(resource).unwrap_or_default()
    }
}

impl Settings {
    /// Reads the settings of a document. A Plugin resource is recognized by its apiVersion.
    pub fn of(mut document: Value) -> anyhow::Result<Self> {
        let api_version = document["apiVersion"].as_str().unwrap_or_default();
        if document["kind"] != "Plugin" || !api_version.starts_with(PLUGIN_GROUP) {
            return Ok(Self {
                configuration: Some(document),
                ..Self::default()
            });
        }
        let spec = document["spec"].take();
        let is_given = |value: &&Value| !value.is_null();
        let wasi = spec.get("wasi").filter(is_given).cloned();
        let limits = spec.get("limits").filter(is_given).cloned();
        let limits: Option<Limits> = limits
            .map(serde_json::from_value)
            .transpose()
            .context("spec.limits of the Plugin cannot be read")?;
        let limits = limits.unwrap_or_default();
        limits.check().context("spec.limits of the Plugin")?;
        Ok(Self {
            limits,
            configuration: spec.get("configuration").filter(is_given).cloned(),
            wasi: wasi
                .map(serde_json::from_value)
                .transpose()
                .context("spec.wasi of the Plugin cannot be read; write None or Inert")?,
        })
    }

    /// Reads the settings of the file that an option names, if it names one.
    pub fn of_option(file: Option<&Path>) -> anyhow::Result<Self> {
        let Some(file) = file else { return Ok(Self::default()) };
        Self::of(read_document(file)?).with_context(|| file.display().to_string())
    }
}

impl StateArguments {
    /// Returns the time in milliseconds since 1970.
    pub fn milliseconds(&self) -> anyhow::Result<u64> {
        let milliseconds = self.now.as_millisecond();
        u64::try_from(milliseconds).with_context(|| format!("--now {} is before 1970; give a later time", self.now))
    }

    /// Returns an error if standard input is named twice, in the cluster and in `others`, the sources of other objects.
    pub fn read_once(&self, others: &[PathBuf]) -> Result<(), DocumentsError> {
        let is_input = |path: &&PathBuf| path.as_path() == Path::new(STANDARD_INPUT);
        if self.cluster.iter().chain(others).filter(is_input).count() > 1 {
            return Err(DocumentsError::Twice);
        }
        Ok(())
    }

    /// Reads the objects of the cluster; `others` are the sources of other objects.
    pub fn objects(&self, others: &[PathBuf]) -> anyhow::Result<Vec<Document>> {
        self.read_once(others)?;
        Ok(documents::read(&self.cluster)?)
    }

    /// Reads the objects of the cluster and those that a plugin is called for.
    pub fn read(&self, files: &[PathBuf]) -> anyhow::Result<Given> {
        Ok(Given {
            cluster: self.objects(files)?,
            objects: documents::read(files)?,
        })
    }

    /// Puts the plugin on the state of the cluster, and lets a simulated API server complete the objects as it would
    /// store them. Objects that the plugin does not reconcile become part of the cluster.
    pub fn prepare(&self, plugin: Isolated, given: &Given) -> anyhow::Result<Prepared> {
        let now = self.milliseconds()?;
        let Sorted {
            plugin,
            cluster,
            mut primaries,
        } = self.sort(plugin, given)?;
        let mut store = Store::new(runtime(), now);
        let definitions = cluster
            .iter()
            .filter(|it| it.kind.kind == "CustomResourceDefinition")
            .map(|it| &it.object);
        for definition in plugin
            .manifest()
            .crds
            .iter()
            .map(|crd| &crd.definition)
            .chain(definitions)
        {
            store
                .install(definition)
                .context("a CustomResourceDefinition cannot be installed")?;
        }
        for document in &mut primaries {
            if store.served(&document.kind).is_some() {
                document.object = store.stored_form(&document.object).map_err(|refusal| {
                    let Document { kind, name, place, .. } = &*document;
                    let hint = documents::quoting_hint(&refusal.message);
                    anyhow!(
                        "{place}: the API server would refuse {} {name}: {refusal}{hint}",
                        kind.kind
                    )
                })?;
            }
        }
        ensure!(
            !primaries.is_empty(),
            "give an object that the plugin reconciles with -f; it reconciles {}",
            plugin.kind_names()
        );
        for document in &mut primaries {
            // A server sets it, and a plugin may reckon from it.
            let created = &mut document.object["metadata"]["creationTimestamp"];
            if created.is_null() {
                *created = self.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
            }
        }
        let plugin = plugin.at(now).with_documents(&cluster).with_documents(&primaries);
        Ok(Prepared { plugin, primaries })
    }

    /// Sorts the given objects into those that the plugin reconciles and others, which become part of the cluster. It
    /// is an error if objects are given and the plugin reconciles none of them.
    pub(crate) fn sort(&self, plugin: Isolated, given: &Given) -> anyhow::Result<Sorted> {
        let Given { cluster, objects } = given;
        let mut cluster = cluster.clone();
        let (mut primaries, others): (Vec<_>, Vec<_>) = objects
            .iter()
            .cloned()
            .partition(|document| plugin.reconciles(&document.kind));
        if let (true, Some(first)) = (primaries.is_empty(), others.first()) {
            bail!(
                "{}: the plugin does not reconcile {}, only {}; give what it only reads with --cluster",
                first.place,
                first.kind,
                plugin.kind_names()
            );
        }
        cluster.extend(others);
        let plugin = placed(plugin, &mut cluster, &self.namespace);
        for document in &mut primaries {
            place(&plugin, document, &self.namespace);
        }
        Ok(Sorted {
            plugin,
            cluster,
            primaries,
        })
    }
}

/// Puts objects without a namespace into this one, and gives the plugin the CRDs, which tell the scope of their kinds.
pub(crate) fn placed(plugin: Isolated, cluster: &mut [Document], namespace: &str) -> Isolated {
    let is_definition = |document: &&Document| document.kind.kind == "CustomResourceDefinition";
    let definitions: Vec<Document> = cluster.iter().filter(is_definition).cloned().collect();
    let plugin = plugin.with_documents(&definitions);
    for document in cluster {
        place(&plugin, document, namespace);
    }
    plugin
}

/// Puts an object without a namespace into this one, if its kind is namespaced.
pub(crate) fn place(plugin: &Isolated, document: &mut Document, namespace: &str) {
    plugin.place(&mut document.object, namespace);
    if let Ok((_, name)) = documents::identity(&document.object) {
        document.name = name;
    }
}

/// Marks an object as being deleted since a moment, with the finalizer of its controller.
pub fn mark_deleted(object: &mut Value, finalizer: Option<&str>, now: Timestamp) {
    let metadata = &mut object["metadata"];
    if metadata["deletionTimestamp"].is_null() {
        metadata["deletionTimestamp"] = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
    }
    let Some(finalizer) = finalizer else { return };
    let is_there = |list: &Vec<Value>| list.iter().any(|it| it == finalizer);
    match metadata["finalizers"].as_array_mut() {
        Some(list) if is_there(list) => {}
        Some(list) => list.push(finalizer.into()),
        None => metadata["finalizers"] = Value::from(vec![finalizer]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plugin_resource_is_told_from_a_configuration() {
        let plain = json!({"kind": "Plugin", "wasi": "Inert"});
        let settings = Settings::of(plain.clone()).unwrap();
        assert_eq!((settings.configuration, settings.wasi), (Some(plain), None));
        let resource = |spec: Value| json!({"apiVersion": "pilothouse.dev/v1alpha1", "kind": "Plugin", "spec": spec});
        let settings = Settings::of(resource(json!({"configuration": {"a": 1}, "wasi": "Inert"}))).unwrap();
        assert_eq!(settings.configuration, Some(json!({"a": 1})));
        assert_eq!(settings.wasi, Some(Wasi::Inert));
        assert_eq!(
            Settings::of(resource(json!({"wasi": null}))).unwrap(),
            Settings::default()
        );
        let settings = Settings::of(resource(json!({"limits": {"callMilliseconds": 500}}))).unwrap();
        assert_eq!(
            (settings.limits.call_milliseconds, settings.limits.reads),
            (500, 10_000)
        );
        for limits in [json!({"callMillis": 5}), json!({"callMilliseconds": 5})] {
            let error = Settings::of(resource(json!({"limits": limits})))
                .unwrap_err()
                .to_string();
            assert!(error.contains("spec.limits of the Plugin"), "{error}");
        }
        let error = Settings::of(resource(json!({"wasi": "All"}))).unwrap_err().to_string();
        assert!(error.contains("spec.wasi"), "{error}");
    }

    #[test]
    fn the_option_wins_over_the_resource() {
        let option = |grant| WasiArguments { grant };
        assert_eq!(option(None).or(None), Wasi::None);
        assert_eq!(option(None).or(Some(Wasi::Inert)), Wasi::Inert);
        assert_eq!(option(Some(Wasi::None)).or(Some(Wasi::Inert)), Wasi::None);
    }
}
