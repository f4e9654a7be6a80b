//! Owns the cache of objects that an isolated plugin reads: it shows what the manifest declares, refuses the rest, and
//! remembers what was asked. Leaves calling the plugin to `mod`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use pilothouse_core::{
    Failure, Kind, Name,
    contract::{Imports, ListOptions, LogLevel},
    dependencies::Read,
    grants::{Grant, Grants},
    path::Projection,
    reason::Reason,
};
use serde_json::{Value, value::RawValue};

/// The objects of a pretended cluster.
pub(super) type Objects = BTreeMap<(Kind, Name), Value>;

/// One line that the plugin has logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// How loud it is.
    pub level: LogLevel,
    /// Its message.
    pub message: String,
    /// Its fields, in the plugin's order.
    pub fields: Vec<(String, String)>,
}

/// What one call may read, and what it has read.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) objects: Arc<Objects>,
    pub(super) grants: Arc<Grants>,
    pub(super) primary: Name,
    pub(super) now: u64,
    pub(super) reads: BTreeSet<Read>,
    pub(super) log: Vec<LogLine>,
}

impl Imports for Cache {
    fn get(&mut self, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Option<String>, Failure> {
        let grant = self.grants.check_get(&self.primary, kind, namespace, name)?;
        let name = Name::new(namespace, name);
        let object = self.objects.get(&(kind.clone(), name.clone()));
        let visible = object.filter(|object| is_selected(grant, object));
        let text = visible
            .map(|object| project(&grant.projection, object, kind))
            .transpose()?;
        self.reads.insert(Read::Get(Arc::new(kind.clone()), name));
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
            .filter(|((its, name), object)| its == kind && query.matches(name, object))
            .take(limit)
            .map(|(_, object)| project(&grant.projection, object, kind))
            .collect::<Result<_, _>>()?;
        self.reads.insert(Read::List(Arc::new(kind.clone()), Arc::new(query)));
        Ok(found)
    }

    fn now(&mut self, granularity: u64) -> u64 {
        self.now - self.now % granularity.max(1)
    }

    fn reached(&mut self, moment: u64) -> bool {
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

/// What a controller sees of an object.
pub(super) fn project(projection: &Projection, object: &Value, kind: &Kind) -> Result<String, Failure> {
    let broken =
        |error: serde_json::Error| Failure::host(Reason::HostFault, format!("show {kind} to the plugin: {error}"));
    let raw = RawValue::from_string(object.to_string()).map_err(broken)?;
    projection.project(&raw, kind).map_err(broken)
}

/// Whether the kind's declared selector lets the object into the plugin's cache.
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
