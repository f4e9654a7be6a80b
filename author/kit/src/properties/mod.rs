//! Owns the properties that every plugin must have, whatever it does, and the search for an object with which it has not: in
//! samples, in changes to them, and in objects made by the schema of its CRD. Leaves judging one object to `judge`.
//!
//! Each case is an object in a simulated cluster of its own. An object that the API server would refuse, by its schema or by
//! its CEL rules, is not used. A case depends on the seed and its number alone, so it can be repeated.
//!
//! ```no_run
//! # fn test() -> Result<(), Box<dyn std::error::Error>> {
//! use pilothouse_testkit::{isolation::Isolated, properties::{Options, check}};
//!
//! let plugin = Isolated::load("target/plugins/app-service.wasm")?;
//! let report = check(&plugin, &Options::default())?;
//! assert!(report.violations.is_empty(), "{:?}", report.violations);
//! # Ok(())
//! # }
//! ```

mod accepted;
mod generate;
mod judge;
pub mod property;
mod remarks;
pub mod sample;
mod shrink;
mod source;
mod taken_over;
mod world;

use std::time::{Duration, Instant};

use fastrand::Rng;
use pilothouse_core::{Kind, Name};
use serde_json::Value;
use thiserror::Error;

pub use self::accepted::AcceptedFinding;
pub use self::generate::TEXTS;
use self::judge::{Judge, Judged};
pub use self::remarks::Remark;
use self::remarks::Remarks;
use self::source::{Source, sources};
use crate::properties::property::Property;
use crate::{
    documents::{Document, identity, quoting_hint},
    isolation::Isolated,
    store,
};

/// How often another object is made for a case, when the API server would refuse it.
const DRAWS: usize = 25;

/// How many objects are made for a case at most, when the plugin refuses them: of one that it takes more can be said.
const DRAWS_OF_REFUSED: usize = 4;

/// What keeps the cases of a seed apart from each other.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// What is looked for, and with which objects.
#[derive(Debug, Clone)]
pub struct Options {
    /// The number of cases. Samples come first and count.
    pub cases: u32,
    /// What objects are drawn from.
    pub seed: u64,
    /// This case alone.
    pub only_case: Option<u32>,
    /// The properties that are looked at.
    pub properties: Vec<Property>,
    /// Objects that the plugin reconciles. They are used as they are, and changed.
    pub samples: Vec<Document>,
    /// What else is in the cluster.
    pub cluster: Vec<Document>,
    /// The time, in milliseconds since 1970-01-01T00:00:00Z.
    pub now: u64,
    /// An object of one of Kubernetes' own kinds that the plugin wants and the API server refuses for its values breaks `valid`
    /// for generated objects, too. Otherwise it does so for samples only, and is remarked upon for others: a CRD may leave to the
    /// server what is valid there. An object of a kind with a CRD always breaks it.
    pub strict: bool,
    /// Findings that are meant to be as they are.
    pub accepted: Vec<AcceptedFinding>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cases: 200,
            seed: 1,
            only_case: None,
            properties: Property::ALL.to_vec(),
            samples: Vec::new(),
            cluster: Vec::new(),
            now: 1_767_225_600_000,
            strict: false,
            accepted: Vec::new(),
        }
    }
}

/// Why nothing could be looked for.
#[derive(Debug, Error)]
pub enum CheckError {
    /// A sample is none.
    #[error("{place}: the API server would refuse the sample {object}: {problem}")]
    Sample {
        /// Where it stands.
        place: String,
        /// Which object.
        object: String,
        /// The server's words.
        problem: String,
    },
    /// A sample that the plugin's defaulter or validator refuses.
    #[error("{place}: the plugin refuses the sample {object}: {problem}; give a sample that it takes")]
    Refused {
        /// Where it stands.
        place: String,
        /// Which object.
        object: String,
        /// The plugin's words.
        problem: String,
    },
    /// A sample that the plugin is never asked about.
    #[error(
        "{place}: the plugin does not reconcile {object}, only objects with {filter}; give it as the state of the cluster"
    )]
    Unselected {
        /// Where it stands.
        place: String,
        /// Which object.
        object: String,
        /// The filter, in words.
        filter: String,
    },
    /// Nobody reconciles a sample.
    #[error(
        "{place}: the plugin does not reconcile {kind}, only {kinds}; give other objects as the state of the cluster"
    )]
    WrongKind {
        /// Where it stands.
        place: String,
        /// Its kind.
        kind: Kind,
        /// The kinds that the plugin reconciles.
        kinds: String,
    },
    /// There is nothing to make objects from.
    #[error("the plugin brings no CRD for {0}; give a sample of it")]
    NoSource(String),
    /// No object could be made.
    #[error("none of {cases} objects could be stored; the last was refused: {problem}; give a sample")]
    NothingStorable {
        /// How many were tried.
        cases: u32,
        /// The server's words.
        problem: String,
    },
}

impl CheckError {
    fn refused(sample: &Document, words: &str) -> Self {
        Self::Refused {
            place: sample.place.to_string(),
            object: format!("{} {}", sample.kind.kind, sample.name),
            problem: words.to_owned(),
        }
    }
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// How many objects were judged.
    pub judged: u32,
    /// How many cases had no object that could be stored.
    pub discarded: u32,
    /// How long it took, without making failing objects smaller.
    pub elapsed: Duration,
    /// At most one for each property.
    pub violations: Vec<Violation>,
    /// How many of these objects the plugin refused, by its validator or with a failure for good.
    pub refused_by_plugin: u32,
    /// What the plugin says of these objects, the most frequent first.
    pub plugin_refusals: Vec<Remark>,
    /// In how many cases an API server refuses the values of an object that the plugin wants, of one of Kubernetes' own kinds.
    pub refusals: u32,
    /// What the server says of these objects, the most frequent first.
    pub refused: Vec<Remark>,
    /// Properties that were asked for, and that no object gave an opportunity to break: `deletion`, where none has a finalizer.
    pub untried: Vec<Property>,
    /// Kinds that the plugin writes, and of which nobody gave a CRD: whatever it writes is taken.
    pub unchecked: Vec<String>,
    /// Kinds for which no object could be made.
    pub without_source: Vec<String>,
    /// How often each accepted finding was found, in the order of [`Options::accepted`].
    pub accepted: Vec<u32>,
}

/// An object with which a plugin breaks a property.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The property.
    pub property: Property,
    /// The case.
    pub case: u32,
    /// How it is broken, by the smallest object.
    pub problem: String,
    /// The smallest object that was found to break it.
    pub object: Value,
    /// How often it was made smaller.
    pub shrunk: usize,
}

impl Report {
    /// Judged objects in a second.
    pub fn per_second(&self) -> f64 {
        f64::from(self.judged) / self.elapsed.as_secs_f64().max(1e-6)
    }
}

/// Looks for objects with which the plugin breaks a property.
pub fn check(plugin: &Isolated, options: &Options) -> Result<Report, CheckError> {
    let judge = Judge {
        plugin,
        cluster: &options.cluster,
        now: options.now,
        runtime: store::runtime(),
    };
    let samples = samples(plugin, options)?;
    let sources = sources(plugin.manifest(), &samples);
    let without_source: Vec<String> = sources
        .iter()
        .filter(|it| !it.has_any())
        .map(|it| it.kind.to_string())
        .collect();
    let sources: Vec<&Source<'_>> = sources.iter().filter(|it| it.has_any()).collect();
    if sources.is_empty() {
        return Err(CheckError::NoSource(without_source.join(", ")));
    }
    let mut report = Report {
        without_source,
        accepted: vec![0; options.accepted.len()],
        ..Report::default()
    };
    let mut wanted = options.properties.clone();
    let mut is_deletion_tried = false;
    let cases = match options.only_case {
        Some(case) => case..case.saturating_add(1),
        None => 0..options.cases,
    };
    let (mut refusals, mut by_plugin, mut unstorable) = (Remarks::default(), Remarks::default(), String::new());
    let mut shrinking = Duration::ZERO;
    let begun = Instant::now();
    for case in cases {
        if wanted.is_empty() {
            break;
        }
        let seed = options.seed.wrapping_add(u64::from(case).wrapping_mul(STEP));
        let sample = samples.get(case as usize);
        let found = if let Some((document, object)) = sample {
            let judged = judge
                .judge(object, seed, &wanted)
                .map_err(|refused| CheckError::Sample {
                    place: document.place.to_string(),
                    object: format!("{} {}", document.kind.kind, document.name),
                    problem: format!("{}{}", refused.0, quoting_hint(&refused.0)),
                })?;
            Some((object.clone(), judged))
        } else {
            drawn(&judge, &sources, seed, &wanted, &mut unstorable)
        };
        let Some((object, mut judged)) = found else {
            report.discarded += 1;
            continue;
        };
        report.judged += 1;
        if let Some(refused) = &judged.refusal {
            if let Some((document, _)) = sample.filter(|_| refused.is_early) {
                return Err(CheckError::refused(document, &refused.words));
            }
            report.refused_by_plugin += 1;
            by_plugin.add(case, std::slice::from_ref(&refused.words));
        }
        if report.judged == 1 {
            report.unchecked = judged.unknown.iter().map(Kind::to_string).collect();
        }
        is_deletion_tried |= judged.is_deleted;
        report.refusals += u32::from(!judged.refused.is_empty());
        let is_strict = options.strict || sample.is_some();
        refusals.add(case, &judged.refused);
        judged.refusals_as_findings(is_strict && wanted.contains(&Property::Valid));
        for finding in judged.findings {
            if !wanted.contains(&finding.property) {
                continue;
            }
            if let Some(index) = options.accepted.iter().position(|it| it.accepts(&finding)) {
                report.accepted[index] += 1;
                continue;
            }
            wanted.retain(|property| *property != finding.property);
            let started = Instant::now();
            report
                .violations
                .push(judge.smallest(&object, seed, finding, case, is_strict, &options.accepted));
            shrinking += started.elapsed();
        }
    }
    report.elapsed = begun.elapsed().saturating_sub(shrinking);
    if report.judged == 0 {
        return Err(CheckError::NothingStorable {
            cases: report.discarded,
            problem: unstorable,
        });
    }
    report.refused = refusals.list();
    report.plugin_refusals = by_plugin.list();
    if options.properties.contains(&Property::Deletion) && !is_deletion_tried {
        report.untried.push(Property::Deletion);
    }
    Ok(report)
}

/// The samples, each in the namespace that it is created in.
fn samples<'a>(plugin: &Isolated, options: &'a Options) -> Result<Vec<(&'a Document, Value)>, CheckError> {
    let controllers = &plugin.manifest().manifest.controllers;
    let mut samples = Vec::new();
    for document in &options.samples {
        if !controllers.iter().any(|controller| controller.kind == document.kind) {
            let kinds: Vec<String> = controllers
                .iter()
                .map(|controller| controller.kind.to_string())
                .collect();
            return Err(CheckError::WrongKind {
                place: document.place.to_string(),
                kind: document.kind.clone(),
                kinds: kinds.join(", "),
            });
        }
        let mut object = document.object.clone();
        plugin.place(&mut object, "default");
        if let Some(filter) = plugin.unselected(&object) {
            return Err(CheckError::Unselected {
                place: document.place.to_string(),
                object: format!("{} {}", document.kind.kind, document.name),
                filter,
            });
        }
        samples.push((document, object));
    }
    Ok(samples)
}

/// The first object of a case that can be stored and that the plugin takes, judged. Of objects that it refuses the last is taken if
/// there is no other, and the first that breaks something.
fn drawn(
    judge: &Judge<'_>,
    sources: &[&Source<'_>],
    seed: u64,
    wanted: &[Property],
    unstorable: &mut String,
) -> Option<(Value, Judged)> {
    let mut random = Rng::with_seed(seed);
    let (mut refused, mut tried) = (None, 0);
    for _ in 0..DRAWS {
        let source = sources[random.usize(..sources.len())];
        let object = source.object(&mut random);
        match judge.judge(&object, seed, wanted) {
            Ok(judged) if judged.refusal.is_none() || !judged.findings.is_empty() => return Some((object, judged)),
            Ok(judged) => {
                refused = Some((object, judged));
                tried += 1;
            }
            Err(refused) => *unstorable = refused.0,
        }
        if tried == DRAWS_OF_REFUSED {
            break;
        }
    }
    refused
}

impl Judged {
    /// What a server refuses for its values breaks a property, if that is wanted.
    fn refusals_as_findings(&mut self, is_wanted: bool) {
        if let Some(refusal) = self.refused.first().filter(|_| is_wanted) {
            let problem = format!("the API server refuses {refusal}");
            self.findings.push(judge::Finding::new(Property::Valid, problem));
        }
    }
}

impl Judge<'_> {
    /// Makes an object smaller that breaks a property.
    fn smallest(
        &self,
        object: &Value,
        seed: u64,
        finding: judge::Finding,
        case: u32,
        is_strict: bool,
        accepted: &[AcceptedFinding],
    ) -> Violation {
        let judge::Finding { property, mut problem } = finding;
        let whose = identity(object).ok();
        let (object, shrunk) = shrink::shrink(object, |candidate| {
            let is_same: Option<(Kind, Name)> = identity(candidate).ok();
            if is_same.as_ref().map(|(kind, _)| kind) != whose.as_ref().map(|(kind, _)| kind) {
                return false;
            }
            let Ok(mut judged) = self.judge(candidate, seed, &[property]) else {
                return false;
            };
            judged.refusals_as_findings(is_strict && property == Property::Valid);
            let is_accepted = |finding: &judge::Finding| accepted.iter().any(|it| it.accepts(finding));
            match judged.findings.into_iter().find(|finding| !is_accepted(finding)) {
                Some(found) => {
                    problem = found.problem;
                    true
                }
                None => false,
            }
        });
        Violation {
            property,
            case,
            problem,
            object,
            shrunk,
        }
    }
}
