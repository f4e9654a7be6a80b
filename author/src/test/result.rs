//! Results of tests.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TestOutput {
    /// A line for each test as it ends, and what is wrong with those that fail.
    Text,
    /// One document when all tests have ended.
    Json,
}

/// Kind of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestKind {
    /// A golden case.
    Golden,
    /// A scenario on the simulated cluster.
    Simulated,
    /// A scenario on a real control plane.
    Real,
}

impl TestKind {
    /// Returns it in a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Golden => "golden",
            Self::Simulated => "simulated",
            Self::Real => "real",
        }
    }
}

/// A finished test.
#[derive(Clone, Debug)]
pub struct FinishedTest {
    /// The scenario's file, or the folder of the golden case.
    pub file: PathBuf,
    /// Name.
    pub name: String,
    /// Kind.
    pub kind: TestKind,
    /// Duration.
    pub took: Duration,
    /// Result.
    pub result: TestResult,
}

impl FinishedTest {
    /// Returns the failure, if it failed.
    pub fn failure(&self) -> Option<&TestFailure> {
        match &self.result {
            TestResult::Failed(failure) => Some(failure),
            TestResult::Passed | TestResult::Updated | TestResult::Error(_) => None,
        }
    }

    /// Returns the error, if it could not be run.
    pub fn error(&self) -> Option<&TestFailure> {
        match &self.result {
            TestResult::Error(error) => Some(error),
            TestResult::Passed | TestResult::Updated | TestResult::Failed(_) => None,
        }
    }

    /// Returns a test that could not be run.
    pub(super) fn not_run(file: &Path, name: &str, kind: TestKind, took: Duration, error: &anyhow::Error) -> Self {
        let text = format!("{error:#}");
        let (message, details) = text.split_once('\n').unwrap_or((&text, ""));
        Self {
            file: file.to_owned(),
            name: name.to_owned(),
            kind,
            took,
            result: TestResult::Error(TestFailure {
                message: message.to_owned(),
                details: details.to_owned(),
            }),
        }
    }
}

/// Result of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestResult {
    /// Passed.
    Passed,
    /// The expected answer was written.
    Updated,
    /// The answer was not as expected.
    Failed(TestFailure),
    /// The test could not be run: a file of it is invalid, or a requirement is missing.
    Error(TestFailure),
}

/// Failure of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestFailure {
    /// Message in one line.
    pub message: String,
    /// Details: differences, and the reconcile that produced them.
    pub details: String,
}

/// Formats a path relative to the current folder, if it is below it.
pub(crate) fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(path).display().to_string()
}
