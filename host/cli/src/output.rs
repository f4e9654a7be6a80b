//! Owns the form of the output of commands that print text or, with `-o json`, a document.

use clap::ValueEnum;

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}
