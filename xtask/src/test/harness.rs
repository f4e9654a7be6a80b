//! Parses the output of Rust's test harness: the count of passed tests, and the failed ones with their messages.

/// Maximum count of lines of a failed test's output in the summary.
const MESSAGE_LINES: usize = 20;

/// Maximum count of characters of such a line.
const LINE_CHARACTERS: usize = 600;

/// Results of a part's tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TestCount {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
}

impl TestCount {
    pub(super) fn add(&mut self, other: Self) {
        let Self {
            passed,
            failed,
            skipped,
        } = other;
        self.passed += passed;
        self.failed += failed;
        self.skipped += skipped;
    }
}

/// A test that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) name: String,
    /// Beginning of its output, without the backtrace.
    pub(super) message: Vec<String>,
}

/// Output of the harnesses of several binaries so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) count: TestCount,
    pub(super) failures: Vec<Failure>,
    section: Section,
    /// Binaries that began, and those that came to an end.
    begun: usize,
    ended: usize,
    /// The first failure of the current binary: two binaries may have tests of one name.
    first: usize,
}

/// Section that the next line belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Section {
    #[default]
    Other,
    Message,
    Names,
}

impl Report {
    /// Reads the next line; says whether a person should see it, which isn't so where a binary has no tests of this part.
    pub(super) fn read(&mut self, line: &str) -> bool {
        if let Some(count) = result_of(line) {
            self.count.add(count);
            self.section = Section::Other;
            self.first = self.failures.len();
            self.ended += 1;
            return count != TestCount::default();
        }
        if line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test")) {
            self.begun += 1;
            return line != "running 0 tests";
        }
        let printed_by = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" stdout ----"));
        if let Some(name) = printed_by {
            self.failures.push(Failure {
                name: name.to_owned(),
                message: Vec::new(),
            });
            self.section = Section::Message;
        } else if line == "failures:" {
            self.section = Section::Names;
        } else {
            self.detail(line);
        }
        !line.is_empty()
    }

    fn detail(&mut self, line: &str) {
        match self.section {
            Section::Other => {}
            Section::Message if line == "stack backtrace:" => self.section = Section::Other,
            Section::Message => {
                let message = self.failures.last_mut().map(|failure| &mut failure.message);
                if let Some(message) = message.filter(|message| message.len() < MESSAGE_LINES && !line.is_empty()) {
                    message.push(line.chars().take(LINE_CHARACTERS).collect());
                }
            }
            Section::Names => {
                let Some(name) = line.strip_prefix("    ") else { return };
                let known = self.failures.iter().skip(self.first);
                if known.into_iter().all(|failure| failure.name != name) {
                    let (name, message) = (name.to_owned(), Vec::new());
                    self.failures.push(Failure { name, message });
                }
            }
        }
    }

    /// Returns `true` if every binary came to its end, so that each failure is known by name.
    pub(super) fn is_complete(&self) -> bool {
        self.begun == self.ended && self.count.failed == self.failures.len()
    }
}

/// The counts in a line like `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 5 filtered out`.
fn result_of(line: &str) -> Option<TestCount> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let number = |name: &str| {
        counts
            .split(';')
            .find_map(|part| part.trim().strip_suffix(name)?.trim().parse().ok())
    };
    Some(TestCount {
        passed: number("passed")?,
        failed: number("failed")?,
        skipped: number("ignored")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
running 0 tests
test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.00s
running 3 tests
test real::a ... ok
test real::b ... FAILED
test real::c ... FAILED

failures:

---- real::b stdout ----

thread 'real::b' panicked at tests/x.rs:1:2:
[\"Service\"]
stack backtrace:
   0: main

failures:
    real::b
    real::c

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.03s
";

    fn read(text: &str) -> Report {
        let mut report = Report::default();
        for line in text.lines() {
            report.read(line);
        }
        report
    }

    #[test]
    fn the_result_line_of_a_harness_is_read() {
        let line = "test result: ok. 12 passed; 3 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.03s";
        let count = TestCount {
            passed: 12,
            failed: 3,
            skipped: 1,
        };
        assert_eq!(result_of(line), Some(count));
        assert_eq!(result_of(&line.replace("ok", "FAILED")), Some(count));
        assert_eq!(result_of("test a::b ... ok"), None);
    }

    #[test]
    fn failed_tests_are_known_by_name_and_message() {
        let report = read(PRINTED);
        let failures: Vec<_> = report
            .failures
            .iter()
            .map(|it| (&*it.name, it.message.join("\n")))
            .collect();
        let panic = "thread 'real::b' panicked at tests/x.rs:1:2:\n[\"Service\"]".to_owned();
        assert_eq!(failures, [("real::b", panic), ("real::c", String::new())]);
        assert!(report.is_complete());
    }

    #[test]
    fn two_binaries_may_have_a_test_of_one_name() {
        let report = read(&PRINTED.repeat(2));
        assert_eq!((report.failures.len(), report.count.failed), (4, 4));
        assert!(report.is_complete());
    }

    #[test]
    fn a_binary_that_does_not_come_to_its_end_is_noticed() {
        let (begun, _) = PRINTED.split_once("test real::c").unwrap();
        assert!(!read(begun).is_complete());
    }

    #[test]
    fn what_has_no_tests_is_not_worth_reading() {
        let mut report = Report::default();
        let shown: Vec<&str> = PRINTED.lines().filter(|line| report.read(line)).collect();
        assert_eq!(shown[0], "running 3 tests");
    }
}
