//! Repeats the calls of a recording, one by one, in the host's own sandbox.

use std::collections::HashMap;
use std::sync::Arc;

use pilothouse_core::Limits;
use pilothouse_core::kubernetes::path::FieldPath;
use pilothouse_core::plugin::grants::Grants;
use pilothouse_core::plugin::manifest;
use pilothouse_core::plugin::manifest::{Access, CheckedManifest, Controller, Manifest};
use pilothouse_core::recording::{RecordedAnswer, RecordedCall, RecordedInput};
use pilothouse_sandbox::{CallResult, Optional, PluginComponent};
use serde_json::Value;

use super::compare::{compare, has_mask};
use super::difference::{CallReport, Difference, FieldDifference, Report};
use super::file::Recording;
use super::reads::Reads;

/// The machine of a test may be slow, so a call gets the most time that can be given.
const CALL_MILLISECONDS: u64 = 10_000;

impl Recording {
    /// Repeats each call with a component, and compares its answer with the recorded one.
    pub fn replay(&self, plugin: &PluginComponent) -> Report {
        let limits = Limits {
            call_milliseconds: CALL_MILLISECONDS,
            ..self.header.limits.clone()
        };
        let configuration = self.calls.first().map(|call| call.input.configuration().text());
        let configuration = configuration.filter(|text| text != "{}");
        let described = plugin.describe(configuration.as_deref(), &limits);
        let checked = match described.map_err(|failure| failure.to_string()) {
            Ok(text) => manifest::parse(&text).map_err(|error| error.to_string()),
            Err(problem) => Err(problem),
        };
        let checked = match checked {
            Ok(checked) => checked,
            Err(problem) => {
                return Report {
                    problem: Some(format!(
                        "the component cannot describe itself with the recorded configuration: {problem}"
                    )),
                    ..Report::default()
                };
            }
        };
        let grants: HashMap<_, _> = checked
            .manifest
            .controllers
            .iter()
            .map(|controller| {
                (
                    (controller.kind.group.as_str(), controller.kind.kind.as_str()),
                    Arc::new(Grants::new(controller)),
                )
            })
            .collect();
        let calls = self.calls.iter().map(|call| {
            let grants = grants.get(&(call.kind.group.as_str(), call.kind.kind.as_str()));
            replay(plugin, call, grants, &limits)
        });
        Report {
            problem: None,
            notes: notes(&self.header.manifest, &checked),
            calls: calls.collect(),
        }
    }
}

fn replay(plugin: &PluginComponent, call: &RecordedCall, grants: Option<&Arc<Grants>>, limits: &Limits) -> CallReport {
    let namespace = call.namespace.as_ref().map(|namespace| format!("{namespace}/"));
    let mut report = CallReport {
        number: call.number,
        function: call.input.function().to_owned(),
        object: format!("{} {}{}", call.kind.kind, namespace.unwrap_or_default(), call.name),
        ..CallReport::default()
    };
    if let RecordedAnswer::Failed(failure) = &call.answer
        && failure.message.contains("limit callMilliseconds")
    {
        report.skipped =
            Some("it took too long when it was recorded, which says nothing about this machine".to_owned());
        return report;
    }
    let Some(grants) = grants else {
        report
            .differences
            .push(missing(format!("the component has no controller for {}", call.kind)));
        return report;
    };
    let Optional {
        finalizer,
        defaulter,
        validator,
        converter: _,
    } = plugin.optional();
    let reads = Reads::of(call, grants.clone());
    let is_absent = |interface: &str| {
        missing(format!(
            "the component does not export the interface {interface} any more"
        ))
    };
    let (replayed, reads) = match &call.input {
        RecordedInput::Reconcile(request) => {
            let CallResult { result, imports, .. } = plugin.reconcile(&request.into(), limits, reads);
            (RecordedAnswer::reconciled(&result), imports)
        }
        RecordedInput::Finalize(_) if !finalizer => {
            report.differences.push(is_absent("finalizer"));
            return report;
        }
        RecordedInput::Finalize(request) => {
            let CallResult { result, imports, .. } = plugin.finalize(&request.into(), limits, reads);
            (RecordedAnswer::finalized(&result), imports)
        }
        RecordedInput::ApplyDefaults(_) if !defaulter => {
            report.differences.push(is_absent("defaulter"));
            return report;
        }
        RecordedInput::ApplyDefaults(review) => {
            let CallResult { result, imports, .. } = plugin.apply_defaults(&review.review(&call.kind), limits, reads);
            (RecordedAnswer::defaulted(&result), imports)
        }
        RecordedInput::Validate(_) if !validator => {
            report.differences.push(is_absent("validator"));
            return report;
        }
        RecordedInput::Validate(review) => {
            let CallResult { result, imports, .. } = plugin.validate(&review.review(&call.kind), limits, reads);
            (RecordedAnswer::validated(&result), imports)
        }
    };
    let was_masked = was_masked(call);
    report.reads_not_recorded = reads.missing.into_iter().collect();
    report.differences = compare(&call.answer, &replayed, was_masked);
    let fails_now = matches!(replayed, RecordedAnswer::Failed(_)) && !matches!(call.answer, RecordedAnswer::Failed(_));
    if was_masked && fails_now {
        report.differences.push(missing(
            "the call was shown masked values of Secrets; a plugin that parses such a value fails in a replay"
                .to_owned(),
        ));
    }
    report
}

/// A difference that is no field's.
fn missing(words: String) -> Difference {
    Difference {
        diff: String::new(),
        fields: vec![FieldDifference {
            path: String::new(),
            recorded: None,
            replayed: None,
            masked: false,
        }],
        place: words,
    }
}

/// Returns `true` if a call was shown masked values.
fn was_masked(call: &RecordedCall) -> bool {
    let texts = [serde_json::to_string(&call.input), serde_json::to_string(&call.reads)];
    texts.iter().flatten().any(|text| has_mask(text))
}

/// The fields that a component reads and the recorded version did not, so that the recorded objects lack them.
fn notes(recorded: &Value, checked: &CheckedManifest) -> Vec<String> {
    let Ok(recorded) = serde_json::from_value::<Manifest>(recorded.clone()) else {
        return Vec::new();
    };
    let mut notes = Vec::new();
    for controller in &checked.manifest.controllers {
        let mut earlier = recorded.controllers.iter();
        let Some(earlier) = earlier.find(|it| it.kind.same_kind(&controller.kind)) else {
            continue;
        };
        note(
            &controller.kind.to_string(),
            &controller.fields,
            &earlier.fields,
            &mut notes,
        );
        note_touches(controller, earlier, &mut notes);
    }
    notes
}

fn note_touches(controller: &Controller, earlier: &Controller, notes: &mut Vec<String>) {
    for touch in controller
        .touches
        .iter()
        .filter(|touch| touch.access.contains(&Access::Read))
    {
        let mut earlier = earlier.touches.iter();
        if let Some(earlier) = earlier.find(|it| it.kind == touch.kind) {
            note(&touch.kind.to_string(), &touch.fields, &earlier.fields, notes);
        }
    }
}

fn note(kind: &str, fields: &[FieldPath], earlier: &[FieldPath], notes: &mut Vec<String>) {
    let is_new = |field: &&FieldPath| !earlier.iter().any(|earlier| field.is_within(earlier));
    for field in fields.iter().filter(is_new) {
        notes.push(format!(
            "the component reads {field} of {kind}, which the recorded version did not, so the recorded objects lack it"
        ));
    }
}
