//! A node that runs as a separate process, for tests that kill it, limit it, replace its binary,
//! damage its files while it runs, or check its exit code, its output or its metrics.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::binary::{self, ON_REQUEST, Running, isolate};
use crate::certificates::Certificate;
use crate::client::{Client, ModelClient};
use crate::network::Host;
use crate::wait::{DEADLINE, eventually};

/// Options for starting a node as a process.
#[derive(Debug, Clone, Default)]
pub struct ProcessOptions {
    config: Option<PathBuf>,
    current_dir: Option<PathBuf>,
    file_blocks_max: Option<u32>,
    open_files_max: Option<u32>,
    pause_at: Option<String>,
    binary: Option<PathBuf>,
    host: Option<Host>,
    listen: Option<String>,
    automatic: bool,
    trusting: Option<(PathBuf, Certificate)>,
    json_log: bool,
    variables: Vec<(String, String)>,
}

impl ProcessOptions {
    /// Uses this configuration file.
    #[must_use]
    pub fn config(mut self, file: impl Into<PathBuf>) -> Self {
        self.config = Some(file.into());
        self
    }

    /// Clients of the node trust this authority, and show this certificate.
    #[must_use]
    pub fn trusting(mut self, ca: impl Into<PathBuf>, own: Certificate) -> Self {
        self.trusting = Some((ca.into(), own));
        self
    }

    /// Starts the process in this folder; a relative data directory is relative to it.
    #[must_use]
    pub fn current_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.current_dir = Some(folder.into());
        self
    }

    /// Limits the size of each file to this many blocks of 512 bytes; longer writes fail.
    #[must_use]
    pub fn file_blocks_max(mut self, blocks: u32) -> Self {
        self.file_blocks_max = Some(blocks);
        self
    }

    /// Limits the number of open files, connections included.
    #[must_use]
    pub fn open_files_max(mut self, files: u32) -> Self {
        self.open_files_max = Some(files);
        self
    }

    /// Pauses for good at this fault point, and prints `reached POINT` on standard error;
    /// `CONTRIBUTING.md` lists them.
    #[must_use]
    pub fn pause_at(mut self, point: &str) -> Self {
        self.pause_at = Some(point.to_owned());
        self
    }

    /// Retrains new models automatically, as a node does by default.
    #[must_use]
    pub fn automatic(mut self) -> Self {
        self.automatic = true;
        self
    }

    /// Writes log lines as JSON.
    #[must_use]
    pub fn json_log(mut self) -> Self {
        self.json_log = true;
        self
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs this copy of the binary; the node also starts its trainer from it.
    #[must_use]
    pub fn binary(mut self, copy: impl Into<PathBuf>) -> Self {
        self.binary = Some(copy.into());
        self
    }

    /// Listens on this address in place of a free port of this machine.
    #[must_use]
    pub fn listen(mut self, address: &str) -> Self {
        self.listen = Some(address.to_owned());
        self
    }

    /// Runs the process on this host; neither with limits nor with another binary.
    #[must_use]
    pub fn host(mut self, host: Host) -> Self {
        self.host = Some(host);
        self
    }

    /// Starts `celeris serve` on this data directory and waits until it is ready.
    ///
    /// # Panics
    /// If the node exits, or is not ready by the deadline.
    #[track_caller]
    #[must_use]
    pub fn serve(&self, data_dir: &Path) -> NodeProcess {
        let ready = self.try_serve(data_dir);
        ready.unwrap_or_else(|exit| panic!("the node ended before it was ready: {exit:?}"))
    }

    /// Like [`ProcessOptions::serve`], of a node that may refuse to start.
    ///
    /// # Errors
    /// How it ended, if it did before it was ready.
    ///
    /// # Panics
    /// If the node is not ready by the deadline.
    #[track_caller]
    pub fn try_serve(&self, data_dir: &Path) -> Result<NodeProcess, Exit> {
        let address = self.host.as_ref().map_or("127.0.0.1", Host::address);
        let listen = self.listen.clone().unwrap_or_else(|| format!("{address}:0"));
        let mut arguments: Vec<OsString> = ["serve", "--listen", &listen, "--data-dir"].map(Into::into).into();
        arguments.push(data_dir.into());
        if self.json_log {
            arguments.push("--log-json".into());
        }
        if let Some(config) = &self.config {
            arguments.extend(["--config".into(), config.into()]);
        }
        let limits = [("-f", self.file_blocks_max), ("-n", self.open_files_max)];
        let limits: Vec<(&str, u32)> = limits.into_iter().filter_map(|(which, limit)| Some((which, limit?))).collect();
        let prefix = self.host.as_ref().map(Host::prefix).unwrap_or_default();
        let mut command = match &self.binary {
            _ if !limits.is_empty() => limited(&limits),
            _ if !prefix.is_empty() => {
                let mut command = Command::new(&prefix[0]);
                command.args(&prefix[1..]).arg(binary::path());
                isolate(&mut command);
                command
            }
            Some(copy) => {
                let mut command = Command::new(copy);
                isolate(&mut command);
                command
            }
            None => binary::command(),
        };
        if let Some(point) = &self.pause_at {
            command.env("FAILPOINTS", format!("{point}=pause"));
        }
        if self.host.is_some() {
            // Its network is that of the test alone.
            command.env("CELERIS_SERVER__INSECURE", "true");
        }
        if self.automatic {
            command.env_remove(ON_REQUEST.0);
        }
        if let Some(folder) = &self.current_dir {
            command.current_dir(folder);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.args(arguments);
        let mut node = NodeProcess::try_start(command)?;
        if let Some((ca, own)) = &self.trusting {
            node.client = node.client.trusting(ca, own);
        }
        Ok(node)
    }
}

/// A command that runs the binary under `ulimit` limits. It ignores `SIGXFSZ`, so that a write
/// beyond the limit fails instead of ending the process.
fn limited(limits: &[(&str, u32)]) -> Command {
    let limits: String = limits.iter().map(|(which, limit)| format!("ulimit {which} {limit}; ")).collect();
    let mut command = Command::new("sh");
    command.args(["-c", &format!(r#"trap "" XFSZ; {limits}exec "$@""#), "sh"]).arg(binary::path());
    isolate(&mut command);
    command
}

/// A node in a process of its own. Dropping it kills the process and, if the test failed, prints
/// the node's standard error.
pub struct NodeProcess {
    process: Running,
    client: Client,
    stderr: Arc<Mutex<String>>,
    stderr_reader: Option<JoinHandle<()>>,
}

/// Result of a node's exit.
#[derive(Debug)]
pub struct Exit {
    /// The exit code; `None` if a signal ended the process.
    pub code: Option<i32>,
    /// The complete standard error.
    pub stderr: String,
}

impl NodeProcess {
    /// A node with default settings on this data directory.
    ///
    /// # Panics
    /// If the node does not become ready.
    #[track_caller]
    #[must_use]
    pub fn serve(data_dir: &Path) -> Self {
        ProcessOptions::default().serve(data_dir)
    }

    /// `celeris demo` on this data directory; without a data set, on the synthetic one.
    ///
    /// # Panics
    /// If the node does not become ready.
    #[track_caller]
    #[must_use]
    pub fn demo(data_dir: &Path, dataset: Option<&Path>) -> Self {
        let mut command = demo_command(data_dir);
        if let Some(dataset) = dataset {
            command.arg("--dataset").arg(dataset);
        }
        Self::start(command)
    }

    /// `celeris demo --contexts` on this data directory.
    ///
    /// # Panics
    /// If the node does not become ready.
    #[track_caller]
    #[must_use]
    pub fn demo_in_contexts(data_dir: &Path) -> Self {
        let mut command = demo_command(data_dir);
        command.arg("--contexts");
        Self::start(command)
    }

    #[track_caller]
    fn start(command: Command) -> Self {
        let ready = Self::try_start(command);
        ready.unwrap_or_else(|exit| panic!("the node ended before it was ready: {exit:?}"))
    }

    #[track_caller]
    fn try_start(mut command: Command) -> Result<Self, Exit> {
        let mut child = command.spawn().expect("the binary can be started");
        let stdout = child.stdout.take().expect("stdout is piped");
        let pipe = child.stderr.take().expect("stderr is piped");
        let stderr = Arc::new(Mutex::new(String::new()));
        let kept = stderr.clone();
        let stderr_reader = thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                let mut text = kept.lock().expect("no thread panics while appending");
                text.push_str(&line);
                text.push('\n');
            }
        });
        let (sender, ready) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(url) = line.strip_prefix("ready ") {
                    // The receiver is gone after the first URL; reading on keeps the pipe from
                    // filling.
                    let _ = sender.send(url.trim().to_owned());
                }
            }
        });
        let url = ready.recv_timeout(DEADLINE);
        let mut node = Self {
            process: Running(child),
            client: Client::new(url.clone().unwrap_or_default()),
            stderr,
            stderr_reader: Some(stderr_reader),
        };
        match url {
            Ok(_) => Ok(node),
            Err(RecvTimeoutError::Timeout) => panic!("the node was not ready within {} seconds", DEADLINE.as_secs()),
            Err(RecvTimeoutError::Disconnected) => Err(node.await_exit()),
        }
    }

    /// A client of another socket of this node.
    #[must_use]
    pub fn client_at(&self, url: &str) -> Client {
        Client::new(url.to_owned())
    }

    /// A client of this node; the client may outlive the node.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A client of one model of this node; the model need not exist.
    #[must_use]
    pub fn model(&self, name: &str) -> ModelClient {
        self.client.model(name)
    }

    /// The id of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.0.id()
    }

    /// Waits until the node's standard error contains `text`.
    ///
    /// # Panics
    /// If it does not by the deadline.
    #[track_caller]
    pub fn await_stderr(&self, text: &str) {
        eventually(text, || self.stderr.lock().expect("no thread panics while appending").contains(text).then_some(()));
    }

    /// Like [`NodeProcess::await_stderr`], of a node that may end first.
    ///
    /// # Errors
    /// How it ended.
    ///
    /// # Panics
    /// If neither happens by the deadline.
    #[track_caller]
    pub fn await_stderr_or_exit(&mut self, text: &str) -> Result<(), Exit> {
        let has_ended = eventually(text, || {
            let ended = self.process.ended().map(|_| true);
            ended.or_else(|| {
                self.stderr.lock().expect("no thread panics while appending").contains(text).then_some(false)
            })
        });
        if has_ended { Err(self.await_exit()) } else { Ok(()) }
    }

    /// Sends SIGKILL and waits for the exit; the node runs no more code.
    pub fn kill_hard(mut self) {
        self.process.0.kill().expect("a running child can be killed");
        self.process.0.wait().expect("a child can be waited for");
    }

    /// Sends SIGTERM without waiting for the exit.
    pub fn ask_to_stop(&self) {
        // The standard library can only send SIGKILL.
        let status = Command::new("sh")
            .args(["-c", r#"kill -TERM "$0""#])
            .arg(self.process.0.id().to_string())
            .status()
            .expect("every system has a shell");
        assert!(status.success(), "the node is not running");
    }

    /// Sends SIGTERM and waits for the exit.
    ///
    /// # Panics
    /// If the node has not exited by the deadline.
    #[track_caller]
    #[must_use = "the exit code shows whether the node stopped cleanly"]
    pub fn terminate(self) -> Exit {
        self.ask_to_stop();
        self.wait()
    }

    /// Waits until the node exits.
    ///
    /// # Panics
    /// If the node has not exited by the deadline.
    #[track_caller]
    #[must_use = "the exit code shows whether the node stopped cleanly"]
    pub fn wait(mut self) -> Exit {
        self.await_exit()
    }

    #[track_caller]
    fn await_exit(&mut self) -> Exit {
        let status = eventually("the end of the node", || self.process.ended());
        if let Some(reader) = self.stderr_reader.take() {
            reader.join().expect("reading a pipe does not panic");
        }
        Exit { code: status.code(), stderr: self.stderr.lock().expect("no thread panics while appending").clone() }
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        if thread::panicking() {
            let stderr = self.stderr.lock().map(|text| text.clone()).unwrap_or_default();
            eprintln!("--- the node's standard error:\n{stderr}---");
        }
    }
}

fn demo_command(data_dir: &Path) -> Command {
    let mut command = binary::command();
    command.args(["demo", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data_dir);
    command
}
