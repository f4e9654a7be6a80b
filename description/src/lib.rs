//! Owns what can be said of a plugin from its description alone, before a cluster sees it: what its manifest, its CRDs and
//! the interfaces that it exports do not agree on. `inspect`, `install` and the build of a plugin print it, the host reports
//! what may be a mistake as a warning of the Plugin, and the SDK's fake cluster fails the test.
//!
//! Both sides parse what a plugin says in their own way and pass it here as a [`Description`]. Kinds that a call reads or
//! wants and the manifest does not declare show only when it is made: then the host refuses the call, and fake clusters fail
//! the test.
#![forbid(unsafe_code)]

pub mod accepted;
pub mod built_in;
mod check;
pub mod schema_pruning;
pub mod status;
pub mod structural;

use std::borrow::{Borrow, Cow};
use std::fmt;

use serde_json::Value;

/// The first texts of several, and how many more there are.
pub fn first_of<Text: Borrow<str>>(texts: impl ExactSizeIterator<Item = Text>, most: usize) -> String {
    let more = texts.len().saturating_sub(most);
    let named = texts.take(most).collect::<Vec<_>>().join(", ");
    match more {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// What a plugin says of itself, as far as it is checked here.
#[derive(Clone, Debug)]
pub struct Description<'a> {
    /// Its controllers.
    pub controllers: Vec<Controller<'a>>,
    /// The CRDs that it brings.
    pub crds: Vec<Crd<'a>>,
    /// The optional interfaces that it exports.
    pub exports: Exports,
}

/// A kind in one version; the core group is "".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind<'a> {
    /// Its API group.
    pub group: &'a str,
    /// Its version.
    pub version: &'a str,
    /// Its name.
    pub kind: &'a str,
}

/// One controller of the manifest.
#[derive(Clone, Debug)]
pub struct Controller<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its primary kind.
    pub kind: Kind<'a>,
    /// The fields of the primary that are looked at.
    pub fields: Vec<Field<'a>>,
    /// Whether it names a finalizer.
    pub has_finalizer: bool,
    /// Whether the manifest says that there is a defaulter for its kind.
    pub defaulter: Option<bool>,
    /// Whether the manifest says that there is a validator for its kind.
    pub validator: Option<bool>,
    /// Whether it says when API servers ask.
    pub has_admission: bool,
    /// What it touches.
    pub touches: Vec<Touch<'a>>,
}

/// A kind that a controller touches.
#[derive(Clone, Debug)]
pub struct Touch<'a> {
    /// Which kind.
    pub kind: Kind<'a>,
    /// The fields that are looked at.
    pub fields: Vec<Field<'a>>,
    /// Whether objects of it are owned.
    pub is_owned: bool,
    /// Whether its scope is `Any`.
    pub is_anywhere: bool,
}

/// A field path of the manifest.
#[derive(Clone, Debug)]
pub struct Field<'a> {
    /// As it is written.
    pub text: Cow<'a, str>,
    /// Its steps.
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
    /// Its name, by which a test of the plugin accepts it.
    pub name: &'static str,
    /// What, why and what to do.
    pub message: String,
}

/// All findings, errors first.
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

/// The same without what the CRDs do not take of the status, which the host finds out of any CRD.
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
    /// A definition; none if it does not say its names.
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
