//! Watches: the changes that a watch reports and in which form, and the body that streams them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use serde_json::Value;

use crate::change::Change;
use crate::kinds::Storage;
use crate::selector::Selector;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

impl EventKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }
}

/// Next event of a watch. The object is as it is stored; the body converts it to the requested version.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    pub(crate) object: Arc<Value>,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    closed: bool,
    waker: Option<Waker>,
}

/// Between the store, which never waits, and the body of one watch.
#[derive(Debug)]
pub(crate) struct Channel {
    storage: Storage,
    namespace: Option<String>,
    selector: Selector,
    queue: Mutex<Queue>,
}

impl Channel {
    pub(crate) fn new(storage: Storage, namespace: Option<String>, selector: Selector) -> Self {
        Self {
            storage,
            namespace,
            selector,
            queue: Mutex::default(),
        }
    }

    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Sends a change to the watch, if it selects it: an object that enters the selection is added, one that leaves it
    /// is deleted.
    pub(crate) fn offer(&self, change: &Change) {
        if change.storage != self.storage {
            return;
        }
        let is_in = |object: &Value| {
            self.namespace
                .as_ref()
                .is_none_or(|namespace| object["metadata"]["namespace"] == **namespace)
                && self.selector.matches(object)
        };
        let before = change.before.as_deref().is_some_and(is_in);
        let after = !change.deleted && is_in(&change.after);
        let kind = match (before, after) {
            (false, true) => EventKind::Added,
            (true, true) => EventKind::Modified,
            (true, false) => EventKind::Deleted,
            (false, false) => return,
        };
        let object = match (&change.before, change.deleted) {
            // What left the selection is shown as it was within it, with the revision of the change that took it out.
            (Some(before), false) if kind == EventKind::Deleted => {
                let mut last = (**before).clone();
                last["metadata"]["resourceVersion"] = change.after["metadata"]["resourceVersion"].clone();
                Arc::new(last)
            }
            _ => change.after.clone(),
        };
        self.push(Event { kind, object });
    }

    pub(crate) fn push(&self, event: Event) {
        let mut queue = self.queue.lock();
        if queue.closed {
            return;
        }
        queue.events.push_back(event);
        if let Some(waker) = queue.waker.take() {
            waker.wake();
        }
    }

    /// Ends the stream once the queued events have been read.
    pub(crate) fn close(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        if let Some(waker) = queue.waker.take() {
            waker.wake();
        }
    }

    /// The next event; None when the watch has ended.
    pub(crate) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut queue = self.queue.lock();
        if let Some(event) = queue.events.pop_front() {
            return Poll::Ready(Some(event));
        }
        if queue.closed {
            return Poll::Ready(None);
        }
        queue.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Kinds;
    use crate::resource::Key;
    use crate::store::Store;
    use serde_json::json;

    fn next(channel: &Channel) -> Option<(&'static str, Arc<Value>)> {
        let mut context = Context::from_waker(Waker::noop());
        match channel.poll_next(&mut context) {
            Poll::Ready(event) => event.map(|event| (event.kind.name(), event.object)),
            Poll::Pending => None,
        }
    }

    #[test]
    fn leaving_the_selection_is_a_delete_with_the_old_object() {
        let kinds = Kinds::builtin();
        let resource = kinds.get("", "v1", "configmaps").expect("config maps are served");
        let selector = Selector::parse("app=web", "", resource).expect("the selector parses");
        let channel = Arc::new(Channel::new(resource.storage.clone(), None, selector));
        let mut store = Store::new(10);
        store.subscribe(&channel);
        let object = |app: &str| json!({"metadata": {"namespace": "a", "name": "b", "labels": {"app": app}}});
        store.put(&resource.storage, object("web"));
        store.put(&resource.storage, object("other"));
        store.put(&resource.storage, object("web"));
        store.remove(&resource.storage, &Key::new("a", "b"));
        assert_eq!(next(&channel).map(|event| event.0), Some("ADDED"));
        let (kind, object) = next(&channel).expect("leaving is told");
        assert_eq!(kind, "DELETED");
        assert_eq!(object["metadata"]["labels"]["app"], "web");
        assert_eq!(object["metadata"]["resourceVersion"], "1002");
        assert_eq!(next(&channel).map(|event| event.0), Some("ADDED"));
        assert_eq!(next(&channel).map(|event| event.0), Some("DELETED"));
        assert!(next(&channel).is_none());
    }
}
