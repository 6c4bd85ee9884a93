//! Cleanup of processes whose supervisor was killed.
//!
//! The caller becomes the subreaper of its descendants, so that the descendants of a dead
//! supervisor become its own children, in whatever sessions and groups. It must start no children
//! other than supervisors: any other child is a leftover and is killed with its descendants.

use std::collections::BTreeSet;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{WaitOptions, getpid, set_child_subreaper, waitpid};
use tokio::process::{Child, Command};

use crate::processes::{below, kill};

/// Interval between two passes.
const PASS_EVERY: Duration = Duration::from_millis(5);

/// Time limit; processes that still exist are left to the next call.
const GONE_WITHIN: Duration = Duration::from_secs(20);

/// Running supervisors. Locked while one is started, so that it is never taken for a leftover.
static SUPERVISORS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// A running supervisor; unregistered on drop.
pub(crate) struct Supervisor(i32);

impl Drop for Supervisor {
    fn drop(&mut self) {
        SUPERVISORS.lock().remove(&self.0);
    }
}

/// Starts and registers a supervisor.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn start(command: &mut Command) -> io::Result<(Child, Supervisor)> {
    let mut supervisors = SUPERVISORS.lock();
    set_child_subreaper(Some(getpid()))?;
    let child = command.spawn()?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default();
    supervisors.insert(pid);
    Ok((child, Supervisor(pid)))
}

/// Kills all descendants of this process that are not below a supervisor, until none is left or the
/// time limit is reached. Blocks the thread.
pub(crate) fn end() {
    let deadline = Instant::now() + GONE_WITHIN;
    loop {
        {
            let supervisors = SUPERVISORS.lock();
            let left = below(&supervisors);
            kill(&left, &left.iter().map(|process| process.pid.as_raw_nonzero().get()).collect());
            let me = getpid().as_raw_nonzero().get();
            for child in left.iter().filter(|process| process.parent == me) {
                // Deeper descendants become children once their parents are gone.
                let _ = waitpid(Some(child.pid), WaitOptions::NOHANG);
            }
            if left.is_empty() {
                return;
            }
        }
        if Instant::now() > deadline {
            tracing::error!("processes of a run do not end; the next cleanup retries");
            return;
        }
        thread::sleep(PASS_EVERY);
    }
}
