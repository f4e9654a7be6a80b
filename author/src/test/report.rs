//! Prints the results of tests: a line for each as it ends, or one document in the end.

use std::fmt::Write as _;
use std::time::Duration;

use pilothouse_host::ask::coloured;
use serde_json::{Value, json};

use super::golden::DIFFERENCE;
use crate::test::result::{FinishedTest, TestOutput, TestResult, shown};

/// Colours, by the escapes of ECMA-48.
const GREEN: u8 = 32;
const YELLOW: u8 = 33;
const RED: u8 = 31;

/// Prints results of tests.
pub(super) struct Reporter {
    output: TestOutput,
    coloured: bool,
    tests: Vec<FinishedTest>,
}

impl Reporter {
    pub(super) fn new(output: TestOutput) -> Self {
        Self {
            output,
            coloured: coloured(),
            tests: Vec::new(),
        }
    }

    /// Reports a finished test.
    pub(super) fn ended(&mut self, test: FinishedTest) {
        if self.output == TestOutput::Text {
            print!("{}", text(&test, self.coloured));
        }
        self.tests.push(test);
    }

    /// Reports the end of all tests.
    pub(super) fn finish(self, took: Duration) -> Vec<FinishedTest> {
        match self.output {
            TestOutput::Text => println!("{}", summary(&self.tests, took)),
            TestOutput::Json => println!("{:#}", document(&self.tests, took)),
        }
        self.tests
    }
}

fn painted(text: &str, colour: u8, coloured: bool) -> String {
    if coloured {
        format!("\u{1b}[{colour}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

fn text(test: &FinishedTest, coloured: bool) -> String {
    let FinishedTest {
        file,
        name: _,
        kind,
        took,
        result,
    } = test;
    let (verdict, colour) = match result {
        TestResult::Passed => ("ok", GREEN),
        TestResult::Updated => ("updated", YELLOW),
        TestResult::Failed(_) => ("FAILED", RED),
        TestResult::Error(_) => ("ERROR", RED),
    };
    let verdict = painted(&format!("{verdict:<7}"), colour, coloured);
    let mut text = format!(
        "{verdict} {:<9} {} ({:.2} s)\n",
        kind.as_str(),
        shown(file),
        took.as_secs_f64()
    );
    if let TestResult::Failed(failure) | TestResult::Error(failure) = result {
        let _ = writeln!(text, "  {}", failure.message);
        for line in paint(&failure.details, coloured) {
            let _ = writeln!(text, "    {line}");
        }
    }
    text
}

/// Returns the lines of a text, with those of differences in colour.
fn paint(details: &str, coloured: bool) -> Vec<String> {
    let mut is_drawn = false;
    let mut lines = Vec::new();
    for line in details.trim_end().lines() {
        let bare = line.trim_start();
        if bare == DIFFERENCE[0] {
            is_drawn = true;
        } else if bare.is_empty() || !(bare.starts_with(['+', '-', '@']) || line.starts_with(' ')) {
            is_drawn = false;
        }
        let colour = match bare.chars().next() {
            Some('+') if is_drawn => Some(GREEN),
            Some('-') if is_drawn => Some(RED),
            _ => None,
        };
        lines.push(colour.map_or_else(|| line.to_owned(), |colour| painted(line, colour, coloured)));
    }
    lines
}

fn summary(tests: &[FinishedTest], took: Duration) -> String {
    let count = |is_meant: fn(&TestResult) -> bool| tests.iter().filter(|test| is_meant(&test.result)).count();
    let passed = count(|result| *result == TestResult::Passed);
    let updated = count(|result| *result == TestResult::Updated);
    let errors = tests.iter().filter(|test| test.error().is_some()).count();
    let failed = tests.len() - passed - updated - errors;
    let errors = match errors {
        0 => String::new(),
        1 => ", 1 could not be run".to_owned(),
        errors => format!(", {errors} could not be run"),
    };
    let updated = if updated > 0 {
        format!(", {updated} updated")
    } else {
        String::new()
    };
    format!(
        "{passed} passed, {failed} failed{errors}{updated} in {:.2} s",
        took.as_secs_f64()
    )
}

fn document(tests: &[FinishedTest], took: Duration) -> Value {
    let failed = tests.iter().filter(|test| test.failure().is_some()).count();
    let errors = tests.iter().filter(|test| test.error().is_some()).count();
    let tests: Vec<Value> = tests
        .iter()
        .map(|test| {
            let FinishedTest {
                file,
                name,
                kind,
                took,
                result,
            } = test;
            let mut document = json!({
                "file": shown(file),
                "name": name,
                "kind": kind.as_str(),
                "seconds": took.as_secs_f64(),
                "result": match result {
                    TestResult::Passed => "passed",
                    TestResult::Updated => "updated",
                    TestResult::Failed(_) => "failed",
                    TestResult::Error(_) => "error",
                },
            });
            if let TestResult::Failed(failure) | TestResult::Error(failure) = result {
                document["message"] = failure.message.as_str().into();
                document["details"] = failure.details.as_str().into();
            }
            document
        })
        .collect();
    json!({
        "passed": tests.len() - failed - errors,
        "failed": failed,
        "errors": errors,
        "seconds": took.as_secs_f64(),
        "tests": tests,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::result::{TestFailure, TestKind};

    fn finished(result: TestResult) -> FinishedTest {
        FinishedTest {
            file: "scenarios/created.yaml".into(),
            name: "created".to_owned(),
            kind: TestKind::Simulated,
            took: Duration::from_millis(1230),
            result,
        }
    }

    fn failed(details: &str) -> TestResult {
        TestResult::Failed(TestFailure {
            message: "it differs".to_owned(),
            details: details.to_owned(),
        })
    }

    #[test]
    fn a_test_is_a_line_and_a_failure_its_differences() {
        assert_eq!(
            text(&finished(TestResult::Passed), false),
            "ok      simulated scenarios/created.yaml (1.23 s)\n"
        );
        let shown = text(
            &finished(failed(&format!(
                "{}\n- a: 1\n+ a: 2\n\nIt read:\n  - x\n",
                DIFFERENCE.join("\n")
            ))),
            true,
        );
        assert!(
            shown.contains("\u{1b}[31m- a: 1\u{1b}[0m") && shown.contains("\u{1b}[32m+ a: 2\u{1b}[0m"),
            "{shown}"
        );
        assert!(
            shown.contains("      - x\n"),
            "what is no difference has no colour: {shown}"
        );
        assert!(!text(&finished(failed(&format!("{}\n- a: 1\n", DIFFERENCE[0]))), false).contains('\u{1b}'));
    }

    #[test]
    fn the_document_counts_and_has_each_failure_whole() {
        let tests = [finished(TestResult::Passed), finished(failed("all of it"))];
        let document = document(&tests, Duration::from_secs(2));
        assert_eq!((&document["passed"], &document["failed"]), (&json!(1), &json!(1)));
        assert_eq!(document["tests"][1]["details"], "all of it");
        assert_eq!(document["tests"][0].get("message"), None);
        assert_eq!(summary(&tests, Duration::from_secs(2)), "1 passed, 1 failed in 2.00 s");
    }
}
