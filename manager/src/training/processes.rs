//! The processes below one process: found, measured, and killed until none is left.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group, wait};

/// Between two passes that kill: as short as this while there is somebody new, up to the other where nothing changes.
const PASS_MIN: Duration = Duration::from_millis(1);
const PASS_MAX: Duration = Duration::from_millis(200);

/// A process at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) parent: i32,
    /// Its process group.
    group: i32,
    /// Its threads.
    pub(super) threads: u64,
}

impl Process {
    /// `None` of one that is gone.
    fn read(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before it, in parentheses, may hold anything.
        let (_, behind_name) = text.rsplit_once(')')?;
        let fields: Vec<&str> = behind_name.split_whitespace().collect();
        let number = |field: usize| fields.get(field)?.parse::<i32>().ok();
        let threads = fields.get(17)?.parse().ok()?;
        Some(Self { pid: Pid::from_raw(pid)?, parent: number(1)?, group: number(2)?, threads })
    }
}

/// All processes that this one can see.
fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(Process::read).collect()
}

/// All processes below this one, but for children that are in `but` and what is below those.
pub(super) fn below(but: &BTreeSet<i32>) -> Vec<Process> {
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

/// Threads of all processes of this one's user: what the kernel counts for its limit.
pub(super) fn threads_of_user() -> u64 {
    let user = rustix::process::getuid().as_raw();
    let owned = |process: &Process| {
        let owner = fs::metadata(format!("/proc/{}", process.pid.as_raw_nonzero()));
        owner.is_ok_and(|owner| owner.uid() == user)
    };
    all().iter().filter(|process| owned(process)).map(|process| process.threads).sum()
}

/// Threads of the whole machine, which are cheap to ask for.
pub(super) fn threads_of_machine() -> Option<u64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// Bytes of memory that a process holds now; 0 of one that is gone.
pub(super) fn resident_bytes(process: &Process) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", process.pid.as_raw_nonzero())).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kibibytes.unwrap_or_default() << 10
}

/// Kills these, and first their groups: a group dies at once, however fast its members multiply. Of groups only those that
/// one of `leaders` has made: any other may hold processes that have nothing to do with these.
pub(super) fn kill(processes: &[Process], leaders: &BTreeSet<i32>) {
    let groups = processes.iter().map(|process| process.group).filter(|group| leaders.contains(group));
    let groups: BTreeSet<i32> = groups.collect();
    // One that is gone by now needs no killing.
    for group in groups.into_iter().filter_map(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    for process in processes {
        let _ = kill_process(process.pid, Signal::KILL);
    }
}

/// What there is to hear of children.
pub(super) enum Reaped {
    /// This one has ended.
    Ended(Pid, WaitStatus),
    /// There are some, and none has ended.
    Running,
    /// There are none.
    Childless,
}

/// Takes note of one child that has ended, of whatever group, if there is one.
///
/// # Errors
/// Where the kernel does not say.
pub(super) fn reap() -> io::Result<Reaped> {
    match wait(WaitOptions::NOHANG) {
        Ok(Some((pid, status))) => Ok(Reaped::Ended(pid, status)),
        Ok(None) | Err(rustix::io::Errno::INTR) => Ok(Reaped::Running),
        Err(rustix::io::Errno::CHILD) => Ok(Reaped::Childless),
        Err(error) => Err(error.into()),
    }
}

/// Kills everything below this process until nothing is left, however long that takes: one that is deep in a write to a
/// slow disk goes when that ends.
///
/// The end is what the kernel says, not what a listing shows, which may miss what starts meanwhile: this process is the
/// reaper of all below it, so as long as one of them lives, it has a child.
pub(super) fn kill_all(trainer: Pid) {
    let (mut known, mut pause) = (BTreeSet::from([trainer.as_raw_nonzero().get()]), PASS_MIN);
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
