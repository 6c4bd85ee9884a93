//! Paths of the binaries `celeris` and `celeris-bench`, and commands that run to completion.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};

use crate::nats;
use crate::wait::eventually;

/// The variable by which nodes of tests leave new models without triggers: most tests compare what
/// one version answers.
pub(crate) const ON_REQUEST: (&str, &str) = ("CELERIS_TRAINING__AUTOMATIC", "false");

/// Result of a finished command.
#[derive(Debug)]
pub struct Finished {
    /// The exit code; `None` if a signal ended the process.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Path of the binary `celeris`, in the parent of the test executable's folder.
///
/// # Panics
/// If it is not built.
#[must_use]
pub fn path() -> PathBuf {
    named("celeris")
}

fn named(name: &str) -> PathBuf {
    let test = env::current_exe().expect("the test executable has a path");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("cargo puts tests two folders deep");
    let binary = folder.join(name);
    assert!(binary.is_file(), "{} is missing: build the workspace before its tests", binary.display());
    binary
}

/// Copies an executable file to `to`, replacing an existing file atomically.
///
/// A child process writes the copy: the kernel does not execute a file that is open for writing,
/// and a child that another test has just forked inherits the open files of this process.
///
/// # Panics
/// If the file cannot be copied.
pub fn install(from: &Path, to: &Path) {
    let aside = to.with_extension("new");
    let copied = Command::new("cp").arg(from).arg(&aside).status().expect("there is cp");
    assert!(copied.success(), "{} cannot be copied", from.display());
    fs::set_permissions(&aside, fs::Permissions::from_mode(0o755)).expect("the copy is ours");
    fs::rename(aside, to).expect("both are in one folder");
}

/// A command of `celeris` whose environment has no `CELERIS_*` variables of the caller.
#[must_use]
pub fn command() -> Command {
    isolated(path())
}

fn isolated(binary: PathBuf) -> Command {
    let mut command = Command::new(binary);
    isolate(&mut command);
    command
}

/// Removes `CELERIS_*` and `OTEL_*` variables, which a developer's environment may set, turns off automatic
/// training, and redirects the standard streams.
pub(crate) fn isolate(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let name_text = name.to_string_lossy();
        if name_text.starts_with("CELERIS_") || name_text.starts_with("OTEL_") {
            command.env_remove(&name);
        }
    }
    command.env(ON_REQUEST.0, ON_REQUEST.1);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
}

/// Runs `celeris` with these arguments to completion.
///
/// # Panics
/// If it does not exit by the deadline; it is then killed.
#[track_caller]
pub fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Finished {
    run_to_end(command().args(arguments))
}

/// Runs `celeris` with these arguments and this standard input to completion.
///
/// # Panics
/// If it does not exit by the deadline; it is then killed.
#[track_caller]
pub fn run_with_input<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>, input: File) -> Finished {
    run_to_end(command().args(arguments).stdin(input))
}

/// Runs `celeris-bench` with these arguments to completion.
///
/// # Panics
/// If it does not exit by the deadline; it is then killed.
#[track_caller]
pub fn run_bench<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Finished {
    let mut command = isolated(named("celeris-bench"));
    // Where the tests have found it.
    if let Some(program) = nats::program() {
        command.env("CELERIS_NATS_SERVER", program);
    }
    run_to_end(command.args(arguments))
}

#[track_caller]
fn run_to_end(command: &mut Command) -> Finished {
    let mut child = command.spawn().expect("the binary can be started");
    let stdout = read_all(child.stdout.take().expect("stdout is piped"));
    let stderr = read_all(child.stderr.take().expect("stderr is piped"));
    let mut running = Running(child);
    let status = eventually("the end of the command", || running.ended());
    let text = |reader: JoinHandle<String>| reader.join().expect("reading a pipe does not panic");
    Finished { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

/// A child process that is killed when this value is dropped.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("a child can be waited for")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn read_all(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // Output that arrived before a broken pipe is still useful.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
