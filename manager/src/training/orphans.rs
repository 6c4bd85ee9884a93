//! What is left of a trainer whose supervisor was killed.
//!
//! This process makes itself the reaper of all that is below it, so that the descendants of a supervisor that is gone become
//! its own children, whatever sessions and groups they have made. The node starts only supervisors, so any other child is a leftover
//! and is killed with all that is below it.

use std::collections::BTreeSet;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{WaitOptions, getpid, set_child_subreaper, waitpid};
use tokio::process::{Child, Command};

use super::processes::{below, kill};

/// Between two passes.
const PASS_EVERY: Duration = Duration::from_millis(5);

/// After this time what does not go is left to the next time.
const GONE_WITHIN: Duration = Duration::from_secs(20);

/// Supervisors that run. Held while one is started, so that it is never taken for what is left over.
static SUPERVISORS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// A supervisor that runs, until it is dropped.
pub(super) struct Supervisor(i32);

impl Drop for Supervisor {
    fn drop(&mut self) {
        SUPERVISORS.lock().remove(&self.0);
    }
}

/// Starts a supervisor.
///
/// # Errors
/// Where it cannot be started.
pub(super) fn start(command: &mut Command) -> io::Result<(Child, Supervisor)> {
    let mut supervisors = SUPERVISORS.lock();
    set_child_subreaper(Some(getpid()))?;
    let child = command.spawn()?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default();
    supervisors.insert(pid);
    Ok((child, Supervisor(pid)))
}

/// Kills what is below this process and below no supervisor, until nothing is left. Blocks the thread.
pub(super) fn end() {
    let deadline = Instant::now() + GONE_WITHIN;
    loop {
        {
            let supervisors = SUPERVISORS.lock();
            let left = below(&supervisors);
            kill(&left, &left.iter().map(|process| process.pid.as_raw_nonzero().get()).collect());
            let me = getpid().as_raw_nonzero().get();
            for child in left.iter().filter(|process| process.parent == me) {
                // Those further below become children once their parents are gone.
                let _ = waitpid(Some(child.pid), WaitOptions::NOHANG);
            }
            if left.is_empty() {
                return;
            }
        }
        if Instant::now() > deadline {
            tracing::error!(
                "processes that a trainer has left behind do not end; they are looked for again after the next"
            );
            return;
        }
        thread::sleep(PASS_EVERY);
    }
}
