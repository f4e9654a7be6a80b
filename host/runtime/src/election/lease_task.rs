//! Common parts of the tasks that hold Leases: they get some time to release them when stopped, and log the same
//! problem once a minute. The tasks are in [`crate::election::leadership`] and [`crate::sharding`].

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Interval at which the same problem is logged.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// A task that holds Leases. It is aborted when this is dropped.
pub struct LeaseTask {
    task: JoinHandle<()>,
    /// Present until the task is stopped.
    stop: Option<oneshot::Sender<()>>,
    patience: Duration,
}

impl LeaseTask {
    /// Runs a task, which has to release its Leases within `patience` after the receiver resolves.
    pub fn spawn<F>(patience: Duration, run: impl FnOnce(oneshot::Receiver<()>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        Self {
            task: tokio::spawn(run(stopped)),
            stop: Some(stop),
            patience,
        }
    }

    /// Releases the task's Leases, so that nobody waits for them to end, except those with unsettled writes. No further
    /// writes may start.
    pub async fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        let _ = tokio::time::timeout(self.patience, &mut self.task).await;
    }
}

impl Drop for LeaseTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Problems that were logged lately, and when: several may alternate.
#[derive(Default)]
pub struct LoggedProblems(Vec<(String, Instant)>);

impl LoggedProblems {
    /// Returns `true` if a problem was not logged for a minute, and records it as logged.
    pub fn take_due(&mut self, problem: &str) -> bool {
        self.0.retain(|(_, at)| at.elapsed() < LOG_INTERVAL);
        let is_due = !self.0.iter().any(|(logged, _)| logged == problem);
        if is_due {
            self.0.push((problem.to_owned(), Instant::now()));
        }
        is_due
    }

    /// Forgets the problems, so that each is logged at once if it returns.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_problem_is_logged_once_a_minute_until_it_recovers() {
        let mut logged = LoggedProblems::default();
        assert!(logged.take_due("a"));
        assert!(!logged.take_due("a"));
        assert!(logged.take_due("b"), "another problem is news");
        assert!(!logged.take_due("a"), "problems that take turns are not");
        tokio::time::advance(LOG_INTERVAL).await;
        assert!(logged.take_due("b"));
        logged.clear();
        assert!(logged.take_due("b"));
    }
}
