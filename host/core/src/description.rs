//! Owns what can be said of a plugin from its description alone, before a cluster sees it: what its manifest, its CRDs and
//! the interfaces that it exports do not agree on. `inspect`, `install` and the build of a plugin print it, and the host
//! reports what may be a mistake as a warning of the Plugin.
//!
//! Kinds that a call reads or wants and the manifest does not declare show only when it is made: then the host refuses the
//! call, and fake clusters fail the test.

use std::fmt;

use serde_json::Value;

use crate::key::Kind;
use crate::manifest::{Access, BroughtCrd, CheckedManifest, Controller, Touch, TouchScope};
use crate::path::{FieldPath, FieldStep};
use crate::{rights, status};

/// The most edits between a field and the one that was probably meant.
const MOST_EDITS: usize = 2;

/// The optional interfaces that a component exports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each interface is there or not, whatever the others are"
)]
pub struct Exports {
    /// `finalizer`
    pub finalizer: bool,
    /// `defaulter`
    pub defaulter: bool,
    /// `validator`
    pub validator: bool,
    /// `converter`
    pub converter: bool,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A controller will not run, or what it wants will be refused.
    Error,
    /// It runs, and something is probably not as it was meant.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// Something that does not fit, with the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What, why and what to do.
    pub message: String,
}

/// All findings, errors first.
pub fn check(checked: &CheckedManifest, exports: Exports) -> Vec<Finding> {
    let CheckedManifest { manifest, crds } = checked;
    let mut findings = Vec::new();
    for controller in &manifest.controllers {
        if let Some(message) = find(crds, &controller.kind).and_then(|crd| status::gaps(crd, &controller.kind.version))
        {
            findings.push(Finding {
                severity: Severity::Warning,
                message,
            });
        }
    }
    findings.extend(check_parts(&manifest.controllers, crds, exports));
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// The same without what the CRDs do not take of the status, which the host finds out of any CRD.
pub fn check_parts(controllers: &[Controller], crds: &[BroughtCrd], exports: Exports) -> Vec<Finding> {
    let mut findings = Findings(Vec::new());
    findings.check_exports(controllers, crds, exports);
    for controller in controllers {
        let Controller {
            name,
            kind,
            fields,
            touches,
            ..
        } = controller;
        findings.check_kind(name, "reconciles", kind, fields, crds);
        for touch in touches {
            findings.check_kind(name, "touches", &touch.kind, &touch.fields, crds);
            findings.check_scope(name, touch, crds);
        }
    }
    for crd in crds {
        findings.check_crd(crd, controllers);
    }
    let mut findings = findings.0;
    findings.sort_by_key(|finding| finding.severity);
    findings
}

fn find<'a>(crds: &'a [BroughtCrd], kind: &Kind) -> Option<&'a BroughtCrd> {
    crds.iter().find(|crd| crd.group == kind.group && crd.kind == kind.kind)
}

fn versions(crd: &BroughtCrd) -> impl Iterator<Item = &Value> {
    crd.definition["spec"]["versions"].as_array().into_iter().flatten()
}

struct Findings(Vec<Finding>);

impl Findings {
    fn error(&mut self, message: String) {
        self.0.push(Finding {
            severity: Severity::Error,
            message,
        });
    }

    fn warn(&mut self, message: String) {
        self.0.push(Finding {
            severity: Severity::Warning,
            message,
        });
    }

    fn check_exports(&mut self, controllers: &[Controller], crds: &[BroughtCrd], exports: Exports) {
        let Exports {
            finalizer,
            defaulter,
            validator,
            converter,
        } = exports;
        for controller in controllers {
            if controller.finalizer.is_some() && !finalizer {
                self.error(format!(
                    "controller {0} names a finalizer, but the component does not export the interface finalizer, so objects that \
                     are deleted would wait forever; export it, or leave the finalizer of controller {0} out of the manifest",
                    controller.name
                ));
            }
            if controller.admission.is_some() && !defaulter && !validator {
                self.warn(format!(
                    "controller {0} says when API servers ask it, but the component exports neither defaulter nor validator, so they \
                     never do; export one of them, or leave admission of controller {0} out of the manifest",
                    controller.name
                ));
            }
        }
        if finalizer && controllers.iter().all(|controller| controller.finalizer.is_none()) {
            self.warn(
                "the component exports the interface finalizer, but no controller names a finalizer, so it is never called; add \
                 finalizer: example.com/name to the controller in the manifest"
                    .to_owned(),
            );
        }
        if converter && !crds.iter().any(BroughtCrd::has_several_versions) {
            self.warn(
                "the component exports the interface converter, but brings no CRD with several versions, so it is never called; \
                 bring the CRD with its versions, or do not export converter"
                    .to_owned(),
            );
        }
        for crd in crds
            .iter()
            .filter(|crd| !converter && crd.definition["spec"]["conversion"]["strategy"] == "Webhook")
        {
            self.error(format!(
                "the CRD {} has its versions converted by a webhook, but the component does not export the interface converter; \
                 export it, or leave spec.conversion out of the CRD",
                crd.name
            ));
        }
    }

    /// Checks a kind against its CRD, where the plugin brings that.
    fn check_kind(&mut self, controller: &str, does: &str, kind: &Kind, fields: &[FieldPath], crds: &[BroughtCrd]) {
        let Some(crd) = find(crds, kind) else { return };
        let Some(version) = versions(crd).find(|version| version["name"] == *kind.version) else {
            let names: Vec<&str> = versions(crd).filter_map(|version| version["name"].as_str()).collect();
            self.error(format!(
                "controller {controller} {does} {kind}, but the CRD {} has only {}; use one of these in the manifest, or add {} \
                 to the CRD",
                crd.name,
                names.join(", "),
                kind.version
            ));
            return;
        };
        if version["served"] != true {
            self.error(format!(
                "controller {controller} {does} {kind}, but the CRD {} does not serve {1}; set served: true for {1}, or use \
                 another version in the manifest",
                crd.name, kind.version
            ));
        }
        let schema = &version["schema"]["openAPIV3Schema"];
        for field in fields {
            if let Some(problem) = missing(schema, field.steps()) {
                self.warn(format!(
                    "controller {controller} looks at {field} of {}, which its CRD does not declare, so the plugin never sees it: \
                     {problem}; correct the path in the manifest, or declare the field in the schema of the CRD",
                    kind.kind
                ));
            }
        }
    }

    /// An object at the cluster scope is in no namespace, so also not in that of a primary.
    fn check_scope(&mut self, controller: &str, touch: &Touch, crds: &[BroughtCrd]) {
        let Touch {
            kind, scope, access, ..
        } = touch;
        let is_cluster_scoped = match find(crds, kind) {
            Some(crd) => crd.definition["spec"]["scope"] == "Cluster",
            None => rights::built_in::served(kind).is_some_and(|served| !served.facts.namespaced),
        };
        if *scope == TouchScope::Namespace && is_cluster_scoped {
            let does = if access.contains(&Access::Owned) {
                "owns"
            } else {
                "touches"
            };
            self.error(format!(
                "controller {controller} {does} {kind} in the namespace of its primaries, but {} is cluster-scoped, so each call \
                 that does so is refused; give this entry of touches the scope \"Any\"",
                kind.kind
            ));
        }
    }

    fn check_crd(&mut self, crd: &BroughtCrd, controllers: &[Controller]) {
        let is_it = |kind: &Kind| kind.group == crd.group && kind.kind == crd.kind;
        let is_used = controllers
            .iter()
            .any(|controller| is_it(&controller.kind) || controller.touches.iter().any(|touch| is_it(&touch.kind)));
        if !is_used {
            self.warn(format!(
                "the plugin brings the CRD {}, but no controller reconciles or touches {}; add a controller for it, or leave the \
                 CRD to the plugin that uses it",
                crd.name, crd.kind
            ));
        }
        for version in versions(crd) {
            let schema = &version["schema"]["openAPIV3Schema"];
            let columns = version["additionalPrinterColumns"].as_array().into_iter().flatten();
            let columns = columns.filter_map(|column| {
                Some((
                    format!("printer column {}", column["name"]),
                    column["jsonPath"].as_str()?,
                ))
            });
            let scale = version["subresources"]["scale"].as_object().into_iter().flatten();
            let scale = scale.filter_map(|(name, path)| Some((name.clone(), path.as_str()?)));
            let selectable = version["selectableFields"].as_array().into_iter().flatten();
            let selectable =
                selectable.filter_map(|field| Some(("selectable field".to_owned(), field["jsonPath"].as_str()?)));
            for (what, path) in columns.chain(scale).chain(selectable) {
                if let Some(problem) = plain_steps(path).and_then(|steps| missing(schema, &steps)) {
                    self.warn(format!(
                        "the {what} of the CRD {} shows {path}, which the schema of {} does not declare: {problem}; correct the \
                         path, or declare the field",
                        crd.name, version["name"]
                    ));
                }
            }
        }
    }
}

/// The steps of a JSONPath up to its first bracket; none if it is of another form.
fn plain_steps(path: &str) -> Option<Vec<FieldStep>> {
    let plain = path.split('[').next().unwrap_or_default();
    if plain.contains(['\\', '\'', '"', '*', '@', '(']) || plain.contains("..") {
        return None;
    }
    let names = plain.strip_prefix('.')?.split('.').filter(|name| !name.is_empty());
    Some(names.map(|name| FieldStep::Field(name.to_owned())).collect())
}

/// Why a schema does not have a path; none if it may.
fn missing(schema: &Value, steps: &[FieldStep]) -> Option<String> {
    match steps.first() {
        Some(FieldStep::Field(name)) if ["apiVersion", "kind", "metadata"].contains(&name.as_str()) => return None,
        _ => {}
    }
    let mut schema = schema;
    let mut walked = String::new();
    for step in steps {
        if schema["x-kubernetes-preserve-unknown-fields"] == true
            || schema["x-kubernetes-embedded-resource"] == true
            || schema["properties"].is_null() && schema["additionalProperties"] == true
        {
            return None;
        }
        let place = if walked.is_empty() { "the schema" } else { &walked };
        match step {
            FieldStep::Each => {
                if schema["type"] != "array" {
                    return Some(format!("{place} is no list, so nothing is below []"));
                }
                schema = &schema["items"];
                walked += "[]";
            }
            FieldStep::Field(name) => {
                if schema["type"] == "array" {
                    return Some(format!("{place} is a list; write {walked}[].{name}"));
                }
                let declared = &schema["properties"][name];
                let others = &schema["additionalProperties"];
                if declared.is_null() && !others.is_object() {
                    let names = schema["properties"].as_object().map(|names| names.keys());
                    let near = names.into_iter().flatten().min_by_key(|near| edits(near, name));
                    let hint = near.filter(|near| edits(near, name) <= MOST_EDITS);
                    let hint = hint.map_or_else(String::new, |near| format!("; is {near} meant?"));
                    return Some(format!("{place} has no {name}{hint}"));
                }
                schema = if declared.is_null() { others } else { declared };
                walked += &format!(".{name}");
            }
        }
    }
    None
}

/// How many letters have to be changed, added or taken away to make one word of the other.
fn edits(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.to_lowercase().chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (column, it) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(*it != letter);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests;
