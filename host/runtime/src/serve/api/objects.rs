//! Makes the document about one object: resolves its kind, and shows its state in the controllers that reconcile it,
//! or, if plugins made the object, its owners.

use std::collections::{BTreeMap, BTreeSet};

use pilothouse_cluster::object::CachedObject;
use pilothouse_cluster::write::permissions::Permission;
use pilothouse_core::kubernetes::fields::FieldSet;
use pilothouse_core::kubernetes::served::is_called;
use pilothouse_core::reads::dependencies::read::Read;
use pilothouse_core::reads::query::CheckedQuery;
use pilothouse_core::{Key, Kind, Name};

use super::access::Refusal;
use super::documents::{
    ChildDocument, ControllerView, DependencyDocument, FieldManagerDocument, MakerDocument, ObjectDocument, ObjectName,
    RevertDocument, RunDocument,
};
use super::status::{ProcessFacts, failure_document, host, key_name, kind_name, next_run, object_name};
use crate::context::HostContext;
use crate::lanes::pause::{is_paused, unclear_pause};
use crate::plugins::PluginRegistry;
use crate::process::clock::rfc3339;
use crate::queue::ObjectState;
use crate::state::Explanation;
use crate::state::tables::history::{Revert, Run, RunResult};

/// The longest value in a query, in bytes.
const LONGEST: usize = 512;

/// The most yielded fields of one child that are listed.
const MOST_YIELDED: usize = 20;

/// A query for an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectQuestion {
    /// `KIND`, `KIND.GROUP`, or the plural or a short name in the place of the kind, in upper or lower case.
    pub kind: String,
    /// Name and namespace.
    pub name: Name,
}

/// Reason why a query does not identify an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownObject {
    /// The query is malformed.
    #[error("ask for kind=KIND, name=NAME and, for an object in a namespace, namespace=NAMESPACE, without escapes")]
    NoQuestion,
    /// No plugin uses the kind.
    #[error("no plugin of this host reconciles or makes objects of kind {0}; `pilothouse status` lists the kinds")]
    Kind(String),
    /// Several kinds have this name.
    #[error("{0} may be {1}; write KIND.GROUP")]
    Ambiguous(String, String),
}

impl From<UnknownObject> for Refusal {
    fn from(problem: UnknownObject) -> Self {
        let code = match problem {
            UnknownObject::NoQuestion | UnknownObject::Ambiguous(..) => 400,
            UnknownObject::Kind(_) => 404,
        };
        Self::new(code, problem.to_string())
    }
}

impl ObjectQuestion {
    /// Reads the query of a request. Valid names need no escapes.
    pub fn read(query: &str) -> Result<Self, UnknownObject> {
        let mut members = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (member, value) = pair.split_once('=').ok_or(UnknownObject::NoQuestion)?;
            let is_plain = value.len() <= LONGEST && !value.contains(['%', '+', '/']);
            if !is_plain || members.insert(member, value).is_some() {
                return Err(UnknownObject::NoQuestion);
            }
        }
        let mut take = |member| members.remove(member).filter(|value| !value.is_empty());
        match (take("kind"), take("name"), take("namespace")) {
            (Some(kind), Some(name), namespace) => Ok(Self {
                kind: kind.to_owned(),
                name: Name::new(namespace, name),
            }),
            _ => Err(UnknownObject::NoQuestion),
        }
    }
}

/// Resolves a kind among those that plugins reconcile, else among those that they make.
pub fn resolve(context: &HostContext, asked: &str) -> Result<Kind, UnknownObject> {
    let lanes = context.state.lanes();
    let primaries: BTreeSet<&Kind> = lanes.iter().map(|lane| lane.grants.primary()).collect();
    let owned: BTreeSet<&Kind> = lanes.iter().flat_map(|lane| lane.owned_kinds()).collect();
    let served = context.kinds.served();
    let is_meant = |kind: &Kind| {
        let served = served.get(kind);
        let others = served
            .iter()
            .flat_map(|served| served.short_names.iter().chain([&served.plural]));
        is_called(kind, others, asked)
    };
    for kinds in [primaries, owned] {
        let mut meant = kinds.into_iter().filter(|kind| is_meant(kind));
        let Some(first) = meant.next() else { continue };
        let others: Vec<&Kind> = meant.filter(|other| !other.same_kind(first)).collect();
        if others.is_empty() {
            return Ok(first.clone());
        }
        let names = std::iter::once(first).chain(others).map(|kind| {
            let Kind { group, kind, .. } = kind;
            format!("{kind}.{group}")
        });
        let names: BTreeSet<String> = names.collect();
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        return Err(UnknownObject::Ambiguous(asked.to_owned(), names));
    }
    Err(UnknownObject::Kind(asked.to_owned()))
}

/// Drops the namespace of a cluster-scoped object, whatever a client adds.
pub fn placed(context: &HostContext, kind: &Kind, name: Name) -> Name {
    let served = context.kinds.served().get(kind);
    if served.is_some_and(|served| !served.facts.namespaced) {
        return Name::new(None, &name.name);
    }
    name
}

/// A kind and a namespace, in which a client may see objects or not. `None`: all namespaces, or cluster scope.
pub type Place = (Kind, Option<String>);

/// State of an object, before anything is left out.
pub struct KnownObject {
    document: ObjectDocument,
    kind: Kind,
    explained: Vec<Explanation>,
}

/// Looks an object up.
pub fn lookup(
    process: &ProcessFacts,
    context: &HostContext,
    registry: &PluginRegistry,
    kind: &Kind,
    name: &Name,
) -> KnownObject {
    let explained = context.state.explain(kind, name);
    let object = explained.iter().find_map(|explanation| explanation.object.clone());
    let object = object.or_else(|| context.state.get(kind, name));
    let is_primary = !explained.is_empty();
    let works = context.leadership.leads() || context.shards.lock().is_some();
    let mut host = host(process, context, registry);
    // They name plugins, which takes a right of its own.
    host.not_ready.clear();
    let made_for = context
        .state
        .owners_of(kind, name)
        .into_iter()
        .map(|(lane, owner)| MakerDocument {
            plugin: lane.plugin.to_string(),
            controller: lane.controller.clone(),
            object: object_name(lane.grants.primary(), &owner),
        });
    KnownObject {
        document: ObjectDocument {
            host,
            object: object_name(kind, name),
            reconciled_here: works && explained.iter().all(|explanation| explanation.is_owned),
            exists: object.is_some(),
            deleting: object.as_ref().is_some_and(|object| object.deleting),
            paused: is_primary && object.as_ref().is_some_and(|object| is_paused(object)),
            warning: object.as_deref().filter(|_| is_primary).and_then(unclear_pause),
            controllers: Vec::new(),
            made_for: made_for.collect(),
        },
        kind: kind.clone(),
        explained,
    }
}

impl KnownObject {
    /// Places of all other objects that are named.
    pub fn places(&self) -> BTreeSet<Place> {
        let mut places = BTreeSet::new();
        for explanation in &self.explained {
            let reads = explanation.reads.first.iter().map(place_of_read);
            let coarse = explanation.coarse.iter().map(|kind| ((**kind).clone(), None));
            let children = explanation
                .children
                .first
                .iter()
                .map(|(kind, child)| place(kind, &child.name));
            let targets = explanation.targets.first.iter().map(|key| place(&key.kind, &key.name));
            let triggers = explanation.runs.iter().filter_map(|run| run.trigger.object.as_ref());
            let triggers = triggers.map(|key| place(&key.kind, &key.name));
            let reverted = explanation.reverts.iter();
            let reverted = reverted.map(|revert| place(&revert.object.kind, &revert.object.name));
            places.extend(
                reads
                    .chain(coarse)
                    .chain(children)
                    .chain(targets)
                    .chain(triggers)
                    .chain(reverted),
            );
        }
        let makers = self.document.made_for.iter().map(|maker| place_of_name(&maker.object));
        places.extend(makers);
        places
    }

    /// Makes the document for a client that may see the objects in these places.
    pub fn told(self, visible: &BTreeSet<Place>) -> ObjectDocument {
        let Self {
            mut document,
            kind,
            explained,
        } = self;
        document
            .made_for
            .retain(|maker| visible.contains(&place_of_name(&maker.object)));
        let views = explained
            .into_iter()
            .map(|explanation| view(explanation, &kind, visible));
        document.controllers = views.collect();
        document
    }
}

/// The right to get objects in a place. With it, or with the right to list them, a client may see them here.
pub fn right_to_see_place(context: &HostContext, (kind, namespace): &Place) -> Option<Permission> {
    let served = context.kinds.served().get(kind)?;
    Some(Permission {
        group: kind.group.clone(),
        resource: served.plural,
        namespace: namespace.clone(),
        name: None,
        verb: "get",
    })
}

fn place(kind: &Kind, name: &Name) -> Place {
    (kind.clone(), name.namespace.as_deref().map(str::to_owned))
}

fn place_of_name(object: &ObjectName) -> Place {
    let kind = Kind::from_api_version(&object.kind.api_version, &object.kind.kind);
    (kind, object.namespace.clone())
}

fn place_of_read(read: &Read) -> Place {
    match read {
        Read::Get(kind, name) | Read::Obstacle(kind, name) => place(kind, name),
        Read::List(kind, query) => ((**kind).clone(), query.namespace.clone()),
        Read::Some(kind) | Read::SomeObstacles(kind) => ((**kind).clone(), None),
    }
}

fn view(explanation: Explanation, primary: &Kind, visible: &BTreeSet<Place>) -> ControllerView {
    let Explanation {
        lane,
        is_open,
        is_owned: _,
        object,
        queued,
        failure,
        reads,
        coarse,
        children,
        targets,
        runs,
        reverts,
    } = explanation;
    let own = object.map(|object| place(primary, &object.name));
    let sees = |place: &Place| visible.contains(place) || own.as_ref() == Some(place);
    let [more_reads, more_children, more_targets] = [reads.left_out(), children.left_out(), targets.left_out()];
    let reads = reads.first.into_iter().chain(coarse.into_iter().map(Read::Some));
    let (depends_on, hidden_reads) = shown(
        reads.collect(),
        |read| sees(&place_of_read(read)),
        |read| dependency(&read),
    );
    let (children, hidden_children) = shown(
        children.first,
        |(kind, child)| sees(&place(kind, &child.name)),
        |(kind, child)| ChildDocument {
            deleting: child.deleting,
            yielded: yielded(&child, lane.writer.manager()),
            object: key_name(&Key::new(kind, child.name.clone())),
        },
    );
    let (contributes_to, hidden_targets) = shown(
        targets.first,
        |key| sees(&place(&key.kind, &key.name)),
        |key| key_name(&key),
    );
    ControllerView {
        plugin: lane.plugin.to_string(),
        controller: lane.controller.clone(),
        synced: is_open,
        state: match queued.state {
            ObjectState::Idle => "Idle",
            ObjectState::Queued(_) => "Queued",
            ObjectState::Held => "Held",
            ObjectState::Running(_) => "Running",
            ObjectState::Delayed(_) => "Delayed",
        }
        .to_owned(),
        for_seconds: match queued.state {
            ObjectState::Queued(since) | ObjectState::Running(since) => Some(since.elapsed().as_secs_f64()),
            ObjectState::Idle | ObjectState::Held | ObjectState::Delayed(_) => None,
        },
        next_run_in_seconds: next_run(queued),
        failure: failure.map(|failure| failure_document(&failure, queued)),
        depends_on_not_listed: hidden_reads + more_reads,
        depends_on,
        children_not_listed: hidden_children + more_children,
        children,
        contributes_to_not_listed: hidden_targets + more_targets,
        contributes_to,
        runs: runs.into_iter().map(|run| run_document(run, &sees)).collect(),
        reverted: reverts
            .into_iter()
            .filter(|revert| sees(&place(&revert.object.kind, &revert.object.name)))
            .map(revert_document)
            .collect(),
    }
}

/// The fields that a child leaves to other managers.
fn yielded(child: &CachedObject, manager: &str) -> Vec<String> {
    let taken = child.taken(manager);
    let fields: BTreeSet<String> = taken.iter().flat_map(FieldSet::leaves).collect();
    fields.into_iter().take(MOST_YIELDED).collect()
}

/// The visible items, and the number of hidden ones.
fn shown<T, D>(all: Vec<T>, sees: impl Fn(&T) -> bool, tell: impl Fn(T) -> D) -> (Vec<D>, u64) {
    let before = all.len();
    let shown: Vec<D> = all.into_iter().filter(|it| sees(it)).map(tell).collect();
    let hidden = (before - shown.len()) as u64;
    (shown, hidden)
}

fn dependency(read: &Read) -> DependencyDocument {
    let (how, name, query) = match read {
        Read::Get(_, name) => ("Get", Some(name), None),
        Read::Obstacle(_, name) => ("Obstacle", Some(name), None),
        Read::List(_, query) => ("List", None, Some(query)),
        Read::Some(_) | Read::SomeObstacles(_) => ("Kind", None, None),
    };
    let namespace = match (name, query) {
        (Some(name), _) => name.namespace.as_deref(),
        (None, Some(query)) => query.namespace.as_deref(),
        (None, None) => None,
    };
    DependencyDocument {
        read: how.to_owned(),
        kind: kind_name(read.kind()),
        namespace: namespace.map(str::to_owned),
        name: name.map(|name| name.name.to_string()),
        selector: query.and_then(|query| selector(query)),
    }
}

/// Conditions of a query. Values of fields are left out, because those of a Secret must not be shown.
fn selector(query: &CheckedQuery) -> Option<String> {
    let CheckedQuery {
        namespace: _,
        labels,
        fields,
        names,
        limit: _,
        until: _,
    } = query;
    let mut conditions = Vec::new();
    if !labels.is_empty() {
        conditions.push(labels.to_string());
    }
    conditions.extend(fields.iter().map(|(path, _)| format!("{path} has a given value")));
    if !names.is_empty() {
        conditions.push(format!("named {}", names.join(" or ")));
    }
    (!conditions.is_empty()).then(|| conditions.join("; "))
}

fn run_document(run: Run, sees: &impl Fn(&Place) -> bool) -> RunDocument {
    let (took, waited) = (run.took(), run.waited());
    let Run {
        trigger,
        ended,
        repeats,
        result,
        wrote,
        ..
    } = run;
    let by = trigger.object.filter(|key| sees(&place(&key.kind, &key.name)));
    let (result, blame, reason) = match result {
        RunResult::Success => ("Success", None, None),
        RunResult::Gone => ("Gone", None, None),
        RunResult::Paused => ("Paused", None, None),
        RunResult::Failure(blame, reason) => ("Failure", Some(blame.to_string()), Some(reason.as_str().to_owned())),
    };
    RunDocument {
        ended: rfc3339(ended),
        seconds: took.as_secs_f64(),
        queued_seconds: waited.as_secs_f64(),
        trigger: trigger.reason.as_str().to_owned(),
        triggered_by: by.map(|key| key_name(&key)),
        result: result.to_owned(),
        reason,
        blame,
        wrote,
        repeats: u64::from(repeats),
    }
}

fn revert_document(revert: Revert) -> RevertDocument {
    let Revert {
        at,
        object,
        takers,
        fields,
        more_fields,
    } = revert;
    let managers = takers.into_iter().map(|taker| FieldManagerDocument {
        manager: taker.manager,
        at: Some(taker.time).filter(|time| !time.is_empty()),
        fields: taker.fields,
    });
    RevertDocument {
        at: rfc3339(at),
        object: key_name(&object),
        fields,
        more_fields: more_fields as u64,
        managers: managers.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_names_kind_and_object() {
        let question = ObjectQuestion::read("kind=appservices.kosmos.io&namespace=a&name=b").unwrap();
        assert_eq!(question.kind, "appservices.kosmos.io");
        assert_eq!(question.name, Name::new(Some("a"), "b"));
        let cluster = ObjectQuestion::read("name=b&kind=Node&namespace=").unwrap();
        assert_eq!(cluster.name, Name::new(None, "b"));
        for refused in [
            "",
            "kind=a",
            "name=b",
            "kind=a&name=b&name=c",
            "kind=a&name=%62",
            "kind=a&name=b+c",
            "kind=a&name=b/c",
            "kind&name",
        ] {
            assert_eq!(
                ObjectQuestion::read(refused),
                Err(UnknownObject::NoQuestion),
                "{refused}"
            );
        }
    }

    #[test]
    fn what_somebody_may_not_see_is_counted_and_not_named() {
        let (shown, hidden) = shown(vec![1, 2, 3], |it| it % 2 == 1, |it| it * 10);
        assert_eq!((shown, hidden), (vec![10, 30], 1));
    }
}
