//! Makes an object once for each token, and notes on the primary what was made ([`pilothouse_core::ownership::once`]). Makes requests
//! when something is made, or was seen to be Current.
//!
//! The note follows the creation in the same reconcile. If it cannot be written, the object that exists shows that it was made, and
//! the next reconcile notes it. So an object is made twice only if the host stops between the two requests, and the object is gone
//! before one runs again.

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::Failure;
use pilothouse_core::ownership::once::{Memory, ONCE_ANNOTATION, Once};
use serde_json::{Value, json};

use super::requests::version;
use crate::reconcile::apply::{PlanExecution, changed_meanwhile};
use crate::reconcile::diff::{PlannedObject, key};
use crate::reconcile::write::order::OnceStep;

/// Number of times that a primary that changes meanwhile is read again.
const LOOKS: u32 = 3;

impl PlanExecution<'_> {
    /// Reports whether the live primary has a note that an object was made once. Another host may have written it that the cache does
    /// not show yet.
    pub(in crate::reconcile) async fn is_noted(&self, step: &PlannedObject) -> Result<bool, Failure> {
        let Some(token) = &step.desired.once else {
            return Ok(false);
        };
        let Some((_, object)) = self.live_primary().await? else {
            return Ok(false);
        };
        let text = object.annotation(ONCE_ANNOTATION);
        let memory = Memory::read(text.as_deref(), self.lane.writer.manager(), &self.owner.uid);
        Ok(memory.made(&step.key(), token).is_some())
    }

    /// The live primary; none if it is gone.
    async fn live_primary(&self) -> Result<Option<(ServedKind, CachedObject)>, Failure> {
        let Some(served) = self.lane.served(self.lane.grants.primary()) else {
            return Ok(None);
        };
        let live = self.requests.live(&served, &self.owner.name).await;
        let live = live.map_err(|error| error.into_failure("look at", &self.owner_title()))?;
        let live = live.filter(|live| *live.object.uid == *self.owner.uid);
        Ok(live.map(|live| (served, live.object)))
    }

    fn owner_title(&self) -> String {
        format!("{} {}", self.owner.kind.kind, self.owner.name)
    }

    /// Deletes an object that is to be made again, because it was made with another token.
    pub(in crate::reconcile) async fn make_again(&mut self, step: &PlannedObject) -> Result<(), Failure> {
        let changed = step
            .live
            .as_ref()
            .filter(|live| live.digest.as_deref() != Some(&*step.digest));
        let (Some(token), Some(_)) = (&step.desired.once, changed) else {
            return Ok(());
        };
        let live = self.live_whole(step).await?;
        let made = &live["metadata"]["annotations"][ONCE_ANNOTATION];
        if made.is_null() || *made == **token {
            return Ok(());
        }
        let successor = self.try_successor(step, &live).await;
        let problem = format!("{} is to be made again", step.desired.title());
        Err(self
            .renew(step, &live, successor, &problem, "its token is another one")
            .await)
    }

    /// Notes on the primary which objects have been made once, if that is news.
    pub(in crate::reconcile) async fn note_once(&mut self, primary: &CachedObject) {
        let mut objects = Vec::with_capacity(self.once.steps.len());
        for OnceStep { key, token, is_awaited } in &self.once.steps {
            let made = self.order.made(key);
            if let Some((served, object)) = made.filter(|(_, object)| *is_awaited && object.pending().is_some()) {
                // Once it is gone, nothing else says that it was Current.
                let state = &self.host.state;
                state.depend_on_obstacle(self.primary_ref, served, &object.name, Some(object));
            }
            objects.push(Once {
                key,
                token,
                made: made.map(|(_, object)| object.pending().is_none()),
            });
        }
        let next = self.once.memory.after(objects.iter().copied());
        // A primary that goes takes its notes with it.
        if next == self.once.memory || (primary.deleting && objects.is_empty()) || self.is_held_back() {
            return;
        }
        if let Err(failure) = self.write_notes(&objects).await {
            self.applied.fail(failure);
        }
    }

    /// Brings the note of the live primary up to date. Another host may have written it since.
    async fn write_notes(&self, objects: &[Once<'_>]) -> Result<(), Failure> {
        let (writer, title) = (&self.lane.writer, self.owner_title());
        for _ in 0..LOOKS {
            let Some((served, object)) = self.live_primary().await? else {
                return Ok(());
            };
            let metadata = object.value()["metadata"].take();
            let mut annotations = metadata["annotations"].as_object().cloned().unwrap_or_default();
            let before = annotations.remove(ONCE_ANNOTATION);
            let before = before.as_ref().and_then(Value::as_str);
            let memory = Memory::read(before, writer.manager(), &self.owner.uid).after(objects.iter().copied());
            let text = memory.write(before, writer.manager());
            if before == text.as_deref() {
                return Ok(());
            }
            annotations.extend(text.map(|text| (ONCE_ANNOTATION.to_owned(), json!(text))));
            let members = [("annotations", Value::Object(annotations))];
            let request = writer.set_metadata(&served, &object, &members);
            match self
                .requests
                .tracked(key(&served, &object.name), request, version)
                .await
            {
                Ok(_) => return Ok(()),
                Err(error) if matches!(error.code(), Some(409 | 422)) => {}
                Err(error) if error.is_object_not_found() => return Ok(()),
                Err(error) => return Err(error.into_failure("note what was made once on", &title)),
            }
        }
        Err(changed_meanwhile(&title))
    }
}
