//! A session of bash that runs the blocks of one page, and the node that it talks to.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{self, Receiver};
use std::{env, fs, thread};

use celeris_tests::{DEADLINE, binary, data_dir};
use tempfile::TempDir;

use super::CHECKOUT;
use super::page::{Language, Node};

/// Begins the line after the output of a block, and the last line of a session.
const END: &str = "\u{1e}";

/// The port that the documents use.
const PORT: &str = "7117";

/// The data directory of a demo that was ready and stopped. Starting from a copy takes a second
/// instead of a training.
static DEMO: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let demo = binary::run([
        "demo",
        "--listen",
        "127.0.0.1:0",
        "--exit-when-ready",
        "--data-dir",
        folder.path().to_str().unwrap(),
    ]);
    assert_eq!(demo.code, Some(0), "{}", demo.stderr);
    folder
});

pub struct Session {
    bash: Child,
    lines: Receiver<String>,
    folder: TempDir,
    /// The port of the node, once one is ready.
    port: Option<String>,
    blocks: usize,
    /// All Python blocks so far: a block may use what an earlier one defined.
    python: String,
}

impl Session {
    /// A session in an empty folder in which `docs` is that of the checkout, `data` is free, and
    /// `celeris` is the built binary.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [work, programs] = ["work", "programs"].map(|name| folder.path().join(name));
        fs::create_dir(&work).unwrap();
        fs::create_dir(&programs).unwrap();
        std::os::unix::fs::symlink(Path::new(CHECKOUT).join("docs"), work.join("docs")).unwrap();
        let celeris = programs.join("celeris");
        fs::write(&celeris, wrapper(folder.path())).unwrap();
        fs::set_permissions(&celeris, fs::Permissions::from_mode(0o755)).unwrap();
        let mut path = programs.into_os_string();
        path.push(":");
        path.push(env::var_os("PATH").unwrap_or_default());
        let mut command = Command::new("bash");
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CELERIS_")) {
            command.env_remove(name);
        }
        let errors = fs::File::create(folder.path().join("stderr")).unwrap();
        let mut bash = command
            .args(["--noprofile", "--norc", "-eo", "pipefail"])
            .env("PATH", path)
            .current_dir(&work)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap();
        let stdout = BufReader::new(bash.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        // A node keeps standard output open when a failed command has ended bash.
        writeln!(bash.stdin.as_mut().unwrap(), r"trap 'printf \\n{END}exit\\n' EXIT").unwrap();
        Self { bash, lines, folder, port: None, blocks: 0, python: String::new() }
    }

    pub fn start_node(&mut self, node: Node) -> Result<String, String> {
        match node {
            Node::Empty => self.run(Language::Shell, "celeris serve --data-dir data &"),
            Node::Demo => {
                data_dir::copy(DEMO.path(), &self.folder.path().join("work/data"));
                self.run(Language::Shell, "celeris demo --data-dir data &")
            }
        }
    }

    /// Runs a block; returns what it printed on standard output.
    ///
    /// # Errors
    /// A description with the standard error, if a command fails or the block does not end by the
    /// deadline.
    pub fn run(&mut self, language: Language, code: &str) -> Result<String, String> {
        self.blocks += 1;
        let code = self.port.as_ref().map_or_else(|| code.to_owned(), |port| code.replace(PORT, port));
        match language {
            Language::Shell => {
                let file = self.write("sh", &code);
                let starts_node = code.trim_end().ends_with('&');
                self.source(&format!("source {} </dev/null", file.display()), starts_node)
            }
            Language::JavaScript => {
                let file = self.write("mjs", &code);
                self.source(&format!("node {} </dev/null", file.display()), false)
            }
            Language::Python => {
                let earlier = std::mem::take(&mut self.python);
                self.python = format!("{earlier}print('\\x1e')\n{code}");
                let file = self.write("py", &self.python);
                let output = self.source(&format!("python3 {} </dev/null", file.display()), false)?;
                Ok(output.rsplit(END).next().unwrap_or_default().trim_start().to_owned())
            }
            Language::Toml => {
                let file = self.write("toml", &code);
                self.source(&format!("celeris config --config {} >/dev/null", file.display()), false)
            }
        }
    }

    fn write(&self, extension: &str, code: &str) -> PathBuf {
        let file = self.folder.path().join(format!("block-{}.{extension}", self.blocks));
        fs::write(&file, code).unwrap();
        file
    }

    fn source(&mut self, command: &str, starts_node: bool) -> Result<String, String> {
        let stdin = self.bash.stdin.as_mut().unwrap();
        // It fails if the session has ended, which the missing end of the output shows.
        let _ = writeln!(stdin, "{command}\nprintf '\\n{END}end\\n'");
        let (mut output, mut ended, mut ready) = (String::new(), false, !starts_node);
        while !(ended && ready) {
            let line = self.lines.recv_timeout(DEADLINE).ok().filter(|line| *line != format!("{END}exit"));
            let Some(line) = line else {
                let errors = fs::read_to_string(self.folder.path().join("stderr")).unwrap();
                return Err(format!("a command failed, or took too long:\n{output}{errors}"));
            };
            if line == format!("{END}end") {
                ended = true;
            } else if let Some(url) = line.strip_prefix("ready ").filter(|_| !ready) {
                ready = true;
                let port = url.trim().rsplit(':').next().unwrap_or_default();
                self.port = Some(port.to_owned());
                fs::write(self.folder.path().join("url"), url.trim()).unwrap();
            } else {
                output.push_str(&line);
                output.push('\n');
            }
        }
        let shown = self.port.as_ref().map_or_else(
            || output.clone(),
            |port| output.replace(&format!("127.0.0.1:{port}"), &format!("127.0.0.1:{PORT}")),
        );
        Ok(shown.trim_end().to_owned())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The group has the node too. It is gone already if the session has ended by itself.
        let group = self.bash.id().to_string();
        let _ = Command::new("bash").args(["-c", "kill -KILL -- -$0", &group]).stderr(Stdio::null()).status();
        let _ = self.bash.wait();
    }
}

/// A program `celeris` whose nodes listen on a free port, and whose commands address that node.
fn wrapper(folder: &Path) -> String {
    let (celeris, url) = (binary::path(), folder.join("url"));
    let (celeris, url) = (celeris.display(), url.display());
    format!(
        r#"#!/bin/sh
case "$1" in
serve | demo) CELERIS_SERVER__LISTEN=127.0.0.1:0 exec {celeris} "$@" ;;
esac
case "$1 $*" in
*" --url "* | *" --data-dir "*) ;;
"import "* | "jobs "* | "keys "* | "models "* | "retrain "* | "status "*) test ! -e {url} || set -- "$@" --url "$(cat {url})" ;;
esac
exec {celeris} "$@"
"#
    )
}
