//! Follows the namespaces of the cluster by their metadata.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use pilothouse_core::Kind;
use pilothouse_core::answer::KindFacts;

use crate::discovery::ServedKind;
use crate::object::CachedObject;
use crate::watch::reflector::Detail;
use crate::watch::typed_watch;
use crate::watch::typed_watch::{TypedObjects, TypedSink};

/// The delay before the next attempt of a host without the right to see namespaces.
const FORBIDDEN: Duration = Duration::from_mins(10);

/// A change of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceEvent {
    /// A namespace of this name is new, or was recreated.
    Added(Arc<str>),
    /// The host may not see namespaces.
    Forbidden(String),
}

/// Reports new namespaces for ever.
pub async fn follow(client: Client, tell: impl FnMut(NamespaceEvent) + Send + 'static) {
    let served = ServedKind {
        short_names: Vec::new(),
        kind: Arc::new(Kind::new("", "v1", "Namespace")),
        plural: "namespaces".to_owned(),
        facts: KindFacts {
            namespaced: false,
            has_status: true,
        },
    };
    typed_watch::follow(client, served, NamespaceSink(tell)).await;
}

struct NamespaceSink<F>(F);

impl<F: FnMut(NamespaceEvent) + Send + 'static> TypedSink for NamespaceSink<F> {
    /// The uid; none while it is being deleted and accepts no new objects.
    type Object = Option<Arc<str>>;

    const DETAIL: Detail = Detail::Metadata;

    fn read(object: &CachedObject) -> Option<Arc<str>> {
        (!object.deleting).then(|| object.uid.clone())
    }

    fn changed(&mut self, before: Option<&TypedObjects<Self::Object>>, now: &TypedObjects<Self::Object>) {
        for (name, uid) in now.iter().filter(|(_, uid)| uid.is_some()) {
            if before.and_then(|before| before.get(name)) != Some(uid) {
                (self.0)(NamespaceEvent::Added(name.clone()));
            }
        }
    }

    fn forbidden(&mut self, problem: &str) -> Option<Duration> {
        (self.0)(NamespaceEvent::Forbidden(problem.to_owned()));
        Some(FORBIDDEN)
    }
}
