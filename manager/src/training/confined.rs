//! Confined execution of an untrusted trainer process.
//!
//! The node starts a *supervisor*, a process of this same binary. The supervisor becomes the subreaper of all its
//! descendants, so that none escapes it, not even one that starts its own session. It starts the trainer, in its own
//! process group, through another process of this binary, which sets resource limits on itself and then executes the
//! trainer. A training ends in one of three ways:
//!
//! - the trainer exits: the processes that it left running are killed;
//! - its processes exceed a limit of memory, processes or disk: they are killed;
//! - the supervisor's standard input ends. The node holds the other end and never writes to it. The node closes it to
//!   stop a training; the kernel closes it when the node exits for any reason. So no trainer outlives its node.
//!
//! If the supervisor itself is killed, the kernel kills the trainer (`PR_SET_PDEATHSIG`), and the trainer's descendants
//! become children of the node (`orphans.rs`).
//!
//! The trainer's command line and its limits are in a file, a [`Confined`]: the command lines of these processes
//! contain only paths created by the node.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use celeris_retrain::JobLimits;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getpid, getppid, getrlimit, set_child_subreaper, set_parent_process_death_signal,
    setpriority_process, setrlimit,
};
use serde::{Deserialize, Serialize};

use super::disk::{self, Usage};
use super::processes::{Reaped, below, kill_all, reap, resident_bytes, threads_of_machine, threads_of_user};

/// Command of this binary that supervises a trainer.
pub const SUPERVISE: &str = "supervise-trainer";

/// Command of this binary that executes the trainer.
pub const BECOME: &str = "become-trainer";

/// Interval of the supervision loop.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Minimum interval of the measurements; longer if measuring a large job folder takes long, so that it uses at most one
/// part in [`DISK_SHARE`] of the time.
const MEASURE_EVERY: Duration = Duration::from_millis(200);
const DISK_SHARE: u32 = 10;

/// Nice value of the supervisor, if it has the right to lower it: it must be scheduled even if the trainer starts many
/// processes. Otherwise only the kernel limits the number of processes.
const NICENESS: i32 = -10;

/// Command and limits of a confined trainer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confined {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Limits for all its processes together.
    pub limits: JobLimits,
    /// The folder of the job, whose growth is limited.
    pub folder: PathBuf,
    /// Path of the file for the [`Ending`].
    pub report: PathBuf,
}

impl Confined {
    /// Reads the file written by the node.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(plan: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(plan)?)?)
    }
}

/// How a trainer ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It exited.
    Exited {
        code: i32,
        /// Peak memory of its processes together, in bytes.
        memory_peak: u64,
    },
    /// Killed by a signal that the supervisor did not send.
    Signalled {
        signal: i32,
        /// Peak memory of its processes together, in bytes.
        memory_peak: u64,
    },
    /// Killed because its processes exceeded the memory limit.
    TooMuchMemory {
        /// Memory in use, in bytes.
        held: u64,
    },
    /// Killed because there were too many processes and threads.
    TooManyProcesses {
        /// Number of processes and threads.
        running: u64,
    },
    /// Killed because too much was written into the folder of the job.
    TooMuchDisk {
        /// Bytes written.
        written: u64,
    },
    /// Killed because the folder of the job contained too many files to measure.
    TooManyFiles,
    /// Killed because the remaining space of the disk is reserved for the log.
    DiskNearlyFull {
        /// Free bytes.
        free: u64,
    },
    /// Stopped by the node, or because the node exited.
    Stopped,
}

/// Runs a trainer until it ends, and kills all its descendants. The caller must not have other child processes: all
/// children are treated as the trainer's.
///
/// # Errors
/// If the trainer cannot be started, or its ending cannot be written.
pub fn supervise(plan: &Path) -> io::Result<Ending> {
    let confined = Confined::read(plan)?;
    set_child_subreaper(Some(getpid()))?;
    let stop = standard_input_ended();
    let trainer = Command::new(std::env::current_exe()?)
        .arg(BECOME)
        .arg("--plan")
        .arg(plan)
        .args(["--parent", &getpid().as_raw_nonzero().to_string()])
        .process_group(0)
        .stdin(Stdio::null())
        .spawn()?;
    // Without the right to do this, the kernel's limit on processes applies, see `limit`.
    let _ = setpriority_process(None, NICENESS);
    let trainer = Pid::from_child(&trainer);
    let ending = Supervision::new(&confined).follow(trainer, &stop);
    kill_all(trainer);
    let ending = ending?;
    // Rename the finished file into place, so that readers never see a partial one.
    let unfinished = confined.report.with_extension("tmp");
    fs::write(&unfinished, serde_json::to_vec(&ending)?)?;
    fs::rename(&unfinished, &confined.report)?;
    Ok(ending)
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

/// State of the supervision of a trainer.
struct Supervision<'a> {
    confined: &'a Confined,
    memory_peak: u64,
    /// Usage of the job folder before the start.
    before: Usage,
    /// Threads of the whole machine at the last count of processes.
    threads: u64,
    measured: Option<Instant>,
    /// Time of the next measurement of the job folder.
    disk_at: Instant,
}

impl<'a> Supervision<'a> {
    fn new(confined: &'a Confined) -> Self {
        let before = disk::usage(&confined.folder);
        Self { confined, memory_peak: 0, before, threads: 0, measured: None, disk_at: Instant::now() }
    }

    fn follow(&mut self, trainer: Pid, stop: &AtomicBool) -> io::Result<Ending> {
        loop {
            if let Some(ending) = self.ended(trainer)? {
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

    /// Returns how the trainer ended, if it has.
    fn ended(&self, trainer: Pid) -> io::Result<Option<Ending>> {
        let memory_peak = self.memory_peak;
        loop {
            match reap()? {
                Reaped::Ended(pid, status) if pid == trainer => {
                    let signalled = status.terminating_signal().map(|signal| Ending::Signalled { signal, memory_peak });
                    let code = status.exit_status().unwrap_or(1);
                    return Ok(Some(signalled.unwrap_or(Ending::Exited { code, memory_peak })));
                }
                Reaped::Ended(..) => {}
                Reaped::Running => return Ok(None),
                Reaped::Childless => return Err(io::Error::other("the trainer ended without a wait status")),
            }
        }
    }

    /// Measures five times a second, and immediately if the machine has many more threads than at the last count.
    fn measure_processes(&mut self) -> Option<Ending> {
        let limits = &self.confined.limits;
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
        let Usage { bytes, files } = disk::usage(&self.confined.folder);
        self.disk_at = Instant::now() + MEASURE_EVERY.max(began.elapsed() * DISK_SHARE);
        if files > disk::FILES_MAX {
            return Some(Ending::TooManyFiles);
        }
        let written = bytes.saturating_sub(self.before.bytes);
        if written > self.confined.limits.disk_bytes {
            return Some(Ending::TooMuchDisk { written });
        }
        // Data written elsewhere, or to unlinked files, is not in the folder.
        disk::nearly_full(&self.confined.folder).map(|free| Ending::DiskNearlyFull { free })
    }
}

/// Sets limits on this process and executes the program. Returns only on failure.
pub fn become_trainer(plan: &Path, parent: i32) -> io::Error {
    let confined = match Confined::read(plan) {
        Ok(confined) => confined,
        Err(error) => return error,
    };
    let Some((program, arguments)) = confined.command.split_first() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "there is no program to become");
    };
    if let Err(error) = limit(confined.limits, parent) {
        return error;
    }
    celeris_retrain::be_nice();
    let error = Command::new(program).args(arguments).exec();
    io::Error::new(error.kind(), format!("cannot run {program}: {error}"))
}

/// Kernel limits, for growth between two measurements of the supervisor: the data segment of one process is limited to
/// the memory of all (reserved address space, as used by Java, does not count), one file to the disk of all, and the
/// processes of the user to the current number plus the trainer's limit. The last one does not apply to root.
fn limit(limits: JobLimits, parent: i32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that exited before the signal was requested will not send it.
    if getppid().is_none_or(|now| now.as_raw_nonzero().get() != parent) {
        return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the supervisor is gone"));
    }
    lower(Resource::Data, limits.memory_bytes)?;
    lower(Resource::Fsize, limits.disk_bytes)?;
    lower(Resource::Nproc, threads_of_user().saturating_add(limits.processes))?;
    lower(Resource::Core, 0)
}

/// Lowers a resource limit, unless it is already lower.
fn lower(resource: Resource, most: u64) -> io::Result<()> {
    let most = getrlimit(resource).maximum.map_or(most, |maximum| maximum.min(most));
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}

/// The ending that a supervisor has written, if any.
#[must_use]
pub fn read_ending(report: &Path) -> Option<Ending> {
    serde_json::from_slice(&fs::read(report).ok()?).ok()
}
