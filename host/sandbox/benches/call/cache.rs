//! Objects that both sides read: as text with the fields that the controller declares, made anew at each read.

use std::sync::Arc;

use pilothouse_core::kubernetes::path::Projection;
use pilothouse_core::plugin::contract::{Imports, ListOptions, LogLevel};
use pilothouse_core::plugin::grants::Grants;
use pilothouse_core::{Failure, Kind, Name};
use pilothouse_plugin::testing::FakeCluster;
use serde_json::Value;
use serde_json::value::RawValue;

/// Read rights of a controller, and the objects. Clones share it.
#[derive(Clone)]
pub struct Cache(Arc<Contents>);

struct Contents {
    grants: Grants,
    primary: Name,
    objects: Vec<(Kind, Name, Value)>,
}

impl Cache {
    /// Objects without the fields that the controller does not see.
    pub fn new(grants: Grants, primary: Name, objects: impl Iterator<Item = (Kind, Value)>) -> Self {
        let visible = |(kind, object): (Kind, Value)| {
            let projection = &grants.get(&kind).unwrap().projection;
            let object: Value = serde_json::from_str(&shown(&object, projection, &kind)).unwrap();
            let metadata = &object["metadata"];
            let name = Name::new(metadata["namespace"].as_str(), metadata["name"].as_str().unwrap());
            (kind, name, object)
        };
        let objects = objects.map(visible).collect();
        Self(Arc::new(Contents {
            grants,
            primary,
            objects,
        }))
    }

    /// View for one call in the sandbox.
    pub fn view(&self) -> View {
        View {
            cache: self.clone(),
            reads: 0,
        }
    }

    /// View for native calls.
    pub fn pretended(&self) -> FakeCluster {
        let objects = self.0.objects.iter().map(|(_, _, object)| object.clone());
        objects.fold(FakeCluster::new(), FakeCluster::with)
    }
}

/// Returns the object as a controller sees it.
pub fn shown(object: &Value, projection: &Projection, kind: &Kind) -> String {
    let raw = RawValue::from_string(object.to_string()).unwrap();
    projection.project(&raw, kind).unwrap()
}

/// Cache during one call. It checks the grants as the host does; the host keeps the record of reads.
pub struct View {
    cache: Cache,
    reads: usize,
}

impl View {
    /// Count of reads.
    pub fn reads(&self) -> usize {
        self.reads
    }
}

impl Imports for View {
    fn get(&mut self, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Option<String>, Failure> {
        self.reads += 1;
        let Contents {
            grants,
            primary,
            objects,
        } = &*self.cache.0;
        grants.check_get(primary, kind, namespace, name)?;
        let wanted = Name::new(namespace, name);
        let found = objects.iter().find(|(its, name, _)| its == kind && *name == wanted);
        Ok(found.map(|(_, _, object)| object.to_string()))
    }

    fn list(&mut self, kind: &Kind, options: &ListOptions, _: u64) -> Result<Vec<String>, Failure> {
        self.reads += 1;
        let Contents {
            grants,
            primary,
            objects,
        } = &*self.cache.0;
        let (_, query) = grants.check_list(primary, kind, options)?;
        let found = objects
            .iter()
            .filter(|(its, name, object)| its == kind && query.matches(name, object));
        Ok(found.map(|(_, _, object)| object.to_string()).collect())
    }

    fn now(&mut self, _: u64) -> u64 {
        0
    }

    fn reached(&mut self, _: u64) -> bool {
        false
    }

    fn log(&mut self, level: LogLevel, message: &str, _: &[(String, String)]) {
        println!("{level:?}: {message}");
    }
}
