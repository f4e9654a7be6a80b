//! Owns the step from what users write to a proxy that can be built: what has passed is not questioned again. What the
//! CRD forbids is checked too, since the cluster's may be older than the plugin.

mod http;
mod pods;
mod tcp;

use std::fmt::Display;

use pilothouse_plugin::FieldError;

pub(crate) use self::{http::check as http, pods::Instance, tcp::check as tcp};
use crate::nginx::address::{self, Port};
use crate::nginx::http::Workers;
use crate::nginx::syntax;
use crate::resource::Common;

/// What an absent image is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Absent<'a> {
    /// This one: nobody has filled in the defaults.
    Image(&'a str),
    /// An error: it was to be filled in.
    Refused,
}

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

    fn check_range(&mut self, path: &str, number: i32, least: i32, most: i32) {
        if !(least..=most).contains(&number) {
            self.add(path, format_args!("is {number}; give a number from {least} to {most}"));
        }
    }
}

/// The workers of both kinds.
fn workers(common: &Common<'_>, problems: &mut Problems) -> Workers {
    if let Some(processes) = common.worker_processes {
        problems.check_range("spec.workerProcesses", processes, 1, 512);
    }
    problems.check_range("spec.workerConnections", common.worker_connections, 4, 1_000_000);
    Workers {
        processes: common.worker_processes,
        connections: common.worker_connections,
    }
}

/// The name servers of both kinds: addresses, and nginx's parameters.
fn resolver<'a>(common: &Common<'a>, problems: &mut Problems) -> &'a [String] {
    for (index, word) in common.resolver.iter().enumerate() {
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
    if !common.resolver.is_empty() && common.resolver.iter().all(|word| word.contains('=')) {
        problems.add("spec.resolver", "no name servers defined");
    }
    common.resolver
}

/// Whether this is a number, of at most seven digits, with one of these units behind it.
fn is_time(text: &str, units: &[&str]) -> bool {
    let end = text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    (1..=7).contains(&digits.len()) && units.contains(&unit)
}

/// A timeout, or what it is when nothing is said.
fn timeout<'a>(
    path: &str,
    given: Option<&'a str>,
    default: &'static str,
    units: &[&str],
    problems: &mut Problems,
) -> &'a str {
    let given = given.unwrap_or(default);
    if !is_time(given, units) {
        let units = units.join(" or ");
        problems.add(
            path,
            format_args!("is {given:?}; give a number of at most seven digits and {units}"),
        );
    }
    given
}
