//! Checks the description of a plugin before a cluster sees it: contradictions between its manifest, its CRDs and the
//! interfaces that it exports. `inspect`, `install` and the build of a plugin print them, the host reports probable
//! mistakes as a warning of the Plugin, and the SDK's fake cluster fails the test.
//!
//! Both sides parse a plugin's description in their own way and pass it here as a [`Description`]. Undeclared kinds
//! that a call reads or wants are only noticed during the call: the host refuses it, and fake clusters fail the test.
#![forbid(unsafe_code)]

pub mod accepted;
pub mod built_in;
mod check;
pub mod defaults;
pub mod schema_pruning;
pub mod status;
pub mod structural;

use std::borrow::{Borrow, Cow};
use std::fmt;

use serde_json::Value;

/// Joins the first of several texts, with the number of the others.
pub fn first_of<Text: Borrow<str>>(texts: impl ExactSizeIterator<Item = Text>, most: usize) -> String {
    let more = texts.len().saturating_sub(most);
    let named = texts.take(most).collect::<Vec<_>>().join(", ");
    match more {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// A plugin's description, as far as it is checked here.
#[derive(Clone, Debug)]
pub struct Description<'a> {
    /// Controllers.
    pub controllers: Vec<Controller<'a>>,
    /// CRDs that the plugin brings.
    pub crds: Vec<Crd<'a>>,
    /// Optional interfaces that it exports.
    pub exports: Exports,
}

/// A kind in one version; the core group is "".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind<'a> {
    /// API group.
    pub group: &'a str,
    /// Version.
    pub version: &'a str,
    /// Name.
    pub kind: &'a str,
}

/// One controller of the manifest.
#[derive(Clone, Debug)]
pub struct Controller<'a> {
    /// Name.
    pub name: &'a str,
    /// Primary kind.
    pub kind: Kind<'a>,
    /// Fields of the primary that are read.
    pub fields: Vec<Field<'a>>,
    /// Set if not every object of the kind is a primary.
    pub has_filter: bool,
    /// Set if it names a finalizer.
    pub has_finalizer: bool,
    /// The manifest's statement that there is a defaulter for its kind.
    pub defaulter: Option<bool>,
    /// The manifest's statement that there is a validator for its kind.
    pub validator: Option<bool>,
    /// Set if it configures when API servers call defaulter and validator.
    pub has_admission: bool,
    /// Kinds that it reads or writes.
    pub touches: Vec<Touch<'a>>,
}

/// A kind that a controller reads or writes.
#[derive(Clone, Debug)]
pub struct Touch<'a> {
    /// Kind.
    pub kind: Kind<'a>,
    /// Fields that are read.
    pub fields: Vec<Field<'a>>,
    /// Set if objects of it are owned.
    pub is_owned: bool,
    /// Set if its scope is `Any`.
    pub is_anywhere: bool,
}

/// A field path of the manifest.
#[derive(Clone, Debug)]
pub struct Field<'a> {
    /// The path as written.
    pub text: Cow<'a, str>,
    /// Steps.
    pub steps: &'a [FieldStep],
}

/// One step of a field path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FieldStep {
    /// A member of an object.
    Field(String),
    /// Every element of a list.
    Each,
}

/// A CustomResourceDefinition that the plugin brings.
#[derive(Clone, Copy, Debug)]
pub struct Crd<'a> {
    /// `plural.group`.
    pub name: &'a str,
    /// The API group.
    pub group: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// The whole definition.
    pub definition: &'a Value,
}

/// The optional interfaces that a plugin exports.
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

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A controller will not run, or its objects will be refused.
    Error,
    /// The plugin runs, and is probably mistaken.
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

/// A contradiction, with the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Severity.
    pub severity: Severity,
    /// Name, by which a test of the plugin accepts it.
    pub name: &'static str,
    /// Message: problem, reason and next step.
    pub message: String,
}

/// Returns all findings, errors first.
pub fn check(description: &Description<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for controller in &description.controllers {
        let crd = description.crds.iter().find(|crd| crd.is_of(controller.kind));
        findings.extend(
            crd.and_then(|crd| status::gaps(crd, controller.kind.version))
                .map(|(name, message)| Finding::warning(name, message)),
        );
    }
    findings.extend(check_parts(description));
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// Returns all findings except those about the status in CRDs, which the host checks for any CRD.
pub fn check_parts(description: &Description<'_>) -> Vec<Finding> {
    let mut findings = check::findings(description);
    findings.sort_by_key(|finding| finding.severity);
    findings
}

impl Finding {
    fn warning(name: &'static str, message: String) -> Self {
        Self {
            severity: Severity::Warning,
            name,
            message,
        }
    }
}

impl<'a> Crd<'a> {
    /// Parses a definition; none if it lacks its names.
    pub fn of(definition: &'a Value) -> Option<Self> {
        Some(Self {
            name: definition["metadata"]["name"].as_str()?,
            group: definition["spec"]["group"].as_str()?,
            kind: definition["spec"]["names"]["kind"].as_str()?,
            definition,
        })
    }

    fn is_of(&self, kind: Kind<'_>) -> bool {
        self.group == kind.group && self.kind == kind.kind
    }

    fn versions(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        self.definition["spec"]["versions"].as_array().into_iter().flatten()
    }
}

impl fmt::Display for Kind<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, version, kind } = self;
        if !group.is_empty() {
            write!(formatter, "{group}/")?;
        }
        write!(formatter, "{version} {kind}")
    }
}
