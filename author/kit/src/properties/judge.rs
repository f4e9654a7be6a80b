//! Judges one object: decides which properties the plugin breaks for it. `world` is the cluster, and `mod` finds
//! objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use pilothouse_core::Kind;
use pilothouse_core::status::failure::Retry;
use pilothouse_core::status::reason::Reason;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::source::Schemas;
use super::world::{Applied, World};
use crate::properties::property::Property;
use crate::{
    diff::{diff, hidden},
    documents::Document,
    isolation::{Failed, FinalizerAnswer, Isolated, Reconciled, Run, Shown},
};

/// Rounds after which nothing may change any more.
const ROUNDS: usize = 8;

/// A finalizer lets go after so many rounds.
const FINAL_ROUNDS: usize = 10;

/// Step of the clock between two rounds of a finalizer that requests no requeue time.
const PAUSE: u64 = 60_000;

/// Maximum count of requeue times to which the clock is moved.
const MOMENTS: usize = 3;

/// The number of failures before, for the call that must not differ from the first one.
const LATER_ATTEMPT: u32 = 5;

/// Breach of a property.
#[derive(Debug, Clone)]
pub(super) struct Finding {
    pub(super) property: Property,
    pub(super) problem: String,
}

impl Finding {
    pub(super) fn new(property: Property, problem: impl Into<String>) -> Self {
        Self {
            property,
            problem: problem.into(),
        }
    }
}

/// Judgement of one object.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) findings: Vec<Finding>,
    /// Objects of Kubernetes' own kinds that the plugin wants and an API server refuses for their values.
    pub(super) refused: Vec<String>,
    /// Why the plugin refuses the object, so that little can be said of it.
    pub(super) refusal: Option<Refused>,
    /// Kinds that the plugin writes and of which nothing is known.
    pub(super) unknown: BTreeSet<Kind>,
    /// Set if the object was deleted with a finalizer, which the plugin has to remove.
    pub(super) is_deleted: bool,
}

/// A refusal of an object by the plugin.
#[derive(Debug)]
pub(super) struct Refused {
    /// Set if the defaulter or the validator refused it, so that it did not reach the reconcile.
    pub(super) is_early: bool,
    pub(super) words: String,
}

impl Refused {
    /// A failure that stays as long as the object is as it is.
    fn of(answer: &Answer) -> Option<Self> {
        let failure = &answer.as_ref().err()?.failure;
        let is_early = failure.reason == Reason::Invalid;
        let is_permanent = failure.reason == Reason::Failure && failure.retry == Retry::Change;
        (is_early || is_permanent).then(|| Self {
            is_early,
            words: failure.message.clone(),
        })
    }
}

/// The object cannot be stored, so that no plugin ever sees it.
#[derive(Debug)]
pub(super) struct Unstorable(pub(super) String);

type Answer = Result<Run, Box<Failed>>;

/// Judges objects.
pub(super) struct Judge<'a> {
    pub(super) plugin: &'a Isolated,
    pub(super) cluster: &'a [Document],
    pub(super) now: u64,
    pub(super) runtime: Arc<Runtime>,
}

impl Judge<'_> {
    /// Judges an object by these properties.
    pub(super) fn judge(&self, object: &Value, seed: u64, wanted: &[Property]) -> Result<Judged, Unstorable> {
        let once = self.plugin.clone().once();
        let world = World::new(&once, self.cluster, self.runtime.clone(), self.now, object);
        let mut world = world.map_err(|refusal| Unstorable(refusal.to_string()))?;
        let mut judged = Judged::default();
        let Some(primary) = world.primary() else {
            return Err(Unstorable("it is gone at once".to_owned()));
        };
        if let Some(filter) = self.plugin.unselected(&primary) {
            return Err(Unstorable(format!(
                "the plugin is asked only about objects with {filter}"
            )));
        }
        judged.unknown.clone_from(world.unknown());
        self.look(&world, &primary, seed, wanted, &mut judged);
        Self::settle(&mut world, wanted, &mut judged);
        if let Some(primary) = world.primary() {
            // And again with all that the plugin has made.
            self.look(&world, &primary, seed, wanted, &mut judged);
        }
        if wanted.contains(&Property::Deletion) {
            self.delete(&mut world, &mut judged);
        }
        judged.findings.retain(|finding| wanted.contains(&finding.property));
        Ok(judged)
    }

    /// Asks about the object as it is, in several ways that should make no difference.
    fn look(&self, world: &World<'_>, primary: &Value, seed: u64, wanted: &[Property], judged: &mut Judged) {
        let plugin = world.plugin();
        let asked = |plugin: Isolated| plugin.run(primary);
        let first = asked(plugin.clone());
        judged.failure(&first);
        if judged.refusal.is_none() {
            judged.refusal = Refused::of(&first);
        }
        let mut compare = |property: Property, other: Answer, words: &str| {
            if let Some(difference) = difference(&first, &other) {
                judged
                    .findings
                    .push(Finding::new(property, format!("{words}:\n{difference}")));
            }
        };
        if wanted.contains(&Property::Equal) {
            compare(
                Property::Equal,
                asked(plugin.clone()),
                "two calls with the same inputs differ",
            );
            // To fail until something was tried again is what the number of attempts is for.
            let later = asked(plugin.clone().after_failures(LATER_ATTEMPT));
            if first.is_ok() && later.is_ok() {
                compare(
                    Property::Equal,
                    later,
                    "the answer differs with the number of failures before it",
                );
            }
        }
        if wanted.contains(&Property::Declared) {
            let words =
                "the answer depends on fields that the manifest does not declare: it differs with the whole object";
            compare(Property::Declared, asked(plugin.clone().showing(Shown::Whole)), words);
        }
        if wanted.contains(&Property::Order) {
            let shuffled = plugin.clone().showing(Shown::Shuffled(seed));
            compare(
                Property::Order,
                asked(shuffled),
                "the answer depends on the order of a map's members",
            );
            let schemas = Schemas {
                manifest: plugin.manifest(),
                cluster: self.cluster,
            };
            let words = "whose order has no meaning (x-kubernetes-list-type set or map)";
            let mut reordered = primary.clone();
            let own = schemas.reorder(&mut reordered).then(|| {
                let problem = unordered_difference(&first, &plugin.run(&reordered))?;
                Some(format!("the answer depends on the order of a list {words}:\n{problem}"))
            });
            let read = || {
                let (other, objects) = world.reordered(&schemas)?;
                let problem = unordered_difference(&first, &other.at(world.now()).run(primary))?;
                let objects = objects.join(", ");
                Some(format!(
                    "the answer depends on the order of a list of {objects}, {words}:\n{problem}"
                ))
            };
            if let Some(problem) = own.flatten().or_else(read) {
                judged.findings.push(Finding::new(Property::Order, problem));
            }
        }
    }

    /// Carries answers out until nothing changes, now and at the next times for which the plugin asks.
    fn settle(world: &mut World<'_>, wanted: &[Property], judged: &mut Judged) {
        for _ in 0..MOMENTS {
            let Some(next) = Self::settle_now(world, wanted, judged) else {
                return;
            };
            world.set_now(next);
        }
        Self::settle_now(world, wanted, judged);
    }

    /// The same at this time; says when the plugin wants to run again. Of a time that it asks for and one at which a reading of the
    /// clock will be another it is the later, so that a look at the second hand does not keep the clock from a schedule.
    fn settle_now(world: &mut World<'_>, wanted: &[Property], judged: &mut Judged) -> Option<u64> {
        let mut before = world.state();
        let mut attempt = 0;
        for _ in 0..ROUNDS {
            let primary = world.primary()?;
            let run = world.plugin().after_failures(attempt).run(&primary);
            judged.failure(&run);
            let Ok(run) = run else {
                // What fails for the time being fails no more after some attempts, or does so forever.
                attempt += 1;
                continue;
            };
            attempt = 0;
            let mut applied = world.carry_out(&run.reconciled.answer);
            world.report(&run.reconciled.answer, &mut applied);
            judged.applied(applied);
            let after = world.state();
            if after == before {
                let Reconciled { answer, reads, .. } = &run.reconciled;
                let wait = answer.requeue_after.map(|wait| world.now().saturating_add(wait));
                return wait.max(reads.again).filter(|next| *next > world.now());
            }
            before = after;
        }
        if attempt > 0 || !wanted.contains(&Property::FixedPoint) {
            return None;
        }
        let primary = world.primary()?;
        if let Ok(run) = world.plugin().run(&primary) {
            world.carry_out(&run.reconciled.answer);
            world.report(&run.reconciled.answer, &mut Applied::default());
        }
        if let Some(changed) = changes(&before, &world.state()) {
            let (last, time) = (ROUNDS, world.time());
            let problem =
                format!("after {last} rounds at {time} the plugin still changes what it has made:\n{changed}");
            judged.findings.push(Finding::new(Property::FixedPoint, problem));
        }
        None
    }

    /// Deletes the object, and sees that the finalizer ends and nothing is left.
    fn delete(&self, world: &mut World<'_>, judged: &mut Judged) {
        let Some(primary) = world.primary() else { return };
        let kind = primary["kind"].as_str().unwrap_or_default();
        let controllers = &self.plugin.manifest().manifest.controllers;
        let controller = controllers
            .iter()
            .find(|it| it.kind.kind == kind && it.kind.api_version() == primary["apiVersion"]);
        let Some(finalizer) = controller.and_then(|controller| controller.finalizer.as_deref()) else {
            return;
        };
        judged.is_deleted = true;
        if let Err(refusal) = world.delete(finalizer) {
            judged.findings.push(Finding::new(
                Property::Deletion,
                format!("the object cannot be deleted: {refusal}"),
            ));
            return;
        }
        let mut last = String::new();
        for round in 0..FINAL_ROUNDS {
            let Some(primary) = world.primary() else { return };
            let attempt = u32::try_from(round).unwrap_or(u32::MAX);
            match world.plugin().after_failures(attempt).run(&primary) {
                Ok(run) if run.finalizer == Some(FinalizerAnswer::Done) => {
                    world.carry_out(&run.reconciled.answer);
                    let released = world.release();
                    let left: Vec<String> = world.owned().iter().map(title).collect();
                    if let Err(refusal) = released {
                        let problem = format!("the finalizer cannot be taken off: {refusal}");
                        judged.findings.push(Finding::new(Property::Deletion, problem));
                    } else if !left.is_empty() {
                        let problem = format!("the object is gone and leaves {}", left.join(", "));
                        judged.findings.push(Finding::new(Property::Deletion, problem));
                    }
                    return;
                }
                Ok(run) => {
                    let answer = &run.reconciled.answer;
                    let applied = world.carry_out(answer);
                    judged.applied(applied);
                    let titles = run.reconciled.titles();
                    last = if titles.is_empty() {
                        "waits, and wants nothing".to_owned()
                    } else {
                        format!("still wants {}", titles.join(", "))
                    };
                    world.set_now(world.now().saturating_add(answer.requeue_after.unwrap_or(PAUSE)));
                }
                Err(failed) => {
                    last = format!("fails: {}", failed.failure.message);
                    judged.failure(&Err(failed));
                    world.set_now(world.now().saturating_add(PAUSE));
                }
            }
        }
        let problem = format!("the finalizer has not let the object go after {FINAL_ROUNDS} rounds: it {last}");
        judged.findings.push(Finding::new(Property::Deletion, problem));
    }
}

impl Judged {
    /// Judges a failure: only an object that was stored may be refused.
    fn failure(&mut self, answer: &Answer) {
        let Err(failed) = answer else { return };
        let property = match failed.failure.reason {
            _ if failed.is_impure => Property::Equal,
            Reason::GuestTrap | Reason::GuestLimit | Reason::InvalidAnswer | Reason::HostFault => Property::NoTrap,
            Reason::Undeclared => Property::Declared,
            _ => return,
        };
        self.findings.push(Finding::new(property, failed.to_string()));
    }

    fn applied(&mut self, applied: Applied) {
        let Applied { findings, refused } = applied;
        self.findings.extend(findings);
        self.refused.extend(refused);
    }
}

/// Returns the difference of two answers; none if they are equal.
fn difference(first: &Answer, other: &Answer) -> Option<String> {
    match (first, other) {
        (Ok(first), Ok(other)) => {
            let is_same = first.reconciled.answer == other.reconciled.answer && first.finalizer == other.finalizer;
            (!is_same).then(|| shown_difference(&first.reconciled.to_value(), &other.reconciled.to_value()))
        }
        (Err(first), Err(other)) if first.failure.reason == other.failure.reason => None,
        (first, other) => Some(format!("{}, and then {}", outcome(first), outcome(other))),
    }
}

fn unordered_difference(first: &Answer, other: &Answer) -> Option<String> {
    match (first, other) {
        (Ok(first), Ok(other)) => {
            let (first, other) = (first.reconciled.to_value(), other.reconciled.to_value());
            (sorted(&first) != sorted(&other)).then(|| shown_difference(&first, &other))
        }
        _ => difference(first, other),
    }
}

fn shown_difference(first: &Value, other: &Value) -> String {
    let hide = |value: &Value| {
        let mut value = value.clone();
        for member in ["objects", "contributed"] {
            for object in value[member].as_array_mut().into_iter().flatten() {
                *object = hidden(object);
            }
        }
        value
    };
    diff(&hide(first), &hide(other)).unwrap_or_else(|| "values of a Secret differ".to_owned())
}

/// Sorts every list of objects, so that lists in the order of the input compare equal.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| (name.clone(), sorted(member)))
            .collect(),
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(sorted).collect();
            items.sort_by_key(Value::to_string);
            items.into()
        }
        scalar => scalar.clone(),
    }
}

fn outcome(answer: &Answer) -> String {
    match answer {
        Ok(_) => "an answer".to_owned(),
        Err(failed) => format!("a failure ({}: {})", failed.failure.reason, failed.failure.message),
    }
}

/// Returns the difference of two states of the cluster.
fn changes(before: &[Value], after: &[Value]) -> Option<String> {
    let uid = |object: &Value| object["metadata"]["uid"].clone();
    let mut parts = Vec::new();
    for object in after {
        match before.iter().find(|old| uid(old) == uid(object)) {
            Some(old) => parts.extend(diff(old, object).map(|shown| format!("{}:\n{shown}", title(object)))),
            None => parts.push(format!("{} is made\n", title(object))),
        }
    }
    let gone = before
        .iter()
        .filter(|old| after.iter().all(|object| uid(old) != uid(object)));
    parts.extend(gone.map(|old| format!("{} is deleted\n", title(old))));
    (!parts.is_empty()).then(|| parts.concat())
}

pub(super) fn title(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    match text("/metadata/namespace") {
        "" => format!("{} {}", text("/kind"), text("/metadata/name")),
        namespace => format!("{} {namespace}/{}", text("/kind"), text("/metadata/name")),
    }
}
