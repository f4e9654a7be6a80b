//! Records reverts: which fields of which object others had changed, and their field managers. Only paths and managers
//! are kept, never values.

use std::collections::VecDeque;
use std::sync::Arc;

use pilothouse_core::Key;
use pilothouse_core::diff::contest::FieldTaker;

use crate::lanes::primary::{LaneId, PrimaryRef};

/// The most reverts that are remembered over all primaries, and for one: about half a megabyte.
const MOST_REVERTS: usize = 512;
const MOST_OF_ONE: usize = 10;

/// A revert: others changed fields of an object, and the host set them again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revert {
    /// Time, in milliseconds since the epoch.
    pub at: u64,
    /// The object.
    pub object: Arc<Key>,
    /// Field managers that had taken fields. A removed field has no manager.
    pub takers: Vec<FieldTaker>,
    /// The first of the fields.
    pub fields: Vec<String>,
    /// Number of further fields.
    pub more_fields: usize,
}

/// The last reverts of all primaries.
#[derive(Debug, Default)]
pub struct RevertHistory(VecDeque<(PrimaryRef, Revert)>);

impl RevertHistory {
    /// Records a revert for a primary.
    pub fn record(&mut self, primary_ref: PrimaryRef, revert: Revert) {
        let of_it = |(who, _): &(PrimaryRef, Revert)| *who == primary_ref;
        let known = self.0.iter().filter(|entry| of_it(entry)).count();
        let oldest = if known >= MOST_OF_ONE {
            self.0.iter().position(of_it)
        } else {
            (self.0.len() >= MOST_REVERTS).then_some(0)
        };
        if let Some(oldest) = oldest {
            self.0.remove(oldest);
        }
        self.0.push_back((primary_ref, revert));
    }

    /// Reverts for a primary, newest first.
    pub fn of(&self, primary_ref: &PrimaryRef) -> impl Iterator<Item = &Revert> {
        let of_it = self.0.iter().rev().filter(move |(who, _)| who == primary_ref);
        of_it.map(|(_, revert)| revert)
    }

    /// Forgets a deleted primary.
    pub fn forget(&mut self, primary_ref: &PrimaryRef) {
        self.0.retain(|(who, _)| who != primary_ref);
    }

    /// Forgets a removed lane.
    pub fn remove_lane(&mut self, lane: LaneId) {
        self.0.retain(|(who, _)| who.lane != lane);
    }
}

#[cfg(test)]
mod tests {
    use pilothouse_core::{Kind, Name};

    use super::*;

    fn primary(name: &str) -> PrimaryRef {
        PrimaryRef::new(LaneId(1), Name::new(Some("a"), name))
    }

    fn revert(at: u64) -> Revert {
        let kind = Arc::new(Kind::new("", "v1", "ConfigMap"));
        Revert {
            at,
            object: Arc::new(Key::new(kind, Name::new(Some("a"), "c"))),
            takers: Vec::new(),
            fields: vec![".data.a".to_owned()],
            more_fields: 0,
        }
    }

    #[test]
    fn one_primary_does_not_push_out_the_reverts_of_others() {
        let mut history = RevertHistory::default();
        history.record(primary("quiet"), revert(0));
        for at in 1..=2 * MOST_REVERTS as u64 {
            history.record(primary("busy"), revert(at));
        }
        assert_eq!(history.of(&primary("quiet")).count(), 1);
        let busy: Vec<u64> = history.of(&primary("busy")).map(|revert| revert.at).collect();
        assert_eq!((busy.len(), busy[0]), (MOST_OF_ONE, 2 * MOST_REVERTS as u64));
        for index in 0..MOST_REVERTS {
            history.record(primary(&index.to_string()), revert(0));
        }
        assert_eq!(history.of(&primary("quiet")).count(), 0, "the oldest go first");
        assert_eq!(history.0.len(), MOST_REVERTS);
    }
}
