//! The binaries `celeris` and `celeris-bench`, and commands of them that end by themselves.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};

use crate::wait::eventually;

/// What a command left behind.
#[derive(Debug)]
pub struct Finished {
    /// The exit code; `None` where a signal ended it.
    pub code: Option<i32>,
    /// All of its standard output.
    pub stdout: String,
    /// All of its standard error.
    pub stderr: String,
}

/// Where the binary `celeris` is: in the folder above the test's own.
///
/// # Panics
/// Where it is not built.
#[must_use]
pub fn path() -> PathBuf {
    named("celeris")
}

fn named(name: &str) -> PathBuf {
    let test = env::current_exe().expect("the operating system knows the running program");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("cargo puts tests two folders deep");
    let binary = folder.join(name);
    assert!(binary.is_file(), "{} is missing: build the workspace before its tests", binary.display());
    binary
}

/// Puts an executable file at `to`, in the place of what is there.
///
/// Another process writes it: the kernel does not run a file that is open for writing, and a child that another test has just
/// forked has open what this process has.
///
/// # Panics
/// Where it cannot be copied.
pub fn install(from: &Path, to: &Path) {
    let aside = to.with_extension("new");
    let copied = Command::new("cp").arg(from).arg(&aside).status().expect("there is cp");
    assert!(copied.success(), "{} cannot be copied", from.display());
    fs::set_permissions(&aside, fs::Permissions::from_mode(0o755)).expect("the copy is ours");
    fs::rename(aside, to).expect("both are in one folder");
}

/// A command of the binary, whose environment says nothing to it.
#[must_use]
pub fn command() -> Command {
    isolated(path())
}

fn isolated(binary: PathBuf) -> Command {
    let mut command = Command::new(binary);
    isolate(&mut command);
    command
}

/// Takes the settings away that a developer's environment may hold for a node of his own.
pub(crate) fn isolate(command: &mut Command) {
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("CELERIS_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
}

/// Runs `celeris` with these arguments to its end.
///
/// # Panics
/// Where it does not end by the deadline; it is killed then.
#[track_caller]
pub fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Finished {
    run_to_end(command().args(arguments))
}

/// Runs `celeris-bench` with these arguments to its end.
///
/// # Panics
/// Where it does not end by the deadline; it is killed then.
#[track_caller]
pub fn run_bench<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Finished {
    run_to_end(isolated(named("celeris-bench")).args(arguments))
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

/// A child that does not outlive its scenario.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("a child can be waited for")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn read_all(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What arrived before a broken pipe still tells the story.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
