//! Validates a resource into a proxy that can be built, which later code does not check again. The definition has the
//! bounds of single fields; other rules are checked here, and all values that nginx reads are checked for nginx.

mod http;
mod pods;
mod tcp;

use std::fmt::Display;

use pilothouse_plugin::FieldError;

pub(crate) use self::pods::Instance;
use crate::nginx::address::{self, Port};
use crate::nginx::syntax;

/// Treatment of an absent image.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Absent<'a> {
    /// Replaced by this image: the defaulter has not run.
    Image(&'a str),
    /// An error: the defaulter should have set it.
    Refused,
}

/// Instance and configuration of a proxy, or the problems of a resource, field by field.
pub(crate) type Checked<'a, Configuration> = Result<(Instance<'a>, Configuration), Vec<FieldError>>;

/// Problems of a resource, field by field.
#[derive(Debug, Default)]
struct Problems(Vec<FieldError>);

impl Problems {
    fn add(&mut self, path: impl Into<String>, problem: impl Display) {
        self.push(FieldError::invalid(path, problem.to_string()));
    }

    fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    /// Returns the checked value if there are no problems.
    fn or<T>(self, checked: T) -> Result<T, Vec<FieldError>> {
        if self.0.is_empty() { Ok(checked) } else { Err(self.0) }
    }

    /// Records the problem of a field, if it has one.
    fn check(&mut self, path: &str, result: Result<(), impl Display>) {
        if let Err(problem) = result {
            self.add(path, problem);
        }
    }
}

/// Checks the name servers of both kinds: addresses, and nginx's parameters.
fn check_resolver(words: &[String], problems: &mut Problems) {
    for (index, word) in words.iter().enumerate() {
        let path = format!("spec.resolver[{index}]");
        if let Err(problem) = syntax::check_word(word, syntax::Value::Http) {
            problems.add(path, problem);
        } else if let Some((name, value)) = word.split_once('=') {
            let valid = match name {
                "valid" => is_time(value, &["", "s", "m", "h", "d"]),
                "ipv6" => ["on", "off"].contains(&value),
                _ => false,
            };
            if !valid {
                problems.add(path, format_args!("invalid parameter: {word}"));
            }
        } else {
            problems.check(&path, address::check("resolver", word, Port::Optional));
        }
    }
}

/// Reports whether this is a number, of at most seven digits, followed by one of these units.
fn is_time(text: &str, units: &[&str]) -> bool {
    let end = text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    (1..=7).contains(&digits.len()) && units.contains(&unit)
}

fn check_timeout(path: &str, timeout: &str, units: &[&str], problems: &mut Problems) {
    if !is_time(timeout, units) {
        let units = units.join(" or ");
        problems.add(
            path,
            format_args!("is {timeout:?}; give a number of at most seven digits and {units}"),
        );
    }
}
