//! Draws what programs print as a terminal: docs/images/demo.svg, a part of what `pilothouse-demo` prints, and any other screen of
//! README.md. A test of `tests/demo` compares demo.svg with what the demo prints.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{fs, io};

use anyhow::{Context as _, Result, ensure};

/// Path of the drawing, from the root of the workspace.
pub const FILE: &str = "docs/images/demo.svg";

/// The act that is shown: the smallest plugin.
const ACT: &str = "app-service:";

/// Pixels of a letter and of a line, in the size that `HEAD` sets.
const LETTER: f64 = 7.83;
const LINE: usize = 19;

/// The space around the text, and the bar above it.
const MARGIN: usize = 16;
const BAR: usize = 30;

/// Returns the drawing of the demo's output.
pub fn drawn(story: &str) -> Result<String> {
    drawing(
        &chosen(story)?,
        "A recorded run of cargo xtask demo",
        "`cargo xtask demo` with its option `record`",
    )
}

/// Options of `cargo xtask screen`.
#[derive(Clone, Debug, clap::Args)]
pub struct ScreenOptions {
    /// The command that has printed it.
    command: String,
    /// The file of the drawing, such as docs/images/why.svg.
    file: PathBuf,
}

/// Draws a command's output, read from standard input, as a terminal.
pub fn screen(options: &ScreenOptions) -> Result<()> {
    let ScreenOptions { command, file } = options;
    let printed = io::read_to_string(io::stdin()).context("read what the command has printed")?;
    ensure!(
        !printed.trim().is_empty(),
        "standard input has nothing that {command} has printed"
    );
    let lines: Vec<_> = std::iter::once(format!("$ {command}"))
        .chain(printed.lines().map(str::to_owned))
        .collect();
    let drawing = drawing(&lines, &format!("A recorded run of {command}"), "`cargo xtask screen`")?;
    fs::write(file, drawing).with_context(|| format!("write {}", file.display()))
}

/// Lines as a terminal shows them.
fn drawing(lines: &[String], label: &str, maker: &str) -> Result<String> {
    let letters = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "it is a width in pixels"
    )]
    let width = (letters as f64 * LETTER).ceil() as usize + 2 * MARGIN;
    let height = BAR + lines.len() * LINE + MARGIN;
    let mut drawing = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="{label}" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', monospace" font-size="13" fill="#d1d7e0">
<!-- Made by {maker}. -->
<rect width="{width}" height="{height}" rx="8" fill="#151b23" stroke="#3d444d"/>
<circle cx="18" cy="16" r="5" fill="#f85149"/><circle cx="36" cy="16" r="5" fill="#d29922"/><circle cx="54" cy="16" r="5" fill="#3fb950"/>
"##
    );
    for (number, line) in lines.iter().enumerate() {
        let y = BAR + (number + 1) * LINE - 4;
        let text = painted(line);
        writeln!(
            drawing,
            r#"<text x="{MARGIN}" y="{y}" xml:space="preserve">{text}</text>"#
        )?;
    }
    drawing.push_str("</svg>\n");
    Ok(drawing)
}

/// The lines that are shown: the command, the heading, one act, and the last line.
fn chosen(story: &str) -> Result<Vec<String>> {
    let heading = story.lines().find(|line| line.contains("TIME (ms)"));
    let act: Vec<_> = story
        .lines()
        .skip_while(|line| !line.starts_with(ACT))
        .take_while(|line| !line.is_empty())
        .collect();
    ensure!(!act.is_empty(), "the demo has no act that begins with {ACT}");
    let last = story.lines().rev().find(|line| !line.is_empty());
    let mut lines = vec!["$ cargo xtask demo --once", "..."];
    lines.push(heading.context("the demo has no heading")?);
    lines.extend(act);
    lines.extend(["...", last.context("the demo says nothing")?]);
    Ok(lines.into_iter().map(str::to_owned).collect())
}

/// A line as SVG, with the colours that the demo has on a terminal.
fn painted(line: &str) -> String {
    let escaped = line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let colours = [
        (" created ", "#3fb950"),
        (" changed ", "#d29922"),
        (" deleted ", "#f85149"),
    ];
    if let Some((time, deed)) = escaped.split_once(" &gt; ") {
        return format!(r##"{time} <tspan fill="#f0f6fc" font-weight="bold">&gt; {deed}</tspan>"##);
    }
    if let Some(command) = escaped.strip_prefix("$ ") {
        return format!(r##"$ <tspan fill="#f0f6fc" font-weight="bold">{command}</tspan>"##);
    }
    for (word, colour) in colours {
        // A row of the demo begins with a time; other screens have these words, too.
        if let Some((before, after)) = escaped.split_once(word)
            && before.trim().parse::<f64>().is_ok()
        {
            let word = word.trim();
            return format!(r#"{before} <tspan fill="{colour}">{word}</tspan> {after}"#);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORY: &str = "\
plugin    a.wasm

TIME (ms)   CHANGE  KIND            NAME                     STATE
      1.0 > start the host

app-service: an AppService
      2.0 > apply <it>
      3.0   created Service         web                      by pilothouse/app-service

another: act
      4.0   deleted Service         web

The end.
";

    #[test]
    fn the_command_the_heading_one_act_and_the_end_are_shown() {
        let expected = [
            "$ cargo xtask demo --once",
            "...",
            "TIME (ms)   CHANGE  KIND            NAME                     STATE",
            "app-service: an AppService",
            "      2.0 > apply <it>",
            "      3.0   created Service         web                      by pilothouse/app-service",
            "...",
            "The end.",
        ];
        assert_eq!(chosen(STORY).unwrap(), expected);
    }

    #[test]
    fn the_drawing_has_the_demos_colours_and_escapes_what_xml_needs() {
        let drawing = drawn(STORY).unwrap();
        assert!(
            drawing.contains(r##"<tspan fill="#3fb950">created</tspan> Service"##),
            "{drawing}"
        );
        assert!(drawing.contains("&gt; apply &lt;it&gt;</tspan>"), "{drawing}");
        let comment = drawing
            .split("<!--")
            .nth(1)
            .and_then(|rest| rest.split("-->").next())
            .unwrap();
        assert!(!comment.contains("--"), "no XML: {comment}");
    }

    #[test]
    fn a_story_without_the_act_is_an_error() {
        assert!(drawn("TIME (ms)\n\nThe end.\n").is_err());
    }
}
