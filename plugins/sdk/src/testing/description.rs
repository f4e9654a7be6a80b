//! Checks a plugin's description, as `pilothouse build` and `pilothouse inspect` do: manifest, CRDs and exports have to
//! agree. The findings are those of pilothouse-description.

use std::any::type_name;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use pilothouse_description::accepted::{self, ACCEPTED_FILE, AcceptedFinding};
use pilothouse_description::{self as description, Crd, Description, Exports, Field, Finding, Severity};
use serde_json::Value;

use super::fields::FieldPath;
use crate::dispatch;
use crate::manifest::{Access, ControllerManifest, Manifest, Touch};
use crate::object::Kind;
use crate::optional::{ExportedPlugin, Interfaces};

/// Plugins that have been checked, each with its configuration and the accepted findings: tests call them repeatedly.
static SEEN: Mutex<Option<HashSet<CheckKey>>> = Mutex::new(None);

/// Name of a plugin's type, its configuration, and the names of accepted findings.
type CheckKey = (&'static str, String, BTreeSet<String>);

/// Checks the description of a plugin under a configuration, once in a process.
///
/// # Panics
///
/// With the findings that are not accepted by name, if there are any, and with names that no finding has.
pub(super) fn check<P: ExportedPlugin>(configuration: &str, named: &BTreeSet<String>) {
    let key = (type_name::<P>(), configuration.to_owned(), named.clone());
    let is_seen = |seen: &Option<HashSet<_>>| seen.as_ref().is_some_and(|seen| seen.contains(&key));
    if is_seen(&SEEN.lock().unwrap_or_else(PoisonError::into_inner)) {
        return;
    }
    // A refused configuration has no description; the call reports it.
    let Ok(manifest) = dispatch::manifest::<P>(Some(configuration)) else {
        return;
    };
    let found = findings(&manifest, P::interfaces());
    let is_accepted = |finding: &Finding| finding.severity == Severity::Warning && named.contains(finding.name);
    let of_project = of_project();
    let is_listed = |finding: &Finding| of_project.iter().any(|it| it.accepts(finding));
    let mut text = String::new();
    for finding in found
        .iter()
        .filter(|finding| !is_accepted(finding) && !is_listed(finding))
    {
        let Finding {
            severity,
            name,
            message,
        } = finding;
        let _ = write!(text, "\n{severity} ({name}): {message}");
    }
    assert!(
        text.is_empty(),
        "the plugin's description does not agree with itself:{text}\n{ACCEPTED_FILE} beside Cargo.toml accepts warnings by the names in \
         parentheses, each with a reason, and so does `FakeCluster::accepting`; `FakeCluster::unchecked` leaves this check out"
    );
    for name in named {
        assert!(
            found.iter().any(|finding| is_accepted(finding) && finding.name == name),
            "`FakeCluster::accepting` names {name:?}, and the plugin's description has no such warning; take the name out"
        );
    }
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    seen.get_or_insert_default().insert(key);
}

/// The warnings that the project accepts: those of the list beside Cargo.toml, which is in the environment of tests.
///
/// # Panics
///
/// If the list cannot be read.
fn of_project() -> Vec<AcceptedFinding> {
    let Some(folder) = std::env::var_os("CARGO_MANIFEST_DIR") else {
        return Vec::new();
    };
    let file = Path::new(&folder).join(ACCEPTED_FILE);
    let text = match std::fs::read_to_string(&file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
        text => text.unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display())),
    };
    let list = serde_saphyr::from_str(&text).map_err(|error| error.to_string());
    let accepted = list.and_then(|list| accepted::parse(&list));
    accepted.unwrap_or_else(|problem| panic!("{}: {problem}", file.display()))
}

/// Returns the contradictions.
fn findings(manifest: &Manifest, interfaces: Interfaces) -> Vec<Finding> {
    let definitions: Vec<Arc<Value>> = manifest.crds.iter().enumerate().map(definition).collect();
    let is_switched_off = |crd: &Crd<'_>| {
        let mut kinds = manifest.switched_off.iter();
        kinds.any(|kind| kind.group == crd.group && kind.kind == crd.kind)
    };
    let crds = definitions.iter().map(|definition| {
        Crd::of(definition).unwrap_or_else(|| {
            panic!("a CRD of the manifest lacks metadata.name, spec.group or spec.names.kind: {definition}")
        })
    });
    let parsed: Vec<ParsedController<'_>> = manifest.controllers.iter().map(ParsedController::of).collect();
    let Interfaces {
        finalizer,
        defaulter,
        validator,
        converter,
    } = interfaces;
    let description = Description {
        controllers: parsed.iter().map(ParsedController::described).collect(),
        // The CRD of a controller that the configuration switches off is brought all the same.
        crds: crds.filter(|crd| !is_switched_off(crd)).collect(),
        exports: Exports {
            finalizer: finalizer.is_some(),
            defaulter: defaulter.is_some(),
            validator: validator.is_some(),
            converter: converter.is_some(),
        },
    };
    description::check(&description)
}

/// Returns a CRD, parsed once in a process: parsing its YAML takes longer than all checks.
fn definition((index, text): (usize, &String)) -> Arc<Value> {
    static PARSED: Mutex<Option<HashMap<String, Arc<Value>>>> = Mutex::new(None);
    let mut parsed = PARSED.lock().unwrap_or_else(PoisonError::into_inner);
    let parsed = parsed.get_or_insert_default();
    if let Some(definition) = parsed.get(text) {
        return definition.clone();
    }
    let definition: Value = serde_saphyr::from_str(text)
        .unwrap_or_else(|error| panic!("crds[{index}] of the manifest is not YAML: {error}"));
    parsed
        .entry(text.clone())
        .or_insert_with(|| Arc::new(definition))
        .clone()
}

/// A controller with its paths parsed.
struct ParsedController<'a> {
    controller: &'a ControllerManifest,
    fields: Paths<'a>,
    touches: Vec<(&'a Touch, Paths<'a>)>,
}

/// Field paths beside their texts.
type Paths<'a> = Vec<(&'a str, FieldPath)>;

impl<'a> ParsedController<'a> {
    fn of(controller: &'a ControllerManifest) -> Self {
        Self {
            controller,
            fields: parsed(&controller.fields),
            touches: controller
                .touches
                .iter()
                .map(|touch| (touch, parsed(&touch.fields)))
                .collect(),
        }
    }

    fn described(&self) -> description::Controller<'_> {
        let Self {
            controller,
            fields,
            touches,
        } = self;
        description::Controller {
            name: &controller.name,
            kind: described(&controller.kind),
            fields: fields_of(fields),
            has_filter: !controller.filter.is_empty(),
            has_finalizer: controller.finalizer.is_some(),
            defaulter: controller.defaulter,
            validator: controller.validator,
            has_admission: controller.admission.is_some(),
            touches: touches
                .iter()
                .map(|(touch, fields)| description::Touch {
                    kind: described(&touch.kind),
                    fields: fields_of(fields),
                    is_owned: touch.access.contains(&Access::Owned),
                    is_anywhere: touch.is_anywhere(),
                })
                .collect(),
        }
    }
}

fn parsed(paths: &[String]) -> Paths<'_> {
    let parse = |path: &str| FieldPath::parse(path).unwrap_or_else(|error| panic!("in the manifest: {error}"));
    paths.iter().map(|path| (path.as_str(), parse(path))).collect()
}

fn fields_of<'a>(paths: &'a Paths<'_>) -> Vec<Field<'a>> {
    let fields = paths.iter().map(|(text, path)| Field {
        text: (*text).into(),
        steps: path.steps(),
    });
    fields.collect()
}

fn described(kind: &Kind) -> description::Kind<'_> {
    let Kind { group, version, kind } = kind;
    description::Kind { group, version, kind }
}
