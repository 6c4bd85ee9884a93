//! The progress of an import: a bar with count, rate and time left on a terminal, a line every few
//! seconds elsewhere.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use celeris_import::Input;
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;

use crate::interrupt::at_interrupt;

/// Time between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shows the progress of one phase after the other.
pub struct Progress {
    bar: Option<ProgressBar>,
    phase: Mutex<Phase>,
    /// Observations that the node holds, for the message after ^C.
    taken: Arc<AtomicU64>,
}

struct Phase {
    name: &'static str,
    started: Instant,
    last_line: Instant,
    bytes: Option<u64>,
}

impl Progress {
    pub fn new() -> Self {
        let now = Instant::now();
        let phase = Phase { name: "reading", started: now, last_line: now, bytes: None };
        let bar = std::io::stderr().is_terminal().then(ProgressBar::no_length);
        Self { bar, phase: Mutex::new(phase), taken: Arc::default() }
    }

    /// Begins to read an input.
    pub fn begin(&self, name: &'static str, input: &Input) {
        let now = Instant::now();
        let bytes = input.bytes();
        *self.phase.lock() = Phase { name, started: now, last_line: now, bytes };
        let Some(bar) = &self.bar else { return };
        let template = match bytes {
            Some(_) => "{prefix:>10} [{bar:30}] {percent}%  {msg}, {eta} left",
            None => "{prefix:>10} {spinner} {msg}",
        };
        bar.reset();
        bar.set_style(ProgressStyle::with_template(template).expect("the template is valid"));
        bar.set_prefix(name);
        bar.set_message("");
        match bytes {
            Some(bytes) => bar.set_length(bytes),
            None => bar.unset_length(),
        }
    }

    /// So many rows and bytes of the input were read.
    pub fn at(&self, rows: u64, bytes: u64) {
        let mut phase = self.phase.lock();
        let seconds = phase.started.elapsed().as_secs_f64();
        let rate = if seconds > 0.0 { rows as f64 / seconds } else { 0.0 };
        let text = format!("{rows} rows, {rate:.0} a second");
        if let Some(bar) = &self.bar {
            bar.set_message(text);
            bar.set_position(bytes);
        } else if phase.last_line.elapsed() >= LINE_EVERY {
            phase.last_line = Instant::now();
            let left =
                phase.bytes.filter(|_| bytes > 0).map(|all| seconds * (all as f64 / bytes as f64 - 1.0).max(0.0));
            let left = left.map_or_else(String::new, |left| format!(", {left:.0} s left"));
            eprintln!("{}: {text}{left}", phase.name);
        }
    }

    /// Sets the number of observations that the node holds.
    pub fn taken(&self, observations: u64) {
        self.taken.store(observations, Ordering::Relaxed);
    }

    /// Writes a line above the bar.
    pub fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }

    /// Removes the bar.
    pub fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// From now on, ^C removes the bar, says what was done, and ends the process.
    pub fn clear_when_interrupted(&self, dry_run: bool) {
        let (bar, taken) = (self.bar.clone(), self.taken.clone());
        at_interrupt(move || {
            if let Some(bar) = &bar {
                bar.finish_and_clear();
            }
            let taken = taken.load(Ordering::Relaxed);
            match (dry_run, taken) {
                (true, _) | (false, 0) => "interrupted before anything was taken".to_owned(),
                (false, taken) => format!(
                    "interrupted after {taken} observations or a few more; the same command goes on, and takes nothing twice"
                ),
            }
        });
    }
}
