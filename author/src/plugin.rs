//! Owns what the commands have in common that run a plugin by itself: which component, with which configuration, on which
//! objects, in which cluster, at what time. Leaves running it to the test kit.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use jiff::Timestamp;
use pilothouse_host::plugins::{CacheArguments, read_document};
use pilothouse_testkit::documents::{self, Document, DocumentsError, STANDARD_INPUT};
use pilothouse_testkit::isolation::Isolated;
use pilothouse_testkit::store::{Store, runtime};
use serde_json::Value;

/// The time unless the command line says otherwise: the same each time, so that a command can be repeated.
const DEFAULT_NOW: &str = "2026-01-01T00:00:00Z";

/// Which plugin.
#[derive(Args, Debug)]
pub struct PluginArguments {
    /// The plugin's component
    #[arg(value_name = "FILE.wasm")]
    pub component: PathBuf,

    /// The plugin's configuration, YAML or JSON
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Where compiled plugins are kept.
    #[command(flatten)]
    pub cache: CacheArguments,
}

/// In which cluster, at what time.
#[derive(Args, Debug)]
pub struct StateArguments {
    /// Objects that are in the cluster: a YAML or JSON file, a folder, or - for standard input. May be repeated
    #[arg(long, value_name = "FILE|FOLDER|-")]
    pub cluster: Vec<PathBuf>,

    /// The namespace of objects that do not say in which they are
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    pub namespace: String,

    /// The time that the plugin sees, as in 2026-01-02T03:04:05Z
    #[arg(long, value_name = "TIME", default_value = DEFAULT_NOW)]
    pub now: Timestamp,
}

/// A plugin on the state of a cluster, with the objects that it is asked about.
#[derive(Clone)]
pub struct Prepared {
    /// The plugin. Its cache has the objects too.
    pub plugin: Isolated,
    /// The objects that it reconciles, as an API server would store them.
    pub primaries: Vec<Document>,
}

impl PluginArguments {
    /// Loads the plugin and has it describe itself.
    pub fn load(&self) -> anyhow::Result<Isolated> {
        self.load_other(&self.component)
    }

    /// Loads another component, with the same configuration.
    pub fn load_other(&self, component: &Path) -> anyhow::Result<Isolated> {
        let config = self.config.as_deref().map(read_document).transpose()?;
        let loaded = self.cache.sandbox()?.load(component)?;
        Ok(Isolated::of(component.to_owned(), loaded, config)?)
    }
}

impl StateArguments {
    /// The time in milliseconds since 1970.
    pub fn milliseconds(&self) -> anyhow::Result<u64> {
        let milliseconds = self.now.as_millisecond();
        u64::try_from(milliseconds).with_context(|| format!("--now {} is before 1970; give a later time", self.now))
    }

    /// Reads the objects of the cluster; `others` are the sources of other objects.
    pub fn objects(&self, others: &[PathBuf]) -> anyhow::Result<Vec<Document>> {
        let is_input = |path: &&PathBuf| path.as_path() == Path::new(STANDARD_INPUT);
        if self.cluster.iter().chain(others).filter(is_input).count() > 1 {
            return Err(DocumentsError::Twice.into());
        }
        Ok(documents::read(&self.cluster)?)
    }

    /// Puts the plugin on the state of the cluster, and has a simulated API server give the objects the form in which they
    /// would be stored. Objects that the plugin does not reconcile become part of the cluster.
    pub fn prepare(&self, plugin: Isolated, files: &[PathBuf]) -> anyhow::Result<Prepared> {
        let now = self.milliseconds()?;
        let mut cluster = self.objects(files)?;
        let given = documents::read(files)?;
        for document in &mut cluster {
            self.place(&plugin, document);
        }
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
        let mut primaries = Vec::new();
        for mut document in given {
            self.place(&plugin, &mut document);
            let controllers = &plugin.manifest().manifest.controllers;
            if !controllers.iter().any(|controller| controller.kind == document.kind) {
                cluster.push(document);
                continue;
            }
            if store.served(&document.kind).is_some() {
                let stored = store.stored_form(&document.object).with_context(|| {
                    let Document { kind, name, place, .. } = &document;
                    format!("{place}: the API server would refuse {} {name}", kind.kind)
                });
                document.object = stored?;
            }
            primaries.push(document);
        }
        if let (true, Some(first)) = (primaries.is_empty(), cluster.last()) {
            bail!(
                "{}: the plugin does not reconcile {}, only {}; give what it only reads with --cluster",
                first.place,
                first.kind,
                kinds(&plugin)
            );
        }
        ensure!(
            !primaries.is_empty(),
            "give an object that the plugin reconciles with -f; it reconciles {}",
            kinds(&plugin)
        );
        let plugin = plugin.at(now).with_documents(&cluster).with_documents(&primaries);
        Ok(Prepared { plugin, primaries })
    }

    fn place(&self, plugin: &Isolated, document: &mut Document) {
        plugin.place(&mut document.object, &self.namespace);
        if let Ok((_, name)) = documents::identity(&document.object) {
            document.name = name;
        }
    }
}

/// The kinds that a plugin reconciles, for messages.
pub fn kinds(plugin: &Isolated) -> String {
    let controllers = &plugin.manifest().manifest.controllers;
    let kinds: Vec<String> = controllers
        .iter()
        .map(|controller| controller.kind.to_string())
        .collect();
    kinds.join(", ")
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
