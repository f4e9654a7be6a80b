//! Prints results of commands: their form, their width, and standard output, which may be a full disk or a closed pipe.

use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};

use clap::ValueEnum;
use pilothouse_cluster::error::RequestError;

/// Width of messages if the output is no terminal, and the largest one.
const WIDTH: usize = 110;

/// Smallest width, in which words are still readable.
const LEAST_WIDTH: usize = 20;

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Returns the number of columns of the terminal; none if standard output is none.
pub fn terminal_width() -> Option<usize> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let (terminal_size::Width(width), _) = terminal_size::terminal_size_of(stdout)?;
    (width > 0).then(|| usize::from(width).max(LEAST_WIDTH))
}

/// Returns the width of messages.
pub fn width() -> usize {
    terminal_width().map_or(WIDTH, |width| width.min(WIDTH))
}

/// Writes to standard output. An error ends the program: with 0 if the reader has closed the pipe.
pub fn write(text: fmt::Arguments<'_>) {
    let mut stdout = io::stdout().lock();
    let Err(error) = stdout.write_fmt(text).and_then(|()| stdout.flush()) else {
        return;
    };
    if error.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    eprintln!("error: cannot write to standard output: {error}");
    std::process::exit(1);
}

/// Formats a number with its noun: `1 read`, `2 reads`.
pub fn counted(number: u64, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

/// Returns the next step after an error that a missing right has caused.
pub fn missing_right(error: &RequestError, right: &str) -> String {
    if error.is_missing_right() {
        format!("; ask for the right to {right}")
    } else {
        String::new()
    }
}

/// Prints like `std::print`, with an error in the place of a panic.
macro_rules! print {
    ($($text:tt)*) => { $crate::output::write(format_args!($($text)*)) };
}

/// Prints like `std::println`, with an error in the place of a panic.
macro_rules! println {
    () => { $crate::output::write(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($text)*))) };
}
