//! `pilothouse render`: prints the result of a plugin for objects, without a cluster, and its differences from expected
//! objects, from another version, or from a live cluster. Formatting is left to `output`, and comparing to `compare`.

mod compare;
mod output;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use pilothouse_core::text::printable::printable;
use pilothouse_core::{Kind, Name};
use pilothouse_host::install::preview::{PreviewedChanges, PreviewedObject, live_changes};
use pilothouse_host::run::ClusterArguments;
use pilothouse_testkit::isolation::{Failed, Isolated, Run};

use crate::plugin::{Given, PluginArguments, Prepared, Settings, StateArguments, mark_deleted};
use crate::verdict::NotAsExpected;

/// Argument of `--diff` for the live cluster.
const LIVE: &str = "cluster";

/// First bytes of every component.
const COMPONENT_MAGIC: &[u8] = b"\0asm";

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse render app-service.wasm -f web.yaml
  pilothouse render app-service.wasm -f web.yaml --cluster state/ --config config.yaml | kubectl diff -f -
  kubectl get appservice web -o yaml | pilothouse render app-service.wasm -f - -o json
  pilothouse render app-service.wasm -f web.yaml --diff expected.yaml
  pilothouse render app-service-0.2.0.wasm -f web.yaml --diff app-service-0.1.0.wasm
  pilothouse render app-service.wasm --diff cluster --context staging

A simulated API server checks each object of -f against its CRD and fills in defaults. Then the plugin is asked as by the host:
its defaulter, its validator, and the reconcile; for an object that is being deleted, its finalizer. It is not asked about an object
that the controller's filter does not select. A call that takes longer than callMilliseconds (the Plugin's that is given with
--config, else the host's default) fails.

YAML output can be given to kubectl: what is no object of the cluster stands in comments. Values of Secrets are hidden, and such
a Secret is a comment too, unless --show-secrets is given.

Exit code: 0, 1 on an error, 2 if the command line is wrong, 3 if the plugin fails for an object or --diff finds a difference.";

/// `pilothouse render`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct RenderCommand {
    #[command(flatten)]
    plugin: PluginArguments,

    /// Objects that the plugin reconciles: a YAML or JSON file, a folder, or - for standard input. May be repeated. What the
    /// plugin does not reconcile becomes part of the cluster
    #[arg(long = "filename", short = 'f', value_name = "FILE|FOLDER|-")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    state: StateArguments,

    /// Render the objects as being deleted
    #[arg(long)]
    finalize: bool,

    /// Compare with a file of expected objects, with another component, or with the live cluster (`cluster`). With the live
    /// cluster its objects are rendered rather than those of -f, which only select
    #[arg(long, value_name = "FILE|OTHER.wasm|cluster")]
    diff: Option<PathBuf>,

    /// Output format: yaml for kubectl, text for humans, json for programs
    #[arg(long, short, value_enum, default_value_t = Format::Yaml)]
    output: Format,

    /// Print the values of Secrets
    #[arg(long)]
    show_secrets: bool,

    /// With --diff cluster: number of seconds in which all objects have to be looked at
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u64,

    #[command(flatten)]
    cluster: ClusterArguments,
}

/// In which form the result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Yaml,
    Text,
    Json,
}

/// Result for one object.
struct Rendered {
    kind: Kind,
    name: Name,
    run: Result<Run, Box<Failed>>,
}

impl Rendered {
    fn title(&self) -> String {
        format!("{} {}", self.kind.kind, self.name)
    }
}

impl RenderCommand {
    /// Renders, and compares.
    pub fn execute(self) -> anyhow::Result<()> {
        match &self.diff {
            None => self.print(),
            Some(with) if with == Path::new(LIVE) => self.diff_live(),
            Some(with) => self.diff_with(with),
        }
    }

    /// Returns the plugin on the state of the cluster, and its results for the objects.
    fn rendered(&self, component: &Path, given: &Given) -> anyhow::Result<(Isolated, Vec<Rendered>)> {
        let limits = Settings::of_option(self.plugin.config.as_deref())?.limits;
        let plugin = self.plugin.load_other(component)?.timed(&limits);
        let mut prepared = self.state.prepare(plugin, given)?;
        if self.finalize {
            let controllers = prepared.plugin.manifest().manifest.controllers.clone();
            for primary in &mut prepared.primaries {
                let controller = controllers.iter().find(|controller| controller.kind == primary.kind);
                let finalizer = controller.and_then(|controller| controller.finalizer.as_deref());
                mark_deleted(&mut primary.object, finalizer, self.state.now);
            }
            prepared.plugin = prepared.plugin.with_documents(&prepared.primaries);
        }
        let Prepared { plugin, primaries } = prepared;
        let rendered = primaries.into_iter().map(|primary| Rendered {
            run: plugin.run(&primary.object),
            kind: primary.kind,
            name: primary.name,
        });
        let rendered = rendered.collect();
        Ok((plugin, rendered))
    }

    fn print(&self) -> anyhow::Result<()> {
        let (_, rendered) = self.rendered(&self.plugin.component, &self.state.read(&self.files)?)?;
        let text = match self.output {
            Format::Yaml => output::yaml(&rendered, self.show_secrets),
            Format::Text => output::text(&rendered),
            Format::Json => output::json(&rendered, self.show_secrets),
        };
        print!("{text}");
        let failing: Vec<String> = rendered
            .iter()
            .filter(|it| it.run.is_err())
            .map(Rendered::title)
            .collect();
        if failing.is_empty() {
            return Ok(());
        }
        let problem = format!(
            "the plugin fails for {} of {} objects: {}",
            failing.len(),
            rendered.len(),
            failing.join(", ")
        );
        Err(NotAsExpected(problem).into())
    }

    fn diff_with(&self, with: &Path) -> anyhow::Result<()> {
        // The expected file could be standard input, too.
        let sources = [&self.files[..], &[with.to_owned()]].concat();
        self.state.read_once(&sources)?;
        let given = self.state.read(&self.files)?;
        let (plugin, rendered) = self.rendered(&self.plugin.component, &given)?;
        let differences = if is_component(with)? {
            compare::with_other(&self.rendered(with, &given)?.1, &rendered)
        } else {
            if let Some(failing) = rendered
                .iter()
                .find_map(|it| it.run.as_ref().err().map(|failed| (it.title(), failed)))
            {
                return Err(NotAsExpected(format!("the plugin fails for {}: {}", failing.0, failing.1)).into());
            }
            compare::with_file(&plugin, with, &self.state.namespace, &rendered)?
        };
        print_differences(&differences)
    }

    fn diff_live(&self) -> anyhow::Result<()> {
        let Self {
            plugin,
            files,
            state,
            cluster,
            wait,
            ..
        } = self;
        let isolated = plugin.load()?;
        let wanted: Vec<(Kind, Name)> = if files.is_empty() {
            Vec::new()
        } else {
            let Prepared { primaries, .. } = state.prepare(isolated.clone(), &state.read(files)?)?;
            let named = primaries.into_iter().map(|primary| (primary.kind, primary.name));
            named.collect()
        };
        let name = isolated.manifest().manifest.name.clone();
        let config = Settings::of_option(plugin.config.as_deref())?.configuration;
        let component = isolated.plugin().clone();
        let within = Duration::from_secs(*wait);
        let found = live_changes(&name, component, config, cluster.clone(), within);
        let PreviewedChanges {
            primaries,
            failing,
            failures,
            changes,
            unnamed_deletes: _,
            new_definitions,
        } = found.context("cannot compare with the live cluster")?;
        let is_wanted = |object: &PreviewedObject| {
            let is_it = |(kind, name): &(Kind, Name)| (kind, name) == (&object.kind, &object.name);
            wanted.is_empty() || wanted.iter().any(is_it)
        };
        let mut differences = Vec::new();
        for (object, lines) in changes.iter().filter(|(object, _)| is_wanted(object)) {
            let lines = lines.iter().map(|change| format!("  {}\n", printable(&change.line)));
            let lines: Vec<String> = lines.collect();
            differences.push(format!("{}\n{}", printable(&object.to_string()), lines.concat()));
        }
        eprintln!("the plugin looked at {primaries} live objects");
        for definition in new_definitions {
            eprintln!(
                "the cluster has no CustomResourceDefinition {definition} yet, so there are no objects of its kind"
            );
        }
        for (object, message) in failures.iter().filter(|(object, _)| is_wanted(object)) {
            let line = format!("the plugin fails for {object}: {message}");
            differences.push(format!("{}\n", printable(&line)));
        }
        if failing > failures.len() {
            differences.push(format!(
                "the plugin fails for {} more live objects, of which the host remembers no reason; mend those above and run the \
                 command again\n",
                failing - failures.len()
            ));
        }
        print_differences(&differences)
    }
}

fn print_differences(differences: &[String]) -> anyhow::Result<()> {
    if differences.is_empty() {
        return Ok(());
    }
    print!("{}", differences.concat());
    let count = differences.len();
    let things = if count == 1 { "difference" } else { "differences" };
    Err(NotAsExpected(format!("{count} {things}")).into())
}

/// Reports whether a file is a component rather than YAML.
fn is_component(path: &Path) -> anyhow::Result<bool> {
    use std::io::Read as _;
    if path.is_dir() || path == Path::new("-") {
        return Ok(false);
    }
    let unread = || format!("--diff: cannot read {}", path.display());
    let mut magic = Vec::new();
    std::fs::File::open(path)
        .with_context(unread)?
        .take(4)
        .read_to_end(&mut magic)
        .with_context(unread)?;
    if path.extension().is_some_and(|ending| ending == "wasm") && magic != COMPONENT_MAGIC {
        bail!("--diff: {} is no component", path.display());
    }
    Ok(magic == COMPONENT_MAGIC)
}
