//! Owns what a guest sees during a call: the cache through its grants, and the time. Every read is recorded.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use pilothouse_cluster::object::Stored;
use pilothouse_cluster::store::Store;
use pilothouse_core::contract::{Imports, LogLevel, Query};
use pilothouse_core::dependencies::Read;
use pilothouse_core::failure::reason;
use pilothouse_core::grants::CheckedQuery;
use pilothouse_core::{Failure, Kind, Name};
use serde_json::Value;

use crate::hub::Hub;
use crate::lane::{Lane, has_labels};

/// The finest granularity of `clock.now`, in milliseconds.
const FINEST_GRANULARITY: u64 = 1000;

/// The cache and the clock as one call sees them, and what it asked.
pub struct View {
    hub: Arc<Hub>,
    lane: Arc<Lane>,
    primary: Name,
    now: u64,
    /// What was read, with a fingerprint of what was answered.
    pub reads: BTreeMap<Read, u64>,
    /// The moment (milliseconds since the epoch) at which an answer about time would be another.
    pub wake_at: Option<u64>,
}

impl View {
    /// A view for one call. Time stands still during it.
    pub fn new(hub: Arc<Hub>, lane: Arc<Lane>, primary: Name) -> Self {
        let now = hub.clock.now();
        Self {
            hub,
            lane,
            primary,
            now,
            reads: BTreeMap::new(),
            wake_at: None,
        }
    }

    fn wake_at(&mut self, moment: u64) {
        self.wake_at = Some(self.wake_at.map_or(moment, |earlier| earlier.min(moment)));
    }

    /// The watched kind, or none if it is optional and not served.
    fn watched(&self, kind: &Kind) -> Result<Option<Arc<Kind>>, Failure> {
        let Some(served) = self.lane.served(kind) else {
            return Ok(None);
        };
        if self.hub.state.read().store.is_synced(kind) {
            return Ok(Some(served.kind.clone()));
        }
        Err(Failure::cluster(
            reason::NOT_SYNCED,
            format!("{kind} is read, but the cache has not listed it yet"),
        ))
    }
}

impl Imports for View {
    fn get(&mut self, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Option<String>, Failure> {
        self.lane.grants.check_get(kind, namespace, name)?;
        let Some(kind) = self.watched(kind)? else {
            return Ok(None);
        };
        let read = Read::Get(kind.clone(), Name::new(namespace, name));
        let state = self.hub.state.read();
        let answer = fingerprint(&state.store, &self.lane, &read);
        let Read::Get(_, name) = &read else {
            unreachable!("it was made three lines above")
        };
        let text = state
            .store
            .get(&kind, name)
            .and_then(|object| self.lane.show_read(&kind, object));
        drop(state);
        // The first answer counts: if a later one differs, the object runs again.
        self.reads.entry(read).or_insert(answer);
        Ok(text)
    }

    fn find(&mut self, kind: &Kind, query: &Query) -> Result<Vec<String>, Failure> {
        let (_, query) = self.lane.grants.check_find(kind, query)?;
        let Some(kind) = self.watched(kind)? else {
            return Ok(Vec::new());
        };
        let read = Read::Find(kind.clone(), Arc::new(query));
        let Read::Find(_, query) = &read else {
            unreachable!("it was made a line above")
        };
        let state = self.hub.state.read();
        let answer = fingerprint(&state.store, &self.lane, &read);
        let texts = found(&state.store, &self.lane, &kind, query)
            .filter_map(|object| self.lane.show_read(&kind, object))
            .collect();
        drop(state);
        self.reads.entry(read).or_insert(answer);
        Ok(texts)
    }

    fn now(&mut self, granularity: u64) -> u64 {
        let granularity = granularity.max(FINEST_GRANULARITY);
        let now = self.now - self.now % granularity;
        self.wake_at(now.saturating_add(granularity));
        now
    }

    fn reached(&mut self, moment: u64) -> bool {
        if self.now < moment {
            self.wake_at(moment);
        }
        self.now >= moment
    }

    fn log(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        let mut said = message.to_owned();
        for (name, value) in fields {
            write!(said, " {name}={value:?}").expect("writing to a String cannot fail");
        }
        let (plugin, object) = (&*self.lane.plugin, &self.primary);
        match level {
            LogLevel::Trace => tracing::trace!(target: "pilothouse::plugin", plugin, %object, "{said}"),
            LogLevel::Debug => tracing::debug!(target: "pilothouse::plugin", plugin, %object, "{said}"),
            LogLevel::Info => tracing::info!(target: "pilothouse::plugin", plugin, %object, "{said}"),
            LogLevel::Warn => tracing::warn!(target: "pilothouse::plugin", plugin, %object, "{said}"),
            LogLevel::Error => tracing::error!(target: "pilothouse::plugin", plugin, %object, "{said}"),
        }
    }
}

/// The objects that a query finds, as far as the lane's declaration reaches.
fn found<'a>(
    store: &'a Store,
    lane: &'a Lane,
    kind: &'a Kind,
    query: &'a CheckedQuery,
) -> impl Iterator<Item = &'a Arc<Stored>> {
    let labels = lane.grants.get(kind).and_then(|grant| grant.touch.labels.as_ref());
    let names = lane
        .grants
        .get(kind)
        .map(|grant| &grant.touch.names)
        .filter(|names| !names.is_empty());
    let limit = query.limit.map_or(usize::MAX, |limit| limit as usize);
    store
        .iter(kind, query.namespace.as_deref())
        .filter(move |object| labels.is_none_or(|labels| has_labels(object, labels)))
        .filter(move |object| names.is_none_or(|names| names.iter().any(|name| **name == *object.name.name)))
        .filter(move |object| matches(object, query))
        .take(limit)
}

/// Whether an object satisfies a query.
pub fn matches(object: &Stored, query: &CheckedQuery) -> bool {
    let CheckedQuery {
        namespace,
        labels,
        fields,
        limit: _,
    } = query;
    namespace
        .as_deref()
        .is_none_or(|namespace| object.name.namespace.as_deref() == Some(namespace))
        && has_labels(object, labels)
        && (fields.is_empty() || {
            let value: Value = serde_json::from_str(&object.text).expect("the cache holds JSON");
            fields
                .iter()
                .all(|(path, wanted)| path.values(&value).into_iter().any(|found| scalar_is(found, wanted)))
        })
}

/// Whether a scalar's text is the one that was asked for.
fn scalar_is(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text == wanted,
        Value::Bool(value) => wanted == if *value { "true" } else { "false" },
        Value::Number(number) => number.to_string() == wanted,
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

/// A fingerprint of what a read would be answered now.
pub fn fingerprint(store: &Store, lane: &Lane, read: &Read) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut add = |object: &Stored| (&object.uid, &object.resource_version).hash(&mut hasher);
    match read {
        Read::Get(kind, name) | Read::Obstacle(kind, name) => {
            if let Some(object) = store.get(kind, name) {
                add(object);
            }
        }
        Read::Find(kind, query) => found(store, lane, kind, query).for_each(|object| add(object)),
    }
    hasher.finish()
}
