//! Host process seen from outside: its memory, its processor time, and its requests.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use pilothouse_end_to_end::components;
use pilothouse_testkit::cluster::{Cluster, Mark};
use pilothouse_testkit::host::{ProcessHost, SteeredHost as _};
use pilothouse_testkit::requests::Request;

use crate::Outcome;

/// Time without requests after which the host counts as settled.
pub const QUIET: Duration = Duration::from_secs(2);

/// Rest of a settled host before its memory is measured.
const REST: Duration = Duration::from_secs(20);

/// Time limit of each wait.
const PATIENCE: Duration = Duration::from_mins(20);

/// An interval that never comes.
pub const NEVER: Duration = Duration::from_hours(24);

/// The profile that the programs were built with.
static PROFILE: OnceLock<String> = OnceLock::new();

/// Sets the profile that the programs were built with; once, before any is needed.
pub fn built_with(profile: &str) {
    PROFILE.get_or_init(|| profile.to_owned());
}

/// A program that is measured.
pub fn program(name: &str) -> PathBuf {
    let profile = PROFILE.get().map_or("release", String::as_str);
    components::root().join("target").join(profile).join(name)
}

/// The host that is measured, with a resync of its own.
pub fn host(resync: Duration) -> ProcessHost {
    ProcessHost::new(program("pilothouse"), components::folder()).with_resync(resync)
}

/// Waits until something holds.
pub async fn until(what: &str, host: &mut ProcessHost, mut holds: impl AsyncFnMut() -> Outcome<bool>) -> Outcome<()> {
    let begun = Instant::now();
    while !holds().await? {
        if let Some(failure) = host.failure() {
            return Err(format!("{failure}\n{}", host.log_tail()).into());
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("waited in vain for {what}\n{}", host.log_tail()).into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Waits until the host has asked nothing, and worked on nothing, for two seconds.
pub async fn settled(cluster: &Cluster, host: &mut ProcessHost) -> Outcome<()> {
    let id = process(host)?;
    until("the host to be quiet", host, async || {
        let (mark, before) = (cluster.mark()?, cpu_seconds(id)?);
        tokio::time::sleep(QUIET).await;
        Ok(asked(cluster, mark)?.is_empty() && cpu_seconds(id)? - before < 0.05)
    })
    .await
}

/// Waits until the host has settled and its memory is at rest: memory that only a start or a burst needed is returned
/// after some seconds, and what is needed now and then is mapped again.
pub async fn at_rest(cluster: &Cluster, host: &mut ProcessHost) -> Outcome<()> {
    settled(cluster, host).await?;
    tokio::time::sleep(REST).await;
    Ok(())
}

/// The number of the host's process.
pub fn process(host: &ProcessHost) -> Outcome<u32> {
    Ok(host.process_id().ok_or("the host does not run")?)
}

/// The host's requests since a mark.
pub fn asked(cluster: &Cluster, since: Mark) -> Outcome<Vec<Request>> {
    let mut requests = cluster.requests_since(since)?;
    requests.retain(Request::is_by_host);
    Ok(requests)
}

/// The same by what they ask.
pub fn by_kind(requests: &[Request]) -> String {
    let mut counts = BTreeMap::<String, usize>::new();
    for request in requests {
        let slash = if request.subresource.is_empty() { "" } else { "/" };
        let what = format!("{} {}{slash}{}", request.verb, request.resource, request.subresource);
        *counts.entry(what).or_default() += 1;
    }
    if counts.is_empty() {
        return "none".to_owned();
    }
    let counts: Vec<_> = counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
    counts.join(", ")
}

/// Returns the memory of a process in KiB, with shared pages divided among the processes that share them.
pub fn memory(process: u32) -> Outcome<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    Ok(line
        .ok_or("the kernel tells no PSS")?
        .trim()
        .trim_end_matches(" kB")
        .parse()?)
}

/// Returns the processor time of a process.
pub fn cpu_seconds(process: u32) -> Outcome<f64> {
    /// Unit of `/proc`, on every Linux.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').ok_or("the name stands in brackets")?;
    let fields: Vec<_> = fields.split_whitespace().collect();
    let ticks = |index: usize| -> Outcome<f64> { Ok(fields.get(index).ok_or("no times")?.parse()?) };
    Ok((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}
