//! The descendants of a process: listing, measuring and killing them.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group, wait};

/// Interval between two passes of killing: the minimum while new processes appear, rising to the
/// maximum.
const PASS_MIN: Duration = Duration::from_millis(1);
const PASS_MAX: Duration = Duration::from_millis(200);

/// Snapshot of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) parent: i32,
    group: i32,
    pub(crate) threads: u64,
}

impl Process {
    /// Returns `None` if the process is gone.
    fn read(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The preceding field, the name in parentheses, may contain any character.
        let (_, behind_name) = text.rsplit_once(')')?;
        let fields: Vec<&str> = behind_name.split_whitespace().collect();
        let number = |field: usize| fields.get(field)?.parse::<i32>().ok();
        let threads = fields.get(17)?.parse().ok()?;
        Some(Self { pid: Pid::from_raw(pid)?, parent: number(1)?, group: number(2)?, threads })
    }
}

/// All visible processes.
fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(Process::read).collect()
}

/// All descendants of this process except the children in `but` and their descendants.
pub(crate) fn below(but: &BTreeSet<i32>) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in all() {
        children.entry(process.parent).or_default().push(process);
    }
    let me = getpid().as_raw_nonzero().get();
    let mut found = Vec::new();
    let mut open = children.remove(&me).unwrap_or_default();
    open.retain(|child| !but.contains(&child.pid.as_raw_nonzero().get()));
    while let Some(process) = open.pop() {
        open.extend(children.remove(&process.pid.as_raw_nonzero().get()).unwrap_or_default());
        found.push(process);
    }
    found
}

/// Threads of all processes of this user, as counted by the kernel's limit.
pub(crate) fn threads_of_user() -> u64 {
    let user = rustix::process::getuid().as_raw();
    let owned = |process: &Process| {
        let owner = fs::metadata(format!("/proc/{}", process.pid.as_raw_nonzero()));
        owner.is_ok_and(|owner| owner.uid() == user)
    };
    all().iter().filter(|process| owned(process)).map(|process| process.threads).sum()
}

/// Threads of the whole machine, which is cheap to read.
pub(crate) fn threads_of_machine() -> Option<u64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// Resident memory of a process in bytes; 0 if it is gone.
pub(crate) fn resident_bytes(process: &Process) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", process.pid.as_raw_nonzero())).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kibibytes.unwrap_or_default() << 10
}

/// Kills these processes, their groups first: a group is killed at once, however fast it forks.
/// Only groups created by one of `leaders` are killed, since any other group may contain unrelated
/// processes.
pub(crate) fn kill(processes: &[Process], leaders: &BTreeSet<i32>) {
    let groups = processes.iter().map(|process| process.group).filter(|group| leaders.contains(group));
    let groups: BTreeSet<i32> = groups.collect();
    // Errors are ignored: the process may have ended already.
    for group in groups.into_iter().filter_map(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    for process in processes {
        let _ = kill_process(process.pid, Signal::KILL);
    }
}

/// Result of a non-blocking wait.
pub(crate) enum Reaped {
    /// This child has ended.
    Ended(Pid, WaitStatus),
    /// There are children, and none has ended.
    Running,
    /// There are no children.
    Childless,
}

/// Reaps one child that has ended, of any group, if there is one.
///
/// # Errors
/// If the system call fails.
pub(crate) fn reap() -> io::Result<Reaped> {
    match wait(WaitOptions::NOHANG) {
        Ok(Some((pid, status))) => Ok(Reaped::Ended(pid, status)),
        Ok(None) | Err(rustix::io::Errno::INTR) => Ok(Reaped::Running),
        Err(rustix::io::Errno::CHILD) => Ok(Reaped::Childless),
        Err(error) => Err(error.into()),
    }
}

/// Kills all descendants of this process until none is left. May take long: a process in an
/// uninterruptible write to a slow disk ends only after that.
///
/// The result of `wait` decides, since a listing may miss new processes: this process is the
/// subreaper of all its descendants, so it has a child as long as one of them lives.
pub(crate) fn kill_all(program: Pid) {
    let (mut known, mut pause) = (BTreeSet::from([program.as_raw_nonzero().get()]), PASS_MIN);
    loop {
        let left = below(&BTreeSet::new());
        let count = known.len();
        known.extend(left.iter().map(|process| process.pid.as_raw_nonzero().get()));
        kill(&left, &known);
        loop {
            match reap() {
                Ok(Reaped::Ended(..)) => {}
                Ok(Reaped::Running) | Err(_) => break,
                Ok(Reaped::Childless) => return,
            }
        }
        pause = if known.len() > count { PASS_MIN } else { (pause * 2).min(PASS_MAX) };
        thread::sleep(pause);
    }
}
