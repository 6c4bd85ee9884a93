//! The node's side of a confined trainer: starts it, reads its output, and stops it on a timeout or a missing
//! heartbeat.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use celeris_retrain::{JobLimits, Step};
use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;

use super::confined::{Confined, Ending, SUPERVISE, read_ending};
use super::disk;
use super::orphans::{self, Supervisor};
use super::output::{OutputExcerpt, Pulse, read_output};
use crate::error::ManagerError;

/// Interval of the checks of time and heartbeat.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Time for a supervisor to end its trainer; after that it is killed, and the node cleans up itself.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// Time for which the pipes of a trainer that has ended may stay open.
const DRAIN_WITHIN: Duration = Duration::from_secs(5);

/// Number of files of an output folder that are checked for changes.
const FILES_CHECKED: usize = 100;

/// A trainer to run.
pub(super) struct Run {
    /// This binary, which supervises.
    pub(super) supervisor: PathBuf,
    pub(super) command: Vec<String>,
    /// Its working directory: the folder of the job, also used for temporary files.
    pub(super) folder: PathBuf,
    /// The folder that it writes to; a change in it counts as a heartbeat.
    pub(super) output: PathBuf,
    pub(super) limits: JobLimits,
    /// Whether the input has become outdated because users were erased.
    pub(super) is_outdated: Box<dyn Fn() -> bool + Send + Sync>,
}

/// Reason to stop a trainer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overrun {
    Time,
    Silence,
    Outdated,
}

impl Run {
    /// Runs the trainer until it ends; `tell` is called with its progress. All processes that it started are killed,
    /// also if the future is dropped.
    ///
    /// # Errors
    /// `Trainer` with the reason and a remedy; `Outdated`; `Io` if the supervisor cannot be started.
    pub(super) async fn finish(self, tell: impl Fn(Step) + Send + 'static) -> Result<(), ManagerError> {
        let report = self.folder.join("ending.json");
        let (mut child, supervisor) = self.spawn(&report)?;
        let pulse = Pulse::new();
        let (errors, printed) =
            (Arc::new(Mutex::new(OutputExcerpt::default())), Arc::new(Mutex::new(OutputExcerpt::default())));
        // Taken out of `child`, since waiting for a child closes its standard input.
        let leash = child.stdin.take().expect("standard input is piped");
        let stdout = child.stdout.take().expect("standard output is piped");
        let stderr = child.stderr.take().expect("standard error is piped");
        let listeners = [
            tokio::spawn(read_output(stdout, pulse.clone(), printed.clone(), tell)),
            tokio::spawn(read_output(stderr, pulse.clone(), errors.clone(), |_| {})),
        ];
        let (overrun, supervised) = self.wait(&mut child, leash, &pulse).await?;
        // The trainer can write to the path of the report too; only after a successful exit is the supervisor's version
        // the last one.
        let ending = if supervised.success() { read_ending(&report) } else { None };
        drop(supervisor);
        if ending.is_none() {
            // The processes of a killed supervisor have to be killed here.
            let _ = tokio::task::spawn_blocking(orphans::end).await;
        }
        drain(listeners).await;
        let words = [errors.lock().text(), printed.lock().text()].into_iter().find(|text| !text.is_empty());
        self.result(overrun, ending, words.as_deref())
    }

    fn spawn(&self, report: &Path) -> Result<(Child, Supervisor), ManagerError> {
        // Remove the report of an earlier trainer of this job.
        let _ = fs::remove_file(report);
        let (plan, temporary) = (self.folder.join("confined.json"), self.folder.join("tmp"));
        let confined = Confined {
            command: self.command.clone(),
            limits: self.limits,
            folder: self.folder.clone(),
            report: report.to_owned(),
        };
        let text = serde_json::to_vec(&confined).expect("a plan is plain data");
        fs::write(&plan, text).map_err(ManagerError::io(&plan))?;
        fs::create_dir_all(&temporary).map_err(ManagerError::io(&temporary))?;
        let mut command = Command::new(&self.supervisor);
        command.arg(SUPERVISE).arg("--plan").arg(&plan).env("TMPDIR", temporary).current_dir(&self.folder);
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        orphans::start(&mut command).map_err(ManagerError::io(&self.supervisor))
    }

    /// Waits for the supervisor, and stops it if necessary. Returns the reason for stopping it, if any, and its exit
    /// status.
    async fn wait(
        &self,
        child: &mut Child,
        leash: ChildStdin,
        pulse: &Pulse,
    ) -> Result<(Option<Overrun>, ExitStatus), ManagerError> {
        let started = Instant::now();
        let mut looks = tokio::time::interval(LOOK_EVERY);
        let mut seen = fingerprint(&self.output);
        let overrun = loop {
            tokio::select! {
                ended = child.wait() => {
                    return Ok((None, ended.map_err(ManagerError::io(&self.supervisor))?));
                }
                _ = looks.tick() => {}
            }
            if started.elapsed() > Duration::from_secs(self.limits.seconds) {
                break Overrun::Time;
            }
            if (self.is_outdated)() {
                break Overrun::Outdated;
            }
            if pulse.silence() > Duration::from_secs(self.limits.heartbeat_seconds) {
                let now = fingerprint(&self.output);
                if now == seen {
                    break Overrun::Silence;
                }
                seen = now;
                pulse.beat();
            }
        };
        // The supervisor ends the trainer once its standard input is closed.
        drop(leash);
        if tokio::time::timeout(STOP_WITHIN, child.wait()).await.is_err() {
            tracing::warn!("a trainer's supervisor did not end in time and is killed");
            child.kill().await.map_err(ManagerError::io(&self.supervisor))?;
        }
        // Returns immediately, since it has ended.
        let ended = child.wait().await.map_err(ManagerError::io(&self.supervisor))?;
        Ok((Some(overrun), ended))
    }

    fn result(
        &self,
        overrun: Option<Overrun>,
        ending: Option<Ending>,
        words: Option<&str>,
    ) -> Result<(), ManagerError> {
        let limits = &self.limits;
        let output = words.map_or_else(|| "; it printed nothing".to_owned(), |words| format!("; it printed: {words}"));
        let reason = match (overrun, ending) {
            (Some(Overrun::Outdated), _) => return Err(ManagerError::Outdated),
            (Some(Overrun::Time), _) => format!(
                "it exceeded its time limit of {} seconds and was stopped; raise trainer.limits.seconds{output}",
                limits.seconds
            ),
            (Some(Overrun::Silence), _) => format!(
                "it printed nothing and wrote no file for {} seconds and was stopped as hung; have it print a line of \
                 progress now and then, or raise trainer.limits.heartbeat_seconds{output}",
                limits.heartbeat_seconds
            ),
            (None, Some(Ending::Exited { code: 0, .. })) => return Ok(()),
            (None, Some(Ending::TooMuchMemory { held })) => format!(
                "its processes held {} MiB of memory, more than the {} MiB they may, and were stopped; raise \
                 trainer.limits.memory, or lower the model's dim{output}",
                held >> 20,
                limits.memory_bytes >> 20
            ),
            (None, Some(Ending::TooManyProcesses { running })) => format!(
                "it ran {running} processes and threads, more than the {} it may, and was stopped; raise \
                 trainer.limits.processes{output}",
                limits.processes
            ),
            (None, Some(Ending::TooMuchDisk { written })) => format!(
                "it wrote {} MiB into the folder of its job, more than the {} MiB it may, and was stopped; raise \
                 trainer.limits.disk{output}",
                written >> 20,
                limits.disk_bytes >> 20
            ),
            (None, Some(Ending::TooManyFiles)) => format!(
                "it wrote more than {} files into the folder of its job and was stopped; have it write fewer, larger \
                 ones{output}",
                disk::FILES_MAX
            ),
            (None, Some(Ending::DiskNearlyFull { free })) => format!(
                "the disk has only {} MiB free, which are reserved for the log, so it was stopped; make room{output}",
                free >> 20
            ),
            (None, Some(Ending::Signalled { signal, .. })) if signal == Signal::XFSZ.as_raw() => format!(
                "one of its files reached the disk limit of {} MiB; raise trainer.limits.disk{output}",
                limits.disk_bytes >> 20
            ),
            (None, Some(Ending::Exited { code, memory_peak })) => {
                let hint = self.memory_hint(memory_peak, words);
                words.and_then(own_words).map_or_else(
                    || format!("it ended with exit code {code}{hint}{output}"),
                    |refusal| format!("{refusal}{hint}"),
                )
            }
            (None, Some(Ending::Signalled { signal, memory_peak })) => {
                format!("it was ended by signal {signal}{}{output}", self.memory_hint(memory_peak, words))
            }
            (None, Some(Ending::Stopped) | None) => {
                format!("it was stopped from outside, or its supervisor was; start it again{output}")
            }
        };
        Err(ManagerError::Trainer { reason })
    }

    /// A hint if a program ran into the memory limit itself, which it sees as a failed allocation.
    fn memory_hint(&self, memory_peak: u64, words: Option<&str>) -> String {
        const SIGNS: [&str; 7] = [
            "bad_alloc",
            "cannot allocate memory",
            "memory allocation of",
            "memory exhausted",
            "memoryerror",
            "out of memory",
            "outofmemory",
        ];
        let words = words.map(str::to_lowercase);
        let complains = words.is_some_and(|words| SIGNS.iter().any(|sign| words.contains(sign)));
        if !complains && memory_peak < self.limits.memory_bytes / 10 * 9 {
            return String::new();
        }
        let limit = self.limits.memory_bytes >> 20;
        format!(
            ", after reaching its limit of {limit} MiB of memory; raise trainer.limits.memory, or lower the model's dim"
        )
    }
}

/// The error message of this binary: the trainer rejected its input, or the program could not be executed.
fn own_words(words: &str) -> Option<&str> {
    words.lines().rev().find_map(|line| line.strip_prefix("celeris: "))
}

async fn drain(listeners: [JoinHandle<()>; 2]) {
    for mut listener in listeners {
        if tokio::time::timeout(DRAIN_WITHIN, &mut listener).await.is_err() {
            // A process outside of the training holds the pipe; do not wait for it.
            listener.abort();
        }
    }
}

/// Names, sizes and times of the files in a folder, up to a maximum number.
fn fingerprint(folder: &Path) -> Vec<(PathBuf, u64, Option<SystemTime>)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let look = |entry: fs::DirEntry| {
        let data = entry.metadata().ok()?;
        Some((entry.path(), data.len(), data.modified().ok()))
    };
    let mut files: Vec<_> = entries.flatten().take(FILES_CHECKED).filter_map(look).collect();
    files.sort();
    files
}
