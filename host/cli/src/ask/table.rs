//! Owns how answers look for people: aligned columns, durations and sizes in words, and colours on a terminal only.

use pilothouse_core::printable::printable;
use std::fmt::Write as _;
use std::io::IsTerminal as _;

use jiff::Timestamp;

use crate::settings;

/// How a cell is to stand out on a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Emphasis {
    /// Not at all.
    #[default]
    Plain,
    /// All is well.
    Good,
    /// It is not well yet.
    Warning,
    /// Something is wrong.
    Bad,
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    emphasis: Emphasis,
}

impl Cell {
    /// A cell that stands out.
    pub fn new(text: impl Into<String>, emphasis: Emphasis) -> Self {
        Self {
            text: printable(&text.into()),
            emphasis,
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Emphasis::Plain)
    }
}

/// Rows below a head.
pub struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table with these columns.
    pub fn new(columns: &[&str]) -> Self {
        Self {
            rows: vec![columns.iter().map(|column| Cell::from(*column)).collect()],
        }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.rows.push(cells.into());
    }

    /// The lines, with or without colours, each after some spaces.
    pub fn lines(&self, indent: usize, coloured: bool) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.text.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut lines = String::new();
        for row in &self.rows {
            let mut line = " ".repeat(indent);
            for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let padding = width - cell.text.chars().count();
                line.push_str(&emphasised(&cell.text, cell.emphasis, coloured));
                if index + 1 < row.len() {
                    line.push_str(&" ".repeat(padding + 3));
                }
            }
            lines.push_str(line.trim_end());
            lines.push('\n');
        }
        lines
    }
}

/// Whether colours are wanted: on a terminal, unless the environment forbids them.
pub fn coloured() -> bool {
    std::io::stdout().is_terminal() && !settings::no_color()
}

/// A text in a colour, by the escapes of ECMA-48.
pub fn emphasised(text: &str, emphasis: Emphasis, coloured: bool) -> String {
    let colour = match emphasis {
        _ if !coloured => return text.to_owned(),
        Emphasis::Plain => return text.to_owned(),
        Emphasis::Good => 32,
        Emphasis::Warning => 33,
        Emphasis::Bad => 31,
    };
    format!("\u{1b}[{colour}m{text}\u{1b}[0m")
}

/// A duration as kubectl shows it: `5s`, `3m12s`, `4h5m`, `2d3h`; below ten seconds with three digits.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "0s".to_owned();
    }
    if seconds < 0.9995 {
        return format!("{:.0}ms", seconds * 1000.0);
    }
    if seconds < 9.95 {
        return format!("{seconds:.1}s");
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is positive, and a float beyond the range becomes the largest number"
    )]
    let whole = seconds.round() as u64;
    let (days, hours, minutes, seconds) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60, whole % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{seconds}s"),
        (0, ..) => format!("{hours}h{minutes}m"),
        _ => format!("{days}d{hours}h"),
    }
}

/// A size in powers of 1024: `512B`, `3.2MiB`.
pub fn size(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
    let mut shown = bytes as f64;
    let mut units = ["KiB", "MiB", "GiB", "TiB"].into_iter();
    let mut unit = "B";
    while shown >= 1024.0 {
        let Some(next) = units.next() else { break };
        shown /= 1024.0;
        unit = next;
    }
    if unit == "B" {
        format!("{bytes}B")
    } else {
        format!("{shown:.1}{unit}")
    }
}

/// How long ago a time was that a document has.
pub fn ago(time: &str, now: Timestamp) -> String {
    let Ok(time) = time.parse::<Timestamp>() else {
        return printable(time);
    };
    let passed = now.duration_since(time).as_secs_f64();
    format!("{} ago", duration(passed.max(0.0)))
}

/// Paragraphs of a width, each line after some spaces.
pub fn wrapped(text: &str, indent: usize, width: usize) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split_whitespace().map(printable) {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            writeln!(lines, "{}{line}", " ".repeat(indent)).expect("writing to a String cannot fail");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&word);
    }
    if !line.is_empty() {
        writeln!(lines, "{}{line}", " ".repeat(indent)).expect("writing to a String cannot fail");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_colours_do_not_count() {
        let mut table = Table::new(&["NAME", "READY"]);
        table.row(["a".into(), Cell::new("True", Emphasis::Good)]);
        table.row(["longer".into(), Cell::new("False", Emphasis::Bad)]);
        assert_eq!(table.lines(0, false), "NAME     READY\na        True\nlonger   False\n");
        let coloured = table.lines(2, true);
        assert!(
            coloured.contains("  a        \u{1b}[32mTrue\u{1b}[0m\n"),
            "{coloured:?}"
        );
    }

    #[test]
    fn what_others_wrote_cannot_steer_the_terminal() {
        let mut table = Table::new(&["A"]);
        table.row(["x\u{1b}[2Jy\r\nz".into()]);
        assert_eq!(table.lines(0, true), "A\nx\\u{1b}[2Jy\\r\\nz\n");
        assert_eq!(wrapped("a\u{7}b\nc\u{202e}", 1, 80), " a\\u{7}b c\\u{202e}\n");
    }

    #[test]
    fn durations_and_sizes_are_short() {
        let shown = [0.0, 0.0123, 1.25, 12.4, 192.0, 14_700.0, 183_600.0, -1.0].map(duration);
        assert_eq!(shown, ["0ms", "12ms", "1.2s", "12s", "3m12s", "4h5m", "2d3h", "0s"]);
        let shown = [0, 1023, 1024, 3_355_443, u64::MAX].map(size);
        assert_eq!(shown, ["0B", "1023B", "1.0KiB", "3.2MiB", "16777216.0TiB"]);
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        assert_eq!(ago("2026-01-02T03:03:00Z", now), "1m5s ago");
        assert_eq!(ago("2026-01-02T03:04:06Z", now), "0ms ago", "clocks differ");
        assert_eq!(ago("soon", now), "soon");
    }

    #[test]
    fn long_texts_are_broken_between_words() {
        assert_eq!(wrapped("one two three", 2, 7), "  one two\n  three\n");
        assert_eq!(wrapped("", 2, 7), "");
    }
}
