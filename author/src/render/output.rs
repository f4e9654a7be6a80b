//! Formats rendered objects: as YAML for kubectl, as a summary, and as JSON.
//!
//! The JSON is `{"objects": [...]}` with one item for each rendered object:
//!
//! - `kind`, `apiVersion`, `namespace` (absent without one), `name`
//! - `failure`: null, or `reason`, `blame`, `message`
//! - `reconciledOnlyWith`: null, or the condition of the controller's filter that does not select the object
//! - `finalizer`: null, or `Done` or `Pending` for an object that is being deleted
//! - `desired`: a list of `ownership` (`Owned`, `Contributed`), `lifecycle` (`createOnly`, `keep`, `recreate`, `replace`, `propagation`, `adopt`,
//!   `yield`, `after`, `once`), `object`
//! - `status`, `conditions`, `events`, `requeueAfterMilliseconds`, `warnings` of the validator
//! - `reads`: a list of texts; `log`: a list of `level`, `message`, `fields`
//! - `usage`: `microseconds`, `memoryBytes`, `reads`, `readBytes`

use std::fmt::Write as _;
use std::time::Duration;

use pilothouse_core::Failure;
use pilothouse_core::answer::CheckedAnswer;
use pilothouse_core::answer::desired::DesiredObject;
use pilothouse_core::plugin::contract::{Condition, Event, Lifecycle, Propagation};
use pilothouse_core::text::printable::printable;
use pilothouse_host::output::counted;
use pilothouse_testkit::diff::{hidden, is_secret, yaml as to_yaml};
use pilothouse_testkit::isolation::{Failed, FinalizerAnswer, LogLine, Reconciled, Run};
use serde_json::{Map, Value, json};

use super::Rendered;

/// The line above a Secret that is written as a comment.
const COVERED: &str = "# Its values are hidden; --show-secrets prints them.";

/// Formats documents for kubectl; the rest in comments.
pub(super) fn yaml(rendered: &[Rendered], show_secrets: bool) -> String {
    let mut text = String::new();
    for one in rendered {
        let answer = one.run.as_ref().ok().map(|run| &run.reconciled.answer);
        for (ownership, desired) in answer.into_iter().flat_map(desired) {
            let body = Value::Object(desired.body.clone());
            let _ = writeln!(text, "---\n# {}: {}", desired.title(), in_words(ownership, desired));
            if is_secret(&body) && !show_secrets {
                text.push_str(COVERED);
                text.push('\n');
                text.push_str(&commented(&to_yaml(&hidden(&body))));
            } else {
                text.push_str(&to_yaml(&body));
            }
        }
        text.push_str("---\n");
        text.push_str(&commented(&summary(one, false)));
    }
    text
}

/// Returns output of [`yaml`] with Secrets as objects rather than comments.
pub(super) fn uncovered(text: &[u8]) -> Vec<u8> {
    let mut is_secret = false;
    let line = |line: &[u8]| {
        let comment = line.strip_prefix(b"# ").filter(|_| is_secret).map(<[u8]>::to_vec);
        is_secret = line.trim_ascii_end() == COVERED.as_bytes() || comment.is_some();
        comment.unwrap_or_else(|| line.to_vec())
    };
    text.split_inclusive(|byte| *byte == b'\n').flat_map(line).collect()
}

/// Formats a summary without the objects themselves.
pub(super) fn text(rendered: &[Rendered]) -> String {
    rendered
        .iter()
        .map(|one| summary(one, true))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Formats JSON.
pub(super) fn json(rendered: &[Rendered], show_secrets: bool) -> String {
    let objects: Vec<Value> = rendered.iter().map(|one| document(one, show_secrets)).collect();
    let whole = json!({"objects": objects});
    format!(
        "{}\n",
        serde_json::to_string_pretty(&whole).unwrap_or_else(|_| whole.to_string())
    )
}

pub(super) fn desired(answer: &CheckedAnswer) -> impl Iterator<Item = (&'static str, &DesiredObject)> {
    let owned = answer.owned.iter().map(|object| ("Owned", object));
    owned.chain(answer.contributed.iter().map(|object| ("Contributed", object)))
}

fn in_words(ownership: &str, desired: &DesiredObject) -> String {
    let Lifecycle {
        create_only,
        keep,
        recreate,
        replace,
        propagation,
        adopt,
    } = desired.lifecycle;
    let mut words = vec![ownership.to_lowercase()];
    for (is_so, text) in [
        (create_only, "created once and never changed"),
        (keep, "kept when no longer desired"),
        (recreate, "made again where a changed field is immutable"),
        (replace, "made again where something else is desired"),
        (adopt, "adopted where it exists and belongs to nobody"),
    ] {
        if is_so {
            words.push(text.to_owned());
        }
    }
    words.extend(propagation.map(|policy| format!("deleted with propagation {}", policy.as_str())));
    words.extend(
        desired
            .yields
            .iter()
            .map(|path| format!("{path} is left to who else sets it")),
    );
    words.extend(desired.after.iter().map(|key| format!("after {key}")));
    words.extend(desired.once.iter().map(|token| format!("made once for {token:?}")));
    words.join(", ")
}

fn commented(text: &str) -> String {
    let lines = text.lines().map(printable);
    lines
        .map(|line| {
            if line.is_empty() {
                "#\n".to_owned()
            } else {
                format!("# {line}\n")
            }
        })
        .collect()
}

/// Formats everything about an object except its desired objects.
fn summary(one: &Rendered, with_titles: bool) -> String {
    let mut text = format!("{}\n", one.title());
    match &one.run {
        Ok(run) => answered(run, with_titles, &mut text),
        Err(failed) => {
            let Failed {
                failure,
                log,
                reads: _,
                is_impure: _,
            } = &**failed;
            let Failure {
                blame, reason, message, ..
            } = failure;
            let _ = writeln!(text, "failure: {reason}, the {blame}'s fault: {}", printable(message));
            logged(log, &mut text);
        }
    }
    text
}

fn answered(run: &Run, with_titles: bool, text: &mut String) {
    let Run {
        reconciled,
        finalizer,
        defaulted: _,
        warnings,
        unselected,
    } = run;
    if let Some(filter) = unselected {
        let _ = writeln!(
            text,
            "not reconciled: the plugin reconciles only objects with {}",
            printable(filter)
        );
        return;
    }
    let Reconciled {
        answer,
        reads,
        log,
        usage,
    } = reconciled;
    match finalizer {
        Some(FinalizerAnswer::Done) => {
            text.push_str("finalizer: done; the object goes once all that it owned is gone\n");
        }
        Some(FinalizerAnswer::Pending) => text.push_str("finalizer: pending\n"),
        None => {}
    }
    if with_titles {
        let titles = desired(answer);
        list(
            "desired",
            titles.map(|(owned, it)| format!("{} ({})", it.title(), in_words(owned, it))),
            text,
        );
    }
    if let Some(status) = &answer.status {
        text.push_str("status:\n");
        for line in to_yaml(&Value::Object(status.clone())).lines() {
            let _ = writeln!(text, "  {}", printable(line));
        }
    }
    let condition =
        |Condition {
             type_,
             status,
             reason,
             message,
         }: &Condition| { printable(&format!("{type_}={} {reason}: {message}", status.as_str())) };
    list("conditions", answer.conditions.iter().map(condition), text);
    let event = |Event { type_, reason, message }: &Event| printable(&format!("{type_:?} {reason}: {message}"));
    list("events", answer.events.iter().map(event), text);
    list("warnings", warnings.iter().map(|it| printable(it)), text);
    if let Some(wait) = answer.requeue_after {
        let _ = writeln!(text, "requeue: after {:?}", Duration::from_millis(wait));
    }
    list("reads", reads.in_words(), text);
    logged(log, text);
    let (kib, time) = (usage.memory_bytes / 1024, usage.time);
    let reads = counted(usage.reads, "read", "reads");
    let _ = writeln!(text, "usage: {time:.1?}, {kib} KiB of memory, {reads}");
}

fn logged(log: &[LogLine], text: &mut String) {
    list("log", log.iter().map(|line| printable(&line.to_string())), text);
}

fn list(title: &str, lines: impl Iterator<Item = String>, text: &mut String) {
    let mut lines = lines.peekable();
    if lines.peek().is_some() {
        let _ = writeln!(text, "{title}:");
    }
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
}

fn document(one: &Rendered, show_secrets: bool) -> Value {
    let Rendered { kind, name, run } = one;
    let mut document = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "name": &*name.name});
    if let Some(namespace) = &name.namespace {
        document["namespace"] = json!(&**namespace);
    }
    let members = match run {
        Ok(run) => answer_document(run, show_secrets),
        Err(failed) => failure_document(failed),
    };
    if let (Value::Object(document), Value::Object(members)) = (&mut document, members) {
        document.extend(members);
    }
    document
}

fn answer_document(run: &Run, show_secrets: bool) -> Value {
    let Run {
        reconciled,
        finalizer,
        defaulted: _,
        warnings,
        unselected,
    } = run;
    let Reconciled {
        answer,
        reads,
        log,
        usage,
    } = reconciled;
    let object = |(ownership, desired): (&str, &DesiredObject)| {
        let Lifecycle {
            create_only,
            keep,
            recreate,
            replace,
            propagation,
            adopt,
        } = desired.lifecycle;
        let body = Value::Object(desired.body.clone());
        let after: Vec<String> = desired.after.iter().map(ToString::to_string).collect();
        json!({
            "ownership": ownership,
            "lifecycle": {
                "createOnly": create_only, "keep": keep, "recreate": recreate, "replace": replace,
                "propagation": propagation.map(Propagation::as_str), "adopt": if adopt { "IfUnowned" } else { "Never" },
                "yield": desired.yields, "after": after, "once": desired.once,
            },
            "object": if show_secrets { body } else { hidden(&body) },
        })
    };
    let desired: Vec<Value> = desired(answer).map(object).collect();
    let whole = reconciled.to_value();
    json!({
        "failure": null,
        "reconciledOnlyWith": unselected,
        "finalizer": finalizer.map(|finalizer| format!("{finalizer:?}")),
        "desired": desired,
        "status": whole["status"],
        "conditions": whole["conditions"],
        "events": whole["events"],
        "requeueAfterMilliseconds": answer.requeue_after,
        "warnings": warnings,
        "reads": reads.in_words().collect::<Vec<_>>(),
        "log": log_document(log),
        "usage": {
            "microseconds": u64::try_from(usage.time.as_micros()).unwrap_or(u64::MAX),
            "memoryBytes": usage.memory_bytes,
            "reads": usage.reads,
            "readBytes": usage.read_bytes,
        },
    })
}

fn failure_document(failed: &Failed) -> Value {
    let Failed {
        failure,
        log,
        reads,
        is_impure: _,
    } = failed;
    let Failure {
        blame, reason, message, ..
    } = failure;
    json!({
        "failure": {"reason": reason.to_string(), "blame": blame.to_string(), "message": message},
        "desired": [],
        "reads": reads.in_words().collect::<Vec<_>>(),
        "log": log_document(log),
    })
}

fn log_document(log: &[LogLine]) -> Value {
    let line = |LogLine { level, message, fields }: &LogLine| {
        let fields: Map<String, Value> = fields
            .iter()
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        json!({"level": format!("{level:?}"), "message": message, "fields": fields})
    };
    log.iter().map(line).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use pilothouse_core::answer::KindFacts;
    use pilothouse_core::kubernetes::served::ServedKind;
    use pilothouse_core::{Kind, Name};

    use super::*;

    /// Returns the result for an object for which a plugin wants a Secret.
    pub(in crate::render) fn secret() -> Rendered {
        let body = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "n"}, "data": {"password": "aHVzaA=="},
        });
        let desired = DesiredObject {
            served: ServedKind {
                short_names: Vec::new(),
                kind: Arc::new(Kind::new("", "v1", "Secret")),
                plural: "secrets".into(),
                facts: KindFacts {
                    namespaced: true,
                    has_status: false,
                },
            },
            name: Name::new(Some("n"), "s"),
            body: body.as_object().unwrap().clone(),
            lifecycle: Lifecycle {
                keep: true,
                ..Lifecycle::default()
            },
            yields: Vec::new(),
            after: Vec::new(),
            once: None,
        };
        let answer = CheckedAnswer {
            owned: vec![desired],
            ..CheckedAnswer::default()
        };
        let reconciled = Reconciled {
            answer,
            reads: pilothouse_testkit::isolation::Reads::default(),
            log: Vec::new(),
            usage: pilothouse_testkit::isolation::Usage::default(),
        };
        Rendered {
            kind: Kind::new("x.dev", "v1", "X"),
            name: Name::new(Some("n"), "x"),
            run: Ok(Run {
                reconciled,
                finalizer: None,
                defaulted: None,
                warnings: Vec::new(),
                unselected: None,
            }),
        }
    }

    #[test]
    fn values_of_secrets_are_hidden_unless_they_are_asked_for() {
        let rendered = [secret()];
        for hidden in [yaml(&rendered, false), text(&rendered), json(&rendered, false)] {
            assert!(!hidden.contains("aHVzaA"), "{hidden}");
        }
        // A Secret with other values than the plugin wants must not get into a cluster.
        let documents = yaml(&rendered, false);
        assert!(
            documents.lines().all(|line| line.starts_with('#') || line == "---"),
            "{documents}"
        );
        assert!(
            documents.contains("# Secret n/s: owned, kept when no longer desired\n"),
            "{documents}"
        );
        for shown in [yaml(&rendered, true), json(&rendered, true)] {
            assert!(shown.contains("aHVzaA"), "{shown}");
        }
    }
}
