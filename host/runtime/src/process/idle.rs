//! Decides when the host is idle, so that memory of a start or a burst is returned once, and not while there is work.

use std::time::Duration;

use tokio::time::Instant;

/// Timer of the time without activity.
pub struct IdleTimer {
    /// Time without activity after which the host is idle; `None`: never.
    after: Option<Duration>,
    /// Time at which the host becomes idle; `None` after that was acknowledged, until the next activity.
    due: Option<Instant>,
}

impl IdleTimer {
    /// Starts the timer.
    pub fn new(after: Option<Duration>) -> Self {
        let mut quiet = Self { after, due: None };
        quiet.restart();
        quiet
    }

    /// Restarts the timer at an activity.
    pub fn restart(&mut self) {
        self.due = self.after.map(|after| Instant::now() + after);
    }

    /// Time at which the host becomes idle.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Acknowledges that the host is idle.
    pub fn acknowledge(&mut self) {
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rest_is_noticed_once_after_each_burst() {
        let after = Duration::from_secs(5);
        let mut quiet = IdleTimer::new(Some(after));
        tokio::time::advance(after / 2).await;
        quiet.restart();
        assert_eq!(quiet.due(), Some(Instant::now() + after));
        quiet.acknowledge();
        assert_eq!(quiet.due(), None);
        quiet.restart();
        assert_eq!(quiet.due(), Some(Instant::now() + after));
    }

    #[test]
    fn where_nothing_is_given_back_rest_never_comes() {
        let mut quiet = IdleTimer::new(None);
        quiet.restart();
        assert_eq!(quiet.due(), None);
    }
}
