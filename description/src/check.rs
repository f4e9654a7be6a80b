//! The checks of a description: each finding, with its message.

use serde_json::Value;

use crate::status::replaces_conditions;
use crate::structural;
use crate::{
    Controller, Crd, Description, Exports, Field, FieldStep, Finding, Kind, Severity, Touch, built_in, first_of,
};

/// Most edits between an unknown field and the known one that it is a probable misspelling of.
const MOST_EDITS: usize = 2;

/// The most fields that one message names.
const MOST_NAMED: usize = 5;

/// Path in a schema of the generation that an object has examined before a host has seen it.
const UNOBSERVED: &str = "/properties/status/default/observedGeneration";

/// Returns all findings, in the order of the description.
pub(crate) fn findings(description: &Description<'_>) -> Vec<Finding> {
    let Description {
        controllers,
        crds,
        exports,
    } = description;
    let mut findings = Findings(Vec::new());
    findings.check_exports(controllers, crds, *exports);
    for controller in controllers {
        let Controller {
            name,
            kind,
            fields,
            touches,
            ..
        } = controller;
        findings.check_kind(name, "reconciles", *kind, fields, crds);
        findings.check_seen(name, *kind, fields, crds);
        findings.check_filter(controller, crds);
        for touch in touches {
            findings.check_kind(name, "touches", touch.kind, &touch.fields, crds);
            findings.check_scope(name, touch, crds);
        }
    }
    for crd in crds {
        findings.check_crd(crd, controllers);
    }
    findings.0
}

struct Findings(Vec<Finding>);

impl Findings {
    fn error(&mut self, name: &'static str, message: String) {
        self.0.push(Finding {
            severity: Severity::Error,
            name,
            message,
        });
    }

    fn warn(&mut self, name: &'static str, message: String) {
        self.0.push(Finding::warning(name, message));
    }

    fn check_exports(&mut self, controllers: &[Controller<'_>], crds: &[Crd<'_>], exports: Exports) {
        let Exports {
            finalizer,
            defaulter,
            validator,
            converter,
        } = exports;
        for controller in controllers {
            if controller.has_finalizer && !finalizer {
                self.error(
                "finalizer-missing",
                format!(
                    "controller {0} names a finalizer, but the component does not export the interface finalizer, so objects that \
                     are deleted would wait forever; export it, or leave the finalizer of controller {0} out of the manifest",
                    controller.name
                ));
            }
            self.check_asked(controller, "defaulter", controller.defaulter, defaulter);
            self.check_asked(controller, "validator", controller.validator, validator);
            let is_asked =
                defaulter && controller.defaulter != Some(false) || validator && controller.validator != Some(false);
            if controller.has_admission && !is_asked {
                let reason = if defaulter || validator {
                    "has neither defaulter nor validator for its kind"
                } else {
                    "exports neither defaulter nor validator"
                };
                self.warn(
                "admission-unused",
                format!(
                    "controller {0} says when API servers ask it, but the component {reason}, so they never do; export one of \
                     them, or leave admission of controller {0} out of the manifest",
                    controller.name
                ));
            }
        }
        let declared = [
            (
                "defaulter",
                defaulter,
                controllers.iter().all(|it| it.defaulter == Some(false)),
            ),
            (
                "validator",
                validator,
                controllers.iter().all(|it| it.validator == Some(false)),
            ),
        ];
        for (interface, is_exported, is_denied) in declared {
            if is_exported && is_denied {
                self.warn(
                "interface-unused",
                format!(
                    "the component exports the interface {interface}, but every controller says {interface}: false, so it is \
                     never called; say {interface}: true in the controller that it is for, or do not export it"
                ));
            }
        }
        if finalizer && controllers.iter().all(|controller| !controller.has_finalizer) {
            self.warn(
                "finalizer-unused",
                "the component exports the interface finalizer, but no controller names a finalizer, so it is never called; add \
                 finalizer: example.com/name to the controller in the manifest"
                    .to_owned(),
            );
        }
        if converter && !crds.iter().any(|crd| crd.versions().count() > 1) {
            self.warn(
                "converter-unused",
                "the component exports the interface converter, but brings no CRD with several versions, so it is never called; \
                 bring the CRD with its versions, or do not export converter"
                    .to_owned(),
            );
        }
        for crd in crds
            .iter()
            .filter(|crd| !converter && crd.definition["spec"]["conversion"]["strategy"] == "Webhook")
        {
            self.error(
                "converter-missing",
                format!(
                    "the CRD {} has its versions converted by a webhook, but the component does not export the interface converter; \
                 export it, or leave spec.conversion out of the CRD",
                crd.name
            ));
        }
    }

    fn check_asked(&mut self, controller: &Controller<'_>, interface: &str, declared: Option<bool>, is_exported: bool) {
        if declared == Some(true) && !is_exported {
            self.error(
                "interface-missing",
                format!(
                    "controller {0} has a {interface} as its manifest says, but the component does not export the interface \
                 {interface}, so it is never called; export it, or leave {interface} of controller {0} out of the manifest",
                controller.name
            ));
        }
    }

    /// Checks a kind against its CRD, if the plugin brings that.
    fn check_kind(&mut self, controller: &str, does: &str, kind: Kind<'_>, fields: &[Field<'_>], crds: &[Crd<'_>]) {
        let Some(crd) = crds.iter().find(|crd| crd.is_of(kind)) else {
            return;
        };
        let Some(version) = crd.versions().find(|version| version["name"] == kind.version) else {
            let names: Vec<&str> = crd.versions().filter_map(|version| version["name"].as_str()).collect();
            self.error(
                "unknown-version",
                format!(
                    "controller {controller} {does} {kind}, but the CRD {} has only {}; use one of these in the manifest, or add {} \
                 to the CRD",
                crd.name,
                names.join(", "),
                kind.version
            ));
            return;
        };
        if version["served"] != true {
            self.error(
                "version-not-served",
                format!(
                    "controller {controller} {does} {kind}, but the CRD {} does not serve {1}; set served: true for {1}, or use \
                 another version in the manifest",
                crd.name, kind.version
            ));
        }
        let schema = &version["schema"]["openAPIV3Schema"];
        let unknown = fields
            .iter()
            .filter_map(|field| Some((field, missing(schema, field.steps)?)));
        let unknown: Vec<_> = unknown.collect();
        match unknown.as_slice() {
            [] => {}
            [(field, problem)] => self.warn(
                "unknown-field",
                format!(
                    "controller {controller} looks at {} of {}, which its CRD does not declare, so the plugin never sees it: \
                     {problem}; correct the path in the manifest, or declare the field in the schema of the CRD",
                    field.text, kind.kind
                ),
            ),
            [(_, first), ..] => {
                let named = first_of(unknown.iter().map(|(field, _)| &*field.text), MOST_NAMED);
                self.warn(
                    "unknown-field",
                    format!(
                        "controller {controller} looks at {named} of {}, which its CRD does not declare, so the plugin never sees \
                         them: {first}; if the CRD in crds/ is made from the types, it is older than they are: run `pilothouse build`; \
                         else declare the fields",
                        kind.kind
                    ),
                );
            }
        }
    }

    /// Checks that objects that a filter excludes are not in progress for ever.
    fn check_filter(&mut self, controller: &Controller<'_>, crds: &[Crd<'_>]) {
        let crd = crds.iter().find(|crd| crd.is_of(controller.kind));
        let mut versions = crd.iter().flat_map(|crd| crd.versions());
        if controller.has_filter
            && versions.any(|version| {
                !version["schema"]["openAPIV3Schema"]
                    .pointer(UNOBSERVED)
                    .is_none_or(Value::is_null)
            })
        {
            self.warn(
                "filter-in-progress",
                format!(
                    "controller {} has a filter, and the CRD of {} has a default for status.observedGeneration, so kstatus, and with \
                     it Flux, takes an object that the filter excludes for InProgress for ever; remove the default of the status from \
                     the CRD (in Rust: #[crd(filtered)]), or remove the filter",
                    controller.name, controller.kind.kind
                ),
            );
        }
    }

    /// Checks a primary of which only the metadata is declared: it has no spec when it is reconciled.
    fn check_seen(&mut self, controller: &str, kind: Kind<'_>, fields: &[Field<'_>], crds: &[Crd<'_>]) {
        let is_metadata = |field: &Field<'_>| field.steps.first() == Some(&FieldStep::Field("metadata".to_owned()));
        let crd = crds.iter().find(|crd| crd.is_of(kind));
        let version = crd.and_then(|crd| crd.versions().find(|version| version["name"] == kind.version));
        let has_spec = version.is_some_and(|version| {
            let schema = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
            let has_members = schema["properties"]
                .as_object()
                .is_some_and(|members| !members.is_empty());
            has_members || schema["x-kubernetes-preserve-unknown-fields"] == true
        });
        if has_spec && fields.iter().all(is_metadata) {
            self.warn(
                "no-fields",
                format!(
                    "controller {controller} lists no fields of {kind} but its metadata, so the object has no spec when it is \
                 reconciled; list the fields that the plugin looks at in the manifest, as in fields: [\".spec\"]"
            ));
        }
    }

    /// Checks the scope: a cluster-scoped object is in no namespace, so also not in that of a primary.
    fn check_scope(&mut self, controller: &str, touch: &Touch<'_>, crds: &[Crd<'_>]) {
        let Touch {
            kind,
            is_owned,
            is_anywhere,
            ..
        } = touch;
        let is_cluster_scoped = match crds.iter().find(|crd| crd.is_of(*kind)) {
            Some(crd) => crd.definition["spec"]["scope"] == "Cluster",
            None => built_in::is_namespaced(kind.group, kind.kind) == Some(false),
        };
        if !is_anywhere && is_cluster_scoped {
            let does = if *is_owned { "owns" } else { "touches" };
            self.error(
                "cluster-scoped",
                format!(
                    "controller {controller} {does} {kind} in the namespace of its primaries, but {} is cluster-scoped, so each call \
                 that does so is refused; give this entry of touches the scope \"Any\"",
                kind.kind
            ));
        }
    }

    fn check_crd(&mut self, crd: &Crd<'_>, controllers: &[Controller<'_>]) {
        let is_used = controllers.iter().any(|controller| {
            crd.is_of(controller.kind) || controller.touches.iter().any(|touch| crd.is_of(touch.kind))
        });
        if !is_used {
            self.warn(
                "unused-crd",
                format!(
                    "the plugin brings the CRD {}, but no controller reconciles or touches {}; add a controller for it, or leave the \
                 CRD to the plugin that uses it",
                crd.name, crd.kind
            ));
        }
        let is_primary = controllers.iter().any(|controller| crd.is_of(controller.kind));
        for version in crd.versions() {
            let schema = &version["schema"]["openAPIV3Schema"];
            let status = &schema["properties"]["status"];
            let problems = structural::problems(schema);
            if !problems.is_empty() {
                let named: Vec<&str> = problems.iter().take(MOST_NAMED).map(String::as_str).collect();
                let more = match problems.len() - named.len() {
                    0 => String::new(),
                    more => format!("; and {more} more"),
                };
                self.error(
                    "not-structural",
                    format!(
                        "API servers refuse the CRD {}, because the schema of {} is not structural: {}{more}",
                        crd.name,
                        version["name"],
                        named.join("; ")
                    ),
                );
            }
            if is_primary && status["properties"]["conditions"]["type"] == "array" && replaces_conditions(status) {
                self.warn(
                "conditions-replaced",
                format!(
                    "{} of the CRD {} replaces the list .status.conditions as a whole, so that of two controllers that write a \
                     condition at the same time one has to repeat its write, and a condition that the plugin leaves out may stay; \
                     give the list x-kubernetes-list-type: map and x-kubernetes-list-map-keys: [type]",
                    version["name"], crd.name
                ));
            }
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
                    self.warn(
                "unknown-path",
                format!(
                    "the {what} of the CRD {} shows {path}, which the schema of {} does not declare: {problem}; correct the \
                         path, or declare the field",
                        crd.name, version["name"]
                    ));
                }
            }
        }
    }
}

/// Returns the steps of a JSONPath up to its first bracket; none if it has another form.
fn plain_steps(path: &str) -> Option<Vec<FieldStep>> {
    let plain = path.split('[').next().unwrap_or_default();
    if plain.contains(['\\', '\'', '"', '*', '@', '(']) || plain.contains("..") {
        return None;
    }
    let names = plain.strip_prefix('.')?.split('.').filter(|name| !name.is_empty());
    Some(names.map(|name| FieldStep::Field(name.to_owned())).collect())
}

/// Returns the reason why a schema does not have a path; none if it may.
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
                walked.extend([".", name.as_str()]);
            }
        }
    }
    None
}

/// Returns the number of letters that have to be changed, added or removed to turn one word into the other.
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
