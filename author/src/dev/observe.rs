//! Reads the state of the host and the cluster: the plugin's objects, their children, and the status of each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pilothouse_core::{Kind, Name};
use pilothouse_runtime::api::documents::{HostStatus, ObjectDocument, ObjectName};
use pilothouse_testkit::kstatus;
use pilothouse_testkit::scenario::Reference;
use serde_json::Value;

use super::model::{ObjectNow, PluginNow, SeenObject, Snapshot, title};
use super::session::Session;

/// The most objects that are shown.
const MAX_OBJECTS: usize = 100;

/// Most objects whose status is read at a time.
const MAX_ASKED: usize = 200;

/// Longest age of a status: on a simulated cluster, which is a part of this process, and on a real one.
const STATES_FOR: Duration = Duration::from_millis(500);
const REAL_STATES_FOR: Duration = Duration::from_secs(3);

/// Last observed state.
#[derive(Default)]
pub(super) struct Observer {
    documents: Vec<ObjectDocument>,
    seen: BTreeMap<String, SeenObject>,
    asked: Option<Instant>,
}

impl Observer {
    /// Observes the state. Statuses are read if an object has changed, or if they are old.
    pub(super) async fn observe(&mut self, session: &mut Session) -> Snapshot {
        let primaries = session.handle.primaries_of(&session.plugin, MAX_OBJECTS);
        let documents: Vec<ObjectDocument> = primaries
            .iter()
            .map(|(kind, name): &(Kind, Name)| lasting(session.handle.explain(kind, name)))
            .collect();
        let keep = if session.is_real { REAL_STATES_FOR } else { STATES_FOR };
        let is_old = self.asked.is_none_or(|asked| asked.elapsed() > keep);
        if is_old || documents != self.documents {
            self.read_statuses(&documents, session).await;
        }
        self.documents.clone_from(&documents);
        let seen = |name: &ObjectName| {
            let unseen = || SeenObject {
                name: name.clone(),
                ..SeenObject::default()
            };
            self.seen.get(&title(name)).cloned().unwrap_or_else(unseen)
        };
        let objects = documents.into_iter().map(|document| {
            let SeenObject { status, live, .. } = seen(&document.object);
            ObjectNow {
                status,
                live,
                children: children(&document).map(seen).collect(),
                targets: targets(&document).map(seen).collect(),
                reads: reads(&document).iter().map(seen).collect(),
                document,
            }
        });
        let summaries = session.handle.plugins().into_iter();
        let plugin = summaries
            .filter(|it| *it.name == *session.plugin)
            .map(|summary| PluginNow {
                version: summary.version,
                digest: summary.digest,
                is_ready: summary.ready.is_some(),
                reason: summary.condition.reason.to_owned(),
                message: summary.condition.message,
            });
        Snapshot {
            objects: objects.collect(),
            plugin: { plugin }.next(),
        }
    }

    async fn read_statuses(&mut self, documents: &[ObjectDocument], session: &mut Session) {
        // Objects with a status come first; of the others only changes are shown.
        let shown = documents
            .iter()
            .flat_map(|it| std::iter::once(&it.object).chain(children(it)).cloned());
        let others = documents.iter().flat_map(|it| targets(it).cloned().chain(reads(it)));
        let mut asked = BTreeSet::new();
        let mut seen = BTreeMap::new();
        for object in shown.chain(others) {
            if asked.len() == MAX_ASKED || !asked.insert(title(&object)) {
                continue;
            }
            let reference = Reference {
                api_version: object.kind.api_version.clone(),
                kind: object.kind.kind.clone(),
                name: object.name.clone(),
                namespace: object.namespace.clone(),
            };
            // A deleted object is missing in the next snapshot, and an unreachable cluster is reported in the log.
            if let Ok(Some(live)) = session.objects.find(&reference).await {
                let status = state_of(&live);
                let live = Some(Arc::new(live));
                let name = object;
                seen.insert(title(&name), SeenObject { name, status, live });
            }
        }
        self.seen = seen;
        self.asked = Some(Instant::now());
    }
}

fn children(document: &ObjectDocument) -> impl Iterator<Item = &ObjectName> {
    let views = document.controllers.iter();
    views.flat_map(|view| view.children.iter().map(|child| &child.object))
}

fn targets(document: &ObjectDocument) -> impl Iterator<Item = &ObjectName> {
    document.controllers.iter().flat_map(|view| &view.contributes_to)
}

/// Returns the objects that were read by name.
fn reads(document: &ObjectDocument) -> Vec<ObjectName> {
    let reads = document.controllers.iter().flat_map(|view| &view.depends_on);
    let named = reads.filter_map(|read| {
        Some(ObjectName {
            kind: read.kind.clone(),
            namespace: read.namespace.clone(),
            name: read.name.clone()?,
        })
    });
    named.collect()
}

/// Removes the parts that differ in each snapshot.
fn lasting(mut document: ObjectDocument) -> ObjectDocument {
    document.host = HostStatus::default();
    for view in &mut document.controllers {
        view.for_seconds = None;
        view.next_run_in_seconds = None;
        if let Some(failure) = &mut view.failure {
            failure.retry_in_seconds = None;
        }
    }
    document
}

fn state_of(object: &Value) -> Option<String> {
    let computed = kstatus::compute(object).ok()?;
    let status = computed.status.to_string();
    let is_current = computed.status == kstatus::Status::Current;
    Some(if is_current || computed.message.is_empty() {
        status
    } else {
        format!("{status} ({})", computed.message)
    })
}
