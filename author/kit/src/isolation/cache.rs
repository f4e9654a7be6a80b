//! Cache of objects that an isolated plugin reads: serves the kinds that the manifest declares, refuses the rest, and
//! records the reads.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
    ops::Deref,
    sync::Arc,
    time::{Duration, SystemTime},
};

use pilothouse_core::kubernetes::path::Projection;
use pilothouse_core::plugin::contract::{Imports, ListOptions, LogLevel};
use pilothouse_core::plugin::grants::{Grant, Grants};
use pilothouse_core::reads::dependencies::read::Read;
use pilothouse_core::reads::query::CheckedQuery;
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Failure, Kind, Name};
use pilothouse_simulator::rfc3339;
use serde_json::{Value, value::RawValue};

use super::shuffle::shuffled_text;

/// The objects of a pretended cluster.
pub(super) type Objects = BTreeMap<(Kind, Name), StoredObject>;

/// An object, and its text, so that a call does not pay for writing it: a host has the text.
#[derive(Debug, Clone)]
pub(super) struct StoredObject {
    pub(super) value: Value,
    text: Box<RawValue>,
}

impl StoredObject {
    pub(super) fn new(value: Value) -> Self {
        let text = RawValue::from_string(value.to_string()).expect("the text of a value is JSON");
        Self { value, text }
    }
}

/// Form in which a plugin sees objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Shown {
    /// Only the fields that the manifest declares, as in the host.
    #[default]
    Declared,
    /// Whole, whatever the manifest declares.
    Whole,
    /// The declared fields, with the members of all maps in another order, drawn from this seed.
    Shuffled(u64),
}

/// One line that the plugin has logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Level of the line.
    pub level: LogLevel,
    /// Its message.
    pub message: String,
    /// Its fields, in the plugin's order.
    pub fields: Vec<(String, String)>,
}

impl fmt::Display for LogLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, message, fields } = self;
        write!(formatter, "{level:?}: {message}")?;
        fields
            .iter()
            .try_for_each(|(name, value)| write!(formatter, " {name}={value}"))
    }
}

/// Dependencies of a call: the objects that it has read, and the clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reads {
    objects: BTreeSet<Read>,
    /// Time at which a reading of the clock changes, in milliseconds since 1970: the host requeues the object then.
    pub again: Option<u64>,
}

impl Reads {
    /// One line for each read.
    pub fn in_words(&self) -> impl Iterator<Item = String> {
        let time = |again: u64| rfc3339(SystemTime::UNIX_EPOCH + Duration::from_millis(again));
        let clock = self
            .again
            .map(|again| format!("the clock; looks again at {}", time(again)));
        self.objects.iter().map(read_in_words).chain(clock)
    }

    fn look_again(&mut self, at: u64) {
        self.again = Some(self.again.map_or(at, |again| again.min(at)));
    }

    pub(super) fn extend(&mut self, other: Self) {
        let Self { objects, again } = other;
        self.objects.extend(objects);
        if let Some(again) = again {
            self.look_again(again);
        }
    }
}

impl Deref for Reads {
    type Target = BTreeSet<Read>;

    fn deref(&self) -> &Self::Target {
        &self.objects
    }
}

/// Describes a read: `get Deployment shop/web`, `list Secrets in shop, labels app=web`.
fn read_in_words(read: &Read) -> String {
    let kind = &read.kind().kind;
    match read {
        Read::Get(_, name) => format!("get {kind} {name}"),
        Read::Obstacle(_, name) => format!("look at {kind} {name}"),
        Read::Some(_) | Read::SomeObstacles(_) => format!("some {kind} objects"),
        Read::List(_, query) => {
            let CheckedQuery {
                namespace,
                labels,
                fields,
                names,
                limit,
                until: _,
            } = &**query;
            let place = namespace
                .as_ref()
                .map_or_else(|| "in all namespaces".to_owned(), |namespace| format!("in {namespace}"));
            let mut words = format!("list {kind} objects {place}");
            let labels = labels.to_string();
            if !labels.is_empty() {
                let _ = write!(words, ", labels {labels}");
            }
            for (path, value) in fields {
                let _ = write!(words, ", {path}={value}");
            }
            if !names.is_empty() {
                let _ = write!(words, ", names {}", names.join(", "));
            }
            if let Some(limit) = limit {
                let _ = write!(words, ", the first {limit}");
            }
            words
        }
    }
}

/// Grants of one call, and its reads so far.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) objects: Arc<Objects>,
    pub(super) grants: Arc<Grants>,
    pub(super) primary: Name,
    pub(super) now: u64,
    pub(super) shown: Shown,
    pub(super) reads: Reads,
    pub(super) log: Vec<LogLine>,
}

impl Imports for Cache {
    fn get(&mut self, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Option<String>, Failure> {
        let grant = self.grants.check_get(&self.primary, kind, namespace, name)?;
        let name = Name::new(namespace, name);
        let object = self.objects.get(&(kind.clone(), name.clone()));
        let visible = object.filter(|object| is_selected(grant, &object.value));
        let text = visible
            .map(|object| project_text(&grant.projection, &object.text, kind, self.shown))
            .transpose()?;
        self.reads.objects.insert(Read::Get(Arc::new(kind.clone()), name));
        Ok(text)
    }

    fn list(&mut self, kind: &Kind, options: &ListOptions, _: u64) -> Result<Vec<String>, Failure> {
        let (grant, query) = self.grants.check_list(&self.primary, kind, options)?;
        let limit = query
            .limit
            .map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        // The map's order is that of the contract: namespace, then name.
        let found = self
            .objects
            .iter()
            .filter(|((its, name), object)| its == kind && query.matches(name, &object.value))
            .take(limit)
            .map(|(_, object)| project_text(&grant.projection, &object.text, kind, self.shown))
            .collect::<Result<_, _>>()?;
        self.reads
            .objects
            .insert(Read::List(Arc::new(kind.clone()), Arc::new(query)));
        Ok(found)
    }

    fn now(&mut self, granularity: u64) -> u64 {
        let granularity = granularity.max(1);
        let now = self.now - self.now % granularity;
        self.reads.look_again(now.saturating_add(granularity));
        now
    }

    fn reached(&mut self, moment: u64) -> bool {
        if self.now < moment {
            self.reads.look_again(moment);
        }
        self.now >= moment
    }

    fn log(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        self.log.push(LogLine {
            level,
            message: message.to_owned(),
            fields: fields.to_vec(),
        });
    }
}

/// Returns the object as a controller sees it.
pub(super) fn project(projection: &Projection, object: &Value, kind: &Kind, shown: Shown) -> Result<String, Failure> {
    project_text(projection, &StoredObject::new(object.clone()).text, kind, shown)
}

fn project_text(projection: &Projection, raw: &RawValue, kind: &Kind, shown: Shown) -> Result<String, Failure> {
    let broken =
        |error: serde_json::Error| Failure::host(Reason::HostFault, format!("show {kind} to the plugin: {error}"));
    if shown == Shown::Whole {
        return Projection::whole().project(raw, kind).map_err(broken);
    }
    let text = projection.project(raw, kind).map_err(broken)?;
    match shown {
        Shown::Declared | Shown::Whole => Ok(text),
        Shown::Shuffled(seed) => Ok(shuffled_text(&serde_json::from_str(&text).map_err(broken)?, seed)),
    }
}

/// Returns `true` if the kind's declared selector admits the object into the plugin's cache.
fn is_selected(grant: &Grant, object: &Value) -> bool {
    grant
        .touch
        .label_selector
        .as_ref()
        .is_none_or(|labels| labels.matches(|key| label(object, key)))
}

fn label<'object>(object: &'object Value, key: &str) -> Option<&'object str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}
