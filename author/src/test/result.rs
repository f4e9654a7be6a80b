//! Results of tests.

use clap::ValueEnum;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TestOutput {
    /// A line for each test as it ends, and what is wrong with those that fail.
    Text,
    /// One document when all tests have ended.
    Json,
}

/// What a test is.
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
    /// In a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Golden => "golden",
            Self::Simulated => "simulated",
            Self::Real => "real",
        }
    }
}

/// A test that has ended.
#[derive(Clone, Debug)]
pub struct FinishedTest {
    /// The scenario's file, or the folder of the golden case.
    pub file: PathBuf,
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: TestKind,
    /// How long it took.
    pub took: Duration,
    /// What came of it.
    pub result: TestResult,
}

impl FinishedTest {
    /// Why it failed, if it did.
    pub fn failure(&self) -> Option<&TestFailure> {
        match &self.result {
            TestResult::Failed(failure) => Some(failure),
            TestResult::Passed | TestResult::Updated | TestResult::Error(_) => None,
        }
    }

    /// Why it could not be run, if it could not.
    pub fn error(&self) -> Option<&TestFailure> {
        match &self.result {
            TestResult::Error(error) => Some(error),
            TestResult::Passed | TestResult::Updated | TestResult::Failed(_) => None,
        }
    }

    /// A test that could not be run.
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

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestResult {
    /// All was as expected.
    Passed,
    /// What is expected was written.
    Updated,
    /// Something was not as expected.
    Failed(TestFailure),
    /// It could not be run: a file of it has a mistake, or what it needs is missing.
    Error(TestFailure),
}

/// Why a test failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestFailure {
    /// In one line.
    pub message: String,
    /// All of it: differences, and the reconcile that produced them.
    pub details: String,
}

/// A path as it is shown: relative to the folder that the program runs in, where it is below it.
pub(crate) fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(path).display().to_string()
}
