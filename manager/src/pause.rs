//! Test hook: a node that pauses at a named step of a switch or a training, so that a test can kill it there.
//!
//! If `CELERIS_PAUSE_AT=STEP` is set in its environment, a node prints `paused at STEP` on standard error when a job,
//! switch, pruning or deletion first reaches that step, and the thread blocks forever. All other threads continue. Used
//! by the tests `kill_in_retrain.rs` and `identities.rs` in `tests/tests/`.

pub const VARIABLE: &str = "CELERIS_PAUSE_AT";

/// Steps at which a node can be paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Part of the trainer's input is written.
    Export,
    /// The trainer is about to start.
    Training,
    /// The candidate was read back, and is neither evaluated nor registered.
    Validation,
    /// The candidate is registered as a version, and the caches are being warmed for it.
    Warming,
    /// The registry names the new active version, and requests still use the previous one.
    Flip,
    /// The registry no longer names the pruned versions, and their files still exist.
    Pruning,
    /// The registry no longer names the deleted model, and its other data still exists.
    Deletion,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Export => "export",
            Self::Training => "training",
            Self::Validation => "validation",
            Self::Warming => "warming",
            Self::Flip => "flip",
            Self::Pruning => "pruning",
            Self::Deletion => "deletion",
        }
    }
}

/// Blocks forever at this step if the environment variable names it.
pub(crate) fn at(step: Step) {
    if std::env::var_os(VARIABLE).is_some_and(|wanted| wanted == step.name()) {
        eprintln!("paused at {}", step.name());
        loop {
            std::thread::park();
        }
    }
}
