//! `pilothouse dev`: runs a cluster, the host and a plugin in this process, and swaps the plugin whenever its sources
//! change. `session` has the host; `rebuild`, `process` and `sources` the component; `observe` reads the state, `model`
//! finds the news and `changes` the differences; `draw`, `screen` and `plain` show it, with the log of `guest_log`.

mod changes;
mod draw;
mod guest_log;
mod model;
mod observe;
mod plain;
mod process;
mod rebuild;
mod screen;
mod session;

use std::collections::VecDeque;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use pilothouse_cluster::connect::ClusterTarget;
use pilothouse_host::ask::coloured;
use pilothouse_host::plugins::CacheArguments;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use self::model::{Build, Line, Model, Since, Tone, Topic};
use self::observe::Observer;
use self::process::{BuildProcess, EndOfBuilds, Said};
use self::rebuild::{BuiltComponent, FailedBuild, Origin};
use self::screen::{Screen, Wish};
use self::session::{Applied, GivenComponent, Place, SERVED_WITHIN, Session};
use crate::plugin::{Settings, WasiArguments};
use crate::sources::Sources;

/// Interval at which the host is observed.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Folder of the kubeconfig in a project, so that it has the same path each time.
const KUBECONFIG_FOLDER: &str = "target/pilothouse";

/// Sample of a project, which is applied unless another one is named.
const SAMPLE: &str = "sample.yaml";

/// Examples below the help.
const EXAMPLES: &str = "\
Examples:
  pilothouse dev                                     # the project in this folder, on a simulated cluster
  pilothouse dev -f deploy/sample.yaml --port 6443   # with a sample, at a port of your choice
  pilothouse dev web.wasm --plain                    # a component that somebody else builds, as lines
  pilothouse dev --kubeconfig ~/.kube/config         # on a real cluster
  pilothouse dev --build 'npm run build'             # a project with a build of its own

kubectl works beside it, with the kubeconfig that is shown. On a real cluster the plugin runs as Plugin NAME-dev with the label
pilothouse.dev/dev; a host that runs in that cluster must not select it. Its objects stay when the command ends.

The simulated cluster calls the plugin's defaulter, validator and converter, as an API server does. A real one does not, because
its API server cannot reach this process: there the plugin defaults and validates only before each reconcile.

Exit code: 0 after q or Ctrl-C, 1 if the cluster, the project or a sample cannot be used, 2 if the command line is wrong. A build
that fails is shown, and the command goes on.";

/// `pilothouse dev`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DevCommand {
    /// The project's folder, or a component (.wasm) that is swapped whenever the file changes
    #[arg(value_name = "PATH", default_value = ".")]
    path: PathBuf,

    /// Use the cluster of this kubeconfig instead of a simulated one
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Use the cluster of this context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// Apply the objects in this YAML file as soon as the plugin is ready, and again whenever the file changes. May be
    /// repeated (default: sample.yaml in the project's folder)
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    samples: Vec<PathBuf>,

    /// The plugin's configuration, YAML or JSON; or its Plugin resource, of which `spec.configuration` and `spec.wasi` are taken
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    wasi: WasiArguments,

    #[command(flatten)]
    cache: CacheArguments,

    /// The port of the simulated cluster on 127.0.0.1 (default: a free one)
    #[arg(long, value_name = "PORT", conflicts_with_all = ["kubeconfig", "context"])]
    port: Option<u16>,

    /// The command that builds the component, run with sh in the project's folder; it leaves it in target/plugins or
    /// target/pilothouse (default: `pilothouse build`; in another language than Rust the build of its template, such as `npm run build`)
    #[arg(long, value_name = "COMMAND")]
    build: Option<String>,

    /// Print lines instead of a live view; the default where the output is not a terminal
    #[arg(long)]
    plain: bool,
}

impl DevCommand {
    /// Runs until the user quits.
    pub fn execute(mut self) -> anyhow::Result<()> {
        let origin = Origin::find(&self.path, self.build.clone())?;
        let mut settings = Settings::of_option(self.config.as_deref())?;
        settings.wasi = Some(self.wasi.or(settings.wasi));
        if let Origin::Project { folder, .. } = &origin
            && self.samples.is_empty()
        {
            self.samples
                .extend(Some(folder.join(SAMPLE)).filter(|sample| sample.is_file()));
        }
        for sample in &self.samples {
            read_samples(sample)?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the threads of the host")?;
        let ended = runtime.block_on(self.run(origin, settings));
        // A running build has been told to end.
        runtime.shutdown_background();
        ended
    }

    async fn run(self, origin: Origin, settings: Settings) -> anyhow::Result<()> {
        let log = guest_log::listen()?;
        let place = if self.kubeconfig.is_some() || self.context.is_some() {
            Place::Real(ClusterTarget {
                kubeconfig: self.kubeconfig,
                context: self.context,
            })
        } else {
            Place::Simulated {
                port: self.port.unwrap_or(0),
            }
        };
        let folder = match &origin {
            Origin::Project { folder, .. } => Some(folder.join(KUBECONFIG_FOLDER)),
            Origin::File(_) => None,
        };
        let session = Session::open(
            place,
            self.cache.sandbox()?,
            &origin.name(),
            settings,
            folder.as_deref(),
        )
        .await?;
        let is_plain = self.plain || !io::stdout().is_terminal() || !io::stdin().is_terminal();
        let screen = if is_plain {
            None
        } else {
            Some(Screen::open().context("cannot use the terminal; give --plain")?)
        };
        let mut dev = Dev {
            begun: (Instant::now(), SystemTime::now()),
            model: Model::new(&session.plugin, session.about.clone()),
            session,
            screen,
            coloured: coloured(),
            origin,
            samples: self.samples,
            are_samples_due: true,
            pending: VecDeque::new(),
            process: EndOfBuilds(BuildProcess::default()),
            is_building: false,
            is_outdated: false,
        };
        let ended = dev.work(log).await;
        let Dev {
            session,
            screen,
            process,
            ..
        } = dev;
        drop(process);
        drop(screen);
        let closed = session.close().await;
        ended.and(closed)
    }
}

/// State of the running command.
#[expect(
    clippy::struct_excessive_bools,
    reason = "the samples, the build and the colours have nothing to do with each other"
)]
struct Dev {
    /// Start, by both clocks.
    begun: (Instant, SystemTime),
    model: Model,
    session: Session,
    screen: Option<Screen>,
    coloured: bool,
    origin: Origin,
    samples: Vec<PathBuf>,
    /// Set if the samples are to be applied when the plugin is ready.
    are_samples_due: bool,
    /// Objects of the samples still to be applied, one request at a time, so that keys and the view stay responsive.
    pending: VecDeque<PendingObject>,
    process: EndOfBuilds,
    is_building: bool,
    /// Set if a source has changed since the current build began.
    is_outdated: bool,
}

/// An object of a sample that is to be applied.
struct PendingObject {
    sample: PathBuf,
    object: Value,
    /// Time and error of the first failed attempt.
    refused: Option<(Instant, String)>,
}

/// Messages of builds.
enum BuildNews {
    Said(Said),
    Ended(anyhow::Result<BuiltComponent>),
}

impl Dev {
    async fn work(&mut self, mut log: mpsc::UnboundedReceiver<String>) -> anyhow::Result<()> {
        let about = self.session.about.clone();
        self.say(Topic::Dev, Tone::Plain, about);
        // A sample may be outside of the project's folder.
        let samples = self.samples.iter().filter_map(|sample| sample.canonicalize().ok());
        let sources = Sources {
            paths: self.origin.watched(),
            except: samples.collect(),
        };
        let samples = Sources {
            paths: self.samples.clone(),
            except: Vec::new(),
        };
        let (mut changes, mut changed_samples) = (sources.follow(), samples.follow());
        let (builds, mut built) = mpsc::unbounded_channel();
        self.build(&builds);
        let mut observer = Observer::default();
        let mut looks = tokio::time::interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        loop {
            tokio::select! {
                _ = interrupt.recv() => return Ok(()),
                _ = terminate.recv() => return Ok(()),
                wish = wish(&mut self.screen) => match wish {
                    Wish::Quit => return Ok(()),
                    Wish::Next => self.model.select(true),
                    Wish::Previous => self.model.select(false),
                    Wish::ScrollDown => self.model.scroll(true),
                    Wish::ScrollUp => self.model.scroll(false),
                    Wish::Redraw => {}
                    Wish::GiveUp => bail!("a part of this program has panicked, as it says above; please report it"),
                    Wish::Resync => {
                        self.session.handle.resync();
                        self.say(Topic::Dev, Tone::Plain, "resync: every object is reconciled again");
                    }
                },
                Some(_) = changes.recv() => self.build(&builds),
                Some(_) = changed_samples.recv() => self.are_samples_due = true,
                Some(news) = built.recv() => match news {
                    BuildNews::Said(said) => self.hear(said),
                    BuildNews::Ended(result) => {
                        self.is_building = false;
                        self.use_component(result).await?;
                        if std::mem::take(&mut self.is_outdated) {
                            self.build(&builds);
                        }
                    }
                },
                Some(line) = log.recv() => {
                    let tone = if line.starts_with("ERROR") { Tone::Bad } else { Tone::Plain };
                    self.say(Topic::Log, tone, line);
                }
                _ = looks.tick() => self.observe(&mut observer).await?,
            }
            if let Some(screen) = &mut self.screen {
                screen
                    .show(&self.model)
                    .context("cannot draw on the terminal; give --plain")?;
            }
        }
    }

    /// Builds on a thread of its own. During a build, the next one waits.
    fn build(&mut self, builds: &mpsc::UnboundedSender<BuildNews>) {
        if self.is_building {
            if !std::mem::replace(&mut self.is_outdated, true) {
                self.say(
                    Topic::Build,
                    Tone::Plain,
                    "changed again; another build follows this one",
                );
            }
            return;
        }
        self.is_building = true;
        if self.origin.is_built() {
            self.model.build = Build::Running(String::new());
            self.say(Topic::Build, Tone::Plain, "building");
        }
        let (origin, builds, process) = (self.origin.clone(), builds.clone(), self.process.0.clone());
        tokio::task::spawn_blocking(move || {
            // At the end there is no receiver.
            let tell = |said| drop(builds.send(BuildNews::Said(said)));
            let built = origin.build(&process, tell);
            let _ = builds.send(BuildNews::Ended(built));
        });
    }

    /// Shows a message of a build: a line if lines are printed, and the progress in the live view.
    fn hear(&mut self, said: Said) {
        match said {
            Said::Line(line) if self.screen.is_none() => {
                if !line.is_empty() {
                    self.say(Topic::Build, Tone::Plain, line);
                }
            }
            Said::Progress(_) if self.screen.is_none() => {}
            Said::Line(text) | Said::Progress(text) => {
                let text = text.trim();
                if !text.is_empty() {
                    self.model.build = Build::Running(text.to_owned());
                }
            }
        }
    }

    /// Puts a component into use, or reports the failed build; then the one before stays in use.
    async fn use_component(&mut self, result: anyhow::Result<BuiltComponent>) -> anyhow::Result<()> {
        let component = match result {
            Ok(component) => component,
            Err(error) => {
                let said = format!("{error:#}");
                self.say(Topic::Build, Tone::Bad, said.as_str());
                let lines = error
                    .downcast_ref::<FailedBuild>()
                    .map(|failed| failed.lines.join("\n"));
                self.model.build = Build::Failed(lines.unwrap_or(said));
                return Ok(());
            }
        };
        let BuiltComponent { file, ended, took } = component;
        if self.origin.is_built() {
            self.model.build = Build::Done(took);
            self.say(
                Topic::Build,
                Tone::Good,
                format!("built in {:.1} s", took.as_secs_f64()),
            );
        }
        // A component that existed before the command is awaited from the command's start.
        let since = match ended.duration_since(self.begun.1) {
            Ok(ended) if self.origin.is_built() => Since::Built(ended),
            Ok(ended) => Since::Saved(ended),
            Err(_) => Since::Start,
        };
        let running = self.model.now.plugin.as_ref().and_then(|plugin| plugin.digest.clone());
        match self.session.run_component(&file).await {
            Ok(given) if running.as_ref() == Some(&given.digest) => {
                self.say(Topic::Build, Tone::Plain, "the component is the same as before");
            }
            Ok(GivenComponent { digest, compiling }) => {
                if let Some(notice) = compiling {
                    self.say(Topic::Build, Tone::Plain, notice);
                }
                self.model.await_component(digest, since);
            }
            Err(error) => {
                if let Some(reason) = self.session.failure().await {
                    bail!("{reason}");
                }
                self.say(Topic::Build, Tone::Bad, format!("{error:#}"));
            }
        }
        Ok(())
    }

    /// Observes the host, and prints the news.
    async fn observe(&mut self, observer: &mut Observer) -> anyhow::Result<()> {
        if let Some(reason) = self.session.failure().await {
            bail!("{reason}");
        }
        let snapshot = observer.observe(&mut self.session).await;
        let news = self.model.observe(self.begun.0.elapsed(), snapshot);
        self.print(&news);
        let is_ready = self.model.now.plugin.as_ref().is_some_and(|plugin| plugin.is_ready);
        if is_ready && self.are_samples_due && self.session.is_asked().await {
            self.are_samples_due = false;
            self.read_samples();
        }
        if is_ready {
            self.apply_pending().await?;
        }
        Ok(())
    }

    /// Reads all samples, to be applied.
    fn read_samples(&mut self) {
        self.pending.clear();
        for sample in self.samples.clone() {
            match read_samples(&sample) {
                Ok(objects) => self.pending.extend(objects.into_iter().map(|object| PendingObject {
                    sample: sample.clone(),
                    object,
                    refused: None,
                })),
                Err(error) => self.say(Topic::Dev, Tone::Bad, format!("{error:#}")),
            }
        }
    }

    /// Applies pending objects, in their order, until one has to be retried later. A refusal is reported at once.
    async fn apply_pending(&mut self) -> anyhow::Result<()> {
        while let Some(PendingObject {
            sample,
            object,
            refused,
        }) = self.pending.pop_front()
        {
            let file = sample.display().to_string();
            match self.session.try_apply(&object).await? {
                Applied::Yes => self.say(Topic::Dev, Tone::Plain, format!("applied {file}")),
                Applied::No(words) => self.say(Topic::Dev, Tone::Bad, format!("{file}: {words}")),
                Applied::NotYet(words) => {
                    let (since, told) = match refused {
                        Some((since, told)) => (since, Some(told)),
                        None => (Instant::now(), None),
                    };
                    if since.elapsed() > SERVED_WITHIN {
                        self.say(
                            Topic::Dev,
                            Tone::Bad,
                            format!("{file}: {words}; save the file to try again"),
                        );
                        continue;
                    }
                    if told.as_ref() != Some(&words) {
                        let within = SERVED_WITHIN.as_secs();
                        self.say(
                            Topic::Dev,
                            Tone::Bad,
                            format!("{file}: {words}; trying again for {within} s"),
                        );
                    }
                    let refused = Some((since, words));
                    self.pending.push_front(PendingObject {
                        sample,
                        object,
                        refused,
                    });
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn say(&mut self, topic: Topic, tone: Tone, text: impl Into<String>) {
        let line = self.model.say(self.begun.0.elapsed(), topic, tone, text);
        self.print(&[line]);
    }

    fn print(&self, lines: &[Line]) {
        if self.screen.is_none() {
            for line in lines {
                plain::print(line, self.coloured);
            }
        }
    }
}

/// Waits for a key; without a screen there are none.
async fn wish(screen: &mut Option<Screen>) -> Wish {
    match screen {
        Some(screen) => screen.wish().await,
        None => std::future::pending().await,
    }
}

fn read_samples(file: &Path) -> anyhow::Result<Vec<Value>> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read the sample {}", file.display()))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
        .map_err(|error| anyhow::anyhow!("{} is not YAML: {}", file.display(), error.without_snippet()))?;
    let objects: Vec<Value> = documents.into_iter().filter(|document| !document.is_null()).collect();
    ensure!(
        !objects.is_empty(),
        "the sample {} is empty; write at least one object with apiVersion, kind and metadata.name, or remove the file",
        file.display()
    );
    for object in &objects {
        for pointer in ["/apiVersion", "/kind", "/metadata/name"] {
            let member = pointer.trim_start_matches('/').replace('/', ".");
            ensure!(
                object.pointer(pointer).is_some_and(Value::is_string),
                "an object in {} has no {member}",
                file.display()
            );
        }
    }
    Ok(objects)
}
