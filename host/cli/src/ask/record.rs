//! `pilothouse record`: makes a host record the calls of a plugin, for a while or until there are enough, and writes
//! them to a file. docs/recordings.md describes its format; `pilothouse replay` repeats the calls.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::fs::OpenOptions;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use pilothouse_core::recording::{Line, Trailer, Tree};
use pilothouse_runtime::api::documents::RecordingDocument;
use tokio::time::{Instant, sleep};

use super::why::{parse_object, parse_plain};
use crate::output::counted;

use super::{Answer, AskedHost, HostAddressArguments, OutputForm, run};

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse record appservice/web -n shop --for 30s -o web.recording.jsonl
  pilothouse record --plugin app-service --count 20 > calls.jsonl
  pilothouse record appservice/web --host http://127.0.0.1:8082 --count 1 -o web.recording.jsonl

The host has to run with --allow-recording (in the chart: api.recording=true), and the user needs the right `record` on the
Plugin. The values of Secrets are masked in the host. Calls are recorded as they happen: change the object, or restart the
plugin, to see one.

Exit code: 0, 1 if the host refuses or nothing was recorded, 2 if the command line is wrong.";

/// Interval at which the host is polled for its progress.
const EVERY: Duration = Duration::from_millis(300);

/// Most requests to fetch the recordings of all replicas.
const TRIES: usize = 24;

/// `pilothouse record`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct RecordCommand {
    /// The object: KIND/NAME or KIND.GROUP/NAME, such as appservice/web. The plural or a short name will do for the kind
    #[arg(value_name = "KIND/NAME", required_unless_present = "plugin", value_parser = parse_object)]
    object: Option<(String, String)>,

    /// The object's namespace (default: the namespace of the kubeconfig's context). A cluster-scoped object is in none
    #[arg(long, short, value_name = "NAME", requires = "object", value_parser = parse_plain)]
    namespace: Option<String>,

    /// Record the calls of this plugin: all of them, or those for the object
    #[arg(long, value_name = "NAME", value_parser = parse_plain)]
    plugin: Option<String>,

    /// For how long to record, such as 30s or 5m; at most 1h
    #[arg(long = "for", value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    within: Duration,

    /// Stop after so many calls
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    count: u64,

    /// The file to write; - for standard output
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    output: PathBuf,

    #[command(flatten)]
    host: HostAddressArguments,
}

/// Recording of one replica.
struct Part {
    header: Line,
    calls: Vec<Line>,
    trailer: Trailer,
}

impl RecordCommand {
    /// Records.
    pub fn execute(self) -> anyhow::Result<()> {
        run(self.record())
    }

    async fn record(self) -> anyhow::Result<()> {
        let Self {
            object,
            namespace,
            plugin,
            within,
            count,
            output,
            host,
        } = self;
        let host = host.connect(OutputForm::Json).await?;
        let id = new_id();
        let mut path = format!("/api/v1/recordings?id={id}&seconds={}&count={count}", within.as_secs());
        if let Some((kind, name)) = &object {
            let namespace = namespace.as_deref().unwrap_or(&host.namespace);
            path.extend(["&kind=", kind, "&name=", name, "&namespace=", namespace]);
        }
        if let Some(plugin) = &plugin {
            path.extend(["&plugin=", plugin.as_str()]);
        }
        let replicas = follow(&host, &path, within, count).await?;
        let parts = collect(&host, &path, &replicas).await?;
        let (text, trailer) = joined(parts)?;
        write(&output, &text)?;
        print_summary(&output, &trailer);
        if trailer.calls == 0 {
            bail!(
                "no call was made within {} s; change the object while it is recorded, or record for longer with --for",
                within.as_secs()
            );
        }
        Ok(())
    }
}

/// Polls until the recording is over or interrupted. Returns the replicas that record, with their numbers of calls.
async fn follow(host: &AskedHost, path: &str, within: Duration, count: u64) -> anyhow::Result<BTreeMap<String, u64>> {
    let until = Instant::now() + within;
    let mut replicas = BTreeMap::new();
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        let asked = tokio::select! {
            asked = host.ask::<RecordingDocument>(path) => asked,
            _ = &mut interrupted => break,
        };
        let Answer { document, .. } = asked?;
        if document.reconciled_here {
            replicas.insert(document.host.instance, document.calls);
        }
        let calls: u64 = replicas.values().sum();
        if document.over || calls >= count || Instant::now() >= until {
            break;
        }
        tokio::select! {
            () = sleep(EVERY) => {}
            _ = &mut interrupted => break,
        }
    }
    ensure!(
        !replicas.is_empty(),
        "no replica that makes calls has answered; does one of them lead? `pilothouse status` says so"
    );
    Ok(replicas)
}

/// Ends the recording at each replica, and fetches it.
async fn collect(host: &AskedHost, path: &str, replicas: &BTreeMap<String, u64>) -> anyhow::Result<Vec<Part>> {
    let path = format!("{path}&finish=true");
    let (mut parts, mut problem) = (BTreeMap::new(), None);
    for _ in 0..TRIES {
        match host.ask::<RecordingDocument>(&path).await {
            Ok(Answer { document, .. }) => {
                let RecordingDocument { host, lines, .. } = document;
                parts.insert(host.instance, part(lines)?);
            }
            // Among several replicas, one that was queried already, or that never recorded, has no recording.
            Err(error) => problem = Some(error),
        }
        if replicas.keys().all(|replica| parts.contains_key(replica)) {
            break;
        }
    }
    for replica in replicas.keys().filter(|replica| !parts.contains_key(*replica)) {
        eprintln!("warning: the replica {replica} has not answered any more, so its calls are missing");
    }
    match problem {
        Some(problem) if parts.is_empty() => Err(problem),
        _ => Ok(parts.into_values().collect()),
    }
}

fn part(lines: Vec<Tree>) -> anyhow::Result<Part> {
    let read = |line: Tree| -> anyhow::Result<Line> {
        serde_json::from_str(&line.text())
            .context("the recording is of another version of the host; use the `pilothouse` of the host's version")
    };
    let mut lines = lines.into_iter().map(read).collect::<anyhow::Result<Vec<Line>>>()?;
    ensure!(
        lines.len() >= 2,
        "the host has sent a recording without lines; record again"
    );
    let header = lines.remove(0);
    match lines.pop() {
        Some(Line::End(trailer)) => Ok(Part {
            header,
            calls: lines,
            trailer,
        }),
        _ => bail!("the host has sent a recording that is not whole; record again"),
    }
}

/// Joins the parts in one file: their calls, numbered anew.
fn joined(parts: Vec<Part>) -> anyhow::Result<(String, Trailer)> {
    let mut sum = Trailer::default();
    let mut lines = Vec::new();
    for Part { header, calls, trailer } in parts {
        if lines.is_empty() {
            lines.push(serde_json::to_string(&header)?);
        }
        let Trailer {
            calls: _,
            dropped,
            of_other_versions,
            masked,
        } = trailer;
        sum.dropped += dropped;
        sum.of_other_versions += of_other_versions;
        sum.masked |= masked;
        for mut line in calls {
            sum.calls += 1;
            if let Line::Call(call) = &mut line {
                call.number = sum.calls;
            }
            lines.push(serde_json::to_string(&line)?);
        }
    }
    lines.push(serde_json::to_string(&Line::End(sum.clone()))?);
    lines.push(String::new());
    Ok((lines.join("\n"), sum))
}

/// Writes the file, readable only by its user: it contains the objects that the plugin read.
fn write(output: &Path, text: &str) -> anyhow::Result<()> {
    if output == Path::new("-") {
        return std::io::stdout()
            .write_all(text.as_bytes())
            .context("cannot write the recording to standard output");
    }
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(output);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}; give another file with --output", output.display()))
}

fn print_summary(output: &Path, trailer: &Trailer) {
    let Trailer {
        calls,
        dropped,
        of_other_versions,
        masked,
    } = trailer;
    if output != Path::new("-") {
        let masked = if *masked {
            "; the values of Secrets are masked"
        } else {
            ""
        };
        eprintln!(
            "recorded {} to {}{masked}",
            counted(*calls, "call", "calls"),
            output.display()
        );
    }
    if *dropped > 0 {
        eprintln!(
            "warning: {dropped} more calls found no room: a recording has at most 16 MiB, and a call 4 MiB; record one object, or \
             fewer calls"
        );
    }
    if *of_other_versions > 0 {
        eprintln!(
            "warning: {of_other_versions} more calls were made by another version of the plugin, and are left out"
        );
    }
}

/// Returns a random name that no other recording has. It is no secret, because each request is authorized.
fn new_id() -> String {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    format!("{:016x}", hasher.finish())
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let form = "it is not like 30s, 5m or 1h";
    let unit = text.find(|letter: char| !letter.is_ascii_digit()).ok_or(form)?;
    let (number, unit) = text.split_at(unit);
    let number: u64 = number.parse().map_err(|_| form)?;
    let seconds = match unit {
        "s" => Some(number),
        "m" => number.checked_mul(60),
        "h" => number.checked_mul(3600),
        _ => return Err(form.to_owned()),
    };
    match seconds {
        Some(seconds @ 1..=3600) => Ok(Duration::from_secs(seconds)),
        _ => Err("a recording takes 1s to 1h".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_unit_and_is_at_most_an_hour() {
        assert_eq!(parse_duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("5m"), Ok(Duration::from_mins(5)));
        assert_eq!(parse_duration("1h"), Ok(Duration::from_hours(1)));
        for refused in ["", "30", "s", "-1s", "1.5m", "1d", "99999999999999999999s"] {
            assert!(parse_duration(refused).unwrap_err().contains("not like"), "{refused}");
        }
        for refused in ["0s", "61m", "2h", "18446744073709551615h"] {
            assert!(parse_duration(refused).unwrap_err().contains("takes"), "{refused}");
        }
    }
}
