//! A trainer's process, confined: what runs between the node and a program that is not trusted to behave.
//!
//! The node starts a *supervisor*, a process of this same binary, in a process group of its own. The supervisor becomes
//! the reaper of everything that is started below it, so that no descendant escapes it, not even one that makes itself
//! a session of its own. It starts the trainer through one more execution of this binary, which limits itself and then
//! becomes the trainer. Three things end a training:
//!
//! - the trainer ends: what it has left running is killed;
//! - its processes hold more memory than they may: they are killed;
//! - the supervisor's standard input ends. The node holds the other end and never writes. It closes it to have a training
//!   stopped; the kernel closes it when the node is gone, however it went. So no trainer outlives its node.
//!
//! If the supervisor itself is killed, the kernel kills the trainer (`PR_SET_PDEATHSIG`).

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, getpid, getppid, kill_process, set_child_subreaper,
    set_parent_process_death_signal, setrlimit, waitpid,
};
use serde::{Deserialize, Serialize};

/// The command of this binary that supervises.
pub const SUPERVISE: &str = "supervise-trainer";

/// The command of this binary that becomes the trainer.
pub const BECOME: &str = "become-trainer";

/// Between two looks at the trainer.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Looks between two measurements of memory: five a second.
const LOOKS_A_SAMPLE: u32 = 10;

/// How long killed processes may take to be gone: they may be deep in a write to a slow disk.
const GONE_WITHIN: Duration = Duration::from_secs(20);

/// What to run, and what it may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confined {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Bytes of memory, all its processes together.
    pub memory_bytes: u64,
    /// Where to write the [`Ending`].
    pub report: PathBuf,
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
    /// It was to be stopped, or the node went away.
    Stopped,
}

/// Runs a trainer to its end, whatever that is; nothing that it started is left. The caller is the only user of its
/// process: all of its children are taken for the trainer's.
///
/// # Errors
/// Where the trainer cannot be started, or how it ended cannot be written down.
pub fn supervise(confined: &Confined) -> io::Result<Ending> {
    set_child_subreaper(Some(getpid()))?;
    let stop = watch_standard_input();
    let trainer = Command::new(std::env::current_exe()?)
        .arg(BECOME)
        .args(["--memory-bytes", &confined.memory_bytes.to_string()])
        .args(["--parent", &getpid().as_raw_nonzero().to_string()])
        .arg("--")
        .args(&confined.command)
        .stdin(Stdio::null())
        .spawn()?;
    let ending = follow(Pid::from_child(&trainer), confined.memory_bytes, &stop);
    kill_all();
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

fn follow(trainer: Pid, memory_max: u64, stop: &AtomicBool) -> io::Result<Ending> {
    let (mut memory_peak, mut looks) = (0, 0_u32);
    loop {
        while let Some((pid, status)) = reap()? {
            if pid == trainer {
                let signalled = status.terminating_signal().map(|signal| Ending::Signalled { signal, memory_peak });
                let code = status.exit_status().unwrap_or(1);
                return Ok(signalled.unwrap_or(Ending::Exited { code, memory_peak }));
            }
        }
        if stop.load(Ordering::Acquire) {
            return Ok(Ending::Stopped);
        }
        if looks.is_multiple_of(LOOKS_A_SAMPLE) {
            let held = descendants().into_iter().map(resident_bytes).sum();
            memory_peak = memory_peak.max(held);
            if held > memory_max {
                return Ok(Ending::TooMuchMemory { held });
            }
        }
        looks = looks.wrapping_add(1);
        thread::sleep(LOOK_EVERY);
    }
}

/// One child that has ended, if there is one.
fn reap() -> io::Result<Option<(Pid, rustix::process::WaitStatus)>> {
    match waitpid(None, WaitOptions::NOHANG) {
        Ok(ended) => Ok(ended),
        Err(rustix::io::Errno::CHILD | rustix::io::Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Kills everything below this process, and what those start meanwhile, until there is nothing left.
fn kill_all() {
    let deadline = Instant::now() + GONE_WITHIN;
    loop {
        let left = descendants();
        for pid in &left {
            // One that is gone by now needs no killing.
            let _ = kill_process(*pid, Signal::KILL);
        }
        while let Ok(Some(_)) = reap() {}
        if left.is_empty() || Instant::now() > deadline {
            return;
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// All processes below this one.
fn descendants() -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in entries.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        let Some(pid) = pid else { continue };
        if let Some(parent) = parent_of(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![getpid().as_raw_nonzero().get()];
    while let Some(parent) = open.pop() {
        let below = children.remove(&parent).unwrap_or_default();
        found.extend(below.iter().filter_map(|pid| Pid::from_raw(*pid)));
        open.extend(below);
    }
    found
}

/// The parent of a process. The name before it, in parentheses, may hold anything.
fn parent_of(pid: i32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind_name) = text.rsplit_once(')')?;
    behind_name.split_whitespace().nth(1)?.parse().ok()
}

/// Bytes of memory that a process holds now; 0 of one that is gone.
fn resident_bytes(pid: Pid) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kibibytes.unwrap_or_default() << 10
}

/// Limits this process and becomes the program. Returns only where that fails.
///
/// Data that one process may map is limited to the memory of all: so a process that grows faster than the supervisor
/// looks is refused by the kernel. Reserving addresses, as Java does, does not count.
pub fn become_trainer(command: &[String], memory_bytes: u64, parent: i32) -> io::Error {
    let Some((program, arguments)) = command.split_first() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "there is no program to become");
    };
    if let Err(error) = limit(memory_bytes, parent) {
        return error;
    }
    celeris_retrain::be_nice();
    let error = Command::new(program).args(arguments).exec();
    io::Error::new(error.kind(), format!("cannot run {program}: {error}"))
}

fn limit(memory_bytes: u64, parent: i32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that went before the signal was asked for will not send it.
    if getppid().is_none_or(|now| now.as_raw_nonzero().get() != parent) {
        return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the supervisor is gone"));
    }
    let at_most = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    setrlimit(Resource::Data, at_most(memory_bytes))?;
    setrlimit(Resource::Core, at_most(0))?;
    Ok(())
}

/// What a supervisor wrote down, once it has.
#[must_use]
pub fn read_ending(report: &Path) -> Option<Ending> {
    serde_json::from_slice(&fs::read(report).ok()?).ok()
}
