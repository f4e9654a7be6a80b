//! Reads the plugin directory, which may be on a mount that hangs. Reads therefore have threads of their own, a limit
//! of hanging reads, and a timeout.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::process::blocking::Blocking;

/// Limit of concurrent reads, including abandoned ones. Each occupies a thread.
const MOST_LOOKS: usize = 16;

/// Timeout of a read.
const LONGEST_LOOK: Duration = Duration::from_secs(10);

/// A read that has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadHung {
    /// The read itself hangs.
    #[error("the file system has not answered for {} s; check its mount", LONGEST_LOOK.as_secs())]
    This,
    /// Other reads: the limit is reached, so this one had no thread.
    #[error(
        "{MOST_LOOKS} looks at other files of the plugin directory have not come back, and no more are made; check its mount"
    )]
    Others,
    /// The thread panicked.
    #[error("the look was lost; this is a bug of the host")]
    Lost,
}

/// Reads from the plugin directory.
pub struct DirectoryReader {
    blocking: Blocking,
    threads: Arc<Semaphore>,
    /// At most one read of a path at a time: a hanging one occupies one thread, however often it is requested.
    paths: Mutex<HashMap<PathBuf, Weak<tokio::sync::Mutex<()>>>>,
}

impl DirectoryReader {
    /// Makes a reader without pending reads.
    pub fn new(blocking: Blocking) -> Self {
        Self {
            blocking,
            threads: Arc::new(Semaphore::new(MOST_LOOKS)),
            paths: Mutex::default(),
        }
    }

    /// Runs `look` for a path on a blocking thread.
    pub async fn at<T: Send + 'static>(
        &self,
        path: &Path,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ReadHung> {
        let turn = self.turn(path);
        let threads = self.threads.clone();
        let mut has_thread = true;
        let looked = async {
            let turn = turn.lock_owned().await;
            has_thread = false;
            let thread = threads.acquire_owned().await;
            has_thread = true;
            let looked = self.blocking.run(move || {
                let _held = (turn, thread);
                look()
            });
            looked.await.map_err(|_| ReadHung::Lost)
        };
        match tokio::time::timeout(LONGEST_LOOK, looked).await {
            Ok(looked) => looked,
            Err(_) if has_thread => Err(ReadHung::This),
            Err(_) => Err(ReadHung::Others),
        }
    }

    fn turn(&self, path: &Path) -> Arc<tokio::sync::Mutex<()>> {
        let mut paths = self.paths.lock();
        if let Some(turn) = paths.get(path).and_then(Weak::upgrade) {
            return turn;
        }
        paths.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::default();
        paths.insert(path.to_owned(), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A read that blocks until it is released.
    fn stuck() -> (mpsc::Sender<()>, impl FnOnce() + Send + 'static) {
        let (let_go, wait) = mpsc::channel::<()>();
        (let_go, move || {
            let _ = wait.recv();
        })
    }

    /// Lets time pass. While a thread is stuck, time does not go on by itself.
    async fn in_vain<T>(look: impl Future<Output = Result<T, ReadHung>>) -> Option<ReadHung> {
        tokio::pin!(look);
        for _ in 0..1000 {
            tokio::select! {
                biased;
                looked = &mut look => return looked.err(),
                () = tokio::task::yield_now() => tokio::time::advance(LONGEST_LOOK / 100).await,
            }
        }
        panic!("it is waited for ever")
    }

    #[tokio::test(start_paused = true)]
    async fn a_hung_read_is_given_up_takes_one_thread_and_blocks_nobody() {
        let looks = DirectoryReader::new(Blocking::Threads);
        let (let_go, look) = stuck();
        let path = Path::new("/hung");
        assert_eq!(in_vain(looks.at(path, look)).await, Some(ReadHung::This));
        for _ in 0..2 * MOST_LOOKS {
            assert_eq!(in_vain(looks.at(path, || ())).await, Some(ReadHung::This));
        }
        assert_eq!(looks.threads.available_permits(), MOST_LOOKS - 1);
        assert_eq!(looks.at(Path::new("/sound"), || 1).await, Ok(1));
        drop(let_go);
        assert_eq!(
            looks.at(path, || 2).await,
            Ok(2),
            "it is looked at again once it answers"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_threads_hang_than_there_may_be() {
        let looks = DirectoryReader::new(Blocking::Threads);
        let mut held = Vec::new();
        for number in 0..MOST_LOOKS {
            let (let_go, look) = stuck();
            held.push(let_go);
            let path = PathBuf::from(format!("/hung/{number}"));
            assert_eq!(in_vain(looks.at(&path, look)).await, Some(ReadHung::This));
        }
        let other = Path::new("/sound");
        assert_eq!(in_vain(looks.at(other, || ())).await, Some(ReadHung::Others));
        drop(held);
        assert_eq!(looks.at(other, || 3).await, Ok(3));
        assert!(looks.paths.lock().len() <= MOST_LOOKS + 1);
    }
}
