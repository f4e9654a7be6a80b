//! The demo: the host steers a simulated cluster with all plugins, and the terminal shows what the cluster's watches say,
//! as they say it.
//!
//! `acts` has a file for each plugin: its part of the story, made of what `act` offers and of a `sample`. `host` is the host
//! in this process, `watch` brings changes here, `scene` is what is known from them, `kind` which objects there are and how
//! they are shown, `story` the order of events, `terminal` their form.

#![forbid(unsafe_code)]

mod act;
mod acts;
mod host;
mod kind;
mod sample;
mod scene;
mod story;
mod terminal;
mod watch;

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use pilothouse_simulator::{Options, Simulator};
use tokio::signal::unix::{SignalKind, signal};

use crate::host::{LOG, RunningHost};
use crate::sample::Sample;
use crate::story::Story;
use crate::terminal::Terminal;

/// Shows the host at work on a simulated cluster; `cargo xtask demo` builds what this needs and runs it.
#[derive(Debug, Parser)]
#[command(name = "pilothouse-demo")]
struct Arguments {
    /// The folder with the plugins' components, NAME.wasm
    #[arg(long, value_name = "FOLDER")]
    plugins: PathBuf,
    /// The folder with a resource for each plugin, NAME.yaml
    #[arg(long, value_name = "FOLDER")]
    samples: PathBuf,
    /// Where the kubeconfig, the host's log and the compiled plugins go
    #[arg(long, value_name = "FOLDER")]
    folder: PathBuf,
    /// End by itself, with exit code 1 where anything went otherwise than it should
    #[arg(long)]
    once: bool,
    /// Seconds that anything in the story may take; it takes milliseconds where there is nothing else to do
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    patience: u64,
}

/// End of the demo other than a failure.
enum End {
    Told,
    Interrupted,
}

fn main() -> ExitCode {
    /// Exit status that shells give a program that was ended by SIGINT.
    const INTERRUPTED: u8 = 130;
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let end = match runtime {
        Ok(runtime) => runtime.block_on(run(&arguments)),
        Err(error) => Err(error).context("start the threads of the demo"),
    };
    match end {
        Ok(End::Told) => ExitCode::SUCCESS,
        Ok(End::Interrupted) => {
            eprintln!("demo: interrupted before its end");
            ExitCode::from(INTERRUPTED)
        }
        Err(error) => {
            eprintln!("demo: FAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<End> {
    let Arguments {
        plugins,
        samples,
        folder,
        once,
        patience,
    } = arguments;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let interrupted = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    tokio::pin!(interrupted);

    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let folder = &folder
        .canonicalize()
        .with_context(|| format!("find {}", folder.display()))?;
    let mut acts = Vec::new();
    for act in acts::acts() {
        let sample = Sample::read(&samples.join(act.sample), act.kind)?;
        acts.push((act, sample));
    }
    let mut components: Vec<_> = acts
        .iter()
        .map(|(act, _)| plugins.join(format!("{}.wasm", act.plugin)))
        .collect();
    // The acts of one plugin follow each other.
    components.dedup();
    let loaded = host::load(&components, folder)?;
    let simulator = Simulator::new(Options::default());
    let serving = simulator
        .serve((Ipv4Addr::LOCALHOST, 0).into())
        .await
        .context("serve the simulated cluster")?;
    let kubeconfig = Kubeconfig::write(folder.join("kubeconfig"), serving.kubeconfig())?;

    let terminal = Terminal::of_this_process();
    for about in &loaded.about {
        terminal.fact("plugin", about);
    }
    terminal.fact("cluster", &format!("simulated, {}", serving.url()));
    terminal.fact("kubectl", &kubectl_line(&kubeconfig.path));
    let patience = Duration::from_secs(*patience);
    let mut story = Story::new(acts, simulator, terminal, patience);
    tokio::select! {
        begun = story.begin() => begun?,
        () = &mut interrupted => return Ok(End::Interrupted),
    }
    let mut host = RunningHost::start(loaded, &kubeconfig.path, folder).await?;
    let handle = host.handle();
    let told = async {
        story.tell(&handle).await?;
        if !once {
            story.go_on().await?;
        }
        anyhow::Ok(())
    };
    let end = tokio::select! {
        told = told => told.map(|()| End::Told),
        error = host.ended() => Err(error),
        () = &mut interrupted => Ok(if story.is_told() { End::Told } else { End::Interrupted }),
    };
    let end = end.map_err(|error| with_log(&error, &folder.join(LOG)));
    // The cluster goes last, so that nobody is left talking to nobody.
    let stopped = host.stop().await;
    drop(story);
    drop(serving);
    let end = end?;
    let abandoned = stopped?;
    ensure!(abandoned.is_empty(), "the host abandoned {}", abandoned.join(", "));
    Ok(end)
}

/// A kubeconfig that goes with the cluster that it points at.
struct Kubeconfig {
    path: PathBuf,
    text: String,
}

impl Kubeconfig {
    fn write(path: PathBuf, text: String) -> Result<Self> {
        fs::write(&path, &text).with_context(|| format!("write {}", path.display()))?;
        Ok(Self { path, text })
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        let Self { path, text } = self;
        // Another demo may have written its own since, which stays.
        if fs::read_to_string(&*path).is_ok_and(|present| present == *text) {
            let _ = fs::remove_file(path);
        }
    }
}

/// A line for a shell, to be copied.
fn kubectl_line(kubeconfig: &Path) -> String {
    let path = kubeconfig.display().to_string();
    let plain = path
        .chars()
        .all(|character| character.is_ascii_alphanumeric() || "/._-+".contains(character));
    let quoted = if plain {
        path
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    };
    format!("export KUBECONFIG={quoted}; kubectl get appservices,deployments,services,ingresses")
}

/// An error with what the host said last.
fn with_log(error: &anyhow::Error, log: &Path) -> anyhow::Error {
    /// Lines that are shown.
    const LINES: usize = 15;
    /// Longer ones hold whole objects.
    const WIDTH: usize = 400;
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    let shortened = last.iter().map(|line| line.chars().take(WIDTH).collect::<String>());
    let tail: Vec<_> = shortened.map(|line| format!("  {line}")).collect();
    let (path, tail) = (log.display(), tail.join("\n"));
    anyhow::anyhow!("{error:#}\nThe end of the host's log, {path}:\n{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubectl_line_can_be_copied_whatever_the_folder() {
        let line = kubectl_line(Path::new("/home/me/target/demo/kubeconfig"));
        assert!(
            line.starts_with("export KUBECONFIG=/home/me/target/demo/kubeconfig; kubectl get "),
            "{line}"
        );
        let line = kubectl_line(Path::new("/home/it's me/k"));
        assert!(line.starts_with(r"export KUBECONFIG='/home/it'\''s me/k'; "), "{line}");
    }
}
