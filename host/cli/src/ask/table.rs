//! Formats answers for people: aligned columns, durations and sizes with units, and colours on a terminal only.

use pilothouse_core::text::printable::printable;
use std::fmt::Write as _;
use std::io::IsTerminal as _;

use jiff::Timestamp;

use crate::options::settings;
use crate::output::terminal_width;

/// Largest width of messages, and their width if the output is no terminal.
const WIDTH: usize = 110;

/// The least width of a column that is wrapped, and of a message.
const LEAST: usize = 16;

/// Properties of the output device.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// Set if colours are wanted.
    pub coloured: bool,
    /// Columns of the terminal; none if the output is none, and lines may have any length.
    pub width: Option<usize>,
}

impl Screen {
    /// Output to a file.
    #[cfg(test)]
    pub const PLAIN: Self = Self {
        coloured: false,
        width: None,
    };

    /// Detects the properties of standard output.
    pub fn stdout() -> Self {
        Self {
            coloured: coloured(),
            width: terminal_width(),
        }
    }

    /// Wraps paragraphs, with each line indented.
    pub fn wrapped(self, text: &str, indent: usize) -> String {
        let width = self
            .width
            .map_or(WIDTH, |width| width.saturating_sub(indent).clamp(LEAST, WIDTH));
        wrapped(text, indent, width)
    }
}

/// Emphasis of a cell on a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Emphasis {
    /// None.
    #[default]
    Plain,
    /// All is well.
    Good,
    /// Something is not ready yet.
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
    /// Makes a cell with emphasis.
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
    /// Makes a table with these columns.
    pub fn new(columns: &[&str]) -> Self {
        Self {
            rows: vec![columns.iter().map(|column| Cell::from(*column)).collect()],
        }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.rows.push(cells.into());
    }

    /// Returns the lines, each indented. If they are wider than the screen, the widest column is wrapped, or, if that
    /// is not enough, each row becomes a paragraph with a line for each column.
    pub fn lines(&self, indent: usize, screen: Screen) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.text.chars().count()).max().unwrap_or_default()
        };
        let mut widths: Vec<usize> = (0..columns).map(width).collect();
        let total = indent + widths.iter().sum::<usize>() + GAP * columns.saturating_sub(1);
        let surplus = screen.width.map_or(0, |width| total.saturating_sub(width));
        if let Some(widest) = widths.iter_mut().max().filter(|_| surplus > 0) {
            if *widest < surplus + LEAST {
                return self.paragraphs(indent, screen);
            }
            *widest -= surplus;
        }
        let mut lines = String::new();
        for row in &self.rows {
            let parts: Vec<Vec<String>> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| broken(&cell.text, *width))
                .collect();
            for line in 0..parts.iter().map(Vec::len).max().unwrap_or_default() {
                let mut text = " ".repeat(indent);
                for (index, ((cell, parts), width)) in row.iter().zip(&parts).zip(&widths).enumerate() {
                    let part = parts.get(line).map(String::as_str).unwrap_or_default();
                    text.push_str(&emphasised(part, cell.emphasis, screen.coloured && !part.is_empty()));
                    if index + 1 < row.len() {
                        text.push_str(&" ".repeat(width - part.chars().count() + GAP));
                    }
                }
                lines.push_str(text.trim_end());
                lines.push('\n');
            }
        }
        lines
    }

    fn paragraphs(&self, indent: usize, screen: Screen) -> String {
        let Some((head, rows)) = self.rows.split_first() else {
            return String::new();
        };
        let name = |cell: &Cell| cell.text.chars().count();
        let width = head.iter().map(name).max().unwrap_or_default();
        let mut lines = String::new();
        for (index, row) in rows.iter().enumerate() {
            if index > 0 {
                lines.push('\n');
            }
            for (head, cell) in head.iter().zip(row) {
                let text = emphasised(&cell.text, cell.emphasis, screen.coloured);
                let padding = " ".repeat(width - name(head) + 1);
                let _ = writeln!(lines, "{}{}{padding}{text}", " ".repeat(indent), head.text);
            }
        }
        lines
    }
}

/// The spaces between two columns.
const GAP: usize = 3;

/// Breaks a text into lines of a width: between words, or within one that is longer.
fn broken(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        let last = lines.last_mut().expect("there is a line to begin with");
        let used = last.chars().count();
        if used + usize::from(used > 0) + word.len() <= width {
            if used > 0 {
                last.push(' ');
            }
            last.extend(word);
            continue;
        }
        if used > 0 {
            lines.push(String::new());
        }
        while word.len() > width.max(1) {
            let rest = word.split_off(width.max(1));
            lines.last_mut().expect("there is a line").extend(word);
            lines.push(String::new());
            word = rest;
        }
        lines.last_mut().expect("there is a line").extend(word);
    }
    lines
}

/// Reports whether colours are wanted: on a terminal, unless the environment forbids them.
pub fn coloured() -> bool {
    std::io::stdout().is_terminal() && !settings::no_color()
}

/// Returns a text in a colour, by the escapes of ECMA-48.
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

/// Formats a duration as kubectl does: `5s`, `3m12s`, `4h5m`, `2d3h`; below ten seconds with three digits.
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

/// Formats a size in powers of 1024: `512B`, `3.2MiB`.
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

/// Formats the time since a timestamp of a document.
pub fn ago(time: &str, now: Timestamp) -> String {
    let Ok(time) = time.parse::<Timestamp>() else {
        return printable(time);
    };
    let passed = now.duration_since(time).as_secs_f64();
    format!("{} ago", duration(passed.max(0.0)))
}

/// Wraps paragraphs to a width, with each line indented.
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

    const COLOURED: Screen = Screen {
        coloured: true,
        width: None,
    };

    #[test]
    fn a_table_fits_the_terminal() {
        let mut table = Table::new(&["ENDED", "TRIGGER", "TOOK"]);
        table.row([
            "5s ago".into(),
            "a dependency changed: ConfigMap shop/settings".into(),
            "12ms".into(),
        ]);
        let at = |width| {
            table.lines(
                2,
                Screen {
                    width: Some(width),
                    ..Screen::PLAIN
                },
            )
        };
        assert_eq!(at(80), table.lines(2, Screen::PLAIN));
        let wrapped = [
            "  ENDED    TRIGGER                TOOK",
            "  5s ago   a dependency           12ms",
            "           changed: ConfigMap",
            "           shop/settings",
        ];
        assert_eq!(at(38).lines().collect::<Vec<_>>(), wrapped);
        let paragraph = [
            "  ENDED   5s ago",
            "  TRIGGER a dependency changed: ConfigMap shop/settings",
            "  TOOK    12ms",
        ];
        assert_eq!(at(30).lines().collect::<Vec<_>>(), paragraph);
        for width in [38, 40, 60] {
            let lines = at(width);
            assert!(
                lines.lines().all(|line| line.chars().count() <= width),
                "{width}: {lines}"
            );
        }
        assert_eq!(broken("aaaa b", 2), ["aa", "aa", "b"]);
    }

    #[test]
    fn columns_are_aligned_and_colours_do_not_count() {
        let mut table = Table::new(&["NAME", "READY"]);
        table.row(["a".into(), Cell::new("True", Emphasis::Good)]);
        table.row(["longer".into(), Cell::new("False", Emphasis::Bad)]);
        assert_eq!(
            table.lines(0, Screen::PLAIN),
            "NAME     READY\na        True\nlonger   False\n"
        );
        let coloured = table.lines(2, COLOURED);
        assert!(
            coloured.contains("  a        \u{1b}[32mTrue\u{1b}[0m\n"),
            "{coloured:?}"
        );
    }

    #[test]
    fn what_others_wrote_cannot_steer_the_terminal() {
        let mut table = Table::new(&["A"]);
        table.row(["x\u{1b}[2Jy\r\nz".into()]);
        assert_eq!(table.lines(0, COLOURED), "A\nx\\u{1b}[2Jy\\r\\nz\n");
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
