//! Runs work that occupies a thread, such as the call of a guest: on blocking threads, or, for reproducible tests, one
//! after the other on the runtime's own thread.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinError;

/// Nominal duration of such work if it must not depend on the machine.
const NOMINAL: Duration = Duration::from_millis(1);

/// Executor of work that occupies a thread.
#[derive(Clone, Default)]
pub enum Blocking {
    /// On tokio's threads for blocking work.
    #[default]
    Threads,
    /// On the runtime's thread, so that nothing depends on how threads are scheduled. On tokio's clock, which a test
    /// has paused, each piece of work takes as long as the function returns.
    InTurn(Arc<dyn Fn() -> Duration + Send + Sync>),
}

impl Blocking {
    /// Runs a piece of work. It continues to its end if the caller is cancelled.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
        match self {
            Self::Threads => tokio::task::spawn_blocking(work).await,
            Self::InTurn(takes) => {
                let half = takes() / 2;
                let task = tokio::spawn(async move {
                    tokio::time::sleep(half).await;
                    let done = work();
                    tokio::time::sleep(half).await;
                    done
                });
                task.await
            }
        }
    }

    /// Duration of a piece of work: the measured one, unless the run has to be reproducible.
    pub fn taken(&self, measured: Duration) -> Duration {
        match self {
            Self::Threads => measured,
            Self::InTurn(_) => NOMINAL,
        }
    }
}

impl fmt::Debug for Blocking {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Threads => "Threads",
            Self::InTurn(_) => "InTurn",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn work_in_turn_takes_the_time_that_the_test_says() {
        let blocking = Blocking::InTurn(Arc::new(|| Duration::from_secs(4)));
        let begun = Instant::now();
        assert_eq!(blocking.run(|| 7).await.unwrap(), 7);
        assert_eq!(begun.elapsed(), Duration::from_secs(4));
        assert_eq!(blocking.taken(Duration::from_mins(1)), NOMINAL);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_panics_is_an_error_wherever_it_runs() {
        for blocking in [Blocking::Threads, Blocking::InTurn(Arc::new(|| Duration::ZERO))] {
            let lost = blocking.run(|| panic!("as the test wants")).await;
            assert!(lost.is_err_and(|error| error.is_panic()), "{blocking:?}");
        }
    }
}
