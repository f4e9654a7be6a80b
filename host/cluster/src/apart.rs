//! Keeps long work off the thread that sends all requests and serves all watches: work on many bytes runs on a thread
//! of its own, one piece at a time, while small objects proceed.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{block_in_place, yield_now};

/// The size from which work counts as long, in bytes. It then takes about a millisecond.
const LONG_BYTES: usize = 64 * 1024;

/// Serialises long work, so that it takes at most one processor from the rest of the host, and holds at most one
/// object's parts in memory.
static TURN: Mutex<()> = Mutex::new(());

thread_local! {
    /// Set if the task that this thread polls is long; none outside of a [`WeighedTask`].
    static IS_LONG: Cell<Option<bool>> = const { Cell::new(None) };
    static IS_APART: Cell<bool> = const { Cell::new(false) };
}

/// Does work on this many bytes. If it is long, the runtime's other tasks proceed beside it.
pub fn apart<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < LONG_BYTES || IS_APART.get() || !has_other_threads() {
        return work();
    }
    block_in_place(|| {
        let _turn = TURN.lock();
        let _mark = Apart::new();
        work()
    })
}

/// Reports whether the runtime has several threads. Tests' runtimes have one, so that their runs are reproducible.
fn has_other_threads() -> bool {
    Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread)
}

struct Apart;

impl Apart {
    fn new() -> Self {
        IS_APART.set(true);
        Self
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        IS_APART.set(false);
    }
}

/// Declares, within a [`WeighedTask`], that its further work is on this many bytes. Does nothing elsewhere.
pub async fn weigh(bytes: usize) {
    if bytes >= LONG_BYTES && IS_LONG.get() == Some(false) {
        IS_LONG.set(Some(true));
        // The next poll runs on its own thread.
        yield_now().await;
    }
}

/// A task that is moved to a thread of its own once it is weighed as long.
pub struct WeighedTask<F> {
    task: Pin<Box<F>>,
    is_long: bool,
}

impl<F: Future> WeighedTask<F> {
    /// Wraps a task.
    pub fn new(task: F) -> Self {
        Self {
            task: Box::pin(task),
            is_long: false,
        }
    }
}

impl<F: Future> Future for WeighedTask<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let is_long = self.is_long;
        let bytes = if is_long { LONG_BYTES } else { 0 };
        apart(bytes, || {
            let before = IS_LONG.replace(Some(is_long));
            let polled = self.task.as_mut().poll(context);
            self.is_long = IS_LONG.replace(before) == Some(true);
            polled
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Work that ends when another task of the runtime has run.
    fn until(flag: &AtomicBool) {
        for _ in 0..10_000 {
            if flag.load(Ordering::SeqCst) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("no other task has run beside the work");
    }

    async fn beside(long: impl Future<Output = ()> + Send + 'static, flag: Arc<AtomicBool>) {
        let long = tokio::spawn(long);
        let other = tokio::spawn(async move { flag.store(true, Ordering::SeqCst) });
        other.await.unwrap();
        long.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_run_beside_long_work() {
        let flag = Arc::new(AtomicBool::new(false));
        let seen = flag.clone();
        beside(async move { apart(LONG_BYTES, || until(&seen)) }, flag).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_task_is_done_apart_from_the_moment_it_is_found_long() {
        let flag = Arc::new(AtomicBool::new(false));
        let seen = flag.clone();
        let task = WeighedTask::new(async move {
            weigh(LONG_BYTES).await;
            assert!(IS_APART.get());
            until(&seen);
        });
        beside(task, flag).await;
        assert!(!IS_APART.get());
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_does_all_in_turn() {
        let task = WeighedTask::new(async {
            weigh(LONG_BYTES).await;
            apart(LONG_BYTES, || IS_APART.get())
        });
        assert!(!task.await);
    }
}
