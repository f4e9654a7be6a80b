//! `cargo xtask bench author`: measures the author's waiting time from `pilothouse new` to a green test, and for
//! `render`, `check` and the swap of `dev`. The commands are those that `pilothouse new` prints, so they are the same
//! for each language.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{cargo, is_of_this_chore, root};

/// Options of `bench author`.
#[derive(Clone, Debug, clap::Args)]
pub struct AuthorOptions {
    /// The language of the project: rust, js, python, go or c.
    #[arg(long, value_name = "LANGUAGE", default_value = "rust")]
    pub lang: String,
    /// The program `pilothouse` to measure with; without it, it is built as released, without link-time optimisation.
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// Number of calls of `render`, and of swaps; the output shows the minimum, the median and the maximum.
    #[arg(long, value_name = "NUMBER", default_value = "5")]
    pub times: NonZeroUsize,
}

/// Path of the project's component.
const COMPONENT: &str = "target/plugins/website.wasm";

/// Measures, and prints.
pub(crate) fn run(options: &AuthorOptions) -> Result<()> {
    let AuthorOptions { lang, program, times } = options;
    let author = Author::new(program.as_deref())?;
    println!("an operator in {lang}, from an empty folder to green tests");
    let sdk = root().canonicalize().context("find the repository")?;
    let mut new = format!("pilothouse new website --kind example.com/v1alpha1/Website --lang {lang}");
    if lang == "rust" {
        new = format!("{new} --sdk {}", sdk.display());
    }
    let (said, mut all) = author.times(author.folder.path(), &new)?;
    let commands = next(&said);
    ensure!(!commands.is_empty(), "`pilothouse new` names no next step:\n{said}");
    let project = author.folder.path().join("website");
    for command in &commands {
        all += author.times(&project, command)?.1;
    }
    let count = commands.len() + 1;
    println!(
        "{:>9.1} s  all {count} commands; lines written by hand: 0",
        all.as_secs_f64()
    );
    println!("the same commands once more, with nothing changed");
    let mut again = Duration::ZERO;
    for command in &commands {
        again += author.times(&project, command)?.1;
    }
    println!("{:>9.1} s  all", again.as_secs_f64());

    let render = format!("pilothouse render {COMPONENT} -f sample.yaml");
    let mut renders = Vec::new();
    for _ in 0..times.get() {
        let started = Instant::now();
        author.runs(&project, &render)?;
        renders.push(started.elapsed());
    }
    println!("{}  {render}", spread(renders));
    let checked = author.runs(&project, &format!("pilothouse check {COMPONENT} -f sample.yaml"))?;
    println!("pilothouse check: {}", checked.lines().last().unwrap_or_default());
    println!(
        "{}  pilothouse dev, from save to swapped, without building",
        spread(author.swaps(&project, times.get())?)
    );
    Ok(())
}

/// The steps that `pilothouse new` names, but for those that go on until they are interrupted.
fn next(said: &str) -> Vec<String> {
    let steps = said.lines().skip_while(|line| !line.ends_with("Next:")).skip(1);
    steps
        .map(str::trim)
        .filter(|step| !step.is_empty() && !step.starts_with("cd ") && *step != "pilothouse dev")
        .map(str::to_owned)
        .collect()
}

/// The minimum, the median and the maximum.
fn spread(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |position: usize| times.get(position).copied().unwrap_or_default().as_secs_f64() * 1000.0;
    let last = times.len().saturating_sub(1);
    format!("{:.0} / {:.0} / {:.0} ms", at(0), at(last / 2), at(last))
}

/// Runs the commands in an empty folder, with the program on the search path.
struct Author {
    folder: tempfile::TempDir,
    path: String,
}

impl Author {
    fn new(program: Option<&Path>) -> Result<Self> {
        let program = if let Some(program) = program {
            program
                .canonicalize()
                .with_context(|| format!("find {}", program.display()))?
        } else {
            let build = ["build", "--release", "--package", "pilothouse"];
            let status = cargo().args(build).status().context("run cargo")?;
            ensure!(status.success(), "the program does not build");
            root().join("target/release/pilothouse")
        };
        ensure!(
            program.file_name().is_some_and(|name| name == "pilothouse"),
            "{} has another name than pilothouse, by which the commands call it",
            program.display()
        );
        let folder = program.parent().context("a program is in a folder")?;
        let others = std::env::var("PATH").unwrap_or_default();
        Ok(Self {
            folder: tempfile::tempdir().context("make a folder")?,
            path: format!("{}:{others}", folder.display()),
        })
    }

    /// A command in a folder. Its caches are empty at first, but for the packages that cargo, npm and Go have downloaded.
    fn shell(&self, folder: &Path, command: &str) -> Command {
        let mut shell = Command::new("sh");
        shell
            .args(["-euc", command])
            .current_dir(folder)
            .stdin(Stdio::null())
            .env("PATH", &self.path)
            .env("XDG_CACHE_HOME", self.folder.path().join("cache"))
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("KUBECONFIG");
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_this_chore(name)) {
            shell.env_remove(name);
        }
        shell
    }

    /// Runs a command, and returns its output.
    fn runs(&self, folder: &Path, command: &str) -> Result<String> {
        let output = self.shell(folder, command).output().context("run sh")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let complained = String::from_utf8_lossy(&output.stderr);
            bail!("`{command}` ended with {}:\n{said}{complained}", output.status);
        }
        Ok(said)
    }

    /// Runs a command and prints how long it took.
    fn times(&self, folder: &Path, command: &str) -> Result<(String, Duration)> {
        let started = Instant::now();
        let said = self.runs(folder, command)?;
        let took = started.elapsed();
        println!("{:>9.1} s  {command}", took.as_secs_f64());
        Ok((said, took))
    }

    /// The times from a saved component until it runs, as `pilothouse dev` says them.
    fn swaps(&self, project: &Path, times: usize) -> Result<Vec<Duration>> {
        let component = project.join(COMPONENT);
        let bytes = fs::read(&component).context("read the component")?;
        let command = format!("exec pilothouse dev {COMPONENT} --plain");
        let mut process = self
            .shell(project, &command)
            .stdout(Stdio::piped())
            .spawn()
            .context("run sh")?;
        let output = BufReader::new(process.stdout.take().context("read what dev says")?);
        let (mut swaps, mut is_started) = (Vec::new(), false);
        for line in output.lines() {
            let line = line.context("read what dev says")?;
            let Some((_, took)) = line.split_once(" runs, ") else {
                continue;
            };
            let (took, _) = took
                .split_once(" ms after")
                .with_context(|| format!("find a time in {line}"))?;
            let took = took.parse().with_context(|| format!("read the time in {line}"))?;
            // The first time is that of the start.
            if is_started {
                swaps.push(Duration::from_millis(took));
            }
            is_started = true;
            if swaps.len() == times {
                break;
            }
            // A custom section, which changes nothing but the digest.
            let mark = u8::try_from(swaps.len()).unwrap_or(u8::MAX);
            let saved = project.join("target/website.new");
            fs::write(&saved, [&bytes[..], &[0, 3, 1, b'm', mark]].concat()).context("save the component")?;
            fs::rename(&saved, &component).context("save the component")?;
        }
        process.kill().context("end dev")?;
        process.wait().context("end dev")?;
        ensure!(swaps.len() == times, "dev says nothing of {times} swaps");
        Ok(swaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_steps_are_those_that_end() {
        let said = "website/package.json\n\nThe project is in website. Next:\n  cd website\n  npm install\n  pilothouse test\n  \
                    pilothouse dev\n";
        assert_eq!(next(said), ["npm install", "pilothouse test"]);
        assert!(next("nothing").is_empty());
    }

    #[test]
    fn a_spread_is_minimum_median_and_maximum() {
        let times = [30, 10, 20].map(Duration::from_millis).to_vec();
        assert_eq!(spread(times), "10 / 20 / 30 ms");
    }
}
