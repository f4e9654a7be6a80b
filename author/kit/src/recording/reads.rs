//! Serves the reads of a replayed call: the recorded answers, and the recorded time. An object that the recording lacks
//! is answered as absent, and the read is noted.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use pilothouse_core::plugin::contract::{Imports, ListOptions, LogLevel};
use pilothouse_core::plugin::grants::Grants;
use pilothouse_core::recording::{RecordedCall, RecordedFailure, RecordedGet, RecordedList, RecordedRead, Tree};
use pilothouse_core::{Failure, Kind, Name};

type GetKey = (Kind, Option<String>, String);
type ListKey = (Kind, ListOptions);

/// The answers to the reads of one call.
pub(super) struct Reads {
    /// Read rights of the component's own manifest.
    grants: Arc<Grants>,
    primary: Name,
    time: u64,
    gets: HashMap<GetKey, VecDeque<Answered<Option<Tree>>>>,
    lists: HashMap<ListKey, VecDeque<Answered<Vec<Tree>>>>,
    /// Reads that are not recorded, as text.
    pub(super) missing: BTreeSet<String>,
}

/// An answer, or why there was none.
#[derive(Clone)]
struct Answered<A> {
    answer: A,
    failure: Option<RecordedFailure>,
}

/// Evidence of the recorded lists about one object.
enum Listed {
    /// A list has it.
    Found(Tree),
    /// A list of all objects does not have it.
    Absent,
    /// No list says anything.
    Unknown,
}

impl Reads {
    /// Collects the reads of a recorded call.
    pub(super) fn of(call: &RecordedCall, grants: Arc<Grants>) -> Self {
        let mut reads = Self {
            grants,
            primary: Name::new(call.namespace.as_deref(), &call.name),
            time: call.time,
            gets: HashMap::new(),
            lists: HashMap::new(),
            missing: BTreeSet::new(),
        };
        for read in &call.reads {
            match read {
                RecordedRead::Get(get) => {
                    let RecordedGet {
                        kind,
                        namespace,
                        name,
                        answer,
                        failure,
                    } = get.clone();
                    let answered = Answered { answer, failure };
                    let answers = reads.gets.entry((kind, namespace, name)).or_default();
                    answers.push_back(answered);
                }
                RecordedRead::List(list) => {
                    let RecordedList {
                        kind, answer, failure, ..
                    } = list.clone();
                    let answers = reads.lists.entry((kind, list.options())).or_default();
                    answers.push_back(Answered { answer, failure });
                }
                // They follow from the time.
                RecordedRead::Now { .. } | RecordedRead::Reached { .. } => {}
            }
        }
        reads
    }

    /// Searches the lists for an object.
    fn listed(&self, kind: &Kind, namespace: Option<&str>, name: &str) -> Listed {
        let lists = self.lists.iter().filter(|((its, _), _)| its == kind);
        let mut is_absent = false;
        for ((_, options), answers) in lists {
            let Some(answered) = answers.front().filter(|answered| answered.failure.is_none()) else {
                continue;
            };
            let text = |object: &Tree, member: &str| {
                let value = object.get("metadata").and_then(|metadata| metadata.get(member));
                value.and_then(Tree::as_str).map(str::to_owned)
            };
            let is_it = |object: &&Tree| {
                text(object, "name").as_deref() == Some(name) && text(object, "namespace").as_deref() == namespace
            };
            if let Some(found) = answered.answer.iter().find(is_it) {
                return Listed::Found(found.clone());
            }
            let ListOptions {
                namespace: its,
                label_selector,
                field_selector,
                limit,
            } = options;
            let covers = its.as_deref().is_none_or(|its| Some(its) == namespace);
            is_absent |= covers && label_selector.is_none() && field_selector.is_empty() && limit.is_none();
        }
        if is_absent { Listed::Absent } else { Listed::Unknown }
    }
}

/// The next answer to a read; the last one stays.
fn next<A: Clone>(answers: &mut VecDeque<Answered<A>>) -> Option<Answered<A>> {
    if answers.len() > 1 {
        answers.pop_front()
    } else {
        answers.front().cloned()
    }
}

impl<A> Answered<A> {
    fn result(self) -> Result<A, Failure> {
        match self.failure {
            Some(failure) => Err(failure.failure()),
            None => Ok(self.answer),
        }
    }
}

impl Imports for Reads {
    fn get(&mut self, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Option<String>, Failure> {
        let key = (kind.clone(), namespace.map(str::to_owned), name.to_owned());
        if let Some(answered) = self.gets.get_mut(&key).and_then(next) {
            return Ok(answered.result()?.as_ref().map(Tree::text));
        }
        self.grants.check_get(&self.primary, kind, namespace, name)?;
        match self.listed(kind, namespace, name) {
            Listed::Found(object) => return Ok(Some(object.text())),
            Listed::Absent => return Ok(None),
            Listed::Unknown => {}
        }
        let name = Name::new(namespace, name);
        self.missing.insert(format!("{kind} {name}"));
        Ok(None)
    }

    fn list(&mut self, kind: &Kind, options: &ListOptions, _: u64) -> Result<Vec<String>, Failure> {
        let key = (kind.clone(), options.clone());
        if let Some(answered) = self.lists.get_mut(&key).and_then(next) {
            return Ok(answered.result()?.iter().map(Tree::text).collect());
        }
        self.grants.check_list(&self.primary, kind, options)?;
        let ListOptions {
            namespace,
            label_selector,
            field_selector,
            limit,
        } = options;
        let mut words = format!("the list of {kind}");
        match namespace {
            Some(namespace) => words.extend([" in namespace ", namespace.as_str()]),
            None => words.push_str(" in all namespaces"),
        }
        let labels = label_selector.iter().cloned();
        let fields = field_selector.iter().map(|(path, value)| format!("{path}={value}"));
        let limit = limit.map(|limit| format!("limit {limit}"));
        let conditions: Vec<String> = labels.chain(fields).chain(limit).collect();
        if !conditions.is_empty() {
            words.extend([" (", &conditions.join(", "), ")"]);
        }
        self.missing.insert(words);
        Ok(Vec::new())
    }

    fn now(&mut self, granularity: u64) -> u64 {
        self.time - self.time % granularity.max(1)
    }

    fn reached(&mut self, moment: u64) -> bool {
        self.time >= moment
    }

    fn log(&mut self, _: LogLevel, _: &str, _: &[(String, String)]) {}
}
