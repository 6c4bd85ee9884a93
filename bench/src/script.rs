//! Scripts of Python peers that answer commands, so that both sides of a comparison can take turns.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use celeris_cli::Failure;
use celeris_evaluate::peers::Python;
use serde::de::DeserializeOwned;

/// A script that is compiled into this binary.
pub struct Source {
    pub name: &'static str,
    pub text: &'static str,
}

/// A running script: it reads one command a line and answers each with one JSON object a line.
pub struct Script {
    name: &'static str,
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Script {
    /// Writes the script into `folder` and starts it there, with the folder as `--folder`.
    ///
    /// # Errors
    /// If it cannot be written or started.
    pub fn start(python: &Python, source: &Source, folder: &Path, arguments: &[&str]) -> Result<Self, Failure> {
        let path = folder.join(source.name);
        std::fs::write(&path, source.text).map_err(Failure::other)?;
        let mut process = Command::new(python.program("python"))
            .arg(&path)
            .arg("--folder")
            .arg(folder)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Failure::other)?;
        let name = source.name;
        let commands = process.stdin.take().ok_or_else(|| Failure::other(format!("{name}: no standard input")))?;
        let answers = process.stdout.take().ok_or_else(|| Failure::other(format!("{name}: no standard output")))?;
        Ok(Self { name, process, commands, answers: BufReader::new(answers) })
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// If the process has ended; its output is on standard error.
    pub fn ask<T: DeserializeOwned>(&mut self, command: &str) -> Result<T, Failure> {
        writeln!(self.commands, "{command}").and_then(|()| self.commands.flush()).map_err(Failure::other)?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(Failure::other)?;
        serde_json::from_str(&line)
            .map_err(|error| Failure::other(format!("{}, asked for {command}: {error}", self.name)))
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // The process has no state to save.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
