//! `pilothouse why`: prints an object's dependencies, its children, its last runs with their triggers, and the field
//! managers whose changes were reverted.

use pilothouse_core::status::annotations::PAUSED;
use pilothouse_core::text::printable::printable;
use std::fmt::Write as _;

use anyhow::bail;
use clap::Args;
use jiff::Timestamp;
use pilothouse_runtime::api::documents::{
    ControllerView, DependencyDocument, ObjectDocument, ObjectName, RevertDocument, RunDocument,
};

use super::status::{blame_in_words, title};
use super::table::{Cell, Emphasis, Screen, Table, ago, duration};
use super::{Answer, HostArguments, OutputForm, run};

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse why appservice/web
  pilothouse why deployment.apps/web -n shop                     # for which object it was made
  pilothouse why deploy/web -n shop                              # plurals and short names do, too
  pilothouse why clusterpolicy/default -o json                   # an object without a namespace
  pilothouse why appservice/web --host http://127.0.0.1:8082     # ask a host on this machine

Exit code: 0, 1 if no host answers or the host does not know the object, 2 if the command line is wrong.";

/// `pilothouse why`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct WhyCommand {
    /// The object: KIND/NAME or KIND.GROUP/NAME, such as appservice/web. The plural or a short name will do for the kind
    #[arg(value_name = "KIND/NAME", value_parser = parse_object)]
    object: (String, String),

    /// The object's namespace (default: the namespace of the kubeconfig's context). A cluster-scoped object is in none
    #[arg(long, short, value_name = "NAME", value_parser = parse_plain)]
    namespace: Option<String>,

    #[command(flatten)]
    host: HostArguments,
}

impl WhyCommand {
    /// Queries the host and prints.
    pub fn execute(self) -> anyhow::Result<()> {
        run(async {
            let (kind, name) = self.object;
            let host = self.host.connect().await?;
            let namespace = self.namespace.as_deref().unwrap_or(&host.namespace);
            let path = |namespace: &str| format!("/api/v1/objects?kind={kind}&name={name}&namespace={namespace}");
            let Answer { text, document } = host.ask::<ObjectDocument>(&path(namespace)).await?;
            match host.output {
                OutputForm::Json => print!("{text}"),
                OutputForm::Table => print!("{}", shown(&document, Timestamp::now(), Screen::stdout())),
            }
            if !document.exists {
                bail!(
                    "the host does not know {}; check its name and namespace, or whether the plugin selects its namespace",
                    title(&document.object)
                );
            }
            Ok(())
        })
    }
}

/// Parses KIND/NAME.
pub fn parse_object(text: &str) -> Result<(String, String), String> {
    let form = "name the object as KIND/NAME, such as appservice/web; `pilothouse status` lists objects that fail";
    match text.split_once('/') {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() => Ok((parse_plain(kind)?, parse_plain(name)?)),
        _ => Err(form.to_owned()),
    }
}

/// Parses a name that needs no escaping in a query.
pub fn parse_plain(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:_".contains(&byte);
    if text.bytes().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err(format!("{text:?} is not a name in Kubernetes"))
}

/// Formats the host's knowledge of an object for people, as `pilothouse why` prints it.
pub fn text(document: &ObjectDocument, coloured: bool) -> String {
    let screen = Screen { coloured, width: None };
    shown(document, Timestamp::now(), screen)
}

fn shown(document: &ObjectDocument, now: Timestamp, screen: Screen) -> String {
    let ObjectDocument {
        host: _,
        object,
        reconciled_here: _,
        exists,
        deleting,
        paused,
        warning,
        controllers,
        made_for,
    } = document;
    if !exists {
        return String::new();
    }
    let mut text = title(object);
    text += if *deleting { ", is being deleted\n" } else { "\n" };
    if *paused {
        let words = format!(
            "paused by the annotation {PAUSED}: it is neither reconciled nor written; `pilothouse resume {}` resumes it",
            question(object)
        );
        text += &screen.wrapped(&words, 2);
    }
    if let Some(warning) = warning {
        text += &screen.wrapped(&format!("warning: {warning}"), 2);
    }
    for maker in made_for {
        let words = format!(
            "made for {} by {}/{}; `pilothouse why {}` says more",
            title(&maker.object),
            maker.plugin,
            maker.controller,
            question(&maker.object),
        );
        text += &screen.wrapped(&words, 2);
    }
    if controllers.is_empty() && made_for.is_empty() {
        text += "  no plugin that you may see has to do with it\n";
    }
    for view in controllers {
        text += &view_lines(view, *paused, now, screen);
    }
    text
}

/// Returns the command that queries an object.
fn question(object: &ObjectName) -> String {
    let kind = object.kind.kind.to_lowercase();
    match &object.namespace {
        Some(namespace) => format!("{kind}/{} -n {namespace}", object.name),
        None => format!("{kind}/{}", object.name),
    }
}

fn view_lines(view: &ControllerView, paused: bool, now: Timestamp, screen: Screen) -> String {
    let mut text = format!(
        "\nReconciled by {}/{}\n",
        printable(&view.plugin),
        printable(&view.controller)
    );
    text += &screen.wrapped(&state_text(view, paused), 2);
    if let Some(failure) = &view.failure {
        let head = format!(
            "fails: {} (blame: {}), {} times since {}",
            failure.reason,
            blame_in_words(&failure.blame),
            failure.times,
            ago(&failure.since, now)
        );
        text += &screen.wrapped(&head, 2);
        text += &screen.wrapped(&format!("cause: {}", failure.message), 4);
        text += &screen.wrapped(&format!("next step: {}", failure.next_step), 4);
    }
    text += &section(
        "Depends on",
        view.depends_on.iter().map(dependency),
        view.depends_on_not_listed,
        screen,
    );
    let children = view.children.iter().map(|child| {
        let gone = if child.deleting { ", is being deleted" } else { "" };
        let left = match child.yielded.as_slice() {
            [] => String::new(),
            fields => format!(", leaves {} to others", fields.join(", ")),
        };
        format!("{}{gone}{left}", title(&child.object))
    });
    text += &section("Made for it", children, view.children_not_listed, screen);
    let targets = view.contributes_to.iter().map(title);
    text += &section("Contributes to", targets, view.contributes_to_not_listed, screen);
    text += "\n  Last runs\n";
    if view.runs.is_empty() {
        text += "    none that this replica remembers\n";
    } else {
        let mut table = Table::new(&["ENDED", "TRIGGER", "RESULT", "WROTE", "TOOK", "QUEUED"]);
        for run in &view.runs {
            table.row(run_row(run, now));
        }
        text += &table.lines(4, screen);
    }
    if !view.reverted.is_empty() {
        text += "\n  Reverted changes of others\n";
    }
    for revert in &view.reverted {
        text += &revert_lines(revert, now, screen);
    }
    text
}

fn state_text(view: &ControllerView, paused: bool) -> String {
    let span = |seconds: Option<f64>| seconds.map(duration).unwrap_or_default();
    match view.state.as_str() {
        _ if !view.synced => "waits until all kinds that the controller needs are listed".to_owned(),
        "Queued" => format!("queued for {}", span(view.for_seconds)),
        "Running" => format!("being reconciled for {}", span(view.for_seconds)),
        "Held" => "waits for the cache to show the host's own writes".to_owned(),
        "Delayed" => format!(
            "reconciled again in {}, or as soon as something changes",
            span(view.next_run_in_seconds)
        ),
        _ if paused => "nothing is done until the object is resumed".to_owned(),
        _ => "nothing is to be done until something changes".to_owned(),
    }
}

fn section(head: &str, entries: impl Iterator<Item = String>, not_listed: u64, screen: Screen) -> String {
    let mut text = String::new();
    for entry in entries {
        text += &screen.wrapped(&entry, 4);
    }
    if not_listed > 0 {
        let words = "more that are not listed: there are too many, or you may not see them";
        writeln!(text, "    and {not_listed} {words}").expect("writing to a String cannot fail");
    }
    if text.is_empty() {
        return text;
    }
    format!("\n  {head}\n{text}")
}

fn dependency(read: &DependencyDocument) -> String {
    let DependencyDocument {
        read,
        kind,
        namespace,
        name,
        selector,
    } = read;
    let kind = &kind.kind;
    let place = namespace
        .as_deref()
        .map(|namespace| format!("{namespace}/"))
        .unwrap_or_default();
    match (read.as_str(), name) {
        ("Obstacle", Some(name)) => format!("{kind} {place}{name}, which stands in the way"),
        (_, Some(name)) => format!("{kind} {place}{name}"),
        ("List", None) => {
            let within = namespace
                .as_deref()
                .map_or(" in all namespaces".to_owned(), |it| format!(" in {it}"));
            let which = selector.as_deref().map(|it| format!(" with {it}")).unwrap_or_default();
            format!("each {kind}{within}{which}")
        }
        _ => format!("each {kind}: there was no room to remember which ones were read"),
    }
}

fn run_row(run: &RunDocument, now: Timestamp) -> [Cell; 6] {
    let RunDocument {
        ended,
        seconds,
        queued_seconds,
        trigger,
        triggered_by,
        result,
        reason,
        blame: _,
        wrote,
        repeats,
    } = run;
    let mut why = trigger_in_words(trigger).to_owned();
    if let Some(by) = triggered_by {
        why.push_str(": ");
        why.push_str(&title(by));
    }
    let how = match (result.as_str(), reason) {
        ("Failure", Some(reason)) => Cell::new(reason.as_str(), Emphasis::Bad),
        _ => Cell::from(result.as_str()),
    };
    let mut when = ago(ended, now);
    if *repeats > 0 {
        write!(when, " (x{})", repeats + 1).expect("writing to a String cannot fail");
    }
    [
        when.into(),
        why.into(),
        how,
        (if *wrote { "yes" } else { "no" }).into(),
        duration(*seconds).into(),
        duration(*queued_seconds).into(),
    ]
}

/// Describes a trigger of docs/api.md for people.
pub fn trigger_in_words(trigger: &str) -> &str {
    match trigger {
        "ObjectChanged" => "the object changed",
        "ChildChanged" => "a child changed",
        "DependencyChanged" => "a dependency changed",
        "ContributionChanged" => "the outcome of a contribution changed",
        "WriteOvertaken" => "a write was overtaken",
        "PluginLeft" => "another plugin let go",
        "Started" => "the host began to watch",
        "NewVersion" => "a new version of the plugin",
        "DefinitionChanged" => "a CRD changed",
        "Resync" => "resync",
        "Requested" => "requested by an annotation",
        "Retry" => "retry",
        "Timer" => "timer of the plugin",
        "HotLoop" => "hot-loop limiter",
        "Watchdog" => "watchdog",
        other => other,
    }
}

fn revert_lines(revert: &RevertDocument, now: Timestamp, screen: Screen) -> String {
    let RevertDocument {
        at,
        object,
        fields,
        more_fields,
        managers,
    } = revert;
    let more = if *more_fields > 0 {
        format!(" and {more_fields} more")
    } else {
        String::new()
    };
    let mut text = screen.wrapped(
        &format!("{}: {}{more} of {}", ago(at, now), fields.join(", "), title(object)),
        4,
    );
    if managers.is_empty() {
        text += "      had been removed, or it is not known by whom they had been written\n";
    }
    for manager in managers {
        let when = manager.at.as_deref().map(|at| format!(" at {at}")).unwrap_or_default();
        let words = format!(
            "{} had been written by {}{when}",
            manager.fields.join(", "),
            manager.manager
        );
        text += &screen.wrapped(&words, 6);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn people_see_dependencies_children_runs_and_reverts() {
        let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": "settings"});
        let document = json!({
            "object": {"apiVersion": "x.dev/v1", "kind": "App", "namespace": "n", "name": "web"},
            "exists": true,
            "controllers": [{
                "plugin": "p", "controller": "c", "synced": true, "state": "Delayed", "nextRunInSeconds": 30.0,
                "dependsOn": [
                    {"read": "Get", "apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": "settings"},
                    {"read": "List", "apiVersion": "v1", "kind": "Pod", "namespace": "n", "selector": "app=web"},
                ],
                "dependsOnNotListed": 2,
                "children": [{"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "web", "deleting": false,
                    "yielded": [".spec.replicas"]}],
                "runs": [
                    {"ended": "2026-01-02T03:04:00Z", "seconds": 0.012, "queuedSeconds": 0.001, "trigger": "DependencyChanged",
                     "triggeredBy": config_map, "result": "Success", "wrote": true, "repeats": 0},
                    {"ended": "2026-01-02T03:00:00Z", "seconds": 0.002, "queuedSeconds": 0.0, "trigger": "Resync",
                     "result": "Failure", "reason": "Invalid", "wrote": false, "repeats": 4},
                ],
                "reverted": [{
                    "at": "2026-01-02T03:04:00Z", "fields": [".spec.replicas"], "moreFields": 0,
                    "object": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "web"},
                    "managers": [{"manager": "kubectl-edit", "at": "2026-01-02T03:03:59Z", "fields": [".spec.replicas"]}],
                }],
            }],
        });
        let document: ObjectDocument = serde_json::from_value(document).unwrap();
        let expected = "\
App n/web

Reconciled by p/c
  reconciled again in 30s, or as soon as something changes

  Depends on
    ConfigMap n/settings
    each Pod in n with app=web
    and 2 more that are not listed: there are too many, or you may not see them

  Made for it
    Deployment n/web, leaves .spec.replicas to others

  Last runs
    ENDED             TRIGGER                                      RESULT    WROTE   TOOK   QUEUED
    5.0s ago          a dependency changed: ConfigMap n/settings   Success   yes     12ms   1ms
    4m5s ago (x5)     resync                                       Invalid   no      2ms    0ms

  Reverted changes of others
    5.0s ago: .spec.replicas of Deployment n/web
      .spec.replicas had been written by kubectl-edit at 2026-01-02T03:03:59Z
";
        let shown = shown(&document, "2026-01-02T03:04:05Z".parse().unwrap(), Screen::PLAIN);
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeezed(&shown), squeezed(expected), "{shown}");
        assert_eq!(shown.lines().count(), expected.lines().count());
    }

    #[test]
    fn people_see_that_an_object_is_paused_and_how_to_resume_it() {
        let document = json!({
            "object": {"apiVersion": "x.dev/v1", "kind": "App", "namespace": "n", "name": "web"},
            "exists": true, "paused": true,
            "controllers": [{"plugin": "p", "controller": "c", "synced": true, "state": "Idle", "runs": [
                {"ended": "2026-01-02T03:04:00Z", "trigger": "Requested", "result": "Paused"}]}],
        });
        let mut document: ObjectDocument = serde_json::from_value(document).unwrap();
        let text = shown(&document, "2026-01-02T03:04:05Z".parse().unwrap(), Screen::PLAIN);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "paused by the annotation pilothouse.dev/paused: it is neither reconciled nor written; `pilothouse resume app/web -n n` resumes it",
            "nothing is done until the object is resumed",
            "requested by an annotation Paused",
        ] {
            assert!(text.contains(part), "{text}");
        }
        document.paused = false;
        document.warning = Some("the annotation is \"yes\"".to_owned());
        let text = shown(&document, Timestamp::UNIX_EPOCH, Screen::PLAIN);
        assert!(
            text.contains("\n  warning: the annotation is \"yes\"\n") && !text.contains("until the object is resumed"),
            "{text}"
        );
    }

    #[test]
    fn a_child_leads_to_the_object_that_it_was_made_for() {
        let document = json!({
            "object": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "web"},
            "exists": true, "deleting": true,
            "madeFor": [{"plugin": "p", "controller": "c",
                         "object": {"apiVersion": "x.dev/v1", "kind": "App", "namespace": "n", "name": "web"}}],
        });
        let document: ObjectDocument = serde_json::from_value(document).unwrap();
        let shown = shown(&document, Timestamp::UNIX_EPOCH, Screen::PLAIN);
        assert_eq!(
            shown,
            "Deployment n/web, is being deleted\n  made for App n/web by p/c; `pilothouse why app/web -n n` says more\n"
        );
    }
}
