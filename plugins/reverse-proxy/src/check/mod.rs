//! Owns the step from what users write to a proxy that can be built: what has passed is not questioned again. The
//! definition has the bounds of single fields; what it cannot say is checked here, and whatever nginx reads is checked
//! for nginx.

mod http;
mod pods;
mod tcp;

use std::fmt::Display;

use pilothouse_plugin::FieldError;

pub(crate) use self::pods::Instance;
use crate::nginx::address::{self, Port};
use crate::nginx::syntax;

/// What an absent image is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Absent<'a> {
    /// This one: nobody has filled in the defaults.
    Image(&'a str),
    /// An error: it was to be filled in.
    Refused,
}

/// What the pods and their nginx are made of, or what is wrong with a resource, field by field.
pub(crate) type Checked<'a, Configuration> = Result<(Instance<'a>, Configuration), Vec<FieldError>>;

/// What is wrong with a resource, field by field.
#[derive(Debug, Default)]
struct Problems(Vec<FieldError>);

impl Problems {
    fn add(&mut self, path: impl Into<String>, problem: impl Display) {
        self.push(FieldError::invalid(path, problem.to_string()));
    }

    fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    /// What was checked, if there is nothing wrong with anything.
    fn or<T>(self, checked: T) -> Result<T, Vec<FieldError>> {
        if self.0.is_empty() { Ok(checked) } else { Err(self.0) }
    }

    /// Notes what is wrong with a field, if something is.
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

/// Whether this is a number, of at most seven digits, with one of these units behind it.
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
