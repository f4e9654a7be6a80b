//! Plays one run: a scenario with its hosts on a simulated cluster of its own, under a schedule, in virtual time.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use pilothouse_end_to_end::log::Tail;
use pilothouse_simulator::{Clock, Controllers, Options, Simulator, Workloads};
use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::scenario::{Manner, Scenario, run_with};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc;

use crate::copies::Original;
use crate::crew::Crew;
use crate::judge::{Facts, Judge, written};
use crate::names::{NEIGHBOUR, TENANT, is_host};
use crate::schedule::{Fault, Schedule};
use crate::somebody::Errands;
use crate::tenant::Tenant;
use crate::world::World;

/// Time limit of a wait, by the run's clock: back-off and silent watches take minutes, and several of them may follow
/// each other.
const PATIENCE: Duration = Duration::from_hours(2);

/// Start of the clocks: 2026-01-01T00:00:00Z, in milliseconds.
const EPOCH: u64 = 1_767_225_600_000;

/// A run uses tenths of a second of a processor; one that uses so many seconds does not come to an end.
const MOST_SECONDS: i64 = 60;

/// Stories that delete an object of one kind, then one of another, and need a host that learns of them in this order.
/// Faults that delay only one watch are left out, and so is a write of a dead host that recreates the second object: as
/// long as the first is only being deleted, nobody may delete its children.
const ORDERED: [&str; 1] = ["app-service/deleted-by-others"];

/// Stories with an object or field that is kept and that nothing recreates once another user deletes it: a child that
/// is no longer desired, one that is made once, or a field that blocks the plugin.
const KEPT: [&str; 3] = ["wisher/blocked", "wisher/around", "wisher/once"];

/// Stories that end with a primary that the plugin refuses, besides those with webhooks.
const REFUSED: [&str; 1] = ["reverse-proxy/invalid"];

/// Stories whose plugins do not look at all namespaces: what a tenant makes in its own, nobody answers.
const UNREACHED: [&str; 1] = ["fleet/namespaces"];

/// Namespaces with which no scenario has anything to do.
const OTHER_NAMESPACES: [&str; 3] = ["bystander", TENANT, NEIGHBOUR];

/// Input of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The scenario's file.
    pub scenario: PathBuf,
    /// Faults of the run.
    pub schedule: Schedule,
    /// Facts of the run without faults; none: this is that run.
    pub facts: Option<PathBuf>,
    /// Set to record all log lines of hosts and plugins.
    pub log: bool,
}

/// Result of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Errors; none, if the run is as it should be.
    pub problems: Vec<String>,
    /// Faults that never began, because there were too few writes.
    pub unstruck: Vec<usize>,
    /// Facts, of the run without faults.
    pub facts: Option<Facts>,
    /// A digest of everything that was asked and answered: two runs of a job have the same.
    pub trace: u64,
    /// The hosts' writes.
    pub writes: usize,
    /// Duration by the run's own clock, in seconds.
    pub seconds: u64,
    /// Log, if it was requested.
    pub log: String,
    /// All requests, if that was asked for.
    pub requests: Vec<String>,
}

/// Runs a job.
pub fn play(job: Job) -> Result<Report> {
    watch_over();
    // On this thread, so that listening changes nothing of what the other one draws.
    let tail = Tail::default();
    if job.log {
        tail.follow_all();
    }
    // A thread of its own begins with the randomness of its own.
    let thread = std::thread::Builder::new().name("play".to_owned());
    let thread = thread.spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .context("make a runtime")?;
        runtime.block_on(tell(job, tail))
    })?;
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[expect(clippy::too_many_lines, reason = "one run from its beginning to its end")]
async fn tell(job: Job, tail: Tail) -> Result<Report> {
    let Job {
        scenario,
        schedule,
        facts,
        log,
    } = job;
    let text = std::fs::read_to_string(&scenario).with_context(|| format!("read {}", scenario.display()))?;
    // Nobody makes a child again whose owner was deleted with `orphan`.
    let is_orphaning = text.contains("propagation: Orphan");
    // Nor does anybody set back a value of a child that is nobody's, or that is made once.
    let keeps_values = is_orphaning
        || ["once: true", "createOnly: true"]
            .iter()
            .any(|words| text.contains(words));
    let has_identity = text.contains("metadata.uid") || text.contains("uid: $");
    // Nothing tells of a child whose owner went while no host ran and whose reference was stripped.
    let is_alone = text.contains("host: stop");
    let mut scenario = Scenario::parse(&scenario, &text)?;
    let keeps_identities = is_orphaning || has_identity || is_one_of(&KEPT, &scenario);
    // Pods that become ready would be more events for the same faults, and nothing that the host makes.
    scenario.workloads = pilothouse_testkit::workloads::Workloads::Never;
    let facts: Option<Facts> = match facts {
        None => None,
        Some(path) => Some(serde_json::from_slice(&std::fs::read(path)?)?),
    };
    let is_quiet = facts.is_none();
    let epoch = epoch(&scenario);
    let mut schedule = schedule;
    if is_one_of(&ORDERED, &scenario) {
        schedule.strikes.retain(|strike| strike.fault.keeps_order());
    }
    // Nothing is applied for a primary that the plugin refuses, so what was rewritten before stays.
    let is_refused = scenario.serves_webhooks() || is_one_of(&REFUSED, &scenario);
    if keeps_values || is_refused {
        schedule.strikes.retain(|strike| !strike.fault.changes_values());
    }
    // Nothing tells of one, either, whose reference was stripped before somebody applied its fields in the host's name, without the reference.
    let is_impersonated = schedule
        .strikes
        .iter()
        .any(|strike| strike.fault == Fault::Impersonated);
    if is_alone || is_impersonated {
        schedule.strikes.retain(|strike| !strike.fault.strips_owners());
    }
    if scenario.serves_webhooks() {
        // Certificates are made anew then, and whether they hold, the cluster's own clock says.
        schedule
            .strikes
            .retain(|strike| !matches!(strike.fault, Fault::Clock { .. }));
    }
    let cluster = Cluster::simulated_with(Options {
        controllers: Controllers {
            workloads: Workloads::NeverReady,
            ..Controllers::default()
        },
        clock: clock(epoch),
        seed: 1,
        ..Options::default()
    });
    let Cluster::Simulated(simulated) = &cluster else {
        unreachable!("it was made so")
    };
    let simulator = simulated.simulator().clone();
    simulator.keep_journal();
    set_up(&cluster).await?;
    let children = facts.as_ref().map(|facts| facts.children.clone()).unwrap_or_default();
    // While a primary is failing, nobody makes its children anew.
    let is_failing = |facts: &Facts| facts.failing.values().any(|failing| *failing > 0);
    let keeps_identities = keeps_identities || facts.as_ref().is_some_and(is_failing);
    let client = cluster.client().await?;
    let mut originals = facts.as_ref().map(|facts| facts.originals.clone()).unwrap_or_default();
    if is_one_of(&UNREACHED, &scenario) {
        originals.iter_mut().for_each(Original::expect_nothing);
    }
    let tenant = Tenant::new(client.clone(), simulator.clone(), originals, schedule.is_of_tenants());
    let errands = Errands::new(client, simulator.clone(), children, keeps_identities, tenant);
    let (sender, commands) = mpsc::unbounded_channel();
    let world = World::new(simulator.clone(), &schedule, errands, epoch, sender);
    let hosts = schedule.hosts();
    let mut crew = Crew::new(
        world.clone(),
        commands,
        hosts,
        Judge::new(facts, &scenario),
        PATIENCE,
        tail.clone(),
    );
    let manner = Manner {
        namespace: Some(format!("story-{}", scenario.name)),
        patience: (!is_quiet).then_some(PATIENCE),
        // Where an object fails, the crew is idle only after its longest back-off.
        slowness: 40,
    };
    let begun = tokio::time::Instant::now();
    let told = tokio::select! {
        biased;
        () = world.storm() => None,
        told = run_with(&scenario, &cluster, &mut crew, &manner) => Some(told),
    };
    let mut judge = crew.end();
    let log = if log { tail.text() } else { String::new() };
    match told {
        Some(Ok(())) => {}
        Some(Err(mut error)) => {
            error.host_log = String::new();
            judge.problems.push(format!("the story does not go on: {error}"));
        }
        None => judge.problems.push(storm(&simulator)),
    }
    judge.problems.extend(world.errands.complaints());
    let most = world.launched().max(1);
    judge.count_calls(world.calls(), world.errands.acts(), schedule.is_of_tenants());
    judge.conclude(
        &simulator,
        most,
        schedule.late(),
        &world.errands.deleted(),
        world.errands.acts(),
        schedule.strips_owners(),
    );
    let mut hasher = DefaultHasher::new();
    let mut requests = Vec::new();
    for record in simulator.requests().all() {
        (
            &record.verb,
            &record.uri,
            record.status,
            &record.user_agent,
            record.changed,
        )
            .hash(&mut hasher);
        requests.push(format!(
            "{:>5} {} {} {} -> {} {}",
            record.index,
            record.user_agent,
            record.verb,
            record.uri,
            record.status,
            record.fault.unwrap_or_default()
        ));
    }
    simulator.revision().hash(&mut hasher);
    Ok(Report {
        problems: judge.problems,
        unstruck: world.unstruck(),
        trace: hasher.finish(),
        writes: judge.found.writes,
        facts: is_quiet.then_some(judge.found),
        seconds: begun.elapsed().as_secs(),
        requests: if log.is_empty() { Vec::new() } else { requests },
        log,
    })
}

fn is_one_of(stories: &[&str], scenario: &Scenario) -> bool {
    let mut files = stories.iter().map(|story| format!("{story}.yaml"));
    files.any(|file| scenario.file.ends_with(file))
}

/// Start of the clocks of the cluster and the hosts, in milliseconds since 1970: always the same, except where webhooks
/// are served. TLS judges their certificates by the machine's clock, so such a run is not repeated exactly; nor would
/// it be with sockets and the threads that serve them.
fn epoch(scenario: &Scenario) -> u64 {
    if scenario.serves_webhooks() {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        return u64::try_from(since.as_millis()).unwrap_or_default();
    }
    EPOCH
}

fn clock(epoch: u64) -> Clock {
    Clock::Tokio {
        start: UNIX_EPOCH + Duration::from_millis(epoch),
        origin: tokio::time::Instant::now(),
    }
}

/// Returns the writes of hosts that do not settle.
fn storm(simulator: &Simulator) -> String {
    let mut writes = simulator.requests().all();
    writes.retain(|record| record.write && is_host(&record.user_agent));
    let last = writes
        .iter()
        .rev()
        .take(10)
        .map(|it| format!("{} {}", it.user_agent, written(it)));
    let last: Vec<String> = last.collect();
    format!(
        "the hosts do not come to rest; their last writes:\n    {}",
        last.join("\n    ")
    )
}

/// Ends this process when it has used too much of the processors, whatever it does.
fn watch_over() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
            if used.tv_sec > MOST_SECONDS {
                eprintln!("the run has used more than {MOST_SECONDS} s of a processor");
                std::process::exit(1);
            }
        }
    });
}

/// Makes namespaces with something in them that nobody may touch.
async fn set_up(cluster: &Cluster) -> Result<()> {
    let client = cluster.client().await?;
    for name in OTHER_NAMESPACES {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        post(&client, "/api/v1/namespaces", &namespace).await?;
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs"}, "data": {"theirs": "untouched"},
        });
        post(&client, &format!("/api/v1/namespaces/{name}/configmaps"), &map).await?;
    }
    Ok(())
}

async fn post(client: &kube::Client, uri: &str, body: &serde_json::Value) -> Result<()> {
    let request = http::Request::post(uri)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes())?;
    client.request::<serde_json::Value>(request).await?;
    Ok(())
}
