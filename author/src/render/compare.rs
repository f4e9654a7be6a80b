//! Owns comparing what is rendered: with expected objects, and with what another version of the plugin renders.

use std::collections::BTreeMap;
use std::path::Path;

use pilothouse_testkit::diff::diff;
use pilothouse_testkit::documents;
use pilothouse_testkit::isolation::Isolated;
use serde_json::{Value, json};

use super::Rendered;
use super::output::desired;

/// Objects by what they are called in messages: a kind, and where each one is.
type Objects = BTreeMap<String, Value>;

/// What is desired and not expected, or expected and not desired.
pub(super) fn with_file(
    plugin: &Isolated,
    expected: &Path,
    namespace: &str,
    rendered: &[Rendered],
) -> anyhow::Result<Vec<String>> {
    let mut known = Objects::new();
    for mut document in documents::read(&[expected])? {
        plugin.place(&mut document.object, namespace);
        let title = title(&document.object).unwrap_or_default();
        known.insert(title, document.object);
    }
    let found = rendered.iter().flat_map(objects).collect();
    Ok(differences(&known, &found))
}

/// What one version makes of the same objects, and the other.
pub(super) fn with_other(before: &[Rendered], after: &[Rendered]) -> Vec<String> {
    let all = |rendered: &[Rendered]| rendered.iter().flat_map(objects).collect::<Objects>();
    let mut found = differences(&all(before), &all(after));
    let reports = before.iter().zip(after).filter_map(|(before, after)| {
        let difference = diff(&report(before), &report(after))?;
        Some(format!("{}:\n{difference}", before.title()))
    });
    found.extend(reports);
    found
}

fn objects(rendered: &Rendered) -> Vec<(String, Value)> {
    let Ok(run) = &rendered.run else { return Vec::new() };
    let object = |(ownership, desired): (&str, &pilothouse_core::answer::DesiredObject)| {
        let body = Value::Object(desired.body.clone());
        let contributed = if ownership == "Contributed" {
            " (contributed)"
        } else {
            ""
        };
        Some((format!("{}{contributed}", title(&body)?), body))
    };
    desired(&run.reconciled.answer).filter_map(object).collect()
}

/// What is said of an object, without the objects that it wants, and without what is measured.
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

fn differences(expected: &Objects, found: &Objects) -> Vec<String> {
    let mut differences = Vec::new();
    for (title, object) in expected {
        match found.get(title) {
            None => differences.push(format!("- {title}: expected, and not desired\n")),
            Some(desired) => differences.extend(diff(object, desired).map(|shown| format!("{title}:\n{shown}"))),
        }
    }
    let new = found.keys().filter(|title| !expected.contains_key(*title));
    differences.extend(new.map(|title| format!("+ {title}: desired, and not expected\n")));
    differences
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
