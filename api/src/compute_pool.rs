//! The threads on which requests compute and read from the disk, so that the threads of the sockets
//! stay free: these receive, answer and time out while all computation is busy.
//!
//! The pool is a second runtime of tokio, so a request that waits for the log's sync occupies no
//! thread. Its work is bounded by the limits of requests and streams. Maintenance of the node runs
//! on it too.

use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::available_parallelism;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinHandle};

use crate::error::ApiError;
use crate::scope::{Task, carried};

/// More threads than processors, because threads also wait for the disk.
const THREADS_PER_PROCESSOR: usize = 2;

/// Enough for serving requests beside long ones on a small machine.
const THREADS_MIN: usize = 4;

/// How long a stop waits for work that does not yield.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The pool of a node. Its work ends when the pool is stopped or dropped.
pub struct ComputePool {
    handle: Handle,
    /// `None` once the pool is stopped.
    runtime: Mutex<Option<Runtime>>,
    /// One permit per operating request in work.
    operating: Arc<Semaphore>,
}

impl ComputePool {
    /// Starts the threads.
    ///
    /// # Errors
    /// If a thread cannot be spawned.
    pub fn start() -> std::io::Result<Self> {
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = (processors * THREADS_PER_PROCESSOR).max(THREADS_MIN);
        let runtime =
            Builder::new_multi_thread().worker_threads(threads).thread_name("celeris-compute").enable_all().build()?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Mutex::new(Some(runtime)),
            operating: Arc::new(Semaphore::new(threads / 2)),
        })
    }

    /// Runs `work` on the pool, in the scope of the current request. Dropping the returned future cancels the work where it waits next.
    ///
    /// # Errors
    /// 503 if the pool is stopped.
    ///
    /// # Panics
    /// If `work` panics.
    pub async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T, ApiError> {
        CancelOnDrop(self.handle.spawn(carried(Task::Compute, work))).await.map_err(|error| {
            match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(_cancelled) => ApiError::unavailable("the node is stopping"),
            }
        })
    }

    /// Runs work that may take seconds: on at most half of the threads, so that the others remain
    /// for serving requests.
    ///
    /// # Errors
    /// 503 if the pool is stopped.
    ///
    /// # Panics
    /// If `work` panics.
    pub async fn operate<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let permit = self.operating.clone().acquire_owned().await.expect("the semaphore is never closed");
        let work = async move {
            // Kept by the work, which may outlive its request.
            let _permit = permit;
            work.await
        };
        self.run(work).await
    }

    /// Runs maintenance of the node on the pool until it ends or the pool is stopped.
    pub fn spawn(&self, maintenance: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(maintenance);
    }

    /// Cancels all work, and waits until no thread works any more. Blocks.
    pub fn stop(&self) {
        let runtime = self.runtime.lock().take();
        if let Some(runtime) = runtime {
            runtime.shutdown_timeout(STOP_TIMEOUT);
        }
    }
}

impl Drop for ComputePool {
    fn drop(&mut self) {
        if Handle::try_current().is_err() {
            self.stop();
        } else if let Some(runtime) = self.runtime.lock().take() {
            // An async thread must not wait.
            runtime.shutdown_background();
        }
    }
}

/// A task that is cancelled when it is no longer awaited.
struct CancelOnDrop<T>(JoinHandle<T>);

impl<T> Future for CancelOnDrop<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for CancelOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};

    use futures_util::FutureExt;

    use super::*;

    fn threads(pool: &ComputePool) -> usize {
        pool.handle.metrics().num_workers()
    }

    /// Occupies a thread until the receiver's sender is dropped; reports when it has begun.
    fn occupying(begun: &Sender<()>) -> (Sender<()>, impl Future<Output = ()> + Send + 'static) {
        let (release, released): (Sender<()>, Receiver<()>) = channel();
        let begun = begun.clone();
        (release, async move {
            begun.send(()).unwrap();
            // An error: released.
            let _ = released.recv();
        })
    }

    #[tokio::test]
    async fn requests_time_out_and_are_cancelled_while_all_threads_compute() {
        let pool = Arc::new(ComputePool::start().unwrap());
        let (begun, begins) = channel();
        let mut held = Vec::new();
        for _ in 0..threads(&pool) {
            let (release, work) = occupying(&begun);
            let pool = pool.clone();
            held.push((release, tokio::spawn(async move { pool.run(work).await })));
            tokio::task::yield_now().await;
        }
        held.iter().for_each(|_| begins.recv().unwrap());
        let ran = Arc::new(AtomicBool::new(false));
        let late = ran.clone();
        let queued = pool.run(async move { late.store(true, Ordering::Relaxed) });
        assert!(tokio::time::timeout(Duration::from_millis(20), queued).await.is_err());
        for (release, request) in held {
            drop(release);
            request.await.unwrap().ok().unwrap();
        }
        pool.run(async {}).await.ok().unwrap();
        tokio::task::spawn_blocking(move || pool.stop()).await.unwrap();
        assert!(!ran.load(Ordering::Relaxed), "a request that timed out in the queue must not run");
    }

    #[tokio::test]
    async fn operating_requests_leave_half_of_the_threads_to_others() {
        let pool = Arc::new(ComputePool::start().unwrap());
        let (begun, begins) = channel();
        let began = Arc::new(AtomicUsize::new(0));
        let mut held = Vec::new();
        for _ in 0..4 * threads(&pool) {
            let (release, work) = occupying(&begun);
            let (pool, began) = (pool.clone(), began.clone());
            let work = async move {
                began.fetch_add(1, Ordering::Relaxed);
                work.await;
            };
            held.push((release, tokio::spawn(async move { pool.operate(work).await })));
            tokio::task::yield_now().await;
        }
        (0..threads(&pool) / 2).for_each(|_| begins.recv().unwrap());
        pool.run(async {}).await.ok().unwrap();
        assert_eq!(began.load(Ordering::Relaxed), threads(&pool) / 2);
        for (release, request) in held {
            drop(release);
            request.await.unwrap().ok().unwrap();
        }
    }

    #[tokio::test]
    async fn a_panic_reaches_the_request_and_a_stopped_pool_rejects_work() {
        let pool = ComputePool::start().unwrap();
        let panicked = std::panic::AssertUnwindSafe(pool.run(async { panic!("as intended") })).catch_unwind().await;
        assert_eq!(panicked.err().unwrap().downcast_ref(), Some(&"as intended"));
        pool.run(async {}).await.ok().unwrap();
        tokio::task::spawn_blocking(move || {
            pool.stop();
            pool
        })
        .await
        .unwrap()
        .run(async {})
        .await
        .err()
        .unwrap();
    }
}
