//! Owns when the host counts as having come to rest: so that what it needed for a start or a burst is given back once, and
//! not while there is still work.

use std::time::Duration;

use tokio::time::Instant;

/// How long it has been quiet.
pub struct Quiet {
    /// None: it never counts as having come to rest.
    after: Option<Duration>,
    /// When the host has come to rest; none once that was noticed, until something happens again.
    due: Option<Instant>,
}

impl Quiet {
    /// Something has just happened, and for so long nothing must.
    pub fn new(after: Option<Duration>) -> Self {
        let mut quiet = Self { after, due: None };
        quiet.disturb();
        quiet
    }

    /// Something happens.
    pub fn disturb(&mut self) {
        self.due = self.after.map(|after| Instant::now() + after);
    }

    /// When the host will have come to rest.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// It has come to rest, and that is noticed.
    pub fn noticed(&mut self) {
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rest_is_noticed_once_after_each_burst() {
        let after = Duration::from_secs(5);
        let mut quiet = Quiet::new(Some(after));
        tokio::time::advance(after / 2).await;
        quiet.disturb();
        assert_eq!(quiet.due(), Some(Instant::now() + after));
        quiet.noticed();
        assert_eq!(quiet.due(), None);
        quiet.disturb();
        assert_eq!(quiet.due(), Some(Instant::now() + after));
    }

    #[test]
    fn where_nothing_is_given_back_rest_never_comes() {
        let mut quiet = Quiet::new(None);
        quiet.disturb();
        assert_eq!(quiet.due(), None);
    }
}
