//! Decides what a candidate for leadership does with a Lease, given its content and a monotonic clock.
//!
//! The algorithm is that of client-go
//! (<https://github.com/kubernetes/client-go/blob/v0.36.0/tools/leaderelection/leaderelection.go>): a candidate
//! measures with its own clock how long it has seen the same record, and never compares another machine's time with its
//! own. It differs in three points. An identity belongs to one process, so a record with it was written by this
//! process. A Lease that is deleted while it has a holder counts as held for as long as it would have been, because its
//! holder may write until it notices. For the same reason an edit by hand never shortens the wait: only a record that
//! its holder released ends it, and `leaseDurationSeconds` can make it longer than this candidate's own duration, never
//! shorter.
//!
//! A candidate that finds no Lease, and has never seen one, takes it at once: it cannot know whether this is the first
//! start. It also takes at once a Lease that has never had a holder, as a chart creates it: one without a holder, times
//! and transitions.

use std::time::Duration;

/// The longest duration of a Lease, whatever its record says.
pub const LONGEST: Duration = Duration::from_mins(5);

/// The timing of a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseTimes {
    /// The time that others wait after the last renewal that they saw.
    pub duration: Duration,
    /// The time that the holder keeps writing after its last renewal.
    pub renew_deadline: Duration,
    /// The interval between two attempts.
    pub retry_period: Duration,
}

impl Default for LeaseTimes {
    /// The defaults of client-go and controller-runtime: 15 s, 10 s and 2 s.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// The reason why times cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseTimesError {
    /// A holder would write while another candidate takes the Lease.
    #[error("--lease-duration must be longer than --lease-renew-deadline")]
    Duration,
    /// A holder would have only one attempt to renew it.
    #[error("--lease-renew-deadline must be at least twice --lease-retry-period")]
    RenewDeadline,
    /// Nobody would take over for a very long time.
    #[error("--lease-duration must be at most {} s", LONGEST.as_secs())]
    Longest,
}

impl LeaseTimes {
    /// Refuses times with which two replicas could write at once, or none could.
    pub fn check(self) -> Result<Self, LeaseTimesError> {
        if self.duration <= self.renew_deadline {
            return Err(LeaseTimesError::Duration);
        }
        if self.renew_deadline < self.retry_period * 2 {
            return Err(LeaseTimesError::RenewDeadline);
        }
        if self.duration > LONGEST {
            return Err(LeaseTimesError::Longest);
        }
        Ok(self)
    }
}

/// The spec of a Lease of `coordination.k8s.io/v1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LeaseRecord {
    /// `holderIdentity`; empty if it has no holder.
    pub holder: String,
    /// `leaseDurationSeconds`.
    pub duration_seconds: i32,
    /// `acquireTime`, RFC 3339.
    pub acquired: Option<String>,
    /// `renewTime`, RFC 3339.
    pub renewed: Option<String>,
    /// `leaseTransitions`: the number of changes of its holder.
    pub transitions: i32,
}

impl LeaseRecord {
    /// The record that a holder writes to release the Lease: nobody has to wait for it.
    #[must_use]
    pub fn given_back(&self, time: &str) -> Self {
        Self {
            holder: String::new(),
            duration_seconds: 1,
            acquired: Some(time.to_owned()),
            renewed: Some(time.to_owned()),
            transitions: self.transitions,
        }
    }

    /// Reports whether its holder, and not an edit by hand, has released it, in the form of [`Self::given_back`] and
    /// client-go.
    fn is_given_back(&self) -> bool {
        self.holder.is_empty() && self.duration_seconds == 1 && self.acquired == self.renewed
    }

    /// Reports whether it has never had a holder. An edit by hand that removes the holder leaves the times.
    pub fn is_unused(&self) -> bool {
        self.holder.is_empty() && self.acquired.is_none() && self.renewed.is_none() && self.transitions == 0
    }

    /// The time for which it is valid after a renewal.
    fn duration(&self) -> Duration {
        let seconds = u64::try_from(self.duration_seconds).unwrap_or(0);
        Duration::from_secs(seconds).min(LONGEST)
    }
}

/// The next step of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseStep {
    /// Another candidate holds the Lease, at least until then.
    Wait(Duration),
    /// Write this record, if the Lease is unchanged. The candidate leads if the write succeeds.
    Write(LeaseRecord),
}

/// A candidate for leadership.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseCandidate {
    identity: String,
    times: LeaseTimes,
    seen: Option<SeenRecord>,
}

/// A record, and the time since which it has been seen unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SeenRecord {
    record: LeaseRecord,
    since: Duration,
    /// The time until which a process may write because of this record, or of the one before it.
    until: Duration,
    /// That process; empty if an edit by hand has removed a holder that this candidate has not seen.
    writer: String,
    /// Set if someone else has named this candidate while another one may still write.
    is_named: bool,
}

impl LeaseCandidate {
    /// A candidate with an identity that no other process has, now or later.
    pub fn new(identity: String, times: LeaseTimes) -> Self {
        Self {
            identity,
            times,
            seen: None,
        }
    }

    /// Its identity.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The next step for the live Lease, if there is one. `now` is monotonic; `time` is the wall-clock time to write.
    pub fn next(&mut self, live: Option<&LeaseRecord>, now: Duration, time: &str) -> LeaseStep {
        self.observe(live, now);
        let of_another = |seen: &&SeenRecord| seen.writer != self.identity || seen.is_named;
        if let Some(SeenRecord { until, .. }) = self.seen.as_ref().filter(of_another)
            && now < *until
        {
            return LeaseStep::Wait(*until);
        }
        LeaseStep::Write(self.own_record(live, time))
    }

    /// Records the observed state of the Lease, if there is one.
    pub fn observe(&mut self, live: Option<&LeaseRecord>, now: Duration) {
        if let Some(live) = live
            && self.seen.as_ref().is_none_or(|seen| seen.record != *live)
        {
            self.seen = Some(self.changed(live, now));
        }
    }

    /// Interprets a new record.
    fn changed(&self, live: &LeaseRecord, now: Duration) -> SeenRecord {
        let before = self.seen.as_ref().filter(|before| now < before.until);
        let ended = now + self.times.duration.max(live.duration());
        let (until, writer, is_named) = match before {
            _ if live.is_given_back() && self.is_written_anew(live) => (now, String::new(), false),
            None if live.is_unused() && self.seen.is_none() => (now, String::new(), false),
            // The holder that was removed by hand writes until it notices, and it may have renewed the Lease before.
            Some(before) if live.holder.is_empty() => {
                let until = if self.is_written_anew(live) {
                    before.until.max(ended)
                } else {
                    before.until
                };
                (until, before.writer.clone(), before.is_named)
            }
            // The earlier writer may write until then, whatever the record says now. A record that names this candidate
            // is not its own before that time is over.
            Some(before) if before.writer != self.identity || before.is_named => {
                let is_named = live.holder == self.identity;
                (before.until.max(ended), live.holder.clone(), is_named)
            }
            _ if live.holder.is_empty() && self.had_it_last(live) => (now, String::new(), false),
            _ => (ended, live.holder.clone(), false),
        };
        SeenRecord {
            record: live.clone(),
            since: now,
            until,
            writer,
            is_named,
        }
    }

    /// Reports whether a holder has written the record since the last one seen: an edit by hand keeps the times.
    fn is_written_anew(&self, live: &LeaseRecord) -> bool {
        let before = self.seen.as_ref().map(|seen| &seen.record);
        let is_other = |before: &LeaseRecord| before.renewed != live.renewed || before.acquired != live.acquired;
        live.renewed.is_some() && before.is_none_or(is_other)
    }

    /// Reports whether this candidate held the Lease before someone cleared it, with no other holder in between.
    fn had_it_last(&self, live: &LeaseRecord) -> bool {
        let before = self.seen.as_ref().map(|seen| &seen.record);
        before.is_some_and(|before| before.holder == self.identity && before.transitions == live.transitions)
    }

    /// The observed holder of the Lease, which may be this candidate. A Lease that is deleted, or whose holder was
    /// removed by hand, counts as held for as long as it would have been.
    pub fn holder(&self, now: Duration) -> Option<&str> {
        let SeenRecord { until, writer, .. } = self.seen.as_ref()?;
        (!writer.is_empty() && now < *until).then_some(&**writer)
    }

    /// Reports whether someone else has named this candidate in the Lease. It holds the Lease once it writes to it.
    pub fn is_named(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.is_named)
    }

    /// The time for which the Lease has been observed unchanged; none if it has never been seen.
    pub fn unchanged_for(&self, now: Duration) -> Option<Duration> {
        self.seen.as_ref().map(|seen| now.saturating_sub(seen.since))
    }

    fn own_record(&self, live: Option<&LeaseRecord>, time: &str) -> LeaseRecord {
        let own = live.filter(|live| live.holder == self.identity);
        let transitions = match (own, live) {
            (Some(own), _) => own.transitions,
            (None, Some(other)) => other.transitions.saturating_add(1),
            (None, None) => 0,
        };
        LeaseRecord {
            holder: self.identity.clone(),
            duration_seconds: i32::try_from(self.times.duration.as_secs()).unwrap_or(i32::MAX).max(1),
            acquired: own.map_or_else(|| Some(time.to_owned()), |own| own.acquired.clone()),
            renewed: Some(time.to_owned()),
            transitions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1000);

    fn at(seconds: u64) -> Duration {
        START + Duration::from_secs(seconds)
    }

    fn candidate(identity: &str) -> LeaseCandidate {
        LeaseCandidate::new(identity.to_owned(), LeaseTimes::default())
    }

    fn written(step: LeaseStep) -> LeaseRecord {
        match step {
            LeaseStep::Write(record) => record,
            LeaseStep::Wait(until) => panic!("waits until {until:?}"),
        }
    }

    fn held_by(holder: &str, renewed: &str) -> LeaseRecord {
        LeaseRecord {
            holder: holder.to_owned(),
            duration_seconds: 15,
            acquired: Some("then".to_owned()),
            renewed: Some(renewed.to_owned()),
            transitions: 3,
        }
    }

    #[test]
    fn lease_is_held_until_unchanged_for_its_duration() {
        let mut one = candidate("one");
        assert_eq!(one.holder(at(0)), None);
        one.observe(Some(&held_by("two", "then")), at(0));
        assert_eq!((one.holder(at(14)), one.holder(at(15))), (Some("two"), None));
        one.observe(Some(&held_by("two", "later")), at(10));
        one.observe(None, at(20));
        assert_eq!(
            (one.holder(at(24)), one.holder(at(25))),
            (Some("two"), None),
            "it was deleted"
        );
        one.observe(Some(&held_by("two", "later").given_back("now")), at(20));
        assert_eq!(one.holder(at(20)), None, "it was given back");
    }

    #[test]
    fn a_lease_that_nobody_ever_held_is_taken_at_once() {
        let made_by_a_chart = LeaseRecord {
            duration_seconds: 15,
            ..LeaseRecord::default()
        };
        for unused in [LeaseRecord::default(), made_by_a_chart] {
            let taken = written(candidate("one").next(Some(&unused), at(0), "now"));
            assert_eq!(taken.holder, "one");
            let mut two = candidate("two");
            two.observe(Some(&held_by("one", "then")), at(0));
            assert_eq!(
                two.next(Some(&unused), at(1), "now"),
                LeaseStep::Wait(at(15)),
                "whoever was seen to hold it may still write"
            );
            assert!(matches!(two.next(Some(&unused), at(15), "now"), LeaseStep::Write(_)));
        }
        let holder_removed = LeaseRecord {
            holder: String::new(),
            ..held_by("two", "then")
        };
        for removed in [
            holder_removed.clone(),
            LeaseRecord {
                transitions: 0,
                ..holder_removed.clone()
            },
            LeaseRecord {
                renewed: None,
                acquired: None,
                ..holder_removed
            },
        ] {
            let step = candidate("one").next(Some(&removed), at(0), "now");
            assert_eq!(step, LeaseStep::Wait(at(15)), "{removed:?}");
        }
    }

    #[test]
    fn a_lease_that_nobody_holds_is_taken_at_once() {
        let mut one = candidate("one");
        let record = written(one.next(None, at(0), "now"));
        assert_eq!(
            record,
            LeaseRecord {
                holder: "one".to_owned(),
                duration_seconds: 15,
                acquired: Some("now".to_owned()),
                renewed: Some("now".to_owned()),
                transitions: 0,
            }
        );
        let released = record.given_back("later");
        assert_eq!((released.holder.as_str(), released.duration_seconds), ("", 1));
        let taken = written(candidate("two").next(Some(&released), at(1), "later"));
        assert_eq!((taken.holder.as_str(), taken.transitions), ("two", 1));
    }

    #[test]
    fn its_holder_renews_it_and_keeps_since_when_it_has_it() {
        let mut one = candidate("one");
        let record = written(one.next(Some(&held_by("one", "a")), at(100), "b"));
        assert_eq!(
            record,
            LeaseRecord {
                renewed: Some("b".to_owned()),
                ..held_by("one", "a")
            }
        );
    }

    #[test]
    fn wait_counts_from_observed_change_whatever_the_times_say() {
        let mut two = candidate("two");
        // The holder's clock is years behind.
        let mut live = held_by("one", "2001-01-01T00:00:00Z");
        assert_eq!(two.next(Some(&live), at(0), "now"), LeaseStep::Wait(at(15)));
        assert_eq!(two.next(Some(&live), at(14), "now"), LeaseStep::Wait(at(15)));
        live.renewed = Some("2001-01-01T00:00:14Z".to_owned());
        assert_eq!(two.next(Some(&live), at(14), "now"), LeaseStep::Wait(at(29)));
        let taken = written(two.next(Some(&live), at(29), "now"));
        assert_eq!((taken.holder.as_str(), taken.transitions), ("two", 4));
    }

    #[test]
    fn deleted_lease_counts_as_held_until_it_would_have_ended() {
        let mut two = candidate("two");
        assert_eq!(
            two.next(Some(&held_by("one", "a")), at(0), "now"),
            LeaseStep::Wait(at(15))
        );
        assert_eq!(two.next(None, at(5), "now"), LeaseStep::Wait(at(15)));
        assert_eq!(written(two.next(None, at(15), "now")).holder, "two");
        // Its holder makes it anew at once.
        let mut one = candidate("one");
        one.next(Some(&held_by("one", "a")), at(0), "now");
        assert_eq!(written(one.next(None, at(1), "now")).holder, "one");
    }

    #[test]
    fn what_somebody_writes_into_it_ends_some_time() {
        for duration_seconds in [i32::MIN, -1, 0, 1, 14] {
            let live = LeaseRecord {
                duration_seconds,
                ..held_by("x", "a")
            };
            let mut two = candidate("two");
            assert_eq!(two.next(Some(&live), at(0), "now"), LeaseStep::Wait(at(15)));
            assert_eq!(written(two.next(Some(&live), at(15), "now")).holder, "two");
        }
        let live = LeaseRecord {
            duration_seconds: i32::MAX,
            transitions: i32::MAX,
            ..held_by("x", "a")
        };
        let mut two = candidate("two");
        assert_eq!(two.next(Some(&live), at(0), "now"), LeaseStep::Wait(START + LONGEST));
        let taken = written(two.next(Some(&live), START + LONGEST, "now"));
        assert_eq!(taken.transitions, i32::MAX);
    }

    #[test]
    fn what_somebody_edits_by_hand_does_not_shorten_the_wait() {
        let cleared = held_by("", "a");
        let hurried = LeaseRecord {
            duration_seconds: 1,
            ..held_by("one", "a")
        };
        let both = LeaseRecord {
            duration_seconds: 1,
            ..held_by("", "a")
        };
        for edited in [&cleared, &hurried, &both] {
            // One that has seen the holder, and one that begins now.
            let mut two = candidate("two");
            two.observe(Some(&held_by("one", "a")), at(0));
            let waits = |step: LeaseStep, from: u64, to: u64| match step {
                LeaseStep::Wait(until) => assert!((at(from)..=at(to)).contains(&until), "{edited:?}: {until:?}"),
                LeaseStep::Write(record) => panic!("{edited:?}: takes it with {record:?}"),
            };
            waits(two.next(Some(edited), at(5), "now"), 15, 20);
            assert_eq!(two.holder(at(14)), Some("one"), "{edited:?}");
            let mut three = candidate("three");
            waits(three.next(Some(edited), at(5), "now"), 20, 20);
            // The holder itself writes it anew at once.
            let mut one = candidate("one");
            one.observe(Some(&held_by("one", "a")), at(0));
            assert_eq!(written(one.next(Some(edited), at(5), "now")).holder, "one");
            one.observe(Some(&held_by("one", "a")), at(0));
            assert_eq!(written(one.next(Some(edited), at(40), "now")).holder, "one");
            for it in [&mut two, &mut three] {
                assert!(
                    matches!(it.next(Some(edited), at(20), "now"), LeaseStep::Write(_)),
                    "{edited:?}"
                );
            }
        }
        // A holder that nobody heard for a while renews the Lease, and is removed by hand before that is seen.
        let mut two = candidate("two");
        two.observe(Some(&held_by("one", "a")), at(0));
        assert_eq!(
            two.next(Some(&held_by("", "b")), at(14), "now"),
            LeaseStep::Wait(at(29))
        );
        // One that has never been renewed looks like one that was given back, if somebody clears it.
        let mut two = candidate("two");
        let first = LeaseRecord {
            acquired: Some("a".to_owned()),
            ..held_by("one", "a")
        };
        two.observe(Some(&first), at(0));
        let looks_given_back = LeaseRecord {
            holder: String::new(),
            duration_seconds: 1,
            ..first
        };
        assert_eq!(two.next(Some(&looks_given_back), at(5), "now"), LeaseStep::Wait(at(15)));
        let mut two = candidate("two");
        two.observe(Some(&held_by("one", "a")), at(0));
        let given_back = held_by("one", "a").given_back("b");
        assert_eq!(written(two.next(Some(&given_back), at(1), "now")).holder, "two");
    }

    #[test]
    fn who_is_named_by_hand_waits_as_long_as_others() {
        let mut two = candidate("two");
        two.observe(Some(&held_by("one", "a")), at(0));
        let named = held_by("two", "a");
        assert_eq!(two.next(Some(&named), at(5), "now"), LeaseStep::Wait(at(20)));
        assert_eq!((two.holder(at(19)), two.is_named()), (Some("two"), true));
        assert_eq!(two.next(Some(&named), at(19), "now"), LeaseStep::Wait(at(20)));
        let record = written(two.next(Some(&named), at(20), "now"));
        assert_eq!(record.holder, "two");
        // From here on it is the holder.
        two.observe(Some(&record), at(20));
        assert_eq!((two.holder(at(21)), two.is_named()), (Some("two"), false));
        assert_eq!(written(two.next(Some(&record), at(22), "later")).holder, "two");
        // Another edit by hand does not end the wait.
        let mut two = candidate("two");
        two.observe(Some(&held_by("one", "a")), at(0));
        two.observe(Some(&held_by("two", "a")), at(5));
        let again = held_by("two", "b");
        assert_eq!(two.next(Some(&again), at(6), "now"), LeaseStep::Wait(at(21)));
        // The one that held it stops.
        let mut one = candidate("one");
        one.observe(Some(&held_by("one", "a")), at(0));
        assert_eq!(one.next(Some(&named), at(5), "now"), LeaseStep::Wait(at(20)));
    }

    /// One part of a process holds the Lease, and another part looks at it later.
    #[test]
    fn observer_sees_at_once_that_its_own_process_holds_the_lease() {
        let mut looks = candidate("two");
        looks.observe(Some(&held_by("one", "a")), at(0));
        for (now, renewed) in [(14, "b"), (16, "c"), (18, "d"), (40, "e")] {
            looks.observe(Some(&held_by("two", renewed)), at(now));
            assert_eq!(looks.holder(at(now)), Some("two"), "{now}");
            assert_eq!(looks.holder(at(now + 1)), Some("two"), "{now}");
        }
        assert_eq!(looks.holder(at(55)), None);
    }

    #[test]
    fn times_with_which_two_could_write_are_refused() {
        let times = |duration, renew_deadline, retry_period| {
            let [duration, renew_deadline, retry_period] =
                [duration, renew_deadline, retry_period].map(Duration::from_secs);
            let times = LeaseTimes {
                duration,
                renew_deadline,
                retry_period,
            };
            times.check()
        };
        assert!(LeaseTimes::default().check().is_ok());
        assert_eq!(times(10, 10, 2), Err(LeaseTimesError::Duration));
        assert_eq!(times(15, 3, 2), Err(LeaseTimesError::RenewDeadline));
        assert_eq!(times(301, 10, 2), Err(LeaseTimesError::Longest));
        assert!(times(300, 4, 2).is_ok());
    }

    /// Two candidates, one of which stops and goes on, under every order of a few steps: never do both lead at once.
    #[test]
    fn no_two_candidates_lead_at_once() {
        let times = LeaseTimes::default();
        for stop_at in 0..40_u64 {
            for stopped_for in [0, 5, 9, 10, 11, 14, 15, 16, 30] {
                let mut live: Option<LeaseRecord> = None;
                let mut candidates = [candidate("one"), candidate("two")];
                let mut leads_until = [Duration::ZERO; 2];
                for second in 0..120 {
                    let now = at(second);
                    for (candidate, leads_until) in candidates.iter_mut().zip(&mut leads_until) {
                        let is_first = candidate.identity() == "one";
                        let is_stopped = is_first && (stop_at..stop_at + stopped_for).contains(&second);
                        // They take turns.
                        if is_stopped || is_first == second.is_multiple_of(2) {
                            continue;
                        }
                        let step = candidate.next(live.as_ref(), now, &format!("{second}"));
                        *leads_until = Duration::ZERO;
                        if let LeaseStep::Write(record) = step {
                            live = Some(record);
                            *leads_until = now + times.renew_deadline;
                        }
                    }
                    let leading = leads_until.iter().filter(|until| now < **until).count();
                    assert!(
                        leading <= 1,
                        "stopped at {stop_at} for {stopped_for}: both lead at {second}"
                    );
                }
                assert!(
                    leads_until.iter().any(|until| at(119) < *until),
                    "somebody leads in the end"
                );
            }
        }
    }
}
