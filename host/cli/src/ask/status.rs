//! `pilothouse status`: prints the plugins of a host, and the objects that fail, each with the cause and the next step.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use clap::Args;
use jiff::Timestamp;
use pilothouse_core::text::printable::printable;
use pilothouse_runtime::api::documents::{
    ControllerStatus, FailingObject, HostStatus, KindName, ObjectName, PluginStatus, StatusDocument,
};

use super::replicas::{Sum, silence};
use super::table::{Cell, Emphasis, Screen, Table, ago, duration, emphasised};
use super::{HostArguments, OutputForm, run};
use crate::output::counted;

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse status
  pilothouse status --check                                      # in a script, or after a deployment
  pilothouse status --host http://127.0.0.1:8082 -o json         # a host on this machine
  pilothouse status --service operators/pilothouse --context staging

Exit code: 0, 1 if no host answers, 2 if the command line is wrong; with --check, 3 if a plugin is not ready, its wanted version
does not run, or an object fails.";

/// `pilothouse status`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct StatusCommand {
    /// End with code 3 if a plugin is not ready, its wanted version does not run, or an object fails
    #[arg(long)]
    check: bool,

    #[command(flatten)]
    host: HostArguments,
}

/// Error of `--check`: the host is unhealthy.
#[derive(Debug, thiserror::Error)]
#[error(
    "{},{} and {}",
    counted(*plugins as u64, "plugin is", "plugins are") + " not ready",
    not_running(*versions),
    counted(*objects, "object fails", "objects fail")
)]
pub struct Unhealthy {
    plugins: usize,
    versions: usize,
    objects: u64,
}

impl StatusCommand {
    /// Queries the host and prints.
    pub fn execute(self) -> anyhow::Result<()> {
        run(async {
            let host = self.host.connect().await?;
            let replies = host.ask_all::<StatusDocument>("/api/v1/status").await?;
            let sum = replies.sum();
            match host.output {
                OutputForm::Json => print!("{}", replies.as_json()?),
                OutputForm::Table => print!("{}", shown(&sum, Timestamp::now(), Screen::stdout())),
            }
            if self.check { check(&sum.document) } else { Ok(()) }
        })
    }
}

/// Part of the error about wanted versions that do not run, if there are any.
fn not_running(versions: usize) -> String {
    if versions == 0 {
        return String::new();
    }
    let counted = counted(versions as u64, "wanted version does", "wanted versions do");
    format!(" {counted} not run,")
}

fn check(document: &StatusDocument) -> anyhow::Result<()> {
    let plugins = document
        .plugins
        .iter()
        .filter(|plugin| plugin.ready != Some(true))
        .count();
    let versions = document
        .plugins
        .iter()
        .filter(|plugin| plugin.obstacle.is_some())
        .count();
    let of_plugin = |plugin: &PluginStatus| {
        plugin
            .controllers
            .iter()
            .map(|controller| controller.failing)
            .sum::<u64>()
    };
    let objects = document.plugins.iter().map(of_plugin).sum();
    if plugins > 0 || versions > 0 || objects > 0 {
        let unhealthy = Unhealthy {
            plugins,
            versions,
            objects,
        };
        return Err(unhealthy.into());
    }
    Ok(())
}

fn shown(sum: &Sum<StatusDocument>, now: Timestamp, screen: Screen) -> String {
    let Sum {
        document,
        replicas,
        silent_replicas,
    } = sum;
    let StatusDocument {
        host: _,
        plugins,
        failing,
        failing_not_listed,
    } = document;
    let mut text: String = replicas.iter().map(|host| replica_lines(host, now, screen)).collect();
    if let Some(silence) = silence(silent_replicas) {
        text += &emphasised(&screen.wrapped(&silence, 0), Emphasis::Warning, screen.coloured);
    }
    text.push('\n');
    if plugins.is_empty() {
        text += "There are no plugins. `kubectl get plugins` lists the Plugin resources of the cluster.\n";
        return text;
    }
    let mut table = Table::new(&[
        "PLUGIN", "KIND", "VERSION", "READY", "OBJECTS", "FAILING", "QUEUED", "REASON",
    ]);
    for plugin in plugins {
        table.row(plugin_row(plugin));
    }
    text += &table.lines(0, screen);
    for plugin in plugins.iter().filter(|plugin| plugin.ready != Some(true)) {
        write!(text, "\nPlugin {}: {}\n", plugin.name, plugin.reason).expect("writing to a String cannot fail");
        text += &screen.wrapped(&plugin.message, 2);
    }
    for plugin in plugins {
        // The condition Ready of a plugin that does not run says the same.
        if let Some(obstacle) = plugin.obstacle.as_ref().filter(|_| plugin.ready == Some(true)) {
            let word = if obstacle.is_refusal {
                "refused"
            } else {
                "not running yet"
            };
            write!(
                text,
                "\nPlugin {}: the wanted version is {word}: {}\n",
                plugin.name, obstacle.reason
            )
            .expect("writing to a String cannot fail");
            text += &screen.wrapped(&obstacle.message, 2);
        }
    }
    for plugin in plugins {
        for warning in plugin
            .warnings
            .iter()
            .filter(|warning| !plugin.message.contains(*warning))
        {
            let warning = screen.wrapped(&format!("warning: {warning}"), 2);
            write!(text, "\nPlugin {}\n", plugin.name).expect("writing to a String cannot fail");
            text += &emphasised(&warning, Emphasis::Warning, screen.coloured);
        }
    }
    for plugin in plugins {
        let waiting = plugin.controllers.iter().filter(|controller| controller.lacks_kind);
        let waiting = waiting.map(|controller| {
            let KindName { api_version, kind } = &controller.kind;
            format!(
                "the controller {} begins once the cluster serves {api_version} {kind}, which is optional",
                controller.name
            )
        });
        let paused = plugin.controllers.iter().map(|controller| controller.paused).sum();
        let paused = (paused > 0).then(|| {
            let count = counted(paused, "object is", "objects are");
            format!("{count} paused by an annotation, and neither reconciled nor written")
        });
        for words in waiting.chain(paused) {
            write!(text, "\nPlugin {}\n", plugin.name).expect("writing to a String cannot fail");
            text += &screen.wrapped(&words, 2);
        }
    }
    if !failing.is_empty() {
        text += "\nFailing objects\n";
    }
    for object in failing {
        text += &failing_lines(object, now, screen);
    }
    if *failing_not_listed > 0 {
        writeln!(
            text,
            "\n{failing_not_listed} more objects fail that are not listed: there are too many, or you may not see them."
        )
        .expect("writing to a String cannot fail");
    }
    text
}

fn replica_lines(host: &HostStatus, now: Timestamp, screen: Screen) -> String {
    let part = match (host.is_leading, host.shards_held) {
        (true, None) => String::new(),
        (false, None) => ", does not lead".to_owned(),
        (leads, Some(shards)) => {
            let (part, s) = (
                if leads { "leads and " } else { "" },
                if shards == 1 { "" } else { "s" },
            );
            format!(", {part}holds {shards} shard{s}")
        }
    };
    let started = ago(&host.started, now);
    let mut text = format!(
        "Host {} ({}), started {started}{part}\n",
        printable(&host.instance),
        printable(&host.version)
    );
    for problem in &host.not_ready {
        text += &emphasised(
            &screen.wrapped(&format!("not ready: {problem}"), 2),
            Emphasis::Warning,
            screen.coloured,
        );
    }
    text
}

fn plugin_row(plugin: &PluginStatus) -> [Cell; 8] {
    let sum = |count: fn(&ControllerStatus) -> u64| plugin.controllers.iter().map(count).sum::<u64>();
    let failing = sum(|controller| controller.failing);
    let ready = match plugin.ready {
        Some(true) => Cell::new("True", Emphasis::Good),
        Some(false) => Cell::new("False", Emphasis::Bad),
        None => Cell::new("Unknown", Emphasis::Warning),
    };
    let kinds: BTreeSet<&str> = plugin.controllers.iter().map(|it| it.kind.kind.as_str()).collect();
    let kinds = if kinds.is_empty() {
        "-".to_owned()
    } else {
        Vec::from_iter(kinds).join(", ")
    };
    [
        plugin.name.as_str().into(),
        kinds.into(),
        plugin.version.as_deref().unwrap_or("-").into(),
        ready,
        sum(|controller| controller.objects).to_string().into(),
        Cell::new(
            failing.to_string(),
            if failing > 0 { Emphasis::Bad } else { Emphasis::Plain },
        ),
        sum(|controller| controller.queued).to_string().into(),
        plugin.reason.as_str().into(),
    ]
}

fn failing_lines(object: &FailingObject, now: Timestamp, screen: Screen) -> String {
    let FailingObject {
        plugin,
        controller,
        object,
        failure,
    } = object;
    let title = emphasised(&title(object), Emphasis::Bad, screen.coloured);
    let mut text = format!(
        "\n  {title}: {} (blame: {}), {} times since {}, by {plugin}/{controller}\n",
        failure.reason,
        blame_in_words(&failure.blame),
        failure.times,
        ago(&failure.since, now),
    );
    text += &screen.wrapped(&format!("cause: {}", failure.message), 4);
    text += &screen.wrapped(&format!("next step: {}", failure.next_step), 4);
    if let Some(retry) = failure.retry_in_seconds {
        text += &screen.wrapped(&format!("retried in {}", duration(retry)), 4);
    }
    text
}

/// Returns a failure's blame for people: a guest, in the API, is the plugin.
pub fn blame_in_words(blame: &str) -> &str {
    match blame {
        "guest" => "plugin",
        other => other,
    }
}

/// Formats an object for people: `AppService default/web`.
pub fn title(object: &ObjectName) -> String {
    let ObjectName { kind, namespace, name } = object;
    match namespace {
        Some(namespace) => format!("{} {namespace}/{name}", kind.kind),
        None => format!("{} {name}", kind.kind),
    }
}

#[cfg(test)]
mod tests {
    use pilothouse_runtime::api::documents::VersionObstacle;
    use serde_json::json;

    use super::*;

    fn alone(document: StatusDocument) -> Sum<StatusDocument> {
        Sum {
            replicas: vec![document.host.clone()],
            document,
            silent_replicas: Vec::new(),
        }
    }

    fn document() -> StatusDocument {
        let document = json!({
            "host": {"version": "1.2.3", "instance": "pilothouse-0", "isLeading": true, "started": "2026-01-02T03:00:00Z"},
            "plugins": [
                {"name": "app-service", "version": "0.1.0", "ready": true, "reason": "Running", "message": "the host reconciles its objects",
                 "warnings": ["the host may not list pods; grant it the right"],
                 "controllers": [
                     {"name": "a", "kind": {"apiVersion": "x.dev/v1", "kind": "App"}, "objects": 12, "failing": 1, "paused": 1},
                     {"name": "b", "kind": {"apiVersion": "x.dev/v1", "kind": "Site"}, "lacksKind": true, "objects": 3, "queued": 2, "paused": 1},
                 ]},
                {"name": "refused", "version": "1.0.0", "ready": true, "reason": "PreviousVersion", "message": "the version before goes on",
                 "obstacle": {"isRefusal": true, "reason": "TrialFailed", "message": "the new version fails for App n/web"},
                 "controllers": []},
                {"name": "broken", "ready": false, "reason": "FileNotFound", "message": "there is no file x.wasm; put it there",
                 "controllers": []},
            ],
            "failing": [{
                "plugin": "app-service", "controller": "a",
                "object": {"apiVersion": "x.dev/v1", "kind": "App", "namespace": "n", "name": "web"},
                "failure": {"since": "2026-01-02T03:03:05Z", "times": 3, "blame": "user", "reason": "Invalid",
                            "message": "spec.port is 0", "nextStep": "correct the fields", "retryInSeconds": 2.0},
            }],
            "failingNotListed": 4,
        });
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn people_see_plugins_and_why_objects_fail() {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        let expected = "\
Host pilothouse-0 (1.2.3), started 4m5s ago

PLUGIN        KIND        VERSION   READY   OBJECTS   FAILING   QUEUED   REASON
app-service   App, Site   0.1.0     True    15        1         2        Running
refused       -           1.0.0     True    0         0         0        PreviousVersion
broken        -           -         False   0         0         0        FileNotFound

Plugin broken: FileNotFound
  there is no file x.wasm; put it there

Plugin refused: the wanted version is refused: TrialFailed
  the new version fails for App n/web

Plugin app-service
  warning: the host may not list pods; grant it the right

Plugin app-service
  the controller b begins once the cluster serves x.dev/v1 Site, which is optional

Plugin app-service
  2 objects are paused by an annotation, and neither reconciled nor written

Failing objects

  App n/web: Invalid (blame: user), 3 times since 1m0s ago, by app-service/a
    cause: spec.port is 0
    next step: correct the fields
    retried in 2.0s

4 more objects fail that are not listed: there are too many, or you may not see them.
";
        assert_eq!(shown(&alone(document()), now, Screen::PLAIN), expected);
        assert!(
            shown(
                &alone(document()),
                now,
                Screen {
                    coloured: true,
                    ..Screen::PLAIN
                }
            )
            .contains("\u{1b}[31mApp n/web\u{1b}[0m")
        );
        let unhealthy = check(&document()).unwrap_err().to_string();
        assert_eq!(
            unhealthy,
            "1 plugin is not ready, 1 wanted version does not run, and 1 object fails"
        );
        let healthy = StatusDocument {
            plugins: vec![PluginStatus {
                ready: Some(true),
                ..PluginStatus::default()
            }],
            ..StatusDocument::default()
        };
        assert!(check(&healthy).is_ok());
        let mut refused = healthy;
        refused.plugins[0].obstacle = Some(VersionObstacle::default());
        let unhealthy = check(&refused).unwrap_err().to_string();
        assert!(unhealthy.contains("1 wanted version does not run"), "{unhealthy}");
        assert!(shown(&alone(StatusDocument::default()), now, Screen::PLAIN).contains("There are no plugins"));
    }

    #[test]
    fn people_see_which_replicas_have_answered_and_which_have_not() {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        let host = |name: &str, leads: bool, shards: u64| HostStatus {
            instance: name.to_owned(),
            version: "1.2.3".to_owned(),
            is_leading: leads,
            shards_held: Some(shards),
            started: "2026-01-02T03:00:00Z".to_owned(),
            ..HostStatus::default()
        };
        let mut sum = Sum {
            replicas: vec![host("one", true, 3), host("two", false, 1)],
            silent_replicas: vec!["three_1".to_owned(), "four_1".to_owned()],
            document: document(),
        };
        let text = shown(&sum, now, Screen::PLAIN);
        let expected = "\
Host one (1.2.3), started 4m5s ago, leads and holds 3 shards
Host two (1.2.3), started 4m5s ago, holds 1 shard
The replicas three_1 and four_1 live, by their Leases, and have not answered: what they work at is not in
these numbers.

";
        assert!(text.starts_with(expected), "{text}");
        sum.silent_replicas.clear();
        assert!(!shown(&sum, now, Screen::PLAIN).contains("not answered"));
    }
}
