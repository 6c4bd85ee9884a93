//! The node's side of a confined trainer: started, listened to, stopped where it takes too long or has gone silent.

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
use super::output::{Pulse, Said, hear};
use crate::error::ManagerError;

/// Between two looks at time and heartbeat.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long a supervisor may take to end everything it supervises, before it is killed and that is done from here.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// How long the pipes of a trainer that is gone may stay open.
const DRAIN_WITHIN: Duration = Duration::from_secs(5);

/// Files of an output folder that are looked at for signs of life.
const FILES_WATCHED: usize = 100;

/// A trainer to run.
pub(super) struct Run {
    /// This binary, which supervises.
    pub(super) supervisor: PathBuf,
    /// The program and its arguments.
    pub(super) command: Vec<String>,
    /// Where it runs: the folder of the job. Its temporary files are there too.
    pub(super) folder: PathBuf,
    /// The folder that it writes to; a change in it is a sign of life.
    pub(super) output: PathBuf,
    pub(super) limits: JobLimits,
    /// Whether what it has read is no longer what there is to read.
    pub(super) is_outdated: Box<dyn Fn() -> bool + Send + Sync>,
}

/// Why a trainer is to be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overrun {
    Time,
    Silence,
    Outdated,
}

impl Run {
    /// Runs the trainer to its end; `tell` hears of its progress. Nothing that it started is left, and dropping the future
    /// stops it too.
    ///
    /// # Errors
    /// `Trainer`, saying why and what to do; `Outdated`; `Io` where the supervisor cannot be started.
    pub(super) async fn finish(self, tell: impl Fn(Step) + Send + 'static) -> Result<(), ManagerError> {
        let report = self.folder.join("ending.json");
        let (mut child, supervisor) = self.spawn(&report)?;
        let pulse = Pulse::new();
        let (said, noted) = (Arc::new(Mutex::new(Said::default())), Arc::new(Mutex::new(Said::default())));
        // Taken out, since waiting for a child would close it.
        let leash = child.stdin.take().expect("standard input is piped");
        let stdout = child.stdout.take().expect("standard output is piped");
        let stderr = child.stderr.take().expect("standard error is piped");
        let listeners = [
            tokio::spawn(hear(stdout, pulse.clone(), noted.clone(), tell)),
            tokio::spawn(hear(stderr, pulse.clone(), said.clone(), |_| {})),
        ];
        let (overrun, supervised) = self.wait(&mut child, leash, &pulse).await?;
        // The trainer can write to the report's place, too; only a supervisor that ended well has written it last.
        let ending = if supervised.success() { read_ending(&report) } else { None };
        drop(supervisor);
        if ending.is_none() {
            // A supervisor that was killed has left the rest to be ended from here.
            let _ = tokio::task::spawn_blocking(orphans::end).await;
        }
        drain(listeners).await;
        let words = [said.lock().text(), noted.lock().text()].into_iter().find(|text| !text.is_empty());
        self.judge(overrun, ending, words.as_deref())
    }

    fn spawn(&self, report: &Path) -> Result<(Child, Supervisor), ManagerError> {
        // How an earlier trainer of this job ended is not how this one does.
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

    /// Waits for the end, and sees to it where it does not come by itself. Returns why it had to, and how the supervisor
    /// ended.
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
        // The supervisor ends everything once nobody holds the other end of its standard input.
        drop(leash);
        if tokio::time::timeout(STOP_WITHIN, child.wait()).await.is_err() {
            tracing::warn!("a trainer's supervisor does not end; it is killed");
            child.kill().await.map_err(ManagerError::io(&self.supervisor))?;
        }
        // At once, since it has ended.
        let ended = child.wait().await.map_err(ManagerError::io(&self.supervisor))?;
        Ok((Some(overrun), ended))
    }

    fn judge(&self, overrun: Option<Overrun>, ending: Option<Ending>, words: Option<&str>) -> Result<(), ManagerError> {
        let limits = &self.limits;
        let said = words.map_or_else(|| "; it said nothing".to_owned(), |words| format!("; it said: {words}"));
        let reason = match (overrun, ending) {
            (Some(Overrun::Outdated), _) => return Err(ManagerError::Outdated),
            (Some(Overrun::Time), _) => format!(
                "it ran for longer than the {} seconds it may and was stopped; raise trainer.limits.seconds{said}",
                limits.seconds
            ),
            (Some(Overrun::Silence), _) => format!(
                "nothing was heard of it for {} seconds, so it was taken for dead and stopped; have it print a line of \
                 progress now and then, or raise trainer.limits.heartbeat_seconds{said}",
                limits.heartbeat_seconds
            ),
            (None, Some(Ending::Exited { code: 0, .. })) => return Ok(()),
            (None, Some(Ending::TooMuchMemory { held })) => format!(
                "its processes held {} MiB of memory, more than the {} MiB they may, and were stopped; raise \
                 trainer.limits.memory, or lower the model's dim{said}",
                held >> 20,
                limits.memory_bytes >> 20
            ),
            (None, Some(Ending::TooManyProcesses { running })) => format!(
                "it ran {running} processes and threads, more than the {} it may, and was stopped; raise \
                 trainer.limits.processes{said}",
                limits.processes
            ),
            (None, Some(Ending::TooMuchDisk { written })) => format!(
                "it wrote {} MiB into the folder of its job, more than the {} MiB it may, and was stopped; raise \
                 trainer.limits.disk{said}",
                written >> 20,
                limits.disk_bytes >> 20
            ),
            (None, Some(Ending::TooManyFiles)) => format!(
                "it wrote more than {} files into the folder of its job and was stopped; have it write fewer, larger \
                 ones{said}",
                disk::FILES_MAX
            ),
            (None, Some(Ending::DiskNearlyFull { free })) => format!(
                "the disk has only {} MiB free, which are the log's, so it was stopped; make room{said}",
                free >> 20
            ),
            (None, Some(Ending::Signalled { signal, .. })) if signal == Signal::XFSZ.as_raw() => format!(
                "a file of it grew to the {} MiB of disk that it may take; raise trainer.limits.disk{said}",
                limits.disk_bytes >> 20
            ),
            (None, Some(Ending::Exited { code, memory_peak })) => {
                let hint = self.memory_hint(memory_peak, words);
                words.and_then(own_words).map_or_else(
                    || format!("it ended with exit code {code}{hint}{said}"),
                    |refusal| format!("{refusal}{hint}"),
                )
            }
            (None, Some(Ending::Signalled { signal, memory_peak })) => {
                format!("it was ended by signal {signal}{}{said}", self.memory_hint(memory_peak, words))
            }
            (None, Some(Ending::Stopped) | None) => {
                format!("it was stopped from outside, or its supervisor was; start it again{said}")
            }
        };
        Err(ManagerError::Trainer { reason })
    }

    /// What to try where a program ran into the limit itself, which the kernel tells it as a failed allocation.
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
            ", having run into its limit of {limit} MiB of memory; raise trainer.limits.memory, or lower the model's dim"
        )
    }
}

/// What this binary says when it ends with an error: the trainer refuses its input, or there is no program to become.
fn own_words(words: &str) -> Option<&str> {
    words.lines().rev().find_map(|line| line.strip_prefix("celeris: "))
}

async fn drain(listeners: [JoinHandle<()>; 2]) {
    for mut listener in listeners {
        if tokio::time::timeout(DRAIN_WITHIN, &mut listener).await.is_err() {
            // Something outside of the trainer holds its pipe; it is not waited for.
            listener.abort();
        }
    }
}

/// Names, sizes and times of the files in a folder, as far as they are looked at.
fn fingerprint(folder: &Path) -> Vec<(PathBuf, u64, Option<SystemTime>)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let look = |entry: fs::DirEntry| {
        let data = entry.metadata().ok()?;
        Some((entry.path(), data.len(), data.modified().ok()))
    };
    let mut files: Vec<_> = entries.flatten().take(FILES_WATCHED).filter_map(look).collect();
    files.sort();
    files
}
