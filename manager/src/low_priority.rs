//! Long computation on threads of low priority, so that requests are served first.

use crate::error::ManagerError;

/// Nice value of these threads.
const NICENESS: i32 = 15;

/// Runs `work` on a dedicated thread with low priority, and waits for it.
///
/// # Errors
/// `Io` if the thread cannot be started.
pub(crate) fn at_low_priority<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T, ManagerError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, || {
            if let Err(problem) = rustix::process::setpriority_process(None, NICENESS) {
                tracing::debug!(%problem, "cannot lower a thread's priority; it competes with serving");
            }
            work()
        });
        let thread = thread.map_err(ManagerError::io("thread"))?;
        thread.join().or_else(|panic| std::panic::resume_unwind(panic))
    })
}
