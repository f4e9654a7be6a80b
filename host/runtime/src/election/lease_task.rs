//! Owns what the tasks that hold Leases have in common: they are stopped with some patience, so that they can give back what
//! they hold, and they log the same problem once a minute. What they do is in [`crate::election::leadership`] and [`crate::sharding`].

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How often the same problem is logged.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// A task that holds Leases. It ends at once when this is dropped.
pub struct LeaseTask {
    task: JoinHandle<()>,
    /// There until the task is to end.
    stop: Option<oneshot::Sender<()>>,
    patience: Duration,
}

impl LeaseTask {
    /// Runs a task, which gives back what it holds when the receiver resolves, and has so long for that.
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

    /// Gives back what the task holds, so that nobody has to wait for it, but for what the fence says is not settled. Nothing
    /// may be begun any more.
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

/// The problems that were logged lately, and when: some take turns.
#[derive(Default)]
pub struct LoggedProblems(Vec<(String, Instant)>);

impl LoggedProblems {
    /// Whether a problem is to be logged: it has not been for a minute. Counts it as logged.
    pub fn is_due(&mut self, problem: &str) -> bool {
        self.0.retain(|(_, at)| at.elapsed() < LOG_INTERVAL);
        let is_due = !self.0.iter().any(|(logged, _)| logged == problem);
        if is_due {
            self.0.push((problem.to_owned(), Instant::now()));
        }
        is_due
    }

    /// The problems are over: each is logged at once if it comes back.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_problem_is_logged_once_a_minute_and_at_once_if_it_comes_back() {
        let mut logged = LoggedProblems::default();
        assert!(logged.is_due("a"));
        assert!(!logged.is_due("a"));
        assert!(logged.is_due("b"), "another problem is news");
        assert!(!logged.is_due("a"), "problems that take turns are not");
        tokio::time::advance(LOG_INTERVAL).await;
        assert!(logged.is_due("b"));
        logged.clear();
        assert!(logged.is_due("b"));
    }
}
