//! Where computation of requests runs.

/// Runs long work off the async threads, and quick work in place.
pub(crate) fn compute<T>(quick: bool, work: impl FnOnce() -> T) -> T {
    if quick { work() } else { tokio::task::block_in_place(work) }
}
