//! JUnit report: the XML that CI systems read, with one suite for each file. Its format is Jenkins' schema,
//! <https://github.com/jenkinsci/xunit-plugin/blob/master/src/main/resources/org/jenkinsci/plugins/xunit/types/model/xsd/junit-10.xsd>.

use std::fmt::Write as _;
use std::time::Duration;

use crate::test::result::{FinishedTest, shown};

/// Returns the report of tests with their total duration.
pub fn report(tests: &[FinishedTest], took: Duration) -> String {
    let failures = tests.iter().filter(|test| test.failure().is_some()).count();
    let errors = tests.iter().filter(|test| test.error().is_some()).count();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let mut line = |text: String| writeln!(xml, "{text}").expect("writing to a String cannot fail");
    line(format!(
        "<testsuites name=\"pilothouse\" tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\" time=\"{}\">",
        tests.len(),
        seconds(took)
    ));
    for test in tests {
        let file = escaped(&shown(&test.file));
        let (name, time) = (escaped(&test.name), seconds(test.took));
        let (failed, error) = (test.failure().is_some(), test.error().is_some());
        let (failed, error) = (usize::from(failed), usize::from(error));
        line(format!(
            "  <testsuite name=\"{file}\" tests=\"1\" failures=\"{failed}\" errors=\"{error}\" skipped=\"0\" time=\"{time}\">"
        ));
        let case = format!(
            "    <testcase name=\"{name}\" classname=\"{}\" time=\"{time}\"",
            test.kind.as_str()
        );
        let element = if failed > 0 { "failure" } else { "error" };
        match test.failure().or(test.error()) {
            None => line(format!("{case}/>")),
            Some(failure) => {
                line(format!("{case}>"));
                line(format!(
                    "      <{element} message=\"{}\" type=\"{}\">{}</{element}>",
                    escaped(&failure.message),
                    test.kind.as_str(),
                    escaped(&failure.details)
                ));
                line("    </testcase>".to_owned());
            }
        }
        line("  </testsuite>".to_owned());
    }
    line("</testsuites>".to_owned());
    xml
}

fn seconds(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64())
}

/// Escapes a text for an attribute or an element. XML 1.0 has no way to write most control characters.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            '\n' | '\t' => escaped.push(character),
            '\u{fffe}' | '\u{ffff}' => escaped.push(char::REPLACEMENT_CHARACTER),
            _ if character.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::result::{TestFailure, TestKind, TestResult};

    fn finished(file: &str, result: TestResult) -> FinishedTest {
        FinishedTest {
            file: file.into(),
            name: "created & <changed>".to_owned(),
            kind: TestKind::Golden,
            took: Duration::from_millis(1234),
            result,
        }
    }

    /// Checks against the schema: the members of an element, and its children.
    fn check(node: roxmltree::Node<'_, '_>) {
        let (attributes, children): (&[&str], &[&str]) = match node.tag_name().name() {
            "testsuites" => (&["name", "tests", "failures", "errors", "time"], &["testsuite"]),
            "testsuite" => (
                &["name", "tests", "failures", "errors", "skipped", "time"],
                &["testcase"],
            ),
            "testcase" => (&["name", "classname", "time"], &["failure"]),
            "failure" => (&["message", "type"], &[]),
            other => panic!("the schema has no {other}"),
        };
        for attribute in attributes {
            assert!(node.attribute(*attribute).is_some(), "{node:?} has no {attribute}");
        }
        assert_eq!(node.attributes().len(), attributes.len(), "{node:?}");
        for number in ["tests", "failures", "errors", "skipped"] {
            assert!(
                node.attribute(number).is_none_or(|text| text.parse::<u32>().is_ok()),
                "{node:?}"
            );
        }
        assert!(
            node.attribute("time").is_none_or(|text| text.parse::<f64>().is_ok()),
            "{node:?}"
        );
        for child in node.children().filter(roxmltree::Node::is_element) {
            assert!(children.contains(&child.tag_name().name()), "{child:?} within {node:?}");
            check(child);
        }
    }

    #[test]
    fn a_report_has_the_form_of_the_schema_and_the_texts_come_back() {
        let details = "--- found\n-a: \"1\" & <b>\n\u{1b}[31m\u{0}]]>";
        let failure = TestResult::Failed(TestFailure {
            message: "it's \"different\"".to_owned(),
            details: details.to_owned(),
        });
        let tests = [finished("a/one", TestResult::Passed), finished("a/two<&>", failure)];
        let xml = report(&tests, Duration::from_secs(3));
        let document = roxmltree::Document::parse(&xml).unwrap_or_else(|error| panic!("{error}\n{xml}"));
        let root = document.root_element();
        check(root);
        assert_eq!(
            (root.attribute("tests"), root.attribute("failures")),
            (Some("2"), Some("1"))
        );
        let suites: Vec<_> = root.children().filter(roxmltree::Node::is_element).collect();
        let names: Vec<_> = suites.iter().map(|suite| suite.attribute("name")).collect();
        assert_eq!(names, [Some("a/one"), Some("a/two<&>")], "one suite for each file");
        let found = document
            .descendants()
            .find(|node| node.has_tag_name("failure"))
            .unwrap();
        assert_eq!(found.attribute("message"), Some("it's \"different\""));
        let plain = details.replace(['\u{1b}', '\u{0}'], "\u{fffd}");
        assert_eq!(found.text(), Some(plain.as_str()));
        let case = document
            .descendants()
            .find(|node| node.has_tag_name("testcase"))
            .unwrap();
        assert_eq!(
            (case.attribute("name"), case.attribute("time")),
            (Some("created & <changed>"), Some("1.234"))
        );
    }
}
