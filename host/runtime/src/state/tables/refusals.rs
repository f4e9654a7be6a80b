//! Remembers permanent rejections by the API server: the same body is not sent again while nothing has changed.

use std::collections::HashMap;
use std::time::Duration;

use pilothouse_cluster::object::CachedObject;
use pilothouse_core::{Failure, Key, Kind};
use tokio::time::Instant;

/// Validity of a rejection. Its cause may disappear without a change of the object: a port that another object uses,
/// for example. A change of the kind's definition ends it at once (`definitions`). A denial by a policy or a webhook is
/// not permanent: it is retried with back-off.
const COUNTS_FOR: Duration = Duration::from_hours(6);

/// The most refusals that are remembered; beyond it the oldest are forgotten first.
const REMEMBERED: usize = 10_000;

/// Part of an object that was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusedPart {
    /// The object without its status.
    Main,
    /// The status.
    Status,
    /// The status without the plugin's part.
    StatusWithoutAnswer,
    /// The host's part of the status alone.
    BareStatus,
}

impl RefusedPart {
    /// All parts of a status.
    pub const OF_STATUS: [Self; 3] = [Self::Status, Self::StatusWithoutAnswer, Self::BareStatus];
}

/// Rejections by object and part.
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
    /// The failure with which a body of this digest would be rejected again, as far as known.
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

    /// Records that a body of this digest was rejected.
    pub fn record(
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

    /// Forgets the rejections of a kind after their cause changed. Returns `true` if there were any.
    pub fn forget_kind(&mut self, kind: &Kind) -> bool {
        let before = self.known.len();
        self.known.retain(|(key, _), _| *key.kind != *kind);
        self.known.len() != before
    }

    /// Forgets a rejection, because the part was accepted or the object is gone.
    pub fn forget(&mut self, key: Key, part: RefusedPart) {
        if !self.known.is_empty() {
            self.known.remove(&(key, part));
        }
    }
}

/// Identifies the state of a live object that decides whether a body is accepted: the generation, if it has one.
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
        refusals.record(
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
            refusals.record(
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
