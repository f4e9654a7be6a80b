//! Starts a watch: its first revision, its initial objects, and the error when the revision is too old.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::failure::{Failure, FieldError};
use crate::objects::{Call, read};
use crate::state::State;
use crate::stream::bookmark_object;
use crate::watch::{Channel, Event, EventKind};

/// Opens a watch. `gone` tells it 410 at once; `stale` begins with the state of so many changes ago.
pub(crate) fn open(state: &mut State, call: &Call, gone: bool, stale: u64) -> Result<Arc<Channel>, Failure> {
    let query = &call.options.query;
    let streaming = query.flag("sendInitialEvents");
    let matching = query.text("resourceVersionMatch");
    if query.has("sendInitialEvents") && matching != "NotOlderThan" {
        let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        let error = FieldError::forbidden("resourceVersionMatch", detail);
        return Err(Failure::invalid("meta.k8s.io", "ListOptions", "", &[error]));
    }
    let given = query.text("resourceVersion");
    let asked: u64 = if given.is_empty() {
        0
    } else {
        given.parse().map_err(|_| {
            Failure::unclassified(format!(
                "resourceVersion: Invalid value: {given:?}: strconv.ParseUint: parsing {given:?}: invalid syntax"
            ))
        })?
    };
    let current = state.store.revision();
    if asked > current {
        return Err(Failure::too_large_resource_version(asked, current));
    }
    let selector = read::selector(call)?;
    let channel = Arc::new(Channel::new(
        call.resource.storage.clone(),
        call.namespace.clone(),
        selector,
    ));
    if gone {
        refuse(&channel, asked, current);
        return Ok(channel);
    }
    let from_state = streaming || (asked == 0 && query.text("sendInitialEvents") != "false");
    if from_state {
        let begin = current.saturating_sub(stale).max(state.store.compacted());
        for object in read::selected_at(state, call, begin)? {
            channel.push(Event {
                kind: EventKind::Added,
                object,
            });
        }
        if streaming && query.flag("allowWatchBookmarks") {
            let object = Arc::new(bookmark_object(&call.resource, begin, true));
            channel.push(Event {
                kind: EventKind::Bookmark,
                object,
            });
        }
        state
            .store
            .changes_after(begin)
            .for_each(|change| channel.offer(change));
    } else if asked < state.store.compacted() && asked != 0 {
        refuse(&channel, asked, state.store.compacted());
        return Ok(channel);
    } else {
        let begin = if asked == 0 { current } else { asked };
        state
            .store
            .changes_after(begin)
            .for_each(|change| channel.offer(change));
    }
    state.store.subscribe(&channel);
    Ok(channel)
}

/// Reports an expired revision within the stream, not by the response's status.
fn refuse(channel: &Channel, asked: u64, oldest: u64) {
    let failure = Failure::expired(format!("too old resource version: {asked} ({oldest})"));
    let status: Value = failure.status();
    channel.push(Event {
        kind: EventKind::Error,
        object: Arc::new(json!(status)),
    });
    channel.close();
}
