//! Bodies of responses: whole ones, and the streams of watches.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep};

use crate::inner::Inner;
use crate::kinds::Resource;
use crate::request::Form;
use crate::table;
use crate::watch::{Channel, Event, EventKind};

/// Interval of bookmarks in a watch that requests them.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// The last bookmark comes so long before the end.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// The annotation of the bookmark behind the objects that a streaming list begins with.
pub(crate) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The body of a response.
pub struct ResponseBody(Content);

enum Content {
    Whole(Option<Bytes>),
    Watch(Box<WatchStream>),
}

impl ResponseBody {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self(Content::Whole(Some(bytes.into())))
    }

    pub(crate) fn watch(stream: WatchStream) -> Self {
        Self(Content::Watch(Box::new(stream)))
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Content::Whole(_) => formatter.write_str("ResponseBody::Whole"),
            Content::Watch(_) => formatter.write_str("ResponseBody::Watch"),
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Content::Whole(bytes) => {
                let bytes = bytes.take().filter(|bytes| !bytes.is_empty());
                Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
            Content::Watch(stream) => stream
                .poll_line(context)
                .map(|line| line.map(|line| Ok(Frame::data(line)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Content::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Content::Watch(_) => SizeHint::default(),
        }
    }
}

/// Faults of a watch.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Trouble {
    /// Ends after so many events.
    pub(crate) cut_after: Option<u32>,
    /// Sends nothing.
    pub(crate) silent: bool,
    /// Passes over so many events.
    pub(crate) lose: u32,
}

/// The stream of one watch.
pub(crate) struct WatchStream {
    inner: Arc<Inner>,
    channel: Arc<Channel>,
    resource: Arc<Resource>,
    form: Form,
    include: String,
    trouble: Trouble,
    sent: u32,
    end: Pin<Box<Sleep>>,
    deadline: Instant,
    bookmark: Option<Pin<Box<Sleep>>>,
    /// Tables say their columns once.
    headers_sent: bool,
}

/// Options of a watch, beside the selection of its objects.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) form: Form,
    /// Part of the object that rows of tables include.
    pub(crate) include: String,
    pub(crate) timeout: Duration,
    pub(crate) bookmarks: bool,
}

impl WatchStream {
    pub(crate) fn new(
        inner: Arc<Inner>,
        channel: Arc<Channel>,
        resource: Arc<Resource>,
        wish: Wish,
        trouble: Trouble,
    ) -> Self {
        let Wish {
            form,
            include,
            timeout,
            bookmarks,
        } = wish;
        let deadline = Instant::now() + timeout;
        let first = BOOKMARK_EVERY.min(timeout.saturating_sub(LAST_BOOKMARK));
        Self {
            inner,
            channel,
            resource,
            form,
            include,
            trouble,
            sent: 0,
            end: Box::pin(tokio::time::sleep_until(deadline)),
            deadline,
            bookmark: (bookmarks && timeout > LAST_BOOKMARK).then(|| Box::pin(tokio::time::sleep(first))),
            headers_sent: false,
        }
    }

    fn poll_line(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let over = self.end.as_mut().poll(context).is_ready();
        if self.trouble.silent {
            return if over { Poll::Ready(None) } else { Poll::Pending };
        }
        if self.trouble.cut_after.is_some_and(|limit| self.sent >= limit) {
            self.channel.close();
            return Poll::Ready(None);
        }
        while self.trouble.lose > 0 && matches!(self.channel.poll_next(context), Poll::Ready(Some(_))) {
            self.trouble.lose -= 1;
        }
        match self.channel.poll_next(context) {
            Poll::Ready(Some(event)) => {
                self.sent += 1;
                return Poll::Ready(Some(self.line(&event)));
            }
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending if over => return Poll::Ready(None),
            Poll::Pending => {}
        }
        let due = self
            .bookmark
            .as_mut()
            .is_some_and(|bookmark| bookmark.as_mut().poll(context).is_ready());
        if !due {
            return Poll::Pending;
        }
        // All that was committed so far has been queued, and the queue is empty: this is how far the watch has come.
        let revision = self.inner.revision();
        let last = self.deadline.checked_sub(LAST_BOOKMARK).unwrap_or(self.deadline);
        let next = (Instant::now() + BOOKMARK_EVERY).min(last);
        if next > Instant::now() {
            if let Some(bookmark) = &mut self.bookmark {
                bookmark.as_mut().reset(next);
                // A timer that was reset must be polled to wake this task.
                let _ = bookmark.as_mut().poll(context);
            }
        } else {
            self.bookmark = None;
        }
        let object = bookmark_object(&self.resource, revision, false);
        Poll::Ready(Some(self.line(&Event {
            kind: EventKind::Bookmark,
            object: Arc::new(object),
        })))
    }

    fn line(&mut self, event: &Event) -> Bytes {
        let object = match event.kind {
            EventKind::Error => (*event.object).clone(),
            kind => {
                let shown = self.resource.show(&event.object);
                match self.form {
                    Form::Plain => shown.into_owned(),
                    Form::Metadata => table::partial(&self.resource, &shown),
                    Form::Table => {
                        let headers = !std::mem::replace(&mut self.headers_sent, true);
                        let now = self.inner.now();
                        let mut rows = table::table(&self.resource, &shown, &self.include, now, headers);
                        if kind == EventKind::Bookmark {
                            rows["rows"] = json!([{"cells": [], "object": table::metadata_only(&shown)}]);
                        }
                        rows
                    }
                }
            }
        };
        // As the real server has it: clients may read the object as it comes only if its type is known by then.
        let mut line = format!(r#"{{"type":"{}","object":{object}}}"#, event.kind.name());
        line.push('\n');
        Bytes::from(line)
    }
}

/// An object that only says how far the watch has come.
pub(crate) fn bookmark_object(resource: &Resource, revision: u64, end_of_initial: bool) -> Value {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if end_of_initial {
        metadata["annotations"] = json!({INITIAL_EVENTS_END: "true"});
    }
    json!({"kind": resource.kind, "apiVersion": resource.api_version(), "metadata": metadata})
}
