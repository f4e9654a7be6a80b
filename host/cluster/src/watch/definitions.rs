//! Follows the CustomResourceDefinitions of the cluster by their metadata: which exist, and when the specification of
//! one changes. The consequences for kinds are left to host/runtime.

use std::collections::BTreeMap;
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

/// The delay before the next attempt of a host without the right to see definitions.
const FORBIDDEN: Duration = Duration::from_mins(10);

/// A change of definitions. They are identified by their names, `plural.group`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefinitionEvent {
    /// All definitions have been listed for the first time.
    Listed,
    /// A definition is new, or has another specification.
    Changed(String),
    /// Another part of a definition has changed, for example its status.
    Touched(String),
    /// A definition is gone.
    Gone(String),
    /// The host may not see definitions.
    Forbidden(String),
}

/// Reports changes of definitions for ever.
pub async fn follow(client: Client, tell: impl FnMut(DefinitionEvent) + Send + 'static) {
    let served = ServedKind {
        short_names: Vec::new(),
        kind: Arc::new(Kind::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition")),
        plural: "customresourcedefinitions".to_owned(),
        facts: KindFacts {
            namespaced: false,
            has_status: true,
        },
    };
    typed_watch::follow(client, served, DefinitionSink(tell)).await;
}

/// The members that distinguish states of a definition.
#[derive(PartialEq, Eq)]
struct DefinitionStamp {
    uid: Arc<str>,
    generation: Option<i64>,
    resource_version: Box<str>,
}

struct DefinitionSink<F>(F);

impl<F: FnMut(DefinitionEvent) + Send + 'static> TypedSink for DefinitionSink<F> {
    type Object = DefinitionStamp;

    const DETAIL: Detail = Detail::Metadata;

    fn read(object: &CachedObject) -> DefinitionStamp {
        DefinitionStamp {
            uid: object.uid.clone(),
            generation: object.generation,
            resource_version: object.resource_version.clone(),
        }
    }

    fn changed(&mut self, before: Option<&TypedObjects<DefinitionStamp>>, now: &TypedObjects<DefinitionStamp>) {
        match before {
            None => (self.0)(DefinitionEvent::Listed),
            Some(before) => compare(before, now, &mut self.0),
        }
    }

    fn forbidden(&mut self, problem: &str) -> Option<Duration> {
        (self.0)(DefinitionEvent::Forbidden(problem.to_owned()));
        Some(FORBIDDEN)
    }
}

/// Reports the changes from one state of all definitions to the next.
fn compare(
    before: &BTreeMap<Arc<str>, Arc<DefinitionStamp>>,
    now: &BTreeMap<Arc<str>, Arc<DefinitionStamp>>,
    tell: &mut impl FnMut(DefinitionEvent),
) {
    for name in before.keys().filter(|name| !now.contains_key(*name)) {
        tell(DefinitionEvent::Gone(name.to_string()));
    }
    for (name, stamp) in now {
        if let Some(news) = news(name, before.get(name), stamp) {
            tell(news);
        }
    }
}

fn news(name: &str, before: Option<&Arc<DefinitionStamp>>, now: &Arc<DefinitionStamp>) -> Option<DefinitionEvent> {
    match before {
        Some(before) if Arc::ptr_eq(before, now) || before == now => None,
        Some(before) if before.uid == now.uid && before.generation == now.generation => {
            Some(DefinitionEvent::Touched(name.to_owned()))
        }
        _ => Some(DefinitionEvent::Changed(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_after_a_gap_tells_what_was_missed() {
        let stamp = |generation, version: &str| DefinitionStamp {
            uid: "u".into(),
            generation: Some(generation),
            resource_version: version.into(),
        };
        let map = |entries: Vec<(&str, DefinitionStamp)>| -> BTreeMap<Arc<str>, Arc<DefinitionStamp>> {
            let entries = entries.into_iter();
            entries.map(|(name, stamp)| (name.into(), Arc::new(stamp))).collect()
        };
        let before = map(vec![
            ("a", stamp(1, "1")),
            ("b", stamp(1, "2")),
            ("c", stamp(1, "3")),
            ("d", stamp(1, "4")),
        ]);
        let now = map(vec![
            ("a", stamp(1, "1")),
            ("b", stamp(2, "5")),
            ("c", stamp(1, "6")),
            ("e", stamp(1, "7")),
        ]);
        let mut told = Vec::new();
        compare(&before, &now, &mut |news| told.push(format!("{news:?}")));
        told.sort();
        assert_eq!(
            told,
            [r#"Changed("b")"#, r#"Changed("e")"#, r#"Gone("d")"#, r#"Touched("c")"#]
        );
    }
}
