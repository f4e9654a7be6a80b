//! Owns what the API server has refused for good: the same body is not sent again while nothing has changed.

use std::collections::HashMap;
use std::time::Duration;

use pilothouse_cluster::object::CachedObject;
use pilothouse_core::{Failure, Key, Kind};
use tokio::time::Instant;

/// How long a refusal counts. What refuses can change without the object changing: a port that somebody else holds, say. A
/// change of the kind's definition ends it at once (`definitions`), and what a policy or a webhook denies is no refusal for
/// good: it is tried again with back-off.
const COUNTS_FOR: Duration = Duration::from_hours(6);

/// The most refusals that are remembered; beyond it the oldest are forgotten first.
const REMEMBERED: usize = 10_000;

/// Which part of an object was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusedPart {
    /// All but the status.
    Main,
    /// The status.
    Status,
    /// The status without what the plugin says of it.
    StatusWithoutAnswer,
    /// What the host itself says of an object, and nothing else.
    BareStatus,
}

impl RefusedPart {
    /// All that there is of a status.
    pub const OF_STATUS: [Self; 3] = [Self::Status, Self::StatusWithoutAnswer, Self::BareStatus];
}

/// What was refused, by the object and its part.
#[derive(Debug, Default)]
pub struct Refusals {
    known: HashMap<(Key, RefusedPart), Refusal>,
}

#[derive(Debug)]
struct Refusal {
    digest: Box<str>,
    live: Option<Box<str>>,
    failure: Failure,
    at: Instant,
}

impl Refusals {
    /// Why a body of this digest would be refused again, as far as that is known.
    pub fn recall(
        &self,
        key: &Key,
        part: RefusedPart,
        digest: &str,
        live: Option<&CachedObject>,
        now: Instant,
    ) -> Option<Failure> {
        let refusal = self.known.get(&(key.clone(), part))?;
        let same = *refusal.digest == *digest && refusal.live == live.map(state_of);
        (same && now.duration_since(refusal.at) < COUNTS_FOR).then(|| refusal.failure.clone())
    }

    /// A body of this digest was refused.
    pub fn note(
        &mut self,
        (key, part): (Key, RefusedPart),
        digest: &str,
        live: Option<&CachedObject>,
        failure: Failure,
        now: Instant,
    ) {
        if self.known.len() >= REMEMBERED {
            self.known
                .retain(|_, refusal| now.duration_since(refusal.at) < COUNTS_FOR);
        }
        if self.known.len() >= REMEMBERED
            && let Some(oldest) = self
                .known
                .iter()
                .min_by_key(|(_, refusal)| refusal.at)
                .map(|(key, _)| key.clone())
        {
            self.known.remove(&oldest);
        }
        let refusal = Refusal {
            digest: digest.into(),
            live: live.map(state_of),
            failure,
            at: now,
        };
        self.known.insert((key, part), refusal);
    }

    /// What refused objects of a kind is another than it was. Says whether there was anything.
    pub fn forget_kind(&mut self, kind: &Kind) -> bool {
        let before = self.known.len();
        self.known.retain(|(key, _), _| *key.kind != *kind);
        self.known.len() != before
    }

    /// What was refused has been taken, or is gone.
    pub fn forget(&mut self, key: Key, part: RefusedPart) {
        if !self.known.is_empty() {
            self.known.remove(&(key, part));
        }
    }
}

/// What of a live object decides whether a body fits it: its specification, where it has a generation.
fn state_of(live: &CachedObject) -> Box<str> {
    match live.generation {
        Some(generation) => format!("{} {generation}", live.uid).into(),
        None => format!("{} {}", live.uid, live.resource_version).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pilothouse_core::Name;
    use pilothouse_core::kubernetes::path::Projection;
    use pilothouse_core::status::reason::Reason;

    use super::*;

    fn key(name: &str) -> Key {
        Key::new(
            Arc::new(Kind::new("apps", "v1", "Deployment")),
            Name::new(Some("a"), name),
        )
    }

    fn live(generation: u32, version: u32) -> CachedObject {
        let text = format!(
            r#"{{"metadata":{{"name":"x","uid":"u","generation":{generation},"resourceVersion":"{version}"}}}}"#
        );
        CachedObject::read(&text, &Kind::new("apps", "v1", "Deployment"), &Projection::default()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_body_on_the_same_object_is_not_sent_again() {
        let mut refusals = Refusals::default();
        let failure = Failure::guest(Reason::Refused, "no");
        refusals.note(
            (key("x"), RefusedPart::Main),
            "d1",
            Some(&live(1, 5)),
            failure.clone(),
            Instant::now(),
        );
        let recall = |name: &str, part, digest: &str, live: Option<&CachedObject>| {
            refusals.recall(&key(name), part, digest, live, Instant::now())
        };
        assert_eq!(
            recall("x", RefusedPart::Main, "d1", Some(&live(1, 5))),
            Some(failure.clone())
        );
        assert_eq!(
            recall("x", RefusedPart::Main, "d1", Some(&live(1, 6))),
            Some(failure),
            "a new status is no change"
        );
        assert_eq!(recall("x", RefusedPart::Main, "d1", Some(&live(2, 6))), None);
        assert_eq!(recall("x", RefusedPart::Main, "d1", None), None);
        assert_eq!(recall("x", RefusedPart::Main, "d2", Some(&live(1, 5))), None);
        assert_eq!(recall("x", RefusedPart::Status, "d1", Some(&live(1, 5))), None);
        assert_eq!(recall("y", RefusedPart::Main, "d1", Some(&live(1, 5))), None);
        tokio::time::advance(COUNTS_FOR).await;
        assert_eq!(
            refusals.recall(&key("x"), RefusedPart::Main, "d1", Some(&live(1, 5)), Instant::now()),
            None,
            "it is tried again some day"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_are_remembered_than_there_is_room_for() {
        let mut refusals = Refusals::default();
        for number in 0..REMEMBERED + 10 {
            let failure = Failure::guest(Reason::Refused, "no");
            refusals.note(
                (key(&number.to_string()), RefusedPart::Main),
                "d",
                None,
                failure,
                Instant::now(),
            );
        }
        assert_eq!(refusals.known.len(), REMEMBERED);
    }
}
