//! Reads directories that may be on a mount that hangs. Each read has a thread that may block and a time limit. A
//! hanging read keeps its thread, so the number of threads per directory is limited.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::{ArtifactError, ErrorKind};

/// The time limit of one read, and of the wait for its thread.
const LONGEST_READ: Duration = Duration::from_secs(10);

/// The highest number of threads that read one directory, including abandoned ones.
const THREADS: usize = 4;

/// Reads of directories that may hang. Cheap to clone; clones share their threads.
#[derive(Clone, Default)]
pub struct DirectoryReads {
    threads: Arc<Mutex<HashMap<PathBuf, Weak<Semaphore>>>>,
}

impl DirectoryReads {
    /// Reads from a directory. After ten seconds it fails with a time-out, and the abandoned read keeps its thread.
    pub async fn run<T: Send + 'static>(
        &self,
        directory: &Path,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ArtifactError> {
        let threads = self.threads(directory);
        let reading = async {
            let thread = threads.acquire_owned().await;
            let read = move || {
                let _held = thread;
                read()
            };
            tokio::task::spawn_blocking(read).await
        };
        match tokio::time::timeout(LONGEST_READ, reading).await {
            Ok(Ok(read)) => Ok(read),
            Ok(Err(lost)) => {
                let message = format!("cannot read {}: a thread was lost: {lost}", directory.display());
                Err(ArtifactError::new(ErrorKind::Io, message))
            }
            Err(_) => {
                let message = format!(
                    "cannot read {}: it has not answered for {} s; check its mount",
                    directory.display(),
                    LONGEST_READ.as_secs()
                );
                Err(ArtifactError::new(ErrorKind::Timeout, message))
            }
        }
    }

    fn threads(&self, directory: &Path) -> Arc<Semaphore> {
        let mut threads = self.threads.lock();
        if let Some(found) = threads.get(directory).and_then(Weak::upgrade) {
            return found;
        }
        // A read that hangs keeps its directory in the table.
        threads.retain(|_, used| used.strong_count() > 0);
        let new = Arc::new(Semaphore::new(THREADS));
        threads.insert(directory.to_owned(), Arc::downgrade(&new));
        new
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::mpsc;
    use std::sync::mpsc::Sender;

    use super::*;

    /// Lets the time of one read pass, and waits for the end of something. While a thread is stuck, paused time does not go on
    /// by itself, so that what is read by other threads has as much time as it takes.
    pub(crate) async fn while_time_passes<T>(work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        for _ in 0..=100 {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = tokio::task::yield_now() => tokio::time::advance(LONGEST_READ / 100).await,
            }
        }
        work.await
    }

    /// Has all threads of a directory hang, until what is returned is dropped.
    pub(crate) async fn hang(reads: &DirectoryReads, directory: &Path) -> Vec<Sender<()>> {
        let mut held = Vec::new();
        for _ in 0..THREADS {
            let (let_go, wait) = mpsc::channel::<()>();
            held.push(let_go);
            let stuck = reads.run(directory, move || wait.recv().is_ok());
            let error = while_time_passes(stuck).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
            assert!(error.to_string().contains("check its mount"), "{error}");
        }
        held
    }

    #[tokio::test(start_paused = true)]
    async fn what_hangs_takes_few_threads_and_keeps_no_other_directory() {
        let reads = DirectoryReads::default();
        let hung = Path::new("/hung");
        let held = hang(&reads, hung).await;
        assert_eq!(reads.threads(hung).available_permits(), 0);
        for _ in 0..3 {
            let error = while_time_passes(reads.run(hung, || ())).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout, "no thread is left for it");
        }
        assert_eq!(reads.run(Path::new("/sound"), || 1).await, Ok(1));
        drop(held);
        assert_eq!(reads.run(hung, || 2).await, Ok(2), "it is read again once it answers");
    }
}
