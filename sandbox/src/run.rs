//! The caller's side of a run: starts the supervisor, reads the program's output, and stops it on a
//! timeout, a missing heartbeat or a cancellation.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;

use crate::error::SandboxError;
use crate::orphans::{self, Supervisor};
use crate::output::{OutputExcerpt, Pulse, read_output};
use crate::plan::{Ending, Limits, Plan, SUPERVISE};

/// Interval of the checks of time, heartbeat and cancellation.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Time for a supervisor to end its program; after that it is killed, and the caller cleans up
/// itself.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// Time for which the pipes of a program that has ended may stay open.
const DRAIN_WITHIN: Duration = Duration::from_secs(5);

/// Number of files of an output folder that are checked for changes.
const FILES_CHECKED: usize = 100;

/// A program to run.
pub struct Run {
    /// The caller's binary, which has the commands [`SUPERVISE`] and [`crate::BECOME`].
    pub supervisor: PathBuf,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its working directory, also used for temporary files and for the files of this crate.
    pub folder: PathBuf,
    /// The folder that it writes to; a change in it counts as a heartbeat.
    pub output: PathBuf,
    pub limits: Limits,
    /// Polled while the program runs; stops it if true.
    pub is_cancelled: Box<dyn Fn() -> bool + Send + Sync>,
}

/// Reason for which the caller stopped a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It exceeded its time limit.
    Time,
    /// It exceeded the time without output and without a change in its output folder.
    Silence,
    Cancelled,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub stopped: Option<Stop>,
    /// The supervisor's report; `None` if the supervisor was killed.
    pub ending: Option<Ending>,
    /// Beginning and end of what the program printed on standard error, or else on standard output;
    /// `None` if it printed nothing.
    pub printed: Option<String>,
}

impl Run {
    /// Runs the program until it ends. `takes` is called with every line of its standard output,
    /// and returns whether it takes the line; all others are kept for [`Outcome::printed`]. All
    /// processes that the program started are killed, also if the future is dropped.
    ///
    /// # Errors
    /// `Io` if the supervisor cannot be started or waited for, or its plan cannot be written.
    pub async fn finish(self, takes: impl Fn(&[u8]) -> bool + Send + 'static) -> Result<Outcome, SandboxError> {
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
            tokio::spawn(read_output(stdout, pulse.clone(), printed.clone(), takes)),
            tokio::spawn(read_output(stderr, pulse.clone(), errors.clone(), |_| false)),
        ];
        let (stopped, supervised) = self.wait(&mut child, leash, &pulse).await?;
        // The program can write to the path of the report too; only after a successful exit is the
        // supervisor's version the last one.
        let ending = if supervised.success() { Ending::read(&report) } else { None };
        drop(supervisor);
        if ending.is_none() {
            // The processes of a killed supervisor have to be killed here.
            let _ = tokio::task::spawn_blocking(orphans::end).await;
        }
        drain(listeners).await;
        let printed = [errors.lock().text(), printed.lock().text()].into_iter().find(|text| !text.is_empty());
        Ok(Outcome { stopped, ending, printed })
    }

    fn spawn(&self, report: &Path) -> Result<(Child, Supervisor), SandboxError> {
        // Remove the report of an earlier run in this folder.
        let _ = fs::remove_file(report);
        let (file, temporary) = (self.folder.join("confined.json"), self.folder.join("tmp"));
        let plan = Plan {
            command: self.command.clone(),
            limits: self.limits,
            folder: self.folder.clone(),
            report: report.to_owned(),
        };
        let text = serde_json::to_vec(&plan).expect("a plan is plain data");
        fs::write(&file, text).map_err(SandboxError::io(&file))?;
        fs::create_dir_all(&temporary).map_err(SandboxError::io(&temporary))?;
        let mut command = Command::new(&self.supervisor);
        command.arg(SUPERVISE).arg("--plan").arg(&file).env("TMPDIR", temporary).current_dir(&self.folder);
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        orphans::start(&mut command).map_err(SandboxError::io(&self.supervisor))
    }

    /// Waits for the supervisor, and stops it if necessary. Returns the reason for stopping it, if
    /// any, and its exit status.
    async fn wait(
        &self,
        child: &mut Child,
        leash: ChildStdin,
        pulse: &Pulse,
    ) -> Result<(Option<Stop>, ExitStatus), SandboxError> {
        let started = Instant::now();
        let mut looks = tokio::time::interval(LOOK_EVERY);
        let mut seen = fingerprint(&self.output);
        let stopped = loop {
            tokio::select! {
                ended = child.wait() => {
                    return Ok((None, ended.map_err(SandboxError::io(&self.supervisor))?));
                }
                _ = looks.tick() => {}
            }
            if started.elapsed() > Duration::from_secs(self.limits.seconds) {
                break Stop::Time;
            }
            if (self.is_cancelled)() {
                break Stop::Cancelled;
            }
            if pulse.silence() > Duration::from_secs(self.limits.heartbeat_seconds) {
                let now = fingerprint(&self.output);
                if now == seen {
                    break Stop::Silence;
                }
                seen = now;
                pulse.beat();
            }
        };
        // The supervisor ends the program once its standard input is closed.
        drop(leash);
        if tokio::time::timeout(STOP_WITHIN, child.wait()).await.is_err() {
            tracing::warn!("the supervisor of a program did not end in time and is killed");
            child.kill().await.map_err(SandboxError::io(&self.supervisor))?;
        }
        // Returns immediately, since it has ended.
        let ended = child.wait().await.map_err(SandboxError::io(&self.supervisor))?;
        Ok((Some(stopped), ended))
    }
}

async fn drain(listeners: [JoinHandle<()>; 2]) {
    for mut listener in listeners {
        if tokio::time::timeout(DRAIN_WITHIN, &mut listener).await.is_err() {
            // A process outside of the run holds the pipe; do not wait for it.
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
