//! A trainer's process, confined: what runs between the node and a program that is not trusted to behave.
//!
//! The node starts a *supervisor*, a process of this same binary. The supervisor becomes the reaper of everything that is
//! started below it, so that no descendant escapes it, not even one that makes itself a session of its own. It starts the
//! trainer, in a process group of its own, through one more execution of this binary, which limits itself and then becomes
//! the trainer. Three things end a training:
//!
//! - the trainer ends: what it has left running is killed;
//! - its processes take more than they may, of memory, of processes or of the disk: they are killed;
//! - the supervisor's standard input ends. The node holds the other end and never writes. It closes it to have a training
//!   stopped; the kernel closes it when the node is gone, however it went. So no trainer outlives its node.
//!
//! If the supervisor itself is killed, the kernel kills the trainer (`PR_SET_PDEATHSIG`), and what the trainer has started
//! becomes the node's (`orphans.rs`).
//!
//! What a trainer is told and what it may take is in a file, the [`Confined`]: the command lines of these processes hold
//! paths that the node has made, and nothing else.

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

/// The command of this binary that supervises.
pub const SUPERVISE: &str = "supervise-trainer";

/// The command of this binary that becomes the trainer.
pub const BECOME: &str = "become-trainer";

/// Between two looks at the trainer.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Between two measurements: five a second, and so much longer as the folder of the job is large to look through.
const MEASURE_EVERY: Duration = Duration::from_millis(200);
const DISK_SHARE: u32 = 10;

/// How much less nice than others a supervisor makes itself where it may: it has to get its turn beside all that its trainer
/// starts. Where it may not, the kernel counts the processes.
const NICENESS: i32 = -10;

/// What to run, and what it may take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confined {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// All its processes together.
    pub limits: JobLimits,
    /// The folder of the job, whose growth is limited.
    pub folder: PathBuf,
    /// Where to write the [`Ending`].
    pub report: PathBuf,
}

impl Confined {
    /// Reads what the node has written.
    ///
    /// # Errors
    /// Where that cannot be read.
    pub fn read(plan: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(plan)?)?)
    }
}

/// How a trainer ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// By itself.
    Exited {
        /// Its exit code.
        code: i32,
        /// The most memory that its processes held together, in bytes.
        memory_peak: u64,
    },
    /// By a signal that the supervisor did not send.
    Signalled {
        /// The signal's number.
        signal: i32,
        /// The most memory that its processes held together, in bytes.
        memory_peak: u64,
    },
    /// Its processes held so many bytes, more than they may.
    TooMuchMemory {
        /// How many.
        held: u64,
    },
    /// There were so many processes and threads, more than there may be.
    TooManyProcesses {
        /// How many.
        running: u64,
    },
    /// So many bytes came into the folder of the job, more than may.
    TooMuchDisk {
        /// How many.
        written: u64,
    },
    /// There were so many files in the folder of the job that they are not counted any further.
    TooManyFiles,
    /// The disk has only so many bytes free, which are the log's.
    DiskNearlyFull {
        /// How many.
        free: u64,
    },
    /// It was to be stopped, or the node went away.
    Stopped,
}

/// Runs a trainer to its end, whatever that is; nothing that it started is left. The caller is the only user of its
/// process: all of its children are taken for the trainer's.
///
/// # Errors
/// Where the trainer cannot be started, or how it ended cannot be written down.
pub fn supervise(plan: &Path) -> io::Result<Ending> {
    let confined = Confined::read(plan)?;
    set_child_subreaper(Some(getpid()))?;
    let stop = watch_standard_input();
    let trainer = Command::new(std::env::current_exe()?)
        .arg(BECOME)
        .arg("--plan")
        .arg(plan)
        .args(["--parent", &getpid().as_raw_nonzero().to_string()])
        .process_group(0)
        .stdin(Stdio::null())
        .spawn()?;
    // Without the right to it the kernel's own count of processes holds, see `limit`.
    let _ = setpriority_process(None, NICENESS);
    let trainer = Pid::from_child(&trainer);
    let ending = Supervision::new(&confined).follow(trainer, &stop);
    kill_all(trainer);
    let ending = ending?;
    // Under another name first, so that nobody reads half of it.
    let unfinished = confined.report.with_extension("tmp");
    fs::write(&unfinished, serde_json::to_vec(&ending)?)?;
    fs::rename(&unfinished, &confined.report)?;
    Ok(ending)
}

/// True once standard input has ended.
fn watch_standard_input() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    let seen = ended.clone();
    thread::spawn(move || {
        let mut buffer = [0; 64];
        let mut input = io::stdin().lock();
        // An error is no other end to listen to either.
        while input.read(&mut buffer).is_ok_and(|count| count > 0) {}
        seen.store(true, Ordering::Release);
    });
    ended
}

/// What is known of a trainer while it runs.
struct Supervision<'a> {
    confined: &'a Confined,
    memory_peak: u64,
    /// What the folder of the job held before.
    before: Usage,
    /// Threads of the whole machine when processes were last counted.
    threads: u64,
    measured: Option<Instant>,
    /// When the folder of the job is looked through next.
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

    /// How the trainer has ended, if it has.
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
                Reaped::Childless => return Err(io::Error::other("the trainer ended, and nobody told its supervisor")),
            }
        }
    }

    /// Five times a second, and at once where the machine has many more threads than at the last time.
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
        // What is written elsewhere, or has no name any more, is not in the folder.
        disk::nearly_full(&self.confined.folder).map(|free| Ending::DiskNearlyFull { free })
    }
}

/// Limits this process and becomes the program. Returns only where that fails.
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

/// What the kernel itself can keep to, for whatever grows faster than the supervisor looks: data that one process may map
/// is limited to the memory of all (reserving addresses, as Java does, does not count), one file to the disk of all, and the
/// processes of the user to those that there are and those that the trainer may have. The last does not hold for root.
fn limit(limits: JobLimits, parent: i32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that went before the signal was asked for will not send it.
    if getppid().is_none_or(|now| now.as_raw_nonzero().get() != parent) {
        return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the supervisor is gone"));
    }
    lower(Resource::Data, limits.memory_bytes)?;
    lower(Resource::Fsize, limits.disk_bytes)?;
    lower(Resource::Nproc, threads_of_user().saturating_add(limits.processes))?;
    lower(Resource::Core, 0)
}

/// Limits a resource, unless it is limited further already.
fn lower(resource: Resource, most: u64) -> io::Result<()> {
    let most = getrlimit(resource).maximum.map_or(most, |maximum| maximum.min(most));
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}

/// What a supervisor wrote down, once it has.
#[must_use]
pub fn read_ending(report: &Path) -> Option<Ending> {
    serde_json::from_slice(&fs::read(report).ok()?).ok()
}
