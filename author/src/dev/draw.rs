//! Live view: draws each part of the model on the screen. Decides nothing.

use std::collections::VecDeque;

use pilothouse_host::ask::why::trigger_in_words;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Row, Span};
use ratatui::widgets::{Block, Paragraph, Wrap};

use super::model::{Build, Line, Model, ObjectNow, Tone, title};

/// Rows of the head and of the foot.
const HEAD: u16 = 3;
const FOOT: u16 = 1;

/// Most reads and runs of the selected object that are shown.
const MAX_READS: usize = 6;
const MAX_RUNS: usize = 6;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// Draws the whole view.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let parts = [
        Constraint::Length(HEAD),
        Constraint::Fill(2),
        Constraint::Fill(2),
        Constraint::Fill(1),
        Constraint::Length(FOOT),
    ];
    let [head, middle, activity, log, foot] = Layout::vertical(parts).areas(frame.area());
    let [objects, selected] = Layout::horizontal([Constraint::Fill(2), Constraint::Fill(3)]).areas(middle);
    frame.render_widget(Paragraph::new(head_rows(model)), head);
    draw_objects(frame, model, objects);
    let rows = model
        .selected()
        .map(|object| selected_rows(model, object))
        .unwrap_or_default();
    let block = Block::bordered().title(" Why ");
    let inner = selected.width.saturating_sub(2);
    let all: usize = rows.iter().map(|row| wrapped_height(row.width(), inner)).sum();
    let hidden = all.saturating_sub(usize::from(selected.height.saturating_sub(2)));
    let scroll = u16::try_from(usize::from(model.scroll).min(hidden)).unwrap_or(u16::MAX);
    let why = Paragraph::new(rows).wrap(Wrap { trim: false }).scroll((scroll, 0));
    frame.render_widget(why.block(block), selected);
    if let Build::Failed(said) = &model.build {
        let rows: Vec<Row<'_>> = said.lines().map(|line| Row::styled(line, tone(Tone::Bad))).collect();
        let block = Block::bordered().title(" The build failed; the version before goes on ");
        let first = rows
            .len()
            .saturating_sub(usize::from(activity.height.saturating_sub(2)));
        frame.render_widget(Paragraph::new(rows[first..].to_vec()).block(block), activity);
    } else {
        draw_lines(frame, " Activity ", &model.activity, activity);
    }
    draw_lines(frame, " Log ", &model.log, log);
    frame.render_widget(
        Paragraph::new("q quit   up/down select   PgUp/PgDn scroll   r resync").style(DIM),
        foot,
    );
}

fn tone(tone: Tone) -> Style {
    match tone {
        Tone::Plain => Style::new(),
        Tone::Good => Style::new().fg(Color::Green),
        Tone::Bad => Style::new().fg(Color::Red),
    }
}

fn head_rows(model: &Model) -> Vec<Row<'_>> {
    let plugin = model.now.plugin.as_ref();
    let (state, style) = match plugin {
        Some(plugin) if plugin.is_ready && plugin.reason == "Running" => ("ready", tone(Tone::Good)),
        Some(plugin) => (plugin.reason.as_str(), tone(Tone::Bad)),
        None => ("starting", Style::new()),
    };
    let version = plugin.and_then(|plugin| plugin.version.as_deref()).unwrap_or_default();
    let first = vec![
        Span::styled(format!("{} {version}  ", model.name), BOLD),
        Span::styled(state.to_owned(), style),
    ];
    let (build, style) = match &model.build {
        Build::None => ("not built here".to_owned(), Style::new()),
        Build::Running(said) => (format!("building ... {said}"), Style::new().fg(Color::Yellow)),
        Build::Done(took) => (format!("built in {:.1} s", took.as_secs_f64()), Style::new()),
        Build::Failed(_) => ("the build failed".to_owned(), tone(Tone::Bad)),
    };
    let swapped = model
        .swapped
        .map(|took| format!("; in use {} ms later", took.as_millis()));
    vec![
        Row::from(first),
        Row::styled(model.cluster.as_str(), DIM),
        Row::from(vec![Span::styled(build, style), Span::raw(swapped.unwrap_or_default())]),
    ]
}

fn draw_objects(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let (mut rows, mut at) = (Vec::new(), 0);
    for (index, object) in model.now.objects.iter().enumerate() {
        let mut style = Style::new();
        if index == model.selected {
            at = rows.len();
            style = style.add_modifier(Modifier::REVERSED);
        }
        let is_failing = object.document.controllers.iter().any(|view| view.failure.is_some());
        let state = if is_failing {
            "fails"
        } else {
            object.status.as_deref().unwrap_or_default()
        };
        rows.push(Row::from(vec![
            Span::styled(title(&object.document.object), style),
            Span::styled(format!("  {state}"), state_style(state)),
        ]));
        for child in &object.children {
            let state = child.status.as_deref().unwrap_or_default();
            rows.push(Row::from(vec![
                Span::raw(format!("  {}", title(&child.name))),
                Span::styled(format!("  {state}"), state_style(state)),
            ]));
        }
    }
    if rows.is_empty() {
        rows.push(Row::styled("No object yet: apply one with kubectl.", DIM));
    }
    // Keep the selected object in sight.
    let height = usize::from(area.height.saturating_sub(2)).max(1);
    let first = at.saturating_sub(height - 1).min(rows.len().saturating_sub(1));
    let block = Block::bordered().title(" Objects ");
    frame.render_widget(Paragraph::new(rows[first..].to_vec()).block(block), area);
}

fn state_style(state: &str) -> Style {
    match state.split(' ').next().unwrap_or_default() {
        "Current" => tone(Tone::Good),
        "Failed" | "fails" => tone(Tone::Bad),
        _ => Style::new().fg(Color::Yellow),
    }
}

/// Returns the dependencies of an object, the triggers of its runs, and its changes.
fn selected_rows<'a>(model: &'a Model, object: &'a ObjectNow) -> Vec<Row<'a>> {
    let mut rows = vec![Row::styled(title(&object.document.object), BOLD)];
    // The newest first: field, old and new value, and author.
    let changes = model.changes.get(&title(&object.document.object));
    rows.extend(
        changes
            .into_iter()
            .flatten()
            .rev()
            .map(|change| Row::raw(change.as_str())),
    );
    for view in &object.document.controllers {
        if let Some(failure) = &view.failure {
            let text = format!("{}: {}; {}", failure.reason, failure.message, failure.next_step);
            rows.push(Row::styled(text, tone(Tone::Bad)));
        }
        for read in view.depends_on.iter().take(MAX_READS) {
            let place = read.namespace.as_deref().map(|it| format!("{it}/")).unwrap_or_default();
            let name = read.name.as_deref().unwrap_or("*");
            rows.push(Row::raw(format!("reads {} {place}{name}", read.kind.kind)));
        }
        for run in view.runs.iter().take(MAX_RUNS) {
            let by = run
                .triggered_by
                .as_ref()
                .map(|by| format!(": {}", title(by)))
                .unwrap_or_default();
            let wrote = if run.wrote { ", wrote" } else { "" };
            let when = run.ended.get(11..19).unwrap_or_default();
            let text = format!("{when} {}{by}; {}{wrote}", trigger_in_words(&run.trigger), run.result);
            let bad = if run.result == "Failure" {
                Tone::Bad
            } else {
                Tone::Plain
            };
            rows.push(Row::styled(text, tone(bad)));
        }
    }
    rows
}

fn draw_lines(frame: &mut Frame<'_>, name: &'static str, lines: &VecDeque<Line>, area: Rect) {
    let (width, mut height) = (area.width.saturating_sub(2), usize::from(area.height.saturating_sub(2)));
    let mut rows = VecDeque::new();
    for line in lines.iter().rev() {
        let time = Span::styled(format!("{:>7.1}s ", line.at.as_secs_f64()), DIM);
        let row = Row::from(vec![time, Span::styled(line.text.as_str(), tone(line.tone))]);
        let needed = wrapped_height(row.width(), width);
        // A line that is higher than the window is shown from its beginning.
        if needed > height && !rows.is_empty() || height == 0 {
            break;
        }
        height = height.saturating_sub(needed);
        rows.push_front(row);
    }
    let lines = Paragraph::new(Vec::from(rows)).wrap(Wrap { trim: false });
    frame.render_widget(lines.block(Block::bordered().title(name)), area);
}

/// Returns the number of rows of a line that is broken between words: at most half of each row stays empty for that.
fn wrapped_height(length: usize, width: u16) -> usize {
    let width = usize::from(width).max(1);
    if length <= width {
        return 1;
    }
    length.div_ceil(width - width / 8)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use pilothouse_runtime::api::documents::{ControllerView, KindName, ObjectDocument, ObjectName, RunDocument};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::super::model::{PluginNow, SeenObject, Snapshot, Topic};
    use super::*;

    fn name(kind: &str, name: &str) -> ObjectName {
        ObjectName {
            kind: KindName {
                api_version: "v1".to_owned(),
                kind: kind.to_owned(),
            },
            namespace: Some("default".to_owned()),
            name: name.to_owned(),
        }
    }

    fn object(named: &str, status: &str, replicas: u8) -> ObjectNow {
        let run = RunDocument {
            ended: "2026-01-02T03:04:05Z".to_owned(),
            trigger: "DependencyChanged".to_owned(),
            triggered_by: Some(name("ConfigMap", "settings")),
            result: "Success".to_owned(),
            wrote: true,
            ..RunDocument::default()
        };
        ObjectNow {
            document: ObjectDocument {
                object: name("Website", named),
                controllers: vec![ControllerView {
                    runs: vec![run],
                    ..ControllerView::default()
                }],
                ..ObjectDocument::default()
            },
            status: Some(status.to_owned()),
            children: vec![SeenObject {
                name: name("Deployment", named),
                status: Some("InProgress (0 of 2)".to_owned()),
                live: Some(Arc::new(json!({"spec": {"replicas": replicas}}))),
            }],
            ..ObjectNow::default()
        }
    }

    fn model() -> Model {
        let mut model = Model::new("website", "simulated cluster; export KUBECONFIG=/x".to_owned());
        let plugin = PluginNow {
            version: Some("0.1.0".to_owned()),
            is_ready: true,
            reason: "Running".to_owned(),
            ..PluginNow::default()
        };
        let plugin = Some(plugin);
        for replicas in [1, 2] {
            let objects = vec![object("blog", "Current", replicas), object("shop", "InProgress", 1)];
            let plugin = plugin.clone();
            model.observe(Duration::from_secs(1), Snapshot { plugin, objects });
        }
        model.say(
            Duration::from_secs(2),
            Topic::Log,
            Tone::Plain,
            "INFO hello from the plugin",
        );
        model
    }

    /// Returns the rows of the screen, as text.
    fn drawn(model: &Model, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, model)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let cells = buffer.content().chunks(usize::from(width));
        cells
            .map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect())
            .collect()
    }

    #[test]
    fn objects_children_triggers_and_the_log_are_on_the_screen() {
        let screen = drawn(&model(), 120, 40);
        let text = screen.join("\n");
        for part in [
            "website 0.1.0  ready",
            "export KUBECONFIG=/x",
            "Website default/blog  Current",
            "Deployment default/blog  InProgress (0 of 2)",
            "03:04:05 a dependency changed: ConfigMap default/settings",
            "Website default/shop: a dependency changed (ConfigMap default/settings); wrote",
            "Deployment default/blog changed: .spec.replicas: 1 becomes 2",
            "INFO hello from the plugin",
            "q quit",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn a_small_terminal_shows_what_has_changed_and_by_whom() {
        let mut model = model();
        let change = "Deployment default/blog changed by kubectl-edit: .spec.template.spec.containers[name=web].image: \"nginx:1.28\" \
                      becomes \"nginx:1.29\"";
        let selected = title(&model.selected().unwrap().document.object);
        model.changes.entry(selected).or_default().push_back(change.to_owned());
        let text = drawn(&model, 80, 24).join("\n");
        for part in ["kubectl-edit", "\"nginx:1.28\"", "\"nginx:1.29\""] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(
            !text.contains("a dependency changed: ConfigMap"),
            "it is below:\n{text}"
        );
        model.scroll = 100;
        let text = drawn(&model, 80, 24).join("\n");
        assert!(text.contains("Success, wrote"), "{text}");
    }

    #[test]
    fn the_selected_object_is_the_one_that_is_explained() {
        let mut model = model();
        let why = |model: &Model| drawn(model, 120, 40).join("\n").matches("Website default/shop").count();
        let before = why(&model);
        model.select(true);
        assert_eq!(why(&model), before + 1, "its name stands above its runs");
    }

    #[test]
    fn a_failed_build_is_shown_in_place_of_the_activity() {
        let mut model = model();
        model.build = Build::Failed("error[E0308]: mismatched types\n  --> src/lib.rs:3".to_owned());
        let text = drawn(&model, 100, 40).join("\n");
        assert!(
            text.contains("the version before goes on") && text.contains("src/lib.rs:3"),
            "{text}"
        );
        assert!(!text.contains(" Activity "), "{text}");
        model.build = Build::Done(Duration::from_millis(3210));
        assert!(drawn(&model, 100, 40).join("\n").contains("built in 3.2 s"));
    }

    #[test]
    fn no_size_of_a_window_is_too_small() {
        let mut model = model();
        model.select(true);
        for (width, height) in [(1, 1), (10, 3), (20, 8), (200, 2), (3, 60)] {
            drawn(&model, width, height);
        }
    }
}
