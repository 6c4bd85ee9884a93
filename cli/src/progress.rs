//! Progress of long work: a bar on a terminal, plain lines elsewhere; on standard error.

use std::io::IsTerminal;
use std::sync::Mutex;

use indicatif::{ProgressBar, ProgressStyle};

/// Plain lines are written at every so many percent.
const LINE_PERCENT: u64 = 25;

/// The progress of one piece of work after the other.
pub struct Report {
    bar: Option<ProgressBar>,
    /// The phase and the percentage last written as a line.
    last: Mutex<(String, u64)>,
}

impl Report {
    /// A bar, or lines where standard error is no terminal.
    pub fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(100);
            let style = ProgressStyle::with_template("{msg:>12} [{bar:40}] {percent}% {elapsed}");
            bar.set_style(style.expect("the template is valid"));
            bar
        });
        Self { bar, last: Mutex::new((String::new(), 0)) }
    }

    /// `phase` is done to `fraction`, from 0 to 1.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a percentage is small and positive")]
    pub fn at(&self, phase: &str, fraction: f32) {
        let percent = (fraction.clamp(0.0, 1.0) * 100.0) as u64;
        if let Some(bar) = &self.bar {
            bar.set_message(phase.to_owned());
            bar.set_position(percent);
            return;
        }
        let step = percent - percent % LINE_PERCENT;
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if last.0 != phase || last.1 < step {
            *last = (phase.to_owned(), step);
            eprintln!("{phase}: {step} %");
        }
    }

    /// Removes the bar.
    pub fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
