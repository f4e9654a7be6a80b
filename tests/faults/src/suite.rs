//! Suite of runs: lists them, distributes them, handles failures, and prints the summary.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use pilothouse_end_to_end::components;

use crate::judge::Facts;
use crate::play::{self, Job, Report};
use crate::real;
use crate::schedule::{Fault, Moment, NAMES, Schedule, Strike};

/// Default count of seeds.
const SEEDS: u64 = 300;

/// Count of schedules on the real control plane.
const REAL_SEEDS: u64 = 50;

/// The most failures that are shrunk and told in full; the others are counted.
const SHRUNK: usize = 20;

/// Requests of a successor's start at which a late write is committed, one run each. Starts make fewer.
const LATE_POSITIONS: usize = 60;

/// What is to be run.
#[derive(Clone, Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub struct Options {
    /// Run the schedules of this many seeds, from --first on, over all scenarios.
    #[arg(long, default_value_t = SEEDS)]
    pub seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    pub first: u64,
    /// Run this seed only.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Run only scenarios whose name (folder/file) contains this.
    #[arg(long)]
    pub scenario: Option<String>,
    /// Run only these faults, by their names, separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub faults: Vec<String>,
    /// Of the schedule that a seed draws keep only these faults, by their numbers.
    #[arg(long, value_delimiter = ',')]
    pub keep: Option<Vec<usize>>,
    /// Kill the host before and after each of its writes in every scenario.
    #[arg(long)]
    pub kill_everywhere: bool,
    /// Kill the host at each create of a child, and commit that write at every point of its successor's start.
    #[arg(long)]
    pub late_everywhere: bool,
    /// Kill the host at this write: `before:7`, `after:7`, or `late:7:20` to commit it at the successor's 20th request.
    #[arg(long)]
    pub kill: Option<String>,
    /// Run chosen schedules on the real control plane, with processes that are killed and stopped.
    #[arg(long)]
    pub real: bool,
    /// Runs at once.
    #[arg(long)]
    pub jobs: Option<usize>,
    /// Tell all that is said and asked in a single run.
    #[arg(long)]
    pub log: bool,
    /// Run each schedule twice, and fail where the two differ.
    #[arg(long)]
    pub twice: bool,
    /// Tell failures as they are, without shrinking them.
    #[arg(long)]
    pub no_shrink: bool,
}

/// A scenario file.
#[derive(Clone, Debug)]
struct Story {
    /// folder/file.
    name: String,
    path: PathBuf,
}

/// A schedule that a story is to be run under.
#[derive(Clone, Debug)]
struct Run {
    story: usize,
    schedule: Schedule,
    /// The options that repeat it.
    repeat: String,
}

/// Interval of the progress lines of a long suite.
const PROGRESS_EVERY: Duration = Duration::from_mins(1);

/// A run that failed.
struct Failure {
    run: Run,
    report: Report,
}

/// Runs the suite; whether everything is as it should be.
pub fn run(options: &Options) -> Result<bool> {
    for name in &options.faults {
        ensure!(
            NAMES.contains(&&**name),
            "there is no fault {name:?}; there are {}",
            NAMES.join(", ")
        );
    }
    if options.real {
        let (first, count) = match options.seed {
            Some(seed) => (seed, 1),
            None => (options.first, options.seeds.min(REAL_SEEDS)),
        };
        return real::run(first, count, options.scenario.as_deref());
    }
    let stories = stories(options.scenario.as_deref())?;
    let folder = tempfile::Builder::new().prefix("pilothouse-faults-").tempdir()?;
    let jobs = options
        .jobs
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let begun = Instant::now();
    let (facts, sound) = facts(&stories, folder.path(), jobs)?;
    println!(
        "{} scenarios without faults: {:.1} s",
        stories.len(),
        begun.elapsed().as_secs_f32()
    );
    let runs = runs(options, &stories, &facts)?;
    let count = runs.len();
    ensure!(
        count > 0,
        "there is nothing to run; see --scenario, --faults and --keep"
    );
    println!("{count} runs under faults");
    let begun = Instant::now();
    let suite = Suite {
        stories: &stories,
        folder: folder.path(),
        log: options.log && count == 1,
        twice: options.twice,
    };
    let mut failures = suite.run_all(runs, jobs)?;
    let took = begun.elapsed();
    failures.sort_by_key(|failure| (failure.run.story, failure.run.schedule.seed));
    let mut by_scenario = BTreeMap::<&str, usize>::new();
    for failure in &failures {
        *by_scenario.entry(&stories[failure.run.story].name).or_default() += 1;
    }
    for (index, failure) in failures.iter().enumerate() {
        let shrink = !options.no_shrink && index < SHRUNK;
        suite.tell(failure, shrink)?;
    }
    println!(
        "{count} runs in {:.1} s, {:.2} a second: {} failed",
        took.as_secs_f32(),
        count_per_second(count, took),
        failures.len()
    );
    for (scenario, count) in by_scenario {
        println!("  {scenario}: {count}");
    }
    Ok(failures.is_empty() && sound)
}

/// Runs one job for another process.
pub fn work() -> Result<bool> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let report = play::play(serde_json::from_str(&text)?)?;
    println!("{}", serde_json::to_string(&report)?);
    Ok(true)
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn count_per_second(count: usize, took: Duration) -> f32 {
    count as f32 / took.as_secs_f32()
}

fn stories(wanted: Option<&str>) -> Result<Vec<Story>> {
    let folder = components::root().join("tests").join("scenarios");
    let mut stories = Vec::new();
    let read = |path: &Path| -> Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(path).with_context(|| format!("read {}", path.display()))?;
        let mut paths: Vec<_> = entries
            .map(|entry| entry.map(|it| it.path()))
            .collect::<Result<_, _>>()?;
        paths.sort();
        Ok(paths)
    };
    for plugin in read(&folder)? {
        for path in read(&plugin)? {
            let stem = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let name = format!("{}/{}", stem(&plugin), stem(&path));
            if path.extension().is_some_and(|it| it == "yaml") && wanted.is_none_or(|wanted| name.contains(wanted)) {
                stories.push(Story { name, path });
            }
        }
    }
    // A whole name means itself, whatever other names begin with it.
    if stories.iter().any(|story| wanted == Some(&*story.name)) {
        stories.retain(|story| wanted == Some(&*story.name));
    }
    ensure!(
        !stories.is_empty(),
        "no scenario has {:?} in its name",
        wanted.unwrap_or_default()
    );
    Ok(stories)
}

/// Runs every story without faults. A story that fails is reported and left out.
fn facts(stories: &[Story], folder: &Path, jobs: usize) -> Result<(Vec<Option<Facts>>, bool)> {
    let found = Mutex::new(vec![None; stories.len()]);
    let all: Vec<usize> = (0..stories.len()).collect();
    let sound = Mutex::new(true);
    each(all, jobs, |index| {
        let job = Job {
            scenario: stories[index].path.clone(),
            schedule: Schedule::default(),
            facts: None,
            log: false,
        };
        let Report { problems, facts, .. } = in_a_process(&job)?;
        if !problems.is_empty() {
            println!(
                "FAILED without faults: {}\n  {}",
                stories[index].name,
                problems.join("\n  ")
            );
            *sound.lock().expect("no panic while it is held") = false;
            return Ok(());
        }
        let facts = facts.context("a run without faults finds facts")?;
        std::fs::write(facts_of(folder, index), serde_json::to_vec(&facts)?)?;
        found.lock().expect("no panic while it is held")[index] = Some(facts);
        Ok(())
    })?;
    let sound = *sound.lock().expect("no panic while it is held");
    Ok((found.into_inner().expect("no panic while it is held"), sound))
}

fn facts_of(folder: &Path, index: usize) -> PathBuf {
    folder.join(format!("{index}.json"))
}

fn runs(options: &Options, stories: &[Story], facts: &[Option<Facts>]) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    let with = |at: usize, fault: Fault| Schedule {
        seed: 0,
        strikes: vec![Strike { number: 0, at, fault }],
    };
    if let Some(kill) = &options.kill {
        for story in 0..stories.len() {
            let (at, fault) = parse_kill(kill)?;
            runs.push(Run {
                story,
                schedule: with(at, fault),
                repeat: format!("--kill {kill}"),
            });
        }
        return Ok(runs);
    }
    if options.kill_everywhere || options.late_everywhere {
        for (story, facts) in facts.iter().enumerate() {
            let Some(facts) = facts else { continue };
            for at in 0..facts.writes {
                if options.kill_everywhere {
                    for (name, moment) in [("before", Moment::Before), ("after", Moment::After)] {
                        let fault = Fault::Killed { moment, again: 1 };
                        runs.push(Run {
                            story,
                            schedule: with(at, fault),
                            repeat: format!("--kill {name}:{at}"),
                        });
                    }
                }
                if options.late_everywhere
                    && facts.written[at].ends_with("-> 201")
                    && !facts.written[at].contains("events")
                {
                    for requests in 0..LATE_POSITIONS {
                        let fault = Fault::LateWrite { requests, again: 1 };
                        runs.push(Run {
                            story,
                            schedule: with(at, fault),
                            repeat: format!("--kill late:{at}:{requests}"),
                        });
                    }
                }
            }
        }
        return Ok(runs);
    }
    let seeds = match options.seed {
        Some(seed) => seed..seed + 1,
        None => options.first..options.first + options.seeds,
    };
    let is_wanted = |name: &str| options.faults.is_empty() || options.faults.iter().any(|it| it == name);
    for seed in seeds {
        // One seed is run on every scenario that is asked for, many are spread over them.
        let chosen: Vec<usize> = if options.seed.is_some() {
            (0..stories.len()).collect()
        } else {
            vec![usize::try_from(seed).unwrap_or_default() % stories.len()]
        };
        for story in chosen {
            let Some(facts) = &facts[story] else { continue };
            let mut schedule = Schedule::draw(seed, facts.writes, is_wanted);
            if let Some(keep) = &options.keep {
                schedule = schedule.keep(keep);
            }
            if !schedule.strikes.is_empty() {
                let repeat = format!("--seed {seed}");
                runs.push(Run {
                    story,
                    schedule,
                    repeat,
                });
            }
        }
    }
    Ok(runs)
}

fn parse_kill(text: &str) -> Result<(usize, Fault)> {
    let parts: Vec<&str> = text.split(':').collect();
    let fault = match parts.as_slice() {
        ["before", _] => Fault::Killed {
            moment: Moment::Before,
            again: 1,
        },
        ["after", _] => Fault::Killed {
            moment: Moment::After,
            again: 1,
        },
        ["late", _, requests] => Fault::LateWrite {
            requests: requests.parse()?,
            again: 1,
        },
        _ => anyhow::bail!("--kill {text:?}: give before:WRITE, after:WRITE or late:WRITE:REQUESTS"),
    };
    Ok((parts[1].parse()?, fault))
}

/// Runner of the suite.
struct Suite<'run> {
    stories: &'run [Story],
    folder: &'run Path,
    log: bool,
    twice: bool,
}

impl Suite<'_> {
    fn run_all(&self, runs: Vec<Run>, jobs: usize) -> Result<Vec<Failure>> {
        let failures = Mutex::new(Vec::new());
        let count = runs.len();
        let progress = Mutex::new((0, Instant::now()));
        each(runs, jobs, |run| {
            let mut report = self.once(&run, self.log)?;
            if self.log {
                print!("{}\n{}\n{}", run.schedule, report.log, report.requests.join("\n"));
                println!();
            }
            if self.twice {
                let again = self.once(&run, false)?;
                if again.trace != report.trace {
                    report.problems.push("the same run again is another one".to_owned());
                }
            }
            if !report.problems.is_empty() {
                let mut failures = failures.lock().expect("no panic while it is held");
                println!(
                    "FAILED {} {}: {}",
                    self.stories[run.story].name,
                    run.repeat,
                    report.problems[0].lines().next().unwrap_or_default()
                );
                failures.push(Failure { run, report });
            }
            let mut progress = progress.lock().expect("no panic while it is held");
            let (done, told) = &mut *progress;
            *done += 1;
            if told.elapsed() >= PROGRESS_EVERY {
                *told = Instant::now();
                let failed = failures.lock().expect("no panic while it is held").len();
                println!("{done} of {count} runs, {failed} failed");
            }
            Ok(())
        })?;
        Ok(failures.into_inner().expect("no panic while it is held"))
    }

    fn once(&self, run: &Run, log: bool) -> Result<Report> {
        in_a_process(&Job {
            scenario: self.stories[run.story].path.clone(),
            schedule: run.schedule.clone(),
            facts: Some(facts_of(self.folder, run.story)),
            log,
        })
    }

    /// The shortest schedule that still fails: no fault can be left out, and none can be milder.
    fn shrink(&self, failure: &Failure) -> Result<(Schedule, Report)> {
        let (mut schedule, mut report) = (failure.run.schedule.clone(), failure.report.clone());
        let mut index = 0;
        while index < schedule.strikes.len() && schedule.strikes.len() > 1 {
            let mut without = schedule.clone();
            without.strikes.remove(index);
            let run = Run {
                schedule: without.clone(),
                ..failure.run.clone()
            };
            let again = self.once(&run, false)?;
            if again.problems.is_empty() {
                index += 1;
            } else {
                (schedule, report) = (without, again);
            }
        }
        Ok((schedule, report))
    }

    fn tell(&self, failure: &Failure, shrink: bool) -> Result<()> {
        let (schedule, report) = if shrink {
            self.shrink(failure)?
        } else {
            (failure.run.schedule.clone(), failure.report.clone())
        };
        let story = &self.stories[failure.run.story].name;
        let kept: Vec<String> = schedule.numbers().iter().map(ToString::to_string).collect();
        let keep = if schedule == failure.run.schedule {
            String::new()
        } else {
            format!(" --keep {}", kept.join(","))
        };
        println!("\n{story}\n{schedule}");
        for problem in &report.problems {
            println!("  - {problem}");
        }
        println!(
            "  repeat: cargo xtask faults --scenario {story} {}{keep} --log",
            failure.run.repeat
        );
        std::io::stdout().flush()?;
        Ok(())
    }
}

/// Runs a job in a process of its own.
fn in_a_process(job: &Job) -> Result<Report> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--job")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("start a run")?;
    let mut stdin = child.stdin.take().context("its standard input was asked for")?;
    stdin.write_all(serde_json::to_string(job)?.as_bytes())?;
    drop(stdin);
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Ok(Report {
            problems: vec![format!("the run ended with {}: {said}", output.status)],
            unstruck: Vec::new(),
            facts: None,
            trace: 0,
            writes: 0,
            seconds: 0,
            log: said,
            requests: Vec::new(),
        });
    }
    let mut report: Report = serde_json::from_slice(&output.stdout).context("read a report")?;
    if said.contains("panicked at") {
        report.problems.push(format!("something panicked: {said}"));
    }
    Ok(report)
}

/// Does something with each item, so many at once; ends with the first error.
fn each<T: Send>(items: Vec<T>, at_once: usize, action: impl Fn(T) -> Result<()> + Sync) -> Result<()> {
    let items = Mutex::new(VecDeque::from(items));
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let item = items.lock().expect("no panic while it is held").pop_front();
                    let Some(item) = item else { return };
                    if let Err(error) = action(item) {
                        failed.lock().expect("no panic while it is held").get_or_insert(error);
                        items.lock().expect("no panic while it is held").clear();
                        return;
                    }
                }
            });
        }
    });
    failed
        .into_inner()
        .expect("no panic while it is held")
        .map_or(Ok(()), Err)
}
