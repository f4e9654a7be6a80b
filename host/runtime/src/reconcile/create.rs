//! Owns the making of an object that is not there as far as the cache knows: nothing that is somebody else's is taken
//! over, and what was taken is given back. Makes requests.

use pilothouse_cluster::object::Stored;
use pilothouse_cluster::write::Force;
use pilothouse_core::Failure;
use pilothouse_core::failure::reason;

use super::apply::Work;
use super::diff::Step;
use super::requests::{Tries, key, version};
use super::takeover;
use crate::hub::State;

impl Work<'_> {
    /// Creates an object that is not there as far as the cache knows.
    pub async fn create(&mut self, step: &Step) -> Result<(), Failure> {
        // An earlier try may have made the object without our hearing of it; and a cache that shows a part of its kind
        // says nothing about the rest.
        let would_know = self
            .hub
            .state
            .read()
            .store
            .would_know(&step.served.kind, &step.desired.name);
        let mut unsure = self.attempt > 0 || !would_know;
        let mut tries = Tries::default();
        self.create_begins(step);
        let (sent, known) = loop {
            let known = unsure && self.is_there(step).await?;
            let force = if known { Force::Yes } else { Force::No };
            match self.requests.apply_once(step, force).await {
                Ok(sent) => break (sent, known),
                // Another manager holds a field of an object that, as far as we know, did not exist.
                Err(error) if force == Force::No && !error.held_by_others().is_empty() => {
                    self.create_ends(step);
                    return Err(self.foreign(step));
                }
                Err(error) if self.requests.may_insist(&mut tries, &error).await => unsure = true,
                Err(error) => {
                    // Another answer does not say that nothing was made.
                    if error.code().is_some_and(|code| code < 500) {
                        self.create_ends(step);
                    }
                    return Err(self.refused(step, "create", error));
                }
            }
        };
        self.applied.writes += 1;
        if !sent.created && !known {
            self.note_stranger(step, &sent.object);
            return Err(self.withdraw(step, &sent.object).await);
        }
        self.create_ends(step);
        tracing::debug!(lane = self.lane.title(), owner = %self.reader.name, object = step.desired.title(), "created");
        self.note_what_was_applied(step, &sent.object);
        Ok(())
    }

    fn create_begins(&self, step: &Step) {
        let key = key(&step.served, &step.desired.name);
        let mut state = self.hub.state.write();
        let State { store, creating, .. } = &mut *state;
        let cached = store.get(&key.kind, &key.name).map(|object| &**object);
        creating.begin(key.clone(), self.reader, self.lane.writer.manager(), cached);
    }

    fn create_ends(&self, step: &Step) {
        let key = key(&step.served, &step.desired.name);
        self.hub.state.write().creating.end(&key);
    }

    fn note_stranger(&self, step: &Step, object: &Stored) {
        let key = key(&step.served, &step.desired.name);
        let manager = self.lane.writer.manager();
        let creating = &mut self.hub.state.write().creating;
        creating.note_stranger(key, self.reader, manager, &object.uid);
    }

    fn is_strangers(&self, step: &Step, object: &Stored) -> bool {
        let creating = &self.hub.state.read().creating;
        creating.is_strangers(&step.served.kind, object)
    }

    /// Whether the object is there after all, and ours; an error if it is somebody else's.
    async fn is_there(&mut self, step: &Step) -> Result<bool, Failure> {
        let live = self.requests.live(&step.served, &step.desired.name).await;
        let live = live.map_err(|error| error.into_failure("look for", &step.desired.title()))?;
        let Some(live) = live else { return Ok(false) };
        if live.object.is_controlled_by(&self.owner.uid) {
            self.is_shown(step, &live.object)?;
            if self.is_strangers(step, &live.object) {
                return Err(self.withdraw(step, &live.object).await);
            }
            return Ok(true);
        }
        if takeover::take_over(&self.requests, self.lane, &self.owner, step, live).await? {
            return Ok(true);
        }
        self.create_ends(step);
        Err(self.foreign(step))
    }

    /// An apply whose answer was lost has made an object, or has found one that somebody made just before. Which, is
    /// known once the cache has seen it, where it sees all of the kind.
    fn is_shown(&self, step: &Step, live: &Stored) -> Result<(), Failure> {
        let mut state = self.hub.state.write();
        let key = key(&step.served, &step.desired.name);
        let is_cached = state
            .store
            .get(&key.kind, &key.name)
            .is_some_and(|it| it.uid == live.uid);
        if is_cached || !state.store.would_know(&key.kind, &key.name) {
            return Ok(());
        }
        state.await_echo(key, version(live), self.reader);
        Err(Failure::cluster(
            reason::WAITING,
            format!(
                "whether {} was there before is known once the watch shows it; it is tried again then",
                step.desired.title()
            ),
        ))
    }

    /// Gives back at once what an apply took that was to create, and found somebody else's object.
    pub async fn withdraw(&mut self, step: &Step, object: &Stored) -> Failure {
        let title = step.desired.title();
        tracing::warn!(
            lane = self.lane.title(),
            object = title,
            "found an object where none was known; withdrawing"
        );
        let (name, uid) = (&step.desired.name, &object.uid);
        let withdrawn = self
            .requests
            .patiently(|| self.lane.writer.withdraw(&step.served, name, uid))
            .await;
        match withdrawn {
            Ok(()) => {
                self.create_ends(step);
                self.foreign(step)
            }
            Err(error) => error.into_failure("withdraw from", &title),
        }
    }
}
