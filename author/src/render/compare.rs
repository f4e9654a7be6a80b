//! Compares rendered objects: with expected objects, and with another version's.

use std::collections::BTreeMap;
use std::path::Path;

use pilothouse_core::answer::desired::DesiredObject;
use pilothouse_testkit::diff::{HIDDEN, SECRET_MEMBERS, diff, hidden, is_secret};
use pilothouse_testkit::documents;
use pilothouse_testkit::isolation::Isolated;
use serde_json::{Value, json};

use super::Rendered;
use super::output::{desired, uncovered};

/// Objects by their title in messages: kind, namespace and name. Several primaries may want one object.
type Objects = BTreeMap<String, Vec<Value>>;

/// Returns the objects that are desired and not expected, or expected and not desired. The file may be output of
/// `render`: an object occurs once for each contributing primary, and Secrets are comments with hidden values.
pub(super) fn with_file(
    plugin: &Isolated,
    expected: &Path,
    namespace: &str,
    rendered: &[Rendered],
) -> anyhow::Result<Vec<String>> {
    let mut known = Objects::new();
    for (file, text) in documents::texts(&[expected])? {
        for mut document in documents::parse_repeated(&uncovered(&text), &file)? {
            plugin.place(&mut document.object, namespace);
            let title = title(&document.object).unwrap_or_default();
            known.entry(title).or_default().push(document.object);
        }
    }
    Ok(differences(known, objects(rendered, |_| "")))
}

/// Returns the differences between two versions' results for the same objects.
pub(super) fn with_other(before: &[Rendered], after: &[Rendered]) -> Vec<String> {
    let ownership = |ownership: &str| match ownership {
        "Contributed" => " (contributed)",
        _ => "",
    };
    let mut found = differences(objects(before, ownership), objects(after, ownership));
    let reports = before.iter().zip(after).filter_map(|(before, after)| {
        let difference = diff(&report(before), &report(after))?;
        Some(format!("{}:\n{difference}", before.title()))
    });
    found.extend(reports);
    found
}

/// Returns all desired objects; `suffix` makes a part of the title from an object's ownership.
fn objects(rendered: &[Rendered], suffix: impl Fn(&str) -> &'static str) -> Objects {
    let mut objects = Objects::new();
    let runs = rendered.iter().filter_map(|one| one.run.as_ref().ok());
    for (ownership, object) in runs.flat_map(|run| desired(&run.reconciled.answer)) {
        let DesiredObject { body, .. } = object;
        let body = Value::Object(body.clone());
        if let Some(title) = title(&body) {
            let title = format!("{title}{}", suffix(ownership));
            objects.entry(title).or_default().push(body);
        }
    }
    objects
}

/// Returns the report of an object, without its desired objects, and without measurements.
fn report(rendered: &Rendered) -> Value {
    match &rendered.run {
        Ok(run) => {
            let mut value = run.reconciled.to_value();
            if let Some(members) = value.as_object_mut() {
                members.remove("objects");
                members.remove("contributed");
            }
            value["finalizer"] = json!(run.finalizer.map(|finalizer| format!("{finalizer:?}")));
            value["warnings"] = json!(run.warnings);
            value
        }
        Err(failed) => {
            json!({"failure": {"reason": failed.failure.reason.to_string(), "message": failed.failure.message}})
        }
    }
}

/// Returns the differences of two sets of objects. If several objects have one title, those that are the same on both
/// sides are set aside, and the rest is compared in its order.
fn differences(expected: Objects, mut found: Objects) -> Vec<String> {
    let mut differences = Vec::new();
    for (title, mut objects) in expected {
        let mut desired = found.remove(&title).unwrap_or_default();
        objects.retain(|object| {
            let same = desired.iter().position(|desired| difference(object, desired).is_none());
            same.inspect(|index| drop(desired.remove(*index))).is_none()
        });
        let mut desired = desired.into_iter();
        for object in objects {
            differences.push(match desired.next() {
                Some(desired) => {
                    let shown = difference(&object, &desired).unwrap_or_default();
                    format!("{title}:\n{shown}")
                }
                None => format!("- {title}: expected, and not desired\n"),
            });
        }
        differences.extend(desired.map(|_| new(&title)));
    }
    for (title, objects) in found {
        differences.extend(objects.iter().map(|_| new(&title)));
    }
    differences
}

fn new(title: &str) -> String {
    format!("+ {title}: desired, and not expected\n")
}

/// Returns the difference of two objects. Of a Secret with hidden values, the names of the values are compared.
fn difference(expected: &Value, desired: &Value) -> Option<String> {
    let mut values = SECRET_MEMBERS
        .into_iter()
        .filter_map(|member| expected[member].as_object());
    if is_secret(expected) && values.any(|values| values.values().any(|value| value == HIDDEN)) {
        return diff(expected, &hidden(desired));
    }
    diff(expected, desired)
}

fn title(object: &Value) -> Option<String> {
    let (kind, name) = documents::identity(object).ok()?;
    let group = if kind.group.is_empty() {
        String::new()
    } else {
        format!(".{}", kind.group)
    };
    Some(format!("{}{group} {name}", kind.kind))
}

#[cfg(test)]
mod tests {
    use super::super::output::{tests::secret, yaml};
    use super::*;

    #[test]
    fn a_secret_is_compared_with_its_comment_and_with_itself() {
        let rendered = [secret()];
        let expected = |shows_secrets: bool, from: &str, to: &str| {
            let text = yaml(&rendered, shows_secrets).replace(from, to);
            let documents = documents::parse_repeated(&uncovered(text.as_bytes()), Path::new("f")).unwrap();
            let mut known = Objects::new();
            for document in documents {
                let title = title(&document.object).unwrap();
                known.entry(title).or_default().push(document.object);
            }
            assert_eq!(known.len(), 1, "{text}");
            differences(known, objects(&rendered, |_| ""))
        };
        assert!(expected(false, "", "").is_empty());
        assert!(expected(true, "", "").is_empty());
        for (shows_secrets, from, to) in [
            (false, "password", "token"),
            (true, "password", "token"),
            (true, "aHVzaA", "b3RoZXI"),
        ] {
            let found = expected(shows_secrets, from, to);
            assert_eq!(found.len(), 1, "{from}");
            assert!(found[0].starts_with("Secret n/s:\n"), "{found:?}");
            assert!(!found[0].contains("aHVz") && !found[0].contains("b3Ro"), "{found:?}");
        }
    }
}
