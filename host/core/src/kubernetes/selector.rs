//! Parses label selectors (`app=web,tier in (a,b),!legacy`) and matches them against labels.
//!
//! Source: <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors>.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

/// The longest accepted selector, in bytes.
const MAX_SELECTOR_BYTES: usize = 4096;

/// A parsed label selector; an empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
}

/// The text is not a label selector.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{selector:?} is not a label selector: at character {position}, {problem}; write it like app=web,tier in (a,b),!legacy"
)]
pub struct SelectorError {
    selector: String,
    /// The position of the invalid token, in characters; the first one is 1.
    position: usize,
    problem: String,
}

impl Selector {
    /// Parses a selector.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let fail = |Problem { at, text: problem }: Problem<'_>| {
            // The word is a part of the text.
            let before = at.as_ptr() as usize - text.as_ptr() as usize;
            SelectorError {
                selector: text.to_owned(),
                position: text[..before].chars().count() + 1,
                problem,
            }
        };
        if text.len() > MAX_SELECTOR_BYTES {
            return Err(SelectorError {
                selector: text.chars().take(40).collect(),
                position: MAX_SELECTOR_BYTES + 1,
                problem: format!("it has {} bytes, the limit is {MAX_SELECTOR_BYTES}", text.len()),
            });
        }
        let mut requirements = Vec::new();
        if text.trim().is_empty() {
            return Ok(Self { requirements });
        }
        for part in split_outside_parentheses(text) {
            requirements.push(parse_requirement(part.trim()).map_err(fail)?);
        }
        Ok(Self { requirements })
    }

    /// The conjunction of two selectors.
    #[must_use]
    pub fn and(mut self, other: Option<&Self>) -> Self {
        for requirement in other.map_or(&[][..], |other| &other.requirements) {
            if !self.requirements.contains(requirement) {
                self.requirements.push(requirement.clone());
            }
        }
        self
    }

    /// Reports whether there is no requirement.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The keys of the labels in the requirements.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.requirements.iter().map(|requirement| requirement.key.as_str())
    }

    /// The requirements that a label has one of some values, as key and values.
    pub fn equalities(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.requirements
            .iter()
            .filter_map(|requirement| match &requirement.test {
                Test::In(values) => Some((requirement.key.as_str(), values.as_slice())),
                Test::Exists | Test::Absent | Test::NotIn(_) => None,
            })
    }

    /// The requirements as `matchExpressions` of a LabelSelector.
    pub fn expressions(&self) -> impl Iterator<Item = Value> {
        self.requirements.iter().map(|Requirement { key, test }| match test {
            Test::Exists => json!({"key": key, "operator": "Exists"}),
            Test::Absent => json!({"key": key, "operator": "DoesNotExist"}),
            Test::In(values) => json!({"key": key, "operator": "In", "values": values}),
            Test::NotIn(values) => json!({"key": key, "operator": "NotIn", "values": values}),
        })
    }

    /// Reports whether labels, looked up by key, satisfy every requirement.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = label(&requirement.key);
            match &requirement.test {
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(values) => value.is_some_and(|value| values.iter().any(|it| it == value)),
                // As Kubernetes has it: an absent label is "not in" whatever is listed.
                Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|it| it != value)),
            }
        })
    }
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (position, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..position]);
                start = position + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// An invalid token of a selector.
struct Problem<'a> {
    at: &'a str,
    text: String,
}

fn parse_requirement(text: &str) -> Result<Requirement, Problem<'_>> {
    if let Some(key) = text.strip_prefix('!') {
        return Ok(Requirement {
            key: key_of(key)?,
            test: Test::Absent,
        });
    }
    for (operator, negated) in [("!=", true), ("==", false), ("=", false)] {
        if let Some((key, value)) = text.split_once(operator) {
            let values = vec![value_of(value)?];
            let test = if negated { Test::NotIn(values) } else { Test::In(values) };
            return Ok(Requirement {
                key: key_of(key)?,
                test,
            });
        }
    }
    let mut words = text.splitn(2, char::is_whitespace);
    let key = key_of(words.next().unwrap_or_default())?;
    let Some(rest) = words.next() else {
        return Ok(Requirement {
            key,
            test: Test::Exists,
        });
    };
    let rest = rest.trim();
    let (negated, list) = match (rest.strip_prefix("notin"), rest.strip_prefix("in")) {
        (Some(list), _) => (true, list),
        (None, Some(list)) => (false, list),
        (None, None) => {
            return Err(Problem {
                at: rest,
                text: format!("after {key:?} one of =, !=, in, notin is expected"),
            });
        }
    };
    let list = list.trim();
    let inner = list
        .strip_prefix('(')
        .and_then(|list| list.strip_suffix(')'))
        .ok_or_else(|| Problem {
            at: list,
            text: format!("the values for {key:?} stand in parentheses"),
        })?;
    let values = inner.split(',').map(value_of).collect::<Result<Vec<_>, _>>()?;
    Ok(Requirement {
        key,
        test: if negated { Test::NotIn(values) } else { Test::In(values) },
    })
}

fn is_label_text(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && text.bytes().next().is_none_or(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().last().is_none_or(|byte| byte.is_ascii_alphanumeric())
}

fn key_of(text: &str) -> Result<String, Problem<'_>> {
    let key = text.trim();
    let name = key.rsplit_once('/').map_or(key, |(_, name)| name);
    if name.is_empty() || name.len() > 63 || !is_label_text(name) || key.len() > 317 {
        return Err(Problem {
            at: key,
            text: format!("{key:?} is not a label's key"),
        });
    }
    Ok(key.to_owned())
}

fn value_of(text: &str) -> Result<String, Problem<'_>> {
    let value = text.trim();
    if value.len() > 63 || !is_label_text(value) {
        return Err(Problem {
            at: value,
            text: format!("{value:?} is not a label's value"),
        });
    }
    Ok(value.to_owned())
}

impl fmt::Display for Selector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Requirement { key, test }) in self.requirements.iter().enumerate() {
            if index > 0 {
                formatter.write_str(",")?;
            }
            match test {
                Test::Exists => formatter.write_str(key)?,
                Test::Absent => write!(formatter, "!{key}")?,
                Test::In(values) if values.len() == 1 => write!(formatter, "{key}={}", values[0])?,
                Test::NotIn(values) if values.len() == 1 => write!(formatter, "{key}!={}", values[0])?,
                Test::In(values) => write!(formatter, "{key} in ({})", values.join(","))?,
                Test::NotIn(values) => write!(formatter, "{key} notin ({})", values.join(","))?,
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&Cow::<'de, str>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl Serialize for Selector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Selector {
    fn schema_name() -> Cow<'static, str> {
        "Selector".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "description": "A Kubernetes label selector: app=web,tier in (a,b),!legacy."})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels: std::collections::BTreeMap<_, _> = labels.iter().copied().collect();
        Selector::parse(selector)
            .unwrap()
            .matches(|key| labels.get(key).copied())
    }

    #[test]
    fn each_operator_matches_as_in_kubernetes() {
        let labels = [("app", "web"), ("example.com/tier", "a")];
        for yes in [
            "",
            "app",
            "app=web",
            "app == web",
            "app in (web, db)",
            "app!=db",
            "app notin (db)",
            "!other",
            "other!=x",
        ] {
            assert!(matches(yes, &labels), "{yes}");
        }
        for no in [
            "other",
            "app=db",
            "app in (db)",
            "app notin (web)",
            "!app",
            "example.com/tier=b",
        ] {
            assert!(!matches(no, &labels), "{no}");
        }
        assert!(matches("app=web,example.com/tier in (a,b),!legacy", &labels));
    }

    #[test]
    fn selectors_survive_printing() {
        for text in ["a", "!a", "a=b", "a!=b", "a in (b,c)", "a notin (b,c)", "x.y/a=b,c"] {
            assert_eq!(Selector::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_not_a_selector_is_refused_with_an_example() {
        for text in ["=", "a=b=c", "a in b", "a in (b", "a b", "a=ü", ",", "a=-b", "!"] {
            let error = Selector::parse(text).unwrap_err().to_string();
            assert!(error.contains("app=web"), "{text}: {error}");
        }
    }

    #[test]
    fn the_error_names_the_position_of_the_word_that_cannot_be_read() {
        for (text, position, word) in [
            ("a=b=c", 3, "\"b=c\""),
            ("app=web, tier in (a,-b)", 21, "\"-b\""),
            ("app=web,tier in a", 17, "parentheses"),
            ("ü=1,b", 1, "\"ü\""),
            ("a=ü,b c", 3, "\"ü\""),
            ("a=b,b c", 7, "after \"b\""),
            ("a,,b", 3, "\"\""),
            ("a,", 3, "\"\""),
            ("app in (web", 8, "parentheses"),
        ] {
            let error = Selector::parse(text).unwrap_err().to_string();
            let expected = format!("{text:?} is not a label selector: at character {position}, ");
            assert!(error.starts_with(&expected) && error.contains(word), "{error}");
        }
    }
}
