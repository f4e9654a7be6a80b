//! Decides when the host is idle, so that memory of a start or a burst is returned once, and not while there is work.

use std::time::Duration;

use tokio::time::Instant;

/// How long it has been quiet.
pub struct IdleTimer {
    /// None: it never counts as having come to rest.
    after: Option<Duration>,
    /// When the host has come to rest; none once that was noticed, until something happens again.
    due: Option<Instant>,
}

impl IdleTimer {
    /// Something has just happened, and for so long nothing must.
    pub fn new(after: Option<Duration>) -> Self {
        let mut quiet = Self { after, due: None };
        quiet.restart();
        quiet
    }

    /// Something happens.
    pub fn restart(&mut self) {
        self.due = self.after.map(|after| Instant::now() + after);
    }

    /// When the host will have come to rest.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// It has come to rest, and that is noticed.
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
