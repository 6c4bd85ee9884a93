//! Progress reports on standard error: a bar on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::sync::Mutex;

use indicatif::{ProgressBar, ProgressStyle};

/// Step of the plain progress lines, in percent.
const LINE_PERCENT: u64 = 25;

/// Reports the progress of consecutive phases.
pub struct Report {
    bar: Option<ProgressBar>,
    /// The phase and the percentage last written as a line.
    last: Mutex<(String, u64)>,
}

impl Report {
    /// Shows a bar, or lines if standard error is not a terminal.
    pub fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(100);
            let style = ProgressStyle::with_template("{msg:>12} [{bar:40}] {percent}% {elapsed}");
            bar.set_style(style.expect("the template is valid"));
            bar
        });
        Self { bar, last: Mutex::new((String::new(), 0)) }
    }

    /// Reports that `fraction` of `phase` is done, from 0 to 1.
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
