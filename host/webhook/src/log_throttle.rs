//! Limits how often the log reports a misbehaving client, because any client could otherwise fill the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The least time between two lines of the same sort.
const INTERVAL: Duration = Duration::from_secs(10);

/// Lines of one sort.
#[derive(Debug, Default)]
pub struct LogThrottle {
    state: Mutex<(Option<Instant>, u64)>,
}

impl LogThrottle {
    /// Returns the number of lines that were left out since the last one, if the log may have a line now.
    pub fn may_say(&self) -> Option<u64> {
        self.may_say_at(Instant::now())
    }

    fn may_say_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, left_out) = &mut *state;
        if last.is_some_and(|last| now < last + INTERVAL) {
            *left_out += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_counted_and_told_with_the_next_line() {
        let (seldom, began) = (LogThrottle::default(), Instant::now());
        assert_eq!(seldom.may_say_at(began), Some(0));
        assert_eq!(seldom.may_say_at(began), None);
        assert_eq!(seldom.may_say_at(began + INTERVAL / 2), None);
        assert_eq!(seldom.may_say_at(began + INTERVAL), Some(2));
        assert_eq!(seldom.may_say_at(began + INTERVAL * 3), Some(0));
    }
}
