//! State of `pilothouse dev` and its news: the build, the plugin, its objects with their children, and the lines about
//! events. Without I/O: `observe` reads the state, `draw` and `plain` show it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pilothouse_host::ask::why::trigger_in_words;
use pilothouse_runtime::api::documents::{ObjectDocument, ObjectName, RevertDocument, RunDocument};
use serde_json::Value;

use super::changes::{Part, between};

/// Number of lines that are kept of each kind.
const KEPT_LINES: usize = 500;

/// Number of changes that are kept of each primary.
const KEPT_CHANGES: usize = 6;

/// Rows by which a key scrolls.
const SCROLL: u16 = 4;

/// Subject of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// The command itself.
    Dev,
    /// Building the component, and putting it into use.
    Build,
    /// A reconcile, and its trigger.
    Run,
    /// An object that was created, deleted or changed its state.
    Object,
    /// Log of the plugin, or of the host about it.
    Log,
}

/// Tone of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Neutral.
    Plain,
    /// An awaited success.
    Good,
    /// A problem that needs action.
    Bad,
}

/// A line about an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Time since the command began.
    pub at: Duration,
    /// Subject.
    pub topic: Topic,
    /// Tone.
    pub tone: Tone,
    /// Text.
    pub text: String,
}

/// Moment from which on a component is awaited, as time since the command began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// The component existed when the command began.
    Start,
    /// The file was saved.
    Saved(Duration),
    /// The build ended; its duration is reported separately.
    Built(Duration),
}

/// State of the build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Build {
    /// None: a component is used as it is.
    #[default]
    None,
    /// Running, with its last message.
    Running(String),
    /// Succeeded after this time.
    Done(Duration),
    /// Failed, with its message.
    Failed(String),
}

/// State of the plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginNow {
    /// The version in its manifest.
    pub version: Option<String>,
    /// Digest of the component that runs.
    pub digest: Option<String>,
    /// True if its condition Ready is true.
    pub is_ready: bool,
    /// The condition's reason.
    pub reason: String,
    /// The condition's message.
    pub message: String,
}

/// Current state of an object that the plugin reconciles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectNow {
    /// The host's document about it.
    pub document: ObjectDocument,
    /// Its status according to kstatus, with the reason.
    pub status: Option<String>,
    /// The object itself.
    pub live: Option<Arc<Value>>,
    /// Its children.
    pub children: Vec<SeenObject>,
    /// Objects of others that it contributes fields to.
    pub targets: Vec<SeenObject>,
    /// Objects that its last call has read by name.
    pub reads: Vec<SeenObject>,
}

/// Current state of another object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeenObject {
    /// Name.
    pub name: ObjectName,
    /// Its status according to kstatus, with the reason.
    pub status: Option<String>,
    /// The object itself; none if it does not exist, or the cluster did not answer.
    pub live: Option<Arc<Value>>,
}

/// Observed state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The plugin; none before it exists.
    pub plugin: Option<PluginNow>,
    /// The objects, by name.
    pub objects: Vec<ObjectNow>,
}

/// State of the command.
#[derive(Debug, Default)]
pub struct Model {
    /// The plugin's name.
    pub name: String,
    /// The cluster, and the way to reach it.
    pub cluster: String,
    /// State of the build.
    pub build: Build,
    /// Last observed state.
    pub now: Snapshot,
    /// Index of the selected object.
    pub selected: usize,
    /// Number of the selected object's rows that are scrolled out of the window.
    pub scroll: u16,
    /// Time from the last component's file to its use.
    pub swapped: Option<Duration>,
    /// Lines about events, the latest last.
    pub activity: VecDeque<Line>,
    /// Lines that the plugin has logged, the latest last.
    pub log: VecDeque<Line>,
    /// Last changes of a primary and of the objects that belong to it, by primary, the latest first.
    pub changes: BTreeMap<String, VecDeque<String>>,
    /// A component that is to be put into use: its digest, and since when.
    awaited: Option<(String, Since)>,
    /// Each part of an object when its last change was reported.
    told: BTreeMap<(String, Part), Arc<Value>>,
}

impl Model {
    /// Returns an empty model.
    pub fn new(name: &str, cluster: String) -> Self {
        Self {
            name: name.to_owned(),
            cluster,
            ..Self::default()
        }
    }

    /// Adds a line.
    pub fn say(&mut self, at: Duration, topic: Topic, tone: Tone, text: impl Into<String>) -> Line {
        let line = Line {
            at,
            topic,
            tone,
            text: text.into(),
        };
        let lines = match topic {
            Topic::Log => &mut self.log,
            Topic::Dev | Topic::Build | Topic::Run | Topic::Object => &mut self.activity,
        };
        if lines.len() == KEPT_LINES {
            lines.pop_front();
        }
        lines.push_back(line.clone());
        line
    }

    /// Records that a component was given to the host, and is awaited.
    pub fn await_component(&mut self, digest: String, since: Since) {
        // The same one again is no news, and has been awaited for longer.
        if self.awaited.as_ref().is_none_or(|(awaited, _)| *awaited != digest) {
            self.awaited = Some((digest, since));
        }
    }

    /// Replaces the state, and returns the news.
    pub fn observe(&mut self, at: Duration, now: Snapshot) -> Vec<Line> {
        let snapshot = now.clone();
        let before = std::mem::replace(&mut self.now, now);
        let mut news = self.plugin_news(at, before.plugin.as_ref(), snapshot.plugin.as_ref());
        let known: BTreeMap<String, &ObjectNow> = by_title(&before.objects);
        let present: BTreeMap<String, &ObjectNow> = by_title(&snapshot.objects);
        for (title, object) in &present {
            let before = known.get(title).copied();
            let mut told = object_news(title, before, object);
            let last_run = told.iter().rposition(|(topic, ..)| *topic == Topic::Run);
            let states = told.split_off(last_run.map_or(0, |last| last + 1));
            // Writes of a run are reported after the run, and so not before its end.
            let (causes, effects) = if is_running(object) {
                (Vec::new(), Vec::new())
            } else {
                (self.causes(title, object), self.effects(title, object))
            };
            for (topic, tone, text) in causes.into_iter().chain(told).chain(effects).chain(states) {
                news.push(self.say(at, topic, tone, text));
            }
        }
        for title in known.keys().filter(|title| !present.contains_key(*title)) {
            news.push(self.say(at, Topic::Object, Tone::Plain, format!("{title} is gone")));
            self.changes.remove(title);
        }
        let seen = snapshot.objects.iter().flat_map(titles).collect::<BTreeSet<String>>();
        self.told.retain(|(title, _), _| seen.contains(title));
        self.selected = self.selected.min(self.now.objects.len().saturating_sub(1));
        news
    }

    /// Returns the changes that trigger an object's runs: of the objects that were read for it, and of itself.
    fn causes(&mut self, title: &str, object: &ObjectNow) -> Vec<News> {
        let mut news = Vec::new();
        let is_child = |read: &SeenObject| object.children.iter().any(|child| child.name == read.name);
        for read in object.reads.iter().filter(|read| !is_child(read)) {
            for part in [Part::Desired, Part::Status] {
                news.extend(self.change(title, &read.name, read.live.as_ref(), part));
            }
        }
        news.extend(self.change(title, &object.document.object, object.live.as_ref(), Part::Desired));
        news
    }

    /// Returns the changes that an object's runs make: of its children, its contributions, and its status.
    fn effects(&mut self, title: &str, object: &ObjectNow) -> Vec<News> {
        let mut news = Vec::new();
        for written in object.children.iter().chain(&object.targets) {
            news.extend(self.change(title, &written.name, written.live.as_ref(), Part::Desired));
        }
        news.extend(self.change(title, &object.document.object, object.live.as_ref(), Part::Status));
        news
    }

    /// Returns the change of a part of an object since it was reported last. The object belongs to the primary `of`.
    fn change(&mut self, of: &str, name: &ObjectName, live: Option<&Arc<Value>>, part: Part) -> Option<News> {
        let live = live?;
        let title = title(name);
        let before = self.told.insert((title.clone(), part), live.clone())?;
        let text = format!("{title} {}", between(&before, live, part)?);
        let kept = self.changes.entry(of.to_owned()).or_default();
        kept.push_front(text.clone());
        kept.truncate(KEPT_CHANGES);
        Some((Topic::Object, Tone::Plain, text))
    }

    fn plugin_news(&mut self, at: Duration, before: Option<&PluginNow>, now: Option<&PluginNow>) -> Vec<Line> {
        let mut news = Vec::new();
        let Some(now) = now else { return news };
        let PluginNow {
            version,
            digest,
            is_ready,
            reason,
            message,
        } = now;
        // The reason of a version that has taken over; with another one the version before stays in use.
        let runs = *is_ready && reason == "Running";
        if runs && let Some((_, since)) = self.awaited.take_if(|(awaited, _)| digest.as_ref() == Some(awaited)) {
            let (since, from) = match since {
                Since::Start => (Duration::ZERO, "the start"),
                Since::Saved(since) => (since, "it was saved"),
                Since::Built(since) => (since, "it was built"),
            };
            let took = at.saturating_sub(since);
            self.swapped = Some(took);
            let version = version.as_deref().unwrap_or("without a version");
            let digest = digest.as_deref().map(short).unwrap_or_default();
            let took = took.as_millis();
            let text = format!("{} {version} ({digest}) runs, {took} ms after {from}", self.name);
            news.push(self.say(at, Topic::Build, Tone::Good, text));
        }
        let is_new = before.is_none_or(|before| (&before.reason, &before.message) != (reason, message));
        if !runs && is_new && !message.is_empty() {
            let tone = if matches!(reason.as_str(), "Starting" | "Unknown" | "Pending") {
                Tone::Plain
            } else {
                Tone::Bad
            };
            news.push(self.say(at, Topic::Build, tone, format!("{}: {message} ({reason})", self.name)));
        }
        news
    }

    /// Selects the next object, or the previous one.
    pub fn select(&mut self, is_next: bool) {
        let last = self.now.objects.len().saturating_sub(1);
        self.scroll = 0;
        self.selected = if is_next {
            (self.selected + 1).min(last)
        } else {
            self.selected.saturating_sub(1)
        };
    }

    /// Scrolls the selected object's details by some rows.
    pub fn scroll(&mut self, is_down: bool) {
        self.scroll = if is_down {
            self.scroll.saturating_add(SCROLL)
        } else {
            self.scroll.saturating_sub(SCROLL)
        };
    }

    /// Returns the selected object.
    pub fn selected(&self) -> Option<&ObjectNow> {
        self.now.objects.get(self.selected)
    }
}

fn by_title(objects: &[ObjectNow]) -> BTreeMap<String, &ObjectNow> {
    objects
        .iter()
        .map(|object| (title(&object.document.object), object))
        .collect()
}

fn is_running(object: &ObjectNow) -> bool {
    object.document.controllers.iter().any(|view| view.state == "Running")
}

/// Returns the title of the object and of those that belong to it.
fn titles(object: &ObjectNow) -> impl Iterator<Item = String> {
    let ObjectNow {
        document,
        children,
        targets,
        reads,
        ..
    } = object;
    let others = children.iter().chain(targets).chain(reads);
    std::iter::once(title(&document.object)).chain(others.map(|other| title(&other.name)))
}

/// Formats an object as `Kind namespace/name`.
pub fn title(object: &ObjectName) -> String {
    let place = object
        .namespace
        .as_ref()
        .map(|namespace| format!("{namespace}/"))
        .unwrap_or_default();
    format!("{} {place}{}", object.kind.kind, object.name)
}

fn short(digest: &str) -> &str {
    digest.get(..8).unwrap_or(digest)
}

type News = (Topic, Tone, String);

fn object_news(title: &str, before: Option<&ObjectNow>, now: &ObjectNow) -> Vec<News> {
    let mut news = Vec::new();
    if before.is_none() {
        news.push((
            Topic::Object,
            Tone::Plain,
            format!("{title} is reconciled by the plugin"),
        ));
    }
    let runs = |object: &ObjectNow| -> Vec<RunDocument> {
        let views = object.document.controllers.iter();
        views.flat_map(|view| view.runs.iter().cloned()).collect()
    };
    let reverts = |object: &ObjectNow| -> Vec<RevertDocument> {
        let views = object.document.controllers.iter();
        views.flat_map(|view| view.reverted.iter().cloned()).collect()
    };
    let known = before.map(runs).unwrap_or_default();
    let mut new: Vec<RunDocument> = runs(now).into_iter().filter(|run| !known.contains(run)).collect();
    new.sort_by(|one, other| one.ended.cmp(&other.ended));
    for run in &new {
        news.push(run_news(title, run, now));
    }
    let known = before.map(reverts).unwrap_or_default();
    for revert in reverts(now).iter().filter(|revert| !known.contains(revert)) {
        let managers: Vec<&str> = revert.managers.iter().map(|it| it.manager.as_str()).collect();
        let by = if managers.is_empty() {
            String::new()
        } else {
            format!(", which {} had changed", managers.join(", "))
        };
        let object = self::title(&revert.object);
        let text = format!("{title}: set {} of {object} again{by}", revert.fields.join(", "));
        news.push((Topic::Object, Tone::Plain, text));
    }
    news.extend(state_news(
        title,
        before.and_then(|it| it.status.as_deref()),
        now.status.as_deref(),
    ));
    let children: BTreeMap<String, Option<&str>> = children_of(before);
    let present: BTreeMap<String, Option<&str>> = children_of(Some(now));
    for (child, status) in &present {
        if !children.contains_key(child) {
            news.push((Topic::Object, Tone::Plain, format!("{child} was made for {title}")));
        }
        news.extend(state_news(child, children.get(child).copied().flatten(), *status));
    }
    for child in children.keys().filter(|child| !present.contains_key(*child)) {
        news.push((
            Topic::Object,
            Tone::Plain,
            format!("{child}, made for {title}, is gone"),
        ));
    }
    news
}

fn children_of(object: Option<&ObjectNow>) -> BTreeMap<String, Option<&str>> {
    let children = object.into_iter().flat_map(|object| &object.children);
    children
        .map(|child| (title(&child.name), child.status.as_deref()))
        .collect()
}

fn state_news(title: &str, before: Option<&str>, now: Option<&str>) -> Option<News> {
    let status = now.filter(|now| before != Some(*now))?;
    let tone = match status.split(' ').next().unwrap_or_default() {
        "Current" => Tone::Good,
        "Failed" => Tone::Bad,
        _ => Tone::Plain,
    };
    Some((Topic::Object, tone, format!("{title} is {status}")))
}

fn run_news(title: &str, run: &RunDocument, now: &ObjectNow) -> News {
    let why = trigger_in_words(&run.trigger);
    let by = run
        .triggered_by
        .as_ref()
        .map(|by| format!(" ({})", self::title(by)))
        .unwrap_or_default();
    let often = if run.repeats > 0 {
        format!(", {} times", run.repeats + 1)
    } else {
        String::new()
    };
    let took = format!("{:.1} ms", run.seconds * 1000.0);
    let (tone, outcome) = if run.result == "Failure" {
        let failure = now.document.controllers.iter().find_map(|view| view.failure.as_ref());
        let cause = failure
            .map(|failure| format!(": {}", failure.message))
            .unwrap_or_default();
        (
            Tone::Bad,
            format!("failed, {}{cause}", run.reason.as_deref().unwrap_or("Failure")),
        )
    } else if run.wrote {
        (Tone::Good, "wrote".to_owned())
    } else {
        (Tone::Plain, "nothing to change".to_owned())
    };
    (
        Topic::Run,
        tone,
        format!("{title}: {why}{by}; {outcome} ({took}{often})"),
    )
}

#[cfg(test)]
mod tests {
    use pilothouse_runtime::api::documents::{ControllerView, FailureDocument, KindName};
    use serde_json::json;

    use super::*;

    fn name(kind: &str, name: &str) -> ObjectName {
        ObjectName {
            kind: KindName {
                api_version: "v1".to_owned(),
                kind: kind.to_owned(),
            },
            namespace: Some("n".to_owned()),
            name: name.to_owned(),
        }
    }

    fn run(trigger: &str, ended: &str) -> RunDocument {
        RunDocument {
            ended: ended.to_owned(),
            seconds: 0.002,
            trigger: trigger.to_owned(),
            result: "Success".to_owned(),
            wrote: true,
            ..RunDocument::default()
        }
    }

    fn app(runs: Vec<RunDocument>) -> ObjectNow {
        ObjectNow {
            document: ObjectDocument {
                object: name("App", "web"),
                controllers: vec![ControllerView {
                    runs,
                    ..ControllerView::default()
                }],
                ..ObjectDocument::default()
            },
            ..ObjectNow::default()
        }
    }

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    fn objects(objects: Vec<ObjectNow>) -> Snapshot {
        Snapshot { plugin: None, objects }
    }

    #[test]
    fn each_run_is_told_once_with_what_triggered_it() {
        let mut model = Model::new("web", String::new());
        let first = run("ObjectChanged", "1");
        let news = model.observe(Duration::ZERO, objects(vec![app(vec![first.clone()])]));
        assert_eq!(
            texts(&news),
            [
                "App n/web is reconciled by the plugin",
                "App n/web: the object changed; wrote (2.0 ms)"
            ]
        );
        let second = RunDocument {
            triggered_by: Some(name("ConfigMap", "settings")),
            wrote: false,
            ..run("DependencyChanged", "2")
        };
        let now = objects(vec![app(vec![second, first])]);
        let news = model.observe(Duration::ZERO, now.clone());
        assert_eq!(
            texts(&news),
            ["App n/web: a dependency changed (ConfigMap n/settings); nothing to change (2.0 ms)"]
        );
        assert_eq!(texts(&model.observe(Duration::ZERO, now)), Vec::<&str>::new());
        assert_eq!(model.activity.len(), 3, "they are kept");
    }

    #[test]
    fn a_run_that_failed_says_why() {
        let mut model = Model::new("web", String::new());
        let failed = RunDocument {
            result: "Failure".to_owned(),
            reason: Some("GuestTrap".to_owned()),
            ..run("Retry", "1")
        };
        let mut object = app(vec![failed]);
        object.document.controllers[0].failure = Some(FailureDocument {
            message: "it panicked".to_owned(),
            ..FailureDocument::default()
        });
        let news = model.observe(Duration::ZERO, objects(vec![object]));
        assert_eq!(
            news[1].text,
            "App n/web: retry; failed, GuestTrap: it panicked (2.0 ms)"
        );
        assert_eq!(news[1].tone, Tone::Bad);
    }

    #[test]
    fn children_and_their_states_come_and_go() {
        let mut model = Model::new("web", String::new());
        model.observe(Duration::ZERO, objects(vec![app(Vec::new())]));
        let with = |status: &str| ObjectNow {
            children: vec![SeenObject {
                name: name("Deployment", "web"),
                status: Some(status.to_owned()),
                live: None,
            }],
            ..app(Vec::new())
        };
        let news = model.observe(Duration::ZERO, objects(vec![with("InProgress (0 of 2)")]));
        assert_eq!(
            texts(&news),
            [
                "Deployment n/web was made for App n/web",
                "Deployment n/web is InProgress (0 of 2)"
            ]
        );
        let news = model.observe(Duration::ZERO, objects(vec![with("Current")]));
        assert_eq!(texts(&news), ["Deployment n/web is Current"]);
        assert_eq!(news[0].tone, Tone::Good);
        let news = model.observe(Duration::ZERO, objects(vec![app(Vec::new())]));
        assert_eq!(texts(&news), ["Deployment n/web, made for App n/web, is gone"]);
        assert_eq!(
            texts(&model.observe(Duration::ZERO, Snapshot::default())),
            ["App n/web is gone"]
        );
    }

    #[test]
    fn triggers_are_reported_before_a_run_and_its_changes_after() {
        let mut model = Model::new("web", String::new());
        let seen = |kind: &str, number: u8| SeenObject {
            name: name(kind, "web"),
            status: None,
            live: Some(Arc::new(json!({"data": number, "status": {"seen": number}}))),
        };
        let now = |(read, written, own): (u8, u8, u8), state: &str, runs: Vec<RunDocument>| {
            let mut object = app(runs);
            state.clone_into(&mut object.document.controllers[0].state);
            object.reads = vec![seen("ConfigMap", read), seen("Deployment", written)];
            object.children = vec![seen("Deployment", written)];
            object.live = seen("App", own).live;
            objects(vec![object])
        };
        model.observe(Duration::ZERO, now((1, 1, 1), "Idle", Vec::new()));
        let news = model.observe(Duration::ZERO, now((2, 2, 2), "Running", Vec::new()));
        assert_eq!(texts(&news), Vec::<&str>::new(), "the run is not over");
        let run = RunDocument {
            triggered_by: Some(name("ConfigMap", "web")),
            ..run("DependencyChanged", "1")
        };
        let news = model.observe(Duration::ZERO, now((2, 2, 2), "Idle", vec![run.clone()]));
        assert_eq!(
            texts(&news),
            [
                "ConfigMap n/web changed: .data: 1 becomes 2",
                "ConfigMap n/web changed: .status.seen: 1 becomes 2",
                "App n/web changed: .data: 1 becomes 2",
                "App n/web: a dependency changed (ConfigMap n/web); wrote (2.0 ms)",
                "Deployment n/web changed: .data: 1 becomes 2",
                "App n/web changed: .status.seen: 1 becomes 2",
            ]
        );
        assert_eq!(model.changes["App n/web"][0], news[5].text, "the latest first");
        let news = model.observe(Duration::ZERO, now((2, 2, 2), "Idle", vec![run]));
        assert_eq!(texts(&news), Vec::<&str>::new(), "it is told once");
    }

    fn plugin(digest: &str, reason: &str, message: &str) -> Snapshot {
        Snapshot {
            plugin: Some(PluginNow {
                version: Some("1.0.0".to_owned()),
                digest: Some(digest.to_owned()),
                is_ready: true,
                reason: reason.to_owned(),
                message: message.to_owned(),
            }),
            objects: Vec::new(),
        }
    }

    #[test]
    fn the_time_of_a_swap_ends_when_the_awaited_component_runs() {
        let mut model = Model::new("web", String::new());
        let at = Duration::from_millis;
        model.await_component("aaaaaaaaaaaa".to_owned(), Since::Saved(at(100)));
        assert_eq!(model.observe(at(200), plugin("bbbb", "Running", "")), []);
        model.await_component("aaaaaaaaaaaa".to_owned(), Since::Saved(at(210)));
        let news = model.observe(at(350), plugin("aaaaaaaaaaaa", "Running", ""));
        assert_eq!(texts(&news), ["web 1.0.0 (aaaaaaaa) runs, 250 ms after it was saved"]);
        assert_eq!(model.swapped, Some(at(250)));
        assert_eq!(
            model.observe(at(400), plugin("aaaaaaaaaaaa", "Running", "")),
            [],
            "it is told once"
        );
        for (since, said) in [
            (Since::Built(at(410)), "web 1.0.0 (cccc) runs, 90 ms after it was built"),
            (Since::Start, "web 1.0.0 (dddd) runs, 500 ms after the start"),
        ] {
            let digest = &said[11..15];
            model.await_component(digest.to_owned(), since);
            let news = model.observe(at(500), plugin(digest, "Running", ""));
            assert_eq!(texts(&news), [said]);
        }
    }

    #[test]
    fn a_refused_version_is_reported_and_the_one_before_goes_on() {
        let mut model = Model::new("web", String::new());
        model.observe(Duration::ZERO, plugin("aaaa", "Running", ""));
        let refused = plugin(
            "aaaa",
            "PreviousVersion",
            "the new one traps; the version before goes on",
        );
        let news = model.observe(Duration::ZERO, refused.clone());
        assert_eq!(
            texts(&news),
            ["web: the new one traps; the version before goes on (PreviousVersion)"]
        );
        assert_eq!(news[0].tone, Tone::Bad);
        assert_eq!(model.observe(Duration::ZERO, refused), []);
    }

    #[test]
    fn the_selection_stays_among_the_objects() {
        let mut model = Model::new("web", String::new());
        let second = ObjectNow {
            document: ObjectDocument {
                object: name("App", "zoo"),
                ..ObjectDocument::default()
            },
            ..ObjectNow::default()
        };
        model.observe(Duration::ZERO, objects(vec![app(Vec::new()), second]));
        model.select(false);
        assert_eq!(model.selected, 0);
        model.select(true);
        model.select(true);
        assert_eq!(model.selected().unwrap().document.object.name, "zoo");
        model.observe(Duration::ZERO, objects(vec![app(Vec::new())]));
        assert_eq!(model.selected().unwrap().document.object.name, "web");
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let mut model = Model::new("web", String::new());
        for number in 0..=KEPT_LINES {
            model.say(Duration::ZERO, Topic::Log, Tone::Plain, number.to_string());
        }
        assert_eq!((model.log.len(), model.log[0].text.as_str()), (KEPT_LINES, "1"));
        assert!(model.activity.is_empty());
    }
}
