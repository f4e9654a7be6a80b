//! Words the errors in a scenario file: position, cause, likely word and allowed words. Serde finds them by the types
//! of `form`.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use super::located::{Located, Node, Place};

/// Mistake in a scenario file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Position of the mistake.
    pub place: Place,
    /// The step that it is in, counted from one.
    pub step: Option<usize>,
    /// Description of the mistake, and the remedy.
    pub problem: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, step, problem } = self;
        write!(formatter, "{}:{}: ", place.line, place.column)?;
        if let Some(step) = step {
            write!(formatter, "step {step}: ")?;
        }
        formatter.write_str(problem)
    }
}

/// Reads a part of a document. An error has its position.
pub(super) fn read<T: DeserializeOwned>(located: &Located, step: Option<usize>) -> Result<T, Mistake> {
    read_value(&located.value()).map_err(|wrong| Mistake {
        place: wrong.place(located),
        step,
        problem: wrong.problem,
    })
}

/// Reads a value that has no places any more.
pub(super) fn read_bare<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    read_value(value).map_err(|wrong| wrong.problem)
}

/// Error and the path to it.
struct Wrong {
    problem: String,
    way: Path,
    /// The member's name that is wrong itself.
    member: Option<String>,
}

fn read_value<T: DeserializeOwned>(value: &Value) -> Result<T, Wrong> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let words = error.inner().to_string();
        let (problem, member) = explain(&words);
        Wrong {
            problem,
            way: error.path().clone(),
            member,
        }
    })
}

impl Wrong {
    fn place(&self, root: &Located) -> Place {
        let mut passed = vec![root];
        for segment in &self.way {
            let here = passed[passed.len() - 1];
            let next = match (segment, &here.node) {
                (Segment::Map { key }, Node::Map(_)) => here.member(key),
                (Segment::Seq { index }, Node::List(items)) => items.get(*index),
                _ => None,
            };
            passed.extend(next);
        }
        let name = self.member.as_ref().and_then(|member| {
            let mut entries = passed.iter().rev().filter_map(|located| located.entry(member));
            entries.next().map(|(name, _)| name.place)
        });
        name.unwrap_or(passed[passed.len() - 1].place)
    }
}

/// Rewords serde's message, and finds the blamed member by its name. serde has fixed messages.
fn explain(words: &str) -> (String, Option<String>) {
    let mut quoted = words.split('`').skip(1).step_by(2);
    if words.starts_with("unknown field `") {
        let member = quoted.next().unwrap_or_default();
        return (
            unknown("member", member, &quoted.collect::<Vec<_>>()),
            Some(member.to_owned()),
        );
    }
    if words.starts_with("unknown variant `") {
        let value = quoted.next().unwrap_or_default();
        return (unknown("value", value, &quoted.collect::<Vec<_>>()), None);
    }
    if words.starts_with("missing field `") {
        return (
            format!("the member `{}` is missing", quoted.next().unwrap_or_default()),
            None,
        );
    }
    if let Some((found, expected)) = words
        .strip_prefix("invalid type: ")
        .and_then(|rest| rest.split_once(", expected "))
    {
        return (
            format!("expected {}, found {}", kind(expected), found_kind(found)),
            None,
        );
    }
    (words.to_owned(), None)
}

/// Words the error of an unknown word, with the allowed ones.
fn unknown(what: &str, written: &str, allowed: &[&str]) -> String {
    let likely = likely(written, allowed).map(|word| format!("; did you mean `{word}`?"));
    let allowed: Vec<String> = allowed.iter().map(|word| format!("`{word}`")).collect();
    let likely = likely.unwrap_or_default();
    format!("unknown {what} `{written}`{likely} (allowed: {})", allowed.join(", "))
}

/// The allowed word that is most like the one that is written, if one is like it.
pub(super) fn likely<'word>(written: &str, allowed: &[&'word str]) -> Option<&'word str> {
    let plain = |word: &str| -> String {
        let letters = word.chars().filter(char::is_ascii_alphanumeric);
        letters.map(|letter| letter.to_ascii_lowercase()).collect()
    };
    let written = plain(written);
    let distance = |word: &&'word str| {
        let word = plain(word);
        let is_beginning = written.len() > 2 && (word.starts_with(&written) || written.starts_with(&word));
        let distance = strsim::damerau_levenshtein(&written, &word);
        let bound = (word.len().max(written.len()) / 3).max(1);
        (is_beginning || distance <= bound).then_some(distance)
    };
    let near = allowed.iter().filter_map(|word| Some((distance(word)?, *word)));
    near.min_by_key(|(distance, _)| *distance).map(|(_, word)| word)
}

/// Returns the YAML name of a type.
fn kind(rust: &str) -> String {
    match rust {
        "u64" | "usize" | "u32" => "a whole number".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a boolean" => "true or false".to_owned(),
        _ if rust.starts_with("struct ") || rust == "a map" => "a mapping with members".to_owned(),
        _ if rust.starts_with("enum ") => "one word".to_owned(),
        other => other.to_owned(),
    }
}

fn found_kind(rust: &str) -> String {
    match rust {
        "map" => "a mapping".to_owned(),
        "sequence" => "a list".to_owned(),
        "null" | "unit value" => "nothing".to_owned(),
        other => format!("the {other}").replace('`', ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likely_word_is_the_nearest_or_none_if_all_are_far() {
        let words = ["apply", "create", "expect", "expectWrites", "configuration"];
        assert_eq!(likely("aply", &words), Some("apply"));
        assert_eq!(likely("expectWrite", &words), Some("expectWrites"));
        assert_eq!(likely("expect_writes", &words), Some("expectWrites"));
        assert_eq!(likely("exepct", &words), Some("expect"));
        assert_eq!(likely("config", &words), Some("configuration"));
        assert_eq!(likely("note", &words), None);
    }

    #[test]
    fn types_are_told_in_the_words_of_yaml() {
        let said = |words: &str| explain(words).0;
        assert_eq!(
            said("invalid type: string \"x\", expected usize"),
            "expected a whole number, found the string \"x\""
        );
        assert_eq!(
            said("invalid type: integer `5`, expected a string"),
            "expected a string, found the integer 5"
        );
        assert_eq!(
            said("invalid type: map, expected a sequence"),
            "expected a list, found a mapping"
        );
        assert_eq!(said("missing field `object`"), "the member `object` is missing");
        assert_eq!(said("\"5\" is no duration"), "\"5\" is no duration");
    }
}
