//! The supervisor: starts a program, measures its processes, and kills them all.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitStatus, getpid, set_child_subreaper, setpriority_process};

use crate::disk::{self, Usage};
use crate::error::SandboxError;
use crate::plan::{BECOME, Ending, Plan};
use crate::processes::{Reaped, below, kill_all, reap, resident_bytes, threads_of_machine};

/// Interval of the supervision loop.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Minimum interval of the measurements; longer if measuring a large folder takes long, so that it
/// uses at most one part in [`DISK_SHARE`] of the time.
const MEASURE_EVERY: Duration = Duration::from_millis(200);
const DISK_SHARE: u32 = 10;

/// Nice value of the supervisor, if it has the right to lower it: it must be scheduled even if the
/// program starts many processes. Otherwise only the kernel limits the number of processes.
const NICENESS: i32 = -10;

/// Runs the program of a plan until it ends, kills all its descendants, and writes the [`Ending`]
/// to the file that the plan names. The caller must not have other child processes: all children
/// are treated as the program's.
///
/// # Errors
/// If the program cannot be started, or its ending cannot be written.
pub fn supervise(plan: &Path) -> Result<(), SandboxError> {
    let file = plan;
    let plan = Plan::read(file)?;
    set_child_subreaper(Some(getpid())).map_err(SandboxError::system("become a subreaper"))?;
    let stop = standard_input_ended();
    let binary = std::env::current_exe().map_err(SandboxError::system("find this program"))?;
    let program = Command::new(&binary)
        .arg(BECOME)
        .arg("--plan")
        .arg(file)
        .args(["--parent", &getpid().as_raw_nonzero().to_string()])
        .process_group(0)
        .stdin(Stdio::null())
        .spawn()
        .map_err(SandboxError::io(binary))?;
    // Without the right to do this, the kernel's limit on processes applies.
    let _ = setpriority_process(None, NICENESS);
    let program = Pid::from_child(&program);
    let ending = Supervision::new(&plan).follow(program, &stop);
    kill_all(program);
    ending?.write(&plan.report)
}

/// Returns a flag that is set once standard input has ended.
fn standard_input_ended() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    let seen = ended.clone();
    thread::spawn(move || {
        let mut buffer = [0; 64];
        let mut input = io::stdin().lock();
        // An error also means that the other end is gone.
        while input.read(&mut buffer).is_ok_and(|count| count > 0) {}
        seen.store(true, Ordering::Release);
    });
    ended
}

/// State of the supervision of a program.
struct Supervision<'a> {
    plan: &'a Plan,
    memory_peak: u64,
    /// Usage of the folder before the start.
    before: Usage,
    /// Threads of the whole machine at the last count of processes.
    threads: u64,
    measured: Option<Instant>,
    /// Time of the next measurement of the folder.
    disk_at: Instant,
}

impl<'a> Supervision<'a> {
    fn new(plan: &'a Plan) -> Self {
        let before = disk::usage(&plan.folder);
        Self { plan, memory_peak: 0, before, threads: 0, measured: None, disk_at: Instant::now() }
    }

    fn follow(&mut self, program: Pid, stop: &AtomicBool) -> Result<Ending, SandboxError> {
        loop {
            if let Some(ending) = self.ended(program)? {
                return Ok(ending);
            }
            if stop.load(Ordering::Acquire) {
                return Ok(Ending::Stopped);
            }
            if let Some(overrun) = self.measure_processes().or_else(|| self.measure_disk()) {
                return Ok(overrun);
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Returns how the program ended, if it has.
    fn ended(&self, program: Pid) -> Result<Option<Ending>, SandboxError> {
        loop {
            match reap().map_err(SandboxError::system("wait for the program"))? {
                Reaped::Ended(pid, status) if pid == program => return Ok(Some(self.ending(status))),
                Reaped::Ended(..) => {}
                Reaped::Running => return Ok(None),
                Reaped::Childless => return Err(SandboxError::NoWaitStatus),
            }
        }
    }

    fn ending(&self, status: WaitStatus) -> Ending {
        let memory_peak = self.memory_peak;
        match status.terminating_signal() {
            Some(signal) if signal == Signal::XFSZ.as_raw() => Ending::FileTooLarge,
            Some(signal) => Ending::Signalled { signal, memory_peak },
            None => Ending::Exited { code: status.exit_status().unwrap_or(1), memory_peak },
        }
    }

    /// Measures five times a second, and immediately if the machine has many more threads than at
    /// the last count.
    fn measure_processes(&mut self) -> Option<Ending> {
        let limits = &self.plan.limits;
        let threads = threads_of_machine().unwrap_or_default();
        let crowded = threads > self.threads.saturating_add(limits.processes / 4);
        if !crowded && self.measured.is_some_and(|measured| measured.elapsed() < MEASURE_EVERY) {
            return None;
        }
        (self.threads, self.measured) = (threads, Some(Instant::now()));
        let below = below(&BTreeSet::new());
        let running = below.iter().map(|process| process.threads).sum();
        if running > limits.processes {
            return Some(Ending::TooManyProcesses { running });
        }
        let held = below.iter().map(resident_bytes).sum();
        self.memory_peak = self.memory_peak.max(held);
        (held > limits.memory_bytes).then_some(Ending::TooMuchMemory { held })
    }

    fn measure_disk(&mut self) -> Option<Ending> {
        let began = Instant::now();
        if began < self.disk_at {
            return None;
        }
        let Usage { bytes, files } = disk::usage(&self.plan.folder);
        self.disk_at = Instant::now() + MEASURE_EVERY.max(began.elapsed() * DISK_SHARE);
        if files > disk::FILES_MAX {
            return Some(Ending::TooManyFiles);
        }
        let written = bytes.saturating_sub(self.before.bytes);
        if written > self.plan.limits.disk_bytes {
            return Some(Ending::TooMuchDisk { written });
        }
        // Data written elsewhere, or to unlinked files, is not in the folder.
        disk::nearly_full(&self.plan.folder).map(|free| Ending::DiskNearlyFull { free })
    }
}
