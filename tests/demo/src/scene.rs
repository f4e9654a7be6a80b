//! State of the cluster as the demo's watches reported it, and the lines that it prints for a change. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use crate::kind::{Kind, state};

/// Report of a watch, with its time from the start of the story.
#[derive(Clone, Debug)]
pub struct Change {
    /// Time of the report.
    pub at: Duration,
    /// Kind of the watch.
    pub kind: Kind,
    /// Content of the report.
    pub news: News,
}

/// Report of a watch.
#[derive(Clone, Debug)]
pub enum News {
    /// All objects.
    Listed(Vec<Value>),
    /// New or changed object.
    Applied(Value),
    /// Deleted object.
    Deleted(Value),
    /// The watch failed, for this reason, and begins anew.
    Broken(String),
}

/// A line of the story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Time of the change.
    pub at: Duration,
    /// Type of the change.
    pub what: What,
    /// Kind of the object.
    pub kind: Kind,
    /// Its name, after its namespace where that is not `default`.
    pub name: String,
    /// Present state.
    pub detail: String,
}

/// Type of an object's change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Object that was not there before.
    Created,
    /// Object whose shown state changed.
    Changed,
    /// Object that is not there any more.
    Deleted,
}

/// Known state of the cluster.
#[derive(Debug, Default)]
pub struct Scene {
    objects: BTreeMap<(Kind, String), Value>,
    listed: BTreeSet<Kind>,
    /// The names of those that have been seen to go.
    gone: BTreeSet<(Kind, String)>,
    broken: BTreeMap<Kind, String>,
}

impl Scene {
    /// Applies a report of a watch, and returns the lines for it.
    pub fn take(&mut self, change: Change) -> Vec<Line> {
        let Change { at, kind, news } = change;
        match news {
            News::Broken(reason) => {
                self.broken.insert(kind, reason);
                Vec::new()
            }
            News::Applied(object) => self.applied(at, kind, object),
            News::Deleted(object) => self.deleted(at, kind, &key(&object)).into_iter().collect(),
            News::Listed(objects) => self.all(at, kind, objects),
        }
    }

    /// Checks that the watch of a kind has begun: from then on nothing is missed. Otherwise returns the reason of the
    /// wait.
    pub fn watches(&self, kind: Kind) -> Result<(), String> {
        match (self.listed.contains(&kind), self.broken.get(&kind)) {
            (true, _) => Ok(()),
            (false, None) => Err(format!("the watch of {} has no answer yet", kind.name())),
            (false, Some(reason)) => Err(format!("the watch of {} fails: {reason}", kind.name())),
        }
    }

    /// An object.
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Value> {
        self.objects.get(&(kind, shown_name(namespace, name)))
    }

    /// The objects of a kind.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        self.objects
            .iter()
            .filter(move |((it, _), _)| *it == kind)
            .map(|(_, object)| object)
    }

    /// The objects of a kind that the object with this uid controls.
    pub fn children(&self, uid: &str, kind: Kind) -> Vec<&Value> {
        let controlled = |object: &&Value| {
            let references = object["metadata"]["ownerReferences"].as_array();
            references
                .into_iter()
                .flatten()
                .any(|owner| owner["controller"] == true && owner["uid"] == uid)
        };
        self.of(kind).filter(controlled).collect()
    }

    /// Returns `true` if an object of this name was seen to be deleted.
    pub fn has_gone(&self, kind: Kind, namespace: &str, name: &str) -> bool {
        self.gone.contains(&(kind, shown_name(namespace, name)))
    }

    /// Applies a list. Objects at the start of a watch are no news; changes in a later list happened while the watch
    /// was down.
    fn all(&mut self, at: Duration, kind: Kind, objects: Vec<Value>) -> Vec<Line> {
        self.broken.remove(&kind);
        let first = self.listed.insert(kind);
        let names: BTreeSet<_> = objects.iter().map(key).collect();
        let known: Vec<_> = self
            .objects
            .keys()
            .filter(|(it, _)| *it == kind)
            .map(|(_, name)| name.clone())
            .collect();
        let mut lines = Vec::new();
        for name in known.iter().filter(|name| !names.contains(*name)) {
            lines.extend(self.deleted(at, kind, name));
        }
        for object in objects {
            let news = self.applied(at, kind, object);
            lines.extend(news.into_iter().filter(|_| !first));
        }
        lines
    }

    fn applied(&mut self, at: Duration, kind: Kind, object: Value) -> Vec<Line> {
        let (name, uid, now) = (key(&object), uid(&object).to_owned(), state(kind, &object));
        let before = self.objects.get(&(kind, name.clone()));
        let before = before.map(|before| (self::uid(before) == uid, state(kind, before)));
        let mut lines = Vec::new();
        let news = match before {
            Some((true, before)) if before == now => None,
            Some((true, _)) => Some((What::Changed, now)),
            other => {
                // Another one of the same name: the watch was down when the first one went.
                lines.extend(other.and_then(|_| self.deleted(at, kind, &name)));
                Some((What::Created, format!("by {}: {now}", maker(&object))))
            }
        };
        self.objects.insert((kind, name.clone()), object);
        lines.extend(news.map(|(what, detail)| Line {
            at,
            what,
            kind,
            name,
            detail,
        }));
        lines
    }

    fn deleted(&mut self, at: Duration, kind: Kind, name: &str) -> Option<Line> {
        let entry = (kind, name.to_owned());
        self.objects.remove(&entry)?;
        self.gone.insert(entry);
        Some(Line {
            at,
            what: What::Deleted,
            kind,
            name: name.to_owned(),
            detail: String::new(),
        })
    }
}

/// An object's uid.
pub fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Returns the maker of an object: the oldest manager of its fields, which the server records.
fn maker(object: &Value) -> &str {
    let managers = object["metadata"]["managedFields"].as_array();
    let whole = managers
        .into_iter()
        .flatten()
        .find(|entry| entry["subresource"].as_str().is_none_or(str::is_empty));
    whole.and_then(|entry| entry["manager"].as_str()).unwrap_or("somebody")
}

/// The name under which an object is shown.
pub fn key(object: &Value) -> String {
    let metadata = &object["metadata"];
    shown_name(
        metadata["namespace"].as_str().unwrap_or_default(),
        metadata["name"].as_str().unwrap_or_default(),
    )
}

fn shown_name(namespace: &str, name: &str) -> String {
    match namespace {
        "" | "default" => name.to_owned(),
        other => format!("{other}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(uid: &str, ready: u64) -> Value {
        json!({
            "metadata": {"name": "web", "namespace": "default", "uid": uid,
                "ownerReferences": [{"uid": "parent", "controller": true}],
                "managedFields": [{"manager": "status", "subresource": "status"}, {"manager": "pilothouse/app-service"}]},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [{"image": "nginx:1"}]}}},
            "status": {"readyReplicas": ready},
        })
    }

    /// Returns the lines for a change, without its time and name.
    fn told(scene: &mut Scene, at: u64, news: News) -> Vec<(What, String)> {
        let change = Change {
            at: Duration::from_millis(at),
            kind: Kind::Deployment,
            news,
        };
        scene
            .take(change)
            .into_iter()
            .map(|line| (line.what, line.detail))
            .collect()
    }

    fn says(what: What, detail: &str) -> Vec<(What, String)> {
        vec![(what, detail.to_owned())]
    }

    #[test]
    fn an_object_that_comes_changes_and_goes_gives_a_line_each() {
        let mut scene = Scene::default();
        assert!(told(&mut scene, 0, News::Listed(Vec::new())).is_empty());
        let created = told(&mut scene, 1, News::Applied(deployment("a", 0)));
        assert_eq!(
            created,
            says(What::Created, "by pilothouse/app-service: nginx:1, 0 of 2 ready")
        );
        assert!(
            told(&mut scene, 2, News::Applied(deployment("a", 0))).is_empty(),
            "nothing that is shown changed"
        );
        assert_eq!(
            told(&mut scene, 3, News::Applied(deployment("a", 2))),
            says(What::Changed, "nginx:1, 2 of 2 ready")
        );
        assert_eq!(
            told(&mut scene, 4, News::Deleted(deployment("a", 2))),
            says(What::Deleted, "")
        );
        assert_eq!(scene.of(Kind::Deployment).count(), 0);
        assert!(scene.has_gone(Kind::Deployment, "default", "web"));
        assert!(!scene.has_gone(Kind::Service, "default", "web"));
    }

    #[test]
    fn initial_objects_are_not_news_and_unlisted_ones_are_gone() {
        let mut scene = Scene::default();
        assert!(scene.watches(Kind::Deployment).is_err());
        assert!(told(&mut scene, 0, News::Listed(vec![deployment("a", 2)])).is_empty());
        assert_eq!(scene.watches(Kind::Deployment), Ok(()));
        assert_eq!(told(&mut scene, 1, News::Listed(Vec::new())), says(What::Deleted, ""));
        let back = told(&mut scene, 2, News::Listed(vec![deployment("b", 0)]));
        assert_eq!(
            back,
            says(What::Created, "by pilothouse/app-service: nginx:1, 0 of 2 ready")
        );
    }

    #[test]
    fn one_that_was_replaced_while_nobody_looked_has_gone_and_come() {
        let mut scene = Scene::default();
        told(&mut scene, 0, News::Listed(vec![deployment("a", 2)]));
        let lines = told(&mut scene, 7, News::Listed(vec![deployment("b", 1)]));
        assert_eq!(
            lines.iter().map(|(what, _)| *what).collect::<Vec<_>>(),
            [What::Deleted, What::Created]
        );
        assert!(scene.has_gone(Kind::Deployment, "default", "web"));
    }

    #[test]
    fn children_are_those_with_the_parents_uid_as_controller() {
        let mut scene = Scene::default();
        told(&mut scene, 0, News::Applied(deployment("a", 0)));
        assert_eq!(scene.children("parent", Kind::Deployment).len(), 1);
        assert_eq!(scene.children("parent", Kind::Service).len(), 0);
        assert_eq!(scene.children("another", Kind::Deployment).len(), 0);
    }

    #[test]
    fn a_broken_watch_says_why() {
        let mut scene = Scene::default();
        assert!(told(&mut scene, 0, News::Broken("connection refused".to_owned())).is_empty());
        assert_eq!(
            scene.watches(Kind::Deployment).unwrap_err(),
            "the watch of Deployment fails: connection refused"
        );
    }
}
