//! The stages of an evaluation on standard error: a bar with count and time left on a terminal, a
//! line for each stage elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use celeris_evaluate::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;

use crate::interrupt::at_interrupt;

/// Positions of a bar: those of a few things would be too coarse to tell the time left.
const POSITIONS: u64 = 1000;

/// Time between two pictures of a bar that does not move.
const REDRAWN_EVERY: Duration = Duration::from_millis(200);

/// Before the first step of a stage, its time left is unknown.
const BEGUN: &str = "{prefix}: {spinner} {elapsed}";
const MOVED: &str = "{prefix} [{bar:30}] {msg}, {eta} left";

/// Shows one stage after the other.
pub struct Stages {
    bar: Option<ProgressBar>,
    stage: Mutex<Stage>,
}

#[derive(Default)]
struct Stage {
    count: Option<u64>,
    moved: bool,
}

impl Stages {
    pub fn new() -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = terminal.then(|| ProgressBar::hidden().with_style(style(BEGUN)));
        if let Some(bar) = bar.clone() {
            at_interrupt(move || {
                bar.finish_and_clear();
                "interrupted".to_owned()
            });
        }
        Self { bar, stage: Mutex::default() }
    }

    /// Writes a line above the bar.
    pub fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }
}

impl Progress for Stages {
    fn begin(&self, stage: &str, count: Option<u64>) {
        *self.stage.lock() = Stage { count, moved: false };
        let Some(bar) = &self.bar else {
            let count = count.map_or_else(String::new, |count| format!(": {count}"));
            eprintln!("{stage}{count}");
            return;
        };
        bar.reset();
        bar.set_style(style(BEGUN));
        bar.set_prefix(stage.to_owned());
        bar.set_length(POSITIONS);
        if bar.is_hidden() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        bar.enable_steady_tick(REDRAWN_EVERY);
        bar.tick();
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count is a count")]
    fn at(&self, share: f64) {
        let Some(bar) = &self.bar else { return };
        let mut stage = self.stage.lock();
        let share = share.clamp(0.0, 1.0);
        let position = (share * POSITIONS as f64) as u64;
        bar.set_message(match stage.count {
            Some(count) => format!("{} of {count}", (share * count as f64) as u64),
            None => format!("{:.0} %", 100.0 * share),
        });
        bar.set_position(position);
        if !stage.moved && position > 0 {
            stage.moved = true;
            bar.set_style(style(MOVED));
        }
    }
}

impl Drop for Stages {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is valid")
}
