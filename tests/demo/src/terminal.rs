//! Prints the story in columns, with colour on a terminal.

use std::env;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use crate::scene::{Line, What};

/// The width of the names of facts and of the times, so that all lines begin alike.
const FIRST_COLUMN: usize = 9;

/// The columns that lines may have.
const WIDTH: usize = 100;

/// Output of the story.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    colour: bool,
}

impl Terminal {
    /// Standard output; in colour when that is a terminal and `NO_COLOR` is not set.
    pub fn of_this_process() -> Self {
        let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            colour: io::stdout().is_terminal() && !refused,
        }
    }

    /// Prints a fact that holds from the start.
    pub fn fact(self, name: &str, text: &str) {
        self.show(&format!("{name:<FIRST_COLUMN$} {text}"));
    }

    /// Prints the meaning of the lines below.
    pub fn legend(self) {
        self.show("");
        self.show("Lines with > say what the demo does, the others what a watch of the cluster shows.");
        self.show("TIME is in milliseconds since the demo began; STATE says who wrote an object, and how it is.");
        self.show("");
        self.show(&format!(
            "{:>FIRST_COLUMN$}   {:<7} {:<15} {:<24} STATE",
            "TIME (ms)", "CHANGE", "KIND", "NAME"
        ));
    }

    /// Prints a step of the demo itself.
    pub fn deed(self, at: Duration, text: &str) {
        self.show(&self.deed_line(at, text));
    }

    /// Prints a report of a watch.
    pub fn line(self, line: &Line) {
        self.show(&self.change_line(line));
    }

    /// Lines as they are.
    pub fn plain(self, lines: &[String]) {
        for line in lines {
            self.show(line);
        }
    }

    fn deed_line(self, at: Duration, text: &str) -> String {
        format!(
            "{:>FIRST_COLUMN$} {}",
            milliseconds(at),
            self.painted("1", &format!("> {text}"))
        )
    }

    fn change_line(self, line: &Line) -> String {
        let Line {
            at,
            what,
            kind,
            name,
            detail,
        } = line;
        let (word, colour) = match what {
            What::Created => ("created", "32"),
            What::Changed => ("changed", "33"),
            What::Deleted => ("deleted", "31"),
        };
        let head = format!("{:>FIRST_COLUMN$}   ", milliseconds(*at));
        let place = format!(" {:<15} {name:<24} ", kind.name());
        let indent = head.len() + word.len() + place.chars().count();
        let mut details = broken(detail, WIDTH.saturating_sub(indent)).into_iter();
        let first = details.next().unwrap_or_default();
        let text = format!("{head}{}{place}{first}", self.painted(colour, word));
        let rest = details.map(|line| format!("\n{}{line}", " ".repeat(indent)));
        text.trim_end().to_owned() + &rest.collect::<String>()
    }

    fn painted(self, colour: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{colour}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    #[expect(clippy::unused_self, reason = "the terminal is what is written to")]
    fn show(self, text: &str) {
        // Whoever closes the pipe does not want to read on; the exit code still says how it went.
        let _ = writeln!(io::stdout().lock(), "{text}");
    }
}

/// Formats milliseconds with one decimal.
fn milliseconds(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64() * 1000.0)
}

/// A text in lines of a width: broken after a comma or a colon, and within a clause only where it is longer than a line.
fn broken(text: &str, width: usize) -> Vec<String> {
    let width = width.max(20);
    let mut lines = vec![String::new()];
    let mut rest = text;
    while !rest.is_empty() {
        let end = [", ", ": "].iter().filter_map(|end| rest.find(end)).min();
        let (clause, after) = end.map_or((rest, ""), |end| (&rest[..=end], &rest[end + 2..]));
        let is_long = clause.chars().count() > width;
        let words: Vec<&str> = if is_long {
            clause.split(' ').collect()
        } else {
            vec![clause]
        };
        for word in words {
            let last = lines.last_mut().expect("there is a line to begin with");
            if last.is_empty() {
                word.clone_into(last);
            } else if last.chars().count() + 1 + word.chars().count() <= width {
                last.push(' ');
                last.push_str(word);
            } else {
                lines.push(word.to_owned());
            }
        }
        rest = after;
    }
    lines
}

/// Rows of two columns below a heading, the first as wide as its widest cell, the second broken where a line would be too wide.
pub fn table(heading: [&str; 2], rows: &[[String; 2]]) -> Vec<String> {
    let heading = heading.map(str::to_owned);
    let rows = || std::iter::once(&heading).chain(rows);
    let width = rows().map(|[first, _]| first.chars().count()).max().unwrap_or_default() + 3;
    let lines = rows().flat_map(|[first, second]| {
        let parts = broken(second, WIDTH.saturating_sub(width)).into_iter().enumerate();
        parts.map(move |(number, part)| {
            let first = if number == 0 { first.as_str() } else { "" };
            format!("{first:<width$}{part}").trim_end().to_owned()
        })
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Kind;

    fn line(what: What) -> Line {
        let at = Duration::from_micros(12_345);
        Line {
            at,
            what,
            kind: Kind::Deployment,
            name: "web".to_owned(),
            detail: "by us".to_owned(),
        }
    }

    #[test]
    fn lines_are_aligned_and_plain_without_a_terminal() {
        let terminal = Terminal { colour: false };
        let created = terminal.change_line(&line(What::Created));
        assert_eq!(
            created,
            "     12.3   created Deployment      web                      by us"
        );
        assert_eq!(terminal.deed_line(Duration::from_secs(1), "go"), "   1000.0 > go");
    }

    #[test]
    fn colour_changes_no_width() {
        let plain = Terminal { colour: false }.change_line(&line(What::Deleted));
        let painted = Terminal { colour: true }.change_line(&line(What::Deleted));
        assert_ne!(painted, plain);
        assert_eq!(painted.replace("\x1b[31m", "").replace("\x1b[0m", ""), plain);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a".to_owned(), "b".to_owned()], ["longer".to_owned(), String::new()]];
        assert_eq!(table(["ONE", "TWO"], &rows), ["ONE      TWO", "a        b", "longer"]);
    }

    #[test]
    fn no_line_is_wider_than_the_screen() {
        let state =
            "primary.example.com:5432 secondary.example.com:5432, Reconciled=False Waiting: the Service is not there";
        let place = "  entry 5432 of ConfigMap ingress-nginx/tcp-services";
        let lines = table(["RESOURCE", "STATE"], &[[place.to_owned(), state.to_owned()]]);
        assert!(
            lines.len() > 2 && lines.iter().all(|line| line.chars().count() <= WIDTH),
            "{lines:#?}"
        );
        let mut change = line(What::Changed);
        change.detail = format!("by pilothouse/stream-ingress: {state}");
        let shown = Terminal { colour: false }.change_line(&change);
        assert!(shown.lines().all(|line| line.chars().count() <= WIDTH), "{shown}");
        assert!(shown.contains("Reconciled=False Waiting:"), "{shown}");
    }
}
